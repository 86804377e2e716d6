package drain

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/drain"
	"millwright/decide/inplace"
	"millwright/observe/cache"
)

// RecordOf returns the record of a drain; nil if there is none. The zero DrainPurpose means the drain of the machine's
// deletion; any other DrainPurpose means the drain for that purpose and occasion.
func RecordOf(m *v1alpha1.Machine, p attention.DrainPurpose) *v1alpha1.MachineDrain {
	if p.For != "" {
		return StayingDrain(m, v1alpha1.DrainPurpose(p.For), p.Occasion)
	}
	if m.Status.Deletion == nil {
		return nil
	}
	return m.Status.Deletion.Drain
}

// OfStayingMachine returns the record of the active drain of a machine that is not being deleted; nil if there is none.
// OfStayingMachine reads the node's conditions from the copy in the machine's status. The status has no copy of the
// node's labels, and only these labels show that an update was canceled. After such a cancellation, however, the machine
// has no current operation, and OfStayingMachine returns nil.
func OfStayingMachine(m *v1alpha1.Machine) *v1alpha1.StayingDrain {
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

// copiedNode returns a node with the conditions that the machine's status has copied from the machine's node.
func copiedNode(m *v1alpha1.Machine) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: cache.NodeNameOf(m)},
		Status:     corev1.NodeStatus{Conditions: m.Status.Conditions},
	}
}

// StayingDrain returns the record of the drain of a machine that is not being deleted, for this purpose and occasion;
// nil if there is no such record.
func StayingDrain(m *v1alpha1.Machine, purpose v1alpha1.DrainPurpose, occasion time.Time) *v1alpha1.MachineDrain {
	d := m.Status.Drain
	if d == nil || d.Purpose != purpose || !d.Occasion.Equal(new(metav1.NewTime(occasion))) {
		return nil
	}
	return &d.MachineDrain
}

// Draining returns the record of the active drain, for a deletion or for another purpose; nil before a drain begins and
// after it ends.
func Draining(m *v1alpha1.Machine) *v1alpha1.MachineDrain {
	if d := OfStayingMachine(m); d != nil {
		return &d.MachineDrain
	}
	if !InDrain(m) {
		return nil
	}
	return m.Status.Deletion.Drain
}

// IsOver reports whether the drain of a machine that is being deleted has ended, or the deletion is past the stage
// Drain.
func IsOver(m *v1alpha1.Machine) bool {
	d := m.Status.Deletion
	if d == nil {
		return false
	}
	before := []v1alpha1.MachineDeletionStage{"", v1alpha1.MachineDeletionPreDrainHooks, v1alpha1.MachineDeletionDrain}
	return d.Drain != nil && d.Drain.Result != "" || !slices.Contains(before, d.Stage)
}

// Means returns how the drain removes pods at present; empty if no drain is active.
func Means(m *v1alpha1.Machine) drain.Means {
	if d := Draining(m); d != nil {
		return drain.Means(d.Means)
	}
	return ""
}

// Deadlines returns the facts about the deadline of the present step of a deletion or drain; zero if neither is active.
// Deadlines reads the node's conditions from the copy in the machine's status.
func Deadlines(m *v1alpha1.Machine, now time.Time) drain.Deadlines {
	var d drain.Deadlines
	if m.Status.Deletion == nil && OfStayingMachine(m) == nil {
		return d
	}
	if o := m.Status.CurrentOperation; o != nil {
		d.Recorded = cache.TimeOf(o.Deadline)
	}
	if Means(m).Ordered() {
		d.Ladder = new(Ladder(m, Draining(m), copiedNode(m), 0, now))
	}
	return d
}

// OnlyVolumes reports whether a drain is blocked, and only by volumes.
func OnlyVolumes(blockedBy []string) bool {
	other := func(name string) bool { return !strings.HasPrefix(name, drain.BlockedByVolume+" ") }
	return len(blockedBy) > 0 && !slices.ContainsFunc(blockedBy, other)
}

// InPlaceNode returns the facts about a node's in-place update. A label counts only with its exact value: a node whose
// label has the value "false" must not be drained, and a missed update does less harm than a wrong drain.
func InPlaceNode(node *corev1.Node) inplace.Node {
	n := inplace.Node{
		Candidate:    node.Labels[v1alpha1.LabelCandidateForUpdate] == v1alpha1.ValueLowerTrue,
		Selected:     node.Labels[v1alpha1.LabelSelectedForUpdate] == v1alpha1.ValueLowerTrue,
		Result:       node.Labels[v1alpha1.LabelUpdateResult],
		FailedReason: node.Annotations[v1alpha1.AnnotationUpdateFailedReason],
		Cordoned:     node.Spec.Unschedulable,
	}
	if c := cache.Condition(node.Status.Conditions, v1alpha1.NodeInPlaceUpdate); c != nil {
		n.Reason, n.Message, n.Since = c.Reason, c.Message, c.LastTransitionTime.Time
	}
	return n
}

// NextMeans returns the means that follows the present means of a drain; empty if the drain ends after the present means,
// or if no drain is active.
func NextMeans(m *v1alpha1.Machine, d drain.Deadlines) (then drain.Means) {
	switch means := Means(m); {
	case means.Ordered():
		_, then = d.EvictUntil()
	case means == drain.Delete:
		then = drain.Kill
	}
	return then
}
