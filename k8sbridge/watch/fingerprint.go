package watch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/class"
	"millwright/observe/drain"
	"millwright/observe/machine"
	"millwright/observe/set"
)

// fingerprints of an object say which of its changes affect which workflows. Fields that only the object's own workflow
// writes do not signal that workflow, because a run that wrote decides again by itself. They signal the controller's
// workflow.
type fingerprints struct {
	spec      uint64 // signals the object's workflow at once: spec, deletion, metadata that others write
	parentNow uint64 // signals the controller's workflow at once: controller; of a set all but size and progress
	// signals the controller's workflow debounced: the other fields of a machine; the progress of a set
	parentDebounced uint64
	children        uint64 // signals the workflows of the objects that it controls, at once
	health          uint64 // of a node: signals the machine's workflow even while the machine is being deleted
	parent          string // name of the controller
	class           string // name of the class that a machine refers to
	node            string // name of the node that a machine depends on
	// the instance and the node that a machine names: signals the other machines that name one of the two
	claim      cache.Claim
	deployment string // signals the deployment of a machine's set at once; empty: the deployment reads nothing
	guarded    bool   // our finalizer is set: its removal signals the object's workflow
	draining   bool   // a machine's node is drained, or waits for its turn
	queued     bool   // the drain of a machine waits for its turn
	// the provider reports OutOfRange for a machine: several instances, or none where there should be one
	outOfRange bool
}

// hash returns a number that differs when the parts differ.
func hash(parts ...any) uint64 {
	h := fnv.New64a()
	if err := json.NewEncoder(h).Encode(parts); err != nil {
		_, _ = fmt.Fprint(h, parts...) // our types always encode; if not, a hash of something is better than a missed event
	}
	return h.Sum64()
}

// foreign returns the labels and annotations that others write. The machine priority is left out: the default that we
// write means the same as its absence, and drain.Priority is compared instead.
func foreign(o metav1.Object) [2]map[string]string {
	var result [2]map[string]string
	for i, all := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
		result[i] = map[string]string{} // never nil: our first annotation on an object without any is not a change
		for key, value := range all {
			if !v1alpha1.IsOwnMetadataKey(key) && key != v1alpha1.AnnotationMachinePriority {
				result[i][key] = value
			}
		}
	}
	return result
}

func deleting(o metav1.Object) bool { return o.GetDeletionTimestamp() != nil }

func machineFingerprints(m *v1alpha1.Machine) fingerprints {
	spec := m.Spec.DeepCopy()
	spec.ProviderID = "" // written by us
	// A set compares all labels of its machines, including those that we write, except for the label node.
	labels := maps.Clone(m.Labels)
	delete(labels, v1alpha1.LabelNode)
	phase, operation := m.Status.CurrentStatus.Phase, m.Status.LastOperation
	operation.LastUpdateTime = metav1.Time{}
	blocked, _ := machine.Blocked(m)
	check, marked := set.HealthChecked(m)
	return fingerprints{
		spec:      hash(m.UID, spec, deleting(m), foreign(m)),
		parentNow: hash(m.UID, metav1.GetControllerOf(m)),
		parentDebounced: hash(
			phase,
			operation,
			check,
			marked,
			deleting(m),
			foreign(m),
			labels,
			spec,
			machine.ReadySince(m),
			drain.Priority(m),
			blocked,
			standsStill(m),
			machine.IsPreserved(m),
			m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime],
			machine.HasJoined(m),
		),
		parent:     controller(m),
		class:      m.Spec.Class.Name,
		node:       cmp.Or(nodeOf(m), cache.UnnamedInstanceOf(m)),
		claim:      cache.ClaimOf(m),
		deployment: readByDeployment(m),
		guarded:    cache.HasFinalizer(m.Finalizers),
		draining:   drain.InDrain(m),
		queued:     drain.InDrain(m) && m.Status.Deletion.Queued,
		outOfRange: operation.ErrorCode == outOfRange,
	}
}

// standsStill returns why a machine stands still; its set and deployment repeat this text. Empty: it does not stand
// still.
func standsStill(m *v1alpha1.Machine) string {
	if c := cache.Condition(m.Status.Conditions, v1alpha1.MachineBlocked); c != nil {
		return c.Reason + c.Message
	}
	return ""
}

// nodeOf returns the name of the node that a machine depends on: none before its creation is on record, and none after
// its drain.
func nodeOf(m *v1alpha1.Machine) string {
	phase := m.Status.CurrentStatus.Phase
	created := phase != "" && phase != v1alpha1.MachineCrashLoopBackOff
	if machine.IsEmptied(m) || !created && !deleting(m) {
		return ""
	}
	return cache.NodeNameOf(m)
}

