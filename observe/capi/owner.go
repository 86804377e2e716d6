package capi

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// WithMetadata returns a clone with these labels and annotations, and without the former labels and annotations of its
// set (see MachineFieldManagers). Labels and annotations of other writers stay, and so does the annotation of an in-place
// update, which Cluster API's core removes. The argument stays unchanged.
func WithMetadata(clone *unstructured.Unstructured, labels, annotations map[string]string) *unstructured.Unstructured {
	ownLabels, ownAnnotations := FieldsOwnedBy(clone, MachineFieldManagers()).AppliedKeys()
	ownAnnotations = slices.DeleteFunc(
		ownAnnotations,
		func(key string) bool { return key == clusterv1.UpdateInProgressAnnotation },
	)
	next := clone.DeepCopy()
	next.SetLabels(UpdateEntries(clone.GetLabels(), labels, ownLabels))
	next.SetAnnotations(UpdateEntries(clone.GetAnnotations(), annotations, ownAnnotations))
	return next
}

// IsReconciledByOtherController reports whether another controller also reconciles an object of Millwright. Such an
// object has Millwright's finalizer and also Cluster API's finalizer for its kind, which the caller passes.
func IsReconciledByOtherController(o metav1.Object, finalizer string) bool {
	return slices.Contains(o.GetFinalizers(), Finalizer) && slices.Contains(o.GetFinalizers(), finalizer)
}

// ClusterOwnerReference returns the owner reference to a Cluster.
func ClusterOwnerReference(cluster *clusterv1.Cluster) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(),
		Kind:       "Cluster",
		Name:       cluster.Name,
		UID:        cluster.UID,
	}
}

// WithoutCluster removes the owner references to a Cluster from a list.
func WithoutCluster(refs []metav1.OwnerReference) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(refs), func(ref metav1.OwnerReference) bool {
		return ref.Kind == "Cluster" && strings.HasPrefix(ref.APIVersion, clusterv1.GroupVersion.Group+"/")
	})
}

// WithOwner adds an owner reference to a list, unless the list contains it. WithOwner replaces an owner reference with
// the same UID and another version.
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

// AreEqualSets reports whether two states of a set are equal.
func AreEqualSets(a, b *clusterv1.MachineSet) bool { return equality.Semantic.DeepEqual(a, b) }

// HasOwner reports whether an object has an owner reference with this UID.
func HasOwner(o metav1.Object, uid string) bool {
	return slices.ContainsFunc(
		o.GetOwnerReferences(),
		func(ref metav1.OwnerReference) bool { return string(ref.UID) == uid },
	)
}

// IsOwnedByMachine reports whether a Machine of Cluster API owns an object.
func IsOwnedByMachine(o metav1.Object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.Kind == "Machine" && strings.HasPrefix(ref.APIVersion, clusterv1.GroupVersion.Group+"/")
	})
}

// UnownedTemplates returns the templates that lack the owner reference to their Cluster, or the Cluster's label. Without
// a Cluster, the result is empty.
func UnownedTemplates(cluster *clusterv1.Cluster, templates []ProviderObject) (all []ProviderObject) {
	if cluster == nil {
		return nil
	}
	for _, f := range templates {
		if f.Object != nil &&
			(!HasOwner(f.Object, string(cluster.UID)) || f.Object.GetLabels()[clusterv1.ClusterNameLabel] != cluster.Name) {
			all = append(all, f)
		}
	}
	return all
}

// WithClusterOwner returns a template with the owner reference to its Cluster and the Cluster's label. A deletion of the
// Cluster then deletes the template, and clusterctl move moves it. The argument stays unchanged.
func WithClusterOwner(template *unstructured.Unstructured, cluster *clusterv1.Cluster) *unstructured.Unstructured {
	owned := template.DeepCopy()
	owned.SetOwnerReferences(WithOwner(template.GetOwnerReferences(), ClusterOwnerReference(cluster)))
	label := map[string]string{clusterv1.ClusterNameLabel: cluster.Name}
	owned.SetLabels(UpdateEntries(template.GetLabels(), label, nil))
	return owned
}
