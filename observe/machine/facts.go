// Package machine turns a Machine, its node and its class into facts for decide.
package machine

import (
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
	"millwright/observe/cache"
	"millwright/observe/drain"
)

// Related holds the objects that the facts about a machine need besides the machine. Nil means that the object does not
// exist.
type Related struct {
	// Node is the machine's node. One that is proven to be another's or nobody's does not exist for the machine.
	Node  *corev1.Node
	Owner ownership.Answer // whose the node is that the machine names; zero: there is none
	// NodeGone: the API server of the target says that there is no such node. NodeUnknown: the cache has none, and that
	// API server does not answer.
	NodeGone, NodeUnknown bool
	// Found is the node with the machine's provider ID, while the machine does not know its name.
	Found *corev1.Node

	Class    *v1alpha1.MachineClass
	Set      *v1alpha1.MachineSet // the set that controls the machine
	NoTarget bool                 // the machine's node joins no cluster
	Absences cache.Absences       // when no worker was at work
}

// Read returns the objects around a machine from the caches.
func Read(c *cache.Cluster, m *v1alpha1.Machine) Related {
	related := Related{NoTarget: c.Target(m.Namespace) == nil, Absences: c.Absences(), Found: c.NodeToName(m)}
	related.Sees(c, m, c.NodeOf(m))
	related.Class = c.ClassOf(m)
	if owner := metav1.GetControllerOf(m); owner != nil {
		if set, found := c.Set(m.Namespace + "/" + owner.Name); found && set.UID == owner.UID {
			related.Set = set
		}
	}
	return related
}

// Sees records a node that a machine names, nil for none, and whose it is. If there is none, but several nodes have the
// machine's provider ID, it is in doubt which of them is the machine's.
func (related *Related) Sees(c *cache.Cluster, m *v1alpha1.Machine, node *corev1.Node) {
	related.Node, related.Owner = nil, ownership.Answer{}
	switch twins := c.NodesOfInstance(m.Spec.ProviderID); {
	case node != nil:
		related.Owner = c.WhoseNode(m, node)
	case len(twins) > 1:
		related.Owner = c.WhoseNode(m, twins[0])
	}
	if related.Owner.Is(ownership.Ours) || related.Owner.Is(ownership.InDoubt) {
		related.Node = node
	}
}

// Lost reports whether a machine that is to be drained has an instance, and neither the name of its node nor a node with
// its provider ID is known: the cache may lack a node that has just joined.
func (related *Related) Lost(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp != nil && !drain.IsOver(m) && m.Spec.ProviderID != "" && cache.NodeNameOf(m) == "" &&
		!related.NoTarget && related.Found == nil && related.Owner.Whose == "" &&
		drain.AnnotationReason(m, v1alpha1.AnnotationSkipDrain, v1alpha1.AnnotationExcludeDraining) == ""
}

// Own returns the machine's node if it is proven to be the machine's; nil else.
func (related *Related) Own() *corev1.Node {
	if !related.Owner.Is(ownership.Ours) {
		return nil
	}
	return related.Node
}

// DependsOnNode reports whether a decision about a machine depends on whether its node exists: its node has joined, or
// is to be drained.
func DependsOnNode(m *v1alpha1.Machine) bool {
	if m.DeletionTimestamp != nil {
		return !drain.IsOver(m)
	}
	return HasJoined(m) && m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed
}

// MayCall reports whether a machine may have to call the cloud now: it is being deleted, or has no initialised instance.
func MayCall(m *v1alpha1.Machine) bool {
	phase := m.Status.CurrentStatus.Phase
	return m.DeletionTimestamp != nil || !cache.HasFinalizer(m.Finalizers) || m.Spec.ProviderID == "" || phase == "" ||
		phase == v1alpha1.MachineCrashLoopBackOff
}

// Calling returns how many other machines of the same set call the cloud now for the same reason: to create their
// instance, or to delete it if this machine is being deleted.
func Calling(c *cache.Cluster, m *v1alpha1.Machine) int {
	owner := metav1.GetControllerOf(m)
	if owner == nil {
		return 0
	}
	others := slices.DeleteFunc(
		c.MachinesCalling(string(owner.UID), m.DeletionTimestamp != nil),
		func(other *v1alpha1.Machine) bool { return other.UID == m.UID },
	)
	return len(others)
}

