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

// fingerprints determine which changes of an object signal which workflows. A change of a field that only the object's
// own workflow writes does not signal this workflow, because its run decides again after the write. A change of a field
// that only the object's own workflow writes signals the controller's workflow.
type fingerprints struct {
	// spec, deletion, and metadata of other writers; a change signals the object's workflow at once
	specHash uint64
	// the controller, and all of a set except its size and progress; a change signals the controller's workflow at once
	immediateParentHash uint64
	// the other fields of a machine, or the progress of a set; a change signals the controller's workflow debounced
	debouncedParentHash uint64
	childrenHash        uint64 // a change signals the workflows of the controlled objects at once
	// the turn of a deployment; a change signals the workflows of the deployments that take turns with it at once
	turnHash uint64
	// the health of a node; a change signals the machine's workflow even while the machine is being deleted
	healthHash uint64
	parentName string // name of the controller
	className  string // name of the machine's class
	nodeName   string // name of the node that a machine depends on
	// instance and node in a machine's claim; a change signals the other machines that claim the same instance or
	// node
	claim cache.MachineClaim
	// a change signals the deployment of the machine's set at once; empty: the deployment reads nothing of this object
	fieldsForDeployment string
	hasFinalizer        bool // Millwright's finalizer is set; its removal signals the object's workflow
	isDraining          bool // the machine's node is being drained, or is queued for a drain
	isQueuedForDrain    bool // the machine is queued for its drain
	// the provider reports OutOfRange for the machine: there are several instances, or no instance although one is
	// expected
	reportsOutOfRange bool
}

// hashParts returns a hash of the parts.
func hashParts(parts ...any) uint64 {
	h := fnv.New64a()
	if err := json.NewEncoder(h).Encode(parts); err != nil {
		_, _ = fmt.Fprint(h, parts...) // Millwright's types can always be encoded; on an error, hash the printed parts
	}
	return h.Sum64()
}

// foreignMetadata returns the labels and annotations that Millwright does not write, except the machine priority. The
// default priority, which Millwright writes, means the same as no priority. So the fingerprints contain
// drain.DeletionPriority instead.
func foreignMetadata(o metav1.Object) [2]map[string]string {
	var result [2]map[string]string
	for i, all := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
		// an empty map, not nil: otherwise Millwright's first annotation on an object would count as a change
		result[i] = map[string]string{}
		for key, value := range all {
			if !v1alpha1.IsOwnMetadataKey(key) && key != v1alpha1.AnnotationMachinePriority {
				result[i][key] = value
			}
		}
	}
	return result
}

func isDeleting(o metav1.Object) bool { return o.GetDeletionTimestamp() != nil }

func machineFingerprints(m *v1alpha1.Machine) fingerprints {
	spec := m.Spec.DeepCopy()
	spec.ProviderID = "" // Millwright writes the provider ID
	// A set compares all labels of its machines except the label node, including the labels that Millwright writes.
	labels := maps.Clone(m.Labels)
	delete(labels, v1alpha1.LabelNode)
	phase, operation := m.Status.CurrentStatus.Phase, m.Status.LastOperation
	operation.LastUpdateTime = metav1.Time{}
	blocked, _ := machine.CreationBlocker(m)
	check, marked := set.HealthCheckResult(m)
	return fingerprints{
		specHash:            hashParts(m.UID, spec, isDeleting(m), foreignMetadata(m)),
		immediateParentHash: hashParts(m.UID, metav1.GetControllerOf(m)),
		debouncedParentHash: hashParts(
			phase,
			operation,
			check,
			marked,
			isDeleting(m),
			foreignMetadata(m),
			labels,
			spec,
			machine.NodeReadyTime(m),
			drain.DeletionPriority(m),
			blocked,
			blockerText(m),
			machine.IsPreserved(m),
			m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime],
			machine.HasJoined(m),
		),
		parentName:          controllerName(m),
		className:           m.Spec.Class.Name,
		nodeName:            cmp.Or(requiredNodeName(m), cache.UnnamedNodeProviderID(m)),
		claim:               cache.ClaimOfMachine(m),
		fieldsForDeployment: fieldsForDeployment(m),
		hasFinalizer:        cache.HasFinalizer(m.Finalizers),
		isDraining:          drain.IsInDrainQueue(m),
		isQueuedForDrain:    drain.IsInDrainQueue(m) && m.Status.Deletion.Queued,
		reportsOutOfRange:   operation.ErrorCode == codeOutOfRange,
	}
}

// blockerText returns the reason and message of a machine's condition Blocked, or "" if the machine has no such
// condition. The machine's set and deployment repeat this text.
func blockerText(m *v1alpha1.Machine) string {
	if c := cache.FindNodeCondition(m.Status.Conditions, v1alpha1.MachineBlocked); c != nil {
		return c.Reason + c.Message
	}
	return ""
}

// requiredNodeName returns the name of the node that a machine depends on. requiredNodeName returns "" before the
// creation is recorded and after the drain.
func requiredNodeName(m *v1alpha1.Machine) string {
	phase := m.Status.CurrentStatus.Phase
	created := phase != "" && phase != v1alpha1.MachineCrashLoopBackOff
	if machine.HasReachedInstanceDeletion(m) || !created && !isDeleting(m) {
		return ""
	}
	return cache.NodeNameOfMachine(m)
}

// codeOutOfRange is the provider's code that starts an orphan sweep, as in machine-controller-manager.
const codeOutOfRange = "OutOfRange"

