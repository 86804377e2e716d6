package cache

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
)

// Machine returns a machine from the cache.
func (c *Cluster) Machine(key string) (*v1alpha1.Machine, bool) {
	return get[*v1alpha1.Machine](c.Informers[Machines], key)
}

// Set returns a MachineSet from the cache.
func (c *Cluster) Set(key string) (*v1alpha1.MachineSet, bool) {
	return get[*v1alpha1.MachineSet](c.Informers[Sets], key)
}

// Deployment returns a MachineDeployment from the cache.
func (c *Cluster) Deployment(key string) (*v1alpha1.MachineDeployment, bool) {
	return get[*v1alpha1.MachineDeployment](c.Informers[Deployments], key)
}

// Class returns a MachineClass from the cache.
func (c *Cluster) Class(key string) (*v1alpha1.MachineClass, bool) {
	return get[*v1alpha1.MachineClass](c.Informers[Classes], key)
}

// Node returns a Node of the target from the cache.
func (c *Cluster) Node(name string) (*corev1.Node, bool) {
	return get[*corev1.Node](c.Informers[Nodes], name)
}

// MachinesOf returns the machines that the object with this UID controls, in no order.
func (c *Cluster) MachinesOf(ownerUID string) []*v1alpha1.Machine {
	return Indexed[*v1alpha1.Machine](c.Informers[Machines], ByOwner, ownerUID)
}

// MachinesCalling returns the machines of a set that are at the step in which the cloud creates their instances, or
// deletes them, in no order. It is asked for each machine that wants to call: to look at all members would cost the
// square of their number.
func (c *Cluster) MachinesCalling(ownerUID string, deleting bool) []*v1alpha1.Machine {
	return Indexed[*v1alpha1.Machine](c.Informers[Machines], byCall, callKey(ownerUID, deleting))
}

func callKey(ownerUID string, deleting bool) string { return fmt.Sprint(deleting, " ", ownerUID) }

func callOf(m *v1alpha1.Machine) string {
	owner, deleting := metav1.GetControllerOf(m), m.DeletionTimestamp != nil
	switch last := m.Status.LastOperation; {
	case owner == nil:
		return ""
	case deleting && m.Status.Deletion != nil && m.Status.Deletion.Stage == v1alpha1.MachineDeletionInstance,
		// After a failure it waits, and calls nothing.
		!deleting && m.Spec.ProviderID == "" && last.Type == v1alpha1.MachineOperationCreate && last.State == v1alpha1.MachineStateProcessing:
		return callKey(string(owner.UID), deleting)
	default:
		return ""
	}
}

// MachinesOfClass returns the machines that refer to a class (key namespace/name), in no order.
func (c *Cluster) MachinesOfClass(key string) []*v1alpha1.Machine {
	return Indexed[*v1alpha1.Machine](c.Informers[Machines], byClass, key)
}

// MachinesOfNode returns the machines that name this node, in no order. More than one is a mistake of a user or of the
// cloud.
func (c *Cluster) MachinesOfNode(name string) []*v1alpha1.Machine {
	return Indexed[*v1alpha1.Machine](c.Informers[Machines], byNode, name)
}

// SetsOf returns the sets that the object with this UID controls, in no order.
func (c *Cluster) SetsOf(ownerUID string) []*v1alpha1.MachineSet {
	return Indexed[*v1alpha1.MachineSet](c.Informers[Sets], ByOwner, ownerUID)
}

// MembersOf returns the machines that several sets control, in no order.
func (c *Cluster) MembersOf(sets []*v1alpha1.MachineSet) []*v1alpha1.Machine {
	var members []*v1alpha1.Machine
	for _, set := range sets {
		members = append(members, c.MachinesOf(string(set.UID))...)
	}
	return members
}

// FreeMachines returns the machines that a set may adopt if it selects them, in no order; see IsFree.
func (c *Cluster) FreeMachines(set *v1alpha1.MachineSet) []*v1alpha1.Machine {
	return free[*v1alpha1.Machine](c.Informers[Machines], set, KindSet)
}

// FreeSets returns the sets that a deployment may adopt if it selects them, in no order; see IsFree.
func (c *Cluster) FreeSets(d *v1alpha1.MachineDeployment) []*v1alpha1.MachineSet {
	return free[*v1alpha1.MachineSet](c.Informers[Sets], d, KindDeployment)
}

// free returns the objects of a cache that IsFree for this owner.
func free[T metav1.Object](informer cache.SharedIndexInformer, owner metav1.Object, kind string) []T {
	list := Indexed[T](informer, ByOwner, OrphansOf(owner.GetNamespace()))
	for _, o := range Indexed[T](informer, byOwnerName, ownerName(kind, owner.GetNamespace(), owner.GetName())) {
		if IsFree(o, owner, kind) {
			list = append(list, o)
		}
	}
	return list
}

// LiveSetsOf reads the sets that a deployment controls from the API server, and those that it may adopt.
func (c *Cluster) LiveSetsOf(
	ctx context.Context,
	d *v1alpha1.MachineDeployment,
) (owned, free []*v1alpha1.MachineSet, err error) {
	list, err := c.client.MachineV1alpha1().MachineSets(d.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list sets of deployment %s: %w", d.Name, err)
	}
	for _, set := range Pointers(list.Items) {
		switch {
		case metav1.IsControlledBy(set, d):
			owned = append(owned, set)
		case IsFree(set, d, KindDeployment):
			free = append(free, set)
		}
	}
	return owned, free, nil
}

// EachMachine reads the machines of a namespace from the API server, past its caches, in pages of 500, and calls do for
// each. After an error it has called do for some of them only.
func EachMachine(ctx context.Context, client versioned.Interface, namespace string, do func(*v1alpha1.Machine)) error {
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.MachineV1alpha1().Machines(namespace).List(ctx, options)
	})
	return list.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		do(o.(*v1alpha1.Machine))
		return nil
	})
}