// Facts returns the facts from which a machine is planned. Now is the time to decide for; with zero no timeout is
// judged. The arguments are not changed.
func Facts(m *v1alpha1.Machine, related Related, now time.Time) attention.MachineFacts {
	f := attention.MachineFacts{
		Facts:      healthFacts(m, related, now),
		Deleting:   m.DeletionTimestamp != nil,
		Emptied:    IsEmptied(m),
		Finalizer:  cache.HasFinalizer(m.Finalizers),
		ProviderID: m.Spec.ProviderID,

		Preservation: PreserveFacts(m, related.Node, now),
	}
	f.NodeGone = related.NodeGone && f.NodeName != ""
	f.Owner = related.Owner
	if related.Found != nil {
		f.NodeFound = related.Found.Name
	}
	if node := related.Node; node != nil {
		f.NodeExists = true
		f.Conditions, f.Bad = conditions(node), badConditions(m)
		f.NodeDeleting = node.DeletionTimestamp != nil
		f.NodeWaits = nodeWaits(node)
		f.Uncopied = !slices.EqualFunc(CopiedConditions(node), nodeConditions(m), sameCondition)
		f.Wanted, f.Carries = NodeSyncFacts(m, related.Class, node)
		f.Update = drain.InPlaceNode(node)
		f.UpdateResult = knownResult(f.Update.Result)
	}
	return f
}

// nodeWaits says what keeps a healthy node from having joined; empty: nothing.
func nodeWaits(node *corev1.Node) string {
	switch {
	case cache.HasTaint(node, v1alpha1.TaintCriticalComponentsNotReady):
		return "its critical components are not ready"
	case cache.HasTaint(node, v1alpha1.TaintUninitialized):
		return "its cloud controller manager has not initialised it"
	default:
		return ""
	}
}

// IsEmptied reports whether the deletion of a machine has reached the stage Instance or Node.
func IsEmptied(m *v1alpha1.Machine) bool {
	d := m.Status.Deletion
	return d != nil && (d.Stage == v1alpha1.MachineDeletionInstance || d.Stage == v1alpha1.MachineDeletionNode)
}

// healthFacts returns the facts about a machine's health, except those that its node holds.
func healthFacts(m *v1alpha1.Machine, related Related, now time.Time) health.Facts {
	f := health.Facts{
		Name:     m.Name,
		Phase:    string(m.Status.CurrentStatus.Phase),
		NoTarget: related.NoTarget,
		Node:     health.Node{NodeName: cache.NodeNameOf(m)},
		Clocks: health.Clocks{
			Created:  m.CreationTimestamp.Time,
			CreateBy: CreateBy(m, related.Absences, now),
			Since:    m.Status.CurrentStatus.LastUpdateTime.Time,
		},
		Timeout:   m.Spec.EffectiveHealthTimeout(),
		NoTimeout: m.Spec.HealthTimeoutDisabled(),
		UpdateTimeout: m.Spec.EffectiveInPlaceUpdateTimeout() + related.Absences.Between(
			m.Status.CurrentStatus.LastUpdateTime.Time,
			now,
		),
		Replacement: health.Replacement{
			Due:     IsDue(m),
			Granted: IsGranted(m),
			Alone:   related.Set == nil || !HasDeployment(related.Set),
		},
		Preserved: IsPreserved(m),
		Now:       now,
	}
	if h := m.Status.Health; h != nil {
		f.UnhealthySince = h.UnhealthySince.Time
		f.RecoveredAt = cache.TimeOf(h.RecoveredAt)
		f.InstanceGoneAt = cache.TimeOf(h.InstanceGoneAt)
	}
	return f
}

// knownResult returns the result of an in-place update; empty when the label has an unknown value.
func knownResult(result string) string {
	if result == v1alpha1.ValueUpdateSuccessful || result == v1alpha1.ValueUpdateFailed {
		return result
	}
	return ""
}

// CreateBy returns when the creation timeout of a machine ends. It counts from the creation of the object, without the
// time for which the creation was stopped and without the absences. While it is stopped, the end moves with now.
func CreateBy(m *v1alpha1.Machine, absences cache.Absences, now time.Time) time.Time {
	end := m.CreationTimestamp.Add(m.Spec.EffectiveCreationTimeout(m.Annotations))
	if s := m.Status.CreationStopped; s != nil {
		end = end.Add(s.Total.Duration)
		if s.Since != nil {
			return end.Add(max(now.Sub(s.Since.Time), 0) + absences.Between(m.CreationTimestamp.Time, s.Since.Time))
		}
	}
	return end.Add(absences.Between(m.CreationTimestamp.Time, now))
}

// IsDue reports whether the condition ReplacementDue of a machine is True.
func IsDue(m *v1alpha1.Machine) bool {
	return cache.IsTrue(m.Status.Conditions, v1alpha1.MachineReplacementDue)
}

