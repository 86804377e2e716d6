// Package drain has the workflow that drains a node.
package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/decide/phrase"
	"millwright/workflows/run"
)

// Input is the input of a drain. Fields may be added, never renamed or retyped.
type Input struct {
	Ref      kube.Ref // of the machine
	Versions kube.MinVersions
	NodeName string
	Purpose  string              `json:",omitempty"` // empty when the machine is being deleted
	Seen     *activities.Evicted `json:",omitempty"` // continued as new: what the last eviction saw
	Held     bool                `json:",omitempty"` // the status shows that the drain is held
	Retry    string              `json:",omitempty"` // the last request to retry that was obeyed
}

// Result is how a drain ended.
type Result struct {
	Outcome    string // Drained, Forced, Skipped or Cancelled
	Why        string
	Accepted   int      // evictions and deletions that the API server accepted
	LeftBehind []string // pods that were still on the node, as namespace/name

	// Versions are the lowest versions that show what the drain wrote. The machine's next decision reads from caches that
	// have reached them; empty: it reads from the API server.
	Versions kube.MinVersions `json:",omitempty"`
}

// Calm is false: a drain that has ended does not continue.
func (Result) Calm() bool { return false }

type nodeDrain struct {
	*run.Object
	adapter
	Input
	last  activities.Decision
	seen  activities.Evicted // what the last eviction saw
	until time.Time          // deadline that has passed: the next decision is made for that time at the earliest
	total int
	begun drain.Means // means that were recorded and not read back yet
	mute  int         // times in a row that the cluster of the node has not answered
}

func (d *nodeDrain) Next() any {
	in := d.Input
	in.Versions, in.Seen = d.Object.Versions, &d.seen
	return in
}

// Drain empties the node of a machine that is being deleted, preserved or updated in place. It evicts the pods until
// the deadline, or deletes them in order if the cluster cannot evict, then deletes them with their own grace periods,
// then without. The details, the search attributes, the machine's condition Drained and its events show the state of
// the node. It is a child of the machine's workflow and ends with it.
func Drain(ctx workflow.Context, in Input) (Result, error) {
	return empty(ctx, ofMillwright(), in)
}

func empty(ctx workflow.Context, a adapter, in Input) (Result, error) {
	d := &nodeDrain{
		Object:  run.NewObject(ctx, a.kind, a.resource, run.Input{Ref: in.Ref, Versions: in.Versions}),
		adapter: a,
		Input:   in,
	}
	if in.Seen != nil {
		d.seen = *in.Seen
	}
	if err := workflow.SetQueryHandlerWithOptions(
		ctx,
		QueryPods,
		func() (drain.Picture, error) { return d.seen.Picture, nil },
		workflow.QueryHandlerOptions{Description: "the pods of the node as the drain last saw them"},
	); err != nil {
		return Result{}, err
	}
	result, err := run.Loop(ctx, d)
	if temporal.IsCanceledError(err) {
		return result, cmp.Or(d.holdCancelled(ctx), err)
	}
	return result, err
}

// writeStatus writes the report into the machine's status.
func (d *nodeDrain) writeStatus(ctx workflow.Context, summary string, report machine.Report) error {
	return run.Report(ctx, d.Object, summary, d.adapter.report, report)
}

// Step carries out a decision. A result ends the drain.
func (d *nodeDrain) Step(ctx workflow.Context, next activities.Decision) (*Result, error) {
	if next.Result != "" {
		return d.end(ctx, next.Result, next.Why)
	}
	if over, done, err := d.await(ctx, next); done {
		return over, err
	}
	if held, err := d.hold(ctx, next); err != nil || held {
		if err == nil && !d.Held && d.Purpose != "" { // the next drain cordons the node again
			return &Result{Outcome: activities.Cancelled, Why: "the drain is resumed"}, nil
		}
		return nil, err
	}
	if begun, err := d.begin(ctx, next); err != nil || begun {
		return nil, err
	}
	outcome, err := d.evict(ctx, next)
	switch {
	case err != nil:
		return nil, err
	case outcome == activities.OutcomeEmpty && next.Step.Means == drain.Kill:
		return d.end(ctx, vocabulary.DrainForced, "all pods are gone; "+next.Why)
	case outcome == activities.OutcomeEmpty:
		return d.end(ctx, vocabulary.DrainDrained, "all pods are gone")
	case outcome == activities.OutcomeDeadline:
		d.until = next.Step.Until
	}
	return nil, nil
}

