package inplace_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/inplace"
)

const (
	reasonCandidate       = "CandidateForUpdate"
	reasonSelected        = "SelectedForUpdate"
	reasonDrainSuccessful = "DrainSuccessful"
	reasonReady           = "ReadyForUpdate"
	reasonSuccessful      = "UpdateSuccessful"
	reasonFailed          = "UpdateFailed"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// nodeWithReason returns a node whose condition has this reason.
func nodeWithReason(reason string, change ...func(*inplace.Node)) inplace.Node {
	n := inplace.Node{Reason: reason}
	for _, f := range change {
		f(&n)
	}
	return n
}

func asUpdateCandidate(n *inplace.Node)      { n.Candidate = true }
func asSelectedNode(n *inplace.Node)         { n.Candidate, n.Selected = true, true }
func withSelectedLabelOnly(n *inplace.Node)  { n.Selected = true }
func asCordonedNode(n *inplace.Node)         { n.Cordoned = true }
func withConditionSinceNoon(n *inplace.Node) { n.Since = noon }

func withUpdateResult(value string) func(*inplace.Node) {
	return func(n *inplace.Node) { n.Result = value }
}

func withConditionMessage(message string) func(*inplace.Node) {
	return func(n *inplace.Node) { n.Message = message }
}

func withFailedReason(text string) func(*inplace.Node) {
	return func(n *inplace.Node) { n.FailedReason = text }
}

func TestLabelsOfANodeBecomeACondition(t *testing.T) {
	for _, row := range []struct {
		name    string
		node    inplace.Node
		reason  string // new reason of the condition; empty: the condition stays
		message string
		why     string
	}{
		{name: "no labels, no condition"},
		{
			name: "a candidate for the first time", node: nodeWithReason("", asUpdateCandidate),
			reason: reasonCandidate, message: "Node waits to be selected for an in-place update.",
			why: "the node's condition becomes CandidateForUpdate: Node waits to be selected for an in-place update.",
		},
		{
			name: "a candidate again, after an update that succeeded", node: nodeWithReason(reasonSuccessful, asUpdateCandidate),
			reason: reasonCandidate, message: "Node waits to be selected for an in-place update.",
			why: "the node's condition becomes CandidateForUpdate: Node waits to be selected for an in-place update.",
		},
		{
			name: "a candidate, and the result of the last update is still there", node: nodeWithReason(reasonSuccessful, asUpdateCandidate, withUpdateResult("successful")),
			why: "the node was updated in place",
		},
		{
			name: "a candidate is selected", node: nodeWithReason(reasonCandidate, asSelectedNode),
			reason: reasonSelected, message: "Node is selected for an in-place update: it is cordoned, and has to be empty.",
			why: "the node's condition becomes SelectedForUpdate: Node is selected for an in-place update: it is cordoned, and has to be empty.",
		},
		{
			name: "the update succeeded", node: nodeWithReason(reasonReady, asSelectedNode, withUpdateResult("successful")),
			reason: reasonSuccessful, message: "Node was updated.", why: "the node's condition becomes UpdateSuccessful: Node was updated.",
		},
		{
			name: "the update failed", node: nodeWithReason(reasonReady, asSelectedNode, withUpdateResult("failed"), withFailedReason("disk full")),
			reason: reasonFailed, message: "disk full", why: "the node's condition becomes UpdateFailed: disk full",
		},
		{
			name: "the labels that brought a condition do not set it back", node: nodeWithReason(reasonCandidate, asUpdateCandidate),
			why: "the node waits to be selected for its in-place update",
		},

		{
			name: "both labels at once", node: nodeWithReason("", asSelectedNode),
			reason: reasonSelected, message: "Node is selected for an in-place update: it is cordoned, and has to be empty.",
			why: "the node's condition becomes SelectedForUpdate: Node is selected for an in-place update: it is cordoned, and has to be empty.",
		},
		{name: "selected, and no candidate", node: nodeWithReason("", withSelectedLabelOnly)},
		{name: "no longer a candidate", node: nodeWithReason(reasonCandidate)},
		{name: "updated, and all labels are gone", node: nodeWithReason(reasonSuccessful)},
		{name: "updated, with a result that nobody knows", node: nodeWithReason(reasonSuccessful, asSelectedNode, withUpdateResult("perhaps")), why: "the node was updated in place"},
		{
			name: "a result that nobody knows is none", node: nodeWithReason(reasonCandidate, asUpdateCandidate, withUpdateResult("perhaps")),
			why: "the node waits to be selected for its in-place update",
		},
		{
			name: "a condition that nobody knows is none", node: nodeWithReason("Perhaps", asUpdateCandidate),
			reason: reasonCandidate, message: "Node waits to be selected for an in-place update.",
			why: "the node's condition becomes CandidateForUpdate: Node waits to be selected for an in-place update.",
		},
		{
			name: "a result counts without the other labels", node: nodeWithReason("", withUpdateResult("successful")),
			reason: reasonSuccessful, message: "Node was updated.", why: "the node's condition becomes UpdateSuccessful: Node was updated.",
		},
		{
			name: "a later success rescues it", node: nodeWithReason(reasonFailed, asSelectedNode, withUpdateResult("successful")),
			reason: reasonSuccessful, message: "Node was updated.", why: "the node's condition becomes UpdateSuccessful: Node was updated.",
		},
		{
			name: "failed without a reason", node: nodeWithReason(reasonReady, withUpdateResult("failed")),
			reason: reasonFailed, message: "The agent on the node gave no reason.", why: "the node's condition becomes UpdateFailed: The agent on the node gave no reason.",
		},
		{
			name: "failed for another reason", node: nodeWithReason(reasonFailed, withConditionMessage("disk full"), withUpdateResult("failed"), withFailedReason("no network")),
			reason: reasonFailed, message: "no network", why: "the node's condition becomes UpdateFailed: no network",
		},
		{
			name: "failed, as the node says", node: nodeWithReason(reasonFailed, withConditionMessage("disk full"), withUpdateResult("failed"), withFailedReason("disk full")),
			why: "the in-place update of the node failed: disk full",
		},
		{
			name: "failed, and the result is taken away: selected again does not mean tried again", node: nodeWithReason(reasonFailed, withConditionMessage("disk full"), asSelectedNode),
			why: "the in-place update of the node failed: disk full",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := inplace.Decision{Reason: row.reason, Message: row.message, Why: row.why}
			if row.reason != "" {
				want.Step = inplace.StepWriteCondition
			}
			for _, phase := range []string{"", "Pending", "Running", "Unknown", "Failed", "InPlaceUpdating", "InPlaceUpdateFailed"} {
				assert.Equal(t, want, inplace.Decide(row.node, phase), phase)
			}
		})
	}
}

