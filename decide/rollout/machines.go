package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// updateInPlace sizes the sets of an in-place update: the sizes follow the machines that were handed over. It runs with
// each decision, so that a changed number of machines is followed during the update.
func (p *planner) updateInPlace() {
	current := p.current
	p.loseMachines()
	p.grow(p.surge)
	// whatever the rollout step allows: old sets no longer create machines
	p.enlarge(current, p.o.Replicas-sum(p.sets, size))
	if current.size >= p.o.Replicas && current.available >= min(p.needed, current.size) {
		for _, set := range p.old() { // the rest was never updated: surge machines took its place
			p.lower(set, set.size, "the new set has all machines that are wanted")
		}
	}
	p.reduce()
	if old := sum(p.old(), size); old > 0 && p.quiet() {
		n := p.underWay()
		p.why = cmp.Or(
			phrase.If(n > 0, "%s being updated in place", machines(n)),
			phrase.If(p.o.Strategy == InPlaceManual, "a person has to select the next nodes"),
			fmt.Sprintf("%d available, %d needed", p.available(), p.needed),
		)
	}
}

// reduce lowers old sets when fewer machines are wanted. It keeps machines that are being updated, since a set might
// delete any of them.
func (p *planner) reduce() {
	over := sum(p.sets, size) - p.o.Replicas - p.surge
	for _, set := range p.old() {
		over -= p.lower(set, min(over, set.size-set.updating), fmt.Sprintf("%d are allowed in all", p.o.Replicas+p.surge))
	}
	p.trim()
}

// underWay returns how many machines of old sets are being updated in place.
func (p *planner) underWay() int { return sum(p.old(), func(set *setPlan) int { return set.updating }) }

// Move hands over a machine that was updated in place to the current set.
type Move struct {
	Machine Target
	From    string // name of its set
	To      string // name of its new set
	ToUID   string
}

// handOver decides the changes to machines and nodes of an in-place update. Machines are handed over before the next
// ones are selected. Both happen only while no size changes.
func (p *planner) handOver(d *Decision) {
	p.finishInPlace(d)
	if p.current == nil || !p.o.inPlace() {
		return
	}
	p.each(func(set *setPlan, m Member) {
		if set != p.current && m.Updated && !m.HandedOver {
			add(&d.Move, Move{m.target("it was updated in place"), set.Name, p.current.Name, p.current.UID})
		}
	})
	if len(d.Move) > 0 {
		return
	}
	p.each(func(set *setPlan, m Member) {
		if set != p.current && !m.Candidate && !m.HandedOver && m.Node != "" { // HandedOver: update-result goes first
			add(&d.Candidates, m.target("its set is old"))
		}
	})
	if p.o.Strategy == InPlaceAuto && p.quiet() {
		p.choose(d)
	}
}

// each calls visit for each machine that is not being deleted, from the oldest set on.
func (p *planner) each(visit func(*setPlan, Member)) {
	for _, set := range p.sets {
		for _, m := range set.Machines {
			if !m.Deleting {
				visit(set, m)
			}
		}
	}
}

// finishInPlace ends the update at nodes of machines that were handed over or belong to the current set, and at all
// nodes once the strategy is no longer in-place. The label update-result protects a machine from its new set. It is
// removed last, once the set counts the machine or the machine may be lost: without that label, a node that still
// reports its update would seem updated for the current template.
func (p *planner) finishInPlace(d *Decision) {
	p.each(func(set *setPlan, m Member) {
		current := set == p.current
		switch {
		case m.UpdateLabels && m.Updated && (m.HandedOver || current || !p.o.inPlace()):
			add(&d.Settle, m.target("it was updated, and serves again"))
		case m.UpdateLabels && !m.Updating && current:
			add(&d.Strip, m.target("its set is the current one: there is nothing to update"))
		case m.HandedOver && !m.UpdateLabels && p.unprotects(set):
			add(&d.Accept, m.target("its set counts it now"))
		}
	})
}

// unprotects reports whether a set counts the machines that were handed over to it, or may lose them. A set counts them
// once its status shows that it acts on a size that includes them, because its cached size may be older than its cached
// machines. A former set may lose as many as the deployment can spare, and all of them with Recreate.
func (p *planner) unprotects(set *setPlan) bool {
	counts := min(set.Replicas, set.Seen)
	lost := set != p.current && (p.o.Strategy == Recreate || p.budget() >= 0) // budget assumes that they are lost
	return set.active <= counts || lost || set == p.current && counts >= p.o.Replicas
}

// add appends an entry to a list that has fewer than MaxBatch.
func add[T any](list *[]T, entry T) {
	if len(*list) < MaxBatch {
		*list = append(*list, entry)
	}
}

