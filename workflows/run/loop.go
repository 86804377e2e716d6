package run

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
	"millwright/api/vocabulary"
)

// Procedure is the part of the run loop that each kind of object implements. D is the type of the decision, and R is
// the type of the workflow's result.
type Procedure[D any, R runResult] interface {
	BaseState() *WorkflowState
	// Decide runs an activity that returns the next step.
	Decide(ctx workflow.Context) (D, error)
	// ExecuteStep carries out a decision, or waits until something changes. If the result is not nil, the run ends.
	ExecuteStep(ctx workflow.Context, d D) (*R, error)
	// FinishOpenWork waits for work that must end before the run ends. again is true if the run continues as new.
	FinishOpenWork(ctx workflow.Context, again bool)
	// NextInput returns the input for the run that continues this run.
	NextInput() any
}

// runResult is the result of a run.
type runResult interface {
	// reports whether nothing is left to do; a signal that arrives before the end then makes the run continue
	MayContinue() bool
}

// ExecuteLoop runs the workflow of one object: it receives signals, makes decisions and executes steps. The loop ends
// when a step ends the run or when the history is long. The run then ends or continues as new. No signal or request is
// lost, because the workflow does not yield between its last check for them and its return.
func ExecuteLoop[D any, R runResult](ctx workflow.Context, p Procedure[D, R]) (ended R, err error) {
	o := p.BaseState()
	if err := o.acceptRequests(ctx); err != nil {
		return ended, err
	}
	always, done := workflow.NewDisconnectedContext(ctx) // a request is carried out even if the run is cancelled
	defer done()
	for {
		over, err := runSteps(ctx, p)
		calm := over != nil && (*over).MayContinue()
		again := err == nil && (over == nil || (calm && o.ContinuesAsNew))
		p.FinishOpenWork(ctx, again)
		waited, failed := o.awaitRequests(always)
		switch {
		case failed != nil:
			return ended, failed
		case (calm || again) && waited, calm && o.ReceiveSignals(), again && ctx.Err() != nil:
			continue
		case again:
			o.ReceiveSignals()
			return ended, o.publishLastStep(
				always,
				workflow.NewContinueAsNewError(o.withCurrentShard(ctx), string(o.kind), p.NextInput()),
			)
		case over != nil:
			ended = *over
		}
		return ended, o.publishLastStep(always, err)
	}
}

// idleBeforeEnd delays the end of a run that has nothing left to do by idleTimeBeforeEnd, or until a signal arrives.
// Only kinds with changes in bursts use this wait. During the wait, Temporal also records the last local activities.
// Without the wait, a signal could make the server reject the workflow task that ends the run, and local activities
// that are not recorded would run again. Runs of machines do not wait, because a timer and a workflow task per machine
// cost more than the few repetitions (ADR 0089).
func (o *WorkflowState) idleBeforeEnd(ctx workflow.Context) {
	if !o.IdleBeforeEnd {
		return
	}
	timer := o.EnsureTimer(ctx, "calm", CalmLabel(), workflow.Now(ctx).Add(idleTimeBeforeEnd))
	_ = o.AwaitChange(ctx, timer) // if the run is cancelled during this wait, its outcome is still Calm
	o.CancelTimer("calm")
}

// awaitRequests waits until all received requests are executed, and reports whether it had to wait.
func (o *WorkflowState) awaitRequests(ctx workflow.Context) (waited bool, err error) {
	if o.areRequestsDone(ctx) {
		return false, nil
	}
	return true, workflow.Await(ctx, func() bool { return o.areRequestsDone(ctx) })
}

// ShowRefusal shows that the API server refuses a write. The step shows the time of the first refusal, not of the
// latest attempt.
func (o *WorkflowState) ShowRefusal(ctx workflow.Context, err error) {
	if o.firstRefusalTime.IsZero() {
		o.firstRefusalTime = workflow.Now(ctx)
	}
	o.ShowStep(ctx, Step{
		Name:      vocabulary.StepWriteRefused,
		Why:       "the API server refuses: " + RefusalMessage(err),
		Phase:     o.Shown.Phase,
		Node:      o.Shown.Node,
		BlockedBy: []string{vocabulary.BlockedByRefusedWrite},
		Stuck:     true,
	})
	o.Shown.Since = o.firstRefusalTime
}

// awaitRetryAfterRefusal waits until a signal arrives or it is time to retry a refused write. A refusal does not fail
// the run. A role, a webhook or a quota that has refused the write may allow the write later, but no event reports
// this.
func (o *WorkflowState) awaitRetryAfterRefusal(ctx workflow.Context, err error) error {
	o.ShowRefusal(ctx, err)
	o.consecutiveRefusalCount++
	o.Live = true
	defer o.CancelTimer("refused")
	err = o.AwaitChange(
		ctx,
		o.EnsureTimer(
			ctx,
			"refused",
			RetryLabel(RefusalMessage(err)),
			workflow.Now(ctx).Add(WaitAfterRefusal(o.consecutiveRefusalCount)),
		),
	)
	if ctx.Err() != nil {
		// the next step of a cancelled run may still write something; for all other kinds, that step ends the run
		return nil
	}
	return err
}

// runSteps decides and carries out steps until a step ends the run. If the result is nil, the run continues as new. If
// IdleBeforeEnd is set, and the run has executed a step and has nothing left to do, the run waits before it ends (see
// idleBeforeEnd).
func runSteps[D any, R runResult](ctx workflow.Context, p Procedure[D, R]) (*R, error) {
	o := p.BaseState()
	for first := true; ; first = false {
		o.ReceiveSignals()
		var over *R
		d, err := p.Decide(ctx)
		if err == nil {
			over, err = p.ExecuteStep(ctx, d)
		}
		if IsFailureOfType(err, kube.FailureTypeRefused) {
			err = o.awaitRetryAfterRefusal(ctx, err)
		} else if err == nil {
			o.consecutiveRefusalCount, o.firstRefusalTime = 0, time.Time{}
		}
		switch {
		case IsFailureOfType(err, kube.FailureTypeRewound):
			// The API server was restored, so no cache will reach the old minimum versions.
			o.Versions, o.Live = kube.MinVersions{}, true
		case IsFailureOfType(err, kube.FailureTypeObjectGone), IsFailureOfType(err, kube.FailureTypeConflict), IsTimeout(err):
			// the object has changed or is gone, or the decision is too old, so the next decision must read from the
			// API server
			o.Live = true
		case err != nil || over != nil:
			if over != nil && (*over).MayContinue() && !first {
				o.idleBeforeEnd(ctx)
			}
			return over, err
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() && ctx.Err() == nil {
			return nil, nil
		}
	}
}
