package drain

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/drain"
	"millwright/decide/inplace"
	"millwright/observe/cache"
)

// FindRecord returns the record of a drain; nil if there is none. With a zero DrainPurpose, FindRecord returns the
// record of the drain for the machine's deletion; otherwise, it returns the record for this purpose and occasion.
func FindRecord(m *v1alpha1.Machine, p attention.DrainPurpose) *v1alpha1.MachineDrain {
	if p.For != "" {
		return FindStayingDrain(m, v1alpha1.DrainPurpose(p.For), p.Occasion)
	}
	if m.Status.Deletion == nil {
		return nil
	}
	return m.Status.Deletion.Drain
}

// ActiveStayingDrain returns the record of the active drain of a machine that is not being deleted; nil if
// there is none. ActiveStayingDrain reads the node's conditions from the copy in the machine's status. The
// status has no copy of the node's labels, and only these labels show that an update was canceled. After such a
// cancellation, however, the machine has no current operation, and ActiveStayingDrain returns nil.
func ActiveStayingDrain(m *v1alpha1.Machine) *v1alpha1.StayingDrain {
	d := m.Status.Drain
	if d == nil || d.Result != "" || m.DeletionTimestamp != nil || m.Status.CurrentOperation == nil {
		return nil
	}
	var occasion time.Time
	switch {
	case d.Purpose == v1alpha1.DrainForUpdate:
		occasion = InPlaceFacts(nodeFromStatus(m)).Since
	case m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed:
		occasion = cache.TimeOrZero(m.Status.CurrentStatus.PreserveExpiryTime)
	}
	if occasion.IsZero() || FindStayingDrain(m, d.Purpose, occasion) == nil {
		return nil
	}
	return d
}

// nodeFromStatus returns a node with the conditions that the machine's status has copied from the machine's node.
func nodeFromStatus(m *v1alpha1.Machine) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: cache.NodeNameOfMachine(m)},
		Status:     corev1.NodeStatus{Conditions: m.Status.Conditions},
	}
}

// FindStayingDrain returns the record of the drain of a machine that is not being deleted, for this purpose
// and occasion; nil if there is no such record.
func FindStayingDrain(
	m *v1alpha1.Machine,
	purpose v1alpha1.DrainPurpose,
	occasion time.Time,
) *v1alpha1.MachineDrain {
	d := m.Status.Drain
	if d == nil || d.Purpose != purpose || !d.Occasion.Equal(new(metav1.NewTime(occasion))) {
		return nil
	}
	return &d.MachineDrain
}

// ActiveRecord returns the record of the active drain, for a deletion or for another purpose; nil if no drain is
// active.
func ActiveRecord(m *v1alpha1.Machine) *v1alpha1.MachineDrain {
	if d := ActiveStayingDrain(m); d != nil {
		return &d.MachineDrain
	}
	if !IsInDrainQueue(m) {
		return nil
	}
	return m.Status.Deletion.Drain
}

// IsDrainOver reports whether the drain of a machine that is being deleted has ended, or the deletion is past the stage
// Drain.
func IsDrainOver(m *v1alpha1.Machine) bool {
	d := m.Status.Deletion
	if d == nil {
		return false
	}
	before := []v1alpha1.MachineDeletionStage{"", v1alpha1.MachineDeletionPreDrainHooks, v1alpha1.MachineDeletionDrain}
	return d.Drain != nil && d.Drain.Result != "" || !slices.Contains(before, d.Stage)
}

// CurrentRemovalMeans returns how the drain removes pods at present; empty if no drain is active.
func CurrentRemovalMeans(m *v1alpha1.Machine) drain.RemovalMeans {
	if d := ActiveRecord(m); d != nil {
		return drain.RemovalMeans(d.Means)
	}
	return ""
}

// DeadlineFacts returns the facts about the deadline of the present step of a deletion or drain; zero if neither is
// active. DeadlineFacts reads the node's conditions from the copy in the machine's status.
func DeadlineFacts(m *v1alpha1.Machine, now time.Time) drain.Deadlines {
	var d drain.Deadlines
	if m.Status.Deletion == nil && ActiveStayingDrain(m) == nil {
		return d
	}
	if o := m.Status.CurrentOperation; o != nil {
		d.RecordedDeadline = cache.TimeOrZero(o.Deadline)
		if slices.Contains(o.BlockedBy, vocabulary.BlockedByUnavailableTarget) { // no timeout ends without the cluster
			return d
		}
	}
	if CurrentRemovalMeans(m).KeepsPodOrder() {
		d.Escalation = new(EscalationFacts(m, ActiveRecord(m), nodeFromStatus(m), 0, now))
	}
	return d
}

// IsBlockedOnlyByVolumes reports whether a drain is blocked, and only by volumes.
func IsBlockedOnlyByVolumes(blockedBy []string) bool {
	other := func(name string) bool { return !strings.HasPrefix(name, drain.BlockedByVolume+" ") }
	return len(blockedBy) > 0 && !slices.ContainsFunc(blockedBy, other)
}

// InPlaceFacts returns the facts about a node's in-place update. The value of a label must match exactly: a node with
// the label value "false" must not be drained, and a wrong drain is worse than a missed update.
func InPlaceFacts(node *corev1.Node) inplace.Node {
	n := inplace.Node{
		Candidate:    node.Labels[v1alpha1.LabelCandidateForUpdate] == v1alpha1.ValueLowerTrue,
		Selected:     node.Labels[v1alpha1.LabelSelectedForUpdate] == v1alpha1.ValueLowerTrue,
		Result:       node.Labels[v1alpha1.LabelUpdateResult],
		FailedReason: node.Annotations[v1alpha1.AnnotationUpdateFailedReason],
		Cordoned:     node.Spec.Unschedulable,
	}
	if c := cache.FindNodeCondition(node.Status.Conditions, v1alpha1.NodeInPlaceUpdate); c != nil {
		n.Reason, n.Message, n.Since = c.Reason, c.Message, c.LastTransitionTime.Time
	}
	return n
}

// NextRemovalMeans returns how a drain will remove pods after its current means; empty if the drain then ends, or if no
// drain is active.
func NextRemovalMeans(m *v1alpha1.Machine, d drain.Deadlines) (then drain.RemovalMeans) {
	switch means := CurrentRemovalMeans(m); {
	case means.KeepsPodOrder():
		_, then = d.EvictionDeadline()
	case means == drain.MeansDelete:
		then = drain.MeansKill
	}
	return then
}
