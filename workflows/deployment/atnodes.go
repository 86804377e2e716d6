package deployment

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/rollout"
	"millwright/workflows/run"
)

// hasOnlyMarks reports whether a decision's node writes are only marks: taints, and annotations that protect nodes from
// the cluster autoscaler. The sizes of sets do not depend on marks.
func hasOnlyMarks(d rollout.Decision) bool {
	return len(d.FinishUpdate)+len(d.ClearUpdateLabels)+len(d.Candidates)+len(d.Select) == 0
}

// startNodeWrites starts the node writes of a decision, and returns the writes that must be awaited. Marks are
// written in the background and resizes run concurrently, because no signal is processed during a local attempt (at
// most 2 s). While marks are being written, and for RefusedAgain after a failure, startNodeWrites starts no further
// marks: a later decision lists the missing marks again.
func (w *setWriter) startNodeWrites(ctx workflow.Context, d rollout.Decision) (awaited []run.PendingWrite) {
	n := d.NodeChanges.Len()
	if n == 0 || w.openMarks != nil || w.marksRetryTime.After(workflow.Now(ctx)) && hasOnlyMarks(d) {
		return nil
	}
	summary := "nodes: " + d.Why
	options := run.QuickBatchOptions(ctx, summary, n)
	if len(d.Select) > 0 {
		n = run.ManyWrites // forces a regular activity: a second local run might select other nodes
	}
	write := w.changeNodes.Start(
		ctx,
		options,
		w.WorkflowState,
		summary,
		n,
		deployment.NodeChanges{Deployment: w.Ref, NodeChanges: d.NodeChanges},
	)
	if !hasOnlyMarks(d) {
		return []run.PendingWrite{write}
	}
	future, done := workflow.NewFuture(ctx)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var versions kube.MinVersions
		err := write(ctx, &versions)
		done.Set(versions, err)
	})
	w.openMarks = future
	return nil
}

// awaitMarks waits until the open marks are written. After a refusal or a timeout, the marks are written again after
// RefusedAgain. After another failure the next decision reads from the API server.
func (w *setWriter) awaitMarks(ctx workflow.Context) {
	if w.openMarks == nil {
		return
	}
	var versions kube.MinVersions
	err := w.openMarks.Get(ctx, &versions)
	w.openMarks = nil
	w.RaiseMinVersions(versions)
	switch {
	case run.IsTimeout(err), run.IsFailureOfType(err, kube.TypeRefused):
		w.marksRetryTime = workflow.Now(ctx).Add(run.RefusedAgain)
	case err != nil:
		w.Live = true
	}
}

// timeoutAsRefusal turns a timeout of awaited node writes into a refusal. A timeout would cause a new decision at
// once, which is unnecessary, because the sizes of the sets are already written. The returned error has no cause:
// with the timeout as its cause, it would still be a timeout.
func timeoutAsRefusal(err error) error {
	if run.IsTimeout(err) {
		return temporal.NewNonRetryableApplicationError("nodes cannot be written now", kube.TypeRefused, nil)
	}
	return err
}
