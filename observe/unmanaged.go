package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/orphan"
)

// ownersPerPage is how many machines are read with one request. Source: the page size of client-go's informers.
const ownersPerPage = 500

// Unmanaged returns the nodes of a namespace's target that no machine claims and that are to be marked so, by name. The caches propose,
// and the API server, asked for all machines of all namespaces, has the last word.
func (c *Cluster) Unmanaged(ctx context.Context, namespace string, now time.Time) ([]*corev1.Node, error) {
	if c.Target(namespace) == nil {
		return nil, nil
	}
	nodes := map[string]*corev1.Node{}
	var facts []orphan.Node
	for _, item := range c.informers[Nodes].GetStore().List() {
		node := item.(*corev1.Node)
		nodes[node.Name] = node
		facts = append(facts, nodeFacts(node))
	}
	slices.SortFunc(facts, func(a, b orphan.Node) int { return strings.Compare(a.Name, b.Name) })
	var owners []orphan.NodeOwner
	for _, item := range c.informers[Machines].GetStore().List() {
		owners = append(owners, nodeOwner(item.(*v1alpha1.Machine)))
	}
	if len(orphan.Unmanaged(now, facts, owners)) == 0 {
		return nil, nil
	}
	owners, err := c.liveOwners(ctx)
	if err != nil {
		return nil, err
	}
	var unmanaged []*corev1.Node
	for _, name := range orphan.Unmanaged(now, facts, owners) {
		unmanaged = append(unmanaged, nodes[name])
	}
	return unmanaged, nil
}

// liveOwners reads what all machines of all namespaces claim, or nothing.
func (c *Cluster) liveOwners(ctx context.Context) ([]orphan.NodeOwner, error) {
	var owners []orphan.NodeOwner
	options := metav1.ListOptions{Limit: ownersPerPage}
	for {
		list, err := c.client.MachineV1alpha1().Machines(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list all machines: %w", err)
		}
		for i := range list.Items {
			owners = append(owners, nodeOwner(&list.Items[i]))
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
		Marked:  n.Annotations[v1alpha1.AnnotationNotManaged] == v1alpha1.ValueNotManaged,
		Guarded: slices.Contains(n.Finalizers, v1alpha1.FinalizerNode),
	}
}
