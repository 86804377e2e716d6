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

// atNodes starts what a decision lists for nodes, and returns what has to be awaited of it. Marks are set beside whatever follows. While
// they are, nothing else is started there: the decision after that lists it again.
func (w *setWriter) atNodes(ctx workflow.Context, d rollout.Decision) (awaited []writing) {
	changes, n := nodeChanges(w.ref, d)
	if n == 0 || w.marking != nil {
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

// marked waits until the marks are set that are being set, and tells how that ended.
func (w *setWriter) marked(ctx workflow.Context) error {
	if w.marking == nil {
		return nil
	}
	var versions activities.Gate
	err := w.marking.Get(ctx, &versions)
	w.marking = nil
	w.raise(versions)
	return later(err)
}

// later is how writes at nodes have failed. The sizes stand when it took too long: there is no need to look at once whether they do. With
// its cause it would be a timeout.
func later(err error) error {
	if timedOut(err) {
		return temporal.NewNonRetryableApplicationError("nodes cannot be written now", activities.TypeRefused, nil)
	}
	return err
}
