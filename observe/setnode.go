package observe

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/preserve"
)

// NodeAsked returns the node that says, too, whether a failed machine is to be kept; nil for any other machine, and where
// nothing is known of its node.
func (a AroundSet) NodeAsked(m *v1alpha1.Machine) *corev1.Node {
	if a.Node == nil || m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed {
		return nil
	}
	return a.Node(m)
}

// keptByNode reports whether a failed machine is to be kept because its node asks for it, whether or not its own workflow has
// put that on record.
func (a AroundSet) keptByNode(m *v1alpha1.Machine) bool {
	node := a.NodeAsked(m)
	return node != nil && preserve.Protected(PreserveFacts(m, node, time.Time{}))
}