// outOfRange is the provider's code that starts a sweep for orphans, as in MCM.
const outOfRange = "OutOfRange"

// readByDeployment is what a deployment reads directly from its machines, without waiting for the set's status: whether
// a machine is Running and not being deleted, whether it waits for its replacement, the state of its in-place update,
// and the autoscaler's mark.
func readByDeployment(m *v1alpha1.Machine) string {
	phase := m.Status.CurrentStatus.Phase
	if runs := phase == v1alpha1.MachineRunning && !deleting(m); !runs && !strings.HasPrefix(string(phase), "InPlace") {
		phase = ""
	}
	if machine.IsWaiting(m) {
		phase += "waits"
	}
	return string(phase) + m.Labels[v1alpha1.LabelUpdateResult] + m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime]
}

// setFingerprints returns the fingerprints of a set. The generation covers fields of the spec that this version does
// not know. The set's controller decides when its failed machines are replaced.
func setFingerprints(s *v1alpha1.MachineSet) fingerprints {
	status, spec := s.Status, s.Spec.DeepCopy()
	spec.Replicas = 0 // its deployment wrote the size, or sees it in the status that follows
	var failed []string
	for _, m := range status.FailedMachines {
		failed = append(failed, m.Name)
	}
	counts := []int32{
		status.Replicas,
		status.FullyLabeledReplicas,
		status.ReadyReplicas,
		status.AvailableReplicas,
		status.PreservedFailedReplicas,
	}
	return fingerprints{
		spec: hash(
			s.UID,
			s.Spec,
			s.Generation,
			deleting(s),
			cache.IsOrphaning(s),
			foreign(s),
			metav1.GetControllerOf(s),
		),
		parentNow:       hash(s.UID, spec, deleting(s), metav1.GetControllerOf(s), failed, set.Blocked(s), foreign(s)),
		parentDebounced: hash(counts, status.ObservedGeneration, status.ObservedReplicas, set.StandsStill(s)),
		parent:          controller(s),
		guarded:         cache.HasFinalizer(s.Finalizers),
	}
}

func deploymentFingerprints(d *v1alpha1.MachineDeployment) fingerprints {
	_, paused := d.Annotations[v1alpha1.AnnotationPaused]
	_, unfrozen := d.Annotations[v1alpha1.AnnotationUnfreeze]
	return fingerprints{
		spec:     hash(d.UID, d.Spec, d.Generation, deleting(d), cache.IsOrphaning(d), foreign(d)),
		children: hash(d.UID, d.Spec.Template, paused, d.Labels, unfrozen), // a policy selects by labels
		guarded:  cache.HasFinalizer(d.Finalizers),
	}
}

// classFingerprints returns the fingerprints of a class. A change of the generation, which covers all of its content,
// signals its own workflow and those of its machines that are not calm. A change of what its status says about a
// missing worker of its provider signals its machines with a current operation.
func classFingerprints(c *v1alpha1.MachineClass) fingerprints {
	return fingerprints{
		spec:     hash(c.UID, c.Generation, deleting(c)),
		children: hash(class.Unserved(c)),
		guarded:  cache.HasFinalizer(c.Finalizers),
	}
}

// secretFingerprints returns the fingerprints of a Secret. The bridge does not read its data: a new resource version
// counts as a change of the data, unless our finalizer or the deletion timestamp changed with it. Such a change affects
// the classes that refer to the Secret; they are its parents here.
func secretFingerprints(s metav1.Object) fingerprints {
	return fingerprints{
		spec:            hash(s.GetUID(), s.GetResourceVersion()),
		parentDebounced: hash(s.GetUID(), class.GuardsSecret(s.GetFinalizers()), deleting(s)),
	}
}

// nodeFingerprints covers the fields that health checks and node syncs read, without heartbeats. The fingerprint health
// covers only the deletion and the conditions, without the condition that a machine's deletion writes.
func nodeFingerprints(n *corev1.Node) fingerprints {
	conditions := machine.CopiedConditions(n)
	spec := hash(
		n.UID,
		conditions,
		n.Labels,
		n.Annotations,
		n.Finalizers,
		n.Spec.Taints,
		n.Spec.Unschedulable,
		n.Spec.ProviderID,
		n.Status.Capacity,
		deleting(n),
	)
	written := func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.NodeTerminating }
	return fingerprints{spec: spec, health: hash(n.UID, slices.DeleteFunc(conditions, written), deleting(n))}
}

// controller returns the name of an object's controller; empty if it has none.
func controller(o metav1.Object) string {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return ref.Name
	}
	return ""
}
