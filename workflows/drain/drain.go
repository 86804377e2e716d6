// Package drain contains the workflow that drains a node.
package drain

import (
	"cmp"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/decide/phrase"
	"millwright/workflows/run"
)

// Input is the input of a drain. Fields may be added. Fields must not be renamed or retyped.
type Input struct {
	Ref      kube.Ref // the machine whose node is drained
	Versions kube.MinVersions
	NodeName string
	// purpose of the drain; empty if the machine is being deleted
	Purpose string                     `json:",omitempty"`
	Seen    *activities.EvictionResult `json:",omitempty"` // after continue-as-new: result of the last eviction
	Held    bool                       `json:",omitempty"` // the status shows that the drain is held
	Retry   string                     `json:",omitempty"` // the last retry request that the drain has carried out

	Unanswered bool `json:",omitempty"` // the status shows that the node's cluster does not answer
}

// Result is the result of a drain.
type Result struct {
	Outcome    string // Drained, Forced, Skipped or Cancelled
	Why        string
	Accepted   int      // evictions and deletions that the API server accepted
	LeftBehind []string // pods that were still on the node, as namespace/name

	// Versions are the lowest resource versions that contain the drain's writes. The machine's next decision waits
	// until the caches have reached Versions. If Versions is empty, the next decision reads from the API server.
	Versions kube.MinVersions `json:",omitempty"`
}

// MayContinue returns false, because a drain that has ended does not start again.
func (Result) MayContinue() bool { return false }

type nodeDrain struct {
	*run.WorkflowState
	apiActivities
	Input
	lastDecision       activities.Decision
	lastEvictionResult activities.EvictionResult // result of the last eviction
	// deadline that has passed; the next decision uses this time or a later time
	passedDeadline        time.Time
	acceptedEvictionCount int
	// removal means that the drain has written to the status, but has not yet read back from it
	unconfirmedRemovalMeans drain.RemovalMeans
	unansweredDecisionCount int // consecutive decisions without an answer from the node's cluster
}

func (d *nodeDrain) NextInput() any {
	in := d.Input
	in.Versions, in.Seen = d.WorkflowState.Versions, &d.lastEvictionResult
	return in
}

// Drain drains the node of a machine that is being deleted, preserved or updated in place. Drain evicts the pods until
// the deadline. If the cluster cannot evict, Drain deletes the pods in order. After the deadline, Drain deletes the
// pods with their own grace periods, and finally without a grace period. The details, the search attributes, the
// machine's condition Drained and its events show the progress. Drain is a child of the machine's workflow and ends
// with the machine's run.
func Drain(ctx workflow.Context, in Input) (Result, error) {
	return runDrain(ctx, millwrightActivities(), in)
}

func runDrain(ctx workflow.Context, a apiActivities, in Input) (Result, error) {
	d := &nodeDrain{
		WorkflowState: run.NewWorkflowState(ctx, a.kind, a.resource, run.Input{Ref: in.Ref, Versions: in.Versions}),
		apiActivities: a,
		Input:         in,
	}
	if in.Seen != nil {
		d.lastEvictionResult = *in.Seen
	}
	if err := workflow.SetQueryHandlerWithOptions(
		ctx,
		QueryPods,
		func() (drain.Overview, error) { return d.lastEvictionResult.Picture, nil },
		workflow.QueryHandlerOptions{Description: "the pods of the node as the drain last saw them"},
	); err != nil {
		return Result{}, err
	}
	result, err := run.ExecuteLoop(ctx, d)
	if temporal.IsCanceledError(err) {
		return result, cmp.Or(d.holdCancelledDrain(ctx), err)
	}
	return result, err
}

// ExecuteStep carries out a decision. If the result is not nil, the drain ends.
func (d *nodeDrain) ExecuteStep(ctx workflow.Context, next activities.Decision) (*Result, error) {
	if next.Result != "" {
		return d.recordOutcome(ctx, next.Result, next.Why)
	}
	if over, done, err := d.prepareClusterAPIDrain(ctx, next); done {
		return over, err
	}
	if held, err := d.waitWhileHeld(ctx, next); err != nil || held {
		if err == nil && !d.Held && d.Purpose != "" { // the next drain cordons the node again
			return &Result{Outcome: activities.ResultCancelled, Why: "the drain is resumed"}, nil
		}
		return nil, err
	}
	if begun, err := d.recordRemovalMeans(ctx, next); err != nil || begun {
		return nil, err
	}
	outcome, err := d.runEviction(ctx, next)
	switch {
	case err != nil:
		return nil, err
	case outcome == activities.OutcomeEmpty && next.Step.Means == drain.MeansKill:
		return d.recordOutcome(ctx, vocabulary.DrainResultForced, "all pods are gone; "+next.Why)
	case outcome == activities.OutcomeEmpty:
		return d.recordOutcome(ctx, vocabulary.DrainResultDrained, "all pods are gone")
	case outcome == activities.OutcomeDeadline:
		d.passedDeadline = next.Step.Until
	}
	return nil, nil
}

