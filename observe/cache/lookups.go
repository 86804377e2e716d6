package cache

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/decide/ownership"
)

// Machine returns a Machine from the cache.
func (c *Cluster) Machine(key string) (*v1alpha1.Machine, bool) {
	return getByKey[*v1alpha1.Machine](c.Informers[MachinesResource], key)
}

// MachineSet returns a MachineSet from the cache.
func (c *Cluster) MachineSet(key string) (*v1alpha1.MachineSet, bool) {
	return getByKey[*v1alpha1.MachineSet](c.Informers[SetsResource], key)
}

// Deployment returns a MachineDeployment from the cache.
func (c *Cluster) Deployment(key string) (*v1alpha1.MachineDeployment, bool) {
	return getByKey[*v1alpha1.MachineDeployment](c.Informers[DeploymentsResource], key)
}

// Deployments returns the MachineDeployments of a namespace, unsorted.
func (c *Cluster) Deployments(namespace string) []*v1alpha1.MachineDeployment {
	return IndexedObjects[*v1alpha1.MachineDeployment](c.Informers[DeploymentsResource], cache.NamespaceIndex, namespace)
}

// Class returns a MachineClass from the cache.
func (c *Cluster) Class(key string) (*v1alpha1.MachineClass, bool) {
	return getByKey[*v1alpha1.MachineClass](c.Informers[ClassesResource], key)
}

// MachinesOfOwner returns the machines that the object with this UID controls, unsorted.
func (c *Cluster) MachinesOfOwner(ownerUID string) []*v1alpha1.Machine {
	return IndexedObjects[*v1alpha1.Machine](c.Informers[MachinesResource], OwnerUIDIndex, ownerUID)
}

// MachinesCallingCloud returns the machines of a set that are at the step in which the cloud creates or deletes their
// instances, unsorted. MachinesCallingCloud is called for each machine before a cloud call, so it reads an index:
// scanning all members each time would take quadratic time.
func (c *Cluster) MachinesCallingCloud(ownerUID string, deleting bool) []*v1alpha1.Machine {
	return IndexedObjects[*v1alpha1.Machine](
		c.Informers[MachinesResource],
		cloudCallIndex,
		cloudCallKey(ownerUID, deleting),
	)
}

func cloudCallKey(ownerUID string, deleting bool) string { return fmt.Sprint(deleting, " ", ownerUID) }

func cloudCallKeyOfMachine(m *v1alpha1.Machine) string {
	owner, deleting := metav1.GetControllerOf(m), m.DeletionTimestamp != nil
	switch last := m.Status.LastOperation; {
	case owner == nil:
		return ""
	case deleting && m.Status.Deletion != nil && m.Status.Deletion.Stage == v1alpha1.MachineDeletionInstance,
		// A machine in a back-off after a failure makes no cloud call.
		!deleting && m.Spec.ProviderID == "" && last.Type == v1alpha1.MachineOperationCreate && last.State == v1alpha1.MachineStateProcessing:
		return cloudCallKey(string(owner.UID), deleting)
	default:
		return ""
	}
}

// MachinesOfClass returns the machines that refer to a class (key namespace/name), unsorted.
func (c *Cluster) MachinesOfClass(key string) []*v1alpha1.Machine {
	return IndexedObjects[*v1alpha1.Machine](c.Informers[MachinesResource], classIndex, key)
}

// MachinesOfNode returns the machines that name this node of a target, unsorted. If a node has more than one machine, a
// user or the cloud has made a mistake.
func (c *Cluster) MachinesOfNode(t *Target, name string) []*v1alpha1.Machine {
	return c.machinesOfTarget(t, IndexedObjects[*v1alpha1.Machine](c.Informers[MachinesResource], nodeIndex, name))
}

// machinesOfTarget returns the machines that join this target. machinesOfTarget changes the slice.
func (c *Cluster) machinesOfTarget(t *Target, machines []*v1alpha1.Machine) []*v1alpha1.Machine {
	return slices.DeleteFunc(machines, func(m *v1alpha1.Machine) bool { return !c.Target(m.Namespace).HasSameCluster(t) })
}

// SetsOfOwner returns the sets that the object with this UID controls, unsorted.
func (c *Cluster) SetsOfOwner(ownerUID string) []*v1alpha1.MachineSet {
	return IndexedObjects[*v1alpha1.MachineSet](c.Informers[SetsResource], OwnerUIDIndex, ownerUID)
}

// MachinesOfSets returns the machines that these sets control, unsorted.
func (c *Cluster) MachinesOfSets(sets []*v1alpha1.MachineSet) []*v1alpha1.Machine {
	var members []*v1alpha1.Machine
	for _, set := range sets {
		members = append(members, c.MachinesOfOwner(string(set.UID))...)
	}
	return members
}

// MachinesWithoutController returns the machines that a set may adopt if its selector matches them, unsorted; see
// CanBeAdopted.
func (c *Cluster) MachinesWithoutController(set *v1alpha1.MachineSet) []*v1alpha1.Machine {
	return objectsWithoutController[*v1alpha1.Machine](c.Informers[MachinesResource], set, KindSet)
}

// SetsWithoutController returns the sets that a deployment may adopt if its selector matches them, unsorted; see
// CanBeAdopted.
func (c *Cluster) SetsWithoutController(d *v1alpha1.MachineDeployment) []*v1alpha1.MachineSet {
	return objectsWithoutController[*v1alpha1.MachineSet](c.Informers[SetsResource], d, KindDeployment)
}