// QueryPods is the query for the pods of the node as the drain last saw them.
const QueryPods = "pods"

func (d *nodeDrain) Decide(ctx workflow.Context) (next activities.Decision, err error) {
	in := activities.Input{Read: d.Read(ctx), Purpose: d.Purpose, Grace: d.seen.Grace, Unasked: d.seen.Outcome == ""}
	in.At = phrase.Later(in.At, d.until)
	next, err = d.decide.RunLocalFirst(ctx, d.Object, "by which means, and until when?", in)
	d.Live = false
	d.last = next
	d.NodeName = cmp.Or(next.ClusterAPI.NodeName, d.NodeName)
	return next, err
}

func (d *nodeDrain) phase() string {
	if d.Purpose == "" {
		return vocabulary.PhaseTerminating
	}
	return d.last.Phase
}

// hold waits while a person holds the drain, and reports whether it did. The node of a machine that is being deleted
// stays cordoned.
func (d *nodeDrain) hold(ctx workflow.Context, next activities.Decision) (bool, error) {
	if next.Hold == "" && !d.Held {
		return false, nil
	}
	if next.Hold == "" {
		// the deadline may have passed meanwhile: the pods are read first, and the status then says again what blocks them
		d.seen.Outcome, d.seen.Blockers = "", nil
		d.show(ctx, next)
		report := d.report(ctx, vocabulary.ReasonDraining, next.Why)
		report.Event = &kube.Event{Reason: d.holdReason("Resumed"), Message: "node " + d.NodeName + ": " + next.Why}
		err := d.writeStatus(ctx, next.Why, report)
		d.Held = err != nil
		return true, err
	}
	s := run.Step{
		Name:      vocabulary.StepHeld,
		Why:       "held" + phrase.By(next.Hold),
		Table:     table(d.seen.Picture, workflow.Now(ctx)),
		Phase:     d.phase(),
		Node:      d.NodeName,
		BlockedBy: []string{vocabulary.BlockedHold},
		Stuck:     true,
	}
	d.Show(ctx, s)
	if !d.Held {
		report := d.report(ctx, vocabulary.ReasonBlocked, s.Why)
		report.Operation = nil // a hold is no failure
		report.Event = &kube.Event{Reason: d.holdReason("Held"), Message: s.Why}
		if err := d.writeStatus(ctx, s.Why, report); err != nil {
			return false, err
		}
		d.Held = true
	}
	return true, d.AwaitChange(ctx)
}

// holdReason returns the reason of an event about a hold.
func (d *nodeDrain) holdReason(what string) string {
	if d.Purpose == "" {
		return "Deletion" + what
	}
	return "Drain" + what
}

// begin records the means of eviction, which starts their clock, and reports whether there was anything to record.
func (d *nodeDrain) begin(ctx workflow.Context, next activities.Decision) (bool, error) {
	if next.Recorded == string(next.Step.Means) {
		d.begun = ""
		return false, nil
	}
	if d.begun == next.Step.Means { // it was written, and the API server drops the field
		return false, temporal.NewNonRetryableApplicationError(
			"the API server does not keep status.deletion: the CRDs of this version are not installed",
			kube.TypeOldCRDs,
			nil,
		)
	}
	d.show(ctx, next)
	reason := vocabulary.ReasonDraining
	if !next.Step.Means.Ordered() {
		reason = vocabulary.ReasonForcing
	}
	report := d.report(ctx, reason, next.Why)
	d.record(&report, string(next.Step.Means), "", nil)
	if next.Step.Means != drain.Evict {
		report.Event = &kube.Event{
			Warning: true,
			Reason:  vocabulary.ReasonDrainForced,
			Message: "node " + d.NodeName + ": " + next.Why,
		}
		if next.Step.Means == drain.DeleteInOrder {
			report.Event.Reason = vocabulary.ReasonCannotEvict
		}
	}
	if err := d.writeStatus(ctx, next.Why, report); err != nil {
		return false, err
	}
	d.begun = next.Step.Means
	return true, nil
}

