// Package machine derives facts for decide from a Machine, its node and its class.
package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/health"
	"millwright/decide/ownership"
	"millwright/decide/phrase"
	"millwright/observe/cache"
	"millwright/observe/drain"
)

// RelatedObjects contains the objects that the facts about a machine need in addition to the machine. A nil field means
// that the object does not exist.
type RelatedObjects struct {
	// Node is the machine's node. Node is nil if the node that the machine names provably belongs to another machine or
	// to no machine.
	Node      *corev1.Node
	NodeOwner ownership.OwnerAnswer // owner of the node that the machine names; zero without a node
	// NodeGone means that the node does not exist in the target cluster. NodeUnknown means that the cache has no such
	// node, and that the target is not connected or its API server does not answer.
	NodeGone, NodeUnknown bool
	// FoundNode is the node with the machine's provider ID, while the machine has no node name.
	FoundNode *corev1.Node

	Class           *v1alpha1.MachineClass
	Set             *v1alpha1.MachineSet // set that controls the machine
	NoTargetCluster bool                 // the machine's node joins no cluster
	TargetDown      string               // why the target cluster is not connected; empty: it is connected
	TargetDownSince time.Time            // start of the state of TargetDown; zero: not known
	Absences        cache.WorkerAbsences // times during which no worker was running, or the target did not answer
	TargetAbsences  cache.WorkerAbsences // times during which Millwright had no connection to the target
}

// ReadRelatedObjects returns the objects related to a machine from the caches.
func ReadRelatedObjects(c *cache.Cluster, m *v1alpha1.Machine) RelatedObjects {
	target := c.Target(m.Namespace)
	related := RelatedObjects{
		NoTargetCluster: target == nil,
		TargetDown:      TargetDownReason(target, m.Namespace),
		TargetDownSince: target.Status().Since,
		Absences:        c.AbsencesOfNamespace(m.Namespace),
		TargetAbsences:  c.AbsencesOfTarget(m.Namespace),
		FoundNode:       c.UnrecordedNodeOfMachine(m),
	}
	related.SetNodeAndOwner(c, m, target.NodeOfMachine(m))
	// a cache that is not current does not prove that there is no node
	named := cache.NodeNameOfMachine(m) != "" && target.NodeOfMachine(m) == nil
	related.NodeUnknown = related.TargetDown != "" && related.FoundNode == nil && (named || related.HasUnknownNode(m))
	related.Class = c.ClassOfMachine(m)
	if owner := metav1.GetControllerOf(m); owner != nil {
		if set, found := c.MachineSet(m.Namespace + "/" + owner.Name); found && set.UID == owner.UID {
			related.Set = set
		}
	}
	return related
}

// TargetDownReason returns why the target cluster of a namespace is not connected; empty if it is connected.
func TargetDownReason(target *cache.Target, namespace string) string {
	status := target.Status()
	if status.State == cache.TargetReady {
		return ""
	}
	return fmt.Sprintf("the target cluster of namespace %s is not connected: %s", namespace, status.Message)
}

// SetNodeAndOwner records the node that a machine names (nil if there is no such node) and the node's owner. If the
// machine names no node, but several nodes have its provider ID, then the machine's node is in doubt.
func (related *RelatedObjects) SetNodeAndOwner(c *cache.Cluster, m *v1alpha1.Machine, node *corev1.Node) {
	related.Node, related.NodeOwner = nil, ownership.OwnerAnswer{}
	switch twins := c.Target(m.Namespace).NodesOfInstance(m.Spec.ProviderID); {
	case node != nil:
		related.NodeOwner = c.OwnerOfNode(m, node)
	case len(twins) > 1:
		related.NodeOwner = c.OwnerOfNode(m, twins[0])
	}
	if related.NodeOwner.HasOwnerKind(ownership.OwnerSelf) || related.NodeOwner.HasOwnerKind(ownership.OwnerInDoubt) {
		related.Node = node
	}
}

// HasUnknownNode reports whether a machine has an instance and must be drained, but its node is unknown: the machine
// has no node name, and no node has its provider ID. The cache may not contain a node that joined a moment ago.
func (related *RelatedObjects) HasUnknownNode(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp != nil && !drain.IsDrainOver(m) && m.Spec.ProviderID != "" &&
		cache.NodeNameOfMachine(m) == "" &&
		!related.NoTargetCluster &&
		related.FoundNode == nil &&
		related.NodeOwner.Whose == "" &&
		drain.FirstAnnotationText(m, v1alpha1.AnnotationSkipDrain, v1alpha1.AnnotationExcludeDraining) == ""
}

// OwnedNode returns the machine's node if it provably belongs to the machine; otherwise nil.
func (related *RelatedObjects) OwnedNode() *corev1.Node {
	if !related.NodeOwner.HasOwnerKind(ownership.OwnerSelf) {
		return nil
	}
	return related.Node
}

