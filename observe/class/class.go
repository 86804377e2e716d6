// Package class derives facts for decide from a MachineClass, its machines and its Secrets.
package class

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	observecache "millwright/observe/cache"
)

// NamespaceObjects contains the objects of one namespace that determine the finalizers of the namespace's classes and
// Secrets.
type NamespaceObjects struct {
	Classes  []*v1alpha1.MachineClass
	Machines []*v1alpha1.Machine
	Secrets  []*metav1.PartialObjectMetadata
}

// ReadNamespaceObjects reads the objects of a namespace from the caches. If Secrets are not watched, the result has no
// Secrets.
func ReadNamespaceObjects(c *observecache.Cluster, namespace string) NamespaceObjects {
	n := NamespaceObjects{
		Classes: observecache.IndexedObjects[*v1alpha1.MachineClass](
			c.Informer(observecache.ClassesResource),
			cache.NamespaceIndex,
			namespace,
		),
		Machines: observecache.IndexedObjects[*v1alpha1.Machine](
			c.Informer(observecache.MachinesResource),
			cache.NamespaceIndex,
			namespace,
		),
	}
	if secrets := c.Informer(observecache.SecretsResource); secrets != nil && !c.WithoutSecretFinalizers {
		n.Secrets = observecache.IndexedObjects[*metav1.PartialObjectMetadata](secrets, cache.NamespaceIndex, namespace)
	}
	return n
}

// ReadLiveNamespaceObjects reads the objects of a namespace from the API server. ReadLiveNamespaceObjects reads only
// the metadata of Secrets.
func ReadLiveNamespaceObjects(
	ctx context.Context,
	c *observecache.Cluster,
	namespace string,
) (NamespaceObjects, error) {
	var n NamespaceObjects
	classes, err := c.Client().MachineV1alpha1().MachineClasses(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return n, fmt.Errorf("list classes of namespace %s: %w", namespace, err)
	}
	machines, err := c.Client().MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return n, fmt.Errorf("list machines of namespace %s: %w", namespace, err)
	}
	n.Classes, n.Machines = observecache.PointersToItems(classes.Items), observecache.PointersToItems(machines.Items)
	if c.Informer(observecache.SecretsResource) == nil || c.WithoutSecretFinalizers {
		return n, nil
	}
	secrets, err := c.SecretMetadataClient(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return n, fmt.Errorf("list metadata of secrets of namespace %s: %w", namespace, err)
	}
	n.Secrets = observecache.PointersToItems(secrets.Items)
	return n, nil
}

// Facts returns the facts from which decide derives the pending work of a class.
func Facts(class *v1alpha1.MachineClass, n NamespaceObjects) attention.ClassFacts {
	return attention.ClassFacts{
		Deleting:             class.DeletionTimestamp != nil,
		HasFinalizer:         observecache.HasFinalizer(class.Finalizers),
		MachineCount:         n.machineCount(class.Name),
		UnguardedSecretCount: len(n.SecretsWithoutFinalizer(class)),
		UnusedSecretCount:    len(n.UnusedSecrets()),
		ServingReported:      HasServedCondition(class),
		ReportedUnserved:     NoWorkerMessage(class) != "",
	}
}

// NoWorkerMessage returns the message in a class's status that no worker serves the class's provider. NoWorkerMessage
// is empty if a worker serves the provider, or if the status has no condition about a worker.
func NoWorkerMessage(class *v1alpha1.MachineClass) string {
	if c := meta.FindStatusCondition(class.Status.Conditions, v1alpha1.ClassServed); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c.Message
	}
	return ""
}

// HasServedCondition reports whether the status of a class has the condition Served, whether True or False.
func HasServedCondition(class *v1alpha1.MachineClass) bool {
	return meta.FindStatusCondition(class.Status.Conditions, v1alpha1.ClassServed) != nil
}

// ClassByUID returns the class with this UID; nil if there is no such class.
func (n NamespaceObjects) ClassByUID(uid string) *v1alpha1.MachineClass {
	i := slices.IndexFunc(n.Classes, func(class *v1alpha1.MachineClass) bool { return string(class.UID) == uid })
	if i < 0 {
		return nil
	}
	return n.Classes[i]
}

// SecretsWithoutFinalizer returns the Secrets that a class needs and that lack Millwright's finalizer, sorted by name.
// SecretsWithoutFinalizer leaves out Secrets that are being deleted, because the API server accepts no new finalizer on
// them.
func (n NamespaceObjects) SecretsWithoutFinalizer(class *v1alpha1.MachineClass) []*metav1.PartialObjectMetadata {
	if !n.needsSecrets(class) {
		return nil
	}
	return n.matchingSecrets(func(s *metav1.PartialObjectMetadata) bool {
		return !HasSecretFinalizer(s.Finalizers) && s.DeletionTimestamp == nil && refersToSecret(class, s.Namespace, s.Name)
	})
}

