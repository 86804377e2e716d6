package rollout

import "slices"

// Move hands a machine that was updated in place to the current set.
type Move struct {
	Machine Target
	From    string // name of its set
	To      string // name and UID of the set that it gets
	ToUID   string
}

// handOver fills in what is done with machines and nodes of an in-place update. Machines are handed over before others are
// selected; both only where the sizes stand.
func (b *book) handOver(d *Decision) {
	b.settle(d)
	if b.now == nil || !b.o.inPlace() {
		return
	}
	b.each(func(e *entry, m Member) {
		if e != b.now && m.Updated && !m.Handed && len(d.Move) < MaxBatch {
			d.Move = append(d.Move, Move{m.target("it was updated in place"), e.Name, b.now.Name, b.now.UID})
		}
	})
	if len(d.Move) > 0 {
		return
	}
	b.each(func(e *entry, m Member) {
		if e != b.now && !m.Candidate && !m.Handed && m.Node != "" { // the mark would keep the label that goes first
			add(&d.Candidates, m.target("its set is old"))
		}
	})
	if b.o.Strategy == InPlaceAuto && b.quiet() {
		b.choose(d)
	}
}

// each visits the machines that are not being deleted, set by set from the oldest on.
func (b *book) each(visit func(*entry, Member)) {
	for _, e := range b.sets {
		for _, m := range e.Machines {
			if !m.Deleting {
				visit(e, m)
			}
		}
	}
}

// settle ends the update at the nodes of machines that were handed over, or whose set is the current one, and of all when nothing is
// updated in place any more. Only then goes the label that protects a machine from its set, once the set counts it, or it may go: without
// the label, a node that still says that it was updated would be taken for one that was updated for the current template.
func (b *book) settle(d *Decision) {
	b.each(func(e *entry, m Member) {
		current := e == b.now
		switch {
		case m.Marks && m.Updated && (m.Handed || current || !b.o.inPlace()):
			add(&d.Settle, m.target("it was updated, and serves again"))
		case m.Marks && !m.Updating && current:
			add(&d.Strip, m.target("its set is the current one: there is nothing to update"))
		case m.Handed && !m.Marks && b.accepts(e):
			add(&d.Accept, m.target("its set counts it now"))
		}
	})
}

// accepts reports whether a set counts the machines that were handed to it, or may lose them: of a former set as many as can be done without,
// and all where the strategy is Recreate: it waits until none of them is left.
func (b *book) accepts(e *entry) bool {
	switch {
	case e.live <= e.Replicas:
		return true
	case e == b.now:
		return e.Replicas >= b.o.Replicas
	default:
		return b.o.Strategy == Recreate || b.slack() >= 0 // which takes them for lost
	}
}

// add puts a target on a list that has room.
func add(list *[]Target, t Target) {
	if len(*list) < MaxBatch {
		*list = append(*list, t)
	}
}

// choose selects the next nodes: those that are unhealthy first, for they cost nothing, then from the oldest set on, as many
// as may be unavailable at a time. Formulas: MCM's, but a machine under way is counted once.
func (b *book) choose(d *Decision) {
	under := b.underWay()
	waiting := max(b.now.size-b.now.available, 0)
	places := min(b.target, b.o.Replicas) - b.now.size - under
	free := min(sum(b.sets, size)-b.needed-waiting-under, places)
	able := min(b.slack(), free)
	var sick, well []Member
	b.each(func(e *entry, m Member) {
		switch {
		case e == b.now || !m.Candidate || m.Updating || m.Updated || m.Failed || m.Node == "":
		case m.Available:
			well = append(well, m)
		default:
			sick = append(sick, m)
		}
	})
	pick := sick[:max(min(free, len(sick)), 0)]
	able = min(able, free-len(pick))
	pick = append(slices.Clone(pick), well[:max(min(able, len(well)), 0)]...)
	for _, m := range pick[:min(len(pick), MaxBatch)] {
		d.Select = append(d.Select, m.target("its node is next"))
	}
}
