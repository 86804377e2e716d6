package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/decide/steer"
)

// RolloutInput is what a rollout starts with. Fields may be added, never renamed or retyped.
type RolloutInput struct {
	Input
	Revision int64  // that is rolled out
	Tally    tally  // of the runs before, when it continues as new
	Tell     string // who wants to hear of its end, having not started it; empty: nobody
}

// RolloutResult is how a rollout ended. Times are Go durations, for people to read.
type RolloutResult struct {
	Outcome  string // Completed, Cancelled, RolledBack, Superseded, Stopped or Gone
	Why      string
	Revision int64
	Replaced int    // machines of former templates that went
	Machines int    // of the revision, when it ended
	Took     string // from the first step to the end
	Slowest  string // the step that took longest until the next one could be taken
	SlowTook string
	Waited   []RolloutWait   // for what, the longest first
	Versions activities.Gate // to wait for
}

// RolloutWait is how long a rollout waited for one kind of thing.
type RolloutWait struct {
	For  string // Machines, Stage, Paused, or the reason why machines got no instance
	Took string
}

// The outcomes of a rollout, besides Gone.
const (
	OutcomeCompleted  = "Completed"  // all machines are of the revision, and available
	OutcomeCancelled  = "Cancelled"  // somebody holds it where it is
	OutcomeRolledBack = "RolledBack" // a former template was put back
	OutcomeSuperseded = "Superseded" // the template changed again, or the deployment is to go
	OutcomeStopped    = "Stopped"    // its workflow was cancelled, and there was nothing to hold: what is left is the deployment's
)

func (r RolloutResult) goesOn() bool { return false }

// rolled is one run of a rollout.
type rolled struct {
	setWriter
	revision int64
	tally    tally
}

// Rollout brings the machines of a deployment to one revision, and scales them meanwhile. It is the child of the deployment's
// workflow and the only writer of its sets and status as long as it is open. Each step is decided from what is there, so that a
// run may be terminated at any moment: the deployment starts another one, which goes on from there.
func Rollout(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
	id := ID(KindRollout, in.Ref, in.Revision)
	r := &rolled{setWriter: setWriter{object: newObject(ctx, KindRollout, in.Input), names: id, each: reportEach}, revision: in.Revision, tally: in.Tally}
	r.id, r.live = id, !in.Continued
	r.tell = in.Tell
	r.tally.begin(workflow.Now(ctx))
	return answering(ctx, r.object, func() (RolloutResult, error) {
		result, err := r.run(ctx)
		r.awaitMarks(ctx) // however it ended
		if !workflow.IsContinueAsNewError(err) {
			r.farewell(ctx)
		}
		return result, err
	})
}

// farewell tells whoever asked for it that the rollout ends now. Who asks until the very end is told, too: nothing may yield between
// the last receive and the return.
func (r *rolled) farewell(ctx workflow.Context) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	for r.receive(); r.tell != ""; r.receive() {
		id, ended := r.tell, Changed{UID: r.ref.UID, Versions: r.gate, Ended: r.id}
		r.tell = ""
		_ = workflow.SignalExternalWorkflow(ctx, id, "", SignalChanged, ended).Get(ctx, nil) // who is not open any more waits for nothing
	}
}

func (r *rolled) run(ctx workflow.Context) (RolloutResult, error) {
	for {
		r.receive()
		if ctx.Err() != nil {
			return r.hold(ctx)
		}
		d, err := r.decide(ctx)
		if err == nil {
			var result *RolloutResult
			if result, err = r.step(ctx, d); result != nil {
				return *result, nil
			}
		}
		switch {
		case ctx.Err() != nil: // the next round holds it
		case failedWith(err, activities.TypeObjectGone), failedWith(err, activities.TypeConflict), timedOut(err):
			r.live = true // something changed, or the decision grew too old: look at what is there now
		case failedWith(err, activities.TypeRefused):
			if err := r.refused(ctx, d, err); err != nil && ctx.Err() == nil {
				return RolloutResult{}, err
			}
		case err != nil:
			return RolloutResult{}, err
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			r.awaitMarks(ctx) // what is not done is listed again
			r.receive()
			return RolloutResult{}, workflow.NewContinueAsNewError(ctx, Rollout, RolloutInput{
				Input: Input{Ref: r.ref, Gate: r.gate, Continued: true}, Revision: r.revision, Tally: r.tally, Tell: r.tell,
			})
		}
	}
}

