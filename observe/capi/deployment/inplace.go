package deployment

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
)

// answerAnnotation is the value of v1alpha1.AnnotationInPlaceAnswer.
type answerAnnotation struct {
	SetUID           string      `json:"set"`              // UID of the set with the new template
	IsUpdatePossible bool        `json:"possible"`         // the extension can update the machines in place
	HasNoAnswer      bool        `json:"failed,omitempty"` // the extension gave no answer
	Message          string      `json:"why,omitempty"`    // why the extension cannot update, or gave no answer
	RequestedAt      metav1.Time `json:"at"`               // time when Millwright asked the extension
}

// ExtensionAnswer returns the answer of an extension about the machines of a set; the zero Answer if there is no
// answer, or the annotation does not parse.
func ExtensionAnswer(set *clusterv1.MachineSet) rollout.ExtensionAnswer {
	var a answerAnnotation
	if json.Unmarshal([]byte(set.Annotations[v1alpha1.AnnotationInPlaceAnswer]), &a) != nil {
		return rollout.ExtensionAnswer{}
	}
	return rollout.ExtensionAnswer{
		TargetSetUID: a.SetUID,
		Possible:     a.IsUpdatePossible,
		Failed:       a.HasNoAnswer,
		Why:          a.Message,
		RequestedAt:  a.RequestedAt.Time,
	}
}

// ExtensionAnswerText returns the annotation value for an answer. The time in the annotation is in whole seconds.
func ExtensionAnswerText(a rollout.ExtensionAnswer) string {
	// Marshal cannot fail for an answerAnnotation.
	text, _ := json.Marshal(
		answerAnnotation{
			SetUID:           a.TargetSetUID,
			IsUpdatePossible: a.Possible,
			HasNoAnswer:      a.Failed,
			Message:          a.Why,
			RequestedAt:      metav1.NewTime(a.RequestedAt.Truncate(time.Second)),
		},
	)
	return string(text)
}

// The annotations of a set for moves of machines between sets. Source: Cluster API.
const (
	moveToAnnotation           = clusterv1.MachineSetMoveMachinesToMachineSetAnnotation
	receiveFromAnnotation      = clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation
	acknowledgedMoveAnnotation = clusterv1.AcknowledgedMoveAnnotation
)

// MachineTransfer returns the moves of machines between sets according to the annotations of a set.
func MachineTransfer(set *clusterv1.MachineSet) rollout.MachineTransfer {
	return rollout.MachineTransfer{
		To:           set.Annotations[moveToAnnotation],
		From:         set.Annotations[receiveFromAnnotation],
		Acknowledged: set.Annotations[acknowledgedMoveAnnotation],
	}
}

// TransferPatch returns the annotations for a transfer, as part of a merge patch; a nil value removes an annotation.
func TransferPatch(t rollout.MachineTransfer) map[string]any {
	patch := map[string]any{moveToAnnotation: nil, receiveFromAnnotation: nil, acknowledgedMoveAnnotation: nil}
	for key, value := range map[string]string{moveToAnnotation: t.To, receiveFromAnnotation: t.From, acknowledgedMoveAnnotation: t.Acknowledged} {
		if value != "" {
			patch[key] = value
		}
	}
	return patch
}
