package watch

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/observe"
)

// prints are the two fingerprints of an object, made so that our own writes never change the first.
type prints struct {
	self  uint64 // what wakes the object itself: spec, deletion, foreign metadata
	owner uint64 // what wakes its parent only: phase, counts, deletion, owner, labels
	place uint64 // a machine's phase and node name: our own writes, which may meet a node that was faster
}

// hash returns a number that differs when the parts differ.
func hash(parts ...any) uint64 {
	h := fnv.New64a()
	if err := json.NewEncoder(h).Encode(parts); err != nil {
		_, _ = fmt.Fprint(h, parts...) // nothing of ours fails to encode; a hash of something beats a missed event
	}
	return h.Sum64()
}

// foreign returns the metadata that others write. The deletion priority is left out: the default that we write says no
// more than its absence, and who needs it compares its value.
func foreign(o metav1.Object) any {
	own := func(key, _ string) bool {
		return v1alpha1.IsOwnMetadataKey(key) || key == v1alpha1.AnnotationMachinePriority
	}
	labels, annotations := maps.Clone(o.GetLabels()), maps.Clone(o.GetAnnotations())
	maps.DeleteFunc(labels, own)
	maps.DeleteFunc(annotations, own)
	return []any{labels, annotations}
}

func deleting(o metav1.Object) bool { return o.GetDeletionTimestamp() != nil }

func machinePrints(m *v1alpha1.Machine) prints {
	spec := m.Spec.DeepCopy()
	spec.ProviderID = "" // ours
	return prints{
		self: hash(m.UID, spec, deleting(m), foreign(m)),
		owner: hash(m.UID, m.Status.CurrentStatus.Phase, m.Status.LastOperation.State, deleting(m), metav1.GetControllerOf(m),
			foreign(m), observe.Priority(m)),
		place: hash(m.UID, m.Status.CurrentStatus.Phase, m.Labels[v1alpha1.LabelNode]),
	}
}

func setPrints(s *v1alpha1.MachineSet) prints {
	return prints{
		self: hash(s.UID, s.Spec, deleting(s), foreign(s)),
		owner: hash(s.UID, deleting(s), metav1.GetControllerOf(s), s.Spec, s.Status.Replicas, s.Status.ReadyReplicas,
			s.Status.AvailableReplicas, s.Status.FullyLabeledReplicas, s.Status.ObservedGeneration, len(s.Status.FailedMachines)),
	}
}

func deploymentPrints(d *v1alpha1.MachineDeployment) prints {
	return prints{self: hash(d.UID, d.Spec, deleting(d), foreign(d))}
}

// classPrints: a class, or one of its Secrets, wakes the machines that are not calm.
func classPrints(c *v1alpha1.MachineClass) prints {
	return prints{self: hash(c.UID, c.Generation, deleting(c))}
}

// nodePrints holds what health is made of, and not the heartbeats.
func nodePrints(n *corev1.Node) prints {
	type condition struct{ Type, Status string }
	conditions := make([]condition, 0, len(n.Status.Conditions))
	for _, c := range n.Status.Conditions {
		conditions = append(conditions, condition{string(c.Type), string(c.Status)})
	}
	return prints{self: hash(n.UID, conditions, n.Spec.Taints, n.Spec.Unschedulable, n.Spec.ProviderID, deleting(n))}
}
