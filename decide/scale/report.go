package scale

import (
	"fmt"
	"time"
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
	Type    string
	Status  Answer
	Reason  string
	Message string
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

// Report says what the set's status shall say. The same input gives the same output, in whatever order members stand.
func Report(o Observed) Status {
	_, s := Look(o)
	return s
}

// report is Report for facts in order, whose decision is known.
func report(o Observed, d Decision) Status {
	s := Status{Peak: o.Peak, Seen: o.Seen}
	if !o.ListFailed {
		s.Counts = new(count(o))
		s.Peak, s.Overshoot = overshoot(o)
	}
	if settled(o, d) {
		s.Seen = o.Replicas
	}
	s.Conditions = append([]Condition{
		created(o), ready(o), upToDate(o), scalingUp(o), scalingDown(o), remediating(o), deleting(o), paused(o),
	}, alarms(o, s)...)
	return s
}

// settled reports whether nothing is made or deleted until something changes, be it the clock. Ownership, marks and what is
// kept come before machines are made or deleted: until that is done it is not known what follows. What is copied in place
// comes after.
func settled(o Observed, d Decision) bool {
	pending := d.Acting() && len(d.Sync) == 0
	return !o.ListFailed && (!pending || o.LastFailure.Message != "")
}

// count counts the members. Those that are being deleted or updated in place are neither ready nor available nor up to
// date.
func count(o Observed) Counts {
	var c Counts
	for _, m := range o.Members {
		c.Replicas++
		if m.Labelled {
			c.Labelled++
		}
		if m.Failed && m.Preserved {
			c.PreservedFailed++
		}
		if m.Kept && !m.Deleting {
			c.AutoPreserved++
		}
		if m.Deleting || m.Updating {
			continue
		}
		if m.Ready == True {
			c.Ready++
		}
		if m.Available(o.Now, o.MinReady) {
			c.Available++
		}
		if m.UpToDate == True {
			c.UpToDate++
		}
	}
	return c
}

// Available reports whether a member has been ready for long enough.
func (m Member) Available(now time.Time, after time.Duration) bool {
	return m.Serves || m.Ready == True && !now.Before(m.ReadyFrom.Add(after))
}

// overshoot returns the new Peak, and how many members are beyond it. A smaller size moves it only when the surplus is
// gone, so that an ordinary scale-down is none.
func overshoot(o Observed) (peak, beyond int) {
	if o.Deleting {
		return o.Peak, 0
	}
	live := 0
	for _, m := range o.Members {
		if !m.Deleting && !m.Updated {
			live++
		}
	}
	if live <= o.Replicas {
		return o.Replicas, 0
	}
	peak = max(o.Peak, o.Replicas)
	return peak, max(live-peak, 0)
}

// alarms are the conditions that stand there only while there is something to tell.
func alarms(o Observed, s Status) []Condition {
	var list []Condition
	if failure, found := replicaFailure(o); found {
		list = append(list, failure)
	}
	if o.Frozen {
		list = append(list, Condition{"Frozen", True, "FreezeLabel", "No machine is created while the label freeze is True"})
	}
	if s.Overshoot > 0 {
		list = append(list, Condition{"Overshoot", True, "OverShootingReplicaCount", fmt.Sprintf("%s more than the %d that were wanted at the most; the surplus is deleted", machines(s.Overshoot), s.Peak)})
	}
	return list
}

// replicaFailure says that machines could not be made or deleted, or that their provider makes no instance. It says not how
// many: whoever writes it keeps the sentence while the reason stays.
func replicaFailure(o Observed) (Condition, bool) {
	c := Condition{Type: "ReplicaFailure", Status: True}
	if f := o.LastFailure; f.Message != "" {
		c.Reason, c.Message = "FailedCreate", f.Message
		if f.Deleting {
			c.Reason = "FailedDelete"
		}
		return c, true
	}
	for _, m := range o.Members { // by name: the sentence of the first one stands for all with its reason
		if !m.Deleting && m.Blocked.Reason > c.Reason {
			c.Reason, c.Message = m.Blocked.Reason, fmt.Sprintf("machines get no instance; machine %s: %s", m.Name, m.Blocked.Message)
		}
	}
	return c, c.Reason != ""
}
