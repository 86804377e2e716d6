package replace

import (
	"fmt"
	"slices"
	"time"
)

// records is what became of the grants that were recorded.
type records struct {
	grants   []Grant         // those that stay
	unmarked []string        // UIDs of those whose machine lacks the mark: the write of it was interrupted
	gone     map[string]bool // UIDs of those whose machine is gone and whose substitute has not joined
	steps    []string
}

func (r *records) say(format string, args ...any) {
	r.steps = append(r.steps, fmt.Sprintf(format, args...))
}

// review ends the grants that are complete, withdraws those that are not needed any more, and records the machines that a
// person marked.
func review(o Observed) records {
	machines := make(map[string]Machine, len(o.Machines))
	for _, m := range o.Machines {
		machines[m.UID] = m
	}
	r := records{gone: map[string]bool{}}
	recorded := uids(o.Grants)
	var gone []Grant
	for _, g := range o.Grants {
		if m, exists := machines[g.UID]; exists {
			r.keep(g, m)
		} else {
			gone = append(gone, g)
		}
	}
	r.follow(gone, o)
	for _, m := range o.Machines {
		if m.Granted && !m.Preserved && !recorded[m.UID] {
			r.grants = append(r.grants, newGrant(m, o.Now))
			r.say("record machine %s: it was marked by a person", m.Name)
		}
	}
	return r
}

// keep decides about a grant whose machine is still there. A mark is never taken back: the machine may have acted on it.
func (r *records) keep(g Grant, m Machine) {
	switch {
	case m.Deleting:
		r.grants = append(r.grants, g)
	case m.Preserved:
		r.say("release the grant of machine %s: it is preserved", m.Name)
	case m.Granted:
		r.grants = append(r.grants, g)
	case m.Due || m.Failed:
		r.grants = append(r.grants, g)
		r.unmarked = append(r.unmarked, g.UID)
	default:
		r.say("withdraw the grant of machine %s: it recovered", m.Name)
	}
}

// follow decides about the grants whose machine is gone, oldest first. Each waits for one machine of its domain that was
// created after it and is still being made, or for one that is missing. The newest grant chooses first: it has the least
// to choose from, so no grant takes what another needs, and the same ones are left when they are looked at again. Of a
// missing machine the zone is not known yet: a grant of each may wait for it.
func (r *records) follow(gone []Grant, o Observed) {
	making := slices.DeleteFunc(slices.Clone(o.Machines), func(m Machine) bool { return !beingMade(m) })
	await := map[string]int{} // by domain, how many wait for a machine that is missing
	for _, g := range slices.Backward(gone) {
		i := slices.IndexFunc(making, func(m Machine) bool { return m.Domain == g.Domain && !m.Created.Before(g.At.Add(-clockSlack)) })
		switch {
		case i >= 0:
			making = slices.Delete(making, i, i+1)
		case await[g.Domain] < o.Missing:
			await[g.Domain]++
		default:
			r.say("replacement of machine %s is complete", g.Name)
			continue
		}
		r.grants = append(r.grants, g)
		r.gone[g.UID] = true
	}
}

// clockSlack is how much the worker's clock, which a grant is dated by, may be ahead of the API server's, which machines
// are. A machine that a scale-up made so shortly before a grant may be taken for its substitute; that only delays.
const clockSlack = 10 * time.Second

// beingMade reports whether a machine may still join. One with which patience has ended needs a grant itself: if it held
// the one that it came from, a budget of one would never get free again.
func beingMade(m Machine) bool {
	return !m.Joined && !m.Failed && !m.Deleting && !m.Due && !m.Granted && !m.Preserved
}
