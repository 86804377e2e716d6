package steer_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/steer"
)

// stamp begins the record of each order.
const stamp = "2026-11-21T14:06:07.5Z "

func TestVerbsOfARollout(t *testing.T) {
	second := "2026-11-21T14:06:07Z"
	for name, c := range map[string]struct {
		order steer.Order
		facts steer.Facts
		want  steer.Decision
	}{
		"start": {order(steer.Start), calm(), steer.Decision{
			RestartedAt: &second, Cause: new("started by ann: why"), Last: stamp + "ann wants start: why",
			Says: "wrote 2026-11-21T14:06:07Z into the template of deployment shop/d: all its machines are made anew",
		}},
		"start by nobody, where people delete": {order(steer.Start, nameless), rolling(onDelete), steer.Decision{
			RestartedAt: &second, Cause: new("started by somebody"), Last: stamp + "somebody wants start",
			Says: "wrote 2026-11-21T14:06:07Z into the template of deployment shop/d: all its machines are made anew, each when somebody deletes the old one",
		}},
		"start, a second time in one second": {order(steer.Start), calm(func(f *steer.Facts) { f.RestartedAt = second }), steer.Decision{
			Same: true, Says: "the template of deployment shop/d says 2026-11-21T14:06:07Z already",
		}},
		"pause": {order(steer.Pause), calm(), steer.Decision{
			PauseTo: new(true), Last: stamp + "ann wants pause: why", Says: "deployment shop/d is paused",
		}},
		"pause of an invalid one": {order(steer.Pause), rolling(invalid), steer.Decision{
			PauseTo: new(true), Last: stamp + "ann wants pause: why", Says: "deployment shop/d is paused",
		}},
		"pause of a paused one": {order(steer.Pause), calm(paused), steer.Decision{Same: true, Says: "deployment shop/d is paused already"}},
		"resume what is paused": {order(steer.Resume), calm(paused), steer.Decision{
			PauseTo: new(false), Last: stamp + "ann wants resume: why", Says: "deployment shop/d is not paused any more",
		}},
		"resume what is held": {order(steer.Resume, nameless), rolling(held("bob: wait")), steer.Decision{
			Hold: new(""), Last: stamp + "somebody wants resume",
			Says: "the rollout of revision 7 of deployment shop/d is not held any more (it was by bob: wait)",
		}},
		"resume what is both": {order(steer.Resume), rolling(held("bob: wait"), paused), steer.Decision{
			PauseTo: new(false), Hold: new(""), Last: stamp + "ann wants resume: why",
			Says: "deployment shop/d is not paused any more, and the rollout of revision 7 not held (it was by bob: wait)",
		}},
		"resume what was resumed by this": {order(steer.Resume, asked), calm(func(f *steer.Facts) { f.Last = stamp + "ann wants resume: why" }), steer.Decision{
			Same: true, Says: "deployment shop/d was given this order before: nothing was to be written",
		}},
		"cancel": {order(steer.Cancel), rolling(), steer.Decision{
			Hold: new("7 ann: why"), Last: stamp + "ann wants cancel: why",
			Says: "the rollout of revision 7 of deployment shop/d is held where it is",
		}},
		"cancel this revision, though paused, and asked to return later": {order(steer.Cancel, revision(7)), rolling(paused, returning(6)), steer.Decision{
			Hold: new("7 ann: why"), Last: stamp + "ann wants cancel (revision 7): why",
			Says: "the rollout of revision 7 of deployment shop/d is held where it is",
		}},
		"cancel, once more": {order(steer.Cancel), rolling(held("ann: why")), steer.Decision{
			Same: true, Says: "the rollout of revision 7 of deployment shop/d is held already: ann: why",
		}},
		"cancel and return": {order(steer.Cancel, back), rolling(), steer.Decision{
			RollbackTo: new(int64(6)), Last: stamp + "ann wants cancel and return: why",
			Says: "deployment shop/d returns from revision 7 to revision 6",
		}},
		"cancel what is held, and return further": {order(steer.Cancel, back, revision(3)), rolling(held("bob: wait")), steer.Decision{
			RollbackTo: new(int64(3)), Last: stamp + "ann wants cancel and return (revision 3): why",
			Says: "deployment shop/d returns from revision 7 to revision 3",
		}},
		"undo": {order(steer.Undo), calm(), steer.Decision{
			RollbackTo: new(int64(6)), Last: stamp + "ann wants undo: why",
			Says: "deployment shop/d returns from revision 7 to revision 6",
		}},
		"undo, as kubectl says it": {order(steer.Undo, revision(0), nameless), rolling(), steer.Decision{
			RollbackTo: new(int64(6)), Last: stamp + "somebody wants undo (revision 0)",
			Says: "deployment shop/d returns from revision 7 to revision 6",
		}},
		"undo to a revision": {order(steer.Undo, revision(5)), calm(), steer.Decision{
			RollbackTo: new(int64(5)), Last: stamp + "ann wants undo (revision 5): why",
			Says: "deployment shop/d returns from revision 7 to revision 5",
		}},
		"undo before the new set is made": {order(steer.Undo), rolling(unmade), steer.Decision{
			RollbackTo: new(int64(7)), Last: stamp + "ann wants undo: why",
			Says: "deployment shop/d returns to revision 7",
		}},
		"undo what is being undone": {order(steer.Undo), rolling(returning(6)), steer.Decision{
			Same: true, Says: "deployment shop/d was asked to return to revision 6 already",
		}},
		"approve": {order(steer.Approve), rolling(), steer.Decision{
			Approve: new("7/2 ann: why"), Last: stamp + "ann wants approve: why",
			Says: "the rollout of revision 7 of deployment shop/d passes 2 stages of 3",
		}},
		"approve the first of them, by nobody, though held": {
			order(steer.Approve, nameless, revision(7)),
			rolling(held("bob"), func(f *steer.Facts) { f.Gate.Step = 0 }),
			steer.Decision{
				Approve: new("7/1 somebody"), Last: stamp + "somebody wants approve (revision 7)",
				Says: "the rollout of revision 7 of deployment shop/d passes 1 stage of 3, once it is resumed",
			},
		},
		"approve in advance, though paused": {order(steer.Approve, stages(3)), rolling(gateless, approved(2), paused), steer.Decision{
			Approve: new("7/3 ann: why"), Last: stamp + "ann wants approve (3 stages): why",
			Says: "the rollout of revision 7 of deployment shop/d passes 3 stages of 3, once it is resumed",
		}},
		"for the deployment that is meant": {order(steer.Pause, func(o *steer.Order) { o.UID = "u-1" }), calm(), steer.Decision{
			PauseTo: new(true), Last: stamp + "ann wants pause: why", Says: "deployment shop/d is paused",
		}},
		"given before": {order(steer.Undo, asked), calm(func(f *steer.Facts) { f.Last = stamp + "ann wants undo: why" }), steer.Decision{
			Same: true, Says: "deployment shop/d was given this order before: nothing was to be written",
		}},
	} {
		assert.Equal(t, c.want, steer.Decide(c.order, c.facts), name)
	}
}

