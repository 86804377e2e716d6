package rollout

import "cmp"

// updateInPlace sizes the sets of an in-place update: it follows the machines that were handed over. It runs with each decision,
// so that a number that changes on the way is followed at once.
func (b *book) updateInPlace() {
	now := b.now
	for _, e := range b.old() {
		if e.NoScaleUp && e.live < e.size {
			e.put(e.live, phrase("%s left of it", machines(e.live)))
		}
	}
	why := b.grow(b.surge)
	if missing := b.o.Replicas - sum(b.sets, size); missing > 0 { // whatever stage is in force: old sets make none any more
		room, _ := b.room(b.surge)
		now.raise(min(room, missing), phrase("%d wanted in all", b.o.Replicas))
	}
	if now.size >= b.o.Replicas && now.available >= min(b.needed, now.size) {
		for _, e := range b.old() { // what is left was never updated: the surge came instead
			b.lower(e, e.size, "the new set has all machines that are wanted")
		}
	}
	b.reduce()
	if old := sum(b.old(), size); old > 0 && b.quiet() {
		b.why = cmp.Or(b.waitsInPlace(), why)
	}
}

// include makes the sets as large as the machines need that were handed to them, also sets of a template that was changed meanwhile,
// and whatever the strategy has become: they serve.
func (b *book) include() {
	for _, e := range b.sets {
		if handed := b.handed(e); handed > 0 && e.live > e.size {
			e.raise(min(handed, e.live-e.size), "machines that were updated in place are in it now")
		}
	}
}

// reduce takes old machines off when fewer are wanted. Those under way stay: there is no saying which one a set takes.
func (b *book) reduce() {
	over := sum(b.sets, size) - b.o.Replicas - b.surge
	for _, e := range b.old() {
		over -= b.lower(e, min(over, e.size-e.updating), phrase("%d are allowed in all", b.o.Replicas+b.surge))
	}
	b.trim()
}

func (b *book) handed(e *entry) int {
	n := 0
	for _, m := range e.Machines {
		if m.Handed && !m.Deleting {
			n++
		}
	}
	return n
}

// underWay returns how many machines of old sets are being updated.
func (b *book) underWay() int { return sum(b.old(), func(e *entry) int { return e.updating }) }

func (b *book) waitsInPlace() string {
	switch n := b.underWay(); {
	case n > 0:
		return phrase("%s being updated in place", machines(n))
	case b.o.Strategy == InPlaceManual:
		return "a person is to select the next nodes"
	default:
		return phrase("%d available, %d needed", b.available(), b.needed)
	}
}
