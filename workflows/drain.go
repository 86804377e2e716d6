package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/deletion"
	"millwright/decide/drain"
)

// DrainInput is what a drain starts with. Fields may be added, never renamed or retyped.
type DrainInput struct {
	Ref      activities.Ref // of the machine
	Gate     activities.Gate
	NodeName string
	Purpose  activities.Purpose  `json:",omitempty"` // empty when the machine is to go
	Seen     *activities.Evicted `json:",omitempty"` // continued as new: what was last seen
	Held     bool                `json:",omitempty"` // continued as new: people were told that it is held
	Retry    string              `json:",omitempty"` // continued as new: what was last asked for
}

// DrainResult is how a drain ended.
type DrainResult struct {
	Outcome    string // Drained, Forced, Skipped or Cancelled
	Why        string
	Accepted   int      // requests to go that were accepted
	LeftBehind []string // pods that were still there, as namespace/name
}

// nodeDrain is one run of a drain.
type nodeDrain struct {
	*object
	DrainInput
	next  activities.DrainDecision // the last one
	seen  activities.Evicted       // at the last look
	until time.Time                // deadline that has passed: the next decision is made for a time not before it
	total int
	held  bool        // people were told that the deletion is held
	begun drain.Means // that was written, and not read back yet
	retry string      // what was last asked for
}

// handedOn is what the next run of the drain starts with.
func (d *nodeDrain) handedOn() DrainInput {
	in := d.DrainInput
	in.Gate, in.Seen, in.Held, in.Retry = d.gate, &d.seen, d.held, d.retry
	return in
}

// Drain empties the node of a machine that is to go, or that is kept or updated in place: it evicts the pods until the deadline, then deletes them with their own
// grace periods, then without. What the node shows at each moment is published: in the details, the search attributes, the
// machine's condition Drained and its events. It is a child of the machine's workflow, and ends with it.
func Drain(ctx workflow.Context, in DrainInput) (DrainResult, error) {
	d := &nodeDrain{object: newObject(ctx, KindDrain, Input{Ref: in.Ref, Gate: in.Gate}), DrainInput: in, held: in.Held, retry: in.Retry}
	if in.Seen != nil {
		d.seen = *in.Seen
	}
	if err := workflow.SetQueryHandlerWithOptions(ctx, QueryPicture, func() (drain.Picture, error) { return d.seen.Picture, nil },
		workflow.QueryHandlerOptions{Description: "the pods of the node as the drain last saw them"}); err != nil {
		return DrainResult{}, err
	}
	return answering(ctx, d.object, func() (DrainResult, error) { return d.run(ctx) })
}

// run does step after step until the drain has ended.
func (d *nodeDrain) run(ctx workflow.Context) (DrainResult, error) {
	for {
		d.receive()
		if result, err := d.step(ctx); err != nil || result.Outcome != "" {
			return result, err
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			d.receive()
			return DrainResult{}, workflow.NewContinueAsNewError(ctx, Drain, d.handedOn())
		}
	}
}

// step does what a decision says. The result has an outcome when the drain has ended.
func (d *nodeDrain) step(ctx workflow.Context) (DrainResult, error) {
	next, err := d.decide(ctx)
	if err != nil {
		return DrainResult{}, err
	}
	if next.Result != "" {
		return d.end(ctx, next.Result, next.Why)
	}
	if held, err := d.hold(ctx, next); err != nil || held {
		if err == nil && !d.held && d.Purpose != "" { // the node of a machine that stays is cordoned again first
			return DrainResult{Outcome: activities.Cancelled, Why: "the drain is resumed"}, nil
		}
		return DrainResult{}, err
	}
	if begun, err := d.begin(ctx, next); err != nil || begun {
		return DrainResult{}, err
	}
	outcome, err := d.evict(ctx, next)
	switch {
	case err != nil:
		return DrainResult{}, err
	case outcome == activities.OutcomeEmpty && next.Step.Means == drain.Kill:
		return d.end(ctx, activities.Forced, "all pods are gone; "+next.Why)
	case outcome == activities.OutcomeEmpty:
		return d.end(ctx, activities.Drained, "all pods are gone")
	case outcome == activities.OutcomeDeadline:
		d.until = next.Step.Until
	}
	return DrainResult{}, nil
}

// QueryPicture is the query for what a drain sees.
const QueryPicture = "picture"

// decide asks how pods are made to go now, and until when.
func (d *nodeDrain) decide(ctx workflow.Context) (next activities.DrainDecision, err error) {
	in := activities.DrainRead{Read: d.read(), Purpose: d.Purpose, Grace: d.seen.Grace, Unasked: d.seen.Outcome == ""}
	in.At = workflow.Now(ctx)
	if d.until.After(in.At) {
		in.At = d.until
	}
	err = d.quick(ctx, "by which means, and until when?", core().DecideDrain, in, &next)
	d.live = false
	d.next = next
	return next, err
}

