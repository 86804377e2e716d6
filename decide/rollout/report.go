package rollout

import (
	"cmp"
	"slices"
	"time"
)

// Status is what the deployment's status shall say.
type Status struct {
	Counts     Counts
	Conditions []Condition // Available and Progressing; then ReplicaFailure and Frozen, only while they are True
	Failed     []string    // names of machines whose last operation failed, preserved ones left out
}

// Report says what the deployment's status shall say. A status that says the same already is left alone; one number that
// differs is reason enough to write it. The same input gives the same output, in whatever order sets and machines stand.
func Report(o Observed) Status {
	o = o.sorted()
	b := open(o)
	s := Status{Counts: b.count(), Conditions: []Condition{b.isAvailable(), b.isProgressing()}}
	for _, set := range o.Sets {
		for _, m := range set.Machines {
			if m.Troubled && (!m.Failed || !m.Preserved) {
				s.Failed = append(s.Failed, m.Name)
			}
		}
	}
	slices.Sort(s.Failed)
	if c, found := b.failure(); found {
		s.Conditions = append(s.Conditions, c)
	}
	if c, found := b.isFrozen(); found {
		s.Conditions = append(s.Conditions, c)
	}
	return s
}

// isAvailable tells whether enough machines are. Failed ones that are preserved are not counted as missing. Source: MCM.
func (b *book) isAvailable() Condition {
	c := Condition{
		Type: "Available", Status: "True", Reason: "MinimumReplicasAvailable",
		Message: phrase("%d of %s available, %d needed", b.available(), machines(b.o.Replicas), b.needed),
	}
	if b.count().Available < b.needed {
		c.Status, c.Reason = "False", "MinimumReplicasUnavailable"
	}
	return c
}

// isProgressing tells how the rollout is. Updated is when it last got on; the progress deadline counts from there.
func (b *book) isProgressing() Condition {
	was := b.o.progressing()
	if was.Reason == reasonLate && b.o.stopped() != "" && !b.complete() {
		return was
	}
	c := b.says(was.Reason)
	c.Type, c.Updated = progressing, was.Updated
	if was.Reason != c.Reason || c.Updated.IsZero() || b.moved() && slices.Contains([]string{reasonCreated, reasonFound, reasonUpdated}, c.Reason) {
		c.Updated = b.o.Now
	}
	return c
}

// says tells how the rollout is, without times. was is the reason that stands.
func (b *book) says(was string) Condition {
	counts := b.count()
	done := phrase("%d of %s up to date, %d available", counts.Updated, machines(b.o.Replicas), counts.Available)
	scaled := b.plain() && counts.Replicas == counts.Updated && b.o.stopped() == "" // only the number changed: that is no rollout
	switch {
	case b.o.Invalid != "":
		return Condition{Status: "False", Reason: "Invalid", Message: b.o.Invalid}
	case b.complete(), scaled:
		return Condition{Status: "True", Reason: reasonComplete, Message: done}
	case b.o.Paused:
		return Condition{Status: "Unknown", Reason: reasonPaused, Message: b.pausedMessage("paused")}
	case b.o.Held != "":
		return Condition{Status: "Unknown", Reason: reasonHeld, Message: b.pausedMessage(b.o.stopped())}
	case b.o.NoSet != "" && b.now == nil && !b.o.Deleting:
		return Condition{Status: "False", Reason: reasonNoSet, Message: b.o.NoSet}
	default:
		return b.goesOn(was, done)
	}
}

// goesOn tells of a rollout that nobody stopped.
func (b *book) goesOn(was, done string) Condition {
	_, gate := b.progress()
	begun := b.begun(was)
	switch {
	case begun != "" && gate == nil && !b.late(): // also when what came before it was paused, held or late
		return Condition{Status: "True", Reason: begun, Message: phrase("set %s comes; %s", b.now.Name, done)}
	case was == reasonPaused || was == reasonHeld:
		return Condition{Status: "Unknown", Reason: reasonResumed, Message: "the rollout goes on; " + done}
	case gate != nil:
		return Condition{Status: "Unknown", Reason: reasonWaiting, Message: gate.says()}
	case b.late():
		return Condition{Status: "False", Reason: reasonLate, Message: phrase("no progress for %s; %s", b.o.Deadline.Round(time.Second), done)}
	default:
		return Condition{Status: "True", Reason: reasonUpdated, Message: done}
	}
}

// begun says how the current set came to be that, until the first progress: it was made, or had been it before. Empty from then on.
func (b *book) begun(was string) string {
	switch {
	case b.fresh() && (b.now.History != "" || b.now.Revision != b.revision()):
		return reasonFound
	case b.fresh():
		return reasonCreated
	case b.now != nil && !b.moved() && (was == reasonCreated || was == reasonFound):
		return was
	default:
		return ""
	}
}

func (b *book) pausedMessage(why string) string {
	if b.now == nil {
		return why + ": the template is not rolled out"
	}
	return phrase("%s: %d of %s up to date", why, b.count().Updated, machines(b.o.Replicas))
}

// failure repeats why machines get no instance: what the current set says, else any.
func (b *book) failure() (Condition, bool) {
	sets := slices.Clone(b.sets)
	slices.SortStableFunc(sets, func(x, y *entry) int { return cmp.Compare(rank(y == b.now), rank(x == b.now)) })
	for _, e := range sets {
		if e.Failure.Reason != "" {
			return Condition{Type: "ReplicaFailure", Status: "True", Reason: e.Failure.Reason, Message: e.Failure.Message}, true
		}
	}
	return Condition{}, false
}

func rank(first bool) int {
	if first {
		return 1
	}
	return 0
}

// isFrozen tells that no machines are made: by a label on the deployment, or on one of its sets.
func (b *book) isFrozen() (Condition, bool) {
	c := Condition{Type: "Frozen", Status: "True", Reason: "MachineDeploymentStateSync"}
	if b.o.Frozen {
		c.Message = "No machine is created while the label freeze is True"
		return c, true
	}
	for _, e := range b.sets {
		if e.Frozen {
			c.Message = phrase("No machine is created while the label freeze of set %s is True", e.Name)
			return c, true
		}
	}
	return Condition{}, false
}
