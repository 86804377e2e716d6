package observe

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/health"
)

// Around is what stands around a machine and makes its facts. What is not there is nil.
type Around struct {
	Node     *corev1.Node
	Class    *v1alpha1.MachineClass
	Set      *v1alpha1.MachineSet // that controls the machine
	NoTarget bool                 // there is no cluster that a node could join
}

// Around returns what stands around a machine, from the caches.
func (c *Cluster) Around(m *v1alpha1.Machine) Around {
	around := Around{Node: c.NodeOf(m), NoTarget: c.Target(m.Namespace) == nil}
	around.Class, _ = c.Class(m.Namespace + "/" + m.Spec.Class.Name)
	if owner := metav1.GetControllerOf(m); owner != nil {
		if set, found := c.Set(m.Namespace + "/" + owner.Name); found && set.UID == owner.UID {
			around.Set = set
		}
	}
	return around
}

// Calling returns how many other machines of the same set the cloud makes at this moment, or deletes if this one is to go.
func (c *Cluster) Calling(m *v1alpha1.Machine) int {
	owner := metav1.GetControllerOf(m)
	if owner == nil {
		return 0
	}
	n := 0
	for _, other := range c.MachinesOf(string(owner.UID)) {
		if other.UID != m.UID && (other.DeletionTimestamp != nil) == (m.DeletionTimestamp != nil) && isCalling(other) {
			n++
		}
	}
	return n
}

// isCalling reports whether a machine is at the step at which the cloud makes or deletes its instance.
func isCalling(m *v1alpha1.Machine) bool {
	if m.DeletionTimestamp != nil {
		return m.Status.Deletion != nil && m.Status.Deletion.Stage == v1alpha1.MachineDeletionInstance
	}
	return m.Spec.ProviderID == "" && m.Status.LastOperation.Type == v1alpha1.MachineOperationCreate &&
		m.Status.LastOperation.State == v1alpha1.MachineStateProcessing // one that failed waits, and calls nobody
}

// NodeOf returns the node of a machine from the cache: the one that its label names. Nil when there is none.
func (c *Cluster) NodeOf(m *v1alpha1.Machine) *corev1.Node {
	name := m.Labels[v1alpha1.LabelNode]
	if name == "" {
		return nil
	}
	node, _ := c.Node(name)
	return node
}

// MachineFacts turns a machine and what stands around it into the facts that say whether the machine is calm. With a time
// they say, too, whether its preservation is over; zero judges none.
func MachineFacts(m *v1alpha1.Machine, around Around, now time.Time) attention.MachineFacts {
	f := attention.MachineFacts{
		Deleting:   m.DeletionTimestamp != nil,
		Emptied:    isEmptied(m),
		Finalizer:  HasFinalizer(m.Finalizers),
		Phase:      string(m.Status.CurrentStatus.Phase),
		ProviderID: m.Spec.ProviderID,
		NodeName:   m.Labels[v1alpha1.LabelNode],
		NoTarget:   around.NoTarget,
		NodeExists: around.Node != nil,
		Due:        IsDue(m),
		Granted:    isGranted(m),
		Preserved:  IsPreserved(m),
		Alone:      around.Set == nil || !HasDeployment(around.Set) || IsProtected(m), // what is preserved is not replaced, and needs no grant
	}
	if node := around.Node; node != nil {
		f.NodeHealthy, f.NodeWhy = health.Decide(conditions(node), badConditions(m))
		f.NodeGoing = node.DeletionTimestamp != nil
		f.NodeHeld = isHeld(node)
		f.Uncopied = !slices.EqualFunc(CopiedConditions(node), nodeConditions(m), sameCondition)
		f.Unsynced = NodeSync(m, around.Class, node).Why()
	}
	f.Unpreserved = Preservation(m, around.Node, now).Why
	f.UpdateStep = string(InPlace(m, around.Node).Step)
	f.Undrained = EmptyingOf(m, around.Node, now).Purpose == v1alpha1.DrainForPreservation
	f.Updated = UpdateResult(around.Node)
	return f
}

// isEmptied reports whether a machine's deletion has come to its instance, or past it.
func isEmptied(m *v1alpha1.Machine) bool {
	d := m.Status.Deletion
	return d != nil && (d.Stage == v1alpha1.MachineDeletionInstance || d.Stage == v1alpha1.MachineDeletionNode)
}

