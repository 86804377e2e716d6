package machine

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/nodesync"
	"millwright/decide/replace"
	"millwright/observe/cache"
	"millwright/observe/drain"
)

// JoinedNodes returns the nodes of the machines that have joined the target of a namespace. It reads the nodes, because
// phases may be older. Machines whose node is dead for a known reason do not count: the instance is being deleted, the
// machine is being replaced, or the instance is gone and so is the Node. The provider's word alone is no such reason: it
// may have been asked about another account.
func JoinedNodes(c *cache.Cluster, namespace string, now time.Time) replace.Nodes {
	_ = namespace // see Target
	var n replace.Nodes
	for _, m := range cache.All[*v1alpha1.Machine](c.Informer(cache.Machines)) {
		node := c.NodeOf(m)
		if !c.Ours(m.Namespace) || !hasJoinedNode(m, node) {
			continue
		}
		lost := m.Status.Health != nil && m.Status.Health.InstanceGoneAt != nil
		if lost && node == nil {
			continue
		}
		n.Joined++
		if lost {
			n.Lost++
		}
		if node != nil {
			n.Unjudged = append(n.Unjudged, replace.Node{
				Conditions: conditions(node),
				Bad:        badConditions(m),
				Deleting:   node.DeletionTimestamp != nil && !c.AsMCM,
				Recovered:  recoveredAt(m, node, now),
			})
		} else {
			n.Dead++
		}
	}
	return n
}

// IsNodeDeletedByHand reports whether a person deletes the Node of a machine, and the flag --as-mcm is set. Then the
// machine is replaced at once, as by machine-controller-manager, however many others are being replaced. Without the
// flag, it needs a grant within the budget like any other.
func IsNodeDeletedByHand(c *cache.Cluster, m *v1alpha1.Machine) bool {
	node := c.OwnNode(m)
	return c.AsMCM && node != nil && node.DeletionTimestamp != nil
}

// hasJoinedNode reports whether the node of a machine has joined, and no reason is known for which it would be dead.
// The nodes of machines that are being deleted live until their drain is over.
func hasJoinedNode(m *v1alpha1.Machine, node *corev1.Node) bool {
	phase := m.Status.CurrentStatus.Phase
	switch {
	case m.DeletionTimestamp != nil:
		return node != nil && phase != v1alpha1.MachineFailed && HasJoined(m) && !IsDue(m) && !drain.IsOver(m)
	default:
		return phase == v1alpha1.MachineRunning || phase == v1alpha1.MachineUnknown
	}
}

// recoveredAt returns when a machine whose node is healthy recovered: now when its phase is still Unknown, and zero
// when it never was unhealthy, or stays Unknown because of a taint or the deletion of its node.
func recoveredAt(m *v1alpha1.Machine, node *corev1.Node, now time.Time) time.Time {
	unknown, h := m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown, m.Status.Health
	switch {
	case unknown && node.DeletionTimestamp == nil && nodeWaits(node) == "":
		return now
	case !unknown && h != nil:
		return cache.TimeOf(h.RecoveredAt)
	default:
		return time.Time{}
	}
}

// FailureDomain returns the zone of a machine from its node template, else from its class; empty when neither has one.
func FailureDomain(m *v1alpha1.Machine, class *v1alpha1.MachineClass) string {
	if zone := m.Spec.NodeTemplateSpec.Labels["topology.kubernetes.io/zone"]; zone != "" {
		return zone
	}
	if class != nil && class.NodeTemplate != nil {
		return class.NodeTemplate.Zone
	}
	return ""
}

// NodeSyncFacts returns what the node of a machine must carry and what it carries. Without a class (nil), or with a
// class that has no node template, the node's capacity stays as it is.
func NodeSyncFacts(
	m *v1alpha1.Machine,
	class *v1alpha1.MachineClass,
	node *corev1.Node,
) (nodesync.Wanted, nodesync.Node) {
	wanted := nodesync.Wanted{
		MachineName: m.Name,
		MachineUID:  string(m.UID),
		Labels:      m.Spec.NodeTemplateSpec.Labels,
		Annotations: m.Spec.NodeTemplateSpec.Annotations,
		Taints:      nodeTaints(m.Spec.NodeTemplateSpec.Spec.Taints),
	}
	if class != nil && class.NodeTemplate != nil {
		wanted.Capacity = quantities(class.NodeTemplate.VirtualCapacity)
	}
	return wanted, nodesync.Node{
		Labels:      node.Labels,
		Annotations: node.Annotations,
		Taints:      nodeTaints(node.Spec.Taints),
		Capacity:    quantities(node.Status.Capacity),
		Finalizer:   slices.Contains(node.Finalizers, v1alpha1.FinalizerNode),
		Deleting:    node.DeletionTimestamp != nil,
	}
}

// nodeTaints drops the time at which each taint was added, which no template sets.
func nodeTaints(list []corev1.Taint) []nodesync.Taint {
	result := make([]nodesync.Taint, 0, len(list))
	for _, t := range list {
		result = append(result, nodesync.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	return result
}

// quantities returns amounts as the API server writes them. It never returns nil: an empty list is known to be empty.
func quantities(list corev1.ResourceList) map[string]string {
	result := make(map[string]string, len(list))
	for name, q := range list {
		result[string(name)] = q.String()
	}
	return result
}
