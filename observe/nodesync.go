package observe

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/nodesync"
)

// NodeSync says what is to change on the node of a machine, so that it carries what the machine's node template and its
// class want. Without a node there is nothing to change. A class that is not there (nil) or says nothing of its nodes (D6)
// leaves the node's capacity as it is. Nothing that it is given is changed.
func NodeSync(m *v1alpha1.Machine, class *v1alpha1.MachineClass, node *corev1.Node) nodesync.Changes {
	if node == nil {
		return nodesync.Changes{}
	}
	wanted := nodesync.Wanted{
		MachineName: m.Name,
		Labels:      m.Spec.NodeTemplateSpec.Labels,
		Annotations: m.Spec.NodeTemplateSpec.Annotations,
		Taints:      nodeTaints(m.Spec.NodeTemplateSpec.Spec.Taints),
	}
	if class != nil && class.NodeTemplate != nil {
		wanted.Capacity = quantities(class.NodeTemplate.VirtualCapacity)
	}
	return nodesync.Decide(wanted, nodesync.Node{
		Labels:      node.Labels,
		Annotations: node.Annotations,
		Taints:      nodeTaints(node.Spec.Taints),
		Capacity:    quantities(node.Status.Capacity),
		Finalizer:   slices.Contains(node.Finalizers, v1alpha1.FinalizerNode),
		Deleting:    node.DeletionTimestamp != nil,
	})
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
