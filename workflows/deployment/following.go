package deployment

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/deployment"
	"millwright/decide/phrase"
	"millwright/workflows/run"
)

// follow leaves the sets to a rollout that an earlier run of this workflow started. It forwards each signal to the
// rollout until that reports its end, and decides nothing meanwhile. Requests are not forwarded: they are written on
// the deployment and arrive as a change. If the rollout has ended already, follow returns at once.
func (m *machineDeployment) follow(ctx workflow.Context, id string, d deployment.Decision) error {
	defer m.CancelTimer("follow")
	m.Live, m.Ended = true, "" // the next decision reads from the API server
	check := m.followCheck(ctx, d)
	for {
		if !m.forwardSignal(ctx, id) {
			m.over = id
			return nil
		}
		if err := m.AwaitChange(ctx, check); err != nil {
			m.cancelFollowed(ctx, id)
			return err
		}
		m.Receive()
		switch {
		case m.Ended == id:
			m.over = id
			return nil
		case check.IsReady():
			return nil
		}
	}
}

// forwardSignal signals a rollout that something changed, and asks it to signal this workflow at its end. It reports
// whether the rollout is open, also if the signal fails for another reason than that the rollout is not open.
func (m *machineDeployment) forwardSignal(ctx workflow.Context, id string) bool {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	changed := run.Changed{UID: m.Ref.UID, Versions: m.Versions, Tell: m.ID}
	err := workflow.SignalExternalWorkflow(ctx, id, "", run.SignalChanged, changed).Get(ctx, nil)
	absent := new(temporal.UnknownExternalWorkflowExecutionError)
	return !errors.As(err, &absent)
}

// cancelFollowed cancels a rollout that is followed, and waits until it has written the hold and ended, as it would for
// a rollout that this run started. A rollout that is terminated meanwhile sends no signal, so the wait ends after
// HoldWritten.
func (m *machineDeployment) cancelFollowed(ctx workflow.Context, id string) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := workflow.RequestCancelExternalWorkflow(ctx, id, "").Get(ctx, nil); err != nil {
		return // it is not open
	}
	late := m.Timer(
		ctx,
		"cancel",
		"the rollout has written no hold: not waited for any longer",
		workflow.Now(ctx).Add(run.HoldWritten),
	)
	for m.Receive(); m.Ended != id && !late.IsReady(); m.Receive() {
		if err := m.AwaitChange(ctx, late); err != nil {
			return
		}
	}
	m.CancelTimer("cancel")
}

// followCheck fires one minute after the next known deadline, or a minute after an hour if there is none. A parent
// learns when its child is terminated; a follower does not, so it has to check.
func (m *machineDeployment) followCheck(ctx workflow.Context, d deployment.Decision) workflow.Future {
	var at time.Time
	for _, t := range []time.Time{d.ReplaceHeldUntil, d.Rollout.Recheck} {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	now := workflow.Now(ctx)
	if at.IsZero() {
		at = now.Add(run.RecheckStuck) // in case the signal about its end was sent while no run was open
	}
	at = phrase.Later(at, now).Add(run.RecheckRollout)
	return m.Timer(ctx, "follow", "looks then whether the rollout is still open: "+d.Pending.Why, at)
}
