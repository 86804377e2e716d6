package request_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/request"
)

func TestInvalidOrdersAreRefused(t *testing.T) {
	unread := func(o *request.CommandOrder) { o.ParseError = "it is no JSON" }
	const six = "2026-11-21T18:00:00Z"
	const ofMachines = "extend, retry, hold, resume, force, skip, abandon-instance, preserve, unpreserve"
	for _, c := range []struct {
		kind  request.Kind
		order request.CommandOrder
		want  string
	}{
		{request.KindMachine, newOrder(""), `there is no command "": the commands are ` + ofMachines},
		{request.KindMachine, newOrder("Force"), `there is no command "Force": the commands are ` + ofMachines},
		{request.KindMachine, newOrder(request.Undo), `there is no command "undo": the commands are ` + ofMachines},
		{request.KindMachineDeployment, newOrder(""), `there is no command "": the commands are start, pause, resume, cancel, undo, retry, approve`},
		{request.KindMachineDeployment, newOrder("Undo"), `there is no command "Undo": the commands are start, pause, resume, cancel, undo, retry, approve`},
		{request.KindMachine, newOrder(request.Hold, unread), "the request cannot be read: it is no JSON"},
		{request.KindMachineDeployment, newOrder(request.Undo, unread), "the request cannot be read: it is no JSON"},
		{request.KindMachine, newOrder(request.Force, withoutActorAndReason), "force needs a reason: reason TEXT"},
		{request.KindMachine, newOrder(request.Force, withoutActorAndReason, asCommandLineOrder), "force needs a reason: --reason TEXT"},
		{request.KindMachine, newOrder(request.AbandonInstance, withReason(" \n")), "abandon-instance needs a reason: reason TEXT"},
		{request.KindMachineDeployment, newOrder(request.Cancel, withoutActorAndReason), "cancel needs a reason: reason TEXT"},
		{request.KindMachineDeployment, newOrder(request.Cancel, withoutActorAndReason, asCommandLineOrder), "cancel needs a reason: --reason TEXT"},

		{request.KindMachine, newOrder(request.Force, withExtendFor("1h")), `force does not take "for": it is for extend`},
		{request.KindMachine, newOrder(request.Preserve, withExtendUntil(six)), `preserve does not take "until": it is for extend`},
		{request.KindMachine, newOrder(request.Retry, asOrderInAdvance), `retry does not take "inAdvance": it is for extend, hold, force, skip`},
		{request.KindMachine, newOrder(request.AbandonInstance, asOrderInAdvance, asCommandLineOrder), `abandon-instance does not take "--in-advance": it is for extend, hold, force, skip`},
		{request.KindMachine, newOrder(request.Force, withRevision(1)), `force does not take "revision"`},
		{request.KindMachineDeployment, newOrder(request.Start, withRevision(1)), `start does not take "revision": it is for cancel, undo, retry, approve`},
		{request.KindMachineDeployment, newOrder(request.Undo, asRollbackOrder), `undo does not take "back": it is for cancel`},
		{request.KindMachineDeployment, newOrder(request.Pause, withApprovedSteps(1)), `pause does not take "steps": it is for approve`},

		{request.KindMachine, newOrder(request.Extend), "extend needs either for DURATION or until TIME"},
		{request.KindMachine, newOrder(request.Extend, withExtendFor("0s")), "extend needs either for DURATION or until TIME"},
		{request.KindMachine, newOrder(request.Extend, withExtendFor("1h"), withExtendUntil(six), asCommandLineOrder), "extend needs either --for DURATION or --until TIME"},
		{request.KindMachine, newOrder(request.Extend, withExtendFor("-1h")), "for -1h would shorten the drain; extend only gives more time"},
		{request.KindMachine, newOrder(request.Extend, withExtendFor("an hour")), `for is not a duration such as 1h30m: time: invalid duration "an hour"`},
		{
			request.KindMachine, newOrder(request.Extend, withExtendUntil("tomorrow")), `until is not an RFC 3339 time such as 2026-11-21T18:00:00Z: ` +
				`parsing time "tomorrow" as "2006-01-02T15:04:05Z07:00": cannot parse "tomorrow" as "2006"`,
		},
		{request.KindMachineDeployment, newOrder(request.Undo, withRevision(-1)), "-1 is not a revision: revisions count from 1"},
		{request.KindMachineDeployment, newOrder(request.Approve, withApprovedSteps(-1), asCommandLineOrder), "--steps is -1: steps count from 1"},

		{request.KindMachine, newOrder(request.Retry, withUID("u-2")), "the request is for a machine with UID u-2, and this one has UID u-1"},
		{request.KindMachineDeployment, newOrder(request.Pause, withUID("u-\n2")), "the request is for a deployment with UID u- 2, and this one has UID u-1"},
	} {
		assert.Equal(t, c.want, request.CheckOrder(c.kind, "u-1", c.order))
		facts := request.Facts(deletingMachine())
		if c.kind == request.KindMachineDeployment {
			facts = rollingDeployment()
		}
		assert.Equal(
			t,
			request.Decision{RefusalReason: c.want},
			request.Decide(c.order, facts),
			"what is refused writes nothing",
		)
	}
	assert.Empty(
		t,
		request.CheckOrder(request.KindMachine, "", newOrder(request.Retry, withUID("u-2"))),
		"which one it is, is not known yet",
	)
}

