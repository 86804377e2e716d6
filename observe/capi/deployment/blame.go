package deployment

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/rollout"
)

// isReplacedByPerson reports whether a person requested the replacement or the deletion of a machine.
func isReplacedByPerson(m *clusterv1.Machine) bool {
	_, remediate := m.Annotations[clusterv1.RemediateMachineAnnotation]
	_, deletion := m.Annotations[clusterv1.DeleteMachineAnnotation]
	return remediate || deletion
}

// wasHealthy reports whether the node of a machine was healthy once, as far as the conditions show. Kubelet of a lost
// node is silent, so that NodeReady is Unknown or the Node is deleted. A node that never became ready says False.
func wasHealthy(m *clusterv1.Machine) bool {
	if !m.Status.NodeRef.IsDefined() {
		return false
	}
	check := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition)
	ready := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineNodeReadyCondition)
	deleted := check != nil && check.Reason == clusterv1.MachineHealthCheckNodeDeletedReason
	return deleted || ready != nil && ready.Status != metav1.ConditionFalse
}

// denialOf returns why the cloud has never made the instance of a machine; empty if the instance exists. Cluster API
// does not say in a code why an infrastructure provider fails: only an equal Source shows that the template is not the
// reason.
func denialOf(m *clusterv1.Machine) rollout.Denial {
	if m.Spec.ProviderID != "" || m.Status.NodeRef.IsDefined() {
		return ""
	}
	return rollout.DeniedByQuota
}

// sourceOf returns the infrastructure template of a set, which has the account and the type of the instances.
func sourceOf(set *clusterv1.MachineSet) rollout.Source {
	ref := set.Spec.Template.Spec.InfrastructureRef
	template := ref.APIGroup + "/" + ref.Kind + "/" + ref.Name
	return rollout.Source{Account: template, Type: template}
}
