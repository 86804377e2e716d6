package capi

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/scale"
)

// ClusterReference is the owner reference to a Cluster.
func ClusterReference(cluster *clusterv1.Cluster) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(),
		Kind:       "Cluster",
		Name:       cluster.Name,
		UID:        cluster.UID,
	}
}

// WithOwner returns the owner references with one more, unless it is there. One with the same UID and another version
// is replaced.
func WithOwner(refs []metav1.OwnerReference, owner metav1.OwnerReference) []metav1.OwnerReference {
	refs = slices.DeleteFunc(
		slices.Clone(refs),
		func(ref metav1.OwnerReference) bool { return ref.UID == owner.UID && ref != owner },
	)
	if slices.Contains(refs, owner) {
		return refs
	}
	return append(refs, owner)
}

// SameObject reports whether two states of a set are equal.
func SameObject(a, b *clusterv1.MachineSet) bool { return equality.Semantic.DeepEqual(a, b) }

// Owned reports whether an object has an owner of this UID.
func Owned(o metav1.Object, uid string) bool {
	return slices.ContainsFunc(
		o.GetOwnerReferences(),
		func(ref metav1.OwnerReference) bool { return string(ref.UID) == uid },
	)
}

// OwnedByMachine reports whether a machine of Cluster API owns an object.
func OwnedByMachine(o metav1.Object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.Kind == "Machine" && strings.HasPrefix(ref.APIVersion, clusterv1.GroupVersion.Group+"/")
	})
}

// Unowned returns the templates of a set that lack the owner reference to its Cluster, or the label of its Cluster.
func Unowned(around Around) (all []Foreign) {
	if around.Cluster == nil {
		return nil
	}
	for _, f := range around.Templates {
		if f.Object != nil &&
			(!Owned(f.Object, string(around.Cluster.UID)) || f.Object.GetLabels()[clusterv1.ClusterNameLabel] != around.Cluster.Name) {
			all = append(all, f)
		}
	}
	return all
}

// Unremarked returns the machines whose condition OwnerRemediated does not say why their set does not replace them yet.
// Why of each is what it should say.
func Unremarked(around Around, plan scale.Planned) (machines []scale.Target, reason string) {
	if reason = clusterv1.MachineSetMachineRemediationDeferredReason; plan.Outdated {
		reason = clusterv1.MachineSetMachineCannotBeRemediatedReason
	}
	for _, target := range plan.Postponed {
		for _, m := range around.Members {
			if said, message := Remark(m); m.Name == target.Name && (said != reason || message != target.Why) {
				machines = append(machines, target)
			}
		}
	}
	return machines, reason
}
