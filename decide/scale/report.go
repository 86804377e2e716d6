package scale

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
)

// Counts are the numbers of a set's status.
type Counts struct {
	Replicas        int // every member, those that are being deleted included
	Labelled        int // of these, the ones with all labels of the template
	Ready           int // with a ready node
	Available       int // ready for as long as the set wants, or without a cluster to join
	UpToDate        int // that are what the current template makes
	PreservedFailed int // failed and preserved
	AutoPreserved   int // kept by the set because they failed
}

// Condition is one statement about the set. Its time is that of the write, and moves with Status only.
type Condition struct {
	Type            string
	Status          Answer
	Reason, Message string
}

// Status is what the set's status shall say.
type Status struct {
	Counts *Counts // nil: the machines could not be listed, and the numbers stay as they are
	// Conditions in a fixed order. ReplicaFailure, Frozen and Overshoot stand there only while they are True.
	Conditions []Condition
	// Peak is the highest number that was wanted since the set last had no more machines than that. More members than
	// Peak cannot come from a smaller size: somebody made too many.
	Peak int
	// Overshoot is how many members are beyond Peak. It is shown and told, and stops nothing: what is too much is deleted.
	Overshoot int
	// Seen is the number wanted for which nothing was left to make or to delete. What cannot be made or deleted now, or was
	// refused and is tried again later, is not left: nothing is under way for it.
	Seen int
}

// Report is the Status of Look.
func Report(o Observed) Status { return Look(o).Status }

// report is Report for facts in order, whose decision is known.
func report(o Observed, d Decision) Status {
	s := Status{Peak: o.Reported.Peak, Seen: o.Reported.Seen}
	if !o.ListFailed {
		s.Counts = new(count(o))
		s.Peak, s.Overshoot = overshoot(o)
	}
	// Nothing is made or deleted until something changes, be it the clock. Ownership, marks and what is kept come before machines are
	// made or deleted: until that is done it is not known what follows. What is copied in place comes after.
	pending := d.Acting() && len(d.Sync) == 0 && o.LastFailure.Message == ""
	if !o.ListFailed && !pending {
		s.Seen = o.Replicas
	}
	s.Conditions = []Condition{created(o), ready(o), upToDate(o), scalingUp(o), scalingDown(o), remediating(o), deleting(o)}
	for i := range s.Conditions {
		if o.ListFailed { // as Cluster API words it
			s.Conditions[i] = Condition{s.Conditions[i].Type, Unknown, "InternalError", "Please check controller logs for errors"}
		}
	}
	s.Conditions = append(append(s.Conditions, paused(o)), alarms(o, s)...)
	for i := range s.Conditions {
		s.Conditions[i].Message = Short(s.Conditions[i].Message)
	}
	return s
}

// says reports whether a status says the same as another one. Where the machines could not be listed, any numbers do.
func (s Status) says(want Status) bool {
	counts := want.Counts == nil || s.Counts != nil && *s.Counts == *want.Counts
	return counts && s.Peak == want.Peak && s.Overshoot == want.Overshoot && s.Seen == want.Seen && slices.Equal(s.Conditions, want.Conditions)
}

// longestMessage bounds the message of a condition, in bytes. Source: an event has 1 KiB for one.
const longestMessage = 1000

// Short returns the message of a condition, cut where it is too long for one.
func Short(message string) string {
	if len(message) <= longestMessage {
		return message
	}
	return strings.ToValidUTF8(message[:longestMessage], "") + "…"
}

// count counts the members. Those that are being deleted or updated in place are neither ready nor available nor up to
// date.
func count(o Observed) Counts {
	of := func(holds func(Member) bool) int { return list.Count(o.Members, holds) }
	serving := func(holds func(Member) bool) int {
		return of(func(m Member) bool { return !m.Deleting && !m.Updating && holds(m) })
	}
	return Counts{
		Replicas:        len(o.Members),
		Labelled:        of(func(m Member) bool { return m.Labelled }),
		Ready:           serving(func(m Member) bool { return m.Ready == True }),
		Available:       serving(func(m Member) bool { return m.Available(o.Now, o.MinReady) }),
		UpToDate:        serving(func(m Member) bool { return m.UpToDate == True }),
		PreservedFailed: of(func(m Member) bool { return m.Failed && m.Preserved }),
		AutoPreserved:   of(func(m Member) bool { return m.Kept && !m.Deleting }),
	}
}

// Available reports whether a member has been ready for long enough.
func (m Member) Available(now time.Time, after time.Duration) bool {
	return m.Serves || m.Ready == True && !now.Before(m.ReadyFrom.Add(after))
}

// overshoot returns the new Peak, and how many members are beyond it. A smaller size moves it only when the surplus is
// gone, so that an ordinary scale-down is none.
func overshoot(o Observed) (peak, beyond int) {
	if o.Deleting {
		return o.Reported.Peak, 0
	}
	live := list.Count(o.Members, func(m Member) bool { return !m.Deleting && !m.Updated })
	if live <= o.Replicas {
		return o.Replicas, 0
	}
	peak = max(o.Reported.Peak, o.Replicas)
	return peak, max(live-peak, 0)
}

// alarms are the conditions that stand there only while there is something to tell.
func alarms(o Observed, s Status) []Condition {
	failure := replicaFailure(o)
	same := func(was Condition) bool { return was.Type == failure.Type && was.Reason == failure.Reason }
	failure.Message = cmp.Or(list.Find(o.Reported.Conditions, same), failure).Message
	const frozen = "No machine is created while the label freeze is True"
	beyond := fmt.Sprintf("%s more than the %d that were wanted at the most; the surplus is deleted", machines(s.Overshoot), s.Peak)
	return list.Where([]Condition{
		failure,
		when(o.Frozen, vocabulary.ConditionFrozen, True, "FreezeLabel", frozen),
		when(s.Overshoot > 0, vocabulary.ConditionOvershoot, True, vocabulary.ReasonOverShootingReplicaCount, beyond),
	}, func(c Condition) bool { return c.Reason != "" })
}

// replicaFailure says that machines could not be made or deleted, or that their provider makes no instance. It says not how
// many. Without a reason there is none. The message stays while the reason does: another machine's is no news.
func replicaFailure(o Observed) Condition {
	c := Condition{Type: vocabulary.ConditionReplicaFailure, Status: True}
	if f := o.LastFailure; f.Message != "" {
		c.Reason, c.Message = vocabulary.ReasonFailedCreate, f.Message
		if f.Deleting {
			c.Reason = vocabulary.ReasonFailedDelete
		}
		return c
	}
	for _, m := range o.Members { // by name: the sentence of the first one stands for all with its reason
		if !m.Deleting && m.Blocked.Reason > c.Reason {
			c.Reason, c.Message = m.Blocked.Reason, fmt.Sprintf("machines get no instance; machine %s: %s", m.Name, m.Blocked.Message)
		}
	}
	return c
}
