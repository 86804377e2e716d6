package machine

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/nodesync"
	"millwright/decide/replace"
	"millwright/observe/cache"
)

// JoinedNodes returns the nodes of the machines that have become nodes of a namespace's target. It looks at the nodes themselves, not at phases, which may be older. Machines that are being deleted do not count:
// their nodes die because we want it. Nor do those whose instance is gone, as the provider says.
func JoinedNodes(c *cache.Cluster, namespace string, now time.Time) replace.Nodes {
	_ = namespace // one target for all namespaces; see Target
	var n replace.Nodes
	for _, m := range cache.All[*v1alpha1.Machine](c.Informer(cache.Machines)) {
		phase, health := m.Status.CurrentStatus.Phase, m.Status.Health
		if m.DeletionTimestamp != nil || (phase != v1alpha1.MachineRunning && phase != v1alpha1.MachineUnknown) {
			continue
		}
		if health != nil && health.InstanceGoneAt != nil {
			continue // dead for sure, whatever the network does
		}
		n.Joined++
		if node := c.NodeOf(m); node != nil {
			n.Unjudged = append(n.Unjudged, replace.Node{Conditions: conditions(node), Bad: badConditions(m), Recovered: recoveredAt(m, node, now)})
		} else {
			n.Dead++
		}
	}
	return n
}

// recoveredAt returns when a machine whose node is healthy recovered: at this moment, when it has not been told so yet;
// zero when it never was unhealthy.
func recoveredAt(m *v1alpha1.Machine, node *corev1.Node, now time.Time) time.Time {
	if m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown {
		if cache.HasTaint(node, v1alpha1.TaintCriticalComponentsNotReady) || node.DeletionTimestamp != nil {
			return time.Time{} // it stays Unknown for another reason
		}
		return now
	}
	if h := m.Status.Health; h != nil {
		return cache.TimeOf(h.RecoveredAt)
	}
	return time.Time{}
}

// FailureDomain returns the zone of a machine, as far as its node template or its class tells; empty where neither does.
func FailureDomain(m *v1alpha1.Machine, class *v1alpha1.MachineClass) string {
	if zone := m.Spec.NodeTemplateSpec.Labels["topology.kubernetes.io/zone"]; zone != "" {
		return zone
	}
	if class != nil && class.NodeTemplate != nil {
		return class.NodeTemplate.Zone
	}
	return ""
}

// NodeSyncFacts turns a machine, its class and its node into what the node is to carry and what it carries. A class that is
// not there (nil) or says nothing of its nodes (D6) leaves the node's capacity as it is.
func NodeSyncFacts(m *v1alpha1.Machine, class *v1alpha1.MachineClass, node *corev1.Node) (nodesync.Wanted, nodesync.Node) {
	wanted := nodesync.Wanted{
		MachineName: m.Name,
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

// nodeTaints leaves out when each was added: that is the node's history and nobody's wish.
func nodeTaints(list []corev1.Taint) []nodesync.Taint {
	result := make([]nodesync.Taint, 0, len(list))
	for _, t := range list {
		result = append(result, nodesync.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	return result
}

// quantities returns amounts as the API server writes them, and never nil: an empty list is known to be empty.
func quantities(list corev1.ResourceList) map[string]string {
	result := make(map[string]string, len(list))
	for name, q := range list {
		result[string(name)] = q.String()
	}
	return result
}
