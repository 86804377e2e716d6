// Package orphan has the workflow that collects instances and nodes without a Machine.
package orphan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/class"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	activities "millwright/activities/orphan"
	"millwright/api/vocabulary"
	"millwright/decide/orphan"
	"millwright/decide/phrase"
	"millwright/workflows/run"
)

// Input is what a schedule starts each sweep with. Fields, also those of Settings, may be added, never renamed or
// retyped.
type Input struct {
	Class    kube.Ref
	Provider string
	orphan.Settings
}

// Result is how a sweep ended. The schedule passes it, with the sightings, to the next sweep.
type Result struct {
	Outcome   string // Swept, Held or Gone
	Why       string
	Instances int               // of the class
	Machines  int               // of its namespace
	Orphans   int               // instances that no machine claims, those that were deleted included
	Collected []string          // provider IDs of what was deleted
	Kept      []string          // orphans that stay for now, and why
	Unclear   []string          // instances that no sweep may delete
	Sightings []orphan.Sighting // since when each orphan is known
	Nodes     int               // nodes without a machine that were marked
}

// The outcomes of a sweep; OutcomeGone when the class does not exist any more.
const (
	OutcomeSwept = "Swept"
	OutcomeHeld  = "Held" // nothing was deleted although there may be orphans
)

// BlockedOrphans is the value of the search attribute BlockedBy of a sweep that needs a person's decision.
const BlockedOrphans = "OrphansHeld"

// collectedAtOnce is how many orphans are deleted at the same time. Source: deletions are not urgent, and the cloud has
// other callers.
const collectedAtOnce = 5

type collection struct {
	*run.Object
	in     Input
	result Result
}

// Collection is one sweep over the instances of a class: it asks the cloud, then the API server, deletes the instances
// that had no Machine in two sweeps, and reports the outcome. New sightings are in its result. A sweep that fails has
// deleted nothing by mistake and has no result: the next sweep gets the result of the one before.
func Collection(ctx workflow.Context, in Input) (Result, error) {
	c := &collection{
		Object: run.NewObject(ctx, run.KindOrphanCollection, class.ClassesResource, run.Input{Ref: in.Class}),
		in:     in,
	}
	c.Show(ctx, run.Step{Name: vocabulary.StepFindOrphans, Why: "which instances have no Machine?"})
	d, err := c.find(ctx)
	if err != nil {
		c.report(ctx, activities.Report{Failed: "The sweep for instances without a Machine failed: " + reason(err)})
		return Result{}, err
	}
	if d.Gone {
		c.result.Outcome, c.result.Why = run.OutcomeGone, "the class is gone"
		c.Show(ctx, run.Step{Why: c.result.Why})
		return c.result, c.SetSearchAttributes(ctx)
	}
	c.result = Result{
		Outcome: OutcomeSwept, Instances: d.Instances, Machines: d.Machines, Orphans: d.Orphans,
		Kept: d.Notes, Unclear: d.Unclear, Sightings: d.Sightings,
	}
	if err := c.collect(ctx, d.Collect); err != nil {
		return Result{}, err
	}
	c.mark(ctx)
	return c.end(ctx, d)
}

// find asks which instances have no Machine, given the sightings of the sweep before.
func (c *collection) find(ctx workflow.Context) (d cloud.OrphanDecision, err error) {
	var before Result
	if workflow.HasLastCompletionResult(ctx) {
		if err := workflow.GetLastCompletionResult(ctx, &before); err != nil {
			workflow.GetLogger(ctx).Warn("the previous result is unreadable: all sighting times are reset", "error", err)
			before = Result{}
		}
	}
	search := cloud.OrphanSearch{
		Class: c.in.Class, At: workflow.Now(ctx), Sightings: before.Sightings, Settings: c.in.Settings,
	}
	if err := c.SetSearchAttributes(ctx); err != nil {
		return d, err
	}
	err = workflow.ExecuteActivity(run.Sweeping(ctx, c.in.Provider, vocabulary.StepFindOrphans, "which instances have no Machine?"), new(cloud.Provider).FindOrphans, search).
		Get(ctx, &d)
	return d, err
}

