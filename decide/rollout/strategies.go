package rollout

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// rolling sizes all sets of a rolling update: up where there is room, down where enough machines are available. It also
// follows a changed number of machines.
func (p *planner) rolling() {
	if p.waitsForAnswer() {
		return
	}
	surge := p.surge
	if p.transfers() {
		surge = 0 // machines that are updated in place need no surplus, apart from the one that lendOne adds
	}
	why := p.grow(surge)
	p.fill()
	p.shrink()
	p.trim()
	p.lendOne()
	p.breakDeadlock()
	p.note(why)
}

// grow raises the current set as far as there is room, and returns why it gets no more; empty: it has all.
func (p *planner) grow(surge int) string {
	current, goal := p.current, p.goal()
	if current.size > p.o.Replicas {
		current.put(p.o.Replicas, fmt.Sprintf("%d wanted in all", p.o.Replicas))
	}
	if current.size >= goal {
		return ""
	}
	room, why := p.room(surge)
	current.raise(min(room, goal-current.size), fmt.Sprintf("room for %s, %d wanted", machines(room), goal))
	return why
}

// fill raises the newest old set while the rollout step allows no more new machines, so that a rollout that waits has
// as many machines as wanted.
func (p *planner) fill() {
	old := p.old()
	missing := p.left() - sum(old, size)
	if missing <= 0 || len(old) == 0 {
		return
	}
	last := newest(old)
	room, _ := p.room(p.surge)
	last.raise(
		min(room, missing),
		fmt.Sprintf("%d wanted in all, and this step has %s of the new template", p.o.Replicas, machines(p.target)),
	)
}

// left returns how many old machines the rollout step keeps.
func (p *planner) left() int { return max(p.o.Replicas-max(p.target, p.current.size), 0) }

// newest returns the youngest set that has machines, or the youngest of all.
func newest(sets []*setPlan) *setPlan {
	for _, set := range slices.Backward(sets) {
		if set.size > 0 {
			return set
		}
	}
	return sets[len(sets)-1]
}

// shrink lowers old sets, from the oldest on: first by machines that go anyway or are not available, then by as many
// others as can be spared. New machines must become available before available old ones are removed.
func (p *planner) shrink() {
	old := p.old()
	waiting := max(p.current.size-p.current.available, 0)
	spare := sum(p.sets, size) - p.needed - waiting - sum(old, func(set *setPlan) int { return set.updating })
	spare = min(spare, sum(old, size)-p.left())
	if p.transfers() {
		spare = min(spare, p.places())
	}
	old = list.Where(old, func(set *setPlan) bool { return !set.settling })
	for _, set := range old {
		spare -= p.lower(set, min(spare, set.leaving), "the autoscaler chose machines of it")
		broken := set.size - set.available - set.updating
		spare -= p.lower(set, min(spare, broken), "it has machines that are not available")
	}
	why := fmt.Sprintf("%d available, %d needed", p.available(), p.needed)
	for _, set := range old {
		if spare <= 0 {
			return
		}
		spare -= p.lower(set, min(spare, p.budget()), why)
	}
}

// trim removes new machines that are not available yet if there are too many machines in all. That happens after the
// wanted number became smaller.
func (p *planner) trim() {
	over := sum(p.sets, size) - p.o.Replicas - p.surge
	idle := p.current.size - p.current.available
	p.lower(p.current, min(over, idle), fmt.Sprintf("%d are allowed in all", p.o.Replicas+p.surge))
}

// breakDeadlock lowers an old set that has an unavailable machine when no other size can change: no machine is being
// created or deleted, all new machines are available, there is no room for another, and an old set might delete an
// available machine. Source: Cluster API.
func (p *planner) breakDeadlock() {
	busy := func(set *setPlan) bool {
		return set.size != set.active || set.terminating > 0 || set.ActedOn != set.size
	}
	stuck := p.quiet() && p.current.available == p.current.active && sum(p.old(), size) > p.left()
	if !stuck || slices.ContainsFunc(p.sets, busy) {
		return
	}
	for _, set := range p.old() {
		if set.size > 0 && set.active > set.available+set.updating {
			set.size, set.forced = set.size-1, true
			set.why = "no other size can change, and it has a machine that is not available"
			return
		}
	}
}

func (p *planner) available() int {
	return sum(p.sets, func(set *setPlan) int { return set.available })
}

