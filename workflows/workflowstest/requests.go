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

// Operator sends requests in a test, and records which requests were applied and which answers came.
type Operator struct {
	Env       *testsuite.TestWorkflowEnvironment
	lockWorld func() (unlock func())
	Orders    []activitiesrequest.Request // the applied requests, with Asked set to zero
	Times     []time.Time                 // the values of Asked in the requests
	Answer    activitiesrequest.Answer
	Fails     int // number of attempts that fail before one succeeds
	Answered  []any
	Refused   []string // refusals of the validator
}

func NewOperator(env *testsuite.TestWorkflowEnvironment, lock func() func()) *Operator {
	return NewOperatorOfActivity("ApplyRequest", env, lock)
}

// NewOperatorOfActivity is NewOperator for requests that the given activity applies.
func NewOperatorOfActivity(activity string, env *testsuite.TestWorkflowEnvironment, lock func() func()) *Operator {
	c := &Operator{
		Env:       env,
		lockWorld: lock,
		Answer:    activitiesrequest.Answer{Applied: true, Message: "written", Version: "12"},
	}
	env.OnActivity(activity, mock.Anything, mock.Anything).
		Return(func(_ context.Context, in activitiesrequest.Request) (activitiesrequest.Answer, error) {
			defer c.lockWorld()()
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

// SendUpdate sends an update and stores the answer.
func (c *Operator) SendUpdate(in any) {
	c.Env.UpdateWorkflow(run.MessageRequest, "", &testsuite.TestUpdateCallback{
		OnAccept: func() {},
		OnReject: func(err error) { c.Refused = append(c.Refused, refusalText(err)) },
		OnComplete: func(answer any, err error) {
			if err != nil {
				answer = refusalText(err)
			}
			c.Answered = append(c.Answered, answer)
		},
	}, in)
}

func (c *Operator) RunAfterDelay(d time.Duration, do func()) { c.Env.RegisterDelayedCallback(do, d) }

func (c *Operator) SendSignal(in any) { c.Env.SignalWorkflow(run.MessageRequest, in) }

// SendSignalWithoutTask sends a signal without a workflow task: the workflow receives the signal with the next task.
func (c *Operator) SendSignalWithoutTask(in any) {
	c.Env.SignalWorkflowSkippingWorkflowTask(run.MessageRequest, in)
}

// refusalText returns the type and message of a refusal.
func refusalText(err error) string {
	var failed *temporal.ApplicationError
	if !errors.As(err, &failed) || !failed.NonRetryable() {
		return "not a refusal: " + err.Error()
	}
	return failed.Type() + ": " + failed.Message()
}

func NewForceRequest(actor string) run.RequestInput {
	return run.RequestInput{Command: "force", Actor: actor, Reason: "it burns"}
}
