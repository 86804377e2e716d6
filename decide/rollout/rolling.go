package rollout

// rolling sizes all sets of a rolling update: up where there is room, down where enough are available, and out of a corner
// where neither goes. The same steps follow a changed number of machines.
func (b *book) rolling() {
	why := b.grow(b.surge)
	b.fill(b.surge)
	b.shrink()
	b.trim()
	b.corner()
	b.note(why)
}

// grow gives the current set what it may have, and returns why it gets no more; empty when it has all.
func (b *book) grow(surge int) string {
	now, goal := b.now, min(b.target, b.o.Replicas)
	if now.size > b.o.Replicas {
		now.put(b.o.Replicas, phrase("%d wanted in all", b.o.Replicas))
	}
	if now.size >= goal {
		return ""
	}
	room, why := b.room(surge)
	now.raise(min(room, goal-now.size), phrase("%s may come, %d wanted", machines(room), goal))
	return why
}

// fill makes old machines where the stage in force lets no more new ones be made: whatever a rollout waits for, there are as
// many machines as wanted.
func (b *book) fill(surge int) {
	old := b.old()
	missing := b.left() - sum(old, size)
	if missing <= 0 || len(old) == 0 {
		return
	}
	last := newest(old)
	room, _ := b.room(surge)
	last.raise(min(room, missing), phrase("%d wanted in all, and this stage has %s of the new template", b.o.Replicas, machines(b.target)))
}

// left returns how many old machines the stage in force keeps.
func (b *book) left() int { return max(b.o.Replicas-max(b.target, b.now.size), 0) }

// newest returns the youngest of the sets that have machines, or the youngest of all.
func newest(list []*entry) *entry {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].size > 0 {
			return list[i]
		}
	}
	return list[len(list)-1]
}

// shrink takes old machines away: first those that are not available anyhow, then the others as far as enough are
// available, both from the oldest set on. New machines that are not available yet must come before old ones go.
func (b *book) shrink() {
	old := b.old()
	waiting := max(b.now.size-b.now.available, 0)
	spare := sum(b.sets, size) - b.needed - waiting - sum(old, func(e *entry) int { return e.updating })
	spare = min(spare, sum(old, size)-b.left())
	for _, e := range old {
		broken := e.size - e.available - e.updating
		spare -= b.lower(e, min(spare, broken), "it has machines that are not available")
	}
	for _, e := range old {
		why := phrase("%d available, %d needed", b.available(), b.needed)
		spare -= b.lower(e, min(spare, b.slack()), why)
	}
}

// trim gives up new machines that are not available yet when there are too many in all: that is what is left after the
// number of machines became smaller.
func (b *book) trim() {
	over := sum(b.sets, size) - b.o.Replicas - b.surge
	idle := b.now.size - b.now.available
	b.lower(b.now, min(over, idle), phrase("%d are allowed in all", b.o.Replicas+b.surge))
}

// corner ends a deadlock: nothing is on its way, all new machines are available, and yet neither may another come nor an
// old one go, because a set might take the wrong one. Then an old set with a machine that is not available gives one up.
// Source: Cluster API.
func (b *book) corner() {
	if !b.quiet() || b.now.available != b.now.live || sum(b.old(), size) <= b.left() {
		return
	}
	for _, e := range b.sets {
		if e.size != e.live || e.going > 0 || e.Seen != e.size {
			return
		}
	}
	for _, e := range b.old() {
		if e.size > 0 && e.live > e.available+e.updating {
			e.size, e.forced = e.size-1, true
			e.why = "nothing else can move, and it has a machine that is not available"
			return
		}
	}
}

func (b *book) available() int { return sum(b.sets, func(e *entry) int { return e.available }) }

// note keeps why nothing moves, for the sentence of a decision without a step.
func (b *book) note(why string) {
	if !b.quiet() {
		return
	}
	old := sum(b.old(), size)
	switch joining := b.now.size - b.now.available; {
	case joining > 0 && b.now.size > 0:
		b.why = phrase("%s of the new template not available yet, %d available in all, %d needed", machines(joining), b.available(), b.needed)
	case why != "":
		b.why = why
	case old > b.left():
		b.why = phrase("%d available, %d needed", b.available(), b.needed)
	}
}
