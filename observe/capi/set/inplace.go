package set

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"millwright/observe/capi"
)

// UpdateMachineHook is the hook with which core asks a runtime extension to update a machine in place. Source: Cluster
// API.
const UpdateMachineHook = "UpdateMachine"

// ParseAnnotationList returns the comma-separated entries of an annotation; nil for an empty annotation. Source of the
// format: Cluster API.
func ParseAnnotationList(annotation string) []string {
	return strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' })
}

// AcknowledgesMove reports whether a set has acknowledged a machine that was moved to it for an in-place update: the
// size of the set then includes the machine.
func AcknowledgesMove(set *clusterv1.MachineSet, machine string) bool {
	return slices.Contains(ParseAnnotationList(set.Annotations[clusterv1.AcknowledgedMoveAnnotation]), machine)
}

// isUpdating reports whether an in-place update of a machine is running. The update starts with the move to another
// set, and ends when core has removed both annotations: UpdateInProgress and PendingHooks.
func isUpdating(m *clusterv1.Machine) bool {
	_, marked := m.Annotations[clusterv1.UpdateInProgressAnnotation]
	return marked || awaitsUpdateHook(m)
}

// awaitsUpdateHook reports whether core must call a runtime extension to update a machine.
func awaitsUpdateHook(m *clusterv1.Machine) bool {
	return slices.Contains(ParseAnnotationList(m.Annotations[runtimev1.PendingHooksAnnotation]), UpdateMachineHook)
}

// IsInPlaceUpdateDue reports whether a set must start the in-place update of a machine. Three conditions must be met:
// the machine was moved to the set for an update, core is not updating the machine yet, and the size of the set
// includes the machine. The third condition does not apply to a set without a deployment, because a person decides its
// size.
func IsInPlaceUpdateDue(m *clusterv1.Machine, set *clusterv1.MachineSet) bool {
	_, marked := m.Annotations[clusterv1.UpdateInProgressAnnotation]
	if !marked || awaitsUpdateHook(m) {
		return false
	}
	_, moved := m.Annotations[clusterv1.PendingAcknowledgeMoveAnnotation]
	owner := metav1.GetControllerOf(set)
	return !moved || owner == nil || !capi.IsDeploymentReference(*owner) || AcknowledgesMove(set, m.Name)
}

// MoveRejectionReason returns why the receiver does not accept the surplus machines of a set; empty if it accepts them.
// A nil receiver means that the receiving set does not exist.
func MoveRejectionReason(set, receiver *clusterv1.MachineSet) string {
	switch {
	case receiver == nil:
		return "it does not exist"
	case receiver.DeletionTimestamp != nil:
		return "it is being deleted"
	case receiver.Labels[clusterv1.MachineDeploymentUniqueLabel] == "":
		return "it has no label " + clusterv1.MachineDeploymentUniqueLabel
	case !slices.Contains(ParseAnnotationList(receiver.Annotations[clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation]), set.Name):
		return "it takes no machines of this set"
	default:
		return ""
	}
}
