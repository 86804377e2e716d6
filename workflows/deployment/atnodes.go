package deployment

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/rollout"
	"millwright/workflows/run"
)

// onlyMarks reports whether a decision writes only marks on nodes: taints, and the annotations that protect nodes from
// the autoscaler. Sizes of sets do not depend on marks.
func onlyMarks(d rollout.Decision) bool {
	return len(d.FinishUpdate)+len(d.ClearUpdateLabels)+len(d.Candidates)+len(d.Select) == 0
}

// atNodes starts the node writes of a decision, and returns those that must be awaited. Marks are written concurrently
// with resizes, because no signal is processed while a local attempt runs (at most 2 s). While marks are being written,
// and for RefusedAgain after a failure, no others are started: a later decision lists them again.
func (w *setWriter) atNodes(ctx workflow.Context, d rollout.Decision) (awaited []run.Writing) {
	n := d.NodeChanges.Len()
	if n == 0 || w.marking != nil || w.marksAgain.After(workflow.Now(ctx)) && onlyMarks(d) {
		return nil
	}
	summary := "nodes: " + d.Why
	options := run.Soon(ctx, summary, n)
	if len(d.Select) > 0 {
		n = run.ManyWrites // not as a local activity: a second run might select other nodes
	}
	write := w.changeNodes.Start(
		ctx,
		options,
		w.Object,
		summary,
		n,
		deployment.NodeChanges{Deployment: w.Ref, NodeChanges: d.NodeChanges},
	)
	if !onlyMarks(d) {
		return []run.Writing{write}
	}
	future, done := workflow.NewFuture(ctx)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var versions kube.MinVersions
		err := write(ctx, &versions)
		done.Set(versions, err)
	})
	w.marking = future
	return nil
}

// awaitMarks waits for marks that are being written, if any. After a refusal or a timeout they are written again after
// RefusedAgain; after another failure the next decision reads from the API server.
func (w *setWriter) awaitMarks(ctx workflow.Context) {
	if w.marking == nil {
		return
	}
	var versions kube.MinVersions
	err := w.marking.Get(ctx, &versions)
	w.marking = nil
	w.RaiseMinVersions(versions)
	switch {
	case run.TimedOut(err), run.FailedWith(err, kube.TypeRefused):
		w.marksAgain = workflow.Now(ctx).Add(run.RefusedAgain)
	case err != nil:
		w.Live = true
	}
}

// timeoutAsRefused turns a timeout of awaited node writes into a refusal. The sizes of the sets are written by then, so
// there is no need to decide again at once, which a timeout would cause. The cause is omitted: with it, the error would
// still be a timeout.
func timeoutAsRefused(err error) error {
	if run.TimedOut(err) {
		return temporal.NewNonRetryableApplicationError("nodes cannot be written now", kube.TypeRefused, nil)
	}
	return err
}