// collect deletes the orphans that are due, collectedAtOnce at a time. The sighting of an orphan that cannot be deleted
// is kept, so that the next sweep tries again.
func (c *collection) collect(ctx workflow.Context, targets []orphan.Target) error {
	if len(targets) == 0 {
		return nil
	}
	c.Show(
		ctx,
		run.Step{
			Name: vocabulary.StepCollectOrphans,
			Why:  fmt.Sprintf("instances of %d machines that do not exist are deleted", len(targets)),
		},
	)
	if err := c.SetSearchAttributes(ctx); err != nil {
		return err
	}
	n := 0
	for some := range slices.Chunk(targets, collectedAtOnce) {
		futures := make([]workflow.Future, len(some))
		for i, target := range some {
			n++
			options := run.Sweeping(
				ctx,
				c.in.Provider,
				"collect-orphan-"+strconv.Itoa(n),
				fmt.Sprintf("delete %s: Machine %s does not exist", strings.Join(target.ProviderIDs, ", "), target.Machine),
			)
			futures[i] = workflow.ExecuteActivity(
				options,
				new(cloud.Provider).CollectOrphan,
				cloud.OrphanCall{Class: c.in.Class, Target: target},
			)
		}
		for i, target := range some {
			var end cloud.OrphanEnd
			err := futures[i].Get(ctx, &end)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.ended(target, end, err)
		}
	}
	return nil
}

func (c *collection) ended(target orphan.Target, end cloud.OrphanEnd, err error) {
	if err != nil {
		c.keep(target, reason(err))
		return
	}
	// if it is an orphan again, its clock starts anew
	c.result.Sightings = orphan.After(c.result.Sightings, target.ProviderIDs)
	if end.Kept != "" {
		c.keep(target, end.Kept)
		return
	}
	c.result.Collected = append(c.result.Collected, target.ProviderIDs...)
}

// maxKept bounds the sentences of a result. Source: a decision has at most ten, and this workflow adds a few.
const maxKept = 15

// maxReason bounds an error text in such a sentence, in bytes.
const maxReason = 200

func (c *collection) keep(target orphan.Target, why string) {
	if len(c.result.Kept) < maxKept {
		c.result.Kept = append(
			c.result.Kept,
			fmt.Sprintf("%s stays: %s", strings.Join(target.ProviderIDs, ", "), phrase.Cut(why, maxReason)),
		)
	}
}

// mark marks nodes that no machine claims. Marking is not urgent: the next sweep repeats what fails.
func (c *collection) mark(ctx workflow.Context) {
	sweep := activities.NodeSweep{Namespace: c.in.Class.Namespace, At: workflow.Now(ctx)}
	if err := workflow.ExecuteActivity(run.Batch(ctx, "which nodes have no Machine?", run.ManyWrites), new(activities.Activities).MarkNodes, sweep).
		Get(ctx, &c.result.Nodes); err != nil {
		workflow.GetLogger(ctx).Warn("nodes without a machine are not marked", "error", err)
	}
}

// end sets the outcome of the sweep, reports it and shows it.
func (c *collection) end(ctx workflow.Context, d cloud.OrphanDecision) (Result, error) {
	r := &c.result
	s := run.Step{}
	switch {
	case d.Held != "":
		r.Outcome, r.Why = OutcomeHeld, d.Held
		s.Name, s.BlockedBy = vocabulary.StepHeld, []string{BlockedOrphans}
	case d.Orphans == 0:
		r.Why = fmt.Sprintf("each of %d instances has its Machine, or is none of ours", d.Instances)
	default:
		r.Why = fmt.Sprintf("%d of %d instances had no Machine, %d were deleted", d.Orphans, d.Instances, len(r.Collected))
	}
	s.Why = r.Why
	if kept := slices.Concat(r.Kept, r.Unclear); len(kept) > 0 {
		s.Table = "- " + strings.Join(kept, "\n- ")
	}
	c.report(ctx, activities.Report{Collected: r.Collected, Held: d.Held, Unclear: r.Unclear})
	c.Show(ctx, s)
	return *r, c.SetSearchAttributes(ctx)
}

// report counts the sweep and reports it by events of the class. A sweep whose report fails is complete nevertheless.
func (c *collection) report(ctx workflow.Context, report activities.Report) {
	report.Class = c.in.Class
	if err := workflow.ExecuteActivity(run.Soon(ctx, "report how the sweep ended", 1), new(activities.Activities).ReportOrphans, report).
		Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Warn("the end of the sweep was not reported", "error", err)
	}
}

// reason returns the message of an activity's failure.
func reason(err error) string {
	if application, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return application.Message() + " (" + application.Type() + ")"
	}
	return err.Error()
}
