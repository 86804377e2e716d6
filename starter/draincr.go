package main

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/observe"
)

// stepQueued is the step of a machine whose node waits for its turn to be drained.
const stepQueued = "queued"

// overdue is how long after a deadline nothing may happen before that is worth telling. Source: a worker that is restarted
// needs less.
const overdue = time.Minute

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

// drainOver reports whether nothing is done to the pods of a machine's node any more.
func drainOver(m *v1alpha1.Machine) bool {
	d := m.Status.Deletion
	if d == nil {
		return false
	}
	return d.Drain != nil && d.Drain.Result != "" || deletion.Later(deletion.Stage(d.Stage), deletion.Drain) != deletion.Drain
}

// means is how pods are made to go now; empty before the drain has begun, and after it.
func means(m *v1alpha1.Machine) drain.Means {
	if !observe.InDrain(m) || m.Status.Deletion.Drain == nil {
		return ""
	}
	return drain.Means(m.Status.Deletion.Drain.Means)
}

// deadline is when the next, harder step of a deletion comes; zero when none does. That of evictions is reckoned: the status
// shows it as it was when it was last written, and somebody may have extended it since.
func deadline(m *v1alpha1.Machine, now time.Time) time.Time {
	if m.Status.Deletion == nil { // what is in motion is from before the deletion
		return time.Time{}
	}
	if until, _ := evictions(m, now); !until.IsZero() {
		return until
	}
	if o := m.Status.CurrentOperation; o != nil && o.Deadline != nil {
		return o.Deadline.Time
	}
	return time.Time{}
}

// evictions is until when pods are evicted, and the means that follows; nothing when they are not evicted, or not for long
// because somebody wants force. The ladder is asked for the moment before the drain began: from there it names the deadline
// also when that has passed.
func evictions(m *v1alpha1.Machine, now time.Time) (until time.Time, then drain.Means) {
	if means(m) != drain.Evict {
		return until, then
	}
	node := &corev1.Node{ // as the machine has copied its conditions
		ObjectMeta: metav1.ObjectMeta{Name: m.Labels[v1alpha1.LabelNode]},
		Status:     corev1.NodeStatus{Conditions: m.Status.Conditions},
	}
	began := m.Status.Deletion.Drain.StartedAt.Time
	ladder := observe.LadderFacts(m, node, 0, began.Add(-1))
	step := drain.Climb(ladder)
	if ladder.Force == "" && (step.Means != drain.Evict || now.After(step.Until.Add(overdue))) { // the copy is old: the node is well again
		ladder.Unusable = ""
		step = drain.Climb(ladder)
	}
	if step.Means != drain.Evict {
		return until, then
	}
	ladder.Now = step.Until
	return step.Until, drain.Climb(ladder).Means
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
	at := deadline(m, now)
	if m.Status.Deletion == nil {
		at = stageSince(m)
	}
	return !at.IsZero() && now.After(at.Add(overdue))
}

// condition returns a condition of a machine; a zero one when it is not there.
func condition(m *v1alpha1.Machine, kind corev1.NodeConditionType) corev1.NodeCondition {
	i := slices.IndexFunc(m.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return corev1.NodeCondition{}
	}
	return m.Status.Conditions[i]
}
