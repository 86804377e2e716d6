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

func stage(m *v1alpha1.Machine) v1alpha1.MachineDeletionStage {
	if d := m.Status.Deletion; d != nil {
		return d.Stage
	}
	return ""
}

// stageSince is when the present stage began; before the first one, when the deletion was requested; for a machine that
// stays, when its drain began.
func stageSince(m *v1alpha1.Machine) time.Time {
	switch d := m.Status.Deletion; {
	case d != nil:
		return d.Since.Time
	case m.DeletionTimestamp != nil:
		return m.DeletionTimestamp.Time
	case staying(m):
		return m.Status.Drain.StartedAt.Time
	default:
		return time.Time{}
	}
}

// staying reports whether the node of a machine that is not being deleted is drained.
func staying(m *v1alpha1.Machine) bool { return observe.Staying(m) != nil }

// goal says why the node of a machine that stays is drained.
func goal(m *v1alpha1.Machine) string {
	if m.Status.Drain.Purpose == v1alpha1.DrainForUpdate {
		return "in-place update"
	}
	return "preservation"
}

// whole names what a hold stops: the deletion, or the drain of a machine that stays.
func whole(m *v1alpha1.Machine) string {
	if staying(m) {
		return "drain"
	}
	return "deletion"
}

// blockers are the names in the status of what blocks the deletion or the drain.
func blockers(m *v1alpha1.Machine) []string {
	var names []string
	if o := m.Status.CurrentOperation; o != nil && (m.Status.Deletion != nil || staying(m) || targetAway(m)) {
		names = slices.Clone(o.BlockedBy)
	}
	if held(m) && !slices.Contains(names, vocabulary.BlockedHold) {
		names = slices.Insert(names, 0, vocabulary.BlockedHold)
	}
	return names
}

// targetAway reports whether a deletion waits for the target cluster to answer.
func targetAway(m *v1alpha1.Machine) bool {
	o := m.Status.CurrentOperation
	return m.DeletionTimestamp != nil && o != nil && slices.Contains(o.BlockedBy, vocabulary.BlockedTargetUnavailable)
}

func held(m *v1alpha1.Machine) bool {
	_, held := m.Annotations[v1alpha1.AnnotationHold]
	return held
}

// queued reports whether the node of a machine waits for its turn to be drained.
func queued(m *v1alpha1.Machine) bool { return observe.InDrain(m) && m.Status.Deletion.Queued }

// stuck reports whether a person may have to act: a deletion is held, is overdue, or is blocked by something other than
// volumes and the queue of drains, which end by themselves.
func stuck(m *v1alpha1.Machine, now time.Time) bool {
	if held(m) || late(m, now) {
		return true
	}
	return !queued(m) && slices.ContainsFunc(blockers(m), func(name string) bool {
		kind, _, _ := strings.Cut(name, " ")
		return kind != drain.BlockedByVolume
	})
}

// late reports whether the deadline of the present stage has passed by more than Overdue.
func late(m *v1alpha1.Machine, now time.Time) bool {
	at := observe.Deadlines(m, now).Next()
	if m.Status.Deletion == nil && !staying(m) {
		at = stageSince(m)
	}
	return !at.IsZero() && now.After(at.Add(drain.Overdue))
}
