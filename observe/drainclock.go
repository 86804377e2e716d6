package observe

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/drain"
)

// Overdue is how long after a deadline nothing may happen before that is worth telling. Source: a worker that is restarted
// needs less.
const Overdue = time.Minute

// DrainOver reports whether nothing is done to the pods of a machine's node any more.
func DrainOver(m *v1alpha1.Machine) bool {
	d := m.Status.Deletion
	if d == nil {
		return false
	}
	return d.Drain != nil && d.Drain.Result != "" || deletion.Later(deletion.Stage(d.Stage), deletion.Drain) != deletion.Drain
}

// DrainMeans is how pods are made to go now; empty before the drain has begun, and after it.
func DrainMeans(m *v1alpha1.Machine) drain.Means {
	if !InDrain(m) || m.Status.Deletion.Drain == nil {
		return ""
	}
	return drain.Means(m.Status.Deletion.Drain.Means)
}

// DeletionDeadline is when the next, harder step of a deletion comes; zero when none does. That of evictions is reckoned: the
// status shows it as it was when it was last written, and somebody may have extended it since.
func DeletionDeadline(m *v1alpha1.Machine, now time.Time) time.Time {
	if m.Status.Deletion == nil { // what is in motion is from before the deletion
		return time.Time{}
	}
	if until, _ := Evictions(m, now); !until.IsZero() {
		return until
	}
	if o := m.Status.CurrentOperation; o != nil && o.Deadline != nil {
		return o.Deadline.Time
	}
	return time.Time{}
}

// Evictions is until when pods are evicted, and the means that follows; nothing when they are not evicted, or not for long
// because somebody wants force. It knows the node by the conditions that the machine has copied. The ladder is asked for the
// moment before the drain began: from there it names the deadline also when that has passed.
func Evictions(m *v1alpha1.Machine, now time.Time) (until time.Time, then drain.Means) {
	if DrainMeans(m) != drain.Evict {
		return until, then
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.Labels[v1alpha1.LabelNode]},
		Status:     corev1.NodeStatus{Conditions: m.Status.Conditions},
	}
	began := m.Status.Deletion.Drain.StartedAt.Time
	ladder := LadderFacts(m, node, 0, began.Add(-1))
	step := drain.Climb(ladder)
	if ladder.Force == "" && (step.Means != drain.Evict || now.After(step.Until.Add(Overdue))) { // the copy is old: the node is well again
		ladder.Unusable = ""
		step = drain.Climb(ladder)
	}
	if step.Means != drain.Evict {
		return until, then
	}
	ladder.Now = step.Until
	return step.Until, drain.Climb(ladder).Means
}
