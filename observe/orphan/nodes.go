// Package orphan turns nodes and machines into the facts that decide asks for to find nodes without a Machine.
package orphan

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/orphan"
	"millwright/observe/cache"
)

// ownersPerPage is how many machines are read with one request. Source: the page size of client-go's informers.
const ownersPerPage = 500

// NodesAndOwners returns the nodes of a namespace's target by name, the facts of each, sorted by name, and what all machines
// claim, from the caches. Without a target there are no nodes.
func NodesAndOwners(c *cache.Cluster, namespace string) (nodes map[string]*corev1.Node, facts []orphan.Node, owners []orphan.NodeOwner) {
	nodes = map[string]*corev1.Node{}
	if c.Target(namespace) == nil {
		return nodes, nil, nil
	}
	for _, node := range cache.All[*corev1.Node](c.Informer(cache.Nodes)) {
		nodes[node.Name] = node
		facts = append(facts, nodeFacts(node))
	}
	slices.SortFunc(facts, func(a, b orphan.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range cache.All[*v1alpha1.Machine](c.Informer(cache.Machines)) {
		owners = append(owners, nodeOwner(m))
	}
	return nodes, facts, owners
}

// LiveOwners reads from the API server what all machines of all namespaces claim.
func LiveOwners(ctx context.Context, c *cache.Cluster) ([]orphan.NodeOwner, error) {
	var owners []orphan.NodeOwner
	options := metav1.ListOptions{Limit: ownersPerPage}
	for {
		list, err := c.Client().MachineV1alpha1().Machines(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list all machines: %w", err)
		}
		for _, m := range cache.Pointers(list.Items) {
			owners = append(owners, nodeOwner(m))
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return owners, nil
		}
	}
}

func nodeOwner(m *v1alpha1.Machine) orphan.NodeOwner {
	return orphan.NodeOwner{Name: m.Name, Node: m.Labels[v1alpha1.LabelNode], ProviderID: m.Spec.ProviderID}
}

func nodeFacts(n *corev1.Node) orphan.Node {
	return orphan.Node{
		Name: n.Name, ProviderID: n.Spec.ProviderID, Machine: n.Labels[v1alpha1.LabelMachineName], Created: n.CreationTimestamp.Time,
		NotManaged: n.Annotations[v1alpha1.AnnotationNotManaged] == v1alpha1.ValueNotManaged,
		Guarded:    slices.Contains(n.Finalizers, v1alpha1.FinalizerNode),
	}
}
