package observe

import (
	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/inplace"
)

// InPlace says what a machine needs next for the in-place update of its node. Without a node (nil) there is nothing to
// update, and a machine that is to go is not updated any more. Nothing that it is given is changed.
func InPlace(m *v1alpha1.Machine, node *corev1.Node) inplace.Decision {
	if node == nil || m.DeletionTimestamp != nil {
		return inplace.Decision{}
	}
	return inplace.Decide(InPlaceNode(node), string(m.Status.CurrentStatus.Phase))
}

// InPlaceNode returns what a node says of its in-place update. A label counts with its exact value: to empty a node because
// of one that says "false" would be the worse mistake.
func InPlaceNode(node *corev1.Node) inplace.Node {
	n := inplace.Node{
		Candidate:    node.Labels[v1alpha1.LabelCandidateForUpdate] == v1alpha1.ValueLowerTrue,
		Selected:     node.Labels[v1alpha1.LabelSelectedForUpdate] == v1alpha1.ValueLowerTrue,
		Result:       node.Labels[v1alpha1.LabelUpdateResult],
		FailedReason: node.Annotations[v1alpha1.AnnotationUpdateFailedReason],
		Cordoned:     node.Spec.Unschedulable,
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1alpha1.NodeInPlaceUpdate {
			n.Reason, n.Message, n.Since = c.Reason, c.Message, c.LastTransitionTime.Time
		}
	}
	return n
}
