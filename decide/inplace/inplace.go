// Package inplace decides the next step of a node's in-place update. Three parties share the work of an in-place
// update. A rollout or a person labels the node. Millwright drains the node and sets the node's condition
// InPlaceUpdate. An agent on the node reads the condition, updates the node, and sets a label with the result.
package inplace

import (
	"cmp"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/phrase"
)

// Reasons why an in-place update has no next step.
const (
	updatedReason          = "the node was updated in place"
	withdrawnReason        = "the in-place update of the node was called off before it began; its cordon stays"
	wrongPhaseReasonPrefix = "the in-place update of the node does not begin in phase "
)

// Node holds the labels, annotations and condition of a node that belong to its in-place update. The zero Node means
// no update.
type Node struct {
	Candidate    bool      // the node has the label candidate-for-update
	Selected     bool      // the node has the label selected-for-update
	Result       string    // label update-result: successful or failed; other values count as no result
	FailedReason string    // value of the node's annotation update-failed-reason
	Reason       string    // reason of the condition InPlaceUpdate; empty: no condition
	Message      string    // message of the condition InPlaceUpdate
	Since        time.Time // since when the condition has its reason; zero: not known
	Cordoned     bool      // the node's spec.unschedulable is true
}

// Step is the next step of an in-place update.
type Step string

// The next steps of an in-place update. StepNothing means that no step is left, or that Millwright waits for the
// rollout, a person or the agent.
const (
	StepNothing          Step = ""
	StepWriteCondition   Step = "Condition" // write the condition that the labels request
	StepDrain            Step = "Drain"     // cordon and drain the node
	StepSetUpdatingPhase Step = "Update"    // set the machine's phase to InPlaceUpdating, because the node is empty
	StepStartAgent       Step = "Ready"     // write the condition that starts the agent, because the phase is set
)

// Decision is the next step of an in-place update. The zero Decision changes nothing.
type Decision struct {
	Step Step
	// new reason of the condition; the step Drain writes the reason when the node is empty, and the other steps write
	// it at once
	Reason  string
	Message string // new message of the condition InPlaceUpdate
	Why     string // reason for the step, in one sentence; may be set even if the step is Nothing
}

// Decide returns the next step of a machine in this phase. The step depends only on the node and the phase, so that an
// interrupted update continues where it stopped. Removed labels never reset the condition. A node becomes a candidate
// again only after a successful update, and after its result label was removed.
func Decide(n Node, phase string) Decision {
	switch n.Result {
	case vocabulary.ValueUpdateSuccessful:
		if n.Reason == vocabulary.ReasonUpdateSuccessful {
			return Decision{Why: updatedReason}
		}
		return conditionStep(vocabulary.ReasonUpdateSuccessful, "Node was updated.")
	case vocabulary.ValueUpdateFailed:
		return agentFailureStep(n)
	}
	switch n.Reason {
	case vocabulary.ReasonSelectedForUpdate:
		return selectedStep(n, phase)
	case vocabulary.ReasonDrainSuccessful, vocabulary.ReasonReadyForUpdate:
		return emptyNodeStep(n, phase)
	case vocabulary.ReasonUpdateFailed: // the agent can still set another result
		return Decision{Why: "the in-place update of the node failed: " + n.Message}
	case vocabulary.ReasonUpdateSuccessful:
		if n.Result != "" { // an unknown value
			return Decision{Why: updatedReason}
		}
	}
	return stepFromLabels(n)
}

// IsSelectionWithdrawn reports whether the labels were removed from a node that waits for its drain. The condition and
// the cordon stay, because Millwright cannot distinguish its own cordon from a person's cordon. The node is neither
// cordoned again nor updated until the labels are set again.
func (n Node) IsSelectionWithdrawn() bool {
	return n.Reason == vocabulary.ReasonSelectedForUpdate && !n.isUpdateRequested()
}

// isUpdateRequested reports whether the labels request the update now. Selected without Candidate is a mistake, and
// requests nothing.
func (n Node) isUpdateRequested() bool { return n.Candidate && n.Selected }