func TestVerbsOfARolloutAreRefused(t *testing.T) {
	const resumeFirst = "deployment shop/d is paused, and neither a new template nor a former one is rolled out: resume it first"
	for _, c := range []struct {
		order steer.Order
		facts steer.Facts
		want  string
	}{
		{order(""), calm(), `there is no verb "": the verbs are start, pause, resume, cancel, undo, approve`},
		{order("Undo"), calm(), `there is no verb "Undo": the verbs are start, pause, resume, cancel, undo, approve`},
		{steer.Order{Unread: "it is no JSON"}, calm(), "the order cannot be read: it is no JSON"},
		{order(steer.Cancel, nameless), rolling(), "cancel needs a reason for those who come after you: reason TEXT"},
		{order(steer.Cancel, nameless, flags), rolling(), "cancel needs a reason for those who come after you: --reason TEXT"},
		{order(steer.Start, revision(1)), calm(), "start takes no revision: that is for cancel, undo and approve"},
		{order(steer.Undo, revision(-1)), calm(), "-1 is no revision: they count from 1"},
		{order(steer.Undo, back), calm(), "undo cannot go back: back is for cancel"},
		{order(steer.Pause, stages(1)), calm(), "pause passes no stages: stages is for approve"},
		{order(steer.Approve, stages(-1), flags), rolling(), "--stages is -1, and no number of stages"},
		{order(steer.Pause, func(o *steer.Order) { o.UID = "u-\n2" }), calm(), "the order is for a deployment with UID u- 2, and this one has UID u-1"},

		{order(steer.Pause), calm(deleting), "deployment shop/d is being deleted: pause would change nothing"},
		{order(steer.Undo), calm(deleting), "deployment shop/d is being deleted: undo would change nothing"},
		{order(steer.Start), calm(invalid), "deployment shop/d cannot be rolled out: the selector is empty; put that right first"},
		{order(steer.Undo), calm(invalid), "deployment shop/d cannot be rolled out: the selector is empty; put that right first"},
		{order(steer.Cancel), rolling(invalid), "deployment shop/d cannot be rolled out: the selector is empty; put that right first"},
		{order(steer.Approve), rolling(invalid), "deployment shop/d cannot be rolled out: the selector is empty; put that right first"},

		{order(steer.Start), calm(paused), resumeFirst},
		{order(steer.Start), rolling(paused, held("bob: wait")), resumeFirst},
		{order(steer.Start), rolling(held("bob: wait")), "the rollout of revision 7 of deployment shop/d is held (bob: wait), and nothing is rolled out: resume or undo it first"},
		{order(steer.Start), calm(returning(5)), "deployment shop/d was asked to return to revision 5, and does so first: try again in a moment"},
		{order(steer.Resume), rolling(), "deployment shop/d is neither paused nor held: there is nothing to resume"},

		{order(steer.Cancel), calm(), "no rollout of deployment shop/d is under way: there is nothing to cancel; to go back to a former revision, undo"},
		{order(steer.Cancel, back), calm(), "no rollout of deployment shop/d is under way: there is nothing to cancel; to go back to a former revision, undo"},
		{order(steer.Cancel), rolling(held("bob: wait")), "the rollout of revision 7 of deployment shop/d is held already: bob: wait; resume it, or undo it"},
		{order(steer.Cancel), rolling(unmade), "the template of deployment shop/d has no set yet, and so no revision to hold: pause it, or try again in a moment"},
		{order(steer.Cancel, revision(6)), rolling(), "the order is for revision 6, and deployment shop/d has revision 7: look again"},
		{order(steer.Cancel), rolling(returning(0)), "deployment shop/d was asked to return to the revision before, and does so first: try again in a moment"},
		{order(steer.Cancel, back), rolling(paused), resumeFirst},

		{order(steer.Undo), calm(paused), resumeFirst},
		{order(steer.Undo), rolling(paused, returning(6)), resumeFirst},
		{order(steer.Undo), calm(alone), "deployment shop/d has no set of a former template: there is nothing to go back to"},
		{order(steer.Undo, revision(7)), calm(), "revision 7 is the one that deployment shop/d has: it can go back to 6, 5, 3"},
		{order(steer.Undo, revision(4)), calm(), "deployment shop/d has no set of revision 4: it can go back to 6, 5, 3"},
		{order(steer.Undo, revision(5)), rolling(returning(6)), "deployment shop/d was asked to return to revision 6, and does so first: try again in a moment"},
		{
			order(steer.Undo, revision(40)), calm(func(f *steer.Facts) { f.Revisions = []int64{1, 2, 3, 4, 5, 6, 12, 11, 10, 9, 8, 13} }),
			"deployment shop/d has no set of revision 40: it can go back to 13, 12, 11, 10, 9, 8, 6, 5, 4, 3 and 2 older ones",
		},

		{order(steer.Approve), calm(), "a rollout of deployment shop/d has no stages: there is nothing to approve"},
		{order(steer.Approve), calm(func(f *steer.Facts) { f.Stages = 3 }), "no rollout of deployment shop/d is under way: there is no stage to approve"},
		{order(steer.Approve), rolling(unmade), "the template of deployment shop/d has no set yet, and so no revision to approve: try again in a moment"},
		{order(steer.Approve, revision(8)), rolling(), "the order is for revision 8, and deployment shop/d has revision 7: look again"},
		{order(steer.Approve, flags), rolling(gateless), "the rollout of revision 7 of deployment shop/d waits at no stage now: wait until it does, or pass stages in advance with --stages"},
		{order(steer.Approve, stages(4)), rolling(), "the rollout of revision 7 of deployment shop/d has 3 stages, and not 4"},
		{order(steer.Approve, stages(1)), rolling(), "the rollout of revision 7 of deployment shop/d has passed 1 stage of 3 already"},
		{order(steer.Approve, stages(2)), rolling(gateless, approved(2)), "the rollout of revision 7 of deployment shop/d has passed 2 stages of 3 already"},
	} {
		assert.Equal(t, steer.Decision{Refused: c.want}, steer.Decide(c.order, c.facts), "what is refused writes nothing")
	}
}

