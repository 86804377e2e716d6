package machine

import (
	"go.temporal.io/sdk/workflow"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	activities "millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/health"
	"millwright/workflows/run"
)

// instanceGoneCheck is the state of a provider call which finds out whether the instance of an unhealthy machine is
// gone. While this call is open, the field unfinishedCall also refers to the call. The call delays nothing: the
// workflow handles signals and deadlines while the call is open, and the next provider call cancels this call.
type instanceGoneCheck struct {
	isSettled bool // the provider need not be asked (again) in this outage
	// the provider can answer only after a person has repaired something; the next signal may report the repair
	needsRepair bool
	lastProblem *kube.Problem       // the reason why the last call had no answer; nil: first call
	cancelCall  workflow.CancelFunc // cancels the open call; nil: no call is open
}

// After a change, allowCallAfterRepair allows another call if the last call needs a repair.
func (q *instanceGoneCheck) allowCallAfterRepair() {
	if q.needsRepair {
		q.isSettled, q.needsRepair = false, false
	}
}

// checkInstanceGone calls the provider to find out whether the instance is gone, unless this call is already
// open. checkInstanceGone waits for the answer, a signal or a deadline. The retry policy repeats a failed call
// until the provider answers. If the circuit breaker is open and the node is unreachable, only the provider knows
// whether the instance still exists.
func (m *machine) checkInstanceGone(ctx workflow.Context, d activities.Decision, v health.Verdict) error {
	q := &m.instanceGoneCheck
	if q.cancelCall == nil {
		if err := m.awaitUnfinishedCall(ctx); err != nil {
			return err
		}
		of, call := run.OptionalCloudCallOptions, m.instanceCall(d)
		if call.Known = q.lastProblem; q.lastProblem != nil {
			of = run.CloudCallOptions
		}
		options, end := workflow.WithCancel(
			of(ctx, d.Provider, m.ActivityID(vocabulary.StepGetInstanceStatus), "is instance "+d.ProviderID+" still there?"),
		)
		m.unfinishedCall = workflow.ExecuteActivity(options, new(cloud.Activities).InstanceStatus, call)
		m.unfinishedCallName = vocabulary.StepGetInstanceStatus
		q.cancelCall = end
	}
	open := m.unfinishedCall
	if err := m.awaitChangeOrHealthDeadline(ctx, d, v, open); err != nil || !open.IsReady() {
		return err
	}
	m.unfinishedCall, q.cancelCall = nil, nil
	var answer cloud.InstanceAnswer
	err := open.Get(ctx, &answer)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		q.lastProblem = kube.NewNoAnswerProblem("provider " + d.Provider + " has not said whether the instance is gone")
	case answer.Problem == nil || answer.HasNoInstance():
		q.isSettled, q.lastProblem = true, nil
	case needsPersonToRepair(*answer.Problem):
		q.isSettled, q.needsRepair, q.lastProblem = true, true, nil
	default:
		q.lastProblem = answer.Problem
	}
	if !answer.Gone {
		return nil
	}
	message := "the provider has no instance " + d.ProviderID + " any more"
	return m.writeStatus(ctx, message, activities.Report{
		Read:         m.NewReadInput(ctx),
		InstanceGone: true,
		Step:         m.StatusStep(),
		Conditions: []activities.Condition{
			{Type: vocabulary.ConditionInstanceReady, Reason: vocabulary.ReasonInstanceGone, Message: message},
		},
		Event: &kube.Event{Warning: true, Reason: vocabulary.ReasonInstanceGone, Message: message},
	})
}
