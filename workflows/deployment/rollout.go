package deployment

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/attention"
	"millwright/decide/phrase"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/workflows/run"
)

// RolloutInput is the input of a rollout. Fields may be added, never renamed or retyped.
type RolloutInput struct {
	run.Input
	Revision int64  // the revision that is rolled out
	Tally    tally  // of the earlier runs, when it continues as new
	Tell     string // ID of a workflow that did not start the rollout and must be signaled at its end; empty: none
}

// RolloutResult is how a rollout ended. Times are Go durations as text.
type RolloutResult struct {
	Outcome  string // Completed, Cancelled, RolledBack, Superseded, Stopped or Gone
	Why      string
	Revision int64
	Replaced int    // machines of former templates that were deleted
	Machines int    // of the revision, when it ended
	Took     string // from the first step to the end
	Slowest  string // the step after which the rollout waited longest for the next one
	SlowTook string
	Waited   []RolloutWait    // the longest first
	Versions kube.MinVersions // the next decision needs caches with these versions
}

// RolloutWait is how long a rollout waited for one kind of thing.
type RolloutWait struct {
	For  string // Machines, Step, Paused, Invalid, or the reason why machines got no instance
	Took string
}

// The outcomes of a rollout, besides Gone.
const (
	OutcomeCompleted  = "Completed"  // all machines are of the revision, and available
	OutcomeCancelled  = "Cancelled"  // a request holds the rollout
	OutcomeRolledBack = "RolledBack" // a former template was put back
	OutcomeSuperseded = "Superseded" // the template changed again, or the deployment is being deleted
	OutcomeStopped    = "Stopped"    // its workflow was cancelled, and there was no rollout to hold
)

// Calm is false: a rollout that has ended does not continue.
func (RolloutResult) Calm() bool { return false }

type rolled struct {
	setWriter
	revision int64
	tally    tally
}

// Rollout brings the machines of a deployment to one revision, and scales the deployment meanwhile. It is a child of
// the deployment's workflow, and while it is open the only writer of the deployment's sets and status. Each step is
// decided from the current facts, so that a run may be terminated at any moment: the deployment starts another rollout,
// which continues the work.
func Rollout(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
	return roll(ctx, ofMillwright(), in)
}

// ClusterAPIRollout is Rollout for a deployment of Cluster API.
func ClusterAPIRollout(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
	return roll(ctx, ofClusterAPI(), in)
}

func roll(ctx workflow.Context, a adapter, in RolloutInput) (RolloutResult, error) {
	w := setWriter{Object: run.NewObject(ctx, a.rollout, a.resource, in.Input), adapter: a, each: run.ReportEach}
	w.names = w.rolloutID(ctx, in.Revision)
	r := &rolled{setWriter: w, revision: in.Revision, tally: in.Tally}
	r.ID, r.Live, r.Tell = r.names, !in.Continued, in.Tell
	if now := workflow.Now(ctx); r.tally.Began.IsZero() {
		r.tally.Began, r.tally.Seen = now, now
	}
	return run.Loop(ctx, r)
}

func (r *rolled) Next() any {
	in := run.Input{Ref: r.Ref, Versions: r.Versions, Continued: true}
	return RolloutInput{Input: in, Revision: r.revision, Tally: r.tally, Tell: r.Tell}
}

// Settle signals the follower of this rollout that it ends now. A follower that asks for it at the last moment gets the
// signal, too: nothing yields between the last receive and the return.
func (r *rolled) Settle(ctx workflow.Context, again bool) {
	r.awaitMarks(ctx)
	if again {
		return
	}
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	for r.Receive(); r.Tell != ""; r.Receive() {
		id, ended := r.Tell, run.Changed{UID: r.Ref.UID, Versions: r.Versions, Ended: r.ID}
		r.Tell = ""
		_ = workflow.SignalExternalWorkflow(ctx, id, "", run.SignalChanged, ended).Get(ctx, nil) // a follower may be closed
	}
}

// hold ends a rollout that was cancelled in Temporal as if an operator had requested it: the deployment is held.
func (r *rolled) hold(ctx workflow.Context) (*RolloutResult, error) {
	r.awaitMarks(ctx)
	order := request.Order{Command: request.Cancel, Reason: "its workflow was cancelled", Revision: &r.revision}
	answer, err := r.Apply(ctx, order, true)
	switch {
	case run.FailedWith(err, kube.TypeObjectGone):
		return r.result(ctx, run.OutcomeGone, "the object is gone"), nil
	case err == nil && !answer.Applied:
		return r.result(ctx, OutcomeStopped, answer.Message), nil
	default:
		return r.result(ctx, OutcomeCancelled, answer.Message), err
	}
}

// Decide decides nothing once the rollout is cancelled: Step then writes the hold, from no facts.
func (r *rolled) Decide(ctx workflow.Context) (d deployment.Decision, err error) {
	if ctx.Err() == nil {
		d, err = r.setWriter.Decide(ctx)
	}
	if ctx.Err() != nil {
		err = nil
	}
	return d, err
}

// Step ends the rollout, carries out the decision, or waits. If the rollout was cancelled, Step writes the hold.
func (r *rolled) Step(ctx workflow.Context, d deployment.Decision) (*RolloutResult, error) {
	if ctx.Err() != nil {
		return r.hold(ctx)
	}
	result, err := r.do(ctx, d)
	if err = r.reportRefusal(ctx, d, err); ctx.Err() != nil {
		err = nil // the next step writes the hold
	}
	return result, err
}

