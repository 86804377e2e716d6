package scale

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Counts are the numbers in a set's status.
type Counts struct {
	Replicas        int // all members, also those that are being deleted
	Labelled        int // members with all labels of the template
	Ready           int // members with a ready node
	Available       int // members that were ready for minReadySeconds, or that have no cluster to join
	UpToDate        int // members that match the current template
	PreservedFailed int // failed members that are preserved
	AutoPreserved   int // members that the set preserves because they failed
}

// Condition is one condition of the set. Its time, which the writer adds, moves only with Status.
type Condition struct {
	Type            string
	Status          Answer
	Reason, Message string
}

// Status is what the set's status should be.
type Status struct {
	Counts *Counts // nil: no status was written yet
	// Conditions in a fixed order. ReplicaFailure, Frozen and Overshoot are present only while they are True.
	Conditions []Condition
	// Peak is the largest number wanted since the set last had no surplus. Members beyond Peak were not caused by a
	// smaller size: something created too many.
	Peak int
	// Overshoot is how many members are beyond Peak. It is reported and blocks nothing: surplus members are deleted.
	Overshoot int
	// Failed are the names of members whose last operation failed, as Names returns them, without preserved Failed ones.
	Failed []string
	// ActedOn is the last number wanted for which no creation or deletion was left to start. Work that is blocked, or that
	// failed and is retried later, does not count as left.
	ActedOn int
}

// report returns the Status. o is sorted, and d is its decision.
func report(o *planner, d Decision) Status {
	s := Status{Counts: new(count(o)), ActedOn: o.Reported.ActedOn}
	failed := pointers(o.Members, Member.troubled)
	s.Failed = Names(list.Map(failed, (*Member).name))
	s.Peak, s.Overshoot = overshoot(o)
	// Ownership, marks and preservation are decided before creations and deletions, so until they are done it is not known
	// whether a creation or deletion follows. Copies of the template come after both.
	pending := d.Acting() && len(d.Sync) == 0 && o.LastFailure.Message == ""
	if !pending {
		s.ActedOn = o.Replicas
	}
	s.Conditions = []Condition{
		created(o),
		ready(o),
		upToDate(o),
		scalingUp(o),
		scalingDown(o),
		remediating(o),
		deleting(o),
	}
	s.Conditions = append(append(s.Conditions, paused(o)), alarms(o, s)...)
	for i := range s.Conditions {
		s.Conditions[i].Message = phrase.Message(s.Conditions[i].Message)
		if beyond := FailedBeyondNamed(
			len(failed),
		); beyond != "" &&
			s.Conditions[i].Type == vocabulary.ConditionMachinesReady {
			s.Conditions[i].Message = phrase.Message(beyond + "\n" + s.Conditions[i].Message)
		}
	}
	return s
}

// mostNames is how many failed machines a status names. Source: a status of 50 names with messages of 200 bytes takes
// 20 KiB; an object may have 1.5 MiB in etcd, and a deployment names the same machines again.
const mostNames = 50

// Names returns the first names in alphabetical order, as many as a status has.
func Names(all []string) []string {
	all = slices.Sorted(slices.Values(all))
	return all[:min(len(all), mostNames)]
}

// FailedBeyondNamed says how many machines failed, if a status names only some of them; else it is empty.
func FailedBeyondNamed(n int) string {
	return phrase.If(n > mostNames, "%s whose last operation failed; failedMachines names %d", machines(n), mostNames)
}

// says reports whether a status equals the wanted one.
func (s Status) says(want Status) bool {
	return s.Counts != nil && *s.Counts == *want.Counts && s.Peak == want.Peak && s.Overshoot == want.Overshoot &&
		s.ActedOn == want.ActedOn && slices.Equal(s.Failed, want.Failed) && slices.Equal(s.Conditions, want.Conditions)
}

// count counts the members. Members that are updated in place or are being deleted are not ready or available. They are
// not up to date either, but Cluster API counts as up to date those that are being deleted.
func count(o *planner) Counts {
	serving := func(holds func(Member) bool) int {
		return list.Count(o.Members, func(m Member) bool { return !m.Deleting && !m.Updating && holds(m) })
	}
	c := Counts{
		Replicas:  len(o.Members),
		Ready:     serving(func(m Member) bool { return m.Ready == True }),
		Available: serving(func(m Member) bool { return m.Available(o.Now, o.MinReady) }),
		UpToDate:  serving(func(m Member) bool { return m.UpToDate == True }) + o.leavingUpToDate(),
	}
	c.countMCM(o.Members)
	return c
}

// Available reports whether a member has been ready for long enough.
func (m Member) Available(now time.Time, after time.Duration) bool {
	return m.serves() || m.Ready == True && !now.Before(m.ReadyFrom.Add(after))
}

// overshoot returns the new Peak, and how many members are beyond it. A smaller size lowers Peak only when the surplus
// is gone, so that an ordinary scale-down is no overshoot.
func overshoot(o *planner) (peak, beyond int) {
	if o.Deleting {
		return o.Reported.Peak, 0
	}
	active := list.Count(o.Members, func(m Member) bool { return !m.Deleting && !m.Updated })
	if active <= o.Replicas {
		return o.Replicas, 0
	}
	peak = max(o.Reported.Peak, o.Replicas)
	return peak, max(active-peak, 0)
}

// alarms returns the conditions that are present only while they are True.
func alarms(o *planner, s Status) []Condition {
	failure := replicaFailure(o)
	same := func(was Condition) bool { return was.Type == failure.Type && was.Reason == failure.Reason }
	failure.Message = cmp.Or(list.Find(o.Reported.Conditions, same), failure).Message
	const frozen = "No machine is created while the label freeze is True"
	beyond := fmt.Sprintf("%s more than the %d wanted at most; the surplus is deleted", machines(s.Overshoot), s.Peak)
	return list.Where([]Condition{
		failure,
		list.When(o.frozen(), Condition{vocabulary.ConditionFrozen, True, vocabulary.ReasonFreezeLabel, frozen}),
		list.When(
			s.Overshoot > 0,
			Condition{vocabulary.ConditionOvershoot, True, vocabulary.ReasonOverShootingReplicaCount, beyond},
		),
	}, func(c Condition) bool { return c.Reason != "" })
}

// replicaFailure reports that machines could not be created or deleted, or that the provider creates no instance. An
// empty reason means that there is no failure. The message does not change while the reason is the same: a failure of
// another machine is no news.
func replicaFailure(o *planner) Condition {
	c := Condition{Type: vocabulary.ConditionReplicaFailure, Status: True}
	if f := o.LastFailure; f.Message != "" {
		c.Reason, c.Message = vocabulary.ReasonFailedCreate, f.Message
		if f.Deleting {
			c.Reason = vocabulary.ReasonFailedDelete
		}
		return c
	}
	why := noInstance(o)
	c.Reason, c.Message = why.Reason, why.Message
	return c
}
