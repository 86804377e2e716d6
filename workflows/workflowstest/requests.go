package workflowstest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	activitiesrequest "millwright/activities/request"
	"millwright/workflows/run"
)

// Operator makes requests in a test, and records what was applied and what was answered.
type Operator struct {
	Env      *testsuite.TestWorkflowEnvironment
	lock     func() (unlock func())
	Orders   []activitiesrequest.Request // with Asked set to zero
	Times    []time.Time                 // the values of Asked
	Answer   activitiesrequest.Answer
	Fails    int // number of attempts that fail first
	Answered []any
	Refused  []string // by the validator
}

func NewOperator(env *testsuite.TestWorkflowEnvironment, lock func() func()) *Operator {
	return NewOperatorBy("ApplyRequest", env, lock)
}

// NewOperatorBy is NewOperator for the requests that another activity applies.
func NewOperatorBy(activity string, env *testsuite.TestWorkflowEnvironment, lock func() func()) *Operator {
	c := &Operator{
		Env:    env,
		lock:   lock,
		Answer: activitiesrequest.Answer{Applied: true, Message: "written", Version: "12"},
	}
	env.OnActivity(activity, mock.Anything, mock.Anything).
		Return(func(_ context.Context, in activitiesrequest.Request) (activitiesrequest.Answer, error) {
			defer c.lock()()
			if c.Fails--; c.Fails >= 0 {
				return activitiesrequest.Answer{}, errors.New("the API server is away")
			}
			c.Times = append(c.Times, in.Order.Asked)
			in.Order.Asked = time.Time{}
			c.Orders = append(c.Orders, in)
			return c.Answer, nil
		}).
		Maybe()
	return c
}

// Ask sends an update and keeps the answer.
func (c *Operator) Ask(in any) {
	c.Env.UpdateWorkflow(run.MessageRequest, "", &testsuite.TestUpdateCallback{
		OnAccept: func() {},
		OnReject: func(err error) { c.Refused = append(c.Refused, refusal(err)) },
		OnComplete: func(answer any, err error) {
			if err != nil {
				answer = refusal(err)
			}
			c.Answered = append(c.Answered, answer)
		},
	}, in)
}

func (c *Operator) After(d time.Duration, do func()) { c.Env.RegisterDelayedCallback(do, d) }

func (c *Operator) Signal(in any) { c.Env.SignalWorkflow(run.MessageRequest, in) }

// Unseen sends a signal that starts no workflow task: the workflow receives it with the next task.
func (c *Operator) Unseen(in any) {
	c.Env.SignalWorkflowSkippingWorkflowTask(run.MessageRequest, in)
}

// refusal returns the type and message of a refusal.
func refusal(err error) string {
	var failed *temporal.ApplicationError
	if !errors.As(err, &failed) || !failed.NonRetryable() {
		return "not a refusal: " + err.Error()
	}
	return failed.Type() + ": " + failed.Message()
}

func Force(actor string) run.RequestInput {
	return run.RequestInput{Command: "force", Actor: actor, Reason: "it burns"}
}
