package rollout

// recreate has all old machines gone, objects and instances, before the first new one comes.
func (b *book) recreate() {
	left := b.going
	for _, e := range b.old() {
		if e.size > 0 {
			e.put(0, "all old machines go first")
		}
		left += max(e.live+e.going, e.Counted)
	}
	switch {
	case left > 0:
		b.why = phrase("%s of old templates still there", machines(left))
	default:
		b.why = b.grow(0)
	}
}

// onDelete follows people: what they delete of old sets comes back in the current one. Nothing is deleted for the
// template's sake, only when fewer machines are wanted: then new ones go first that are not available yet, and old ones after them.
func (b *book) onDelete() {
	for _, e := range b.old() {
		if e.NoScaleUp && e.live < e.size { // before that it might be making one
			e.put(e.live, phrase("%s left of it", machines(e.live)))
		}
	}
	b.grow(0)
	over := max(sum(b.sets, size)-b.o.Replicas, 0)
	if idle := min(over, max(b.now.size-b.now.available, 0)); idle > 0 {
		b.now.put(b.now.size-idle, phrase("%d wanted in all", b.o.Replicas))
		over -= idle // also where that has to wait: old ones serve
	}
	for _, e := range b.old() {
		by := min(over, e.size)
		if by > 0 {
			e.put(e.size-by, phrase("%d wanted in all", b.o.Replicas))
			over -= by
		}
	}
	if old := sum(b.old(), size); old > 0 {
		b.why = phrase("%s of old templates stay until somebody deletes them", machines(old))
	}
}

// frozen follows the number of machines while the template is not rolled out: paused, held, or waiting for its first set.
// A single set takes it all. Of several, the youngest or current one grows, and all give in proportion to what they have.
func (b *book) frozen() {
	active, total := b.active(), sum(b.sets, size)
	switch {
	case len(b.sets) == 0:
	case len(active) == 0:
		b.make(b.first(), b.o.Replicas)
	case len(active) == 1 && total < b.o.Replicas:
		b.make(active[0], b.o.Replicas-total)
	case len(active) == 1:
		if e := active[0]; e.size != b.o.Replicas {
			e.put(b.o.Replicas, phrase("%d wanted in all", b.o.Replicas))
		}
	case total < b.o.Replicas:
		b.make(b.first(), b.o.Replicas-total)
	default:
		b.share(active, total-b.o.Replicas-b.surge)
	}
}

// make gives a set more machines, as many as there is room for.
func (b *book) make(e *entry, by int) {
	room, _ := b.room(b.surge)
	e.raise(min(room, by), phrase("%d wanted in all", b.o.Replicas))
}

// first returns the set that grows while no template is rolled out.
func (b *book) first() *entry {
	if b.now != nil {
		return b.now
	}
	return newest(b.sets)
}
