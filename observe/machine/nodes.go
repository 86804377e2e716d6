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

// JoinedNodeCounts returns the nodes of the machines that have joined the target of a namespace. JoinedNodeCounts reads
// the nodes, because the phases of machines may be out of date. JoinedNodeCounts omits a machine if its node is down
// for a known reason: the instance is being deleted, the machine is being replaced, or both the instance and the Node
// are gone. The provider's report of a missing instance alone is not a known reason: the provider may have read another
// cloud account. The nodes of other namespaces with the same target come from the target of this namespace, because the
// cache of another connection may not be filled yet.
func JoinedNodeCounts(c *cache.Cluster, namespace string, now time.Time) replace.NodeCounts {
	target := c.Target(namespace)
	n := replace.NodeCounts{UnknownStatesReason: TargetDownReason(target, namespace)}
	for _, m := range cache.AllObjects[*v1alpha1.Machine](c.Informer(cache.MachinesResource)) {
		if !c.Target(m.Namespace).HasSameCluster(target) || !c.ActsOnMachines(m.Namespace) {
			continue
		}
		node := target.NodeOfMachine(m)
		if !hasJoinedNode(m, node) {
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
			n.UncheckedNodes = append(n.UncheckedNodes, replace.Node{
				Conditions:              healthConditions(node),
				UnhealthyConditionTypes: unhealthyConditionTypes(m),
				Deleting:                node.DeletionTimestamp != nil && !c.BehavesAsMCM,
				RecoveredAt:             recoveryTime(m, node, now),
			})
		} else {
			n.Dead++
		}
	}
	return n
}

// IsNodeDeletedManually reports whether a person deletes the Node of a machine and the flag --as-mcm is set. With the
// flag, the machine is replaced at once, as in machine-controller-manager, without a limit on concurrent replacements.
// Without the flag, the machine needs a grant within the replacement budget, like any other machine.
func IsNodeDeletedManually(c *cache.Cluster, m *v1alpha1.Machine) bool {
	node := c.OwnNodeOfMachine(m)
	return c.BehavesAsMCM && node != nil && node.DeletionTimestamp != nil
}

// hasJoinedNode reports whether the node of a machine has joined and there is no known reason for a dead node. If the
// machine is being deleted, its node counts until the drain is over.
func hasJoinedNode(m *v1alpha1.Machine, node *corev1.Node) bool {
	phase := m.Status.CurrentStatus.Phase
	switch {
	case m.DeletionTimestamp != nil:
		return node != nil && phase != v1alpha1.MachineFailed && HasJoined(m) && !IsReplacementDue(m) && !drain.IsDrainOver(m)
	default:
		return phase == v1alpha1.MachineRunning || phase == v1alpha1.MachineUnknown
	}
}

// recoveryTime returns when a machine with a healthy node recovered. recoveryTime returns now if the machine's phase is
// still Unknown. recoveryTime returns zero if the machine was never unhealthy, or if a taint or the deletion of its
// node keeps the machine Unknown.
func recoveryTime(m *v1alpha1.Machine, node *corev1.Node, now time.Time) time.Time {
	unknown, h := m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown, m.Status.Health
	switch {
	case unknown && node.DeletionTimestamp == nil && joinBlocker(node) == "":
		return now
	case !unknown && h != nil:
		return cache.TimeOrZero(h.RecoveredAt)
	default:
		return time.Time{}
	}
}

// FailureDomain returns the zone of a machine from its node template, otherwise from its class; empty if neither has a
// zone.
func FailureDomain(m *v1alpha1.Machine, class *v1alpha1.MachineClass) string {
	if zone := m.Spec.NodeTemplateSpec.Labels["topology.kubernetes.io/zone"]; zone != "" {
		return zone
	}
	if class != nil && class.NodeTemplate != nil {
		return class.NodeTemplate.Zone
	}
	return ""
}

// NodeSyncFacts returns the wanted and the present metadata, taints and capacity of a machine's node. If the class is
// nil or has no node template, the capacity of the node is not changed.
func NodeSyncFacts(
	m *v1alpha1.Machine,
	class *v1alpha1.MachineClass,
	node *corev1.Node,
) (nodesync.WantedState, nodesync.Node) {
	wanted := nodesync.WantedState{
		MachineName: m.Name,
		MachineUID:  string(m.UID),
		Labels:      m.Spec.NodeTemplateSpec.Labels,
		Annotations: m.Spec.NodeTemplateSpec.Annotations,
		Taints:      nodeTaints(m.Spec.NodeTemplateSpec.Spec.Taints),
	}
	if class != nil && class.NodeTemplate != nil {
		wanted.Capacity = quantityTexts(class.NodeTemplate.VirtualCapacity)
	}
	return wanted, nodesync.Node{
		Labels:      node.Labels,
		Annotations: node.Annotations,
		Taints:      nodeTaints(node.Spec.Taints),
		Capacity:    quantityTexts(node.Status.Capacity),
		Finalizer:   slices.Contains(node.Finalizers, v1alpha1.FinalizerNode),
		Deleting:    node.DeletionTimestamp != nil,
	}
}

// nodeTaints converts taints without the time at which each taint was added, because templates do not set this time.
func nodeTaints(list []corev1.Taint) []nodesync.Taint {
	result := make([]nodesync.Taint, 0, len(list))
	for _, t := range list {
		result = append(result, nodesync.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	return result
}

// quantityTexts returns quantities as the API server writes them. The result is never nil, because a nil map would mean
// unknown.
func quantityTexts(list corev1.ResourceList) map[string]string {
	result := make(map[string]string, len(list))
	for name, q := range list {
		result[string(name)] = q.String()
	}
	return result
}
