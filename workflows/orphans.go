package workflows

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/orphan"
)

// OrphanInput is what a schedule starts each sweep with. Fields may be added, never renamed or retyped. Settings that are zero
// have the defaults of decide/orphan.
type OrphanInput struct {
	Class       activities.Ref
	Provider    string
	Confirm     time.Duration // least time between the two sightings of an orphan
	MinAge      time.Duration // least age of an instance
	MaxPerSweep int
}

// OrphanResult is how a sweep ended. The next one of the schedule gets it, and with it the sightings.
type OrphanResult struct {
	Outcome   string // Swept, Held or Gone
	Why       string
	Instances int               // of the class
	Machines  int               // of its namespace
	Orphans   int               // instances that no machine claims, those that were deleted included
	Collected []string          // provider IDs of what was deleted
	Kept      []string          // orphans that stay for now, and why
	Unclear   []string          // what no sweep takes care of
	Sightings []orphan.Sighting // when each orphan was seen first
	Nodes     int               // nodes without a machine that were marked
}

// The outcomes of a sweep; OutcomeGone when the class does not exist any more.
const (
	OutcomeSwept = "Swept"
	OutcomeHeld  = "Held" // nothing was deleted although something might have been
)

// BlockedOrphans is what the search attribute BlockedBy of a sweep says that a person has to look at.
const BlockedOrphans = "OrphansHeld"

// collectedAtOnce is how many orphans are deleted at the same time. Source: none needs haste, and the cloud has other callers.
const collectedAtOnce = 5

// collection is one sweep.
type collection struct {
	*object
	in     OrphanInput
	result OrphanResult
}

// OrphanCollection is one sweep over the instances of a class: it asks the cloud and then the API server, deletes what was
// without a Machine at two sweeps, and tells people. What this sweep saw first it hands on by its result. One that fails has
// deleted nothing by mistake, and hands on nothing: the next gets the result of the one before.
func OrphanCollection(ctx workflow.Context, in OrphanInput) (OrphanResult, error) {
	c := &collection{object: newObject(ctx, KindOrphanCollection, Input{Ref: in.Class}), in: in}
	c.show(ctx, step{name: "find-orphans", why: "which instances have no Machine?"})
	d, err := c.find(ctx)
	if err != nil {
		c.tell(ctx, activities.OrphanReport{Failed: "The sweep for instances without a Machine came to nothing: " + reason(err)})
		return OrphanResult{}, err
	}
	if d.Gone {
		c.result.Outcome, c.result.Why = OutcomeGone, "the class is gone"
		c.show(ctx, step{why: c.result.Why})
		return c.result, c.publish(ctx)
	}
	c.result = OrphanResult{
		Outcome: OutcomeSwept, Instances: d.Instances, Machines: d.Machines, Orphans: d.Orphans,
		Kept: d.Notes, Unclear: d.Unclear, Sightings: d.Sightings,
	}
	if err := c.collect(ctx, d.Collect); err != nil {
		return OrphanResult{}, err
	}
	c.mark(ctx)
	return c.end(ctx, d)
}

// find asks which instances have no machine, with what the sweep before has seen.
func (c *collection) find(ctx workflow.Context) (d activities.OrphanDecision, err error) {
	var before OrphanResult
	if workflow.HasLastCompletionResult(ctx) {
		if err := workflow.GetLastCompletionResult(ctx, &before); err != nil {
			workflow.GetLogger(ctx).Warn("the result of the sweep before cannot be read: all clocks start anew", "error", err)
			before = OrphanResult{}
		}
	}
	search := activities.OrphanSearch{
		Class: c.in.Class, At: workflow.Now(ctx), Sightings: before.Sightings,
		Settings: orphan.Settings{Confirm: c.in.Confirm, MinAge: c.in.MinAge, MaxPerSweep: c.in.MaxPerSweep},
	}
	if err := c.publish(ctx); err != nil {
		return d, err
	}
	err = workflow.ExecuteActivity(sweeping(ctx, c.in.Provider, "find-orphans", "which instances have no Machine?"), cloudCalls().FindOrphans, search).Get(ctx, &d)
	return d, err
}

