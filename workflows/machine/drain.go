package machine

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/drain"
	activities "millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/phrase"
	workflowsdrain "millwright/workflows/drain"
	"millwright/workflows/run"
)

// drainNode drains the node of a machine that is being deleted, in a child workflow. If the node has no pods and no
// attached volumes, the stage Drain is skipped.
func (m *machine) drainNode(ctx workflow.Context, d activities.Decision) error {
	load, went, err := runOnTarget(
		ctx,
		m,
		d,
		"cordons "+phrase.NodeText(d.NodeName)+", and counts its pods",
		cordonAndCountPodsActivity,
		m.NewReadInput(ctx),
	)
	if err != nil || went == targetCallUnanswered {
		return err
	}
	m.RaiseMinVersions(load.Versions)
	if load.Pods == 0 && load.Attached == 0 {
		m.finishedStage, m.isDrainSkipped = deletion.StageDetachVolumes, went == targetCallSkipped
		return nil
	}
	if d.Deletion.Record { // only a recorded drain can wait in the queue, so record the drain and decide again
		return m.enterStage(ctx, d, *d.Deletion)
	}
	if err := m.enterStage(ctx, d, *d.Deletion); err != nil {
		return err
	}
	if load.Queue != "" {
		return m.awaitTurn(ctx, d, load.Queue)
	}
	shown := stepOfStage(*d.Deletion, d)
	shown.Why = fmt.Sprintf(
		"the workflow %s drains node %s: its page says what it waits for",
		run.InstallationOfWorkflow(ctx).ID(run.KindDrain, m.Ref),
		d.NodeName,
	)
	m.ShowStep(ctx, shown)
	_, err = m.runDrain(ctx, d, "")
	return err
}

// awaitTurn waits in the drain queue for the machine's turn. The bridge signals the machines whose turn has come.
func (m *machine) awaitTurn(ctx workflow.Context, d activities.Decision, why string) error {
	// Here, Stuck means that the node's cluster did not answer for some time, and that the status still reports this.
	again := m.Shown.Name == vocabulary.StepQueuedForDrain && !m.Shown.Stuck
	m.ShowStep(
		ctx,
		run.Step{Name: vocabulary.StepQueuedForDrain, Why: why, Phase: vocabulary.PhaseTerminating, Node: d.NodeName},
	)
	// decide again after this write, because the bridge sent no signal if a place became free before the write
	if !again {
		return m.writeStatus(
			ctx,
			why,
			m.progressReport(
				ctx,
				vocabulary.PhaseTerminating,
				newLastOperation(vocabulary.OperationDelete, vocabulary.StateProcessing, why),
			),
		)
	}
	return m.AwaitChange(ctx)
}

// drainPreservedNode drains the node of a machine that is Failed and preserved.
func (m *machine) drainPreservedNode(ctx workflow.Context, d activities.Decision) error {
	if err := m.showPreservationStep(ctx, d, vocabulary.StepDrain); err != nil {
		return err
	}
	_, err := m.runDrain(ctx, d, vocabulary.DrainForPreservation)
	return err
}

// drainNodeForUpdate cordons and drains a node that is updated in place. drainNodeForUpdate returns false if the
// machine needs something else first.
func (m *machine) drainNodeForUpdate(ctx workflow.Context, d activities.Decision) (bool, error) {
	made, done, err := cordonNodeActivity.RunUnlessChanged(
		ctx,
		m.WorkflowState,
		"cordons node "+d.NodeName,
		m.NewReadInput(ctx),
	)
	if err != nil || !done {
		return false, err
	}
	m.RaiseMinVersions(made)
	return m.runDrain(ctx, d, vocabulary.DrainForInPlaceUpdate)
}