// IsGranted reports whether the replacement of a machine was granted.
func IsGranted(m *v1alpha1.Machine) bool {
	_, granted := m.Annotations[v1alpha1.AnnotationReplacementGranted]
	return granted
}

// HasDeployment reports whether a MachineDeployment controls the set.
func HasDeployment(set *v1alpha1.MachineSet) bool {
	owner := metav1.GetControllerOf(set)
	return owner != nil && owner.Kind == "MachineDeployment"
}

// CopiedConditions returns the conditions of a node in the form that the machine's status holds: without the heartbeat
// time, which changes all the time.
func CopiedConditions(node *corev1.Node) []corev1.NodeCondition {
	copied := slices.DeleteFunc(slices.Clone(node.Status.Conditions), isReserved)
	for i := range copied {
		copied[i].LastHeartbeatTime = metav1.Time{}
	}
	return copied
}

// nodeConditions returns the conditions of a machine that were copied from its node.
func nodeConditions(m *v1alpha1.Machine) []corev1.NodeCondition {
	return slices.DeleteFunc(slices.Clone(m.Status.Conditions), isReserved)
}

func sameCondition(a, b corev1.NodeCondition) bool {
	return a.LastTransitionTime.Equal(&b.LastTransitionTime) &&
		a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

func isReserved(c corev1.NodeCondition) bool { return v1alpha1.IsReservedConditionType(c.Type) }

func conditions(node *corev1.Node) []health.Condition {
	result := make([]health.Condition, 0, len(node.Status.Conditions))
	for _, c := range node.Status.Conditions {
		result = append(result, health.Condition{
			Type:    string(c.Type),
			Status:  string(c.Status),
			Reason:  c.Reason,
			Message: c.Message,
			Since:   c.LastTransitionTime.Time,
		})
	}
	return result
}

// badConditions returns the types of the conditions that make the node of this machine unhealthy.
func badConditions(m *v1alpha1.Machine) []string {
	types := m.Spec.EffectiveNodeConditions()
	names := make([]string, 0, len(types))
	for _, t := range types {
		names = append(names, string(t))
	}
	return names
}

// ReadySince returns since when the node of a Running machine is ready; zero for any other machine.
func ReadySince(m *v1alpha1.Machine) time.Time {
	if m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
		return time.Time{}
	}
	if ready := cache.Condition(m.Status.Conditions, corev1.NodeReady); ready != nil {
		return ready.LastTransitionTime.Time
	}
	return m.Status.CurrentStatus.LastUpdateTime.Time
}

// DeletionFacts returns the facts about a machine that is being deleted. Done is the stage that the run has finished
// although the status may not say so yet.
func DeletionFacts(c *cache.Cluster, m *v1alpha1.Machine, related Related, done deletion.Stage) deletion.Facts {
	f := deletion.Facts{
		Done:              done,
		NodeName:          cache.NodeNameOf(m),
		Node:              related.Own() != nil,
		NodeUnknown:       related.NodeUnknown,
		Owner:             related.Owner,
		Attached:          c.Attached(cache.NodeNameOf(m)),
		PreDrainHooks:     hooks(m, v1alpha1.AnnotationPreDrainHook),
		PreTerminateHooks: hooks(m, v1alpha1.AnnotationPreTerminateHook),
	}
	if d := m.Status.Deletion; d != nil {
		f.Recorded = deletion.Stage(d.Stage)
		if d.Drain != nil {
			f.Result = d.Drain.Result
		}
	}
	f.Hold, f.Abandon = drain.Held(m), drain.AnnotationReason(m, v1alpha1.AnnotationAbandonInstance)
	f.Skip = drain.AnnotationReason(m, v1alpha1.AnnotationSkipDrain, v1alpha1.AnnotationExcludeDraining)
	f.Force, f.AsMCM = drain.Forced(m), c.AsMCM
	f.SkipDetach = drain.AnnotationReason(m, v1alpha1.AnnotationExcludeDetach)
	return f
}

// hooks returns the keys of a machine's annotations that are hooks of a kind.
func hooks(m *v1alpha1.Machine, prefix string) []string {
	var keys []string
	for key := range m.Annotations {
		if key == prefix || strings.HasPrefix(key, prefix+"/") {
			keys = append(keys, key)
		}
	}
	return keys
}

// HasJoined reports whether the node of a machine has ever joined, or never has to.
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

// IsJoinRecorded reports whether it is on record that the node of a machine has joined, whatever its phase is by now.
func IsJoinRecorded(m *v1alpha1.Machine) bool {
	return m.Status.JoinedAt != nil || m.Annotations[v1alpha1.AnnotationMachineJoinDuration] != ""
}
