package inplace_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/inplace"
)

const (
	candidate  = "CandidateForUpdate"
	selected   = "SelectedForUpdate"
	drained    = "DrainSuccessful"
	ready      = "ReadyForUpdate"
	successful = "UpdateSuccessful"
	failed     = "UpdateFailed"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at is a node whose condition has this reason.
func at(reason string, change ...func(*inplace.Node)) inplace.Node {
	n := inplace.Node{Reason: reason}
	for _, f := range change {
		f(&n)
	}
	return n
}

func isCandidate(n *inplace.Node)  { n.Candidate = true }
func isChosen(n *inplace.Node)     { n.Candidate, n.Selected = true, true }
func onlySelected(n *inplace.Node) { n.Selected = true }
func isCordoned(n *inplace.Node)   { n.Cordoned = true }
func atNoon(n *inplace.Node)       { n.Since = noon }

func result(value string) func(*inplace.Node) {
	return func(n *inplace.Node) { n.Result = value }
}

func saying(message string) func(*inplace.Node) {
	return func(n *inplace.Node) { n.Message = message }
}

func because(text string) func(*inplace.Node) {
	return func(n *inplace.Node) { n.FailedReason = text }
}

func TestLabelsOfANodeBecomeACondition(t *testing.T) {
	for _, row := range []struct {
		name    string
		node    inplace.Node
		reason  string // that the condition is to have; empty: it stays
		message string
		why     string
	}{
		{name: "no labels, no condition"},
		{
			name: "a candidate for the first time", node: at("", isCandidate),
			reason: candidate, message: "Node waits to be selected for an in-place update.",
			why: "the node's condition becomes CandidateForUpdate: Node waits to be selected for an in-place update.",
		},
		{
			name: "a candidate again, after an update that succeeded", node: at(successful, isCandidate),
			reason: candidate, message: "Node waits to be selected for an in-place update.",
			why: "the node's condition becomes CandidateForUpdate: Node waits to be selected for an in-place update.",
		},
		{
			name: "a candidate, and the result of the last update is still there", node: at(successful, isCandidate, result("successful")),
			why: "the node was updated in place",
		},
		{
			name: "a candidate is selected", node: at(candidate, isChosen),
			reason: selected, message: "Node is selected for an in-place update: it is cordoned, and has to be empty.",
			why: "the node's condition becomes SelectedForUpdate: Node is selected for an in-place update: it is cordoned, and has to be empty.",
		},
		{
			name: "the update succeeded", node: at(ready, isChosen, result("successful")),
			reason: successful, message: "Node was updated.", why: "the node's condition becomes UpdateSuccessful: Node was updated.",
		},
		{
			name: "the update failed", node: at(ready, isChosen, result("failed"), because("disk full")),
			reason: failed, message: "disk full", why: "the node's condition becomes UpdateFailed: disk full",
		},
		{
			name: "the labels that brought a condition do not set it back", node: at(candidate, isCandidate),
			why: "the node waits to be selected for its in-place update",
		},

		{
			name: "both labels at once", node: at("", isChosen),
			reason: selected, message: "Node is selected for an in-place update: it is cordoned, and has to be empty.",
			why: "the node's condition becomes SelectedForUpdate: Node is selected for an in-place update: it is cordoned, and has to be empty.",
		},
		{name: "selected, and no candidate", node: at("", onlySelected)},
		{name: "no longer a candidate", node: at(candidate)},
		{name: "updated, and all labels are gone", node: at(successful)},
		{name: "updated, with a result that nobody knows", node: at(successful, isChosen, result("perhaps")), why: "the node was updated in place"},
		{
			name: "a result that nobody knows is none", node: at(candidate, isCandidate, result("perhaps")),
			why: "the node waits to be selected for its in-place update",
		},
		{
			name: "a condition that nobody knows is none", node: at("Perhaps", isCandidate),
			reason: candidate, message: "Node waits to be selected for an in-place update.",
			why: "the node's condition becomes CandidateForUpdate: Node waits to be selected for an in-place update.",
		},
		{
			name: "a result counts without the other labels", node: at("", result("successful")),
			reason: successful, message: "Node was updated.", why: "the node's condition becomes UpdateSuccessful: Node was updated.",
		},
		{
			name: "a later success rescues it", node: at(failed, isChosen, result("successful")),
			reason: successful, message: "Node was updated.", why: "the node's condition becomes UpdateSuccessful: Node was updated.",
		},
		{
			name: "failed without a reason", node: at(ready, result("failed")),
			reason: failed, message: "The agent on the node gave no reason.", why: "the node's condition becomes UpdateFailed: The agent on the node gave no reason.",
		},
		{
			name: "failed for another reason", node: at(failed, saying("disk full"), result("failed"), because("no network")),
			reason: failed, message: "no network", why: "the node's condition becomes UpdateFailed: no network",
		},
		{
			name: "failed, as the node says", node: at(failed, saying("disk full"), result("failed"), because("disk full")),
			why: "the in-place update of the node failed: disk full",
		},
		{
			name: "failed, and the result is taken away: selected again does not mean tried again", node: at(failed, saying("disk full"), isChosen),
			why: "the in-place update of the node failed: disk full",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := inplace.Decision{Reason: row.reason, Message: row.message, Why: row.why}
			if row.reason != "" {
				want.Step = inplace.Condition
			}
			for _, phase := range []string{"", "Pending", "Running", "Unknown", "Failed", "InPlaceUpdating", "InPlaceUpdateFailed"} {
				assert.Equal(t, want, inplace.Decide(row.node, phase), phase)
			}
		})
	}
}