// runDrain runs a drain, and reports whether the drain has finished. If it has not finished, runDrain handles the
// outcome, and the caller must decide again.
func (m *machine) runDrain(ctx workflow.Context, d activities.Decision, purpose string) (over bool, err error) {
	stopped, result, err := m.awaitDrain(ctx, d, purpose)
	m.RaiseMinVersions(result.Versions)
	// without versions, the next decision must read from the API server, because the writes of the drain are unknown
	m.Live = len(result.Versions) == 0
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case stopped:
		return false, nil
	case err == nil:
		return result.Outcome != drain.ResultCancelled, nil
	case temporal.IsWorkflowExecutionAlreadyStartedError(err):
		// the drain of a terminated run is about to end, and no signal reports its end
		return false, m.awaitEndOfEarlierDrain(ctx, "the drain of an earlier run is ending")
	case temporal.IsCanceledError(err): // a person cancelled the drain in Temporal
		return false, m.recordDrainHold(ctx, d, purpose)
	default: // the drain was terminated or has failed, and the next drain will continue its work
		return false, m.awaitEndOfEarlierDrain(ctx, "the drain has failed")
	}
}

func (m *machine) awaitEndOfEarlierDrain(ctx workflow.Context, why string) error {
	return m.AwaitChange(
		ctx,
		m.EnsureTimer(ctx, "handover", run.DrainRestartLabel(why), workflow.Now(ctx).Add(run.DrainRestartDelay)),
	)
}

// recordDrainHold records on the object that a person stopped the drain. If the machine is being deleted, its node
// stays cordoned until another request. If the node waits for an update, Millwright uncordons the node, and the node
// may get new pods.
func (m *machine) recordDrainHold(ctx workflow.Context, d activities.Decision, purpose string) error {
	hold := drain.HoldInput{Read: m.NewReadInput(ctx), Why: "the drain was cancelled in Temporal"}
	if err := run.WriteObject(ctx, m.WorkflowState, "holds the drain: "+hold.Why, holdDrainActivity, hold); err != nil ||
		purpose != vocabulary.DrainForInPlaceUpdate {
		return err
	}
	made, _, err := uncordonNodeActivity.RunUnlessChanged(
		ctx,
		m.WorkflowState,
		"uncordons node "+d.NodeName,
		m.NewReadInput(ctx),
	)
	m.RaiseMinVersions(made)
	return err
}

// awaitDrain starts a drain, forwards signals to it and waits for its end. awaitDrain cancels the drain when this run
// must end. If the machine is not being deleted and needs something else first, awaitDrain also cancels the drain.
func (m *machine) awaitDrain(
	ctx workflow.Context,
	d activities.Decision,
	purpose string,
) (stopped bool, result workflowsdrain.Result, err error) {
	child, cancel := workflow.WithCancel(run.DrainOptions(ctx, m.Ref, d.NodeName, purpose))
	defer cancel()
	future := workflow.ExecuteChildWorkflow(
		child,
		workflowsdrain.Drain,
		workflowsdrain.Input{Ref: m.Ref, Versions: m.Versions, NodeName: d.NodeName, Purpose: purpose},
	)
	if err := future.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
		return false, result, err
	}
	for wanted := true; !future.IsReady(); {
		if err := m.awaitChangeOrMachineDeadline(ctx, d, future); err != nil {
			return false, result, err
		}
		if m.ReceiveSignals() && !future.IsReady() {
			// the drain must also wait for these versions; if the drain has already ended, the error does no harm
			_ = future.SignalChildWorkflow(ctx, run.SignalChanged, m.NewChangeSignal()).
				Get(ctx, nil)
		}
		if purpose != "" && !future.IsReady() {
			if d, wanted, err = m.isDrainStillNeeded(ctx); err != nil {
				return false, result, err
			}
		}
		if !future.IsReady() && (!wanted || workflow.GetInfo(ctx).GetContinueAsNewSuggested()) {
			cancel()
			_ = future.Get(ctx, nil) // ignore the outcome of the cancelled drain
			return true, result, nil
		}
	}
	return false, result, future.Get(ctx, &result)
}

// isDrainStillNeeded decides again during the drain of a machine that is not being deleted. isDrainStillNeeded reports
// whether the machine still needs the drain first.
func (m *machine) isDrainStillNeeded(ctx workflow.Context) (d activities.Decision, wanted bool, err error) {
	d, err = m.Decide(ctx)
	isStatusWriteDue := d.Health != nil && (d.Health.Change != nil || d.Health.Due != nil)
	return d, !isStatusWriteDue && !d.Gone && d.Need == attention.NeedDrain, err
}
