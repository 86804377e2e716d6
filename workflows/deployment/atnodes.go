package deployment

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/rollout"
	"millwright/workflows/run"
)

// hasOnlyNodeMarks reports whether a decision writes only marks to nodes. Marks are taints, and annotations for the
// cluster autoscaler. The sizes of sets do not depend on marks.
func hasOnlyNodeMarks(d rollout.Decision) bool {
	return len(d.FinishUpdate)+len(d.ClearUpdateLabels)+len(d.Candidates)+len(d.Select) == 0
}

// startNodeWrites starts the node writes of a decision, and returns the writes that must be awaited. startNodeWrites
// writes marks in the background, in parallel with resizes, because the workflow processes no signal while a local
// activity runs (at most 2 s). startNodeWrites starts no write of marks while marks are being written, and for
// RefusedWriteRetryPause after a failed write. A later decision contains the missing marks again.
func (w *setWriter) startNodeWrites(ctx workflow.Context, d rollout.Decision) (awaited []run.PendingWrite) {
	n := d.NodeChanges.Len()
	if n == 0 || w.pendingNodeMarks != nil || w.nodeMarksRetryTime.After(workflow.Now(ctx)) && hasOnlyNodeMarks(d) {
		return nil
	}
	summary := "nodes: " + d.Why
	options := run.QuickBatchOptions(ctx, summary, n)
	if len(d.Select) > 0 {
		// this number forces a regular activity, because a second attempt of a local activity could select different
		// nodes
		n = run.MinWritesOnOtherQueue
	}
	write := w.changeNodes.Start(
		ctx,
		options,
		w.WorkflowState,
		summary,
		n,
		deployment.NodeChanges{Deployment: w.Ref, NodeChanges: d.NodeChanges},
	)
	if !hasOnlyNodeMarks(d) {
		return []run.PendingWrite{write}
	}
	future, done := workflow.NewFuture(ctx)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var versions kube.MinVersions
		err := write(ctx, &versions)
		done.Set(versions, err)
	})
	w.pendingNodeMarks = future
	return nil
}

// awaitNodeMarks waits until the marks in progress are written. After a refusal or a timeout, the workflow writes the
// marks again when RefusedWriteRetryPause has passed. After another failure the next decision reads from the API
// server.
func (w *setWriter) awaitNodeMarks(ctx workflow.Context) {
	if w.pendingNodeMarks == nil {
		return
	}
	var versions kube.MinVersions
	err := w.pendingNodeMarks.Get(ctx, &versions)
	w.pendingNodeMarks = nil
	w.RaiseMinVersions(versions)
	switch {
	case run.IsTimeout(err), run.IsFailureOfType(err, kube.FailureTypeRefused):
		w.nodeMarksRetryTime = workflow.Now(ctx).Add(run.FirstRefusalWait)
	case err != nil:
		w.Live = true
	}
}

// convertTimeoutToRefusal replaces the timeout of a node write by a refusal. After a timeout the workflow would decide
// again at once, which is unnecessary, because the replicas of the sets are already written. The returned error does
// not wrap the timeout, because the workflow would otherwise handle the error as a timeout.
func convertTimeoutToRefusal(err error) error {
	if run.IsTimeout(err) {
		return temporal.NewNonRetryableApplicationError("nodes cannot be written now", kube.FailureTypeRefused, nil)
	}
	return err
}