// stepFromLabels returns the step that follows from the labels of a node whose update has not begun.
func stepFromLabels(n Node) Decision {
	switch {
	case n.isUpdateRequested():
		return conditionStep(
			vocabulary.ReasonSelectedForUpdate,
			"Node is selected for an in-place update: it is cordoned, and has to be empty.",
		)
	case n.Candidate && n.Reason == vocabulary.ReasonCandidateForUpdate:
		return Decision{Why: "the node waits to be selected for its in-place update"}
	case n.Candidate:
		return conditionStep(vocabulary.ReasonCandidateForUpdate, "Node waits to be selected for an in-place update.")
	default:
		return Decision{}
	}
}

// selectedStep drains a selected node, unless the machine's phase does not allow the update.
func selectedStep(n Node, phase string) Decision {
	switch {
	case n.IsSelectionWithdrawn():
		return Decision{Why: withdrawnReason}
	case !mayBeginUpdate(phase) && phase != vocabulary.PhaseInPlaceUpdating:
		return Decision{Why: wrongPhaseReasonPrefix + phase}
	default:
		return drainStep(n)
	}
}

// emptyNodeStep continues the update of an empty node. Once the phase is InPlaceUpdating, the labels no longer matter.
// The update's timeout runs, and only the agent can stop the update. A node that was uncordoned in the meantime is
// drained again.
func emptyNodeStep(n Node, phase string) Decision {
	begun := phase == vocabulary.PhaseInPlaceUpdating
	switch {
	case begun && n.Reason == vocabulary.ReasonReadyForUpdate:
		return Decision{Why: "the agent on the node is to update it" + sinceText(n)}
	case !begun && !n.isUpdateRequested():
		return Decision{Why: withdrawnReason}
	case !begun && !mayBeginUpdate(phase):
		return Decision{Why: wrongPhaseReasonPrefix + phase}
	case n.Reason == vocabulary.ReasonDrainSuccessful && !n.Cordoned:
		return drainStep(n)
	case begun:
		return Decision{
			Step:    StepStartAgent,
			Reason:  vocabulary.ReasonReadyForUpdate,
			Message: "Node is empty: it may be updated.",
			Why:     "the node is empty; its agent may update it next",
		}
	default:
		return Decision{Step: StepSetUpdatingPhase, Why: "the node is empty, and its in-place update is to begin"}
	}
}

// drainStep cordons and drains the node.
func drainStep(n Node) Decision {
	why := "the node is to be cordoned and empty for its in-place update"
	if n.Cordoned {
		why = "the node is cordoned, and has to be empty for its in-place update"
	}
	return Decision{
		Step:    StepDrain,
		Reason:  vocabulary.ReasonDrainSuccessful,
		Message: "Node is cordoned and empty.",
		Why:     why + sinceText(n),
	}
}

// mayBeginUpdate reports whether the update may begin in this phase. An unhealthy machine may be updated, because the
// update can repair the machine.
func mayBeginUpdate(phase string) bool {
	return phase == vocabulary.PhaseRunning || phase == vocabulary.PhaseUnknown
}

// agentFailureStep copies the agent's reason to the condition's message. A changed reason is copied again.
func agentFailureStep(n Node) Decision {
	message := cmp.Or(phrase.TruncateMessage(n.FailedReason), "The agent on the node gave no reason.")
	if n.Reason == vocabulary.ReasonUpdateFailed && n.Message == message {
		return Decision{Why: "the in-place update of the node failed: " + message}
	}
	return conditionStep(vocabulary.ReasonUpdateFailed, message)
}

func conditionStep(reason, message string) Decision {
	return Decision{
		Step:    StepWriteCondition,
		Reason:  reason,
		Message: message,
		Why:     "the node's condition becomes " + reason + ": " + message,
	}
}

func sinceText(n Node) string {
	return phrase.TextIf(!n.Since.IsZero(), ", since %s", phrase.ClockText(n.Since, time.Time{}))
}
