package drain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/drain"
	"millwright/decide/inplace"
	"millwright/observe/cache"
)

// RecordOf returns the record of a drain: with the zero DrainPurpose that of a machine's deletion, else the one for that
// purpose and occasion. Nil when there is none.
func RecordOf(m *v1alpha1.Machine, p attention.DrainPurpose) *v1alpha1.MachineDrain {
	if p.For != "" {
		return StayingDrain(m, v1alpha1.DrainPurpose(p.For), p.Occasion)
	}
	if m.Status.Deletion == nil {
		return nil
	}
	return m.Status.Deletion.Drain
}

// Staying returns the record of the drain that empties the node of a machine that stays; nil when none does. It knows
// the node by the conditions that the machine has copied. That an update was called off, the node tells by labels alone: of
// the machine, only that nothing is in motion any more.
func Staying(m *v1alpha1.Machine) *v1alpha1.StayingDrain {
	d := m.Status.Drain
	if d == nil || d.Result != "" || m.DeletionTimestamp != nil || m.Status.CurrentOperation == nil {
		return nil
	}
	var occasion time.Time
	switch {
	case d.Purpose == v1alpha1.DrainForUpdate:
		occasion = InPlaceNode(copiedNode(m)).Since
	case m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed:
		occasion = cache.TimeOf(m.Status.CurrentStatus.PreserveExpiryTime)
	}
	if occasion.IsZero() || StayingDrain(m, d.Purpose, occasion) == nil {
		return nil
	}
	return d
}

// copiedNode is the node of a machine as far as the machine tells of it.
func copiedNode(m *v1alpha1.Machine) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.Labels[v1alpha1.LabelNode]},
		Status:     corev1.NodeStatus{Conditions: m.Status.Conditions},
	}
}

// StayingDrain returns the record of the drain of a machine that stays, for this purpose and occasion; nil when there is none.
func StayingDrain(m *v1alpha1.Machine, purpose v1alpha1.DrainPurpose, occasion time.Time) *v1alpha1.MachineDrain {
	d := m.Status.Drain
	if d == nil || d.Purpose != purpose || !d.Occasion.Equal(new(metav1.NewTime(occasion))) {
		return nil
	}
	return &d.MachineDrain
}

// Draining returns the record of the drain that is under way, whatever the node is emptied for; nil before the drain has
// begun, and after it.
func Draining(m *v1alpha1.Machine) *v1alpha1.MachineDrain {
	if d := Staying(m); d != nil {
		return &d.MachineDrain
	}
	if !InDrain(m) {
		return nil
	}
	return m.Status.Deletion.Drain
}

// IsOver reports whether nothing is done to the pods of the node of a machine that is being deleted any more.
func IsOver(m *v1alpha1.Machine) bool {
	d := m.Status.Deletion
	if d == nil {
		return false
	}
	before := []v1alpha1.MachineDeletionStage{"", v1alpha1.MachineDeletionPreDrainHooks, v1alpha1.MachineDeletionDrain}
	return d.Drain != nil && d.Drain.Result != "" || !slices.Contains(before, d.Stage)
}

// Means is how pods are made to go now; empty before the drain has begun, and after it.
func Means(m *v1alpha1.Machine) drain.Means {
	d := Draining(m)
	if d == nil {
		return ""
	}
	return drain.Means(d.Means)
}

// Deadlines returns the facts about the end of the present step of a deletion or drain; zero when neither is under way. The
// node's conditions are those that the machine's status has copied.
func Deadlines(m *v1alpha1.Machine, now time.Time) drain.Deadlines {
	var d drain.Deadlines
	if m.Status.Deletion == nil && Staying(m) == nil {
		return d
	}
	if o := m.Status.CurrentOperation; o != nil {
		d.Recorded = cache.TimeOf(o.Deadline)
	}
	if Means(m) == drain.Evict {
		d.Ladder = new(Ladder(m, Draining(m), copiedNode(m), 0, now))
	}
	return d
}

// InPlaceNode returns what a node says of its in-place update. A label counts with its exact value: to empty a node because
// of one that says "false" would be the worse mistake.
func InPlaceNode(node *corev1.Node) inplace.Node {
	n := inplace.Node{
		Candidate:    node.Labels[v1alpha1.LabelCandidateForUpdate] == v1alpha1.ValueLowerTrue,
		Selected:     node.Labels[v1alpha1.LabelSelectedForUpdate] == v1alpha1.ValueLowerTrue,
		Result:       node.Labels[v1alpha1.LabelUpdateResult],
		FailedReason: node.Annotations[v1alpha1.AnnotationUpdateFailedReason],
		Cordoned:     node.Spec.Unschedulable,
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1alpha1.NodeInPlaceUpdate {
			n.Reason, n.Message, n.Since = c.Reason, c.Message, c.LastTransitionTime.Time
		}
	}
	return n
}
