package request_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/request"
)

// recordPrefix is the prefix of the record of each order.
const recordPrefix = "2026-11-21T14:06:07.5Z "

func TestWritesOfDeploymentRequests(t *testing.T) {
	second := "2026-11-21T14:06:07Z"
	for name, c := range map[string]struct {
		order request.CommandOrder
		facts request.DeploymentFacts
		want  request.Decision
	}{
		"start": {newOrder(request.Start), idleDeployment(), request.Decision{
			RestartedAt: &second, AnnotationValue: new("started by ann: why"), Record: recordPrefix + "ann requested start: why",
			Message: "wrote 2026-11-21T14:06:07Z into the template of deployment shop/d: all its machines are replaced",
		}},
		"start by nobody, where people delete": {newOrder(request.Start, withoutActorAndReason), rollingDeployment(withOnDeleteStrategy), request.Decision{
			RestartedAt: &second, AnnotationValue: new("started by somebody"), Record: recordPrefix + "somebody requested start",
			Message: "wrote 2026-11-21T14:06:07Z into the template of deployment shop/d: all its machines are replaced, each when somebody deletes the old one",
		}},
		"start, a second time in one second": {newOrder(request.Start), idleDeployment(func(f *request.DeploymentFacts) { f.RestartedAt = second }), request.Decision{
			Repeated: true, Message: "the template of deployment shop/d says 2026-11-21T14:06:07Z already",
		}},
		"pause": {newOrder(request.Pause), idleDeployment(), request.Decision{
			Paused: new(true), AnnotationValue: new("ann: why"), Record: recordPrefix + "ann requested pause: why", Message: "deployment shop/d is paused",
		}},
		"pause of an invalid one": {newOrder(request.Pause), rollingDeployment(withInvalidSpec), request.Decision{
			Paused: new(true), AnnotationValue: new("ann: why"), Record: recordPrefix + "ann requested pause: why", Message: "deployment shop/d is paused",
		}},
		"pause of a paused one": {newOrder(request.Pause), idleDeployment(asPausedDeployment), request.Decision{Repeated: true, Message: "deployment shop/d is paused already"}},
		"resume what is paused": {newOrder(request.Resume), idleDeployment(asPausedDeployment), request.Decision{
			Paused: new(false), Record: recordPrefix + "ann requested resume: why", Message: "deployment shop/d is no longer paused",
		}},
		"resume what is held": {newOrder(request.Resume, withoutActorAndReason), rollingDeployment(withHoldReason("bob: wait")), request.Decision{
			AnnotationValue: new(""), Record: recordPrefix + "somebody requested resume",
			Message: "the rollout of revision 7 of deployment shop/d is no longer held (former hold: bob: wait)",
		}},
		"resume what is both": {newOrder(request.Resume), rollingDeployment(withHoldReason("bob: wait"), asPausedDeployment), request.Decision{
			Paused: new(false), AnnotationValue: new(""), Record: recordPrefix + "ann requested resume: why",
			Message: "deployment shop/d is no longer paused, and the rollout of revision 7 of deployment shop/d is no longer held (former hold: bob: wait)",
		}},
		"resume what was resumed by this": {newOrder(request.Resume, withRequestTime), idleDeployment(func(f *request.DeploymentFacts) {
			f.LastRecord = recordPrefix +
				"ann requested resume: why"
		}), request.Decision{
			Repeated: true, Message: "deployment shop/d got this request before: nothing was written",
		}},
		"cancel": {newOrder(request.Cancel), rollingDeployment(), request.Decision{
			AnnotationValue: new("7 ann: why"), Record: recordPrefix + "ann requested cancel: why",
			Message: "the rollout of revision 7 of deployment shop/d is held where it is",
		}},
		"cancel this revision, though paused, and asked to return later": {newOrder(request.Cancel, withRevision(7)), rollingDeployment(asPausedDeployment, withRollback(6)), request.Decision{
			AnnotationValue: new("7 ann: why"), Record: recordPrefix + "ann requested cancel (revision 7): why",
			Message: "the rollout of revision 7 of deployment shop/d is held where it is",
		}},
		"cancel, once more": {newOrder(request.Cancel), rollingDeployment(withHoldReason("ann: why")), request.Decision{
			Repeated: true, Message: "the rollout of revision 7 of deployment shop/d is held already: ann: why",
		}},
		"cancel and return": {newOrder(request.Cancel, asRollbackOrder), rollingDeployment(), request.Decision{
			AnnotationValue: new("6 ann: why"), RollbackTo: new(int64(6)), Record: recordPrefix + "ann requested cancel and return: why",
			Message: "deployment shop/d returns from revision 7 to revision 6",
		}},
		"cancel what is held, and return further": {newOrder(request.Cancel, asRollbackOrder, withRevision(3)), rollingDeployment(withHoldReason("bob: wait")), request.Decision{
			AnnotationValue: new("3 ann: why"), RollbackTo: new(int64(3)), Record: recordPrefix + "ann requested cancel and return (revision 3): why",
			Message: "deployment shop/d returns from revision 7 to revision 3",
		}},
		"undo": {newOrder(request.Undo), idleDeployment(), request.Decision{
			AnnotationValue: new("6 ann: why"), RollbackTo: new(int64(6)), Record: recordPrefix + "ann requested undo: why",
			Message: "deployment shop/d returns from revision 7 to revision 6",
		}},
		"undo, as kubectl says it": {newOrder(request.Undo, withRevision(0), withoutActorAndReason), rollingDeployment(), request.Decision{
			AnnotationValue: new("6 somebody"), RollbackTo: new(int64(6)), Record: recordPrefix + "somebody requested undo (revision 0)",
			Message: "deployment shop/d returns from revision 7 to revision 6",
		}},
		"undo, after a revision that failed": {newOrder(request.Undo), idleDeployment(withLastGoodRevision(5)), request.Decision{
			AnnotationValue: new("5 ann: why"), RollbackTo: new(int64(5)), Record: recordPrefix + "ann requested undo: why",
			Message: "deployment shop/d returns from revision 7 to revision 5",
		}},
		"undo, the last good set is gone": {newOrder(request.Undo), idleDeployment(withLastGoodRevision(4)), request.Decision{
			AnnotationValue: new("6 ann: why"), RollbackTo: new(int64(6)), Record: recordPrefix + "ann requested undo: why",
			Message: "deployment shop/d returns from revision 7 to revision 6",
		}},
		"undo to a revision": {newOrder(request.Undo, withRevision(5)), idleDeployment(), request.Decision{
			AnnotationValue: new("5 ann: why"), RollbackTo: new(int64(5)), Record: recordPrefix + "ann requested undo (revision 5): why",
			Message: "deployment shop/d returns from revision 7 to revision 5",
		}},
		"undo before the new set is made": {newOrder(request.Undo), rollingDeployment(withoutCurrentSet), request.Decision{
			AnnotationValue: new("7 ann: why"), RollbackTo: new(int64(7)), Record: recordPrefix + "ann requested undo: why",
			Message: "deployment shop/d returns to revision 7",
		}},
		"undo by a pin": {newOrder(request.Undo, asPinOrder), rollingDeployment(), request.Decision{
			PinRevision: new(int64(6)), AnnotationValue: new("7/6 ann: why"), Record: recordPrefix + "ann requested undo by a pin: why",
			Message: "deployment shop/d is pinned to revision 6 as long as its template is that of revision 7",
		}},
		"undo by a pin, to the set before a restart": {newOrder(request.Undo, asPinOrder), rollingDeployment(withDuplicateRevision), request.Decision{
			PinRevision: new(int64(8)), AnnotationValue: new("7/8 ann: why"), Record: recordPrefix + "ann requested undo by a pin: why",
			Message: "deployment shop/d is pinned to revision 8 as long as its template is that of revision 7",
		}},
		"undo by a pin, of a template that a topology writes": {newOrder(request.Undo, asPinOrder), rollingDeployment(withTemplateOwner), request.Decision{
			PinRevision: new(int64(6)), AnnotationValue: new("7/6 ann: why"), Record: recordPrefix + "ann requested undo by a pin: why",
			Message: "deployment shop/d is pinned to revision 6 as long as its template is that of revision 7",
		}},
		"undo by a pin, once more": {newOrder(request.Undo, asPinOrder), rollingDeployment(withPinnedRevision), request.Decision{
			Repeated: true, Message: "deployment shop/d is pinned to revision 6 already",
		}},
		"undo by a pin, though held": {newOrder(request.Undo, asPinOrder), rollingDeployment(withHoldReason("bob: wait")), request.Decision{
			PinRevision: new(int64(6)), RemovesHold: true, AnnotationValue: new("7/6 ann: why"), Record: recordPrefix + "ann requested undo by a pin: why",
			Message: "deployment shop/d is pinned to revision 6 as long as its template is that of revision 7, " +
				"and is no longer held (former hold: bob: wait)",
		}},
		"retry, though held": {newOrder(request.Retry), idleDeployment(withPinnedRevision, withHoldReason("bob: wait")), request.Decision{
			AnnotationValue: new("7/1 ann: why"), RemovesPin: true, RemovesHold: true, Record: recordPrefix + "ann requested retry: why",
			Message: "revision 7 of deployment shop/d is rolled out again, and is no longer held (former hold: bob: wait)",
		}},
		"retry": {newOrder(request.Retry), idleDeployment(withPinnedRevision, func(f *request.DeploymentFacts) { f.RetryCount = 1 }), request.Decision{
			AnnotationValue: new("7/2 ann: why"), RemovesPin: true, Record: recordPrefix + "ann requested retry: why",
			Message: "revision 7 of deployment shop/d is rolled out again",
		}},
		"undo what is being undone": {newOrder(request.Undo), rollingDeployment(withRollback(6)), request.Decision{
			Repeated: true, Message: "deployment shop/d was asked to return to revision 6 already",
		}},
		"approve": {newOrder(request.Approve), rollingDeployment(), request.Decision{
			AnnotationValue: new("7/2 ann: why"), Record: recordPrefix + "ann requested approve: why",
			Message: "the rollout of revision 7 of deployment shop/d passes step 2 of 3",
		}},
		"approve the first of them, by nobody, though held": {
			newOrder(request.Approve, withoutActorAndReason, withRevision(7)),
			rollingDeployment(withHoldReason("bob"), func(f *request.DeploymentFacts) { f.WaitingStep = 1 }),
			request.Decision{
				AnnotationValue: new("7/1 somebody"), Record: recordPrefix + "somebody requested approve (revision 7)",
				Message: "the rollout of revision 7 of deployment shop/d passes step 1 of 3, once it is resumed",
			},
		},
		"approve in advance, though paused": {newOrder(request.Approve, withApprovedSteps(3)), rollingDeployment(withoutPausePoint, withApproval(2), asPausedDeployment), request.Decision{
			AnnotationValue: new("7/3 ann: why"), Record: recordPrefix + "ann requested approve (steps: 3): why",
			Message: "the rollout of revision 7 of deployment shop/d passes step 3 of 3, once it is resumed",
		}},
		"for the deployment that is meant": {newOrder(request.Pause, func(o *request.CommandOrder) { o.UID = "u-1" }), idleDeployment(), request.Decision{
			Paused: new(true), AnnotationValue: new("ann: why"), Record: recordPrefix + "ann requested pause: why", Message: "deployment shop/d is paused",
		}},
		"given before": {newOrder(request.Undo, withRequestTime), idleDeployment(func(f *request.DeploymentFacts) {
			f.LastRecord = recordPrefix +
				"ann requested undo: why"
		}), request.Decision{
			Repeated: true, Message: "deployment shop/d got this request before: nothing was written",
		}},
	} {
		assert.Equal(t, c.want, request.Decide(c.order, c.facts), name)
	}
}