// note keeps why no size changes.
func (p *planner) note(why string) {
	if !p.quiet() {
		return
	}
	old := sum(p.old(), size)
	updating := sum(p.sets, func(set *setPlan) int { return set.updating })
	switch joining := p.current.size - p.current.available; {
	case updating > 0 && p.transfers():
		p.why = fmt.Sprintf(
			"%s %s updated in place: %d available, %d needed",
			machines(updating),
			phrase.OneOf(updating, "is", "are"),
			p.available(),
			p.needed,
		)
	case joining > 0 && p.current.size > 0:
		kind := cmp.Or(phrase.If(old > 0, "new machine"), "machine")
		is := func(n int) string { return phrase.OneOf(n, "is", "are") }
		p.why = fmt.Sprintf("%s %s not available yet: %d %s available, %d %s needed",
			phrase.Count(joining, kind), is(joining), p.available(), is(p.available()), p.needed, is(p.needed))
	case why != "":
		p.why = why
	case old > p.left():
		p.why = fmt.Sprintf("%d available, %d needed", p.available(), p.needed)
	}
}

// recreate removes all old machines, objects and instances, before the first new one is created.
func (p *planner) recreate() {
	left := p.terminating
	for _, set := range p.old() {
		set.put(0, "old machines are deleted first")
		left += max(set.active+set.terminating, set.Counted)
	}
	if left == 0 {
		p.why = p.grow(0)
		return
	}
	p.why = fmt.Sprintf("%s of old templates still there", machines(left))
}

// onDelete replaces in the current set what people delete from old sets. A new template deletes nothing. If fewer
// machines are wanted, new machines that are not available yet are removed first, then old ones.
func (p *planner) onDelete() {
	p.loseMachines()
	p.grow(0)
	over := max(sum(p.sets, size)-p.o.Replicas, 0)
	idle, why := min(over, max(p.current.size-p.current.available, 0)), fmt.Sprintf("%d wanted in all", p.o.Replicas)
	p.current.put(p.current.size-idle, why)
	over -= idle // even if put refused this: the old machines serve
	for _, set := range p.old() {
		by := min(over, set.size)
		set.put(set.size-by, why)
		over -= by
	}
	if old := sum(p.old(), size); old > 0 {
		p.why = fmt.Sprintf("%s of old templates stay until somebody deletes them", machines(old))
	}
}

// loseMachines lowers the size of old sets to the number of machines that they have, unless they may still create one.
func (p *planner) loseMachines() {
	for _, set := range p.old() {
		if set.NoScaleUp && set.active < set.size {
			set.put(set.active, fmt.Sprintf("it has %s left", machines(set.active)))
		}
	}
}

// followSize follows the number of machines while the template is not rolled out: paused, held, or waiting for its
// first set. A single set takes the whole change. Of several sets the current or youngest one grows, and all shrink in
// proportion to their sizes.
func (p *planner) followSize() {
	p.keepTransfers()
	nonEmpty := list.Where(p.sets, func(set *setPlan) bool { return set.size != 0 })
	missing := p.missing()
	switch {
	case len(p.sets) == 0:
	case p.moving() > 0 && missing <= 0: // a smaller number is followed once the machines have moved
	case missing > 0 && len(nonEmpty) == 1:
		p.enlarge(nonEmpty[0], missing)
	case missing > 0:
		p.enlarge(cmp.Or(p.current, newest(p.sets)), missing)
	case len(nonEmpty) == 1:
		nonEmpty[0].put(p.o.Replicas, fmt.Sprintf("%d wanted in all", p.o.Replicas))
	default:
		p.share(nonEmpty, -missing-p.surge)
	}
}

// enlarge raises a set by at most by, as far as there is room.
func (p *planner) enlarge(set *setPlan, by int) {
	room, _ := p.room(p.surge)
	set.raise(min(room, by), fmt.Sprintf("%d wanted in all", p.o.Replicas))
}

// share removes a surplus from sets in proportion to their sizes; the remainder of rounding comes from the largest.
// Machines that the autoscaler or an operator chose go first, in whichever set. No set loses an available machine that
// is needed. Source of the proportion: MCM, size times the number allowed now, divided by the number allowed when the
// set got its size.
func (p *planner) share(sets []*setPlan, over int) {
	if over <= 0 {
		return
	}
	why := fmt.Sprintf("%d wanted in all, shared among the sets", p.o.Replicas)
	take := func(set *setPlan, n int) { over -= p.lower(set, min(n, over), why) }
	for _, set := range sets {
		take(set, set.chosen)
	}
	slices.SortStableFunc(sets, func(x, y *setPlan) int { return cmp.Compare(y.size, x.size) })
	parts := make([]int, len(sets))
	total := sum(sets, size)
	for i, set := range sets {
		before := set.Max
		if before <= 0 || before < total-over {
			before = total
		}
		parts[i] = set.size - int(math.Round(float64(set.size)*float64(p.o.Replicas+p.surge)/float64(before)))
	}
	for i, set := range sets {
		take(set, parts[i])
	}
	for _, set := range sets {
		take(set, over)
	}
}
