package main

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/observe"
	"millwright/workflows"
)

// stepQueued is the step of a machine whose node waits for its turn to be drained.
const stepQueued = "queued"

func stage(m *v1alpha1.Machine) v1alpha1.MachineDeletionStage {
	if d := m.Status.Deletion; d != nil {
		return d.Stage
	}
	return ""
}

// stageSince is when the present stage began; before the first one, when the deletion was asked for. Of a machine that is to
// stay, it is when its drain began.
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

// staying reports whether the node of a machine is being emptied although the machine is to stay.
func staying(m *v1alpha1.Machine) bool { return observe.Staying(m) != nil }

// goal says in words what the node of a machine that is to stay is emptied for.
func goal(m *v1alpha1.Machine) string {
	if m.Status.Drain.Purpose == v1alpha1.DrainForUpdate {
		return "in-place update"
	}
	return "preservation"
}

// whole is what a hold stops, in words: the deletion, or a drain without one.
func whole(m *v1alpha1.Machine) string {
	if staying(m) {
		return "drain"
	}
	return "deletion"
}

// blockers are what keeps a deletion from going on, as its status names them.
func blockers(m *v1alpha1.Machine) []string {
	var names []string
	if o := m.Status.CurrentOperation; o != nil && o.LastError != "" && (m.Status.Deletion != nil || staying(m) || targetAway(m)) {
		names = strings.Split(o.LastError, ",")
	}
	if held(m) && !slices.Contains(names, deletion.Held) {
		names = slices.Insert(names, 0, deletion.Held)
	}
	return names
}

// targetAway reports whether a deletion waits for the target cluster to answer.
func targetAway(m *v1alpha1.Machine) bool {
	o := m.Status.CurrentOperation
	return m.DeletionTimestamp != nil && o != nil && o.LastError == workflows.TargetUnavailable
}

func held(m *v1alpha1.Machine) bool {
	_, held := m.Annotations[v1alpha1.AnnotationHold]
	return held
}

func queued(m *v1alpha1.Machine) bool {
	return observe.InDrain(m) && m.Status.CurrentOperation != nil && m.Status.CurrentOperation.Step == stepQueued
}

// stuck reports whether somebody may have to look at a deletion: something keeps it that does not pass by itself, as volumes
// and a turn do, or it does not do what its time asks for.
func stuck(m *v1alpha1.Machine, now time.Time) bool {
	if held(m) || late(m, now) {
		return true
	}
	return !queued(m) && slices.ContainsFunc(blockers(m), func(name string) bool {
		kind, _, _ := strings.Cut(name, " ")
		return kind != drain.BlockedByVolume
	})
}

// late reports whether nobody has acted although it is time.
func late(m *v1alpha1.Machine, now time.Time) bool {
	at := observe.StepDeadline(m, now)
	if m.Status.Deletion == nil && !staying(m) {
		at = stageSince(m)
	}
	return !at.IsZero() && now.After(at.Add(observe.Overdue))
}

// condition returns a condition of a machine; a zero one when it is not there.
func condition(m *v1alpha1.Machine, kind corev1.NodeConditionType) corev1.NodeCondition {
	i := slices.IndexFunc(m.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return corev1.NodeCondition{}
	}
	return m.Status.Conditions[i]
}
