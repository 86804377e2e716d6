package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/phrase"
)

// updateInPlace sizes the sets of an in-place update: it follows the machines that were handed over. It runs with each decision,
// so that a number that changes on the way is followed at once.
func (p *planner) updateInPlace() {
	current := p.current
	p.loseMachines()
	p.grow(p.surge)
	p.make(current, p.o.Replicas-sum(p.sets, size)) // whatever stage is in force: old sets make none any more
	if current.size >= p.o.Replicas && current.available >= min(p.needed, current.size) {
		for _, set := range p.old() { // what is left was never updated: the surge came instead
			p.lower(set, set.size, "the new set has all machines that are wanted")
		}
	}
	p.reduce()
	if old := sum(p.old(), size); old > 0 && p.quiet() {
		n := p.underWay()
		p.why = cmp.Or(
			phrase.If(n > 0, "%s being updated in place", machines(n)),
			phrase.If(p.o.Strategy == InPlaceManual, "a person is to select the next nodes"),
			fmt.Sprintf("%d available, %d needed", p.available(), p.needed),
		)
	}
}

// reduce takes old machines off when fewer are wanted. Those under way stay: there is no saying which one a set takes.
func (p *planner) reduce() {
	over := sum(p.sets, size) - p.o.Replicas - p.surge
	for _, set := range p.old() {
		over -= p.lower(set, min(over, set.size-set.updating), fmt.Sprintf("%d are allowed in all", p.o.Replicas+p.surge))
	}
	p.trim()
}

// underWay returns how many machines of old sets are being updated.
func (p *planner) underWay() int { return sum(p.old(), func(set *setPlan) int { return set.updating }) }

// Move hands a machine that was updated in place to the current set.
type Move struct {
	Machine Target
	From    string // name of its set
	To      string // name and UID of the set that it gets
	ToUID   string
}

// handOver fills in what is done with machines and nodes of an in-place update. Machines are handed over before others are
// selected; both only where the sizes stand.
func (p *planner) handOver(d *Decision) {
	p.settle(d)
	if p.current == nil || !p.o.inPlace() {
		return
	}
	p.each(func(set *setPlan, m Member) {
		if set != p.current && m.Updated && !m.Handed {
			add(&d.Move, Move{m.target("it was updated in place"), set.Name, p.current.Name, p.current.UID})
		}
	})
	if len(d.Move) > 0 {
		return
	}
	p.each(func(set *setPlan, m Member) {
		if set != p.current && !m.Candidate && !m.Handed && m.Node != "" { // the mark would keep the label that goes first
			add(&d.Candidates, m.target("its set is old"))
		}
	})
	if p.o.Strategy == InPlaceAuto && p.quiet() {
		p.choose(d)
	}
}

// each visits the machines that are not being deleted, set by set from the oldest on.
func (p *planner) each(visit func(*setPlan, Member)) {
	for _, set := range p.sets {
		for _, m := range set.Machines {
			if !m.Deleting {
				visit(set, m)
			}
		}
	}
}

// settle ends the update at the nodes of machines that were handed over, or whose set is the current one, and of all when nothing is
// updated in place any more. Only then goes the label that protects a machine from its set, once the set counts it, or it may go: without
// the label, a node that still says that it was updated would be taken for one that was updated for the current template.
func (p *planner) settle(d *Decision) {
	p.each(func(set *setPlan, m Member) {
		current := set == p.current
		switch {
		case m.Marks && m.Updated && (m.Handed || current || !p.o.inPlace()):
			add(&d.Settle, m.target("it was updated, and serves again"))
		case m.Marks && !m.Updating && current:
			add(&d.Strip, m.target("its set is the current one: there is nothing to update"))
		case m.Handed && !m.Marks && p.accepts(set):
			add(&d.Accept, m.target("its set counts it now"))
		}
	})
}

// accepts reports whether a set counts the machines that were handed to it, or may lose them. A set counts them once its status
// says that it acts on a size which includes them: its cached size may be older than its cached machines. A former set may lose
// as many as the deployment can do without, and all of them where the strategy is Recreate.
func (p *planner) accepts(set *setPlan) bool {
	counts := min(set.Replicas, set.Seen)
	lost := set != p.current && (p.o.Strategy == Recreate || p.budget() >= 0) // which takes them for lost
	return set.live <= counts || lost || set == p.current && counts >= p.o.Replicas
}

// add puts an entry on a list that has room.
func add[T any](list *[]T, entry T) {
	if len(*list) < MaxBatch {
		*list = append(*list, entry)
	}
}

// choose selects the next nodes: those that are unhealthy first, for they cost nothing, then from the oldest set on, as many
// as may be unavailable at a time. Formulas: MCM's, but a machine under way is counted once.
func (p *planner) choose(d *Decision) {
	under := p.underWay()
	waiting := max(p.current.size-p.current.available, 0)
	places := min(p.target, p.o.Replicas) - p.current.size - under
	free := min(sum(p.sets, size)-p.needed-waiting-under, places)
	var sick, well []Member
	p.each(func(set *setPlan, m Member) {
		switch {
		case set == p.current || !m.Candidate || m.Updating || m.Updated || m.Failed || m.Node == "":
		case m.Available:
			well = append(well, m)
		default:
			sick = append(sick, m)
		}
	})
	pick := sick[:max(min(free, len(sick)), 0)]
	able := min(p.budget(), free-len(pick))
	pick = append(slices.Clone(pick), well[:max(min(able, len(well)), 0)]...)
	for _, m := range pick {
		add(&d.Select, m.target("its node is next"))
	}
}

