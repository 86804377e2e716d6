// Package class turns a MachineClass, its machines and its Secrets into facts for decide.
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

// Neighbours are the objects of one namespace on which the finalizers of its classes and Secrets depend.
type Neighbours struct {
	Classes  []*v1alpha1.MachineClass
	Machines []*v1alpha1.Machine
	Secrets  []*metav1.PartialObjectMetadata
}

// Read returns the neighbours of a namespace from the caches. Secrets that are not watched are left out.
func Read(c *observecache.Cluster, namespace string) Neighbours {
	n := Neighbours{
		Classes: observecache.Indexed[*v1alpha1.MachineClass](
			c.Informer(observecache.Classes),
			cache.NamespaceIndex,
			namespace,
		),
		Machines: observecache.Indexed[*v1alpha1.Machine](c.Informer(observecache.Machines), cache.NamespaceIndex, namespace),
	}
	if secrets := c.Informer(observecache.Secrets); secrets != nil && !c.Unguarded {
		n.Secrets = observecache.Indexed[*metav1.PartialObjectMetadata](secrets, cache.NamespaceIndex, namespace)
	}
	return n
}

// ReadLive reads the neighbours of a namespace from the API server, of Secrets only the metadata.
func ReadLive(ctx context.Context, c *observecache.Cluster, namespace string) (Neighbours, error) {
	var n Neighbours
	classes, err := c.Client().MachineV1alpha1().MachineClasses(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return n, fmt.Errorf("list classes of namespace %s: %w", namespace, err)
	}
	machines, err := c.Client().MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return n, fmt.Errorf("list machines of namespace %s: %w", namespace, err)
	}
	n.Classes, n.Machines = observecache.Pointers(classes.Items), observecache.Pointers(machines.Items)
	if c.Informer(observecache.Secrets) == nil || c.Unguarded {
		return n, nil
	}
	secrets, err := c.SecretMetadata(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return n, fmt.Errorf("list metadata of secrets of namespace %s: %w", namespace, err)
	}
	n.Secrets = observecache.Pointers(secrets.Items)
	return n, nil
}

// Facts returns the facts from which the pending work of a class is decided.
func Facts(class *v1alpha1.MachineClass, n Neighbours) attention.ClassFacts {
	return attention.ClassFacts{
		Deleting:         class.DeletionTimestamp != nil,
		Finalizer:        observecache.HasFinalizer(class.Finalizers),
		Machines:         n.machines(class.Name),
		Unguarded:        len(n.Unguarded(class)),
		Unused:           len(n.Unused()),
		Reported:         SaysServed(class),
		ReportedUnserved: Unserved(class) != "",
	}
}

// Unserved returns what the status of a class says of a provider that no worker serves; empty: a worker serves it, or
// that is not known.
func Unserved(class *v1alpha1.MachineClass) string {
	if c := meta.FindStatusCondition(class.Status.Conditions, v1alpha1.ClassServed); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c.Message
	}
	return ""
}

// SaysServed reports whether the status of a class says whether a worker serves its provider, be it yes or no.
func SaysServed(class *v1alpha1.MachineClass) bool {
	return meta.FindStatusCondition(class.Status.Conditions, v1alpha1.ClassServed) != nil
}

// Class returns the class with this UID; nil when there is none.
func (n Neighbours) Class(uid string) *v1alpha1.MachineClass {
	i := slices.IndexFunc(n.Classes, func(class *v1alpha1.MachineClass) bool { return string(class.UID) == uid })
	if i < 0 {
		return nil
	}
	return n.Classes[i]
}

// Unguarded returns the Secrets that a class needs and that lack our finalizer, sorted by name. A Secret that is being
// deleted can get no finalizer any more.
func (n Neighbours) Unguarded(class *v1alpha1.MachineClass) []*metav1.PartialObjectMetadata {
	if !n.inUse(class) {
		return nil
	}
	return n.secrets(func(s *metav1.PartialObjectMetadata) bool {
		return !GuardsSecret(s.Finalizers) && s.DeletionTimestamp == nil && refersTo(class, s.Namespace, s.Name)
	})
}

// Unused returns the Secrets that have our finalizer and that no class needs, sorted by name.
func (n Neighbours) Unused() []*metav1.PartialObjectMetadata {
	return n.secrets(func(s *metav1.PartialObjectMetadata) bool {
		return GuardsSecret(s.Finalizers) && !slices.ContainsFunc(n.Classes, func(class *v1alpha1.MachineClass) bool {
			return refersTo(class, s.Namespace, s.Name) && n.inUse(class)
		})
	})
}

