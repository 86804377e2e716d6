package deployment

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/rollout"
	"millwright/decide/scale"
	capiset "millwright/observe/capi/set"
)

// isReplacementRequested reports whether a person requested the replacement or the deletion of a machine.
func isReplacementRequested(m *clusterv1.Machine) bool {
	_, remediate := m.Annotations[clusterv1.RemediateMachineAnnotation]
	_, deletion := m.Annotations[clusterv1.DeleteMachineAnnotation]
	return remediate || deletion
}

// hasFailedHealthCheck reports whether the health check of a machine failed. While a machine is being deleted, it
// counts as failed only if its set deletes it because of the health check: any other deletion makes the node unhealthy,
// too.
func hasFailedHealthCheck(seen scale.Member, m *clusterv1.Machine) bool {
	reason, _ := capiset.RemediationReason(m)
	remediated := reason == clusterv1.MachineSetMachineRemediationMachineDeletingReason
	return seen.Healthy == scale.ConditionFalse && (!seen.Deleting || remediated)
}

// wasHealthy reports whether the node of a machine was healthy once, as far as the conditions show. If a node is lost,
// its kubelet reports nothing, so NodeReady is Unknown or the Node is deleted. If a node never became ready, NodeReady
// is False.
func wasHealthy(m *clusterv1.Machine) bool {
	if wasAvailable(m) {
		return true
	}
	if !m.Status.NodeRef.IsDefined() {
		return false
	}
	check := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition)
	ready := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineNodeReadyCondition)
	deleted := check != nil && check.Reason == clusterv1.MachineHealthCheckNodeDeletedReason
	return deleted || ready != nil && ready.Status != metav1.ConditionFalse
}

// wasAvailable reports whether a machine is or was available. When Cluster API first sees a machine, it writes
// Available, Deleting and Updating, all False, within one second. Available is never Unknown, so a later transition of
// Available to False shows that it was True. While a machine is being deleted, only Updating still has the transition
// time of this first write.
func wasAvailable(m *clusterv1.Machine) bool {
	available := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineAvailableCondition)
	if available == nil || available.Status == metav1.ConditionTrue {
		return available != nil
	}
	for _, kind := range []string{clusterv1.MachineDeletingCondition, clusterv1.MachineUpdatingCondition} {
		first := meta.FindStatusCondition(m.Status.Conditions, kind)
		if first != nil && available.LastTransitionTime.After(first.LastTransitionTime.Add(time.Second)) {
			return true
		}
	}
	return false
}

// creationDenial returns why the cloud has not created the instance of a machine; empty if the instance exists. Cluster
// API has no code for the reason why an infrastructure provider fails, so the template may be the reason.
func creationDenial(m *clusterv1.Machine) rollout.DenialReason {
	if m.Spec.ProviderID != "" || m.Status.NodeRef.IsDefined() {
		return ""
	}
	return rollout.DeniedByTemplate
}

// sourceOfSet returns the infrastructure template of a set. Cluster API has no fields for the account and the instance
// type of this template.
func sourceOfSet(set *clusterv1.MachineSet) rollout.InstanceSource {
	ref := set.Spec.Template.Spec.InfrastructureRef
	return rollout.InstanceSource{Object: ref.APIGroup + "/" + ref.Kind + "/" + ref.Name}
}