// valueTrue of the annotation by which the cluster autoscaler leaves a node alone.
const valueTrue = "true"

// markNodes keeps new pods off nodes of old sets, also of those that joined late, and lets them onto nodes of the current set
// again, should it have been old. It follows from what the nodes say now; a mark on the set is not asked.
//
// It keeps the cluster autoscaler off all nodes while old and new ones are mixed, and takes off afterwards what is ours. A guard
// that somebody else set is neither ours nor in the way. That of a preserved machine stays.
func (p *planner) markNodes(d *Decision, rolls bool) {
	taint := rolls && p.current != nil && p.o.Strategy != Recreate
	guard := p.o.Guard && d.Rolling
	p.each(func(set *setPlan, m Member) {
		switch old := set != p.current; {
		case m.Node == "":
			return
		case m.Tainted == old: // as it shall be
		case m.Tainted:
			add(&d.Untaint, m.target("its set is the current one"))
		case taint:
			add(&d.Taint, m.target("its set is old"))
		}
		switch {
		case guard && rolls && m.Guard != valueTrue:
			add(&d.Guard, m.target("a rollout is under way"))
		case !guard && m.Guarded && !m.Preserved:
			add(&d.Unguard, m.target("no rollout is under way"))
		}
	})
}

// Priorities of machines. Source: MCM.
const (
	PriorityDefault = 3 // where nobody said
	PriorityChosen  = 1 // of machines that the cluster autoscaler takes away
)

// Mark makes a machine one that the cluster autoscaler chose, from a time on.
type Mark struct {
	Target
	At string // RFC 3339, as the autoscaler wrote it
}

// Trigger brings the deployment's annotation trigger-deletion-by-mcm up to date.
type Trigger struct {
	Drop []string // names to take off: of machines that are gone, going or failed
	At   string   // time of entries that have none, as in the old form
}

// Apply returns the annotation that follows from another one; empty: it goes. What cannot be read is dropped, and the old form becomes
// the new one. Applying it twice changes nothing.
func (t Trigger) Apply(annotation string) string {
	var kept []string
	for _, w := range scaleDownRequests(annotation, t.At) {
		if !slices.Contains(t.Drop, w.name) {
			kept = append(kept, w.name+"~"+w.at)
		}
	}
	return strings.Join(kept, ",")
}

// scaleDownRequest is an entry of that annotation.
type scaleDownRequest struct{ name, at string }

// scaleDownRequests reads the annotation: name~time,name~time, or name,name in the old form, where the time is that of the last change
// of the size. What cannot be read is dropped, as in MCM.
func scaleDownRequests(annotation, last string) []scaleDownRequest {
	var list []scaleDownRequest
	known := map[string]bool{}
	for entry := range strings.SplitSeq(annotation, ",") {
		name, at, found := strings.Cut(strings.TrimSpace(entry), "~")
		if !found {
			at = last
		}
		if _, err := time.Parse(time.RFC3339, at); err == nil && name != "" && !known[name] {
			known[name] = true
			list = append(list, scaleDownRequest{name, at})
		}
	}
	return list
}

// scaler marks what the autoscaler names, and takes a mark off that it does not name any more. Machines that are gone, going or
// failed are dropped from the list. Marking one twice changes nothing.
func (o Observed) scaler(d *Decision) {
	t := Trigger{At: cmp.Or(o.Scaled, o.Now.UTC().Format(time.RFC3339))}
	requests := scaleDownRequests(o.Trigger, t.At)
	named, serving := map[string]string{}, map[string]bool{}
	for _, w := range requests {
		named[w.name] = w.at
	}
	for _, s := range o.Sets {
		for _, m := range s.Machines {
			m.mark(d, named[m.Name])
			serving[m.Name] = serving[m.Name] || !m.Deleting && !m.Failed
		}
	}
	for _, w := range requests {
		if !serving[w.name] {
			t.Drop = append(t.Drop, w.name)
		}
	}
	if t.Apply(o.Trigger) != o.Trigger {
		d.Trigger = &t
	}
}

// mark makes a machine one that was chosen at a time, or one that was not where that is empty. The time of its first choice stays.
func (m Member) mark(d *Decision, at string) {
	chosen := m.Priority == PriorityChosen && m.MarkedAt != ""
	switch {
	case m.Deleting || m.Failed:
	case at != "" && !chosen:
		add(&d.Mark, Mark{m.target("the cluster autoscaler chose it"), cmp.Or(m.MarkedAt, at)})
	case at == "" && chosen:
		add(&d.Unmark, m.target("the cluster autoscaler does not name it any more"))
	}
}
