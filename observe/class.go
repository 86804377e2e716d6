package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
)

// Neighbours are the objects of one namespace that decide about the finalizers of its classes and Secrets.
type Neighbours struct {
	Classes  []*v1alpha1.MachineClass
	Machines []*v1alpha1.Machine
	Secrets  []*metav1.PartialObjectMetadata
}

// Neighbours returns those of a namespace from the caches. Without a cache of Secrets there are none of these.
func (c *Cluster) Neighbours(namespace string) Neighbours {
	n := Neighbours{
		Classes:  indexed[*v1alpha1.MachineClass](c.informers[Classes], cache.NamespaceIndex, namespace),
		Machines: indexed[*v1alpha1.Machine](c.informers[Machines], cache.NamespaceIndex, namespace),
	}
	if secrets := c.informers[Secrets]; secrets != nil && !c.Unguarded {
		n.Secrets = indexed[*metav1.PartialObjectMetadata](secrets, cache.NamespaceIndex, namespace)
	}
	return n
}

// LiveNeighbours reads those of a namespace from the API server; of Secrets, too, the metadata only.
func (c *Cluster) LiveNeighbours(ctx context.Context, namespace string) (Neighbours, error) {
	var n Neighbours
	classes, err := c.client.MachineV1alpha1().MachineClasses(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return n, fmt.Errorf("list classes of namespace %s: %w", namespace, err)
	}
	machines, err := c.client.MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return n, fmt.Errorf("list machines of namespace %s: %w", namespace, err)
	}
	n.Classes, n.Machines = pointers(classes.Items), pointers(machines.Items)
	if c.metadata == nil || c.Unguarded {
		return n, nil
	}
	secrets, err := c.SecretMetadata(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return n, fmt.Errorf("list metadata of secrets of namespace %s: %w", namespace, err)
	}
	n.Secrets = pointers(secrets.Items)
	return n, nil
}

// SecretMetadata returns a client of the metadata of a namespace's Secrets. It must not be asked of a Cluster that does
// not watch Secrets.
func (c *Cluster) SecretMetadata(namespace string) metadata.ResourceInterface {
	return c.metadata.Resource(secretsResource()).Namespace(namespace)
}

func secretsResource() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("secrets")
}

// stripSecret drops all but what tells Secrets and their versions apart, and their finalizers. Among the annotations of a
// Secret, kubectl apply leaves a copy of what is in it.
func stripSecret(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.ObjectMeta = metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
			DeletionTimestamp: m.DeletionTimestamp, Finalizers: m.Finalizers,
		}
	}
	return object, nil
}

// ClassOf returns the name of the MachineClass that a machine refers to; empty when it names a class of another kind.
func ClassOf(m *v1alpha1.Machine) string {
	if m.Spec.Class.Kind != kindClass {
		return ""
	}
	return m.Spec.Class.Name
}

// ClassFacts turns a class and what lies in its namespace into the facts that say whether the class is calm.
func ClassFacts(class *v1alpha1.MachineClass, n Neighbours) attention.ClassFacts {
	return attention.ClassFacts{
		Deleting:  class.DeletionTimestamp != nil,
		Finalizer: HasFinalizer(class.Finalizers),
		Machines:  n.machines(class.Name),
		Unguarded: len(n.Unguarded(class)),
		Unused:    len(n.Unused()),
	}
}

// Class returns the class with this UID; nil when there is none.
func (n Neighbours) Class(uid string) *v1alpha1.MachineClass {
	for _, class := range n.Classes {
		if string(class.UID) == uid {
			return class
		}
	}
	return nil
}

// Unguarded returns the Secrets that a class needs and that lack our finalizer, by name. One that is being deleted can get
// none any more.
func (n Neighbours) Unguarded(class *v1alpha1.MachineClass) []*metav1.PartialObjectMetadata {
	if !n.inUse(class) {
		return nil
	}
	return n.secrets(func(s *metav1.PartialObjectMetadata) bool {
		return !GuardsSecret(s.Finalizers) && s.DeletionTimestamp == nil && needs(class, s.Name)
	})
}

// Unused returns the Secrets that carry our finalizer and that no class needs, by name.
func (n Neighbours) Unused() []*metav1.PartialObjectMetadata {
	return n.secrets(func(s *metav1.PartialObjectMetadata) bool {
		return GuardsSecret(s.Finalizers) && !slices.ContainsFunc(n.Classes, func(class *v1alpha1.MachineClass) bool {
			return needs(class, s.Name) && n.inUse(class)
		})
	})
}

// Versions returns those of all that the facts of the namespace's classes are made of.
func (n Neighbours) Versions() Gate {
	gate := Gate{}
	for _, class := range n.Classes {
		gate.Raise(Classes, class.ResourceVersion)
	}
	for _, m := range n.Machines {
		gate.Raise(Machines, m.ResourceVersion)
	}
	for _, s := range n.Secrets {
		gate.Raise(Secrets, s.ResourceVersion)
	}
	return gate
}

// GuardsSecret reports whether the finalizer of Secrets is among these.
func GuardsSecret(finalizers []string) bool {
	return slices.Contains(finalizers, v1alpha1.FinalizerSecret)
}

// inUse reports whether a class still needs its Secrets. One that is to go and has no machine does not, even before it is
// gone: two such classes with one Secret would each leave its release to the other.
func (n Neighbours) inUse(class *v1alpha1.MachineClass) bool {
	return class.DeletionTimestamp == nil || n.machines(class.Name) > 0
}

// machines counts those that refer to a class, terminating ones included.
func (n Neighbours) machines(class string) int {
	count := 0
	for _, m := range n.Machines {
		if ClassOf(m) == class {
			count++
		}
	}
	return count
}

// secrets returns those for which the condition holds, by name.
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

// needs reports whether a class refers to the Secret of this name in its own namespace. Secrets elsewhere are nobody's
// business here: we may have no access to them.
func needs(class *v1alpha1.MachineClass, secret string) bool {
	return refersTo(class, class.Namespace, secret)
}

// ClassesOfSecret returns the classes that name a Secret, those of other namespaces included, in no order.
func (c *Cluster) ClassesOfSecret(namespace, name string) []*v1alpha1.MachineClass {
	var classes []*v1alpha1.MachineClass
	for _, item := range c.informers[Classes].GetStore().List() {
		if class := item.(*v1alpha1.MachineClass); refersTo(class, namespace, name) {
			classes = append(classes, class)
		}
	}
	return classes
}

// refersTo reports whether one of the two references of a class names a Secret. One without a namespace means the class's.
func refersTo(class *v1alpha1.MachineClass, namespace, name string) bool {
	for _, ref := range []*corev1.SecretReference{class.SecretRef, class.CredentialsSecretRef} {
		if ref != nil && cmp.Or(ref.Namespace, class.Namespace) == namespace && ref.Name == name {
			return true
		}
	}
	return false
}

func pointers[T any](items []T) []*T {
	result := make([]*T, len(items))
	for i := range items {
		result[i] = &items[i]
	}
	return result
}
