package set

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/vocabulary"
	"millwright/observe/capi"
)

// v1Beta1Status returns the part of a status that readers of version v1beta1 see. It follows from the other parts of
// the status.
func v1Beta1Status(s *clusterv1.MachineSetStatus, now metav1.Time) *clusterv1.MachineSetDeprecatedStatus {
	var was clusterv1.Conditions
	if s.Deprecated != nil && s.Deprecated.V1Beta1 != nil {
		was = s.Deprecated.V1Beta1.Conditions
	}
	resized := capi.V1Beta1Condition{Type: clusterv1.ResizedV1Beta1Condition, IsTrue: true}
	up := capi.ConditionOfType(s.Conditions, vocabulary.ConditionScalingUp)
	down := capi.ConditionOfType(s.Conditions, vocabulary.ConditionScalingDown)
	switch {
	case up.Status == metav1.ConditionTrue:
		resized.IsTrue, resized.Reason, resized.Message = false, clusterv1.ScalingUpV1Beta1Reason, up.Message
	case down.Status == metav1.ConditionTrue:
		resized.IsTrue, resized.Reason, resized.Message = false, clusterv1.ScalingDownV1Beta1Reason, down.Message
	}
	return &clusterv1.MachineSetDeprecatedStatus{V1Beta1: &clusterv1.MachineSetV1Beta1DeprecatedStatus{
		Conditions: capi.V1Beta1Conditions(was, []capi.V1Beta1Condition{
			capi.NewV1Beta1Condition(
				clusterv1.MachinesCreatedV1Beta1Condition,
				capi.ConditionOfType(s.Conditions, vocabulary.ConditionMachinesCreated),
			),
			resized,
			capi.NewV1Beta1Condition(
				clusterv1.MachinesReadyV1Beta1Condition,
				capi.ConditionOfType(s.Conditions, vocabulary.ConditionMachinesReady),
			),
		}, now),
		FullyLabeledReplicas: capi.ValueOrZero(s.Replicas),
		ReadyReplicas:        capi.ValueOrZero(s.ReadyReplicas),
		AvailableReplicas:    capi.ValueOrZero(s.AvailableReplicas),
	}}
}
