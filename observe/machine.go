package observe

import (
	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/health"
)

// NodeOf returns the node of a machine from the cache: the one that its label names. Nil when there is none.
func (c *Cluster) NodeOf(m *v1alpha1.Machine) *corev1.Node {
	name := m.Labels[v1alpha1.LabelNode]
	if name == "" {
		return nil
	}
	node, _ := c.Node(name)
	return node
}

// MachineFacts turns a machine and its node, which may be nil, into the facts that say whether the machine is calm.
func MachineFacts(m *v1alpha1.Machine, node *corev1.Node) attention.MachineFacts {
	f := attention.MachineFacts{
		Deleting:   m.DeletionTimestamp != nil,
		Finalizer:  HasFinalizer(m.Finalizers),
		Phase:      string(m.Status.CurrentStatus.Phase),
		ProviderID: m.Spec.ProviderID,
		NodeName:   m.Labels[v1alpha1.LabelNode],
		NodeExists: node != nil,
	}
	if node != nil {
		f.NodeHealthy, f.NodeWhy = health.Decide(conditions(node), badConditions(m))
	}
	return f
}

// HasFinalizer reports whether our finalizer is among these.
func HasFinalizer(finalizers []string) bool {
	for _, f := range finalizers {
		if f == v1alpha1.FinalizerMachine {
			return true
		}
	}
	return false
}

func conditions(node *corev1.Node) []health.Condition {
	result := make([]health.Condition, 0, len(node.Status.Conditions))
	for _, c := range node.Status.Conditions {
		result = append(result, health.Condition{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time,
		})
	}
	return result
}

// badConditions returns the condition types that make a node of this machine unhealthy.
func badConditions(m *v1alpha1.Machine) []string {
	types := m.Spec.EffectiveNodeConditions()
	names := make([]string, 0, len(types))
	for _, t := range types {
		names = append(names, string(t))
	}
	return names
}
