package deployment

import (
	"fmt"
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

// RolloutInput is the input of a rollout. Fields may be added. Fields must not be renamed or retyped.
type RolloutInput struct {
	run.Input
	Revision int64             // the revision to roll out
	Tally    rolloutStatistics // figures of the earlier runs, after continue-as-new
	Tell     string            // ID of the workflow that the rollout must signal when it ends; may be empty
}

// RolloutResult is the result of a rollout. All durations have the text format of Go.
type RolloutResult struct {
	Outcome  string // Completed, Cancelled, RolledBack, Superseded, Stopped or Gone
	Why      string
	Revision int64
	Replaced int    // number of deleted machines of earlier templates
	Machines int    // machines of the revision at the end
	Took     string // duration from the first step to the end
	Slowest  string // step after which the rollout waited longest for the next step
	SlowTook string
	Waited   []RolloutWait    // waits by cause, longest first
	Versions kube.MinVersions // the caches must have these versions before the next decision
}

// RolloutWait is the total time for which a rollout waited for one cause.
type RolloutWait struct {
	For  string // Machines, Step, Turn, Paused, Invalid, or the reason why machines got no instance
	Took string
}

// The constants are the outcomes of a rollout, in addition to run.OutcomeGone.
const (
	OutcomeCompleted  = "Completed"  // all machines have the revision and are available
	OutcomeCancelled  = "Cancelled"  // a request has put the deployment on hold
	OutcomeRolledBack = "RolledBack" // the template of an earlier revision was restored
	OutcomeSuperseded = "Superseded" // the template changed again, or the deployment is being deleted
	OutcomeStopped    = "Stopped"    // the workflow was cancelled, and there was no rollout to put on hold
)

// MayContinue returns false, because a rollout that has ended does not start again.
func (RolloutResult) MayContinue() bool { return false }

type rolloutState struct {
	setWriter
	revision    int64
	statistics  rolloutStatistics
	personLabel run.TimerLabel // label of the timer person; the zero value: there is no timer
}

// Rollout replaces or updates the machines of a deployment until all have one revision. During this time, Rollout also
// scales the deployment. Rollout is a child of the deployment's workflow. While the rollout is open, no other workflow
// writes the deployment's sets and status. Each decision uses the current state, so a run may be terminated at any
// time. After a termination, the deployment's workflow starts a new rollout, which continues the work.
func Rollout(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
	return runRollout(ctx, millwrightActivities(), in)
}

// ClusterAPIRollout is Rollout for a deployment of Cluster API.
func ClusterAPIRollout(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
	return runRollout(ctx, clusterAPIActivities(), in)
}

func runRollout(ctx workflow.Context, a apiActivities, in RolloutInput) (RolloutResult, error) {
	w := setWriter{
		WorkflowState:  run.NewWorkflowState(ctx, a.rolloutKind, a.resource, in.Input),
		apiActivities:  a,
		reportInterval: run.MinReportInterval,
	}
	w.statusRolloutID = w.rolloutID(ctx, in.Revision)
	r := &rolloutState{setWriter: w, revision: in.Revision, statistics: in.Tally}
	r.ID, r.Live, r.Tell = r.statusRolloutID, !in.Continued, in.Tell
	if now := workflow.Now(ctx); r.statistics.Began.IsZero() {
		r.statistics.Began, r.statistics.Seen = now, now
	}
	return run.ExecuteLoop(ctx, r)
}

func (r *rolloutState) NextInput() any {
	in := run.Input{Ref: r.Ref, Versions: r.Versions, Continued: true}
	return RolloutInput{Input: in, Revision: r.revision, Tally: r.statistics, Tell: r.Tell}
}

// FinishOpenWork signals the end of this rollout to the workflow that has requested this signal. A workflow that
// requests the signal at the last moment also gets it, because this workflow does not yield between its last receive
// and its return.
func (r *rolloutState) FinishOpenWork(ctx workflow.Context, again bool) {
	r.awaitNodeMarks(ctx)
	if again {
		return
	}
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	for r.ReceiveSignals(); r.Tell != ""; r.ReceiveSignals() {
		id, ended := r.Tell, r.NewChangeSignal()
		ended.Ended = r.ID
		r.Tell = ""
		// the other workflow may already be closed
		_ = workflow.SignalExternalWorkflow(ctx, id, "", run.SignalChanged, ended).Get(ctx, nil)
	}
}

// holdDeployment puts the deployment on hold after its rollout was cancelled in Temporal, as after a cancel request of
// an operator.
func (r *rolloutState) holdDeployment(ctx workflow.Context) (*RolloutResult, error) {
	r.awaitNodeMarks(ctx)
	order := request.CommandOrder{Command: request.Cancel, Reason: "its workflow was cancelled", Revision: &r.revision}
	answer, err := r.ApplyRequest(ctx, order, true)
	switch {
	case run.IsFailureOfType(err, kube.FailureTypeObjectGone):
		return r.newResult(ctx, run.OutcomeGone, "the object is gone")
	case err == nil && !answer.Applied:
		return r.newResult(ctx, OutcomeStopped, answer.Message)
	case err != nil:
		return nil, err
	default:
		return r.newResult(ctx, OutcomeCancelled, answer.Message)
	}
}

// Decide returns an empty decision when the rollout is cancelled, because Step can write the hold without a decision.
func (r *rolloutState) Decide(ctx workflow.Context) (d deployment.Decision, err error) {
	if ctx.Err() == nil {
		d, err = r.setWriter.Decide(ctx)
	}
	if ctx.Err() != nil {
		err = nil
	}
	return d, err
}

// ExecuteStep ends the rollout, carries out the decision, or waits. If the rollout is cancelled, ExecuteStep writes the
// hold.
func (r *rolloutState) ExecuteStep(ctx workflow.Context, d deployment.Decision) (*RolloutResult, error) {
	if ctx.Err() != nil {
		return r.holdDeployment(ctx)
	}
	result, err := r.carryOutDecision(ctx, d)
	if err = r.reportRefusal(ctx, d, err); ctx.Err() != nil {
		err = nil // the next step of a cancelled rollout writes the hold
	}
	return result, err
}

func (r *rolloutState) carryOutDecision(ctx workflow.Context, d deployment.Decision) (*RolloutResult, error) {
	if d.Gone {
		return r.endRollout(ctx, run.OutcomeGone, d)
	}
	r.statistics.addDecision(workflow.Now(ctx), d)
	if outcome := r.finalOutcome(d); outcome != "" {
		return r.endRollout(ctx, outcome, d)
	}
	r.ShowStep(ctx, rolloutStep(d).WithBlockers(d.Blocked))
	r.updatePersonTimer(ctx, d)
	acted, err := r.applyDecision(ctx, d)
	switch {
	case err != nil:
		return nil, err
	case d.Rollout.BeginsPin() && !d.Prepare, d.Rollout.Rollback != nil && d.Rollout.Rollback.Set != nil && !d.Prepare:
		return r.endRollout(ctx, OutcomeRolledBack, d)
	case acted:
		return nil, nil
	case d.Rollout.Complete && r.pendingNodeMarks == nil:
		return r.endRollout(ctx, OutcomeCompleted, d)
	default:
		waits := r.futuresToAwait(ctx, d)
		if t := r.Timers[personTimerName]; t != nil {
			waits = append(waits, t.Future)
		}
		return nil, r.AwaitChange(ctx, waits...)
	}
}

// personTimerName is the name of the timer that shows in Temporal's timeline that a rollout waits for a person.
const personTimerName = "person"

// personTimerDuration is how long a rollout that waits for a person waits before it decides again. Signals report the
// person's request, so the duration only limits the number of history events: seven per day.
const personTimerDuration = 24 * time.Hour

// showPersonTimerChangeID is the change ID of ADR 0140.
const showPersonTimerChangeID = "show-wait-for-person"

// updatePersonTimer starts a timer while the rollout waits for a person, and cancels the timer when the wait is over or
// when its label is out of date. The timer makes the wait visible in Temporal's timeline, which shows neither current
// details nor the labels of local activities. A rollout with a recheck time has another timer with this text.
func (r *rolloutState) updatePersonTimer(ctx workflow.Context, d deployment.Decision) {
	label := personTimerLabel(d)
	waits := label != run.TimerLabel{} && d.Rollout.Recheck.IsZero()
	if t := r.Timers[personTimerName]; t != nil && (!waits || label != r.personLabel || t.Future.IsReady()) {
		r.CancelTimer(personTimerName)
	}
	if !waits || r.Timers[personTimerName] != nil ||
		workflow.GetVersion(ctx, showPersonTimerChangeID, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return
	}
	r.personLabel = label
	r.EnsureTimer(ctx, personTimerName, label, workflow.Now(ctx).Add(personTimerDuration))
}

// personTimerLabel returns the label of the timer while the rollout waits for a person, else the zero label.
func personTimerLabel(d deployment.Decision) run.TimerLabel {
	switch {
	case d.Rollout.HasActions():
		return run.TimerLabel{}
	case d.Rollout.HoldBy == rollout.HeldByInvalidSpec, d.Rollout.HoldBy == rollout.HeldByPause:
		return run.RecheckLabel(d.Rollout.Why)
	case d.Rollout.Pause != nil && d.Rollout.Pause.Approve:
		return run.ApprovalLabel(d.Rollout.Pause.ReachedClause())
	default:
		return run.TimerLabel{}
	}
}

// finalOutcome returns the rollout's outcome if nothing is left to do for this revision. Otherwise it returns "". The
// deployment's workflow does the remaining work.
func (r *rolloutState) finalOutcome(d deployment.Decision) string {
	switch {
	case d.Pending.Need == attention.NeedDeletion,
		d.Rollout.Create != nil,
		d.Rollout.NoSet,
		d.Rollout.Revision != 0 && d.Rollout.Revision != r.revision && d.Rollout.TargetRevision() != r.revision:
		return OutcomeSuperseded
	// an earlier run of this rollout has written the pin
	case d.Rollout.Pin != nil && d.Rollout.TargetRevision() != r.revision:
		return OutcomeRolledBack
	case d.Rollout.HoldBy == rollout.HeldByCancel:
		return OutcomeCancelled
	default:
		return ""
	}
}

func (r *rolloutState) endRollout(ctx workflow.Context, outcome string, d deployment.Decision) (*RolloutResult, error) {
	// before the rollout ends, wait until its marks are written, because the next workflow that writes nodes reads
	// which marks are missing
	r.awaitNodeMarks(ctx)
	why := d.Rollout.Why
	switch {
	case d.Gone:
		why = d.Pending.Why
	case outcome == OutcomeSuperseded && d.Pending.Need == attention.NeedDeletion:
		why = "the deployment is being deleted"
	case outcome == OutcomeSuperseded && d.Rollout.TargetRevision() != 0:
		why = fmt.Sprintf("the machines get revision %d instead", d.Rollout.TargetRevision())
	case outcome == OutcomeSuperseded:
		why = "the template changed"
	}
	result, err := r.newResult(ctx, outcome, why)
	result.Machines = d.Picture.Counts.Replicas - d.Picture.Old
	return result, err
}

// newResult returns the result of a rollout that ends now, and makes the outcome a search attribute.
func (r *rolloutState) newResult(ctx workflow.Context, outcome, why string) (*RolloutResult, error) {
	result := r.statistics.newResult(workflow.Now(ctx))
	result.Outcome, result.Why, result.Revision, result.Versions = outcome, why, r.revision, r.Versions
	return &result, run.SetOutcome(ctx, outcome)
}

// rolloutStatistics has the numbers from which a rollout computes its result. A run that continues as new passes these
// figures to the next run.
type rolloutStatistics struct {
	Began    time.Time
	Seen     time.Time // time of the last decision
	Old      int       // number of machines of earlier templates at the last decision
	Replaced int
	Step     string    // last step that resized a set
	Since    time.Time // start time of Step
	Slowest  string
	SlowTook time.Duration
	For      string      // cause for which the rollout waits
	Waits    []waitTotal // total waits by cause, in the order in which the causes first occurred
}

type waitTotal struct {
	For  string
	Took time.Duration
}

// addDecision updates the figures after a decision.
func (t *rolloutStatistics) addDecision(now time.Time, d deployment.Decision) {
	t.Replaced += max(t.Old-d.Picture.Old, 0)
	t.Old = d.Picture.Old
	t.addWait(now.Sub(t.Seen))
	t.Seen, t.For = now, d.Rollout.HoldBy
	if d.Rollout.HoldBy == rollout.HeldByMachines && d.Picture.Blocked != "" {
		t.For = d.Picture.Blocked
	}
	if slices.ContainsFunc(d.Rollout.Resize, func(r rollout.SetResize) bool { return r.From != r.To }) {
		t.endStep(now)
		t.Step, t.Since = d.Rollout.Why, now
	}
}

func (t *rolloutStatistics) addWait(took time.Duration) {
	if t.For == "" || took <= 0 {
		return
	}
	i := slices.IndexFunc(t.Waits, func(w waitTotal) bool { return w.For == t.For })
	if i < 0 {
		t.Waits = append(t.Waits, waitTotal{For: t.For})
		i = len(t.Waits) - 1
	}
	t.Waits[i].Took += took
}

// endStep adds the duration of the last step to the figures.
func (t *rolloutStatistics) endStep(now time.Time) {
	if took := now.Sub(t.Since); t.Step != "" && took > t.SlowTook {
		t.Slowest, t.SlowTook = t.Step, took
	}
}

func (t *rolloutStatistics) newResult(now time.Time) RolloutResult {
	t.addWait(now.Sub(t.Seen))
	t.Seen = now
	t.endStep(now)
	result := RolloutResult{
		Replaced: t.Replaced,
		Took:     formatDuration(now.Sub(t.Began)),
		Slowest:  run.ShortenSummary(t.Slowest),
		SlowTook: formatDuration(t.SlowTook),
	}
	waits := slices.Clone(t.Waits)
	slices.SortStableFunc(waits, func(a, b waitTotal) int { return int((b.Took - a.Took) / time.Millisecond) })
	for _, w := range waits {
		result.Waited = append(result.Waited, RolloutWait{w.For, formatDuration(w.Took)})
	}
	return result
}

// formatDuration formats a duration for people. The duration is rounded to 0.1 s if it is less than a minute, and to 1
// s otherwise.
func formatDuration(d time.Duration) string {
	if d >= time.Minute {
		return phrase.DurationText(d.Round(time.Second))
	}
	return phrase.DurationText(d.Round(100 * time.Millisecond))
}