// UnusedSecrets returns the Secrets that have Millwright's finalizer and that no class needs, sorted by name.
func (n NamespaceObjects) UnusedSecrets() []*metav1.PartialObjectMetadata {
	return n.matchingSecrets(func(s *metav1.PartialObjectMetadata) bool {
		return HasSecretFinalizer(s.Finalizers) && !slices.ContainsFunc(n.Classes, func(class *v1alpha1.MachineClass) bool {
			return refersToSecret(class, s.Namespace, s.Name) && n.needsSecrets(class)
		})
	})
}

// ResourceVersions returns the newest resource versions of the objects in n.
func (n NamespaceObjects) ResourceVersions() observecache.MinVersions {
	versions := observecache.MinVersions{}
	for _, class := range n.Classes {
		versions.RaiseVersion(observecache.ClassesResource, class.ResourceVersion)
	}
	for _, m := range n.Machines {
		versions.RaiseVersion(observecache.MachinesResource, m.ResourceVersion)
	}
	for _, s := range n.Secrets {
		versions.RaiseVersion(observecache.SecretsResource, s.ResourceVersion)
	}
	return versions
}

// HasSecretFinalizer reports whether the list contains Millwright's finalizer for Secrets.
func HasSecretFinalizer(finalizers []string) bool {
	return slices.Contains(finalizers, v1alpha1.FinalizerSecret)
}

// needsSecrets reports whether Millwright must keep the Secrets of a class. A class that is being deleted and has no
// machines does not need its Secrets any more. If a deleted class needed its Secrets, two deleted classes with a common
// Secret would wait for each other.
func (n NamespaceObjects) needsSecrets(class *v1alpha1.MachineClass) bool {
	return class.DeletionTimestamp == nil || n.machineCount(class.Name) > 0
}

// machineCount counts the machines that refer to a class by name, including machines that are being deleted. The kind
// in the reference is ignored, because the provider's calls also find the class by name only.
func (n NamespaceObjects) machineCount(class string) int {
	count := 0
	for _, m := range n.Machines {
		if m.Spec.Class.Name == class {
			count++
		}
	}
	return count
}

// matchingSecrets returns the Secrets that meet the condition, sorted by name.
func (n NamespaceObjects) matchingSecrets(
	holds func(*metav1.PartialObjectMetadata) bool,
) []*metav1.PartialObjectMetadata {
	var found []*metav1.PartialObjectMetadata
	for _, s := range n.Secrets {
		if holds(s) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *metav1.PartialObjectMetadata) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// ClassesOfSecret returns the classes of all namespaces that refer to a Secret, unsorted.
func ClassesOfSecret(c *observecache.Cluster, namespace, name string) []*v1alpha1.MachineClass {
	var classes []*v1alpha1.MachineClass
	for _, class := range observecache.AllObjects[*v1alpha1.MachineClass](c.Informer(observecache.ClassesResource)) {
		if refersToSecret(class, namespace, name) {
			classes = append(classes, class)
		}
	}
	return classes
}

// SecretKeysOfClass returns the Secrets to which a class refers, without duplicates, including Secrets that do not
// exist. A reference without a namespace means the namespace of the class. The result includes references without a
// name.
func SecretKeysOfClass(class *v1alpha1.MachineClass) (keys []types.NamespacedName) {
	for _, ref := range []*corev1.SecretReference{class.SecretRef, class.CredentialsSecretRef} {
		if ref == nil {
			continue
		}
		key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, class.Namespace), Name: ref.Name}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// SecretAllowsNamespace reports whether classes of a namespace may use a Secret. The namespace of a Secret and the
// namespaces in the Secret's annotation may use the Secret.
func SecretAllowsNamespace(secret metav1.Object, namespace string) bool {
	allowed := strings.Split(secret.GetAnnotations()[v1alpha1.AnnotationAllowedClassNamespaces], ",")
	return secret.GetNamespace() == namespace || slices.ContainsFunc(allowed, func(name string) bool {
		name = strings.TrimSpace(name)
		return name == "*" || name == namespace
	})
}

// SecretKeysOfOtherNamespaces returns the Secrets of other namespaces to which a class refers, without duplicates.
func SecretKeysOfOtherNamespaces(class *v1alpha1.MachineClass) []types.NamespacedName {
	return slices.DeleteFunc(SecretKeysOfClass(class), func(key types.NamespacedName) bool {
		return key.Name == "" || key.Namespace == class.Namespace
	})
}

// VersionsText returns the cached versions of a class and of the Secrets to which it refers, as one text. Two provider
// calls with equal texts can share one read of the class and its Secrets. VersionsText is empty if a Secret is not in
// the caches.
func VersionsText(c *observecache.Cluster, class *v1alpha1.MachineClass) string {
	versions := VersionText(class)
	for _, key := range SecretKeysOfClass(class) {
		secret, found := c.Secret(key.String())
		if !found {
			return ""
		}
		versions += VersionText(secret)
	}
	return versions
}

// VersionText returns the part of VersionsText for one object.
func VersionText(o metav1.Object) string {
	return string(o.GetUID()) + "/" + o.GetResourceVersion() + " "
}

// refersToSecret reports whether one of a class's two references names this Secret.
func refersToSecret(class *v1alpha1.MachineClass, namespace, name string) bool {
	return slices.Contains(SecretKeysOfClass(class), types.NamespacedName{Namespace: namespace, Name: name})
}