// collect deletes what is due, a few at a time. What cannot be deleted stays seen, so that the next sweep tries again.
func (c *collection) collect(ctx workflow.Context, targets []orphan.Target) error {
	if len(targets) == 0 {
		return nil
	}
	c.show(ctx, step{name: "collect-orphans", why: fmt.Sprintf("instances of %d machines that do not exist are deleted", len(targets))})
	if err := c.publish(ctx); err != nil {
		return err
	}
	n := 0
	for some := range slices.Chunk(targets, collectedAtOnce) {
		futures := make([]workflow.Future, len(some))
		for i, target := range some {
			n++
			options := sweeping(ctx, c.in.Provider, "collect-orphan-"+strconv.Itoa(n), fmt.Sprintf("delete %s: Machine %s does not exist", strings.Join(target.ProviderIDs, ", "), target.Machine))
			futures[i] = workflow.ExecuteActivity(options, cloudCalls().CollectOrphan, activities.OrphanCall{Class: c.in.Class, Target: target})
		}
		for i, target := range some {
			var end activities.OrphanEnd
			err := futures[i].Get(ctx, &end)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.ended(target, end, err)
		}
	}
	return nil
}

// ended takes in what became of one target.
func (c *collection) ended(target orphan.Target, end activities.OrphanEnd, err error) {
	switch {
	case err == nil && end.Kept == "":
		c.result.Collected = append(c.result.Collected, target.ProviderIDs...)
		c.result.Sightings = orphan.After(c.result.Sightings, target.ProviderIDs)
		return
	case err == nil: // it is no orphan after all: should it become one again, its clock starts anew
		c.result.Sightings = orphan.After(c.result.Sightings, target.ProviderIDs)
		c.keep(target, end.Kept)
	default:
		c.keep(target, reason(err))
	}
}

// maxKept bounds the sentences of a result. Source: decisions hold ten, and a few are added here.
const maxKept = 15

// maxReason bounds what others say in such a sentence, in bytes.
const maxReason = 200

func (c *collection) keep(target orphan.Target, why string) {
	if len(c.result.Kept) < maxKept {
		c.result.Kept = append(c.result.Kept, fmt.Sprintf("%s stays: %s", strings.Join(target.ProviderIDs, ", "), cut(why, maxReason)))
	}
}

// mark marks nodes that no machine claims. They harm nobody: what fails is left to the next sweep.
func (c *collection) mark(ctx workflow.Context) {
	sweep := activities.NodeSweep{Namespace: c.in.Class.Namespace, At: workflow.Now(ctx)}
	if err := workflow.ExecuteActivity(batch(ctx, "which nodes have no Machine?", manyWrites), core().MarkNodes, sweep).Get(ctx, &c.result.Nodes); err != nil {
		workflow.GetLogger(ctx).Warn("nodes without a machine are not marked", "error", err)
	}
}

// end says how the sweep ended, to people and to the next one.
func (c *collection) end(ctx workflow.Context, d activities.OrphanDecision) (OrphanResult, error) {
	r := &c.result
	s := step{}
	switch {
	case d.Held != "":
		r.Outcome, r.Why = OutcomeHeld, d.Held
		s.name, s.blockedBy = "held", BlockedOrphans
	case d.Orphans == 0:
		r.Why = fmt.Sprintf("each of %d instances has its Machine, or is none of ours", d.Instances)
	default:
		r.Why = fmt.Sprintf("%d of %d instances had no Machine, %d were deleted", d.Orphans, d.Instances, len(r.Collected))
	}
	s.why = r.Why
	if kept := slices.Concat(r.Kept, r.Unclear); len(kept) > 0 {
		s.table = "- " + strings.Join(kept, "\n- ")
	}
	c.tell(ctx, activities.OrphanReport{Collected: r.Collected, Held: d.Held, Unclear: r.Unclear})
	c.show(ctx, s)
	return *r, c.publish(ctx)
}

// tell counts the sweep and tells people of it. A sweep that cannot tell has swept all the same.
func (c *collection) tell(ctx workflow.Context, report activities.OrphanReport) {
	report.Class = c.in.Class
	if err := workflow.ExecuteActivity(soon(ctx, "tell people how the sweep ended", 1), core().ReportOrphans, report).Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Warn("nobody was told how the sweep ended", "error", err)
	}
}

// reason is what people need to know of an activity's failure.
func reason(err error) string {
	var application *temporal.ApplicationError
	if errors.As(err, &application) {
		return application.Message() + " (" + application.Type() + ")"
	}
	return err.Error()
}