func TestRequestsAreSummarised(t *testing.T) {
	assert.Equal(t, "ann requested force: why", newOrder(request.Force).Summary())
	assert.Equal(t, "ann requested start: why", newOrder(request.Start).Summary())
	assert.Equal(t, "ann requested approve (steps: 1): why", newOrder(request.Approve, withApprovedSteps(1)).Summary())
	assert.Equal(
		t,
		"ann requested cancel and return (revision 3): why",
		newOrder(request.Cancel, asRollbackOrder, withRevision(3)).Summary(),
	)
	assert.Equal(t, "somebody requested ?", request.CommandOrder{}.Summary())
}

func TestUserTextsAreCutToOneShortLine(t *testing.T) {
	long := strings.Repeat("ü ", 300) + "\xff"
	o := request.CommandOrder{
		Command:     "x\ny",
		Actor:       long,
		Reason:      long,
		UID:         long,
		ExtendFor:   long,
		ExtendUntil: long,
		ParseError:  long,
	}.WithCleanTexts()
	assert.Equal(t, request.Command("x y"), o.Command)
	for _, text := range []string{o.Actor, o.Reason, o.UID, o.ExtendFor, o.ExtendUntil, o.ParseError} {
		assert.LessOrEqual(t, len(text), 200)
		assert.Greater(t, len(text), 190)
		assert.True(t, utf8.ValidString(text))
	}
	assert.Equal(t, o, o.WithCleanTexts())
}

// Orders are recorded in histories, so their JSON must not change.
func TestOrderJSONDoesNotChange(t *testing.T) {
	full := newOrder(
		request.Cancel,
		asRollbackOrder,
		withRevision(0),
		withApprovedSteps(2),
		withExtendFor("1h"),
		withExtendUntil("x"),
		asOrderInAdvance,
		withUID("u"),
		withRequestTime,
		asCommandLineOrder,
	)
	full.ParseError = "y"
	text, err := json.Marshal(full)
	require.NoError(t, err)
	assert.JSONEq(
		t,
		`{"command":"cancel","actor":"ann","reason":"why","uid":"u","for":"1h","until":"x","inAdvance":true,"revision":0,
		"back":true,"steps":2,"asked":"2026-11-21T14:06:07.5Z","unread":"y"}`,
		string(text),
	)
	text, err = json.Marshal(request.CommandOrder{Command: request.Pause})
	require.NoError(t, err)
	assert.JSONEq(t, `{"command":"pause"}`, string(text))
}
