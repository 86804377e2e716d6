package observe

import (
	"millwright/api/v1alpha1"
	"millwright/decide/health"
	"millwright/decide/replace"
)

// NodeHealth counts the machines that have become nodes of a namespace's target, and those of them whose node is unhealthy
// or missing now. It looks at the nodes themselves, not at phases, which may be older. Machines that are to go do not count:
// their nodes die because we want it. Nor do those whose instance is gone, as the provider says.
func (c *Cluster) NodeHealth(namespace string) replace.Nodes {
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
		}
	}
	return n
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
