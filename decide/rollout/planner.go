package rollout

import (
	"fmt"
	"slices"

	"millwright/api/vocabulary"
	"millwright/decide/list"
)

// setPlan is a set in the middle of a decision: its facts in numbers, and the size that it gets.
type setPlan struct {
	Set
	size        int // as decided so far
	live        int // machines that are not being deleted
	terminating int // machines that are
	available   int
	sick        int // not available, and first to go
	updating    int
	chosen      int    // by the autoscaler
	why         string // of the last change of the size
	forced      bool
	free        bool // a smaller size may be taken back: nothing is promised that depends on it
}

// planner is a deployment in the middle of a decision.
type planner struct {
	o           Observed
	surge       int
	needed      int        // machines that have to be available
	sets        []*setPlan // that are not being deleted, the oldest first
	current     *setPlan   // the set of the current template; nil: there is none
	terminating int        // machines of sets that are being deleted
	target      int        // new machines that the stage in force wants
	why         string     // what holds the sizes, where nothing changes
}

// open reads the facts into numbers. o is sorted.
func open(o Observed) *planner {
	surge, unavailable := Bounds(o)
	p := &planner{o: o, surge: surge, target: o.Replicas}
	preserved := 0
	for _, s := range o.Sets {
		set := read(s)
		preserved += list.Count(s.Machines, func(m Member) bool { return m.Failed && m.Preserved && !m.Deleting })
		if s.Deleting {
			p.terminating += max(set.live+set.terminating, s.Counted)
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
	live := list.Where(s.Machines, func(m Member) bool { return !m.Deleting })
	of := func(holds func(Member) bool) int { return list.Count(live, holds) }
	set := &setPlan{
		Set: s, size: s.Replicas, live: len(live), terminating: len(s.Machines) - len(live),
		updating:  of(func(m Member) bool { return m.Updating }),
		available: of(func(m Member) bool { return m.Available && !m.Updating }),
		sick:      of(func(m Member) bool { return m.Sick && !m.Preserved && !m.Available && !m.Updating }),
		chosen:    of(func(m Member) bool { return m.Priority <= PriorityChosen && m.MarkedAt != "" }),
	}
	exposed := slices.ContainsFunc(live, func(m Member) bool { // an available machine goes before those that are not
		return m.Available && !m.Updating && (m.First || m.Priority < PriorityDefault)
	})
	if exposed || s.Seen != s.Replicas { // its workflow may have chosen already, when others were sick
		set.sick = 0
	}
	return set
}

// old returns the sets of other templates, the oldest first.
func (p *planner) old() []*setPlan {
	return slices.DeleteFunc(slices.Clone(p.sets), func(set *setPlan) bool { return set == p.current })
}

func sum(list []*setPlan, of func(*setPlan) int) int {
	n := 0
	for _, set := range list {
		n += of(set)
	}
	return n
}

func size(set *setPlan) int { return set.size }

// occupied returns how many machines a set holds a place for: those that it has, those that it is about to make, and those
// that are on their way out, unless they are not to count. It goes by the largest size that the set's workflow may have in
// mind, for it may be making machines at this moment. One that grows may yet delete what a smaller size left over, and then
// make others.
func (p *planner) occupied(set *setPlan) int {
	most := max(set.size, set.Replicas, set.Seen)
	here := max(most, set.live)
	if p.o.FreeWhenDeleting {
		return here
	}
	if set.Seen <= set.Replicas {
		here = most + max(set.live-set.Seen, 0)
	}
	return max(here+set.terminating, set.Counted)
}

// plain reports whether only the number of machines can differ: none of another template is there, and the last rollout came to
// its end. Then the number is followed at once, as in MCM: who wants more machines shall not wait for a drain of hours.
func (p *planner) plain() bool {
	return !p.underway() && p.o.reported(vocabulary.ConditionProgressing).Reason == vocabulary.ReasonNewMachineSetAvailable
}

// room returns how many machines may come now, and why none may.
func (p *planner) room(surge int) (int, string) {
	if p.plain() {
		return p.o.Replicas, ""
	}
	taken := sum(p.sets, p.occupied)
	if !p.o.FreeWhenDeleting {
		taken += p.terminating
	}
	if taken >= p.o.Replicas+surge {
		return 0, fmt.Sprintf("%s there or on their way out, %d allowed", machines(taken), p.o.Replicas+surge)
	}
	return p.o.Replicas + surge - taken, ""
}

// guaranteed returns how many machines of a set are available for sure when it has the size n: it may take available ones
// before others, except those that are known to go first, and it may have a smaller size in mind.
func (set *setPlan) guaranteed(n int) int {
	return set.available - min(max(set.live-min(n, set.least())-set.sick, 0), set.available)
}

// least is the smallest size that the set's workflow may have in mind.
func (set *setPlan) least() int { return min(set.size, set.Replicas, set.Seen) }

// put gives a set a size, and reports whether it did. A set whose workflow has not seen its size yet gets another one only in the
// same direction: then its old and new size say how many machines it can have meanwhile. Outside of a rollout nobody counts on machines
// that were to go, and who takes that back shall not see all of them go first. Not so the other way round: machines that are being
// made at this moment are not known yet, and a template that comes at once would have as many besides.
func (set *setPlan) put(n int, why string) bool {
	if n == set.size || n > set.Replicas && set.Seen > set.Replicas && !set.free || n < set.Replicas && set.Seen < set.Replicas {
		return false
	}
	set.size, set.why = n, why
	return true
}

// budget returns how many available machines may go. Zero or less: none.
func (p *planner) budget() int {
	return sum(p.sets, func(set *setPlan) int { return set.guaranteed(set.size) }) - p.needed
}

// lower takes up to by machines off the size of a set without taking more available ones than budget, and returns how many.
func (p *planner) lower(set *setPlan, by int, why string) int {
	budget := max(p.budget(), 0)
	n := max(set.size-max(by, 0), 0)
	if set.guaranteed(set.size)-set.guaranteed(n) > budget {
		n = max(min(set.least(), set.live-set.sick)-budget, n)
	}
	if by = set.size - n; by <= 0 || !set.put(n, why) {
		return 0
	}
	return by
}

// raise gives a set a larger size.
func (set *setPlan) raise(by int, why string) {
	if by > 0 {
		set.put(set.size+by, why)
	}
}

// quiet reports whether no size changes.
func (p *planner) quiet() bool {
	return !slices.ContainsFunc(p.sets, func(set *setPlan) bool { return set.size != set.Replicas })
}
