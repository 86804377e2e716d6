package observe

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/scale"
)

// Reports reports whether a set's status says what was counted and decided.
func Reports(set *v1alpha1.MachineSet, want scale.Status) bool {
	changed := set.DeepCopy()
	ApplySetStatus(&changed.Status, want, set.Status.LastOperation.LastUpdateTime)
	return sameSetStatus(&changed.Status, &set.Status)
}

func sameSetStatus(a, b *v1alpha1.MachineSetStatus) bool {
	return a.Replicas == b.Replicas && a.FullyLabeledReplicas == b.FullyLabeledReplicas && a.ReadyReplicas == b.ReadyReplicas &&
		a.AvailableReplicas == b.AvailableReplicas && a.UpToDateReplicas == b.UpToDateReplicas &&
		a.PreservedFailedReplicas == b.PreservedFailedReplicas && a.AutoPreserveFailedMachineCount == b.AutoPreserveFailedMachineCount &&
		a.PeakReplicas == b.PeakReplicas && a.Overshoot == b.Overshoot &&
		a.ObservedReplicas == b.ObservedReplicas &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(x, y v1alpha1.MachineSetCondition) bool {
			return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
		})
}

// ApplySetStatus makes a status say what scale.Report says. The time of a condition moves with its status. The sentence of
// ReplicaFailure stays while its reason does: another machine's is no news.
func ApplySetStatus(s *v1alpha1.MachineSetStatus, want scale.Status, now metav1.Time) {
	if c := want.Counts; c != nil {
		s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas = int32(c.Replicas), int32(c.Labelled), int32(c.Ready)
		s.AvailableReplicas, s.UpToDateReplicas = int32(c.Available), int32(c.UpToDate)
		s.PreservedFailedReplicas, s.AutoPreserveFailedMachineCount = int32(c.PreservedFailed), int32(c.AutoPreserved)
	}
	s.PeakReplicas, s.Overshoot, s.ObservedReplicas = int32(want.Peak), int32(want.Overshoot), int32(want.Seen)
	was := s.Conditions
	s.Conditions = make([]v1alpha1.MachineSetCondition, 0, len(want.Conditions))
	for _, c := range want.Conditions {
		next := v1alpha1.MachineSetCondition{
			Type: v1alpha1.MachineSetConditionType(c.Type), Status: v1alpha1.ConditionStatus(c.Status), Reason: c.Reason, Message: short(c.Message), LastTransitionTime: now,
		}
		if i := slices.IndexFunc(was, func(o v1alpha1.MachineSetCondition) bool { return o.Type == next.Type }); i >= 0 {
			if was[i].Status == next.Status {
				next.LastTransitionTime = was[i].LastTransitionTime
			}
			if next.Type == v1alpha1.MachineSetReplicaFailure && was[i].Reason == next.Reason {
				next.Message = was[i].Message
			}
		}
		s.Conditions = append(s.Conditions, next)
	}
}

// longestMessage bounds the message of a condition, in bytes. Source: an event has 1 KiB for one.
const longestMessage = 1000

func short(text string) string {
	if len(text) <= longestMessage {
		return text
	}
	return strings.ToValidUTF8(text[:longestMessage], "") + "…"
}