// hold ends a rollout that was cancelled in Temporal: as if somebody had given it the verb. The deployment stays where it is.
func (r *rolled) hold(ctx workflow.Context) (RolloutResult, error) {
	r.awaitMarks(ctx)
	order := steer.Order{Verb: steer.Cancel, Actor: "somebody, in Temporal", Reason: "its workflow was cancelled", Revision: &r.revision}
	answer, err := r.steer(ctx, order, true)
	result := r.tally.result(workflow.Now(ctx))
	result.Outcome, result.Why, result.Revision, result.Versions = OutcomeCancelled, answer.Message, r.revision, r.gate
	switch {
	case failedWith(err, activities.TypeObjectGone):
		result.Outcome, result.Why = OutcomeGone, "the object is gone"
		return result, nil
	case err == nil && !answer.Given:
		result.Outcome = OutcomeStopped
	}
	return result, err
}

// step ends the rollout, or does what is next, or waits.
func (r *rolled) step(ctx workflow.Context, d activities.DeploymentDecision) (*RolloutResult, error) {
	if d.Gone {
		return r.end(ctx, OutcomeGone, d), nil
	}
	r.tally.note(workflow.Now(ctx), d)
	if outcome := r.over(d); outcome != "" {
		return r.end(ctx, outcome, d), nil
	}
	r.show(ctx, rolling(d))
	acted, err := r.act(ctx, d)
	switch {
	case err != nil:
		return nil, err
	case d.Rollback != nil && d.Rollback.Set != nil && d.Record == nil && !d.Prepare:
		d.Decision.Why = d.Rollback.Why
		return r.end(ctx, OutcomeRolledBack, d), nil
	case acted:
		return nil, nil
	case d.Complete && r.marking == nil:
		return r.end(ctx, OutcomeCompleted, d), nil
	default:
		return nil, r.awaken(ctx, r.resting(ctx, d)...)
	}
}

// over is the outcome when there is nothing left to do for this revision; empty when there is. What is to be done then is the
// deployment's business.
func (r *rolled) over(d activities.DeploymentDecision) string {
	switch {
	case d.Need == attention.Deletion, d.Create != nil, d.Pending, d.Revision != 0 && d.Revision != r.revision:
		return OutcomeSuperseded
	case d.HoldBy == rollout.HeldBy:
		return OutcomeCancelled
	default:
		return ""
	}
}

// end says how it went.
func (r *rolled) end(ctx workflow.Context, outcome string, d activities.DeploymentDecision) *RolloutResult {
	r.awaitMarks(ctx) // whoever writes after this one does what is not done
	result := r.tally.result(workflow.Now(ctx))
	result.Outcome, result.Revision, result.Versions, result.Why = outcome, r.revision, r.gate, d.Decision.Why
	result.Machines = d.Picture.Counts.Updated
	switch {
	case d.Gone:
		result.Why = d.Why
	case outcome == OutcomeSuperseded && d.Need == attention.Deletion:
		result.Why = "the deployment is to go"
	case outcome == OutcomeSuperseded:
		result.Why = "the template changed"
	}
	return &result
}

// tally is what a rollout remembers of its steps, for its result. It travels with a run that continues as new.
type tally struct {
	Began    time.Time
	Seen     time.Time // of the last look
	Old      int       // machines of former templates at the last look
	Replaced int
	Step     string    // the last one that changed a size
	Since    time.Time // when it was taken
	Slowest  string
	SlowTook time.Duration
	For      string // what it waits for
	Waits    []wait // in the order in which they first came
}

type wait struct {
	For  string
	Took time.Duration
}

func (t *tally) begin(now time.Time) {
	if t.Began.IsZero() {
		t.Began, t.Seen = now, now
	}
}

// note takes in what one look saw.
func (t *tally) note(now time.Time, d activities.DeploymentDecision) {
	t.Replaced += max(t.Old-d.Picture.Old, 0)
	t.Old = d.Picture.Old
	t.waited(now.Sub(t.Seen))
	t.Seen, t.For = now, d.HoldBy
	if d.HoldBy == rollout.HeldByMachines && d.Picture.Blocked != "" {
		t.For = d.Picture.Blocked
	}
	if slices.ContainsFunc(d.Resize, func(r rollout.Resize) bool { return r.From != r.To }) {
		t.close(now)
		t.Step, t.Since = d.Decision.Why, now
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

// close ends the step that was taken last.
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
		Replaced: t.Replaced, Took: legible(now.Sub(t.Began)), Slowest: brief(t.Slowest), SlowTook: legible(t.SlowTook),
	}
	waits := slices.Clone(t.Waits)
	slices.SortStableFunc(waits, func(a, b wait) int { return int((b.Took - a.Took) / time.Millisecond) })
	for _, w := range waits {
		result.Waited = append(result.Waited, RolloutWait{w.For, legible(w.Took)})
	}
	return result
}

// legible is a duration for people: to the tenth of a second, or to the second when it is long.
func legible(d time.Duration) string {
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