// DependsOnNode reports whether a decision about a machine depends on whether its node exists: the node has joined, or
// must be drained.
func DependsOnNode(m *v1alpha1.Machine) bool {
	if m.DeletionTimestamp != nil {
		return !drain.IsDrainOver(m)
	}
	return HasJoined(m) && m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed
}

// MayCallCloud reports whether a machine may need a cloud call now: it is being deleted, or its instance is not created
// and initialized yet.
func MayCallCloud(m *v1alpha1.Machine) bool {
	phase := m.Status.CurrentStatus.Phase
	return m.DeletionTimestamp != nil || !cache.HasFinalizer(m.Finalizers) || m.Spec.ProviderID == "" || phase == "" ||
		phase == v1alpha1.MachineCrashLoopBackOff
}

// CloudCallCount returns how many other machines of the set are in the same kind of cloud call now. The kind is
// deletion if this machine is being deleted, otherwise creation.
func CloudCallCount(c *cache.Cluster, m *v1alpha1.Machine) int {
	owner := metav1.GetControllerOf(m)
	if owner == nil {
		return 0
	}
	others := slices.DeleteFunc(
		c.MachinesCallingCloud(string(owner.UID), m.DeletionTimestamp != nil),
		func(other *v1alpha1.Machine) bool { return other.UID == m.UID },
	)
	return len(others)
}

// Facts returns the facts from which the plan for a machine is made. The parameter now is the time of the decision;
// with a zero time, no timeout counts. Facts does not change its arguments.
func Facts(m *v1alpha1.Machine, related RelatedObjects, now time.Time) attention.MachineFacts {
	f := attention.MachineFacts{
		Facts:      healthFacts(m, related, now),
		Deleting:   m.DeletionTimestamp != nil,
		Emptied:    HasReachedInstanceDeletion(m),
		Finalizer:  cache.HasFinalizer(m.Finalizers),
		ProviderID: m.Spec.ProviderID,

		Preservation: PreservationFacts(m, related.Node, now),
	}
	f.NodeGone = related.NodeGone && f.NodeName != ""
	f.Owner = related.NodeOwner
	if related.FoundNode != nil {
		f.NodeFound = related.FoundNode.Name
	}
	if node := related.Node; node != nil {
		f.NodeExists = true
		f.Conditions, f.Bad = healthConditions(node), unhealthyConditionTypes(m)
		f.NodeDeleting = node.DeletionTimestamp != nil
		f.NodeWaits = joinBlocker(node)
		f.Uncopied = !slices.EqualFunc(CopiedConditions(node), nodeConditions(m), isSameCondition)
		f.Wanted, f.Carries = NodeSyncFacts(m, related.Class, node)
		f.Update = drain.InPlaceFacts(node)
		f.UpdateResult = validUpdateResult(f.Update.Result)
	}
	return f
}

// joinBlocker returns why a healthy node has not joined yet; empty if nothing blocks the join.
func joinBlocker(node *corev1.Node) string {
	switch {
	case cache.HasTaint(node, v1alpha1.TaintCriticalComponentsNotReady):
		return "its critical components are not ready"
	case cache.HasTaint(node, v1alpha1.TaintUninitialized):
		return "its cloud controller manager has not initialised it"
	default:
		return ""
	}
}

// HasReachedInstanceDeletion reports whether the deletion of a machine has reached the stage Instance or Node.
func HasReachedInstanceDeletion(m *v1alpha1.Machine) bool {
	d := m.Status.Deletion
	return d != nil && (d.Stage == v1alpha1.MachineDeletionInstance || d.Stage == v1alpha1.MachineDeletionNode)
}

// healthFacts returns the facts about a machine's health, without the facts from the node.
func healthFacts(m *v1alpha1.Machine, related RelatedObjects, now time.Time) health.Facts {
	f := health.Facts{
		Name:            m.Name,
		Phase:           string(m.Status.CurrentStatus.Phase),
		NoTargetCluster: related.NoTargetCluster,
		TargetDown:      related.TargetDown,
		Node:            health.Node{NodeName: cache.NodeNameOfMachine(m)},
		TimeoutClocks: health.TimeoutClocks{
			Created:  m.CreationTimestamp.Time,
			CreateBy: CreationDeadline(m, related.Absences, now),
			Since:    m.Status.CurrentStatus.LastUpdateTime.Time,

			TargetAbsent: related.TargetAbsences.DurationBetween(healthTimeoutStart(m), now),
		},
		Timeout:   m.Spec.EffectiveHealthTimeout(),
		NoTimeout: m.Spec.HealthTimeoutDisabled(),
		UpdateTimeout: m.Spec.EffectiveInPlaceUpdateTimeout() + related.Absences.DurationBetween(
			m.Status.CurrentStatus.LastUpdateTime.Time,
			now,
		),
		Replacement: health.Replacement{
			Due:     IsReplacementDue(m),
			Granted: IsReplacementGranted(m),
			Alone:   related.Set == nil || !HasDeployment(related.Set),
		},
		Preserved: IsPreserved(m),
		Now:       now,
	}
	if h := m.Status.Health; h != nil {
		f.UnhealthySince = h.UnhealthySince.Time
		f.RecoveredAt = cache.TimeOrZero(h.RecoveredAt)
		f.InstanceGoneAt = cache.TimeOrZero(h.InstanceGoneAt)
	}
	return f
}

