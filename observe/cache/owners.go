package cache

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"millwright/api/v1alpha1"
	"millwright/decide/ownership"
)

// OwnerOfNode determines which machine owns a node, from the viewpoint of a machine that names the node or has its
// provider ID. OwnerOfNode looks for other claims to the instance and to the node's name in the Machines of the
// namespaces with the same target: a Machine of another target has no node there, and its writer could otherwise block
// the Machines of others. The Machine that marked the node counts in any namespace.
func (c *Cluster) OwnerOfNode(m *v1alpha1.Machine, node *corev1.Node) ownership.OwnerAnswer {
	n := ownership.Node{
		Name:       node.Name,
		ProviderID: node.Spec.ProviderID,
		MarkUID:    node.Annotations[v1alpha1.AnnotationMachineUID],
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
		IndexedObjects[*v1alpha1.Machine](c.Informers[Machines], uidIndex, n.MarkUID),
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
	return IndexedObjects[*v1alpha1.Machine](c.Informers[Machines], instanceIndex, ownership.ProviderIDKey(providerID))
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