// evict removes pods by the decided means until the activity ends, the blockers change, or another decision is needed.
func (d *nodeDrain) evict(ctx workflow.Context, next activities.Decision) (outcome string, err error) {
	d.show(ctx, next)
	hurry := d.seen.Outcome != "" && next.Retry != d.Retry
	d.Retry = next.Retry
	in := activities.Eviction{
		Hurry:    hurry,
		Started:  next.Started,
		Machine:  d.Object.Ref,
		NodeName: d.NodeName,
		Means:    next.Step.Means,
		Until:    next.Step.Until,
		Shown:    d.seen.Blockers,
		Known:    d.seen.Picture.Rows,
		Gone:     d.seen.Picture.Counts.Gone,
		Departed: d.seen.Departed,
	}
	var seen activities.Evicted
	cancelled, err := d.WhileWanted(ctx, vocabulary.StepEvictPods, d.adapter.evict, in, &seen, func() (bool, error) {
		now, err := d.Decide(ctx)
		same := now.Result == "" && now.Hold == next.Hold && now.Retry == next.Retry && now.Step.Means == next.Step.Means
		return same && now.Step.Until.Equal(next.Step.Until), err
	})
	switch {
	case err != nil || seen.Outcome == "":
		return "", err
	case cancelled:
		seen.Outcome = activities.OutcomeChanged
	}
	return seen.Outcome, d.note(ctx, next, seen)
}

// note keeps what an eviction saw last, and reports changed blockers in status and event.
func (d *nodeDrain) note(ctx workflow.Context, next activities.Decision, seen activities.Evicted) error {
	before := d.seen
	d.seen = seen
	d.total += seen.Accepted
	if seen.Outcome != activities.OutcomeChanged {
		return nil
	}
	d.show(ctx, next)
	reason := vocabulary.ReasonDraining
	event := kube.Event{Reason: vocabulary.ReasonDrainMoves, Message: "node " + d.NodeName + ": " + seen.Picture.Why}
	if len(seen.Blockers) > 0 {
		reason = vocabulary.ReasonBlocked
		event.Warning, event.Reason = true, vocabulary.ReasonDrainBlocked
	}
	if !next.Step.Means.Ordered() {
		reason = vocabulary.ReasonForcing
	}
	report := d.report(ctx, reason, seen.Picture.Why)
	if len(seen.Blockers) > 0 || len(before.Blockers) > 0 {
		report.Event = &event
	}
	err := d.writeStatus(ctx, seen.Picture.Why, report)
	if err != nil {
		d.seen.Blockers = before.Blockers // the next eviction tells of the others again
	}
	return err
}

// mostCauses is how many causes the sentence about the machine names. Source: what fits on a screen of 80 columns.
const mostCauses = 2

func (d *nodeDrain) show(ctx workflow.Context, next activities.Decision) {
	s := run.Step{
		Name:     stepName(next.Step.Means),
		Why:      next.Why,
		Phase:    d.phase(),
		Node:     d.NodeName,
		Deadline: next.Step.Until,
	}
	if p := d.seen.Picture; p.Why != "" {
		s.Why, s.Table = p.Why+"; "+next.Why, table(p, workflow.Now(ctx))
	}
	var names, causes []string
	var volumes time.Time // the first end of a wait, if volumes alone block; otherwise zero
	for i, b := range d.seen.Blockers {
		if i == 0 || b.Until.Before(volumes) {
			volumes = b.Until
		}
		names, causes = append(names, strings.TrimSpace(b.Kind+" "+b.Name)), append(causes, b.Why)
	}
	s.Stuck = len(names) > 0
	if !volumes.IsZero() && volumes.Before(s.Deadline) {
		s.Deadline = volumes
	}
	s.Cause = cmp.Or(phrase.List(causes, mostCauses, "; "), d.seen.Picture.Why, doing(next.Step.Means))
	s.BlockedBy = names
	d.Show(ctx, s)
}

// doing says what a drain does before it has seen its pods.
func doing(means drain.Means) string {
	switch means {
	case drain.DeleteInOrder:
		return "deletes the pods of its node in order"
	case drain.Delete:
		return "deletes the pods of its node"
	case drain.Kill:
		return "kills the pods of its node"
	default:
		return "evicts the pods of its node"
	}
}

