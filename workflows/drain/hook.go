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

// ClusterAPIDrain is Drain for the node of a machine of Cluster API, in place of Cluster API's own drain. It waits
// until Cluster API has come to the pre-drain hooks of the machine, and at the end removes Millwright's hook. The
// bridge starts it, with the input of a run.
func ClusterAPIDrain(ctx workflow.Context, in Input) (Result, error) {
	return empty(ctx, ofClusterAPI(), in)
}

// await does what comes before the pods of a machine of Cluster API are removed: it waits for Cluster API, for the
// cluster of the node, for the machine's turn, and cordons the node. It reports whether there was anything to do. A
// result ends the run.
func (d *nodeDrain) await(ctx workflow.Context, next activities.Decision) (over *Result, done bool, err error) {
	if d.mute++; next.ClusterAPI.Step != drain.HookUnknown {
		d.mute = 0
	}
	switch next.ClusterAPI.Step {
	default: // nothing comes before
	case drain.HookReturn:
		d.Show(ctx, run.Step{Name: vocabulary.StepAwaitHooks, Why: next.Why, Phase: d.phase(), Node: d.NodeName})
		return &Result{Outcome: activities.Cancelled, Why: next.Why}, true, d.releaseHook(ctx, false, next.Why)
	case drain.HookAwait:
		d.Show(ctx, run.Step{Name: vocabulary.StepAwaitHooks, Why: next.Why, Phase: d.phase(), Node: d.NodeName})
		return nil, true, d.AwaitChange(ctx)
	case drain.HookPaused:
		return nil, true, d.awaitSaid(ctx, next, vocabulary.BlockedPaused)
	case drain.HookUnknown:
		return nil, true, d.awaitSaid(
			ctx,
			next,
			vocabulary.BlockedTargetUnavailable,
			d.Timer(ctx, "again", "asks the cluster again then", workflow.Now(ctx).Add(run.Again(d.mute))),
		)
	case drain.HookDrain:
		if next.ClusterAPI.Queue != "" && next.Hold == "" {
			return nil, true, d.awaitTurn(ctx, next)
		}
		if next.ClusterAPI.Cordon {
			_, _, err := d.cordon.UnlessChanged(ctx, d.Object, "cordons node "+d.NodeName, d.Read(ctx))
			return nil, true, err
		}
	}
	return nil, false, nil
}

// awaitSaid waits for a signal, or until one of the futures is ready, and lets the machine say why.
func (d *nodeDrain) awaitSaid(
	ctx workflow.Context,
	next activities.Decision,
	blocker string,
	futures ...workflow.Future,
) error {
	again := d.Shown.Name == vocabulary.StepDrain && d.Shown.Cause == next.Why
	d.Show(ctx, run.Step{
		Name: vocabulary.StepDrain, Why: next.Why, Cause: next.Why, Phase: d.phase(), Node: d.NodeName,
		BlockedBy: []string{blocker}, Stuck: true,
	})
	if !again {
		if err := d.writeStatus(ctx, next.Why, d.report(ctx, vocabulary.ReasonBlocked, next.Why)); err != nil {
			return err
		}
	}
	return d.AwaitChange(ctx, futures...)
}

// awaitTurn waits for the machine's turn to be drained. The bridge signals the machines that are next.
func (d *nodeDrain) awaitTurn(ctx workflow.Context, next activities.Decision) error {
	again := d.Shown.Name == vocabulary.StepQueued
	d.Show(ctx, run.Step{Name: vocabulary.StepQueued, Why: next.ClusterAPI.Queue, Phase: d.phase(), Node: d.NodeName})
	if !again { // then decide again: a turn that became free before this record woke no run
		return d.writeStatus(ctx, next.ClusterAPI.Queue, d.report(ctx, vocabulary.ReasonDraining, next.ClusterAPI.Queue))
	}
	return d.AwaitChange(ctx)
}

// holdCancelled records on the machine that a person cancelled the drain in Temporal. For the drains of Millwright's
// machines, the workflow of the machine does that.
func (d *nodeDrain) holdCancelled(ctx workflow.Context) error {
	if d.kind != run.KindClusterAPIDrain {
		return nil
	}
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	why := "the drain was cancelled in Temporal"
	_, err := d.halt.RunLocalFirst(ctx, d.Object, "holds the drain: "+why, activities.Holding{Read: d.Read(ctx), Why: why})
	if run.FailedWith(err, kube.TypeObjectGone) {
		return nil
	}
	return err
}

// releaseHook removes the hook from a machine of Cluster API; nothing from others.
func (d *nodeDrain) releaseHook(ctx workflow.Context, drained bool, why string) error {
	if d.kind != run.KindClusterAPIDrain {
		return nil
	}
	return run.Write(
		ctx,
		d.Object,
		"removes the hook: "+why,
		d.release,
		capi.HookRelease{Read: d.Read(ctx), Drained: drained},
	)
}
