package rollout

import (
	"cmp"
	"fmt"
	"slices"

	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// MCMMember is what only the machines of MCM's kinds have. Only the files mcm*.go read it.
type MCMMember struct {
	Node      string // name of its node; empty: not known
	Troubled  bool   // status.lastOperation failed
	Preserved bool
	MarkedAt  string // annotation marked-for-deletion-time; empty: none

	Tainted      bool   // its node has the taint prefer-no-schedule
	Guard        string // value of its node's annotation scale-down-disabled; empty: none
	Guarded      bool   // its node has our marker: we set the Guard
	Updated      bool   // the in-place update of its node succeeded, and the machine has left phase InPlaceUpdating
	HandedOver   bool   // it was handed over to this set after its update, and still has the label update-result
	UpdateLabels bool   // its node has labels of an in-place update
	Candidate    bool   // its node has the label candidate-for-update
}

// MCMSet is what only the sets of MCM's kinds have. Only the files mcm*.go read it.
type MCMSet struct {
	Foreign bool // the deployment's selector does not match its labels
	Frozen  bool // label freeze
}

// MCMDeployment is what only the deployments of MCM's kinds have. Only the files mcm*.go read it.
type MCMDeployment struct {
	Frozen   bool // label freeze
	Unfreeze bool // annotation unfreeze: the freeze of the deployment and of its sets ends
	Thaws    bool // the freeze of the deployment ends once none of its sets is frozen

	Guard     bool   // keep the cluster autoscaler off nodes during a rollout
	Trigger   string // annotation trigger-deletion-by-mcm
	Scaled    string // annotation last-deployment-replica-change-by-scaler-time
	Due       int    // number of machines that wait for a grant
	Replacing int    // number of grants whose replacements are not complete
}

// Thawed returns the facts as they are once the freeze of the deployment has ended, and, if the annotation unfreeze
// ends it, that of its sets.
func (o Observed) Thawed() Observed {
	o.Sets = slices.Clone(o.Sets)
	for i := range o.Sets {
		o.Sets[i].MCM.Frozen = o.Sets[i].MCM.Frozen && !o.MCM.Unfreeze
	}
	o.MCM.Frozen, o.MCM.Unfreeze, o.MCM.Thaws = false, false, false
	return o
}

// thaws reports whether the freeze is over, so that the label freeze and the annotation unfreeze have to be removed.
func (o Observed) thaws() bool {
	return o.MCM.Unfreeze ||
		o.MCM.Thaws && o.MCM.Frozen && !slices.ContainsFunc(o.Sets, func(s Set) bool { return s.MCM.Frozen })
}

// isFrozen reports the label freeze of the deployment, or else of one of its sets.
func (p *planner) isFrozen() Condition {
	set := cmp.Or(list.Find(p.sets, func(set *setPlan) bool { return set.MCM.Frozen }), &setPlan{})
	message := fmt.Sprintf(
		"No machine is created while the label freeze%s is True",
		phrase.If(!p.o.MCM.Frozen, " of set %s", set.Name),
	)
	return list.When(p.o.MCM.Frozen || set.MCM.Frozen, Condition{
		Type:    vocabulary.ConditionFrozen,
		Status:  "True",
		Reason:  vocabulary.ReasonMachineDeploymentStateSync,
		Message: message,
	})
}

// replacements returns the pending replacements of broken machines.
func (o Observed) replacements() attention.Decision {
	waiting, running := o.MCM.Due, o.MCM.Replacing
	const says = "replacements: %d in progress, %d waiting"
	return attention.If(waiting+running > 0, attention.Replace, says, running, waiting)
}

func (s Set) foreign() bool { return s.MCM.Foreign }

// handedOver returns how many machines were handed over to the set after their in-place update.
func (s Set) handedOver() int {
	return list.Count(s.Machines, func(m Member) bool { return m.MCM.HandedOver && !m.Deleting })
}

func (m Member) preserved() bool { return m.MCM.Preserved }

// keptFailed reports whether a machine failed and is preserved.
func (m Member) keptFailed() bool { return m.Failed && m.MCM.Preserved }

// troubled reports whether the last operation of a machine failed. A preserved Failed machine does not count.
func (m Member) troubled() bool { return m.MCM.Troubled && !m.keptFailed() }

// target returns the machine and its node as they were read, for a decision.
func (m Member) target(why string) Target {
	return Target{Name: m.Name, UID: m.UID, Version: m.Version, Node: m.MCM.Node, Why: why}
}

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
		if set != p.current && m.MCM.Updated && !m.MCM.HandedOver {
			add(&d.Move, Move{m.target("it was updated in place"), set.Name, p.current.Name, p.current.UID})
		}
	})
	if len(d.Move) > 0 {
		return
	}
	p.each(func(set *setPlan, m Member) {
		if set != p.current && !m.MCM.Candidate && !m.MCM.HandedOver &&
			m.MCM.Node != "" { // HandedOver: update-result goes first
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
		case m.MCM.UpdateLabels && m.MCM.Updated && (m.MCM.HandedOver || current || !p.o.inPlace()):
			add(&d.FinishUpdate, m.target("it was updated, and serves again"))
		case m.MCM.UpdateLabels && !m.Updating && current:
			add(&d.ClearUpdateLabels, m.target("its set is the current one: there is nothing to update"))
		case m.MCM.HandedOver && !m.MCM.UpdateLabels && p.unprotects(set):
			add(&d.ClearUpdateResult, m.target("its set counts it now"))
		}
	})
}

// unprotects reports whether a set counts the machines that were handed over to it, or may lose them. A set counts them
// once its status shows that it acts on a size that includes them, because its cached size may be older than its cached
// machines. A former set may lose as many as the deployment can spare, and all of them with Recreate.
func (p *planner) unprotects(set *setPlan) bool {
	counts := min(set.Replicas, set.ActedOn)
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
		case set == p.current || !m.MCM.Candidate || m.Updating || m.MCM.Updated || m.Failed || m.MCM.Node == "":
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
	guard := p.o.MCM.Guard && d.Rolling
	p.each(func(set *setPlan, m Member) {
		switch old := set != p.current; {
		case m.MCM.Node == "":
			return
		case m.MCM.Tainted == old: // as wanted
		case m.MCM.Tainted:
			add(&d.Untaint, m.target("its set is the current one"))
		case taint:
			add(&d.Taint, m.target("its set is old"))
		}
		switch {
		case guard && rolls && m.MCM.Guard != vocabulary.ValueLowerTrue:
			add(&d.ProtectFromAutoscaler, m.target("a rollout is under way"))
		case !guard && m.MCM.Guarded && !m.MCM.Preserved:
			add(&d.UnprotectFromAutoscaler, m.target("no rollout is under way"))
		}
	})
}
