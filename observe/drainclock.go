package observe

import (
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/drain"
)

// Overdue is how long after a deadline nothing may happen before that is worth telling. Source: a worker that is restarted
// needs less.
const Overdue = time.Minute

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

// DrainOver reports whether nothing is done to the pods of the node of a machine that is to go any more.
func DrainOver(m *v1alpha1.Machine) bool {
	d := m.Status.Deletion
	if d == nil {
		return false
	}
	return d.Drain != nil && d.Drain.Result != "" || deletion.Later(deletion.Stage(d.Stage), deletion.Drain) != deletion.Drain
}

// DrainMeans is how pods are made to go now; empty before the drain has begun, and after it.
func DrainMeans(m *v1alpha1.Machine) drain.Means {
	d := Draining(m)
	if d == nil {
		return ""
	}
	return drain.Means(d.Means)
}

// StepDeadline is when the next, harder step of a deletion or of a drain comes; zero when none does. That of evictions is
// reckoned: the status shows it as it was when it was last written, and somebody may have extended it since.
func StepDeadline(m *v1alpha1.Machine, now time.Time) time.Time {
	if m.Status.Deletion == nil && Staying(m) == nil { // what is in motion is something else
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
	record := Draining(m)
	facts := ladder(m, record, copiedNode(m), 0, record.StartedAt.Add(-1))
	step := drain.Climb(facts)
	if facts.Force == "" && (step.Means != drain.Evict || now.After(step.Until.Add(Overdue))) { // the copy is old: the node is well again
		facts.Unusable = ""
		step = drain.Climb(facts)
	}
	if step.Means != drain.Evict {
		return until, then
	}
	facts.Now = step.Until
	return step.Until, drain.Climb(facts).Means
}
