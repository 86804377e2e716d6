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
)

// stepQueued is the step of a machine whose node waits for its turn to be drained.
const stepQueued = "queued"

func stage(m *v1alpha1.Machine) v1alpha1.MachineDeletionStage {
	if d := m.Status.Deletion; d != nil {
		return d.Stage
	}
	return ""
}

// stageSince is when the present stage began; before the first one, when the deletion was asked for.
func stageSince(m *v1alpha1.Machine) time.Time {
	switch d := m.Status.Deletion; {
	case d != nil:
		return d.Since.Time
	case m.DeletionTimestamp != nil:
		return m.DeletionTimestamp.Time
	default:
		return time.Time{}
	}
}

// blockers are what keeps a deletion from going on, as its status names them.
func blockers(m *v1alpha1.Machine) []string {
	var names []string
	if o := m.Status.CurrentOperation; o != nil && o.LastError != "" && m.Status.Deletion != nil {
		names = strings.Split(o.LastError, ",")
	}
	if held(m) && !slices.Contains(names, deletion.Held) {
		names = slices.Insert(names, 0, deletion.Held)
	}
	return names
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
	at := observe.DeletionDeadline(m, now)
	if m.Status.Deletion == nil {
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