// stepName returns the name of the step that removes pods by these means.
func stepName(means drain.Means) string {
	switch means {
	case drain.DeleteInOrder:
		return vocabulary.StepDeleteInOrder
	case drain.Delete:
		return vocabulary.StepDeletePods
	case drain.Kill:
		return vocabulary.StepKillPods
	default:
		return vocabulary.StepEvictPods
	}
}

func table(p drain.Picture, now time.Time) string {
	if len(p.Rows) == 0 {
		return ""
	}
	rows := [][]string{{"POD", "STATE", "SINCE", "ATTEMPTS", "BLOCKED BY", "NEXT TRY"}}
	for _, r := range p.Rows {
		rows = append(
			rows,
			[]string{r.Pod, r.State, clock(r.Since, now), strconv.Itoa(r.Attempts), r.BlockedBy, clock(r.Next, now)},
		)
	}
	c := p.Counts
	return run.Table(rows) +
		fmt.Sprintf(
			"\n\n%d gone, %d terminating, %d blocked, %d waiting for their turn, %d stay",
			c.Gone,
			c.Terminating,
			c.Blocked,
			c.Waiting,
			c.Skipped,
		)
}

func clock(t, now time.Time) string { return phrase.If(!t.IsZero(), "%s", phrase.Clock(t, now)) }

func (d *nodeDrain) report(ctx workflow.Context, reason, message string) machine.Report {
	report := machine.Report{
		Read: d.Read(ctx), Step: d.Operation(),
		Conditions: []machine.Condition{{Type: vocabulary.ConditionDrained, Reason: reason, Message: message}},
	}
	if d.Purpose == "" {
		report.Operation = &machine.LastOperation{
			Type:        vocabulary.OperationDelete,
			State:       vocabulary.StateProcessing,
			Description: initiated,
		}
		if d.failing(reason) {
			report.Operation.State, report.Operation.Description = vocabulary.StateFailed, message
		}
	}
	return report
}

// initiated is the description of a deletion whose drain is under way, in MCM's words.
const initiated = "Initiate node drain"

// failing reports whether lastOperation shows the drain as failed, as MCM does while it tries again: somebody has to
// change what blocks it, or its deadline has passed and pods are left.
func (d *nodeDrain) failing(reason string) bool {
	bad := func(b drain.Blocker) bool { return b.Bad || reason == vocabulary.ReasonForcing }
	return (reason == vocabulary.ReasonBlocked || reason == vocabulary.ReasonForcing) &&
		slices.ContainsFunc(d.seen.Blockers, bad)
}

// record adds the progress of the drain to a report.
func (d *nodeDrain) record(report *machine.Report, means, result string, left []string) {
	if d.Purpose == "" {
		report.Deletion = &machine.DeletionProgress{Means: means, Result: result, LeftBehind: left}
		return
	}
	report.Drain = &machine.StayingDrain{Purpose: d.last.Purpose, Means: means, Result: result, LeftBehind: left}
}

// end records how the drain ended. A cancelled drain leaves no record.
func (d *nodeDrain) end(ctx workflow.Context, outcome, why string) (*Result, error) {
	result := &Result{Outcome: outcome, Why: why, Accepted: d.total}
	if outcome == activities.Cancelled {
		return result, nil
	}
	last := vocabulary.StepDrained
	if outcome == vocabulary.DrainForced {
		last, result.LeftBehind = vocabulary.StepForced, d.seen.Left
		if len(d.seen.Left) > 0 {
			result.Why += "; left behind: " + strings.Join(d.seen.Left, ", ")
		}
	}
	d.Show(ctx, run.Step{Name: last, Why: result.Why, Phase: d.phase(), Node: d.NodeName})
	if err := d.SetSearchAttributes(ctx); err != nil {
		return result, err
	}
	report := d.report(ctx, outcome, result.Why)
	report.Conditions[0].True = true
	d.record(&report, "", outcome, result.LeftBehind)
	report.Event = &kube.Event{
		Warning: outcome == vocabulary.DrainForced,
		Reason:  "Drain" + outcome,
		Message: "node " + d.NodeName + ": " + result.Why,
	}
	if outcome == vocabulary.DrainDrained {
		report.Event.Reason = vocabulary.DrainDrained
	}
	if err := d.writeStatus(ctx, result.Why, report); err != nil {
		return result, err
	}
	result.Versions = d.Object.Versions
	return result, d.releaseHook(ctx, true, result.Why)
}