// choose selects the next nodes to update: unhealthy ones first, because they cost no availability, then from the
// oldest set on, as many as may be unavailable. Source of the formulas: MCM, but a machine being updated is counted
// once.
func (p *planner) choose(d *Decision) {
	under := p.underWay()
	waiting := max(p.current.size-p.current.available, 0)
	places := min(p.target, p.o.Replicas) - p.current.size - under
	free := min(sum(p.sets, size)-p.needed-waiting-under, places)
	var unhealthy, healthy []Member
	p.each(func(set *setPlan, m Member) {
		switch {
		case set == p.current || !m.Candidate || m.Updating || m.Updated || m.Failed || m.Node == "":
		case m.Available:
			healthy = append(healthy, m)
		default:
			unhealthy = append(unhealthy, m)
		}
	})
	pick := unhealthy[:max(min(free, len(unhealthy)), 0)]
	able := min(p.budget(), free-len(pick))
	pick = append(slices.Clone(pick), healthy[:max(min(able, len(healthy)), 0)]...)
	for _, m := range pick {
		add(&d.Select, m.target("its node is next"))
	}
}

// markNodes keeps new pods off nodes of old sets, also nodes that joined late, and allows pods again on nodes of a set
// that is now the current one. It goes by the present state of each node.
//
// It keeps the cluster autoscaler off all nodes while old and new ones are mixed, and removes our annotations
// afterwards. It respects an annotation that somebody else set. The annotation of a preserved machine stays.
func (p *planner) markNodes(d *Decision, rolls bool) {
	taint := rolls && p.current != nil && p.o.Strategy != Recreate
	guard := p.o.Guard && d.Rolling
	p.each(func(set *setPlan, m Member) {
		switch old := set != p.current; {
		case m.Node == "":
			return
		case m.Tainted == old: // as wanted
		case m.Tainted:
			add(&d.Untaint, m.target("its set is the current one"))
		case taint:
			add(&d.Taint, m.target("its set is old"))
		}
		switch {
		case guard && rolls && m.Guard != vocabulary.ValueLowerTrue:
			add(&d.Guard, m.target("a rollout is under way"))
		case !guard && m.Guarded && !m.Preserved:
			add(&d.Unguard, m.target("no rollout is under way"))
		}
	})
}

// Mark records that the cluster autoscaler chose a machine, and when.
type Mark struct {
	Target
	At string // RFC 3339, as the autoscaler wrote it
}

// Trigger updates the deployment's annotation trigger-deletion-by-mcm.
type Trigger struct {
	Drop []string // names to remove: of machines that are gone, being deleted or Failed
	At   string   // time for entries without one, as in the old form
}

// Apply returns the new value of the annotation; empty: remove it. It drops entries that cannot be read, and converts
// the old form to the new one. It is safe to apply twice.
func (t Trigger) Apply(annotation string) string {
	return t.keep(scaleDownRequests(annotation, t.At))
}

// keep returns the annotation with these entries, without those to drop.
func (t Trigger) keep(requests []scaleDownRequest) string {
	drop := list.Set(t.Drop, list.Itself)
	kept := list.Where(requests, func(r scaleDownRequest) bool { return !drop[r.name] })
	return strings.Join(list.Map(kept, func(r scaleDownRequest) string { return r.name + "~" + r.at }), ",")
}

// scaleDownRequest is an entry of that annotation.
type scaleDownRequest struct{ name, at string }

// scaleDownRequests parses the annotation: name~time,name~time. In the old form, name,name, all entries have the time
// of the last change of the size. Entries that cannot be read are dropped, as in MCM.
func scaleDownRequests(annotation, last string) []scaleDownRequest {
	var requests []scaleDownRequest
	known := make(map[string]bool, strings.Count(annotation, ",")+1)
	for entry := range strings.SplitSeq(annotation, ",") {
		name, at, found := strings.Cut(strings.TrimSpace(entry), "~")
		if !found {
			at = last
		}
		if _, err := time.Parse(time.RFC3339, at); err == nil && name != "" && !known[name] {
			known[name] = true
			requests = append(requests, scaleDownRequest{name, at})
		}
	}
	return requests
}

// scaler marks the machines that the autoscaler names, unmarks those that it no longer names, and drops from the
// annotation machines that are gone, being deleted or Failed. It is safe to repeat.
func (o Observed) scaler(d *Decision) {
	t := Trigger{At: cmp.Or(o.Scaled, o.Now.UTC().Format(time.RFC3339))}
	requests := scaleDownRequests(o.Trigger, t.At)
	named, serving := make(map[string]string, len(requests)), map[string]bool{}
	for _, w := range requests {
		named[w.name] = w.at
	}
	for _, s := range o.Sets {
		for _, m := range s.Machines {
			m.mark(d, named[m.Name])
			serving[m.Name] = serving[m.Name] || !m.Deleting && !m.Failed
		}
	}
	over := list.Where(requests, func(r scaleDownRequest) bool { return !serving[r.name] })
	t.Drop = list.Map(over, func(r scaleDownRequest) string { return r.name })
	if t.keep(requests) != o.Trigger {
		d.Trigger = &t
	}
}

// mark marks a machine as chosen at this time, or unmarks it if the time is empty. The time of its first choice stays.
func (m Member) mark(d *Decision, at string) {
	chosen := m.Priority == vocabulary.PriorityChosen && m.MarkedAt != ""
	switch {
	case m.Deleting || m.Failed:
	case at != "" && !chosen:
		add(&d.Mark, Mark{m.target("the cluster autoscaler chose it"), cmp.Or(m.MarkedAt, at)})
	case at == "" && chosen:
		add(&d.Unmark, m.target("the cluster autoscaler does not name it any more"))
	}
}