func (r *rolled) do(ctx workflow.Context, d deployment.Decision) (*RolloutResult, error) {
	if d.Gone {
		return r.end(ctx, run.OutcomeGone, d), nil
	}
	r.tally.note(workflow.Now(ctx), d)
	if outcome := r.over(d); outcome != "" {
		return r.end(ctx, outcome, d), nil
	}
	r.Show(ctx, rolling(d).Explained(d.Blocked))
	acted, err := r.act(ctx, d)
	switch {
	case err != nil:
		return nil, err
	case d.Rollout.Rollback != nil && d.Rollout.Rollback.Set != nil && !d.Prepare:
		return r.end(ctx, OutcomeRolledBack, d), nil
	case acted:
		return nil, nil
	case d.Rollout.Complete && r.marking == nil:
		return r.end(ctx, OutcomeCompleted, d), nil
	default:
		return nil, r.AwaitChange(ctx, r.resting(ctx, d)...)
	}
}

// over returns the outcome if there is nothing left to do for this revision; empty if there is. The deployment's
// workflow does what comes after.
func (r *rolled) over(d deployment.Decision) string {
	switch {
	case d.Pending.Need == attention.Deletion,
		d.Rollout.Create != nil,
		d.Rollout.NoSet,
		d.Rollout.Revision != 0 && d.Rollout.Revision != r.revision:
		return OutcomeSuperseded
	case d.Rollout.HoldBy == rollout.HeldBy:
		return OutcomeCancelled
	default:
		return ""
	}
}

func (r *rolled) end(ctx workflow.Context, outcome string, d deployment.Decision) *RolloutResult {
	r.awaitMarks(ctx) // the workflow that writes next then knows which marks are missing
	why := d.Rollout.Why
	switch {
	case d.Gone:
		why = d.Pending.Why
	case outcome == OutcomeSuperseded && d.Pending.Need == attention.Deletion:
		why = "the deployment is being deleted"
	case outcome == OutcomeSuperseded:
		why = "the template changed"
	}
	result := r.result(ctx, outcome, why)
	result.Machines = d.Picture.Counts.Updated
	return result
}

// result returns the result of a rollout that ends now.
func (r *rolled) result(ctx workflow.Context, outcome, why string) *RolloutResult {
	result := r.tally.result(workflow.Now(ctx))
	result.Outcome, result.Why, result.Revision, result.Versions = outcome, why, r.revision, r.Versions
	return &result
}

// tally keeps the figures of a rollout for its result. A run that continues as new gets it in its input.
type tally struct {
	Began    time.Time
	Seen     time.Time // time of the last decision
	Old      int       // machines of former templates at the last decision
	Replaced int
	Step     string    // the last one that changed the size of a set
	Since    time.Time // start of Step
	Slowest  string
	SlowTook time.Duration
	For      string // what the rollout waits for
	Waits    []wait // in the order of their first occurrence
}

type wait struct {
	For  string
	Took time.Duration
}

// note adds the figures of one decision.
func (t *tally) note(now time.Time, d deployment.Decision) {
	t.Replaced += max(t.Old-d.Picture.Old, 0)
	t.Old = d.Picture.Old
	t.waited(now.Sub(t.Seen))
	t.Seen, t.For = now, d.Rollout.HoldBy
	if d.Rollout.HoldBy == rollout.HeldByMachines && d.Picture.Blocked != "" {
		t.For = d.Picture.Blocked
	}
	if slices.ContainsFunc(d.Rollout.Resize, func(r rollout.Resize) bool { return r.From != r.To }) {
		t.close(now)
		t.Step, t.Since = d.Rollout.Why, now
	}
}

func (t *tally) waited(took time.Duration) {
	if t.For == "" || took <= 0 {
		return
	}
	i := slices.IndexFunc(t.Waits, func(w wait) bool { return w.For == t.For })
	if i < 0 {
		t.Waits = append(t.Waits, wait{For: t.For})
		i = len(t.Waits) - 1
	}
	t.Waits[i].Took += took
}

// close ends the last step.
func (t *tally) close(now time.Time) {
	if took := now.Sub(t.Since); t.Step != "" && took > t.SlowTook {
		t.Slowest, t.SlowTook = t.Step, took
	}
}

func (t *tally) result(now time.Time) RolloutResult {
	t.waited(now.Sub(t.Seen))
	t.Seen = now
	t.close(now)
	result := RolloutResult{
		Replaced: t.Replaced, Took: legible(now.Sub(t.Began)), Slowest: run.Brief(t.Slowest), SlowTook: legible(t.SlowTook),
	}
	waits := slices.Clone(t.Waits)
	slices.SortStableFunc(waits, func(a, b wait) int { return int((b.Took - a.Took) / time.Millisecond) })
	for _, w := range waits {
		result.Waited = append(result.Waited, RolloutWait{w.For, legible(w.Took)})
	}
	return result
}

// legible formats a duration for people: rounded to a tenth of a second, from a minute on to a second.
func legible(d time.Duration) string {
	if d >= time.Minute {
		return phrase.Length(d.Round(time.Second))
	}
	return phrase.Length(d.Round(100 * time.Millisecond))
}
