// Package set contains the workflow of a MachineSet of machine.sapcloud.io or cluster.x-k8s.io.
package set

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/scale"
	"millwright/workflows/run"
)

type machineSet struct {
	*run.WorkflowState
	apiActivities
	lastBatchFailure scale.WriteFailure // error of the last batch; zero if the batch has succeeded
}

// MachineSet reconciles a MachineSet. MachineSet adopts and releases machines, creates and deletes them in batches, and
// syncs them with the template. MachineSet also writes the set's status. Each machine's own workflow does the machine's
// work. The run ends when the set is gone or nothing is left to do.
func MachineSet(ctx workflow.Context, in run.Input) (run.Result, error) {
	return runSet(ctx, millwrightActivities(), in)
}

// ClusterAPISet is MachineSet for a set of Cluster API. Each machine of the set has clones of the set's templates, and
// Cluster API's own controllers do the machine's work. The run also ends when the set has lost the label that assigns
// it to Millwright.
func ClusterAPISet(ctx workflow.Context, in run.Input) (run.Result, error) {
	return runSet(ctx, clusterAPIActivities(), in)
}

func runSet(ctx workflow.Context, a apiActivities, in run.Input) (run.Result, error) {
	s := &machineSet{WorkflowState: run.NewWorkflowState(ctx, a.kind, a.resource, in), apiActivities: a}
	s.Live, s.IdleBeforeEnd = !in.Continued, true
	return run.ExecuteLoop(ctx, s)
}

func (s *machineSet) Decide(ctx workflow.Context) (set.Decision, error) {
	d, err := s.decideSet.RunLocalFirst(
		ctx,
		s.WorkflowState,
		"which machines to create or delete next?",
		s.decisionInput(ctx),
	)
	s.Live = false
	s.RaiseMinVersions(d.Seen)
	return d, err
}

func (s *machineSet) decisionInput(ctx workflow.Context) set.Input {
	return set.Input{ReadInput: s.NewReadInput(ctx), Failure: s.lastBatchFailure}
}

// ExecuteStep carries out a decision. If there is nothing to do, ExecuteStep waits until something changes or until the
// decision's recheck time.
func (s *machineSet) ExecuteStep(ctx workflow.Context, d set.Decision) (*run.Result, error) {
	if d.Gone {
		return run.GoneResult(d.Pending.Why)
	}
	acted, err := s.applyDecision(ctx, d)
	switch {
	case err != nil || acted:
		return nil, err
	case d.Pending.Need == attention.NeedNothing:
		return run.CalmResult(d.Pending.Why)
	case d.Scale.Recheck.IsZero():
		s.CancelTimer("recheck")
		return nil, s.AwaitChange(ctx)
	default:
		return nil, s.AwaitChange(ctx, s.EnsureTimer(ctx, "recheck", run.RecheckLabel(d.Pending.Why), d.Scale.Recheck))
	}
}

// applyDecision carries out a decision, and reports whether there was anything to do.
func (s *machineSet) applyDecision(ctx workflow.Context, d set.Decision) (acted bool, err error) {
	s.ShowStep(ctx, s.stepForDecision(d).WithBlockers(d.Blocked))
	if d.Prepare || d.Free {
		// a write of the finalizer creates a new version of the object, which the next decision must read
		return true, run.WriteObject(ctx, s.WorkflowState, "finalizer: "+d.Pending.Why, s.finalizeSet, s.NewReadInput(ctx))
	}
	if done, err := s.carryOutWritesBeforePlan(ctx, d); done {
		return true, s.handleReportError(ctx, false, err)
	}
	failed, acted, err := s.carryOutWork(ctx, d)
	if err != nil {
		return acted, err
	}
	was := s.lastBatchFailure
	if s.lastBatchFailure = failed; d.Report || was != failed {
		if err := s.writeStatus(ctx, d); err != nil {
			return true, s.handleReportError(ctx, acted && failed.Message == "", err)
		}
		acted = true
	}
	if acted && failed.Message != "" { // do not retry at once, because the API server would refuse again
		return true, s.AwaitChange(
			ctx,
			s.EnsureTimer(ctx, "again", run.RetryLabel(failed.Message), workflow.Now(ctx).Add(run.FirstRefusalWait)),
		)
	}
	return acted, nil
}

// handleReportError handles the error of a report. If the API server refuses the status, creations and deletions still
// continue. If nothing but the status had to be written, handleReportError waits before the next attempt.
func (s *machineSet) handleReportError(ctx workflow.Context, acted bool, err error) error {
	refused := run.RefusalMessage(err)
	switch {
	case refused == "":
		return err
	case acted:
		return nil
	}
	s.ShowStep(
		ctx,
		run.Step{
			Name:      vocabulary.StepWriteRefused,
			Why:       refused,
			BlockedBy: []string{vocabulary.BlockedByRefusedWrite},
			Stuck:     true,
		},
	)
	s.Live = true
	return s.AwaitChange(
		ctx,
		s.EnsureTimer(ctx, "again", run.RetryLabel(refused), workflow.Now(ctx).Add(run.FirstRefusalWait)),
	)
}

func (s *machineSet) writeStatus(ctx workflow.Context, d set.Decision) error {
	report := set.Report{Input: s.decisionInput(ctx), Generations: d.Scale.Generations}
	if d.Pending.Need != attention.NeedNothing {
		report.Step = s.StatusStep()
	}
	return run.WriteObject(ctx, s.WorkflowState, "status: "+d.Pending.Why, s.reportSet, report)
}