func TestTheNextStepOfAnInPlaceUpdate(t *testing.T) {
	toDrain := inplace.Decision{
		Step:    inplace.StepDrain,
		Reason:  reasonDrainSuccessful,
		Message: "Node is cordoned and empty.",
	}
	toUpdate := inplace.Decision{
		Step: inplace.StepSetUpdatingPhase,
		Why:  "the node is empty, and its in-place update is to begin",
	}
	toTell := inplace.Decision{
		Step:    inplace.StepStartAgent,
		Reason:  reasonReady,
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
		why   string // expected Why if want has no Why
	}{
		{"selected", nodeWithReason(reasonSelected, asSelectedNode), "Running", toDrain, uncordoned},
		{"selected and cordoned", nodeWithReason(reasonSelected, asSelectedNode, asCordonedNode, withConditionSinceNoon), "Running", toDrain, cordoned + ", since 2026-03-01 12:00:00 UTC"},
		{"empty", nodeWithReason(reasonDrainSuccessful, asSelectedNode, asCordonedNode), "Running", toUpdate, ""},
		{"empty, and its machine says so", nodeWithReason(reasonDrainSuccessful, asSelectedNode, asCordonedNode), "InPlaceUpdating", toTell, ""},
		{"the agent has its turn", nodeWithReason(reasonReady, asSelectedNode, asCordonedNode, withConditionSinceNoon), "InPlaceUpdating", inplace.Decision{}, "the agent on the node is to update it, since 2026-03-01 12:00:00 UTC"},

		{"an unhealthy node may be updated", nodeWithReason(reasonSelected, asSelectedNode), "Unknown", toDrain, uncordoned},
		{"an unhealthy node that is empty, too", nodeWithReason(reasonDrainSuccessful, asSelectedNode, asCordonedNode), "Unknown", toUpdate, ""},
		{"the phase was first", nodeWithReason(reasonSelected, asSelectedNode), "InPlaceUpdating", toDrain, uncordoned},
		{"the agent was told first", nodeWithReason(reasonReady, asSelectedNode, asCordonedNode), "Running", toUpdate, ""},
		{"uncordoned while it was empty", nodeWithReason(reasonDrainSuccessful, asSelectedNode), "Running", toDrain, uncordoned},
		{"uncordoned before the agent is told", nodeWithReason(reasonDrainSuccessful, asSelectedNode), "InPlaceUpdating", toDrain, uncordoned},
		{"uncordoned under way", nodeWithReason(reasonReady, asSelectedNode), "InPlaceUpdating", inplace.Decision{}, "the agent on the node is to update it"},

		{"called off while it is emptied", nodeWithReason(reasonSelected, asUpdateCandidate, asCordonedNode), "Running", inplace.Decision{}, calledOff},
		{"called off with all labels", nodeWithReason(reasonSelected), "Running", inplace.Decision{}, calledOff},
		{"no candidate any more", nodeWithReason(reasonSelected, withSelectedLabelOnly), "Running", inplace.Decision{}, calledOff},
		{"called off when it was empty", nodeWithReason(reasonDrainSuccessful, asUpdateCandidate, asCordonedNode), "Running", inplace.Decision{}, calledOff},
		{"too late to call it off", nodeWithReason(reasonDrainSuccessful, asCordonedNode), "InPlaceUpdating", toTell, ""},
		{"far too late", nodeWithReason(reasonReady), "InPlaceUpdating", inplace.Decision{}, "the agent on the node is to update it"},

		{"selected before its machine has joined", nodeWithReason(reasonSelected, asSelectedNode), "Pending", inplace.Decision{}, notIn + "Pending"},
		{"selected when its machine has failed", nodeWithReason(reasonSelected, asSelectedNode), "Failed", inplace.Decision{}, notIn + "Failed"},
		{"empty when its machine has failed", nodeWithReason(reasonDrainSuccessful, asSelectedNode, asCordonedNode), "Failed", inplace.Decision{}, notIn + "Failed"},
		{"the update took too long", nodeWithReason(reasonReady, asSelectedNode, asCordonedNode), "InPlaceUpdateFailed", inplace.Decision{}, notIn + "InPlaceUpdateFailed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.want.Why == "" {
				row.want.Why = row.why
			}
			assert.Equal(t, row.want, inplace.Decide(row.node, row.phase))
		})
	}
}

