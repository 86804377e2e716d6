// Package orphan derives facts from nodes and machines; decide uses the facts to find nodes without a Machine.
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

// NodesAndOwners returns from the caches the nodes of a namespace's target by name, the facts about each node, sorted
// by name, and the node claims of all machines of this target. Without a target, the result is empty.
func NodesAndOwners(
	c *cache.Cluster,
	namespace string,
) (nodes map[string]*corev1.Node, facts []orphan.Node, owners []orphan.NodeClaimant) {
	nodes = map[string]*corev1.Node{}
	target := c.Target(namespace)
	if target == nil {
		return nodes, nil, nil
	}
	for _, n := range target.AllNodes() {
		nodes[n.Name] = n
		facts = append(facts, orphan.Node{
			Name:         n.Name,
			ProviderID:   n.Spec.ProviderID,
			MachineName:  n.Labels[v1alpha1.LabelMachineName],
			Created:      n.CreationTimestamp.Time,
			NotManaged:   n.Annotations[v1alpha1.AnnotationNotManaged] == v1alpha1.ValueNotManaged,
			HasFinalizer: slices.Contains(n.Finalizers, v1alpha1.FinalizerNode),
		})
	}
	slices.SortFunc(facts, func(a, b orphan.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range cache.AllObjects[*v1alpha1.Machine](c.Informer(cache.MachinesResource)) {
		if c.Target(m.Namespace).HasSameCluster(target) {
			owners = append(owners, nodeOwner(m))
		}
	}
	return nodes, facts, owners
}

// LiveNodeOwners reads the node claims of all machines of a namespace's target from the API server.
func LiveNodeOwners(ctx context.Context, c *cache.Cluster, namespace string) ([]orphan.NodeClaimant, error) {
	var owners []orphan.NodeClaimant
	target := c.Target(namespace)
	err := cache.VisitMachines(ctx, c.Client(), metav1.NamespaceAll, func(m *v1alpha1.Machine) {
		if c.Target(m.Namespace).HasSameCluster(target) {
			owners = append(owners, nodeOwner(m))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list all machines: %w", err)
	}
	return owners, nil
}

func nodeOwner(m *v1alpha1.Machine) orphan.NodeClaimant {
	return orphan.NodeClaimant{Name: m.Name, NodeName: cache.NodeNameOfMachine(m), ProviderID: m.Spec.ProviderID}
}
