package observe

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/health"
	"millwright/decide/replace"
)

// NodeHealth counts the machines that have become nodes of a namespace's target, and those of them whose node is unhealthy
// or missing now. It looks at the nodes themselves, not at phases, which may be older. Machines that are to go do not count:
// their nodes die because we want it. Nor do those whose instance is gone, as the provider says.
func (c *Cluster) NodeHealth(namespace string, now time.Time) replace.Nodes {
	_ = namespace // one target for all namespaces; see Target
	var n replace.Nodes
	for _, item := range c.informers[Machines].GetStore().List() {
		m := item.(*v1alpha1.Machine)
		if h := m.Status.Health; h != nil && h.InstanceGoneAt != nil {
			continue // dead for sure, whatever the network does
		}
		if phase := m.Status.CurrentStatus.Phase; m.DeletionTimestamp != nil || (phase != v1alpha1.MachineRunning && phase != v1alpha1.MachineUnknown) {
			continue
		}
		n.Joined++
		node := c.NodeOf(m)
		if node == nil {
			n.Dead++
		} else if healthy, _ := health.Decide(conditions(node), badConditions(m)); !healthy {
			n.Dead++
		} else if at := recoveredAt(m, node, now); !at.IsZero() {
			n.Recovered = append(n.Recovered, at)
		}
	}
	return n
}

// recoveredAt returns when a machine whose node is healthy recovered: at this moment, when it has not been told so yet;
// zero when it never was unhealthy.
func recoveredAt(m *v1alpha1.Machine, node *corev1.Node, now time.Time) time.Time {
	if m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown {
		if isHeld(node) || node.DeletionTimestamp != nil {
			return time.Time{} // it stays Unknown for another reason
		}
		return now
	}
	if h := m.Status.Health; h != nil {
		return timeOf(h.RecoveredAt)
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
