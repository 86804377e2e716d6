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

// NodeNameOfMachine returns the name of a machine's node; empty if the machine has no node name. The name in the status
// is confirmed by the provider, or by the node's provider ID. If the status has no name, NodeNameOfMachine returns the
// name in the machine's label, for example for a machine from another controller or from a backup. The label does not
// prove that the machine owns the node; see Cluster.OwnerOfNode.
func NodeNameOfMachine(m *v1alpha1.Machine) string {
	return cmp.Or(m.Status.NodeName, m.Labels[v1alpha1.LabelNode])
}

// UnnamedNodeProviderID returns the provider ID of a machine that has no node name; empty for all other machines.
func UnnamedNodeProviderID(m *v1alpha1.Machine) string {
	if NodeNameOfMachine(m) != "" {
		return ""
	}
	return m.Spec.ProviderID
}

// NodeOfMachine returns the node that a machine names, from the cache; nil if the cache has no such node.
func (c *Cluster) NodeOfMachine(m *v1alpha1.Machine) *corev1.Node {
	return c.Target(m.Namespace).NodeOfMachine(m)
}

// ClassOfMachine returns the class of a machine, from the cache; nil if the cache has no such class.
func (c *Cluster) ClassOfMachine(m *v1alpha1.Machine) *v1alpha1.MachineClass {
	class, _ := c.Class(m.Namespace + "/" + m.Spec.Class.Name)
	return class
}

// HasFinalizer reports whether the list contains Millwright's finalizer for machine objects.
func HasFinalizer(finalizers []string) bool {
	return slices.Contains(finalizers, v1alpha1.FinalizerMachine)
}

// IsOrphaning reports whether an object is being deleted with --cascade=orphan, and kube-controller-manager's garbage
// collector has not yet removed the owner references of all dependents. The garbage collector removes the finalizer
// last.
func IsOrphaning(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents)
}

// CanBeAdopted reports whether an owner of this kind may adopt an object: the object has no controller, or its
// controller reference has the owner's kind and name but another UID, for example after a restore. The controller with
// that other UID no longer exists, because names are unique and this owner has the name now. CanBeAdopted therefore
// requires that the owner exists.
func CanBeAdopted(o, owner metav1.Object, kind string) bool {
	ref := metav1.GetControllerOf(o)
	if ref == nil {
		return true
	}
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	return group == v1alpha1.SchemeGroupVersion.Group && ref.Kind == kind && ref.Name == owner.GetName() &&
		ref.UID != owner.GetUID()
}

// TimeOrZero returns the time that t points to; the zero time for nil.
func TimeOrZero(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// IsFrozen reports whether the label freeze stops a set or deployment from creating machines, and no annotation
// unfreeze overrides the label.
func IsFrozen(o metav1.Object) bool {
	_, ended := o.GetAnnotations()[v1alpha1.AnnotationUnfreeze]
	return o.GetLabels()[v1alpha1.LabelFreeze] == v1alpha1.ValueTrue && !ended
}

// ParseTimeOrZero parses an RFC 3339 time; zero if the text does not parse.
func ParseTimeOrZero(text string) time.Time {
	at, _ := time.Parse(time.RFC3339, text)
	return at
}

// IsConditionTrue reports whether the condition of this type has the status True.
func IsConditionTrue(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) bool {
	c := FindNodeCondition(conditions, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

// FindNodeCondition returns the condition of this type; nil if the list has no such condition.
func FindNodeCondition(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) *corev1.NodeCondition {
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
