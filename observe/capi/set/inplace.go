package set

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"millwright/observe/capi"
)

// UpdateMachineHook is the hook at which core calls a runtime extension to update a machine in place. Source: Cluster
// API.
const UpdateMachineHook = "UpdateMachine"

// List returns the entries of an annotation that separates them by commas; none for an empty one. Source of the form:
// Cluster API.
func List(annotation string) []string {
	return strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' })
}

// Acknowledges reports whether the size of a set counts a machine that was moved to it to be updated in place.
func Acknowledges(set *clusterv1.MachineSet, machine string) bool {
	return slices.Contains(List(set.Annotations[clusterv1.AcknowledgedMoveAnnotation]), machine)
}

// updating reports whether a machine is updated in place: from its move to another set until core has removed the last
// of both annotations.
func updating(m *clusterv1.Machine) bool {
	_, marked := m.Annotations[clusterv1.UpdateInProgressAnnotation]
	return marked || atHook(m)
}

// atHook reports whether core has to have a runtime extension update a machine.
func atHook(m *clusterv1.Machine) bool {
	return slices.Contains(List(m.Annotations[runtimev1.PendingHooksAnnotation]), UpdateMachineHook)
}

// UpdateDue reports whether a set has to begin the update in place of a machine: the machine was moved to it for that,
// core does not update it yet, and the size of the set counts it. The last does not matter for a set without a
// deployment, whose size a person decides.
func UpdateDue(m *clusterv1.Machine, set *clusterv1.MachineSet) bool {
	_, marked := m.Annotations[clusterv1.UpdateInProgressAnnotation]
	if !marked || atHook(m) {
		return false
	}
	_, moved := m.Annotations[clusterv1.PendingAcknowledgeMoveAnnotation]
	owner := metav1.GetControllerOf(set)
	return !moved || owner == nil || !capi.IsDeployment(*owner) || Acknowledges(set, m.Name)
}

// NoMove says why a set takes no machines of another one, which is to move its surplus there; empty: it takes them.
// receiver is nil if it does not exist.
func NoMove(set, receiver *clusterv1.MachineSet) string {
	switch {
	case receiver == nil:
		return "it does not exist"
	case receiver.DeletionTimestamp != nil:
		return "it is being deleted"
	case receiver.Labels[clusterv1.MachineDeploymentUniqueLabel] == "":
		return "it has no label " + clusterv1.MachineDeploymentUniqueLabel
	case !slices.Contains(List(receiver.Annotations[clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation]), set.Name):
		return "it takes no machines of this set"
	default:
		return ""
	}
}
