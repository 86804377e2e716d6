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
	Env                 *testsuite.TestWorkflowEnvironment
	lockTestEnv         func() (unlock func())
	AppliedRequests     []activitiesrequest.Request // the applied requests, with Asked set to zero
	RequestTimes        []time.Time                 // the values of Asked in the requests
	Answer              activitiesrequest.Answer
	FailingAttemptCount int // number of attempts that fail before one succeeds
	UpdateAnswers       []any
	UpdateRefusals      []string // refusals of the validator
}

func NewOperator(env *testsuite.TestWorkflowEnvironment, lock func() func()) *Operator {
	return NewOperatorForActivity("ApplyRequest", env, lock)
}

// NewOperatorForActivity is NewOperator for requests that the given activity applies.
func NewOperatorForActivity(activity string, env *testsuite.TestWorkflowEnvironment, lock func() func()) *Operator {
	c := &Operator{
		Env:         env,
		lockTestEnv: lock,
		Answer:      activitiesrequest.Answer{Applied: true, Message: "written", Version: "12"},
	}
	env.OnActivity(activity, mock.Anything, mock.Anything).
		Return(func(_ context.Context, in activitiesrequest.Request) (activitiesrequest.Answer, error) {
			defer c.lockTestEnv()()
			if c.FailingAttemptCount--; c.FailingAttemptCount >= 0 {
				return activitiesrequest.Answer{}, errors.New("the API server is away")
			}
			c.RequestTimes = append(c.RequestTimes, in.Order.RequestedAt)
			in.Order.RequestedAt = time.Time{}
			c.AppliedRequests = append(c.AppliedRequests, in)
			return c.Answer, nil
		}).
		Maybe()
	return c
}

// SendUpdate sends an update and stores the answer.
func (c *Operator) SendUpdate(in any) {
	c.Env.UpdateWorkflow(run.RequestMessageName, "", &testsuite.TestUpdateCallback{
		OnAccept: func() {},
		OnReject: func(err error) { c.UpdateRefusals = append(c.UpdateRefusals, refusalText(err)) },
		OnComplete: func(answer any, err error) {
			if err != nil {
				answer = refusalText(err)
			}
			c.UpdateAnswers = append(c.UpdateAnswers, answer)
		},
	}, in)
}

func (c *Operator) RunAfterDelay(d time.Duration, do func()) { c.Env.RegisterDelayedCallback(do, d) }

func (c *Operator) SendSignal(in any) { c.Env.SignalWorkflow(run.RequestMessageName, in) }

// SendSignalWithoutTask sends a signal without a workflow task: the workflow receives the signal with the next task.
func (c *Operator) SendSignalWithoutTask(in any) {
	c.Env.SignalWorkflowSkippingWorkflowTask(run.RequestMessageName, in)
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