func TestTheNextStepOfAnInPlaceUpdate(t *testing.T) {
	toDrain := inplace.Decision{Step: inplace.Drain, Reason: drained, Message: "Node is cordoned and empty."}
	toUpdate := inplace.Decision{Step: inplace.Update, Why: "the node is empty, and its in-place update is to begin"}
	toTell := inplace.Decision{
		Step:    inplace.Ready,
		Reason:  ready,
		Message: "Node is empty: it may be updated.",
		Why:     "the node is empty; its agent may update it next",
	}
	const (
		uncordoned = "the node is to be cordoned and empty for its in-place update"
		cordoned   = "the node is cordoned, and has to be empty for its in-place update"
		calledOff  = "the in-place update of the node was called off before it began; its cordon stays"
		notIn      = "the in-place update of the node does not begin in phase "
	)
	for _, row := range []struct {
		name  string
		node  inplace.Node
		phase string
		want  inplace.Decision
		why   string // where want has none
	}{
		{"selected", at(selected, isChosen), "Running", toDrain, uncordoned},
		{"selected and cordoned", at(selected, isChosen, isCordoned, atNoon), "Running", toDrain, cordoned + ", since 2026-03-01 12:00:00 UTC"},
		{"empty", at(drained, isChosen, isCordoned), "Running", toUpdate, ""},
		{"empty, and its machine says so", at(drained, isChosen, isCordoned), "InPlaceUpdating", toTell, ""},
		{"the agent has its turn", at(ready, isChosen, isCordoned, atNoon), "InPlaceUpdating", inplace.Decision{}, "the agent on the node is to update it, since 2026-03-01 12:00:00 UTC"},

		{"an unhealthy node may be updated", at(selected, isChosen), "Unknown", toDrain, uncordoned},
		{"an unhealthy node that is empty, too", at(drained, isChosen, isCordoned), "Unknown", toUpdate, ""},
		{"the phase was first", at(selected, isChosen), "InPlaceUpdating", toDrain, uncordoned},
		{"the agent was told first", at(ready, isChosen, isCordoned), "Running", toUpdate, ""},
		{"uncordoned while it was empty", at(drained, isChosen), "Running", toDrain, uncordoned},
		{"uncordoned before the agent is told", at(drained, isChosen), "InPlaceUpdating", toDrain, uncordoned},
		{"uncordoned under way", at(ready, isChosen), "InPlaceUpdating", inplace.Decision{}, "the agent on the node is to update it"},

		{"called off while it is emptied", at(selected, isCandidate, isCordoned), "Running", inplace.Decision{}, calledOff},
		{"called off with all labels", at(selected), "Running", inplace.Decision{}, calledOff},
		{"no candidate any more", at(selected, onlySelected), "Running", inplace.Decision{}, calledOff},
		{"called off when it was empty", at(drained, isCandidate, isCordoned), "Running", inplace.Decision{}, calledOff},
		{"too late to call it off", at(drained, isCordoned), "InPlaceUpdating", toTell, ""},
		{"far too late", at(ready), "InPlaceUpdating", inplace.Decision{}, "the agent on the node is to update it"},

		{"selected before its machine has joined", at(selected, isChosen), "Pending", inplace.Decision{}, notIn + "Pending"},
		{"selected when its machine has failed", at(selected, isChosen), "Failed", inplace.Decision{}, notIn + "Failed"},
		{"empty when its machine has failed", at(drained, isChosen, isCordoned), "Failed", inplace.Decision{}, notIn + "Failed"},
		{"the update took too long", at(ready, isChosen, isCordoned), "InPlaceUpdateFailed", inplace.Decision{}, notIn + "InPlaceUpdateFailed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.want.Why == "" {
				row.want.Why = row.why
			}
			assert.Equal(t, row.want, inplace.Decide(row.node, row.phase))
		})
	}
}

func TestCalledOff(t *testing.T) {
	for _, row := range []struct {
		name string
		node inplace.Node
		want bool
	}{
		{"nothing to call off", inplace.Node{}, false},
		{"only a candidate", at(candidate), false},
		{"selected", at(selected, isChosen), false},
		{"selected, and its label is gone", at(selected, isCandidate), true},
		{"selected, and no candidate", at(selected, onlySelected), true},
		{"empty: that depends on the phase", at(drained), false},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, row.node.CalledOff()) })
	}
}

func TestALongReason(t *testing.T) {
	n := at(ready, result("failed"), because(strings.Repeat("ä", 600)))
	d := inplace.Decide(n, "InPlaceUpdating")
	assert.Equal(t, strings.Repeat("ä", 498)+"…", d.Message)
	n.FailedReason = "x" + n.FailedReason
	d = inplace.Decide(n, "InPlaceUpdating")
	assert.Equal(t, "x"+strings.Repeat("ä", 498)+"…", d.Message, "no half characters")
	n.Reason, n.Message = d.Reason, d.Message
	assert.Equal(t, inplace.Nothing, inplace.Decide(n, "InPlaceUpdating").Step, "written once")
	n.FailedReason = strings.Repeat("x", 1000)
	assert.Equal(t, n.FailedReason, inplace.Decide(n, "InPlaceUpdating").Message)
}