// objectsWithoutController returns the objects of a cache that are free for this owner; see CanBeAdopted.
func objectsWithoutController[T metav1.Object](
	informer cache.SharedIndexInformer,
	owner metav1.Object,
	kind string,
) []T {
	list := IndexedObjects[T](informer, OwnerUIDIndex, OrphanKey(owner.GetNamespace()))
	for _, o := range IndexedObjects[T](informer, ownerNameIndex, ownerNameKey(kind, owner.GetNamespace(), owner.GetName())) {
		if CanBeAdopted(o, owner, kind) {
			list = append(list, o)
		}
	}
	return list
}

// LiveSetsOfDeployment reads from the API server the sets that a deployment controls (owned) and the sets that it may
// adopt (free).
func (c *Cluster) LiveSetsOfDeployment(
	ctx context.Context,
	d *v1alpha1.MachineDeployment,
) (owned, free []*v1alpha1.MachineSet, err error) {
	list, err := c.client.MachineV1alpha1().MachineSets(d.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list sets of deployment %s: %w", d.Name, err)
	}
	for _, set := range PointersToItems(list.Items) {
		switch {
		case metav1.IsControlledBy(set, d):
			owned = append(owned, set)
		case CanBeAdopted(set, d, KindDeployment):
			free = append(free, set)
		}
	}
	return owned, free, nil
}

// VisitMachines reads the machines of a namespace from the API server, not from a cache, in pages of 500, and calls do
// for each machine. If VisitMachines returns an error, it has called do for only some of the machines.
func VisitMachines(
	ctx context.Context,
	client versioned.Interface,
	namespace string,
	do func(*v1alpha1.Machine),
) error {
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.MachineV1alpha1().Machines(namespace).List(ctx, options)
	})
	return list.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		do(o.(*v1alpha1.Machine))
		return nil
	})
}

// OwnerOfNode determines which machine owns a node, from the viewpoint of a machine that names the node or has its
// provider ID. OwnerOfNode looks for other claims to the instance and to the node's name in the Machines of the
// namespaces with the same target: a Machine of another target has no node there, and its writer could otherwise block
// the Machines of others. The Machine that marked the node counts in any namespace.
func (c *Cluster) OwnerOfNode(m *v1alpha1.Machine, node *corev1.Node) ownership.OwnerAnswer {
	n := ownership.Node{
		Name:       node.Name,
		ProviderID: node.Spec.ProviderID,
		MarkerUID:  node.Annotations[v1alpha1.AnnotationMachineUID],
	}
	target := c.Target(m.Namespace)
	for _, other := range target.NodesOfInstance(node.Spec.ProviderID) {
		if other.UID != node.UID {
			n.DuplicateNodeName = other.Name
			break
		}
	}
	others := slices.Concat(
		c.MachinesOfInstanceInTarget(target, node.Spec.ProviderID),
		c.MachinesOfNode(target, node.Name),
		IndexedObjects[*v1alpha1.Machine](c.Informers[MachinesResource], uidIndex, n.MarkerUID),
	)
	claims := make([]MachineClaim, 0, len(others))
	for _, other := range others {
		claims = append(claims, ClaimOfMachine(other))
	}
	return ownership.OwnerOfNode(n, ClaimOfMachine(m), claims)
}

// OwnNodeOfMachine returns the node that a machine names if it is proven that the machine owns the node; otherwise nil.
func (c *Cluster) OwnNodeOfMachine(m *v1alpha1.Machine) *corev1.Node {
	node := c.NodeOfMachine(m)
	if node == nil || !c.OwnerOfNode(m, node).HasOwnerKind(ownership.OwnerSelf) {
		return nil
	}
	return node
}

// MachineClaim contains the instance and the node that a machine claims.
type MachineClaim = ownership.Machine

// ClaimOfMachine returns the instance and the node that a machine claims.
func ClaimOfMachine(m *v1alpha1.Machine) MachineClaim {
	health, deletion := m.Status.Health, m.Status.Deletion
	return MachineClaim{
		Namespace: m.Namespace, Name: m.Name, UID: string(m.UID), ProviderID: m.Spec.ProviderID, Told: m.Status.NodeName,
		InstanceGone: health != nil && health.InstanceGoneAt != nil ||
			deletion != nil && deletion.Stage == v1alpha1.MachineDeletionNode,
	}
}

// MachinesOfInstanceInTarget returns the machines that name an instance and that join this target, unsorted; none for
// an empty provider ID.
func (c *Cluster) MachinesOfInstanceInTarget(t *Target, providerID string) []*v1alpha1.Machine {
	return c.machinesOfTarget(t, c.MachinesOfInstance(providerID))
}

// MachinesOfInstance returns the machines of all targets that name an instance, unsorted; none for an empty provider
// ID.
func (c *Cluster) MachinesOfInstance(providerID string) []*v1alpha1.Machine {
	return IndexedObjects[*v1alpha1.Machine](
		c.Informers[MachinesResource],
		instanceIndex,
		ownership.ProviderIDKey(providerID),
	)
}

// UnrecordedNodeOfMachine returns the node whose name the machine must get: the only node with the machine's provider
// ID, if the machine has no node name or the name of another node. UnrecordedNodeOfMachine returns nil if no node or
// several nodes have the provider ID. If several nodes have the provider ID, a person or the cloud must remove all but
// one. UnrecordedNodeOfMachine ignores a node whose name is longer than Kubernetes allows: the name would get into the
// machine's status and into histories.
func (c *Cluster) UnrecordedNodeOfMachine(m *v1alpha1.Machine) *corev1.Node {
	nodes := c.Target(m.Namespace).NodesOfInstance(m.Spec.ProviderID)
	if len(nodes) != 1 || nodes[0].Name == NodeNameOfMachine(m) ||
		len(nodes[0].Name) > validation.DNS1123SubdomainMaxLength {
		return nil
	}
	return nodes[0]
}