func TestRefusalsOfDeploymentRequests(t *testing.T) {
	const resumeFirst = "deployment shop/d is paused, and neither a new template nor a former one is rolled out: resume it first"
	const ownedTemplate = "the topology of Cluster shop/c writes the template of deployment shop/d, and would write it again: undo with --pin, or change the owner of the template"
	for _, c := range []struct {
		order request.CommandOrder
		facts request.DeploymentFacts
		want  string
	}{
		{newOrder(request.Pause), idleDeployment(withDeletion), "deployment shop/d is being deleted: pause would change nothing"},
		{newOrder(request.Undo), idleDeployment(withDeletion), "deployment shop/d is being deleted: undo would change nothing"},
		{newOrder(request.Start), idleDeployment(withInvalidSpec), "deployment shop/d cannot be rolled out: the selector is empty; correct that first"},
		{newOrder(request.Undo), idleDeployment(withInvalidSpec), "deployment shop/d cannot be rolled out: the selector is empty; correct that first"},
		{newOrder(request.Cancel), rollingDeployment(withInvalidSpec), "deployment shop/d cannot be rolled out: the selector is empty; correct that first"},
		{newOrder(request.Approve), rollingDeployment(withInvalidSpec), "deployment shop/d cannot be rolled out: the selector is empty; correct that first"},

		{newOrder(request.Start), idleDeployment(asPausedDeployment), resumeFirst},
		{newOrder(request.Start), rollingDeployment(asPausedDeployment, withHoldReason("bob: wait")), resumeFirst},
		{newOrder(request.Start), rollingDeployment(withHoldReason("bob: wait")), "the rollout of revision 7 of deployment shop/d is held (bob: wait), and nothing is rolled out: resume or undo it first"},
		{newOrder(request.Start), idleDeployment(withRollback(5)), "deployment shop/d was asked to return to revision 5, and does so first: try again afterwards"},
		{newOrder(request.Resume), rollingDeployment(), "deployment shop/d is neither paused nor held: there is nothing to resume"},

		{newOrder(request.Cancel), idleDeployment(), "no rollout of deployment shop/d is under way: there is nothing to cancel; to go back to a former revision, undo"},
		{newOrder(request.Cancel, asRollbackOrder), idleDeployment(), "no rollout of deployment shop/d is under way: there is nothing to cancel; to go back to a former revision, undo"},
		{newOrder(request.Cancel), rollingDeployment(withHoldReason("bob: wait")), "the rollout of revision 7 of deployment shop/d is held already: bob: wait; resume it, or undo it"},
		{newOrder(request.Cancel), rollingDeployment(withoutCurrentSet), "the template of deployment shop/d has no set yet, and so no revision to cancel: try again when it has"},
		{newOrder(request.Cancel, withRevision(6)), rollingDeployment(), "the request is for revision 6, and deployment shop/d has revision 7: look at the rollout, then try again"},
		{newOrder(request.Cancel), rollingDeployment(withRollback(0)), "deployment shop/d was asked to return to the revision before, and does so first: try again afterwards"},
		{newOrder(request.Cancel, asRollbackOrder), rollingDeployment(asPausedDeployment), resumeFirst},

		{newOrder(request.Undo), idleDeployment(asPausedDeployment), resumeFirst},
		{newOrder(request.Undo), rollingDeployment(asPausedDeployment, withRollback(6)), resumeFirst},
		{newOrder(request.Undo), idleDeployment(withoutEarlierRevisions), "deployment shop/d has no set of a former template: there is nothing to go back to"},
		{newOrder(request.Undo), idleDeployment(withTemplateOwner), ownedTemplate},
		{newOrder(request.Cancel, asRollbackOrder), rollingDeployment(withTemplateOwner), ownedTemplate},
		{newOrder(request.Undo, withRevision(7)), idleDeployment(), "revision 7 is the one that deployment shop/d has: it can go back to 6, 5, 3"},
		{newOrder(request.Undo, withRevision(4)), idleDeployment(), "deployment shop/d has no set of revision 4: it can go back to 6, 5, 3"},
		{newOrder(request.Undo, withRevision(5)), rollingDeployment(withRollback(6)), "deployment shop/d was asked to return to revision 6, and does so first: try again afterwards"},
		{
			newOrder(request.Undo, withRevision(40)), idleDeployment(func(f *request.DeploymentFacts) { f.EarlierRevisions = []int64{1, 2, 3, 4, 5, 6, 12, 11, 10, 9, 8, 13} }),
			"deployment shop/d has no set of revision 40: it can go back to 13, 12, 11, 10, 9, 8, 6, 5, 4, 3 and 2 more",
		},

		{newOrder(request.Approve), idleDeployment(), "a rollout of deployment shop/d has no steps: there is nothing to approve"},
		{newOrder(request.Approve), idleDeployment(func(f *request.DeploymentFacts) { f.StepCount = 3 }), "no rollout of deployment shop/d is under way: there is no step to approve"},
		{newOrder(request.Approve), rollingDeployment(withoutCurrentSet), "the template of deployment shop/d has no set yet, and so no revision to approve: try again when it has"},
		{newOrder(request.Approve, withRevision(8)), rollingDeployment(), "the request is for revision 8, and deployment shop/d has revision 7: look at the rollout, then try again"},
		{newOrder(request.Approve, asCommandLineOrder), rollingDeployment(withoutPausePoint), "the rollout of revision 7 of deployment shop/d waits at no step now: wait until it does, or pass steps in advance with --steps"},
		{newOrder(request.Approve, withApprovedSteps(4)), rollingDeployment(), "there is no step 4: the rollout of revision 7 of deployment shop/d has 3 in all"},
		{newOrder(request.Approve, withApprovedSteps(1)), rollingDeployment(), "the rollout of revision 7 of deployment shop/d has passed step 1 of 3 already"},
		{newOrder(request.Approve, withApprovedSteps(2)), rollingDeployment(withoutPausePoint, withApproval(2)), "the rollout of revision 7 of deployment shop/d has passed step 2 of 3 already"},
	} {
		assert.Equal(
			t,
			request.Decision{RefusalReason: c.want},
			request.Decide(c.order, c.facts),
			"what is refused writes nothing",
		)
	}
}
