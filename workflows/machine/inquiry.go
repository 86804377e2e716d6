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

// inquiry is the question to the provider whether the instance of an unhealthy machine is gone. While it is open, it is
// also the machine's running call. It delays nothing: signals and deadlines are handled meanwhile, and the next call to
// the provider ends it.
type inquiry struct {
	settled bool // the provider need not be asked, or not again, in this outage
	// a person has to repair something before the provider can answer; the next signal may tell of that
	stuck bool
	known *kube.Problem       // why the last call had no answer; nil: it is the first call
	end   workflow.CancelFunc // ends the open call; nil: none is open
}

// resume lets a stuck question be asked again, because something has changed.
func (q *inquiry) resume() {
	if q.stuck {
		q.settled, q.stuck = false, false
	}
}

// inquire asks whether the instance is gone, unless the question is open already, and waits for the answer, a signal or
// a deadline. A call that fails is repeated by the retry policy until it is answered: while the breaker is open,
// nothing else shows whether a silent machine still has its instance.
func (m *machine) inquire(ctx workflow.Context, d activities.Decision, v health.Verdict) error {
	q := &m.inquiry
	if q.end == nil {
		if err := m.callEnded(ctx); err != nil {
			return err
		}
		of, call := run.Glance, m.call(d)
		if call.Known = q.known; q.known != nil {
			of = run.Cloud
		}
		options, end := workflow.WithCancel(
			of(ctx, d.Provider, m.ActivityID(vocabulary.StepInstanceStatus), "is instance "+d.ProviderID+" still there?"),
		)
		m.running = workflow.ExecuteActivity(options, new(cloud.Provider).InstanceStatus, call)
		m.calling = vocabulary.StepInstanceStatus
		q.end = end
	}
	open := m.running
	if err := m.awaitHealth(ctx, d, v, open); err != nil || !open.IsReady() {
		return err
	}
	m.running, q.end = nil, nil
	var answer cloud.InstanceAnswer
	err := open.Get(ctx, &answer)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		q.known = kube.NoAnswer("provider " + d.Provider + " has not said whether the instance is gone")
	case answer.Problem == nil || answer.Nameless():
		q.settled, q.known = true, nil
	case waitsForPeople(*answer.Problem):
		q.settled, q.stuck, q.known = true, true, nil
	default:
		q.known = answer.Problem
	}
	if !answer.Gone {
		return nil
	}
	message := "the provider has no instance " + d.ProviderID + " any more"
	return m.writeStatus(ctx, message, activities.Report{
		Read:         m.Read(ctx),
		InstanceGone: true,
		Step:         m.Operation(),
		Conditions: []activities.Condition{
			{Type: vocabulary.ConditionInstanceReady, Reason: vocabulary.ReasonInstanceGone, Message: message},
		},
		Event: &kube.Event{Warning: true, Reason: vocabulary.ReasonInstanceGone, Message: message},
	})
}