// isHeld reports whether the critical components of a node are not ready, by its taint.
func isHeld(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintCriticalComponentsNotReady })
}

// HealthFacts turns a machine and what stands around it into the facts that say what becomes of it. Breaker is what
// decide/replace says of the target's nodes; now is the time to decide for.
func HealthFacts(m *v1alpha1.Machine, around Around, breaker string, now time.Time) health.Facts {
	facts := MachineFacts(m, around, now)
	f := health.Facts{
		Name:      m.Name,
		Phase:     facts.Phase,
		NoTarget:  facts.NoTarget,
		Instance:  facts.ProviderID != "",
		NodeName:  facts.NodeName,
		Healthy:   facts.NodeHealthy,
		NodeGoing: facts.NodeGoing,
		NodeHeld:  facts.NodeHeld,
		Why:       stateOf(facts),
		Created:   m.CreationTimestamp.Time,
		CreateBy:  CreateBy(m, now),
		Since:     m.Status.CurrentStatus.LastUpdateTime.Time,
		Timeout:   m.Spec.EffectiveHealthTimeout(),
		NoTimeout: m.Spec.HealthTimeoutDisabled(),
		Due:       facts.Due,
		Granted:   facts.Granted,
		Preserved: facts.Preserved,

		UpdateResult: facts.Updated, UpdateTimeout: m.Spec.EffectiveInPlaceUpdateTimeout(),
		Alone:   facts.Alone,
		Breaker: breaker,
		Now:     now,
	}
	if around.Node != nil {
		f.BadSince = health.BadSince(conditions(around.Node), badConditions(m))
	}
	if h := m.Status.Health; h != nil {
		f.UnhealthySince, f.RecoveredAt, f.InstanceGoneAt = h.UnhealthySince.Time, timeOf(h.RecoveredAt), timeOf(h.InstanceGoneAt)
	}
	return f
}

// stateOf says in which state a machine and its node are, without what there is to write because of it.
func stateOf(f attention.MachineFacts) string {
	f.Granted, f.Due, f.Uncopied, f.Unsynced = false, false, false, ""
	return attention.Machine(f).Why
}

// UpdateResult returns the result of a node's in-place update, as its agent says; empty while it says none that we know.
func UpdateResult(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	switch result := node.Labels[v1alpha1.LabelUpdateResult]; result {
	case v1alpha1.ValueUpdateSuccessful, v1alpha1.ValueUpdateFailed:
		return result
	default:
		return ""
	}
}

// CreateBy returns when the creation timeout of a machine ends. It counts from the creation of the object, without the time
// for which the creation waited for a person; while it does wait, the end moves on with now.
func CreateBy(m *v1alpha1.Machine, now time.Time) time.Time {
	end := m.CreationTimestamp.Add(m.Spec.EffectiveCreationTimeout(m.Annotations))
	if s := m.Status.CreationStopped; s != nil {
		end = end.Add(s.Total.Duration)
		if s.Since != nil {
			end = end.Add(max(now.Sub(s.Since.Time), 0))
		}
	}
	return end
}

// IsDue reports whether patience with a machine has ended, as its status says.
func IsDue(m *v1alpha1.Machine) bool {
	return slices.ContainsFunc(m.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.MachineReplacementDue && c.Status == corev1.ConditionTrue
	})
}

func isGranted(m *v1alpha1.Machine) bool {
	_, granted := m.Annotations[v1alpha1.AnnotationReplacementGranted]
	return granted
}

// HasDeployment reports whether a MachineDeployment controls the set.
func HasDeployment(set *v1alpha1.MachineSet) bool {
	owner := metav1.GetControllerOf(set)
	return owner != nil && owner.Kind == "MachineDeployment"
}

// HasFinalizer reports whether our finalizer is among these.
func HasFinalizer(finalizers []string) bool {
	return slices.Contains(finalizers, v1alpha1.FinalizerMachine)
}

// CopiedConditions returns a node's conditions as its machine's status holds them: with their messages, and without the
// heartbeat, which is no news.
func CopiedConditions(node *corev1.Node) []corev1.NodeCondition {
	copied := slices.DeleteFunc(slices.Clone(node.Status.Conditions), isReserved)
	for i := range copied {
		copied[i].LastHeartbeatTime = metav1.Time{}
	}
	return copied
}

// nodeConditions returns those of a machine's conditions that were copied from its node.
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

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