func TestWishesAreTold(t *testing.T) {
	assert.Equal(t, "ann wants start: why", order(steer.Start).Wish())
	assert.Equal(t, "ann wants approve (1 stage): why", order(steer.Approve, stages(1)).Wish())
	assert.Equal(t, "somebody wants ?", steer.Order{}.Wish())
}

func TestWordsOfPeopleAreOneShortLine(t *testing.T) {
	long := strings.Repeat("ü ", 300) + "\xff"
	o := steer.Order{Verb: "x\ny", Actor: long, Reason: long, UID: long, Unread: long}.Cleaned()
	assert.Equal(t, steer.Verb("x y"), o.Verb)
	for _, text := range []string{o.Actor, o.Reason, o.UID, o.Unread} {
		assert.LessOrEqual(t, len(text), 200)
		assert.True(t, utf8.ValidString(text))
	}
	assert.Equal(t, o, o.Cleaned())
}

// The order is a part of histories.
func TestOrderIsWrittenAsItAlwaysWas(t *testing.T) {
	text, err := json.Marshal(order(steer.Cancel, back, revision(0), stages(2), asked, flags, func(o *steer.Order) { o.UID, o.Unread = "u", "x" }))
	require.NoError(t, err)
	assert.JSONEq(t, `{"Verb":"cancel","Actor":"ann","Reason":"why","Revision":0,"Back":true,"Stages":2,"Door":"command line","UID":"u",
		"Asked":"2026-11-21T14:06:07.5Z","Unread":"x"}`, string(text))
	text, err = json.Marshal(steer.Order{Verb: steer.Pause})
	require.NoError(t, err)
	assert.JSONEq(t, `{"Verb":"pause"}`, string(text))
}
