package request_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/request"
)

// stamp begins the record of each order.
const stamp = "2026-11-21T14:06:07.5Z "

func TestRequestsWriteTheDeployment(t *testing.T) {
	second := "2026-11-21T14:06:07Z"
	for name, c := range map[string]struct {
		order request.Order
		facts request.DeploymentFacts
		want  request.Decision
	}{
		"start": {order(request.Start), calm(), request.Decision{
			RestartedAt: &second, Annotation: new("started by ann: why"), Record: stamp + "ann requested start: why",
			Says: "wrote 2026-11-21T14:06:07Z into the template of deployment shop/d: all its machines are replaced",
		}},
		"start by nobody, where people delete": {order(request.Start, nameless), rolling(onDelete), request.Decision{
			RestartedAt: &second, Annotation: new("started by somebody"), Record: stamp + "somebody requested start",
			Says: "wrote 2026-11-21T14:06:07Z into the template of deployment shop/d: all its machines are replaced, each when somebody deletes the old one",
		}},
		"start, a second time in one second": {order(request.Start), calm(func(f *request.DeploymentFacts) { f.RestartedAt = second }), request.Decision{
			Same: true, Says: "the template of deployment shop/d says 2026-11-21T14:06:07Z already",
		}},
		"pause": {order(request.Pause), calm(), request.Decision{
			Paused: new(true), Annotation: new("ann: why"), Record: stamp + "ann requested pause: why", Says: "deployment shop/d is paused",
		}},
		"pause of an invalid one": {order(request.Pause), rolling(invalid), request.Decision{
			Paused: new(true), Annotation: new("ann: why"), Record: stamp + "ann requested pause: why", Says: "deployment shop/d is paused",
		}},
		"pause of a paused one": {order(request.Pause), calm(paused), request.Decision{Same: true, Says: "deployment shop/d is paused already"}},
		"resume what is paused": {order(request.Resume), calm(paused), request.Decision{
			Paused: new(false), Record: stamp + "ann requested resume: why", Says: "deployment shop/d is no longer paused",
		}},
		"resume what is held": {order(request.Resume, nameless), rolling(held("bob: wait")), request.Decision{
			Annotation: new(""), Record: stamp + "somebody requested resume",
			Says: "the rollout of revision 7 of deployment shop/d is no longer held (former hold: bob: wait)",
		}},
		"resume what is both": {order(request.Resume), rolling(held("bob: wait"), paused), request.Decision{
			Paused: new(false), Annotation: new(""), Record: stamp + "ann requested resume: why",
			Says: "deployment shop/d is no longer paused, and the rollout of revision 7 of deployment shop/d is no longer held (former hold: bob: wait)",
		}},
		"resume what was resumed by this": {order(request.Resume, asked), calm(func(f *request.DeploymentFacts) {
			f.Last = stamp +
				"ann requested resume: why"
		}), request.Decision{
			Same: true, Says: "deployment shop/d got this request before: nothing was written",
		}},
		"cancel": {order(request.Cancel), rolling(), request.Decision{
			Annotation: new("7 ann: why"), Record: stamp + "ann requested cancel: why",
			Says: "the rollout of revision 7 of deployment shop/d is held where it is",
		}},
		"cancel this revision, though paused, and asked to return later": {order(request.Cancel, revision(7)), rolling(paused, returning(6)), request.Decision{
			Annotation: new("7 ann: why"), Record: stamp + "ann requested cancel (revision 7): why",
			Says: "the rollout of revision 7 of deployment shop/d is held where it is",
		}},
		"cancel, once more": {order(request.Cancel), rolling(held("ann: why")), request.Decision{
			Same: true, Says: "the rollout of revision 7 of deployment shop/d is held already: ann: why",
		}},
		"cancel and return": {order(request.Cancel, back), rolling(), request.Decision{
			RollbackTo: new(int64(6)), Record: stamp + "ann requested cancel and return: why",
			Says: "deployment shop/d returns from revision 7 to revision 6",
		}},
		"cancel what is held, and return further": {order(request.Cancel, back, revision(3)), rolling(held("bob: wait")), request.Decision{
			RollbackTo: new(int64(3)), Record: stamp + "ann requested cancel and return (revision 3): why",
			Says: "deployment shop/d returns from revision 7 to revision 3",
		}},
		"undo": {order(request.Undo), calm(), request.Decision{
			RollbackTo: new(int64(6)), Record: stamp + "ann requested undo: why",
			Says: "deployment shop/d returns from revision 7 to revision 6",
		}},
		"undo, as kubectl says it": {order(request.Undo, revision(0), nameless), rolling(), request.Decision{
			RollbackTo: new(int64(6)), Record: stamp + "somebody requested undo (revision 0)",
			Says: "deployment shop/d returns from revision 7 to revision 6",
		}},
		"undo to a revision": {order(request.Undo, revision(5)), calm(), request.Decision{
			RollbackTo: new(int64(5)), Record: stamp + "ann requested undo (revision 5): why",
			Says: "deployment shop/d returns from revision 7 to revision 5",
		}},
		"undo before the new set is made": {order(request.Undo), rolling(unmade), request.Decision{
			RollbackTo: new(int64(7)), Record: stamp + "ann requested undo: why",
			Says: "deployment shop/d returns to revision 7",
		}},
		"undo what is being undone": {order(request.Undo), rolling(returning(6)), request.Decision{
			Same: true, Says: "deployment shop/d was asked to return to revision 6 already",
		}},
		"approve": {order(request.Approve), rolling(), request.Decision{
			Annotation: new("7/2 ann: why"), Record: stamp + "ann requested approve: why",
			Says: "the rollout of revision 7 of deployment shop/d passes step 2 of 3",
		}},
		"approve the first of them, by nobody, though held": {
			order(request.Approve, nameless, revision(7)),
			rolling(held("bob"), func(f *request.DeploymentFacts) { f.WaitsAt = 1 }),
			request.Decision{
				Annotation: new("7/1 somebody"), Record: stamp + "somebody requested approve (revision 7)",
				Says: "the rollout of revision 7 of deployment shop/d passes step 1 of 3, once it is resumed",
			},
		},
		"approve in advance, though paused": {order(request.Approve, stepsOf(3)), rolling(waitless, approved(2), paused), request.Decision{
			Annotation: new("7/3 ann: why"), Record: stamp + "ann requested approve (steps: 3): why",
			Says: "the rollout of revision 7 of deployment shop/d passes step 3 of 3, once it is resumed",
		}},
		"for the deployment that is meant": {order(request.Pause, func(o *request.Order) { o.UID = "u-1" }), calm(), request.Decision{
			Paused: new(true), Annotation: new("ann: why"), Record: stamp + "ann requested pause: why", Says: "deployment shop/d is paused",
		}},
		"given before": {order(request.Undo, asked), calm(func(f *request.DeploymentFacts) {
			f.Last = stamp +
				"ann requested undo: why"
		}), request.Decision{
			Same: true, Says: "deployment shop/d got this request before: nothing was written",
		}},
	} {
		assert.Equal(t, c.want, request.Decide(c.order, c.facts), name)
	}
}