// healthTimeoutStart returns when the health timeout of a machine began. For a machine without a health timeout, the
// returned time has no meaning.
func healthTimeoutStart(m *v1alpha1.Machine) time.Time {
	h, unknown := m.Status.Health, m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown
	if unknown && h != nil && !h.UnhealthySince.IsZero() {
		return h.UnhealthySince.Time
	}
	return m.Status.CurrentStatus.LastUpdateTime.Time
}

// validUpdateResult returns the result of an in-place update; empty if the label has an unknown value.
func validUpdateResult(result string) string {
	if result == v1alpha1.ValueUpdateSuccessful || result == v1alpha1.ValueUpdateFailed {
		return result
	}
	return ""
}

// CreationDeadline returns when the creation timeout of a machine expires. The timeout starts at the creation of the
// Machine object. The time during which the creation was stopped or no worker was running does not count. While the
// creation is stopped, a later now gives a later deadline.
func CreationDeadline(m *v1alpha1.Machine, absences cache.WorkerAbsences, now time.Time) time.Time {
	end := m.CreationTimestamp.Add(m.Spec.EffectiveCreationTimeout(m.Annotations))
	if s := m.Status.CreationStopped; s != nil {
		end = end.Add(s.Total.Duration)
		if s.Since != nil {
			return end.Add(max(now.Sub(s.Since.Time), 0) + absences.DurationBetween(m.CreationTimestamp.Time, s.Since.Time))
		}
	}
	return end.Add(absences.DurationBetween(m.CreationTimestamp.Time, now))
}

// IsReplacementDue reports whether a machine's condition ReplacementDue is True.
func IsReplacementDue(m *v1alpha1.Machine) bool {
	return cache.IsConditionTrue(m.Status.Conditions, v1alpha1.MachineReplacementDue)
}

// IsReplacementGranted reports whether the replacement of a machine is granted.
func IsReplacementGranted(m *v1alpha1.Machine) bool {
	_, granted := m.Annotations[v1alpha1.AnnotationReplacementGranted]
	return granted
}

// HasDeployment reports whether a MachineDeployment controls the set.
func HasDeployment(set *v1alpha1.MachineSet) bool {
	owner := metav1.GetControllerOf(set)
	return owner != nil && owner.Kind == "MachineDeployment"
}

// Bounds of what a machine's status copies from a node. The API server of a target cluster may belong to somebody who
// wants to fill the control cluster, and need not obey the limits of Kubernetes.
const (
	// maxCopiedConditions is the maximum number of copied conditions. Source: the kubelet sets 4 conditions, and
	// node-problem-detector 15 more.
	maxCopiedConditions = 32
	// maxConditionTypeBytes is the maximum length of the type and the status of a copied condition. Source: Kubernetes'
	// limit for the type of a condition.
	maxConditionTypeBytes = 316
)

// CopiedConditions returns a node's conditions as the machine's status stores them: without the heartbeat time, which
// changes too often, at most maxCopiedConditions, and with shortened texts. The condition Ready is always among them.
func CopiedConditions(node *corev1.Node) []corev1.NodeCondition {
	copied := ConditionsWithoutHeartbeat(node)
	if len(copied) > maxCopiedConditions {
		ready := func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }
		if i := slices.IndexFunc(copied, ready); i >= maxCopiedConditions {
			copied[maxCopiedConditions-1] = copied[i]
		}
		copied = copied[:maxCopiedConditions]
	}
	for i := range copied {
		c := &copied[i]
		c.Type = corev1.NodeConditionType(phrase.TruncateText(string(c.Type), maxConditionTypeBytes))
		c.Status = corev1.ConditionStatus(phrase.TruncateText(string(c.Status), maxConditionTypeBytes))
		c.Reason, c.Message = phrase.TruncateMessage(c.Reason), phrase.TruncateMessage(c.Message)
	}
	return copied
}

