package watch

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/observe"
)

// prints are the fingerprints of an object. Every fact that attention reads is in one of them; our own writes never change
// the first.
type prints struct {
	self   uint64 // what wakes the object itself: spec, deletion, foreign metadata
	owner  uint64 // what wakes its parent only, and at once: whose it is; of a set all that is not its progress
	later  uint64 // what wakes its parent only, and in a moment: all else of a machine; of a set its progress: the size that it has seen, its counts
	own    uint64 // what our workflows write and attention reads: worth a look, and hardly ever a signal
	below  uint64 // what wakes those that a deployment controls
	parent string // name of what controls it
	class  string // name of the class that a machine refers to

	above    string // what the deployment above a machine's set looks at and the set does not; empty when nothing
	draining bool   // a machine takes a place in the order in which nodes are drained
	several  bool   // the provider says OutOfRange of a machine: several instances, or none where there should be one
}

// hash returns a number that differs when the parts differ.
func hash(parts ...any) uint64 {
	h := fnv.New64a()
	if err := json.NewEncoder(h).Encode(parts); err != nil {
		_, _ = fmt.Fprint(h, parts...) // nothing of ours fails to encode; a hash of something beats a missed event
	}
	return h.Sum64()
}

// foreign returns the labels and annotations that others write. The deletion priority is left out: the default that we
// write says no more than its absence, and who needs it compares its value.
func foreign(o metav1.Object) [2]map[string]string {
	var result [2]map[string]string
	for i, all := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
		result[i] = map[string]string{} // never nil: our first annotation on an object that had none is no news
		for key, value := range all {
			if !v1alpha1.IsOwnMetadataKey(key) && key != v1alpha1.AnnotationMachinePriority {
				result[i][key] = value
			}
		}
	}
	return result
}

func deleting(o metav1.Object) bool { return o.GetDeletionTimestamp() != nil }

func machinePrints(m *v1alpha1.Machine) prints {
	spec := m.Spec.DeepCopy()
	spec.ProviderID = "" // ours
	// A set counts its machines by all their labels, those that we write included. Only the label node says nothing to it.
	labels := maps.Clone(m.Labels)
	delete(labels, v1alpha1.LabelNode)
	phase, operation := m.Status.CurrentStatus.Phase, m.Status.LastOperation
	operation.LastUpdateTime = metav1.Time{}
	blocked, _ := observe.Blocked(m)
	check, marked := observe.HealthChecked(m)
	return prints{
		self:  hash(m.UID, spec, deleting(m), foreign(m)),
		owner: hash(m.UID, metav1.GetControllerOf(m)),
		later: hash(phase, operation, check, marked, deleting(m), foreign(m), labels, spec, observe.ReadySince(m),
			observe.Priority(m), blocked, observe.IsPreserved(m), m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime],
			m.Annotations[v1alpha1.AnnotationMachineJoinDuration]),
		own: hash(m.UID, phase, m.Labels[v1alpha1.LabelNode], m.Spec.ProviderID, observe.HasFinalizer(m.Finalizers),
			m.Status.Conditions, observe.IsPreserved(m)),
		above:    above(m),
		draining: observe.InDrain(m),
		several:  operation.ErrorCode == outOfRange,
		parent:   controller(m),
		class:    observe.ClassOf(m),
	}
}

// fellOut reports whether the provider has come to say OutOfRange of a machine.
func (p prints) fellOut(before prints) bool { return p.several && !before.several }

// outOfRange is the provider's code that starts a sweep for orphans, as in MCM.
const outOfRange = "OutOfRange"

// above says what a machine's deployment looks at without waiting for the set: whether it runs, or waits to be replaced, how far its
// in-place update is, what the autoscaler wants of it.
func above(m *v1alpha1.Machine) string {
	parts := []string{m.Labels[v1alpha1.LabelUpdateResult], m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime]}
	if phase := string(m.Status.CurrentStatus.Phase); strings.HasPrefix(phase, "InPlace") {
		parts = append(parts, phase)
	}
	if phase := m.Status.CurrentStatus.Phase; phase == v1alpha1.MachineRunning && m.DeletionTimestamp == nil {
		parts = append(parts, string(phase)) // a rollout waits for nothing more often
	}
	if observe.IsWaiting(m) {
		parts = append(parts, "waits")
	}
	return strings.Trim(strings.Join(parts, " "), " ")
}

// setPrints: the generation stands for those parts of the spec, too, that we do not know. What controls a set decides when its
// failed machines go.
func setPrints(s *v1alpha1.MachineSet) prints {
	status := s.Status.DeepCopy()
	spec := s.Spec.DeepCopy()
	spec.Replicas = 0 // its deployment wrote that, or hears of it by the status that follows
	var failed []string
	for _, m := range s.Status.FailedMachines {
		failed = append(failed, m.Name)
	}
	status.CurrentOperation, status.LastOperation, status.FailedMachines, status.ObservedMachines = nil, v1alpha1.LastOperation{}, nil, ""
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	counts := []int32{status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas, status.PreservedFailedReplicas}
	return prints{
		self:   hash(s.UID, s.Spec, s.Generation, deleting(s), foreign(s), metav1.GetControllerOf(s)),
		owner:  hash(s.UID, spec, deleting(s), metav1.GetControllerOf(s), failed, observe.BlockedSet(s), foreign(s)),
		later:  hash(counts, status.ObservedGeneration, status.ObservedReplicas),
		own:    hash(s.UID, status, observe.HasFinalizer(s.Finalizers)),
		parent: controller(s),
	}
}

func deploymentPrints(d *v1alpha1.MachineDeployment) prints {
	status := d.Status.DeepCopy()
	status.CurrentOperation = nil
	_, paused := d.Annotations[v1alpha1.AnnotationPaused]
	_, unfrozen := d.Annotations[v1alpha1.AnnotationUnfreeze]
	return prints{
		self:  hash(d.UID, d.Spec, d.Generation, deleting(d), foreign(d)),
		own:   hash(d.UID, status, observe.HasFinalizer(d.Finalizers), observe.Revision(d)),
		below: hash(d.UID, d.Spec.Template, paused, d.Labels[v1alpha1.LabelFreeze], unfrozen),
	}
}

// classPrints: a class wakes itself, and the machines that are not calm. The generation stands for all that is in it.
func classPrints(c *v1alpha1.MachineClass) prints {
	return prints{
		self: hash(c.UID, c.Generation, deleting(c)),
		own:  hash(c.UID, observe.HasFinalizer(c.Finalizers)),
	}
}

// secretPrints: what is in a Secret is not for us to know; its version says that it changed. When our finalizer changed,
// or the Secret is to go, that is all that this version brought.
func secretPrints(s metav1.Object) prints {
	return prints{
		self: hash(s.GetUID(), s.GetResourceVersion()),
		own:  hash(s.GetUID(), observe.GuardsSecret(s.GetFinalizers()), deleting(s)),
	}
}

// nodePrints holds what health and the sync of nodes are made of, and not the heartbeats.
func nodePrints(n *corev1.Node) prints {
	return prints{self: hash(n.UID, observe.CopiedConditions(n), n.Labels, n.Annotations, n.Finalizers, n.Spec.Taints,
		n.Spec.Unschedulable, n.Spec.ProviderID, n.Status.Capacity, deleting(n))}
}

// controller returns the name of what controls an object; empty when nothing does.
func controller(o metav1.Object) string {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return ref.Name
	}
	return ""
}
