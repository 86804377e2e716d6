package capi

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// V1Beta1Condition describes a condition of the deprecated part of a status, which readers of version v1beta1 see.
type V1Beta1Condition struct {
	Type    clusterv1.ConditionType
	IsTrue  bool
	Reason  string // empty if IsTrue is true
	Message string
}

// NewV1Beta1Condition returns a condition of version v1beta1 with the status of a condition.
func NewV1Beta1Condition(kind clusterv1.ConditionType, from metav1.Condition) V1Beta1Condition {
	if from.Status == metav1.ConditionTrue {
		return V1Beta1Condition{Type: kind, IsTrue: true}
	}
	return V1Beta1Condition{Type: kind, Reason: from.Reason, Message: from.Message}
}

// V1Beta1Conditions returns the condition Ready of version v1beta1, and then the other conditions. Ready is True if all
// other conditions are True; otherwise Ready has the reason of the first condition that is not. The transition time of
// a condition changes only with the condition's status.
func V1Beta1Conditions(
	was clusterv1.Conditions,
	others []V1Beta1Condition,
	now metav1.Time,
) (all clusterv1.Conditions) {
	ready := V1Beta1Condition{IsTrue: true}
	if i := slices.IndexFunc(others, func(c V1Beta1Condition) bool { return !c.IsTrue }); i >= 0 {
		ready = others[i]
	}
	ready.Type = clusterv1.ReadyV1Beta1Condition
	for _, c := range append([]V1Beta1Condition{ready}, others...) {
		next := clusterv1.Condition{
			Type: c.Type, Status: corev1.ConditionTrue, LastTransitionTime: now, Reason: c.Reason, Message: c.Message,
		}
		if !c.IsTrue {
			next.Status, next.Severity = corev1.ConditionFalse, clusterv1.ConditionSeverityWarning
		}
		for _, before := range was {
			if before.Type == next.Type && before.Status == next.Status {
				next.LastTransitionTime = before.LastTransitionTime
			}
		}
		all = append(all, next)
	}
	return all
}
