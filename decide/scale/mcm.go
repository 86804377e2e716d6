package scale

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
)

// MCMMember is what only the machines of MCM's kinds have. Only the files mcm*.go read it.
type MCMMember struct {
	Labelled bool // it has all labels of the template
	Failed   bool // in phase Failed
	Troubled bool // its last operation failed
	Crashing bool // the creation of its instance keeps failing
	Serves   bool // it counts as available without a node, because there is no cluster to join
	// Blocked is why the provider creates no instance; zero: no problem.
	Blocked Problem

	Replace        bool // failed, and to be replaced now without a grant; stays true while it is being deleted
	Preserved      bool // deleted last
	PreservedUntil time.Time
	Kept           bool      // preserved by its set because it failed
	Dismissed      bool      // its annotation forbids to preserve it
	Chosen         time.Time // when the autoscaler chose it; zero: it did not
}

// MCMSet is what only the sets of MCM's kinds have. Only the files mcm*.go read it.
type MCMSet struct {
	Keep   int // most failed members that the set preserves
	Freeze Freeze
	Scaled time.Time // when the autoscaler last changed the size; zero: never

	Generations Generations // as recorded
}

// Freeze is the label freeze of a set, which stops the creation of machines, and what may end it.
type Freeze struct {
	Label    bool // the set has the label
	Owner    bool // its deployment has the label, and nothing has ended the freeze of the deployment
	Unfreeze bool // the set has the annotation unfreeze
	EndsAt   int  // the freeze ends when the set has this many machines or fewer; zero: only the annotation ends it
}

// thaw reports whether the freeze of the set is over, and its label or annotation has to be removed.
func (o *planner) thaw() bool {
	return o.MCM.Freeze.Unfreeze || o.MCM.Freeze.Label && o.MCM.Freeze.EndsAt > 0 && len(o.Members) <= o.MCM.Freeze.EndsAt
}

// frozen reports whether no machine is created.
func (o *planner) frozen() bool { return o.MCM.Freeze.Owner || o.MCM.Freeze.Label && !o.thaw() }

// keep preserves failed members instead of replacing them: the oldest first, at most o.MCM.Keep in all.
func keep(o *planner, active []Member) Decision {
	left := o.MCM.Keep - list.Count(active, func(m Member) bool { return m.MCM.Kept })
	failed := pointers(
		active,
		func(m Member) bool { return m.MCM.Failed && !m.MCM.Kept && !m.MCM.Preserved && !m.MCM.Dismissed },
	)
	slices.SortFunc(
		failed,
		func(a, b *Member) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) },
	)
	failed = first(failed[:max(min(left, len(failed)), 0)])
	d := Decision{Keep: list.Map(failed, func(m *Member) Target { return m.target("failed") })}
	d.Why = fmt.Sprintf("keep %s that failed, of at most %d", machines(len(d.Keep)), o.MCM.Keep)
	return d
}

// removeFailed deletes failed members, so that the set creates substitutes.
func removeFailed(o *planner, active []Member) Decision {
	failed := ranked(o, active, func(m Member) bool { return m.toReplace() && ripe(o, m) })
	d := remove(o, active, failed, " that failed")
	d.Delete, d.Generations = targets(failed, "failed"), record(o, failed)
	return d
}

// removeChosen deletes the members that the autoscaler chose, even if the size allows them: the autoscaler expects
// exactly these machines to be deleted. A choice that is later than the last change of the size does not count yet.
func removeChosen(o *planner, active []Member) Decision {
	return remove(o, active, ranked(o, active, func(m Member) bool {
		return m.Priority == vocabulary.PriorityChosen && !m.MCM.Chosen.IsZero() && !m.MCM.Chosen.After(o.MCM.Scaled) &&
			!m.protected()
	}), " that the autoscaler chose")
}

// unripe says of each failed member that stays for now why it stays.
func unripe(o *planner) (later []said) {
	next := notYet(o)
	for _, m := range o.live {
		if m.toReplace() && !ripe(o, m) {
			later = append(later, said{m.Name, next})
		}
	}
	return later
}

// toReplace reports whether a member failed and is replaced once it is ripe.
func (m Member) toReplace() bool { return m.MCM.Replace && !m.protected() }

// protected reports whether a member is preserved, or updated in place and not counted by the set's size yet.
func (m Member) protected() bool { return m.MCM.Preserved || m.Updated }

// failed reports whether a member is in phase Failed.
func (m Member) failed() bool { return m.MCM.Failed }

// crashing reports whether the creation of a member's instance keeps failing.
func (m Member) crashing() bool { return m.MCM.Crashing }

// serves reports whether a member counts as available without a node.
func (m Member) serves() bool { return m.MCM.Serves }

// chosen reports whether the autoscaler chose a member.
func (m Member) chosen() bool { return !m.MCM.Chosen.IsZero() }

// troubled reports whether the last operation of a member failed. A preserved Failed member does not count.
func (m Member) troubled() bool { return m.MCM.Troubled && (!m.MCM.Failed || !m.MCM.Preserved) }

// byChoice compares the times at which the autoscaler chose two members: the earliest first, members that it did not
// choose last.
func byChoice(a, b *Member) int { return list.KnownFirst(a.MCM.Chosen, b.MCM.Chosen) }

// byPreservation compares two members: those that are not preserved first, then those that the set preserved, then by
// the end of the preservation.
func byPreservation(a, b *Member) int {
	if !a.MCM.Preserved || !b.MCM.Preserved {
		return list.FalseFirst(a.MCM.Preserved, b.MCM.Preserved)
	}
	return cmp.Or(list.FalseFirst(b.MCM.Kept, a.MCM.Kept), a.MCM.PreservedUntil.Compare(b.MCM.PreservedUntil))
}

// countMCM adds the numbers that only the status of MCM's kinds has.
func (c *Counts) countMCM(members []Member) {
	c.Labelled = list.Count(members, func(m Member) bool { return m.MCM.Labelled })
	c.PreservedFailed = list.Count(members, func(m Member) bool { return m.MCM.Failed && m.MCM.Preserved })
	c.AutoPreserved = list.Count(members, func(m Member) bool { return m.MCM.Kept && !m.Deleting })
}

// noInstance says why machines get no instance; an empty reason means that each machine gets its instance. Of several
// reasons it returns the last in alphabetical order, with the message of the first machine by name.
func noInstance(o *planner) (c Condition) {
	for _, m := range o.Members {
		if why := m.MCM.Blocked; !m.Deleting && why.Reason > c.Reason {
			c.Reason = why.Reason
			c.Message = fmt.Sprintf("machines get no instance; machine %s: %s", m.Name, why.Message)
		}
	}
	return c
}
