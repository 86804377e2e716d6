package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/rollout"
)

// nodeChanges are what a decision lists for nodes, and how much that is.
func nodeChanges(deployment activities.Ref, d rollout.Decision) (activities.NodeChanges, int) {
	n := len(d.Settle) + len(d.Strip) + len(d.Candidates) + len(d.Select) + len(d.Taint) + len(d.Untaint) + len(d.Guard) + len(d.Unguard)
	return activities.NodeChanges{
		Deployment: deployment, Settle: d.Settle, Strip: d.Strip, Candidates: d.Candidates, Select: d.Select,
		Taint: d.Taint, Untaint: d.Untaint, Guard: d.Guard, Unguard: d.Unguard,
	}, n
}

// onlyMarks reports whether a decision does nothing at nodes but tell others: taints, and what protects them from the autoscaler. Sizes
// do not follow from that.
func onlyMarks(d rollout.Decision) bool {
	return len(d.Settle)+len(d.Strip)+len(d.Candidates)+len(d.Select) == 0
}

// atNodes starts what a decision lists for nodes, and returns what has to be awaited of it. Marks are set beside what is done to sizes; a
// local attempt lets no signal in as long as it lasts. While they are set, or for a while after that failed, nothing else is started there:
// a later decision lists it again.
func (w *setWriter) atNodes(ctx workflow.Context, d rollout.Decision) (awaited []writing) {
	changes, n := nodeChanges(w.ref, d)
	if n == 0 || w.marking != nil || w.marksAgain.After(workflow.Now(ctx)) && onlyMarks(d) {
		return nil
	}
	summary := "nodes: " + d.Why
	local := n <= fewWrites && len(d.Select) == 0 // a second look might select others besides
	write := w.startQuick(ctx, soon(ctx, summary, n), summary, local, core().ChangeNodes, changes)
	if !onlyMarks(d) {
		return []writing{write}
	}
	future, done := workflow.NewFuture(ctx)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var versions activities.Gate
		err := write(ctx, &versions)
		done.Set(versions, err)
	})
	w.marking = future
	return nil
}

// awaitMarks waits until the marks are set that are being set, if any are. Where that failed they are tried again: after a while if the API
// server refused them, or they took too long; else they are looked at as they are now.
func (w *setWriter) awaitMarks(ctx workflow.Context) {
	if w.marking == nil {
		return
	}
	var versions activities.Gate
	err := w.marking.Get(ctx, &versions)
	w.marking = nil
	w.raise(versions)
	switch {
	case timedOut(err), failedWith(err, activities.TypeRefused):
		w.marksAgain = workflow.Now(ctx).Add(refusedAgain)
	case err != nil:
		w.live = true
	}
}

// tooLate is how writes at nodes have failed that are awaited. The sizes stand when it took too long: there is no need to look at once whether
// they do. With its cause it would be a timeout.
func tooLate(err error) error {
	if timedOut(err) {
		return temporal.NewNonRetryableApplicationError("nodes cannot be written now", activities.TypeRefused, nil)
	}
	return err
}