// QueryPods is the query for the pods of the node, as of the drain's last observation.
const QueryPods = "pods"

func (d *nodeDrain) Decide(ctx workflow.Context) (next activities.Decision, err error) {
	in := activities.Input{
		ReadInput: d.NewReadInput(ctx),
		Purpose:   d.Purpose,
		Grace:     d.lastEvictionResult.Grace,
		Unasked:   d.lastEvictionResult.Outcome == "" || d.lastEvictionResult.Outcome == activities.OutcomeUnanswered,
	}
	if d.lastEvictionResult.Outcome == activities.OutcomeUnanswered {
		in.Unanswered = d.lastEvictionResult.Why
	}
	in.At = phrase.LaterTime(in.At, d.passedDeadline)
	next, err = d.decideDrain.RunLocalFirst(ctx, d.WorkflowState, "by which means, and until when?", in)
	d.Live = false
	d.lastDecision = next
	d.NodeName = cmp.Or(next.ClusterAPI.NodeName, d.NodeName)
	return next, err
}

func (d *nodeDrain) machinePhase() string {
	if d.Purpose == "" {
		return vocabulary.PhaseTerminating
	}
	return d.lastDecision.Phase
}

// waitWhileHeld waits while a person holds the drain. waitWhileHeld reports whether the drain was held. If the machine
// is being deleted, its node stays cordoned during the hold.
func (d *nodeDrain) waitWhileHeld(ctx workflow.Context, next activities.Decision) (bool, error) {
	if next.Hold == "" && !d.Held {
		return false, nil
	}
	if next.Hold == "" {
		// The deadline may have passed while the drain was held. The next pass reads the pods first, and then reports
		// the blockers again.
		d.lastEvictionResult.Outcome, d.lastEvictionResult.Blockers = "", nil
		d.showStep(ctx, next)
		report := d.newReport(ctx, vocabulary.ReasonDraining, next.Why)
		report.Event = &kube.Event{Reason: d.holdEventReason("Resumed"), Message: "node " + d.NodeName + ": " + next.Why}
		err := d.writeStatus(ctx, next.Why, report)
		d.Held = err != nil
		return true, err
	}
	s := run.Step{
		Name:      vocabulary.StepHeldByOperator,
		Why:       "held" + phrase.ActorText(next.Hold),
		Table:     formatPodTable(d.lastEvictionResult.Picture, workflow.Now(ctx)),
		Phase:     d.machinePhase(),
		Node:      d.NodeName,
		BlockedBy: []string{vocabulary.BlockedByHold},
		Stuck:     true,
	}
	d.ShowStep(ctx, s)
	if !d.Held {
		report := d.newReport(ctx, vocabulary.ReasonBlocked, s.Why)
		report.Operation = nil // a held drain has not failed
		report.Event = &kube.Event{Reason: d.holdEventReason("Held"), Message: s.Why}
		if err := d.writeStatus(ctx, s.Why, report); err != nil {
			return false, err
		}
		d.Held = true
	}
	return true, d.AwaitChange(ctx)
}

// holdEventReason returns the reason of an event about a hold.
func (d *nodeDrain) holdEventReason(what string) string {
	if d.Purpose == "" {
		return "Deletion" + what
	}
	return "Drain" + what
}

// recordRemovalMeans writes the removal means of the drain to the status. This write starts the timeout of the means.
// recordRemovalMeans reports whether it had to write.
func (d *nodeDrain) recordRemovalMeans(ctx workflow.Context, next activities.Decision) (bool, error) {
	if next.Recorded == string(next.Step.Means) {
		d.unconfirmedRemovalMeans = ""
		return false, nil
	}
	if d.unconfirmedRemovalMeans == next.Step.Means { // the means were already written, but the API server has dropped the field
		return false, temporal.NewNonRetryableApplicationError(
			"the API server does not keep status.deletion: the CRDs of this version are not installed",
			kube.FailureTypeOldCRDs,
			nil,
		)
	}
	d.showStep(ctx, next)
	reason := vocabulary.ReasonDraining
	if !next.Step.Means.KeepsPodOrder() {
		reason = vocabulary.ReasonForcing
	}
	report := d.newReport(ctx, reason, next.Why)
	d.addProgress(&report, string(next.Step.Means), "", nil)
	if next.Step.Means != drain.MeansEvict {
		report.Event = &kube.Event{
			Warning: true,
			Reason:  vocabulary.ReasonDrainForced,
			Message: "node " + d.NodeName + ": " + next.Why,
		}
		if next.Step.Means == drain.MeansDeleteInOrder {
			report.Event.Reason = vocabulary.ReasonCannotEvict
		}
	}
	if err := d.writeStatus(ctx, next.Why, report); err != nil {
		return false, err
	}
	d.unconfirmedRemovalMeans = next.Step.Means
	return true, nil
}