// fieldsForDeployment returns the machine fields that a deployment reads directly, without waiting for the set's
// status: whether the machine is Running and not being deleted, whether it waits for a replacement, the state of its
// in-place update, and the mark of the cluster autoscaler.
func fieldsForDeployment(m *v1alpha1.Machine) string {
	phase := m.Status.CurrentStatus.Phase
	if runs := phase == v1alpha1.MachineRunning && !isDeleting(m); !runs && !strings.HasPrefix(string(phase), "InPlace") {
		phase = ""
	}
	if machine.WaitsForReplacementGrant(m) {
		phase += "waits"
	}
	return string(phase) + m.Labels[v1alpha1.LabelUpdateResult] + m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime]
}

// machineSetFingerprints returns the fingerprints of a set. The generation also covers the spec fields that this
// version of Millwright does not support. The set's controller decides when the set's failed machines are replaced.
func machineSetFingerprints(s *v1alpha1.MachineSet) fingerprints {
	status, spec := s.Status, s.Spec.DeepCopy()
	spec.Replicas = 0 // no signal for a new size: the deployment wrote it, or reads it in the set's next status
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
		specHash: hashParts(
			s.UID,
			s.Spec,
			s.Generation,
			isDeleting(s),
			cache.IsOrphaning(s),
			foreignMetadata(s),
			metav1.GetControllerOf(s),
		),
		immediateParentHash: hashParts(
			s.UID,
			spec,
			isDeleting(s),
			metav1.GetControllerOf(s),
			failed,
			set.ReplicaFailureReason(s),
			foreignMetadata(s),
		),
		debouncedParentHash: hashParts(
			counts,
			status.ObservedGeneration,
			status.ObservedReplicas,
			status.FailedGenerations, // the deployment grants no replacement after the last retry
			set.BlockedText(s),
		),
		parentName:   controllerName(s),
		hasFinalizer: cache.HasFinalizer(s.Finalizers),
	}
}

func deploymentFingerprints(d *v1alpha1.MachineDeployment) fingerprints {
	_, paused := d.Annotations[v1alpha1.AnnotationPaused]
	_, unfrozen := d.Annotations[v1alpha1.AnnotationUnfreeze]
	isProgressingFalse := slices.ContainsFunc(d.Status.Conditions, func(c v1alpha1.MachineDeploymentCondition) bool {
		return c.Type == v1alpha1.MachineDeploymentProgressing && c.Status == v1alpha1.ConditionFalse
	})
	return fingerprints{
		specHash: hashParts(d.UID, d.Spec, d.Generation, isDeleting(d), cache.IsOrphaning(d), foreignMetadata(d)),
		// the labels are included because a RolloutPolicy selects deployments by labels
		childrenHash: hashParts(d.UID, d.Spec.Template, paused, d.Labels, unfrozen, set.DoesRolloutStandStill(d)),
		turnHash:     turnHash(d.Status.Rollout, isProgressingFalse),
		hasFinalizer: cache.HasFinalizer(d.Finalizers),
	}
}

// turnHash returns a hash of what other deployments read in the status of a deployment to decide whether it is their
// turn. isProgressingFalse is true if the condition Progressing is False.
func turnHash(r *v1alpha1.RolloutStatus, isProgressingFalse bool) uint64 {
	if r == nil {
		r = &v1alpha1.RolloutStatus{}
	}
	return hashParts(r.Turn, r.Pin, r.Set, r.Revision, r.Attempt, isProgressingFalse)
}

// classFingerprints returns the fingerprints of a class. A new generation signals the class's workflow and the
// workflows of its machines that have pending work. If the status starts or stops reporting a missing worker of the
// provider, the machines with a current operation are signaled.
func classFingerprints(c *v1alpha1.MachineClass) fingerprints {
	return fingerprints{
		specHash:     hashParts(c.UID, c.Generation, isDeleting(c)),
		childrenHash: hashParts(class.NoWorkerMessage(c)),
		hasFinalizer: cache.HasFinalizer(c.Finalizers),
	}
}

// secretFingerprints returns the fingerprints of a Secret. The bridge does not read the Secret's data: a new resource
// version counts as a change of the data, unless Millwright's finalizer or the deletion timestamp changed as well. A
// change of the data affects the classes that refer to the Secret, which count as the Secret's parents.
func secretFingerprints(s metav1.Object) fingerprints {
	return fingerprints{
		specHash:            hashParts(s.GetUID(), s.GetResourceVersion()),
		debouncedParentHash: hashParts(s.GetUID(), class.HasSecretFinalizer(s.GetFinalizers()), isDeleting(s)),
	}
}

// nodeFingerprints returns the fingerprints of the node fields that health checks and node syncs read, without
// heartbeats. The fingerprint health covers only the deletion and the conditions, except the condition that a
// machine's deletion writes.
func nodeFingerprints(n *corev1.Node) fingerprints {
	conditions := machine.ConditionsWithoutHeartbeat(n)
	spec := hashParts(
		n.UID,
		conditions,
		n.Labels,
		n.Annotations,
		n.Finalizers,
		n.Spec.Taints,
		n.Spec.Unschedulable,
		n.Spec.ProviderID,
		n.Status.Capacity,
		isDeleting(n),
	)
	written := func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.NodeTerminating }
	return fingerprints{
		specHash:   spec,
		healthHash: hashParts(n.UID, slices.DeleteFunc(conditions, written), isDeleting(n)),
	}
}

// controllerName returns the name of an object's controller, or "" if it has none.
func controllerName(o metav1.Object) string {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return ref.Name
	}
	return ""
}
