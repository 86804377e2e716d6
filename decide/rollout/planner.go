package rollout

import (
	"fmt"
	"slices"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// setPlan is a set during a decision: its facts as numbers, and its new size.
type setPlan struct {
	Set
	size        int // as decided so far
	active      int // machines that are not being deleted
	terminating int // machines that are being deleted
	available   int
	unhealthy   int // not available, and deleted before available machines
	updating    int
	chosen      int    // machines that the autoscaler or an operator chose to delete
	leaving     int    // available machines that the set deletes at any size, because the autoscaler chose them
	why         string // reason of the last change of size
	forced      bool
	free        bool // a smaller size may be reverted at once, because no promise depends on it
	transfer    Transfer
	settling    bool // the set is to hand its surplus over, and first deletes an earlier surplus
}

// planner is a deployment during a decision.
type planner struct {
	o           Observed
	surge       int
	needed      int        // machines that must be available
	sets        []*setPlan // sets that are not being deleted, the oldest first
	current     *setPlan   // the set of the current template; nil: none exists
	terminating int        // machines of sets that are being deleted
	target      int        // new machines that the current rollout step wants
	why         string     // why no size changes
}

// open returns the planner of these facts. o is sorted.
func open(o Observed) *planner {
	surge, unavailable := Bounds(o)
	p := &planner{o: o, surge: surge, target: o.Replicas}
	preserved := 0
	for _, s := range o.Sets {
		set := read(s)
		set.leaving = list.Count(s.Machines, func(m Member) bool {
			return m.Available && !m.Updating && !m.Deleting && o.leaves(m)
		})
		preserved += list.Count(s.Machines, func(m Member) bool { return m.keptFailed() && !m.Deleting })
		if s.Deleting {
			p.terminating += max(set.active+set.terminating, s.Counted)
			continue
		}
		p.sets = append(p.sets, set)
		if s.Current && p.current == nil {
			p.current = set
		}
	}
	p.needed = max(o.Replicas-unavailable-preserved, 0)
	for _, set := range p.sets {
		set.free = p.plain()
	}
	return p
}

func read(s Set) *setPlan {
	active := list.Where(s.Machines, func(m Member) bool { return !m.Deleting })
	of := func(holds func(Member) bool) int { return list.Count(active, holds) }
	set := &setPlan{
		Set: s, size: s.Replicas, active: len(active), terminating: len(s.Machines) - len(active), transfer: s.transfer(),
		updating:  of(func(m Member) bool { return m.Updating }),
		available: of(func(m Member) bool { return m.Available && !m.Updating }),
		unhealthy: of(func(m Member) bool { return m.Unhealthy && !m.preserved() && !m.Available && !m.Updating }),
		chosen:    of(func(m Member) bool { return m.First || m.chosen() }),
	}
	exposed := slices.ContainsFunc(active, func(m Member) bool {
		// an available machine may be deleted before one that is not
		return m.Available && !m.Updating && (m.First || m.Priority < vocabulary.PriorityDefault)
	})
	if exposed || s.ActedOn != s.Replicas || s.transfer().To != "" {
		// its workflow may have chosen when other machines were unhealthy
		set.unhealthy = 0
	}
	return set
}

// old returns the sets of other templates, the oldest first.
func (p *planner) old() []*setPlan {
	return slices.DeleteFunc(slices.Clone(p.sets), func(set *setPlan) bool { return set == p.current })
}

func sum(sets []*setPlan, of func(*setPlan) int) int {
	n := 0
	for _, set := range sets {
		n += of(set)
	}
	return n
}

func size(set *setPlan) int { return set.size }

// occupied returns how many places the machines of a set take: those that exist or are about to be created and, unless
// FreeWhenDeleting, those that are being deleted. It uses the largest size that the set's workflow may act on, because
// it may be creating machines now. A set that grows may still delete the surplus of a smaller size, and then create
// other machines.
func (p *planner) occupied(set *setPlan) int {
	most := max(set.size, set.Replicas, set.ActedOn)
	here := max(most, set.active)
	if p.o.FreeWhenDeleting {
		return here
	}
	if set.ActedOn <= set.Replicas {
		here = most + max(set.active-set.ActedOn, 0)
	}
	return max(here+set.terminating, set.Counted)
}

// plain reports whether only the number of machines can differ: there is no machine of another template, and the last
// rollout is complete. Then a new number is followed at once, as in MCM: a scale-up does not wait for drains.
func (p *planner) plain() bool {
	return !p.underway() && p.o.reported(vocabulary.ConditionProgressing).Reason == vocabulary.ReasonNewMachineSetAvailable
}

// room returns how many machines may be added now; if none, also why.
func (p *planner) room(surge int) (int, string) {
	if p.plain() {
		return p.o.Replicas, ""
	}
	taken := sum(p.sets, p.occupied)
	if !p.o.FreeWhenDeleting {
		taken += p.terminating
	}
	if taken >= p.o.Replicas+surge {
		here := min(taken, p.here())
		return 0, fmt.Sprintf("%s existing or being deleted, %d allowed", machines(here), p.o.Replicas+surge) +
			phrase.If(taken > here, "; %d more may exist or be created", taken-here)
	}
	return p.o.Replicas + surge - taken, ""
}

// here returns how many machines were read that take a place. Those that a set may still create are not among them.
func (p *planner) here() int {
	active := sum(p.sets, func(set *setPlan) int { return set.active })
	if p.o.FreeWhenDeleting {
		return active
	}
	return active + sum(p.sets, func(set *setPlan) int { return set.terminating }) + p.terminating
}

// guaranteed returns how many machines of a set certainly stay available at size n. The set may delete available
// machines first, except that unhealthy ones always precede them, and its workflow may still act on a smaller size.
// Those that the autoscaler chose go at any size.
func (set *setPlan) guaranteed(n int) int {
	return set.available - min(max(set.safe()-min(n, set.least()), set.leaving), set.available)
}

// safe returns the smallest size at which the set surely loses no available machine: all that are unhealthy may go. A
// set that hands machines over chooses those with a node, which are available, before those that it still creates.
func (set *setPlan) safe() int {
	if set.transfer.To != "" {
		return max(set.active, set.size, set.Replicas, set.ActedOn)
	}
	return set.active - set.unhealthy
}

// least returns the smallest size that the set's workflow may act on.
func (set *setPlan) least() int { return min(set.size, set.Replicas, set.ActedOn) }

// put gives a set a size, and reports whether it did. While a set's workflow has not seen the last size, the size
// changes only in the same direction, so that old and new size bound how many machines the set can have. Exception:
// outside of a rollout, a scale-down may be reverted before the set has acted on it. A scale-up may not: machines being
// created are not known yet, and a new template would add as many again.
func (set *setPlan) put(n int, why string) bool {
	if n == set.size || n > set.Replicas && set.ActedOn > set.Replicas && !set.free ||
		n < set.Replicas && set.ActedOn < set.Replicas {
		return false
	}
	set.size, set.why = n, why
	return true
}

// budget returns how many available machines may be removed. Zero or less: none.
func (p *planner) budget() int {
	return sum(p.sets, func(set *setPlan) int { return set.guaranteed(set.size) }) - p.needed
}

// lower reduces the size of a set by up to by machines, of which at most budget are available ones. It returns by how
// many.
func (p *planner) lower(set *setPlan, by int, why string) int {
	n := max(set.size-max(by, 0), 0)
	if n == set.size { // the budget below looks at every set
		return 0
	}
	budget := max(p.budget(), 0)
	if set.guaranteed(set.size)-set.guaranteed(n) > budget {
		n = max(min(set.least(), set.safe())-budget, n)
	}
	if by = set.size - n; by <= 0 || !set.put(n, why) {
		return 0
	}
	return by
}

// raise adds by to the size of a set.
func (set *setPlan) raise(by int, why string) {
	if by > 0 {
		set.put(set.size+by, why)
	}
}

// quiet reports whether no size changes.
func (p *planner) quiet() bool {
	return !slices.ContainsFunc(p.sets, func(set *setPlan) bool { return set.size != set.Replicas })
}
