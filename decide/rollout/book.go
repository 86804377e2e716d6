package rollout

import "slices"

// entry is a set in the middle of a decision: its facts in numbers, and the size that it gets.
type entry struct {
	Set
	size      int // as decided so far
	live      int // machines that are not being deleted
	going     int // machines that are
	available int
	sick      int // not available, and first to go
	updating  int
	chosen    int    // by the autoscaler
	why       string // of the last change of the size
	forced    bool
	free      bool // a smaller size may be taken back: nothing is promised that depends on it
}

// book is a deployment in the middle of a decision.
type book struct {
	o      Observed
	surge  int
	needed int      // machines that have to be available
	sets   []*entry // that are not being deleted, the oldest first
	now    *entry   // the set of the current template; nil: there is none
	going  int      // machines of sets that are being deleted
	target int      // new machines that the stage in force wants
	why    string   // what holds the sizes, where nothing changes
}

// open reads the facts into numbers. o is sorted.
func open(o Observed) *book {
	surge, unavailable := Bounds(o)
	b := &book{o: o, surge: surge, target: o.Replicas}
	preserved := 0
	for _, s := range o.Sets {
		e := read(s)
		for _, m := range s.Machines {
			if m.Failed && m.Preserved && !m.Deleting {
				preserved++
			}
		}
		if s.Deleting {
			b.going += max(e.live+e.going, s.Counted)
			continue
		}
		b.sets = append(b.sets, e)
		if s.Current && b.now == nil {
			b.now = e
		}
	}
	b.needed = max(o.Replicas-unavailable-preserved, 0)
	if b.plain() {
		for _, e := range b.sets {
			e.free = true
		}
	}
	return b
}

func read(s Set) *entry {
	e := &entry{Set: s, size: s.Replicas}
	exposed := false // an available machine goes before those that are not
	for _, m := range s.Machines {
		if m.Deleting {
			e.going++
			continue
		}
		e.live++
		if m.Priority <= priorityChosen && m.MarkedAt != "" {
			e.chosen++
		}
		switch {
		case m.Updating:
			e.updating++
		case m.Available:
			e.available++
			exposed = exposed || m.First || m.Priority < priorityDefault
		case m.Sick && !m.Preserved:
			e.sick++
		}
	}
	if exposed || s.Seen != s.Replicas { // its workflow may have chosen already, when others were sick
		e.sick = 0
	}
	return e
}

// old returns the sets of other templates, the oldest first.
func (b *book) old() []*entry {
	return slices.DeleteFunc(slices.Clone(b.sets), func(e *entry) bool { return e == b.now })
}

// active returns the sets that want machines.
func (b *book) active() []*entry {
	return slices.DeleteFunc(slices.Clone(b.sets), func(e *entry) bool { return e.size == 0 })
}

func sum(list []*entry, of func(*entry) int) int {
	n := 0
	for _, e := range list {
		n += of(e)
	}
	return n
}

func size(e *entry) int { return e.size }

// places returns how many machines a set holds a place for: those that it has, those that it is about to make, and those
// that are on their way out, unless they are not to count. It goes by the largest size that the set's workflow may have in
// mind, for it may be making machines at this moment. One that grows may yet delete what a smaller size left over, and then
// make others.
func (b *book) places(e *entry) int {
	most := max(e.size, e.Replicas, e.Seen)
	if b.o.FreeWhenDeleting {
		return max(most, e.live)
	}
	here := max(most, e.live)
	if e.Seen <= e.Replicas {
		here = most + max(e.live-e.Seen, 0)
	}
	return max(here+e.going, e.Counted)
}

// plain reports whether only the number of machines can differ: none of another template is there, and the last rollout came to
// its end. Then the number is followed at once, as in MCM: who wants more machines shall not wait for a drain of hours.
func (b *book) plain() bool {
	return !b.underway() && b.o.progressing().Reason == reasonComplete
}

// room returns how many machines may come now, and why none may.
func (b *book) room(surge int) (int, string) {
	if b.plain() {
		return b.o.Replicas, ""
	}
	taken := sum(b.sets, b.places)
	if !b.o.FreeWhenDeleting {
		taken += b.going
	}
	if taken >= b.o.Replicas+surge {
		return 0, phrase("%s there or on their way out, %d allowed", machines(taken), b.o.Replicas+surge)
	}
	return b.o.Replicas + surge - taken, ""
}

// surely returns how many machines of a set are available for sure when it has the size n: it may take available ones
// before others, except those that are known to go first, and it may have a smaller size in mind.
func (e *entry) surely(n int) int {
	return e.available - min(max(e.live-min(n, e.least())-e.sick, 0), e.available)
}

// least is the smallest size that the set's workflow may have in mind.
func (e *entry) least() int { return min(e.size, e.Replicas, e.Seen) }

// put gives a set a size, and reports whether it did. A set whose workflow has not seen its size yet gets another one only in the
// same direction: then its old and new size say how many machines it can have meanwhile. Outside of a rollout nobody counts on machines
// that were to go, and who takes that back shall not see all of them go first. Not so the other way round: machines that are being
// made at this moment are not known yet, and a template that comes at once would have as many besides.
func (e *entry) put(n int, why string) bool {
	if n == e.size || n > e.Replicas && e.Seen > e.Replicas && !e.free || n < e.Replicas && e.Seen < e.Replicas {
		return false
	}
	e.size, e.why = n, why
	return true
}

// slack returns how many available machines may go. Zero or less: none.
func (b *book) slack() int {
	return sum(b.sets, func(e *entry) int { return e.surely(e.size) }) - b.needed
}

// lower takes up to by machines off the size of a set without taking more available ones than slack, and returns how many.
func (b *book) lower(e *entry, by int, why string) int {
	slack := max(b.slack(), 0)
	n := max(e.size-max(by, 0), 0)
	if e.surely(e.size)-e.surely(n) > slack {
		n = max(min(e.least(), e.live-e.sick)-slack, n)
	}
	if by = e.size - n; by <= 0 || !e.put(n, why) {
		return 0
	}
	return by
}

// raise gives a set a larger size.
func (e *entry) raise(by int, why string) {
	if by > 0 {
		e.put(e.size+by, why)
	}
}

// quiet reports whether no size changes.
func (b *book) quiet() bool {
	return !slices.ContainsFunc(b.sets, func(e *entry) bool { return e.size != e.Replicas })
}
