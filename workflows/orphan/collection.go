// Package orphan contains the workflow that deletes orphaned instances and marks nodes without a Machine.
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

// Input is the input of a sweep, which the sweep's schedule passes. Fields of Input and Settings may be added. Fields
// must not be renamed or retyped.
type Input struct {
	Class    kube.Ref
	Provider string
	orphan.Settings
}

// Result is the result of a sweep. The schedule passes the result, with the sightings, to the next sweep.
type Result struct {
	Outcome   string // Swept, Held or Gone
	Why       string
	Instances int               // instances of the class
	Machines  int               // machines in the namespace of the class
	Orphans   int               // instances that no machine claims, including the deleted instances
	Collected []string          // provider IDs of the deleted instances
	Kept      []string          // orphans that this sweep has not deleted, with the reason
	Unclear   []string          // instances for which no sweep can decide whether they are orphans
	Sightings []orphan.Sighting // time at which each orphan was first seen
	Nodes     int               // nodes without a machine that were marked
}

// The outcomes of a sweep. The outcome is run.OutcomeGone if the class no longer exists.
const (
	OutcomeSwept = "Swept"
	OutcomeHeld  = "Held" // nothing was deleted although there may be orphans
)

// BlockerOrphansHeld is the value of the search attribute BlockedBy if a person must decide about the orphans.
const BlockerOrphansHeld = "OrphansHeld"

// maxParallelDeletions is the number of orphans that are deleted in parallel. Source: deletions are not urgent, and the
// cloud has other callers.
const maxParallelDeletions = 5

type sweep struct {
	*run.WorkflowState
	input  Input
	result Result
}

// Collection is one orphan sweep for a class. Collection first lists the instances in the cloud, and then the Machines
// in the API server. Collection deletes an instance if two sweeps found no Machine for it, and reports the outcome. The
// result contains the sightings for the next sweep. If a sweep fails, it has deleted no instance by mistake and has no
// result. The next sweep then gets the result of the last successful sweep.
func Collection(ctx workflow.Context, in Input) (Result, error) {
	c := &sweep{
		WorkflowState: run.NewWorkflowState(ctx, run.KindOrphanCollection, class.ClassesResource, run.Input{Ref: in.Class}),
		input:         in,
	}
	c.ShowStep(ctx, run.Step{Name: vocabulary.StepFindOrphans, Why: "which instances have no Machine?"})
	d, err := c.findOrphans(ctx)
	if err != nil {
		c.reportSweep(
			ctx,
			activities.Report{Failed: "The sweep for instances without a Machine failed: " + failureMessage(err)},
		)
		return Result{}, err
	}
	if d.Gone {
		c.result.Outcome, c.result.Why = run.OutcomeGone, "the class is gone"
		c.ShowStep(ctx, run.Step{Why: c.result.Why})
		return c.result, c.SetSearchAttributes(ctx)
	}
	c.result = Result{
		Outcome: OutcomeSwept, Instances: d.Instances, Machines: d.Machines, Orphans: d.Orphans,
		Kept: d.Notes, Unclear: d.Unclear, Sightings: d.Sightings,
	}
	if err := c.deleteOrphans(ctx, d.Collect); err != nil {
		return Result{}, err
	}
	c.markNodes(ctx)
	return c.publishOutcome(ctx, d)
}

// findOrphans returns the instances without a Machine, given the sightings of the previous sweep.
func (c *sweep) findOrphans(ctx workflow.Context) (d cloud.OrphanDecision, err error) {
	var before Result
	if workflow.HasLastCompletionResult(ctx) {
		if err := workflow.GetLastCompletionResult(ctx, &before); err != nil {
			workflow.GetLogger(ctx).Warn("the previous result is unreadable: all sighting times are reset", "error", err)
			before = Result{}
		}
	}
	search := cloud.OrphanSearch{
		Class: c.input.Class, At: workflow.Now(ctx), Sightings: before.Sightings, Settings: c.input.Settings,
	}
	if err := c.SetSearchAttributes(ctx); err != nil {
		return d, err
	}
	err = workflow.ExecuteActivity(run.OrphanSweepOptions(ctx, c.input.Provider, vocabulary.StepFindOrphans, "which instances have no Machine?"), new(cloud.Activities).FindOrphans, search).
		Get(ctx, &d)
	return d, err
}