func TestWithdrawnSelectionStopsTheUpdate(t *testing.T) {
	for _, row := range []struct {
		name string
		node inplace.Node
		want bool
	}{
		{"nothing to call off", inplace.Node{}, false},
		{"only a candidate", nodeWithReason(reasonCandidate), false},
		{"selected", nodeWithReason(reasonSelected, asSelectedNode), false},
		{"selected, and its label is gone", nodeWithReason(reasonSelected, asUpdateCandidate), true},
		{"selected, and no candidate", nodeWithReason(reasonSelected, withSelectedLabelOnly), true},
		{"empty: that depends on the phase", nodeWithReason(reasonDrainSuccessful), false},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, row.node.IsSelectionWithdrawn()) })
	}
}

func TestLongFailedReasonIsTruncated(t *testing.T) {
	n := nodeWithReason(reasonReady, withUpdateResult("failed"), withFailedReason(strings.Repeat("ä", 600)))
	d := inplace.Decide(n, "InPlaceUpdating")
	assert.Equal(t, strings.Repeat("ä", 498)+"…", d.Message)
	n.FailedReason = "x" + n.FailedReason
	d = inplace.Decide(n, "InPlaceUpdating")
	assert.Equal(t, "x"+strings.Repeat("ä", 498)+"…", d.Message, "no half characters")
	n.Reason, n.Message = d.Reason, d.Message
	assert.Equal(t, inplace.StepNothing, inplace.Decide(n, "InPlaceUpdating").Step, "written once")
	n.FailedReason = strings.Repeat("x", 1000)
	assert.Equal(t, n.FailedReason, inplace.Decide(n, "InPlaceUpdating").Message)
}