// Versions returns the newest resource versions of the objects that were read.
func (n Neighbours) Versions() observecache.MinVersions {
	versions := observecache.MinVersions{}
	for _, class := range n.Classes {
		versions.Raise(observecache.Classes, class.ResourceVersion)
	}
	for _, m := range n.Machines {
		versions.Raise(observecache.Machines, m.ResourceVersion)
	}
	for _, s := range n.Secrets {
		versions.Raise(observecache.Secrets, s.ResourceVersion)
	}
	return versions
}

// GuardsSecret reports whether the list contains Millwright's finalizer of Secrets.
func GuardsSecret(finalizers []string) bool {
	return slices.Contains(finalizers, v1alpha1.FinalizerSecret)
}

// inUse reports whether a class still needs its Secrets. A class that is being deleted and has no machine does not,
// even before it is gone: otherwise two such classes with one Secret would wait for each other.
func (n Neighbours) inUse(class *v1alpha1.MachineClass) bool {
	return class.DeletionTimestamp == nil || n.machines(class.Name) > 0
}

// machines counts the machines that refer to a class by its name, including those that are being deleted. A provider's
// calls find the class by its name too, whatever kind the machine says.
func (n Neighbours) machines(class string) int {
	count := 0
	for _, m := range n.Machines {
		if m.Spec.Class.Name == class {
			count++
		}
	}
	return count
}

// secrets returns the Secrets for which the condition holds, sorted by name.
func (n Neighbours) secrets(holds func(*metav1.PartialObjectMetadata) bool) []*metav1.PartialObjectMetadata {
	var found []*metav1.PartialObjectMetadata
	for _, s := range n.Secrets {
		if holds(s) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *metav1.PartialObjectMetadata) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// ClassesOfSecret returns the classes of all namespaces that name a Secret, in no order.
func ClassesOfSecret(c *observecache.Cluster, namespace, name string) []*v1alpha1.MachineClass {
	var classes []*v1alpha1.MachineClass
	for _, class := range observecache.All[*v1alpha1.MachineClass](c.Informer(observecache.Classes)) {
		if refersTo(class, namespace, name) {
			classes = append(classes, class)
		}
	}
	return classes
}

// SecretsOf returns the Secrets that a class names, each once, whether they exist or not. A reference without a
// namespace means that of the class. One without a name is returned, too.
func SecretsOf(class *v1alpha1.MachineClass) (keys []types.NamespacedName) {
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

// Allows reports whether classes of a namespace may use a Secret: those of its own namespace, and those that its
// annotation allows.
func Allows(secret metav1.Object, namespace string) bool {
	allowed := strings.Split(secret.GetAnnotations()[v1alpha1.AnnotationAllowedClassNamespaces], ",")
	return secret.GetNamespace() == namespace || slices.ContainsFunc(allowed, func(name string) bool {
		name = strings.TrimSpace(name)
		return name == "*" || name == namespace
	})
}

// Lenders returns the Secrets of other namespaces that a class names, each once.
func Lenders(class *v1alpha1.MachineClass) []types.NamespacedName {
	return slices.DeleteFunc(SecretsOf(class), func(key types.NamespacedName) bool {
		return key.Name == "" || key.Namespace == class.Namespace
	})
}

// Versions returns the versions of a class and of the Secrets that it names, as the caches have them: two calls with
// the same text need read them once. It is empty if a Secret is not in the caches.
func Versions(c *observecache.Cluster, class *v1alpha1.MachineClass) string {
	versions := VersionOf(class)
	for _, key := range SecretsOf(class) {
		secret, found := c.Secret(key.String())
		if !found {
			return ""
		}
		versions += VersionOf(secret)
	}
	return versions
}

// VersionOf returns the part of Versions that is of one object.
func VersionOf(o metav1.Object) string {
	return string(o.GetUID()) + "/" + o.GetResourceVersion() + " "
}

// refersTo reports whether one of the two references of a class names a Secret.
func refersTo(class *v1alpha1.MachineClass, namespace, name string) bool {
	return slices.Contains(SecretsOf(class), types.NamespacedName{Namespace: namespace, Name: name})
}
