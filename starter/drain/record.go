package drain

import (
	"slices"
	"strings"
	"time"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	observe "millwright/observe/drain"
)

func deletionStage(m *v1alpha1.Machine) v1alpha1.MachineDeletionStage {
	if d := m.Status.Deletion; d != nil {
		return d.Stage
	}
	return ""
}

// deletionStageStart returns the start of the current stage, or the time of the deletion request if no stage has
// started. For a machine that is not being deleted, it returns the start of the drain.
func deletionStageStart(m *v1alpha1.Machine) time.Time {
	switch d := m.Status.Deletion; {
	case d != nil:
		return d.Since.Time
	case m.DeletionTimestamp != nil:
		return m.DeletionTimestamp.Time
	case isDrainedWithoutDeletion(m):
		return m.Status.Drain.StartedAt.Time
	default:
		return time.Time{}
	}
}

// isDrainedWithoutDeletion reports whether the node of a machine is being drained although the machine is not being
// deleted.
func isDrainedWithoutDeletion(m *v1alpha1.Machine) bool {
	return observe.ActiveStayingDrain(m) != nil
}

// drainPurpose describes why the node of a machine that is not being deleted is drained.
func drainPurpose(m *v1alpha1.Machine) string {
	if m.Status.Drain.Purpose == v1alpha1.DrainForUpdate {
		return "in-place update"
	}
	return "preservation"
}

// heldOperation names the operation that a hold stops: the deletion, or the drain of a machine that is not being
// deleted.
func heldOperation(m *v1alpha1.Machine) string {
	if isDrainedWithoutDeletion(m) {
		return "drain"
	}
	return "deletion"
}

// blockers returns the blockers of the deletion or the drain, by their names in the status.
func blockers(m *v1alpha1.Machine) []string {
	var names []string
	if o := m.Status.CurrentOperation; o != nil &&
		(m.Status.Deletion != nil || isDrainedWithoutDeletion(m) || isTargetUnavailable(m)) {
		names = slices.Clone(o.BlockedBy)
	}
	if isHeld(m) && !slices.Contains(names, vocabulary.BlockedByHold) {
		names = slices.Insert(names, 0, vocabulary.BlockedByHold)
	}
	return names
}

// isTargetUnavailable reports whether a deletion waits for the target cluster to answer.
func isTargetUnavailable(m *v1alpha1.Machine) bool {
	o := m.Status.CurrentOperation
	return m.DeletionTimestamp != nil && o != nil && slices.Contains(o.BlockedBy, vocabulary.BlockedByUnavailableTarget)
}

func isHeld(m *v1alpha1.Machine) bool {
	_, held := m.Annotations[v1alpha1.AnnotationHold]
	return held
}

// isQueued reports whether the node of a machine waits in the drain queue.
func isQueued(m *v1alpha1.Machine) bool { return observe.IsInDrainQueue(m) && m.Status.Deletion.Queued }

// needsManualAction reports whether a person may have to act, because the deletion or drain is held, is overdue, or has
// a blocker. needsManualAction ignores waits for volumes and waits in the drain queue, because these waits end without
// a person.
func needsManualAction(m *v1alpha1.Machine, now time.Time) bool {
	if isHeld(m) || isOverdue(m, now) {
		return true
	}
	return !isQueued(m) && slices.ContainsFunc(blockers(m), func(name string) bool {
		kind, _, _ := strings.Cut(name, " ")
		return kind != drain.BlockedByVolume
	})
}

// isOverdue reports whether the deadline of the present stage has passed by more than drain.StepOverdueAfter.
func isOverdue(m *v1alpha1.Machine, now time.Time) bool {
	at := observe.DeadlineFacts(m, now).NextDeadline()
	if m.Status.Deletion == nil && !isDrainedWithoutDeletion(m) {
		at = deletionStageStart(m)
	}
	return !at.IsZero() && now.After(at.Add(drain.StepOverdueAfter))
}
