package deployment

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
)

// answer is the value of v1alpha1.AnnotationInPlaceAnswer.
type answer struct {
	Set      string      `json:"set"`              // UID of the set of the new template
	Possible bool        `json:"possible"`         // the extension can update the machines in place
	Failed   bool        `json:"failed,omitempty"` // the extension gave no answer
	Why      string      `json:"why,omitempty"`    // why it cannot, or why it gave no answer
	At       metav1.Time `json:"at"`               // when it was asked
}

// AnswerOf returns what an extension said about the machines of a set; the zero Answer if it was not asked, or the
// annotation cannot be read.
func AnswerOf(set *clusterv1.MachineSet) rollout.Answer {
	var a answer
	if json.Unmarshal([]byte(set.Annotations[v1alpha1.AnnotationInPlaceAnswer]), &a) != nil {
		return rollout.Answer{}
	}
	return rollout.Answer{Set: a.Set, Possible: a.Possible, Failed: a.Failed, Why: a.Why, At: a.At.Time}
}

// AnswerText returns an answer as the annotation holds it. Its time is in whole seconds.
func AnswerText(a rollout.Answer) string {
	// never fails
	text, _ := json.Marshal(
		answer{
			Set:      a.Set,
			Possible: a.Possible,
			Failed:   a.Failed,
			Why:      a.Why,
			At:       metav1.NewTime(a.At.Truncate(time.Second)),
		},
	)
	return string(text)
}

// The annotations of a set about machines that move between sets. Source: Cluster API.
const (
	moveTo       = clusterv1.MachineSetMoveMachinesToMachineSetAnnotation
	receiveFrom  = clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation
	acknowledged = clusterv1.AcknowledgedMoveAnnotation
)

// TransferOf returns what the annotations of a set say about machines that move between sets.
func TransferOf(set *clusterv1.MachineSet) rollout.Transfer {
	return rollout.Transfer{
		To:           set.Annotations[moveTo],
		From:         set.Annotations[receiveFrom],
		Acknowledged: set.Annotations[acknowledged],
	}
}

// TransferPatch returns the annotations for a transfer, as part of a merge patch: nil removes one.
func TransferPatch(t rollout.Transfer) map[string]any {
	patch := map[string]any{moveTo: nil, receiveFrom: nil, acknowledged: nil}
	for key, value := range map[string]string{moveTo: t.To, receiveFrom: t.From, acknowledged: t.Acknowledged} {
		if value != "" {
			patch[key] = value
		}
	}
	return patch
}