// ConditionsWithoutHeartbeat returns all conditions of a node except those that only Millwright writes, without the
// heartbeat time.
func ConditionsWithoutHeartbeat(node *corev1.Node) []corev1.NodeCondition {
	conditions := slices.DeleteFunc(slices.Clone(node.Status.Conditions), isReservedCondition)
	for i := range conditions {
		conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return conditions
}

// nodeConditions returns the conditions in a machine's status that were copied from its node.
func nodeConditions(m *v1alpha1.Machine) []corev1.NodeCondition {
	return slices.DeleteFunc(slices.Clone(m.Status.Conditions), isReservedCondition)
}

func isSameCondition(a, b corev1.NodeCondition) bool {
	return a.LastTransitionTime.Equal(&b.LastTransitionTime) &&
		a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

func isReservedCondition(c corev1.NodeCondition) bool {
	return v1alpha1.IsReservedConditionType(c.Type)
}

func healthConditions(node *corev1.Node) []health.Condition {
	result := make([]health.Condition, 0, len(node.Status.Conditions))
	for _, c := range node.Status.Conditions {
		result = append(result, health.Condition{
			Type:    string(c.Type),
			Status:  string(c.Status),
			Reason:  phrase.TruncateMessage(c.Reason), // may get into a message of the machine
			Message: phrase.TruncateMessage(c.Message),
			Since:   c.LastTransitionTime.Time,
		})
	}
	return result
}

// unhealthyConditionTypes returns the types of the conditions that make the node of this machine unhealthy.
func unhealthyConditionTypes(m *v1alpha1.Machine) []string {
	types := m.Spec.EffectiveNodeConditions()
	names := make([]string, 0, len(types))
	for _, t := range types {
		names = append(names, string(t))
	}
	return names
}

// NodeReadyTime returns the time since which the node of a Running machine is ready; zero for a machine in another
// phase.
func NodeReadyTime(m *v1alpha1.Machine) time.Time {
	if m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
		return time.Time{}
	}
	if ready := cache.FindNodeCondition(m.Status.Conditions, corev1.NodeReady); ready != nil {
		return ready.LastTransitionTime.Time
	}
	return m.Status.CurrentStatus.LastUpdateTime.Time
}

// DeletionFacts returns the facts about a machine that is being deleted. The parameter done is the stage that the
// workflow has finished, even if the status does not show it yet.
func DeletionFacts(c *cache.Cluster, m *v1alpha1.Machine, related RelatedObjects, done deletion.Stage) deletion.Facts {
	f := deletion.Facts{
		CompletedStage:      done,
		NodeName:            cache.NodeNameOfMachine(m),
		HasNode:             related.OwnedNode() != nil,
		NodeUnknown:         related.NodeUnknown,
		Owner:               related.NodeOwner,
		AttachedVolumeCount: c.Target(m.Namespace).AttachedVolumeCount(cache.NodeNameOfMachine(m)),
		PreDrainHooks:       hookKeys(m, v1alpha1.AnnotationPreDrainHook),
		PreTerminateHooks:   hookKeys(m, v1alpha1.AnnotationPreTerminateHook),
	}
	if d := m.Status.Deletion; d != nil {
		f.RecordedStage = deletion.Stage(d.Stage)
		if d.Drain != nil {
			f.DrainResult = d.Drain.Result
		}
	}
	f.HoldReason, f.AbandonReason = drain.HoldReason(m), drain.FirstAnnotationText(m, v1alpha1.AnnotationAbandonInstance)
	f.SkipDrainReason = drain.FirstAnnotationText(m, v1alpha1.AnnotationSkipDrain, v1alpha1.AnnotationExcludeDraining)
	f.ForceReason, f.BehavesAsMCM = drain.ForceReason(m), c.BehavesAsMCM
	f.SkipDetachReason = drain.FirstAnnotationText(m, v1alpha1.AnnotationExcludeDetach)
	return f
}

// hookKeys returns the keys of a machine's annotations for hooks of one kind, in random order.
func hookKeys(m *v1alpha1.Machine, prefix string) []string {
	var keys []string
	for key := range m.Annotations {
		if key == prefix || strings.HasPrefix(key, prefix+"/") {
			keys = append(keys, key)
		}
	}
	return keys
}

// HasJoined reports whether the node of a machine has joined at some time, or need not join.
func HasJoined(m *v1alpha1.Machine) bool {
	switch m.Status.CurrentStatus.Phase {
	case "",
		v1alpha1.MachinePending,
		v1alpha1.MachineCrashLoopBackOff,
		v1alpha1.MachineFailed,
		v1alpha1.MachineTerminating:
		return IsJoinRecorded(m)
	default:
		return true
	}
}

// IsJoinRecorded reports whether the machine records that its node has joined. The phase of the machine does not
// matter.
func IsJoinRecorded(m *v1alpha1.Machine) bool {
	return m.Status.JoinedAt != nil || m.Annotations[v1alpha1.AnnotationMachineJoinDuration] != ""
}