// phase is that of the machine, as people see it.
func (d *nodeDrain) phase() string {
	if d.Purpose == "" {
		return "Terminating"
	}
	return d.next.Phase
}

// hold waits as long as a person wants no pod to be asked, and reports whether it did. The node of a machine that is to go
// stays cordoned.
func (d *nodeDrain) hold(ctx workflow.Context, next activities.DrainDecision) (bool, error) {
	if next.Hold == "" && !d.held {
		return false, nil
	}
	if next.Hold == "" { // the deadline may have passed meanwhile: the pods are looked at first
		d.held, d.seen.Outcome = false, ""
		d.paint(ctx, next)
		report := d.report("Draining", next.Why)
		report.Event = &activities.Event{Reason: d.said("Resumed"), Message: "node " + d.NodeName + ": " + next.Why}
		return true, d.write(ctx, next.Why, core().ReportMachine, report)
	}
	s := step{name: "held", why: "held: " + next.Hold, table: table(d.seen.Picture), phase: d.phase(), node: d.NodeName, blockedBy: deletion.Held, stuck: true}
	d.show(ctx, s)
	if !d.held {
		d.held = true
		report := d.report("Blocked", s.why)
		report.Event = &activities.Event{Reason: d.said("Held"), Message: s.why}
		if err := d.write(ctx, s.why, core().ReportMachine, report); err != nil {
			return false, err
		}
	}
	return true, d.awaken(ctx)
}

// said is the reason of an event about a hold.
func (d *nodeDrain) said(what string) string {
	if d.Purpose == "" {
		return "Deletion" + what
	}
	return "Drain" + what
}

// begin records the means that are used from now on, which starts their clocks. It reports whether there was anything to
// record.
func (d *nodeDrain) begin(ctx workflow.Context, next activities.DrainDecision) (bool, error) {
	if next.Recorded == string(next.Step.Means) {
		d.begun = ""
		return false, nil
	}
	if d.begun == next.Step.Means { // it was written, and the API server does not keep it
		return false, temporal.NewNonRetryableApplicationError("the API server does not keep status.deletion: the CRDs of this version are not installed", activities.TypeOldCRDs, nil)
	}
	d.begun = next.Step.Means
	d.paint(ctx, next)
	report := d.report("Draining", next.Why)
	d.record(&report, string(next.Step.Means), "", nil)
	if next.Step.Means != drain.Evict {
		report.Conditions[0].Reason = "Forcing"
		report.Event = &activities.Event{Warning: true, Reason: "DrainForced", Message: "node " + d.NodeName + ": " + next.Why}
	}
	return true, d.write(ctx, next.Why, core().ReportMachine, report)
}

// evictPods is the name of the activity in Temporal's UI.
const evictPods = "evict-pods"

// evict makes pods go by the means decided until that ends, until the picture changes, or until another decision is needed.
func (d *nodeDrain) evict(ctx workflow.Context, next activities.DrainDecision) (outcome string, err error) {
	d.paint(ctx, next)
	hurry := d.seen.Outcome != "" && next.Retry != d.retry
	d.retry = next.Retry
	in := activities.Eviction{
		Hurry: hurry, Started: next.Started,
		Machine: d.ref, NodeName: d.NodeName, Means: next.Step.Means, Until: next.Step.Until, Shown: d.seen.Blockers, Known: d.seen.Picture.Rows,
		Gone: d.seen.Picture.Counts.Gone, Departed: d.seen.Departed,
	}
	options, cancel := workflow.WithCancel(draining(ctx, d.activityID(evictPods), d.shown.why))
	defer cancel()
	future := workflow.ExecuteActivity(options, core().EvictPods, in)
	for !future.IsReady() {
		if err := d.awaken(ctx, future); err != nil {
			return "", d.ended(ctx, future, err)
		}
		if !d.receive() || future.IsReady() {
			continue
		}
		now, err := d.decide(ctx)
		if err != nil {
			cancel()
			return "", d.ended(ctx, future, err)
		}
		if now.Result != "" || now.Hold != next.Hold || now.Retry != next.Retry || now.Step.Means != next.Step.Means || !now.Step.Until.Equal(next.Step.Until) {
			cancel()
			var seen activities.Evicted
			err := future.Get(ctx, &seen)
			d.givenUp(evictPods, err)
			if err == nil {
				seen.Outcome = activities.OutcomeChanged
				return seen.Outcome, d.look(ctx, next, seen)
			}
			return "", ctx.Err()
		}
	}
	var seen activities.Evicted
	if err := future.Get(ctx, &seen); err != nil {
		return "", err
	}
	return seen.Outcome, d.look(ctx, next, seen)
}

// ended waits for the end of an eviction that was given up: no pod is asked to go after the workflow has ended.
func (d *nodeDrain) ended(ctx workflow.Context, eviction workflow.Future, err error) error {
	disconnected, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = eviction.Get(disconnected, nil)
	return err
}

