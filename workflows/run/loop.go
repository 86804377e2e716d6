package run

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
	"millwright/api/vocabulary"
)

// Procedure is what a kind of object supplies to its run loop. D is its decision, R the result of its workflow.
type Procedure[D any, R result] interface {
	Base() *Object
	// Decide asks an activity what is next.
	Decide(ctx workflow.Context) (D, error)
	// Step carries out a decision, or waits until something changes. A result ends the run.
	Step(ctx workflow.Context, d D) (*R, error)
	// Settle waits for what must end before the run does; again says that the run continues as new.
	Settle(ctx workflow.Context, again bool)
	// Next returns the input of the run that continues this one.
	Next() any
}

// result is how a run ended.
type result interface {
	Calm() bool // no work was left: the run continues if a signal arrives before it has ended
}

// Loop runs the workflow of one kind of object: it receives signals, decides and takes a step, until a step ends the
// run or the history has grown long; then it ends or continues as new. No signal or operator request is lost: between
// the last check for them and the return, nothing yields.
func Loop[D any, R result](ctx workflow.Context, p Procedure[D, R]) (ended R, err error) {
	o := p.Base()
	if err := o.acceptRequests(ctx); err != nil {
		return ended, err
	}
	always, done := workflow.NewDisconnectedContext(ctx) // a request is carried out even if the run was cancelled
	defer done()
	for {
		over, err := steps(ctx, p)
		calm := over != nil && (*over).Calm()
		again := err == nil && (over == nil || (calm && o.ContinuesAsNew))
		p.Settle(ctx, again)
		waited, failed := o.awaitRequests(always)
		switch {
		case failed != nil:
			return ended, failed
		case (calm || again) && waited, calm && o.Receive(), again && ctx.Err() != nil:
			continue
		case again:
			o.Receive()
			return ended, o.close(always, workflow.NewContinueAsNewError(ctx, string(o.kind), p.Next()))
		case over != nil:
			ended = *over
		}
		return ended, o.close(always, err)
	}
}

// rest waits calmAfter, or until a signal arrives, for the kinds whose changes come in bursts. The wait also makes
// Temporal record the local activities of the last steps: the server refuses a task that ends the run if a signal has
// arrived meanwhile, and local activities that are not recorded all run again. A machine's run does not rest: one timer
// and one task for each machine cost more than the few repetitions (ADR 0089).
func (o *Object) rest(ctx workflow.Context) {
	if !o.IdleBeforeEnd {
		return
	}
	timer := o.Timer(ctx, "calm", "calm: the run ends", workflow.Now(ctx).Add(calmAfter))
	_ = o.AwaitChange(ctx, timer) // a run that is cancelled while it is calm ends as calm
	o.CancelTimer("calm")
}

// awaitRequests waits until all requests that have arrived are carried out, and reports whether it had to wait.
func (o *Object) awaitRequests(ctx workflow.Context) (waited bool, err error) {
	if o.requestsDone(ctx) {
		return false, nil
	}
	return true, workflow.Await(ctx, func() bool { return o.requestsDone(ctx) })
}

// ShowRefusal shows that the API server refuses a write. The time since when does not change with each attempt.
func (o *Object) ShowRefusal(ctx workflow.Context, err error) {
	if o.refusedAt.IsZero() {
		o.refusedAt = workflow.Now(ctx)
	}
	o.Show(ctx, Step{
		Name:      vocabulary.StepRefused,
		Why:       "the API server refuses: " + Refused(err),
		Phase:     o.Shown.Phase,
		Node:      o.Shown.Node,
		BlockedBy: []string{vocabulary.BlockedRefused},
		Stuck:     true,
	})
	o.Shown.Since = o.refusedAt
}

// awaitAcceptance waits until a signal arrives or a refused write may be tried again. A refusal is no failure of the
// run: a role, a webhook or a quota that refuses now may accept later, and none of them reports when.
func (o *Object) awaitAcceptance(ctx workflow.Context, err error) error {
	o.ShowRefusal(ctx, err)
	o.refusals++
	o.Live = true
	defer o.CancelTimer("refused")
	err = o.AwaitChange(
		ctx,
		o.Timer(ctx, "refused", "tries again then: "+Refused(err), workflow.Now(ctx).Add(Again(o.refusals))),
	)
	if ctx.Err() != nil {
		return nil // a kind that must write something before it ends does so in its next step; others end there
	}
	return err
}

// steps decides and takes steps until one ends the run. A nil result means that the run continues as new. If a run is
// calm only after a later step, it has done something, and rests before it ends if its kind rests.
func steps[D any, R result](ctx workflow.Context, p Procedure[D, R]) (*R, error) {
	o := p.Base()
	for first := true; ; first = false {
		o.Receive()
		var over *R
		d, err := p.Decide(ctx)
		if err == nil {
			over, err = p.Step(ctx, d)
		}
		if FailedWith(err, kube.TypeRefused) {
			err = o.awaitAcceptance(ctx, err)
		} else if err == nil {
			o.refusals, o.refusedAt = 0, time.Time{}
		}
		switch {
		case FailedWith(err, kube.TypeRewound):
			o.Versions, o.Live = kube.MinVersions{}, true // no cache will reach them
		case FailedWith(err, kube.TypeObjectGone), FailedWith(err, kube.TypeConflict), TimedOut(err):
			// the object changed or is gone, or the decision is too old: the next decision reads from the API server
			o.Live = true
		case err != nil || over != nil:
			if over != nil && (*over).Calm() && !first {
				o.rest(ctx)
			}
			return over, err
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() && ctx.Err() == nil {
			return nil, nil
		}
	}
}
