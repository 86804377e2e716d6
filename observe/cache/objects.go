package cache

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
)

// NodeNameOf returns the name of a machine's node; empty while it has none. The status has the name that is proven, by
// the provider or by the node's provider ID. Without one the label counts, which a machine of another controller or from
// a backup has: whether the node of that name is the machine's is another question; see Cluster.WhoseNode.
func NodeNameOf(m *v1alpha1.Machine) string {
	return cmp.Or(m.Status.NodeName, m.Labels[v1alpha1.LabelNode])
}

// UnnamedInstanceOf returns the provider ID of a machine that does not know the name of its node; empty for all others.
func UnnamedInstanceOf(m *v1alpha1.Machine) string {
	if NodeNameOf(m) != "" {
		return ""
	}
	return m.Spec.ProviderID
}

// NodeOf returns the node that a machine names, from the cache; nil when there is none.
func (c *Cluster) NodeOf(m *v1alpha1.Machine) *corev1.Node {
	node, _ := c.Node(NodeNameOf(m))
	return node
}

// ClassOf returns the class of a machine, from the cache; nil when there is none.
func (c *Cluster) ClassOf(m *v1alpha1.Machine) *v1alpha1.MachineClass {
	class, _ := c.Class(m.Namespace + "/" + m.Spec.Class.Name)
	return class
}

// HasFinalizer reports whether the list contains Millwright's finalizer of machine objects.
func HasFinalizer(finalizers []string) bool {
	return slices.Contains(finalizers, v1alpha1.FinalizerMachine)
}

// IsOrphaning reports whether an object is being deleted with --cascade=orphan, and the garbage collector of
// kube-controller-manager has not yet removed the owner references of all objects that it owns: its finalizer goes
// last.
func IsOrphaning(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents)
}

// IsFree reports whether an owner of this kind may adopt an object: the object has no controller, or its reference
// names an owner of the same kind and name with another UID, as after a restore. That owner is gone: names are unique,
// and this owner has the name now. So the owner must exist.
func IsFree(o, owner metav1.Object, kind string) bool {
	ref := metav1.GetControllerOf(o)
	if ref == nil {
		return true
	}
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	return group == v1alpha1.SchemeGroupVersion.Group && ref.Kind == kind && ref.Name == owner.GetName() &&
		ref.UID != owner.GetUID()
}

// TimeOf returns a time; zero for nil.
func TimeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// IsFrozen reports whether the label freeze keeps a set or deployment from creating machines, and no annotation has
// ended that.
func IsFrozen(o metav1.Object) bool {
	_, ended := o.GetAnnotations()[v1alpha1.AnnotationUnfreeze]
	return o.GetLabels()[v1alpha1.LabelFreeze] == v1alpha1.ValueTrue && !ended
}

// TimeIn parses an RFC 3339 time; zero when the text is none.
func TimeIn(text string) time.Time {
	at, _ := time.Parse(time.RFC3339, text)
	return at
}

// IsTrue reports whether a condition has the status True.
func IsTrue(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) bool {
	c := Condition(conditions, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Condition returns the condition of a type; nil when there is none.
func Condition(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// HasTaint reports whether a node has a taint with this key.
func HasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}