// look takes in what an eviction saw last, and tells people when something else blocks than before.
func (d *nodeDrain) look(ctx workflow.Context, next activities.DrainDecision, seen activities.Evicted) error {
	before := d.seen
	d.seen = seen
	d.total += seen.Accepted
	if seen.Outcome != activities.OutcomeChanged {
		return nil
	}
	d.paint(ctx, next)
	reason, event := "Draining", activities.Event{Reason: "DrainMoves", Message: "node " + d.NodeName + ": " + seen.Picture.Why}
	if len(seen.Blockers) > 0 {
		reason = "Blocked"
		event.Warning, event.Reason = true, "DrainBlocked"
	}
	if next.Step.Means != drain.Evict {
		reason = "Forcing"
	}
	report := d.report(reason, seen.Picture.Why)
	if len(seen.Blockers) > 0 || len(before.Blockers) > 0 {
		report.Event = &event
	}
	return d.write(ctx, seen.Picture.Why, core().ReportMachine, report)
}

// mostNames is how many blockers the search attribute names. Source: a value may have 2 KiB in Temporal, and a budget's name
// and namespace up to 317 bytes.
const mostNames = 5

// paint shows the picture in Temporal's UI.
func (d *nodeDrain) paint(ctx workflow.Context, next activities.DrainDecision) {
	s := step{name: strings.ToLower(string(next.Step.Means)), why: next.Why, phase: d.phase(), node: d.NodeName, deadline: next.Step.Until}
	if p := d.seen.Picture; p.Why != "" {
		s.why, s.table = p.Why+"; "+next.Why, table(p)
	}
	var names []string
	for _, b := range d.seen.Blockers {
		names = append(names, strings.TrimSpace(b.Kind+" "+b.Name))
		s.stuck = s.stuck || b.Kind != "Volume" || b.Bad
	}
	s.blockedBy = strings.Join(names[:min(len(names), mostNames)], ",")
	d.show(ctx, s)
}

// table is the picture as markdown.
func table(p drain.Picture) string {
	if len(p.Rows) == 0 {
		return ""
	}
	text := "| pod | state | since | attempts | blocked by | next try |\n|---|---|---|---|---|---|\n"
	for _, r := range p.Rows {
		text += fmt.Sprintf("| %s | %s | %s | %d | %s | %s |\n", r.Pod, r.State, clock(r.Since), r.Attempts, r.BlockedBy, clock(r.Next))
	}
	c := p.Counts
	return text + fmt.Sprintf("\n%d gone, %d terminating, %d blocked, %d waiting for their turn, %d stay", c.Gone, c.Terminating, c.Blocked, c.Waiting, c.Skipped)
}

func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.TimeOnly)
}

// report is what the machine's status says of the drain.
func (d *nodeDrain) report(reason, message string) activities.MachineReport {
	return activities.MachineReport{
		Read: d.read(), Step: d.object.report(),
		Conditions: []activities.Condition{{Type: "Drained", Reason: reason, Message: message}},
	}
}

// record makes a report say how far the drain has come.
func (d *nodeDrain) record(report *activities.MachineReport, means, result string, left []string) {
	if d.Purpose == "" {
		report.Deletion = &activities.DeletionProgress{Means: means, Result: result, LeftBehind: left}
		return
	}
	report.Drain = &activities.StayingDrain{Emptying: d.next.Emptying, Means: means, Result: result, LeftBehind: left}
}

// end records how the drain ended. One that is not wanted any more leaves no record.
func (d *nodeDrain) end(ctx workflow.Context, outcome, why string) (DrainResult, error) {
	result := DrainResult{Outcome: outcome, Why: why, Accepted: d.total}
	if outcome == activities.Cancelled {
		return result, nil
	}
	if outcome == activities.Forced {
		result.LeftBehind = d.seen.Left
		if len(d.seen.Left) > 0 {
			result.Why += "; left behind: " + strings.Join(d.seen.Left, ", ")
		}
	}
	d.show(ctx, step{name: strings.ToLower(outcome), why: result.Why, phase: d.phase(), node: d.NodeName})
	if err := d.publish(ctx); err != nil {
		return result, err
	}
	report := d.report(outcome, result.Why)
	report.Conditions[0].True = true
	d.record(&report, "", outcome, result.LeftBehind)
	report.Event = &activities.Event{Warning: outcome == activities.Forced, Reason: "Drain" + outcome, Message: "node " + d.NodeName + ": " + result.Why}
	if outcome == activities.Drained {
		report.Event.Reason = "Drained"
	}
	return result, d.write(ctx, result.Why, core().ReportMachine, report)
}

// alreadyStarted reports whether a child could not be started because a workflow of its ID is open.
func alreadyStarted(err error) bool {
	var started *temporal.ChildWorkflowExecutionAlreadyStartedError
	return errors.As(err, &started)
}
