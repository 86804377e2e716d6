package deployment

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/vocabulary"
	"millwright/observe/capi"
)

// v1Beta1Status returns the part of a status that readers of version v1beta1 see. It follows from the other parts of
// the status.
func v1Beta1Status(
	d *clusterv1.MachineDeployment,
	s *clusterv1.MachineDeploymentStatus,
	now metav1.Time,
) *clusterv1.MachineDeploymentDeprecatedStatus {
	var was clusterv1.Conditions
	if s.Deprecated != nil && s.Deprecated.V1Beta1 != nil {
		was = s.Deprecated.V1Beta1.Conditions
	}
	available := capi.NewV1Beta1Condition(
		clusterv1.MachineDeploymentAvailableV1Beta1Condition,
		capi.ConditionOfType(s.Conditions, vocabulary.ConditionAvailable),
	)
	if !available.IsTrue {
		available.Reason = clusterv1.WaitingForAvailableMachinesV1Beta1Reason
	}
	return &clusterv1.MachineDeploymentDeprecatedStatus{V1Beta1: &clusterv1.MachineDeploymentV1Beta1DeprecatedStatus{
		Conditions:          capi.V1Beta1Conditions(was, []capi.V1Beta1Condition{available}, now),
		UpdatedReplicas:     capi.ValueOrZero(s.UpToDateReplicas),
		ReadyReplicas:       capi.ValueOrZero(s.ReadyReplicas),
		AvailableReplicas:   capi.ValueOrZero(s.AvailableReplicas),
		UnavailableReplicas: max(0, capi.ValueOrZero(d.Spec.Replicas)-capi.ValueOrZero(s.AvailableReplicas)),
	}}
}