func TestRequestsForADeploymentAreRefused(t *testing.T) {
	const resumeFirst = "deployment shop/d is paused, and neither a new template nor a former one is rolled out: resume it first"
	for _, c := range []struct {
		order request.Order
		facts request.DeploymentFacts
		want  string
	}{
		{order(request.Pause), calm(deleting), "deployment shop/d is being deleted: pause would change nothing"},
		{order(request.Undo), calm(deleting), "deployment shop/d is being deleted: undo would change nothing"},
		{order(request.Start), calm(invalid), "deployment shop/d cannot be rolled out: the selector is empty; correct that first"},
		{order(request.Undo), calm(invalid), "deployment shop/d cannot be rolled out: the selector is empty; correct that first"},
		{order(request.Cancel), rolling(invalid), "deployment shop/d cannot be rolled out: the selector is empty; correct that first"},
		{order(request.Approve), rolling(invalid), "deployment shop/d cannot be rolled out: the selector is empty; correct that first"},

		{order(request.Start), calm(paused), resumeFirst},
		{order(request.Start), rolling(paused, held("bob: wait")), resumeFirst},
		{order(request.Start), rolling(held("bob: wait")), "the rollout of revision 7 of deployment shop/d is held (bob: wait), and nothing is rolled out: resume or undo it first"},
		{order(request.Start), calm(returning(5)), "deployment shop/d was asked to return to revision 5, and does so first: try again afterwards"},
		{order(request.Resume), rolling(), "deployment shop/d is neither paused nor held: there is nothing to resume"},

		{order(request.Cancel), calm(), "no rollout of deployment shop/d is under way: there is nothing to cancel; to go back to a former revision, undo"},
		{order(request.Cancel, back), calm(), "no rollout of deployment shop/d is under way: there is nothing to cancel; to go back to a former revision, undo"},
		{order(request.Cancel), rolling(held("bob: wait")), "the rollout of revision 7 of deployment shop/d is held already: bob: wait; resume it, or undo it"},
		{order(request.Cancel), rolling(unmade), "the template of deployment shop/d has no set yet, and so no revision to cancel: try again when it has"},
		{order(request.Cancel, revision(6)), rolling(), "the request is for revision 6, and deployment shop/d has revision 7: look at the rollout, then try again"},
		{order(request.Cancel), rolling(returning(0)), "deployment shop/d was asked to return to the revision before, and does so first: try again afterwards"},
		{order(request.Cancel, back), rolling(paused), resumeFirst},

		{order(request.Undo), calm(paused), resumeFirst},
		{order(request.Undo), rolling(paused, returning(6)), resumeFirst},
		{order(request.Undo), calm(alone), "deployment shop/d has no set of a former template: there is nothing to go back to"},
		{order(request.Undo, revision(7)), calm(), "revision 7 is the one that deployment shop/d has: it can go back to 6, 5, 3"},
		{order(request.Undo, revision(4)), calm(), "deployment shop/d has no set of revision 4: it can go back to 6, 5, 3"},
		{order(request.Undo, revision(5)), rolling(returning(6)), "deployment shop/d was asked to return to revision 6, and does so first: try again afterwards"},
		{
			order(request.Undo, revision(40)), calm(func(f *request.DeploymentFacts) { f.Revisions = []int64{1, 2, 3, 4, 5, 6, 12, 11, 10, 9, 8, 13} }),
			"deployment shop/d has no set of revision 40: it can go back to 13, 12, 11, 10, 9, 8, 6, 5, 4, 3 and 2 more",
		},

		{order(request.Approve), calm(), "a rollout of deployment shop/d has no steps: there is nothing to approve"},
		{order(request.Approve), calm(func(f *request.DeploymentFacts) { f.Steps = 3 }), "no rollout of deployment shop/d is under way: there is no step to approve"},
		{order(request.Approve), rolling(unmade), "the template of deployment shop/d has no set yet, and so no revision to approve: try again when it has"},
		{order(request.Approve, revision(8)), rolling(), "the request is for revision 8, and deployment shop/d has revision 7: look at the rollout, then try again"},
		{order(request.Approve, flags), rolling(waitless), "the rollout of revision 7 of deployment shop/d waits at no step now: wait until it does, or pass steps in advance with --steps"},
		{order(request.Approve, stepsOf(4)), rolling(), "there is no step 4: the rollout of revision 7 of deployment shop/d has 3 in all"},
		{order(request.Approve, stepsOf(1)), rolling(), "the rollout of revision 7 of deployment shop/d has passed step 1 of 3 already"},
		{order(request.Approve, stepsOf(2)), rolling(waitless, approved(2)), "the rollout of revision 7 of deployment shop/d has passed step 2 of 3 already"},
	} {
		assert.Equal(t, request.Decision{Refused: c.want}, request.Decide(c.order, c.facts), "what is refused writes nothing")
	}
}