// carryOutWritesBeforePlan makes the writes that must come before the lists of the plan. For example, it records the
// generation of machines before one of these machines is deleted. If the plan has no lists, or if the API server
// refused the last batch, carryOutWritesBeforePlan also makes the additional writes. done reports whether nothing else
// is left to do.
func (s *machineSet) carryOutWritesBeforePlan(ctx workflow.Context, d set.Decision) (done bool, err error) {
	if d.Scale.Generations != nil {
		if err := s.writeStatus(ctx, d); err != nil && run.RefusalMessage(err) == "" || !d.Scale.HasListEntries() {
			return true, err
		}
	}
	refused := s.lastBatchFailure.Message != "" && !s.lastBatchFailure.Changing
	if len(d.Extra) > 0 && (!d.Scale.HasListEntries() || refused) {
		err := s.carryOutExtraWrites(ctx, d)
		if message := run.RefusalMessage(err); message != "" && refused {
			s.lastBatchFailure = scale.WriteFailure{Message: message, Changing: true} // the batch comes next
		}
		return true, err
	}
	return false, nil
}

// carryOutExtraWrites makes the decision's additional writes.
func (s *machineSet) carryOutExtraWrites(ctx workflow.Context, d set.Decision) error {
	for _, extra := range d.Extra {
		var versions kube.MinVersions
		in := set.ExtraWritesInput{Set: s.Ref, Objects: extra.Objects}
		if err := workflow.ExecuteActivity(run.BatchOptions(ctx, extra.Why, len(extra.Objects)), extra.Activity, in).
			Get(ctx, &versions); err != nil {
			return err
		}
		s.RaiseMinVersions(versions)
	}
	return nil
}

// carryOutWork does the first kind of work that the decision lists. failed is the API server's refusal of a write.
func (s *machineSet) carryOutWork(
	ctx workflow.Context,
	d set.Decision,
) (failed scale.WriteFailure, acted bool, err error) {
	if d.Scale.HasListEntries() {
		if err := s.SetSearchAttributes(ctx); err != nil {
			return scale.WriteFailure{}, false, err
		}
	}
	for _, list := range []struct {
		activity any
		machines []scale.MachineTarget
	}{
		{s.releaseMachines, d.Scale.Release},
		{s.adoptMachines, d.Scale.Adopt},
		{s.preserveMachines, d.Scale.Keep},
		{s.unmarkMachines, d.Scale.Unmark},
		{s.updateMachines, d.Scale.Update},
		{s.moveMachines, d.Scale.Move},
		{s.syncMachines, d.Scale.Sync},
	} {
		if len(list.machines) > 0 {
			var versions kube.MinVersions
			err := s.runBatch(
				ctx,
				d,
				list.activity,
				set.MachineBatch{Set: s.Ref, Machines: list.machines},
				len(list.machines),
				&versions,
			)
			s.RaiseMinVersions(versions)
			if refused := run.RefusalMessage(err); refused != "" {
				return scale.WriteFailure{Message: refused, Changing: true}, true, nil
			}
			return scale.WriteFailure{}, true, err
		}
	}
	var done set.WriteResult
	if len(d.Scale.Create) > 0 {
		creation := set.MachineCreation{Set: s.Ref, Version: d.Version, Names: d.Scale.Create}
		err := s.runBatch(ctx, d, s.createMachines, creation, len(d.Scale.Create), &done)
		s.RaiseMinVersions(done.Versions)
		s.Live = s.Live || done.Unseen
		return done.Failure, true, err
	}
	if doomed := slices.Concat(d.Scale.Delete, d.Scale.Remediate); len(doomed) > 0 {
		err := s.runBatch(
			ctx,
			d,
			s.deleteMachines,
			set.MachineBatch{Set: s.Ref, Version: d.Version, Machines: doomed},
			len(doomed),
			&done,
		)
		s.RaiseMinVersions(done.Versions)
		s.Live = err != nil || done.Unseen // a decision from older data would choose other machines for deletion
		return done.Failure, true, err
	}
	return scale.WriteFailure{}, false, nil // a refused write of an earlier decision is no longer needed
}

func (s *machineSet) runBatch(ctx workflow.Context, d set.Decision, activity, input any, n int, result any) error {
	return workflow.ExecuteActivity(run.BatchOptions(ctx, d.Scale.Why, n), activity, input).Get(ctx, result)
}

func (s *machineSet) stepForDecision(d set.Decision) run.Step {
	switch {
	case len(d.Scale.Create) > 0:
		return run.Step{Name: vocabulary.StepCreateMachines, Why: d.Scale.Why}
	case len(d.Scale.Delete)+len(d.Scale.Remediate) > 0:
		return run.Step{Name: vocabulary.StepDeleteMachines, Why: d.Scale.Why}
	case len(d.Scale.Keep) > 0:
		return run.Step{Name: vocabulary.StepRequestPreservation, Why: d.Scale.Why}
	case len(d.Scale.Adopt)+len(d.Scale.Release)+len(d.Scale.Unmark)+len(d.Scale.Update)+len(d.Scale.Move)+len(d.Scale.Sync) > 0:
		return run.Step{Name: vocabulary.StepAdoptOrReleaseMachines, Why: d.Scale.Why}
	case d.Pending.Need == attention.NeedDeletion:
		return run.Step{Name: vocabulary.StepAwaitMachines, Why: d.Pending.WaitText()}
	case d.Scale.Hold != "":
		return run.Step{Why: d.Scale.Hold, BlockedBy: []string{vocabulary.BlockedByStoppedScaleUp}}
	default: // nothing is left to do, or only the status must be written
		return run.Step{Why: d.Pending.WaitText()}
	}
}
