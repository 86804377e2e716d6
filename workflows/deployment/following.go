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

// followRollout waits for a rollout that an earlier run of this workflow has started, and makes no decisions while it
// waits. followRollout forwards each signal to the rollout until the rollout reports its end. followRollout does not
// forward requests, because the workflow writes each request to the deployment, and this write causes a signal. If the
// rollout has already ended, followRollout returns at once.
func (m *machineDeployment) followRollout(ctx workflow.Context, id string, d deployment.Decision) error {
	defer m.CancelTimer("follow")
	m.Live, m.Ended = true, "" // the next decision reads from the API server
	check := m.rolloutCheckTimer(ctx, d)
	for {
		if !m.forwardSignal(ctx, id) {
			m.endedRolloutID = id
			return nil
		}
		if err := m.AwaitChange(ctx, check); err != nil {
			m.cancelFollowedRollout(ctx, id)
			return err
		}
		m.ReceiveSignals()
		switch {
		case m.Ended == id:
			m.endedRolloutID = id
			return nil
		case check.IsReady():
			return nil
		}
	}
}

// forwardSignal sends the rollout a signal that something has changed. The signal requests that the rollout signals
// this workflow at its end. forwardSignal returns false only if the rollout is not open. If the signal fails for
// another reason, forwardSignal returns true.
func (m *machineDeployment) forwardSignal(ctx workflow.Context, id string) bool {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	changed := m.NewChangeSignal()
	changed.Tell = m.ID
	err := workflow.SignalExternalWorkflow(ctx, id, "", run.SignalChanged, changed).Get(ctx, nil)
	absent := new(temporal.UnknownExternalWorkflowExecutionError)
	return !errors.As(err, &absent)
}

// cancelFollowedRollout cancels a followed rollout, and waits until the rollout has written the hold and has ended. A
// terminated rollout sends no signal, so the wait ends after HoldWriteTimeout.
func (m *machineDeployment) cancelFollowedRollout(ctx workflow.Context, id string) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := workflow.RequestCancelExternalWorkflow(ctx, id, "").Get(ctx, nil); err != nil {
		return // the rollout is not open
	}
	late := m.EnsureTimer(
		ctx,
		"cancel",
		run.HoldWriteLabel(),
		workflow.Now(ctx).Add(run.HoldWriteTimeout),
	)
	for m.ReceiveSignals(); m.Ended != id && !late.IsReady(); m.ReceiveSignals() {
		if err := m.AwaitChange(ctx, late); err != nil {
			return
		}
	}
	m.CancelTimer("cancel")
}

// rolloutCheckTimer returns a timer that fires one minute after the next known due time. Without a due time, the timer
// fires after 61 minutes. Temporal reports the termination of a child workflow only to the parent. A run that did not
// start the rollout must therefore check whether the rollout is still open.
func (m *machineDeployment) rolloutCheckTimer(ctx workflow.Context, d deployment.Decision) workflow.Future {
	var at time.Time
	for _, t := range []time.Time{d.ReplaceHeldUntil, d.Rollout.Recheck} {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	now := workflow.Now(ctx)
	if at.IsZero() {
		at = now.Add(run.StuckRecheckInterval) // the signal about the rollout's end may have been sent while no run was open
	}
	at = phrase.LaterTime(at, now).Add(run.RolloutRecheckInterval)
	return m.EnsureTimer(ctx, "follow", run.FollowLabel(d.Pending.Why), at)
}
