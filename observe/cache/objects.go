package cache

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
)

// NodeOf returns the node of a machine from the cache: the one that its label names. Nil when there is none.
func (c *Cluster) NodeOf(m *v1alpha1.Machine) *corev1.Node {
	node, _ := c.Node(m.Labels[v1alpha1.LabelNode]) // none has an empty name
	return node
}

// HasFinalizer reports whether our finalizer is among these.
func HasFinalizer(finalizers []string) bool {
	return slices.Contains(finalizers, v1alpha1.FinalizerMachine)
}

// TimeOf returns a time; zero for nil.
func TimeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// IsFrozen reports whether a set or deployment makes no machine for safety, and nobody has said otherwise.
func IsFrozen(o metav1.Object) bool {
	_, ended := o.GetAnnotations()[v1alpha1.AnnotationUnfreeze]
	return o.GetLabels()[v1alpha1.LabelFreeze] == v1alpha1.ValueTrue && !ended
}

// TimeIn reads an RFC 3339 time; zero where the text is none.
func TimeIn(text string) time.Time {
	at, _ := time.Parse(time.RFC3339, text)
	return at
}

// IsTrue reports whether a condition stands at True.
func IsTrue(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) bool {
	return slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

// HasTaint reports whether a node has a taint of a key.
func HasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}