// deleteOrphans deletes the orphans that are due. deleteOrphans makes at most maxParallelDeletions calls in parallel.
// If an orphan cannot be deleted, deleteOrphans keeps its sighting, and the next sweep tries again.
func (c *sweep) deleteOrphans(ctx workflow.Context, targets []orphan.DeletionTarget) error {
	if len(targets) == 0 {
		return nil
	}
	c.ShowStep(
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
	for some := range slices.Chunk(targets, maxParallelDeletions) {
		futures := make([]workflow.Future, len(some))
		for i, target := range some {
			n++
			options := run.OrphanSweepOptions(
				ctx,
				c.input.Provider,
				"collect-orphan-"+strconv.Itoa(n),
				fmt.Sprintf("delete %s: Machine %s does not exist", strings.Join(target.ProviderIDs, ", "), target.Machine),
			)
			futures[i] = workflow.ExecuteActivity(
				options,
				new(cloud.Activities).CollectOrphan,
				cloud.OrphanCall{Class: c.input.Class, Target: target},
			)
		}
		for i, target := range some {
			var end cloud.OrphanCallResult
			err := futures[i].Get(ctx, &end)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.recordDeletion(target, end, err)
		}
	}
	return nil
}

func (c *sweep) recordDeletion(target orphan.DeletionTarget, end cloud.OrphanCallResult, err error) {
	if err != nil {
		c.recordKeptOrphan(target, failureMessage(err))
		return
	}
	// a new orphan with this ID must start with a new sighting
	c.result.Sightings = orphan.SightingsWithoutDeleted(c.result.Sightings, target.ProviderIDs)
	if end.Kept != "" {
		c.recordKeptOrphan(target, end.Kept)
		return
	}
	c.result.Collected = append(c.result.Collected, target.ProviderIDs...)
}

// maxKeptMessages limits the messages in a result. Source: a decision has at most ten messages, and the workflow adds
// a few.
const maxKeptMessages = 15

// maxReasonBytes is the maximum size in bytes of an error text in a message of the result.
const maxReasonBytes = 200

func (c *sweep) recordKeptOrphan(target orphan.DeletionTarget, why string) {
	if len(c.result.Kept) < maxKeptMessages {
		c.result.Kept = append(
			c.result.Kept,
			fmt.Sprintf("%s stays: %s", strings.Join(target.ProviderIDs, ", "), phrase.TruncateText(why, maxReasonBytes)),
		)
	}
}

// markNodes marks nodes that no machine claims. Marking is not urgent: the next sweep repeats a failed write.
func (c *sweep) markNodes(ctx workflow.Context) {
	sweep := activities.NodeSweep{Namespace: c.input.Class.Namespace, At: workflow.Now(ctx)}
	if err := workflow.ExecuteActivity(run.BatchOptions(ctx, "which nodes have no Machine?", run.MinWritesOnOtherQueue), new(activities.Activities).MarkNodes, sweep).
		Get(ctx, &c.result.Nodes); err != nil {
		workflow.GetLogger(ctx).Warn("nodes without a machine are not marked", "error", err)
	}
}

// publishOutcome sets the outcome of the sweep, reports the outcome, and shows the outcome in Temporal.
func (c *sweep) publishOutcome(ctx workflow.Context, d cloud.OrphanDecision) (Result, error) {
	r := &c.result
	s := run.Step{}
	switch {
	case d.Held != "":
		r.Outcome, r.Why = OutcomeHeld, d.Held
		s.Name, s.BlockedBy = vocabulary.StepHeldByOperator, []string{BlockerOrphansHeld}
	case d.Orphans == 0:
		r.Why = fmt.Sprintf("each of %d instances has its Machine, or is none of ours", d.Instances)
	default:
		r.Why = fmt.Sprintf("%d of %d instances had no Machine, %d were deleted", d.Orphans, d.Instances, len(r.Collected))
	}
	s.Why = r.Why
	if kept := slices.Concat(r.Kept, r.Unclear); len(kept) > 0 {
		s.Table = "- " + strings.Join(kept, "\n- ")
	}
	c.reportSweep(ctx, activities.Report{Collected: r.Collected, Held: d.Held, Unclear: r.Unclear})
	c.ShowStep(ctx, s)
	return *r, c.SetSearchAttributes(ctx)
}

// reportSweep updates the metrics of sweeps, and writes events about the class. If the report fails, the sweep is still
// complete.
func (c *sweep) reportSweep(ctx workflow.Context, report activities.Report) {
	report.Class = c.input.Class
	if err := workflow.ExecuteActivity(run.QuickBatchOptions(ctx, "report how the sweep ended", 1), new(activities.Activities).ReportOrphans, report).
		Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Warn("the end of the sweep was not reported", "error", err)
	}
}

// failureMessage returns the message of an activity's failure.
func failureMessage(err error) string {
	if application, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return application.Message() + " (" + application.Type() + ")"
	}
	return err.Error()
}
