package cache

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/ownership"
)

// WhoseNode says whose a node is, as seen from a machine that names it or has its provider ID. What other machines claim
// comes from the cache of machines of all namespaces.
func (c *Cluster) WhoseNode(m *v1alpha1.Machine, node *corev1.Node) ownership.Answer {
	n := ownership.Node{
		Name:       node.Name,
		ProviderID: node.Spec.ProviderID,
		Mark:       node.Annotations[v1alpha1.AnnotationMachineUID],
	}
	for _, other := range c.NodesOfInstance(node.Spec.ProviderID) {
		if other.UID != node.UID {
			n.Twin = other.Name
			break
		}
	}
	others := slices.Concat(
		c.MachinesOfInstance(node.Spec.ProviderID),
		c.MachinesOfNode(node.Name),
		Indexed[*v1alpha1.Machine](c.Informers[Machines], byUID, n.Mark),
	)
	claims := make([]Claim, 0, len(others))
	for _, other := range others {
		claims = append(claims, ClaimOf(other))
	}
	return ownership.OfNode(n, ClaimOf(m), claims)
}

// OwnNode returns the node that a machine names if it is proven to be the machine's; nil else.
func (c *Cluster) OwnNode(m *v1alpha1.Machine) *corev1.Node {
	node := c.NodeOf(m)
	if node == nil || !c.WhoseNode(m, node).Is(ownership.Ours) {
		return nil
	}
	return node
}

// Claim is what a machine says of its instance and its node.
type Claim = ownership.Machine

// ClaimOf returns what a machine says of its instance and its node.
func ClaimOf(m *v1alpha1.Machine) Claim {
	health, deletion := m.Status.Health, m.Status.Deletion
	return Claim{
		Namespace: m.Namespace, Name: m.Name, UID: string(m.UID), ProviderID: m.Spec.ProviderID, Told: m.Status.NodeName,
		InstanceGone: health != nil && health.InstanceGoneAt != nil ||
			deletion != nil && deletion.Stage == v1alpha1.MachineDeletionNode,
	}
}

// MachinesOfInstance returns the machines that name an instance, in no order; none for an empty provider ID.
func (c *Cluster) MachinesOfInstance(providerID string) []*v1alpha1.Machine {
	return Indexed[*v1alpha1.Machine](c.Informers[Machines], byInstance, ownership.Key(providerID))
}

// NodesOfInstance returns the nodes of an instance, by name; none for an empty provider ID, and without a target.
func (c *Cluster) NodesOfInstance(providerID string) []*corev1.Node {
	if c.Informers[Nodes] == nil {
		return nil
	}
	nodes := Indexed[*corev1.Node](c.Informers[Nodes], byInstance, ownership.Key(providerID))
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

// NodeToName returns the node whose name a machine lacks: the only one with its provider ID, while the machine names
// none, or another one. It is nil if there is none, and if there are several, of which a person or the cloud must remove
// all but one.
func (c *Cluster) NodeToName(m *v1alpha1.Machine) *corev1.Node {
	nodes := c.NodesOfInstance(m.Spec.ProviderID)
	if len(nodes) != 1 || nodes[0].Name == NodeNameOf(m) {
		return nil
	}
	return nodes[0]
}
