// Package inplace decides which step of a node's in-place update its machine needs next. Three parties share the work.
// A rollout or a person labels the node. We drain it and set its condition InPlaceUpdate. An agent on the node reads
// that condition, updates the node, and sets a label with the result.
package inplace

import (
	"cmp"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/phrase"
)

// Reasons for no step.
const (
	updated   = "the node was updated in place"
	calledOff = "the in-place update of the node was called off before it began; its cordon stays"
	notIn     = "the in-place update of the node does not begin in phase "
)

// Node is what a node shows of its in-place update. The zero Node: no update.
type Node struct {
	Candidate    bool      // label candidate-for-update
	Selected     bool      // label selected-for-update
	Result       string    // label update-result: successful or failed; any other value is no result
	FailedReason string    // annotation update-failed-reason
	Reason       string    // reason of the condition InPlaceUpdate; empty: no condition
	Message      string    // message of that condition
	Since        time.Time // since when the condition has its reason; zero: not known
	Cordoned     bool      // spec.unschedulable is true
}

// Step is the next step of a machine for the update of its node.
type Step string

// The steps. Nothing: there is none, or the next one is not ours.
const (
	Nothing   Step = ""
	Condition Step = "Condition" // write the condition that the labels ask for
	Drain     Step = "Drain"     // cordon and drain the node
	Update    Step = "Update"    // the node is empty: set the machine's phase to InPlaceUpdating
	Ready     Step = "Ready"     // the phase is set: write the condition that starts the agent
)

// Decision is the next step. The zero Decision changes nothing.
type Decision struct {
	Step Step
	// new reason of the condition: written at once with Condition and Ready, and with Drain once the node is empty
	Reason  string
	Message string // new message of the condition
	Why     string // one sentence; may be set with Nothing
}

// Decide returns the next step of a machine in this phase. It depends only on the node and the phase, so that an
// interrupted update continues where it stopped. Labels never reset a condition that they caused: a node becomes a
// candidate again only after an update that succeeded and whose result label was removed.
func Decide(n Node, phase string) Decision {
	switch n.Result {
	case vocabulary.UpdateSuccessful:
		if n.Reason == vocabulary.ReasonUpdateSuccessful {
			return Decision{Why: updated}
		}
		return says(vocabulary.ReasonUpdateSuccessful, "Node was updated.")
	case vocabulary.UpdateFailed:
		return failed(n)
	}
	switch n.Reason {
	case vocabulary.ReasonSelectedForUpdate:
		return selected(n, phase)
	case vocabulary.ReasonDrainSuccessful, vocabulary.ReasonReadyForUpdate:
		return begin(n, phase)
	case vocabulary.ReasonUpdateFailed: // a later result can still end it
		return Decision{Why: "the in-place update of the node failed: " + n.Message}
	case vocabulary.ReasonUpdateSuccessful:
		if n.Result != "" { // an unknown value
			return Decision{Why: updated}
		}
	}
	return labelled(n)
}

// CalledOff reports whether the labels were removed from a node that is to be drained. Its condition and its cordon
// then stay, because our cordon cannot be told from a person's. The node is neither cordoned again nor updated until
// the labels are back.
func (n Node) CalledOff() bool { return n.Reason == vocabulary.ReasonSelectedForUpdate && !n.chosen() }

// chosen reports whether the labels ask for the update now. Selected without candidate is a mistake.
func (n Node) chosen() bool { return n.Candidate && n.Selected }

// labelled decides by the labels of a node whose update has not begun.
func labelled(n Node) Decision {
	switch {
	case n.chosen():
		return says(
			vocabulary.ReasonSelectedForUpdate,
			"Node is selected for an in-place update: it is cordoned, and has to be empty.",
		)
	case n.Candidate && n.Reason == vocabulary.ReasonCandidateForUpdate:
		return Decision{Why: "the node waits to be selected for its in-place update"}
	case n.Candidate:
		return says(vocabulary.ReasonCandidateForUpdate, "Node waits to be selected for an in-place update.")
	default:
		return Decision{}
	}
}

// selected drains a selected node, unless its machine has not joined yet or is to be replaced.
func selected(n Node, phase string) Decision {
	switch {
	case n.CalledOff():
		return Decision{Why: calledOff}
	case !mayBegin(phase) && phase != vocabulary.PhaseInPlaceUpdating:
		return Decision{Why: notIn + phase}
	default:
		return drain(n)
	}
}

// begin continues with an empty node. Once the phase is InPlaceUpdating, the update goes on whatever the labels are:
// its timeout runs, and only the agent can stop it. A node that was uncordoned meanwhile is drained again.
func begin(n Node, phase string) Decision {
	begun := phase == vocabulary.PhaseInPlaceUpdating
	switch {
	case begun && n.Reason == vocabulary.ReasonReadyForUpdate:
		return Decision{Why: "the agent on the node is to update it" + since(n)}
	case !begun && !n.chosen():
		return Decision{Why: calledOff}
	case !begun && !mayBegin(phase):
		return Decision{Why: notIn + phase}
	case n.Reason == vocabulary.ReasonDrainSuccessful && !n.Cordoned:
		return drain(n)
	case begun:
		return Decision{
			Step:    Ready,
			Reason:  vocabulary.ReasonReadyForUpdate,
			Message: "Node is empty: it may be updated.",
			Why:     "the node is empty; its agent may update it next",
		}
	default:
		return Decision{Step: Update, Why: "the node is empty, and its in-place update is to begin"}
	}
}

// drain cordons and drains the node.
func drain(n Node) Decision {
	why := "the node is to be cordoned and empty for its in-place update"
	if n.Cordoned {
		why = "the node is cordoned, and has to be empty for its in-place update"
	}
	return Decision{
		Step:    Drain,
		Reason:  vocabulary.ReasonDrainSuccessful,
		Message: "Node is cordoned and empty.",
		Why:     why + since(n),
	}
}

// mayBegin reports whether the update may begin in this phase. An unhealthy machine may be updated, because the update
// can repair it.
func mayBegin(phase string) bool {
	return phase == vocabulary.PhaseRunning || phase == vocabulary.PhaseUnknown
}

// failed copies the agent's reason to the message, also when the reason changes later.
func failed(n Node) Decision {
	message := cmp.Or(phrase.Message(n.FailedReason), "The agent on the node gave no reason.")
	if n.Reason == vocabulary.ReasonUpdateFailed && n.Message == message {
		return Decision{Why: "the in-place update of the node failed: " + message}
	}
	return says(vocabulary.ReasonUpdateFailed, message)
}

func says(reason, message string) Decision {
	return Decision{
		Step:    Condition,
		Reason:  reason,
		Message: message,
		Why:     "the node's condition becomes " + reason + ": " + message,
	}
}

func since(n Node) string {
	return phrase.If(!n.Since.IsZero(), ", since %s", phrase.Clock(n.Since, time.Time{}))
}
