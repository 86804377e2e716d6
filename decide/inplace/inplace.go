// Package inplace answers how far the in-place update of a node is, and what its machine needs next for it. Three parties
// share the work. A rollout or a person puts labels on the node. We empty it and say so in its condition InPlaceUpdate. An
// agent on the node reads that condition, does the update, and leaves a label with the result.
package inplace

import (
	"cmp"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/phrase"
)

// Why nothing is done.
const (
	updated   = "the node was updated in place"
	calledOff = "the in-place update of the node was called off before it began; its cordon is left as it is"
	notIn     = "the in-place update of the node does not begin in phase "
)

// Node is what a node says of its in-place update. The zero Node says nothing.
type Node struct {
	Candidate    bool      // label candidate-for-update
	Selected     bool      // label selected-for-update
	Result       string    // label update-result: empty, successful or failed; another value is no result
	FailedReason string    // annotation update-failed-reason
	Reason       string    // of the condition InPlaceUpdate; empty: there is none
	Message      string    // of the condition
	Since        time.Time // of the condition's reason; zero: not known
	Cordoned     bool      // spec.unschedulable
}

// Step names what a machine needs next for the update of its node.
type Step string

// The steps. Nothing means that there is none, or that it is somebody else's turn.
const (
	Nothing   Step = ""
	Condition Step = "Condition" // the labels do not fit the condition
	Drain     Step = "Drain"     // the node is to be cordoned and empty
	Update    Step = "Update"    // the node is empty: the machine's phase is to become InPlaceUpdating
	Ready     Step = "Ready"     // the phase says so too: the agent is to be told
)

// Decision says what comes next. The zero Decision leaves everything as it is.
type Decision struct {
	Step    Step
	Reason  string // to write to the condition: at once with Condition and Ready, and with Drain when the node is empty
	Message string // that goes with Reason
	Why     string // in one sentence; may be set with Nothing
}

// Decide says what a machine of this phase needs next for the update of its node. Each step follows from what the node and
// the phase say, so that it goes on wherever it was interrupted. A condition is never set back by the labels that brought
// it: a node becomes a candidate again only after an update that succeeded and whose result label is gone.
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
		return empty(n, phase)
	case vocabulary.ReasonDrainSuccessful, vocabulary.ReasonReadyForUpdate:
		return begin(n, phase)
	case vocabulary.ReasonUpdateFailed: // a later result rescues it
		return Decision{Why: "the in-place update of the node failed: " + n.Message}
	case vocabulary.ReasonUpdateSuccessful:
		if n.Result != "" { // not one that we know, but not nothing either
			return Decision{Why: updated}
		}
	}
	return labelled(n)
}

// CalledOff reports whether the labels of a node that is to be emptied were taken away. The condition then stays as it is,
// and so does the cordon: nobody can tell ours from a person's, and who called the update off knows of it. We neither
// cordon the node again nor go on with the update, until the labels are back.
func (n Node) CalledOff() bool { return n.Reason == vocabulary.ReasonSelectedForUpdate && !n.chosen() }

// chosen reports whether the labels want the update now. A node that is selected and no candidate is somebody's mistake.
func (n Node) chosen() bool { return n.Candidate && n.Selected }

// labelled decides by the labels of a node whose update has not begun.
func labelled(n Node) Decision {
	switch {
	case n.chosen():
		return says(vocabulary.ReasonSelectedForUpdate, "Node is selected for an in-place update: it is cordoned, and has to be empty.")
	case n.Candidate && n.Reason == vocabulary.ReasonCandidateForUpdate:
		return Decision{Why: "the node waits to be selected for its in-place update"}
	case n.Candidate:
		return says(vocabulary.ReasonCandidateForUpdate, "Node waits to be selected for an in-place update.")
	default:
		return Decision{}
	}
}

// empty wants a node empty that was selected. A machine whose node has not joined has something to lose, and one that is to
// be replaced has nothing to gain.
func empty(n Node, phase string) Decision {
	switch {
	case n.CalledOff():
		return Decision{Why: calledOff}
	case !mayBegin(phase) && phase != vocabulary.PhaseInPlaceUpdating:
		return Decision{Why: notIn + phase}
	default:
		return drain(n)
	}
}

// begin goes on with an empty node. Once the phase says that the update has begun, it is brought to its end, whatever the
// labels say: its timeout runs, and only the agent can stop that. A node that was uncordoned meanwhile may hold pods again.
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
		return Decision{Step: Ready, Reason: vocabulary.ReasonReadyForUpdate, Message: "Node is empty: it may be updated.", Why: "the node is empty, and its agent is to be told"}
	default:
		return Decision{Step: Update, Why: "the node is empty, and its in-place update is to begin"}
	}
}

// drain wants a node cordoned and empty.
func drain(n Node) Decision {
	why := "the node is to be cordoned and empty for its in-place update"
	if n.Cordoned {
		why = "the node is cordoned, and has to be empty for its in-place update"
	}
	return Decision{Step: Drain, Reason: vocabulary.ReasonDrainSuccessful, Message: "Node is cordoned and empty.", Why: why + since(n)}
}

// mayBegin reports whether a machine of this phase may be updated. An unhealthy one may: the update can be the cure.
func mayBegin(phase string) bool {
	return phase == vocabulary.PhaseRunning || phase == vocabulary.PhaseUnknown
}

// failed takes the agent's text for the message, also where that changes later.
func failed(n Node) Decision {
	message := cmp.Or(phrase.Message(n.FailedReason), "The agent on the node gave no reason.")
	if n.Reason == vocabulary.ReasonUpdateFailed && n.Message == message {
		return Decision{Why: "the in-place update of the node failed: " + message}
	}
	return says(vocabulary.ReasonUpdateFailed, message)
}

func says(reason, message string) Decision {
	return Decision{Step: Condition, Reason: reason, Message: message, Why: "the node is to say " + reason + ": " + message}
}

func since(n Node) string {
	return phrase.If(!n.Since.IsZero(), ", since %s", n.Since.UTC().Format(time.RFC3339))
}