// runEviction removes pods by the removal means in the decision. runEviction returns when the activity ends, the
// blockers change, or another decision is needed.
func (d *nodeDrain) runEviction(ctx workflow.Context, next activities.Decision) (outcome string, err error) {
	if err := d.reportUnansweredCluster(ctx, next); err != nil {
		return "", err
	}
	d.showStep(ctx, next)
	hurry := d.lastEvictionResult.Outcome != "" && next.Retry != d.Retry
	d.Retry = next.Retry
	in := activities.Eviction{
		Hurry:    hurry,
		Started:  next.Started,
		Machine:  d.WorkflowState.Ref,
		NodeName: d.NodeName,
		Means:    next.Step.Means,
		Until:    next.Step.Until,
		Shown:    d.lastEvictionResult.Blockers,
		Known:    d.lastEvictionResult.Picture.Rows,
		Gone:     d.lastEvictionResult.Picture.Counts.Gone,
		Departed: d.lastEvictionResult.Departed,

		Unanswered: next.Unanswered != "",
	}
	var seen activities.EvictionResult
	cancelled, err := d.RunWhileNeeded(ctx, vocabulary.StepEvictPods, d.evictPods, in, &seen, func() (bool, error) {
		now, err := d.Decide(ctx)
		same := now.Result == "" && (now.Unanswered == "") == (next.Unanswered == "") && now.Hold == next.Hold &&
			now.Retry == next.Retry &&
			now.Step.Means == next.Step.Means
		return same && now.Step.Until.Equal(next.Step.Until), err
	})
	switch {
	case err != nil || seen.Outcome == "":
		return "", err
	case cancelled:
		seen.Outcome = activities.OutcomeChanged
	}
	return seen.Outcome, d.storeEvictionResult(ctx, next, seen)
}

// storeEvictionResult stores the result of the last eviction. If the blockers have changed, storeEvictionResult writes
// them to the status and to an event.
func (d *nodeDrain) storeEvictionResult(
	ctx workflow.Context,
	next activities.Decision,
	seen activities.EvictionResult,
) error {
	before := d.lastEvictionResult
	d.lastEvictionResult = seen
	d.acceptedEvictionCount += seen.Accepted
	if seen.Outcome != activities.OutcomeChanged ||
		next.Unanswered != "" { // the next step reports that the cluster answers
		return nil
	}
	err := d.reportEviction(ctx, next, len(before.Blockers) > 0)
	if err != nil {
		d.lastEvictionResult.Blockers = before.Blockers // the next eviction reports the remaining blockers again
	}
	return err
}

// recordOutcome records the outcome of the drain. A cancelled drain is not recorded.
func (d *nodeDrain) recordOutcome(ctx workflow.Context, outcome, why string) (*Result, error) {
	result := &Result{Outcome: outcome, Why: why, Accepted: d.acceptedEvictionCount}
	if outcome == activities.ResultCancelled {
		return result, nil
	}
	last := vocabulary.StepDrained
	if outcome == vocabulary.DrainResultForced {
		last, result.LeftBehind = vocabulary.StepDrainForced, d.lastEvictionResult.Left
		if len(d.lastEvictionResult.Left) > 0 {
			result.Why += "; left behind: " + strings.Join(d.lastEvictionResult.Left, ", ")
		}
	}
	d.ShowStep(ctx, run.Step{Name: last, Why: result.Why, Phase: d.machinePhase(), Node: d.NodeName})
	if err := d.SetSearchAttributes(ctx); err != nil {
		return result, err
	}
	report := d.newReport(ctx, outcome, result.Why)
	report.Conditions[0].True = true
	d.addProgress(&report, "", outcome, result.LeftBehind)
	report.Event = &kube.Event{
		Warning: outcome == vocabulary.DrainResultForced,
		Reason:  "Drain" + outcome,
		Message: "node " + d.NodeName + ": " + result.Why,
	}
	if outcome == vocabulary.DrainResultDrained {
		report.Event.Reason = vocabulary.DrainResultDrained
	}
	if err := d.writeStatus(ctx, result.Why, report); err != nil {
		return result, err
	}
	result.Versions = d.WorkflowState.Versions
	return result, d.releaseHook(ctx, true, result.Why)
}
