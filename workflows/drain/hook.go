package drain

import (
	"go.temporal.io/sdk/workflow"

	"millwright/activities/capi"
	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/workflows/run"
)

// ClusterAPIDrain is Drain for a machine of Cluster API, and replaces Cluster API's own drain. ClusterAPIDrain waits
// until Cluster API has reached the machine's pre-drain hooks. At the end, it removes Millwright's hook. The bridge
// starts ClusterAPIDrain with the input of a run.
func ClusterAPIDrain(ctx workflow.Context, in Input) (Result, error) {
	return runDrain(ctx, clusterAPIActivities(), in)
}

// prepareClusterAPIDrain waits for Cluster API, for the node's cluster and for the machine's turn, and then cordons the
// node. done is false if nothing is missing, so that the drain can remove pods. If the result is not nil, the run ends.
func (d *nodeDrain) prepareClusterAPIDrain(
	ctx workflow.Context,
	next activities.Decision,
) (over *Result, done bool, err error) {
	if d.unansweredDecisionCount++; next.ClusterAPI.Step != drain.HookNodeUnknown {
		d.unansweredDecisionCount = 0
	}
	switch next.ClusterAPI.Step {
	default: // nothing is missing any more
	case drain.HookNotNeeded:
		d.ShowStep(ctx, run.Step{Name: vocabulary.StepAwaitHooks, Why: next.Why, Phase: d.machinePhase(), Node: d.NodeName})
		return &Result{Outcome: activities.ResultCancelled, Why: next.Why}, true, d.releaseHook(ctx, false, next.Why)
	case drain.HookNotReached:
		d.ShowStep(ctx, run.Step{Name: vocabulary.StepAwaitHooks, Why: next.Why, Phase: d.machinePhase(), Node: d.NodeName})
		return nil, true, d.AwaitChange(ctx)
	case drain.HookPaused:
		return nil, true, d.reportBlockerAndWait(ctx, next, vocabulary.BlockedByPause)
	case drain.HookNodeUnknown:
		return nil, true, d.reportBlockerAndWait(
			ctx,
			next,
			vocabulary.BlockedByUnavailableTarget,
			d.EnsureTimer(
				ctx,
				"again",
				run.TargetRetryLabel(),
				workflow.Now(ctx).Add(run.WaitAfterRefusal(d.unansweredDecisionCount)),
			),
		)
	case drain.HookDrain:
		if next.ClusterAPI.Queue != "" && next.Hold == "" {
			return nil, true, d.awaitTurn(ctx, next)
		}
		if next.ClusterAPI.Cordon {
			_, _, err := d.cordonNode.RunUnlessChanged(ctx, d.WorkflowState, "cordons node "+d.NodeName, d.NewReadInput(ctx))
			return nil, true, err
		}
	}
	return nil, false, nil
}

// reportBlockerAndWait reports the reason in the machine's status, and waits for a signal or for a future.
func (d *nodeDrain) reportBlockerAndWait(
	ctx workflow.Context,
	next activities.Decision,
	blocker string,
	futures ...workflow.Future,
) error {
	again := d.Shown.Name == vocabulary.StepDrain && d.Shown.Cause == next.Why
	d.ShowStep(ctx, run.Step{
		Name: vocabulary.StepDrain, Why: next.Why, Cause: next.Why, Phase: d.machinePhase(), Node: d.NodeName,
		BlockedBy: []string{blocker}, Stuck: true,
	})
	if !again {
		if err := d.writeStatus(ctx, next.Why, d.newReport(ctx, vocabulary.ReasonBlocked, next.Why)); err != nil {
			return err
		}
	}
	return d.AwaitChange(ctx, futures...)
}

// awaitTurn waits in the drain queue for the machine's turn. The bridge signals the machines whose turn has come.
func (d *nodeDrain) awaitTurn(ctx workflow.Context, next activities.Decision) error {
	again := d.Shown.Name == vocabulary.StepQueuedForDrain
	d.ShowStep(
		ctx,
		run.Step{Name: vocabulary.StepQueuedForDrain, Why: next.ClusterAPI.Queue, Phase: d.machinePhase(), Node: d.NodeName},
	)
	// decide again after this write, because the bridge sent no signal if a place became free before the write
	if !again {
		return d.writeStatus(ctx, next.ClusterAPI.Queue, d.newReport(ctx, vocabulary.ReasonDraining, next.ClusterAPI.Queue))
	}
	return d.AwaitChange(ctx)
}

// holdCancelledDrain records on a Cluster API machine that a person cancelled the drain in Temporal. For a machine of
// Millwright, the machine's own workflow records the cancellation.
func (d *nodeDrain) holdCancelledDrain(ctx workflow.Context) error {
	if d.kind != run.KindClusterAPIDrain {
		return nil
	}
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	why := "the drain was cancelled in Temporal"
	_, err := d.recordHold.RunLocalFirst(
		ctx,
		d.WorkflowState,
		"holds the drain: "+why,
		activities.HoldInput{Read: d.NewReadInput(ctx), Why: why},
	)
	if run.IsFailureOfType(err, kube.FailureTypeObjectGone) {
		return nil
	}
	return err
}

// releaseHook removes Millwright's hook from a machine of Cluster API. Machines of Millwright have no hook.
func (d *nodeDrain) releaseHook(ctx workflow.Context, drained bool, why string) error {
	if d.kind != run.KindClusterAPIDrain {
		return nil
	}
	return run.WriteObject(
		ctx,
		d.WorkflowState,
		"removes the hook: "+why,
		d.removeHook,
		capi.HookRelease{Read: d.NewReadInput(ctx), Drained: drained},
	)
}
