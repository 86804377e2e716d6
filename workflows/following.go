package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
)

// follow leaves the sets to a rollout that a former run of this workflow started: whatever comes is passed on to it, until it tells
// its end. Nothing is decided here meanwhile. Verbs need not be passed on: they are written on the deployment, and come back as a
// change. Where the rollout has ended already, that is taken in.
func (m *machineDeployment) follow(ctx workflow.Context, id string, d activities.DeploymentDecision) error {
	defer m.disarm("follow")
	m.live, m.ended = true, "" // whatever follows
	look := m.forgotten(ctx, d)
	for {
		if !m.passOn(ctx, id) {
			m.over = id
			return nil
		}
		if err := m.awaken(ctx, look); err != nil {
			m.cancelToo(ctx, id)
			return err
		}
		m.receive()
		switch {
		case m.ended == id:
			m.over = id
			return nil
		case look.IsReady():
			return nil
		}
	}
}

// passOn tells a rollout that something changed, and that this workflow wants to hear of its end. It reports whether the rollout is
// open; where that is not known, it is taken to be.
func (m *machineDeployment) passOn(ctx workflow.Context, id string) bool {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	changed := Changed{UID: m.ref.UID, Versions: m.gate, Tell: m.id}
	err := workflow.SignalExternalWorkflow(ctx, id, "", SignalChanged, changed).Get(ctx, nil)
	absent := new(temporal.UnknownExternalWorkflowExecutionError)
	return !errors.As(err, &absent)
}

// cancelToo cancels a rollout that is followed, and waits until it has written the hold and ended, as for one that this run started.
// One that somebody terminated meanwhile tells nothing: it is not waited for longer than that.
func (m *machineDeployment) cancelToo(ctx workflow.Context, id string) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := workflow.RequestCancelExternalWorkflow(ctx, id, "").Get(ctx, nil); err != nil {
		return // it is not open
	}
	late := m.timer(ctx, "cancel", "the rollout has written no hold: not waited for any longer", workflow.Now(ctx).Add(holdWritten))
	for m.receive(); m.ended != id && !late.IsReady(); m.receive() {
		if err := m.awaken(ctx, late); err != nil {
			return
		}
	}
	m.disarm("cancel")
}

// forgotten is when a deployment looks again that follows a rollout: a while after the moment at which something else is to be done
// although nothing changes, or an hour when there is no such moment. Who started a rollout hears when somebody terminates it; who
// follows one hears nothing, and the clock wakes nobody else.
func (m *machineDeployment) forgotten(ctx workflow.Context, d activities.DeploymentDecision) workflow.Future {
	var at time.Time
	for _, t := range []time.Time{d.HeldUntil, d.Recheck} {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	now := workflow.Now(ctx)
	if at.IsZero() {
		at = now.Add(recheckStuck) // in case its end was told while nobody listened
	}
	if at.Before(now) {
		at = now
	}
	return m.timer(ctx, "follow", "looks then whether the rollout is still open: "+d.Why, at.Add(recheckRollout))
}
