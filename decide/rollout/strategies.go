package rollout

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// resizeRolling enlarges the current set if the surge permits it, and shrinks old sets if enough machines are
// available. The sizes also follow changes of spec.replicas.
func (p *planner) resizeRolling() {
	if p.waitsForAnswer() {
		return
	}
	surge := p.surge
	if p.hasTransfers() {
		surge = 0 // an in-place update needs no surge except the machine that addSurgeMachine adds
	}
	why := p.growCurrentSet(surge)
	p.growNewestOldSet()
	p.shrinkOldSets()
	p.trimCurrentSet()
	p.addSurgeMachine()
	p.breakDeadlock()
	p.recordIdleReason(why)
}

// growCurrentSet enlarges the current set as far as the surge permits, and returns the reason why it cannot enlarge the
// set further, or an empty string if the set has all machines.
func (p *planner) growCurrentSet(surge int) string {
	current, goal := p.current, p.stepTarget
	if current.size > p.facts.Replicas {
		current.setSize(p.facts.Replicas, fmt.Sprintf("%d wanted in all", p.facts.Replicas))
	}
	if current.size >= goal {
		return ""
	}
	room, why := p.remainingPlaces(surge)
	current.raiseSize(min(room, goal-current.size), fmt.Sprintf("room for %s, %d wanted", machineCount(room), goal))
	return why
}

// growNewestOldSet enlarges the newest old set while the rollout step allows no more new machines. A waiting rollout
// therefore keeps the wanted number of machines.
func (p *planner) growNewestOldSet() {
	old := p.oldSets()
	missing := p.oldMachinesToKeep() - sumOverSets(old, sizeOfSet)
	if missing <= 0 || len(old) == 0 {
		return
	}
	last := newestSet(old)
	room, _ := p.remainingPlaces(p.surge)
	last.raiseSize(
		min(room, missing),
		fmt.Sprintf(
			"%d wanted in all, and this step has %s of the new template",
			p.facts.Replicas,
			machineCount(p.stepTarget),
		),
	)
}

// oldMachinesToKeep returns the number of old machines that must remain during the rollout step.
func (p *planner) oldMachinesToKeep() int {
	return max(p.facts.Replicas-max(p.stepTarget, p.current.size), 0)
}

// newestSet returns the youngest set that has machines. If no set has machines, newestSet returns the youngest set.
func newestSet(sets []*setPlan) *setPlan {
	for _, set := range slices.Backward(sets) {
		if set.size > 0 {
			return set
		}
	}
	return sets[len(sets)-1]
}

// shrinkOldSets reduces the sizes of old sets, from the oldest to the newest. Unavailable machines and machines that
// the autoscaler chose are removed first, and then as many other machines as the rollout can spare. New machines must
// become available before available old machines are removed.
func (p *planner) shrinkOldSets() {
	old := p.oldSets()
	waiting := max(p.current.size-p.current.availableMachines, 0)
	spare := sumOverSets(
		p.sets,
		sizeOfSet,
	) - p.minAvailable - waiting - sumOverSets(
		old,
		func(set *setPlan) int { return set.updatingMachines },
	)
	spare = min(spare, sumOverSets(old, sizeOfSet)-p.oldMachinesToKeep())
	if p.hasTransfers() {
		spare = min(spare, p.remainingTransfers())
	}
	old = list.Filter(old, func(set *setPlan) bool { return !set.deletesBeforeTransfer })
	for _, set := range old {
		spare -= p.lowerSize(set, min(spare, set.leavingMachines), "the autoscaler chose machines of it")
		broken := set.size - set.availableMachines - set.updatingMachines
		spare -= p.lowerSize(set, min(spare, broken), "it has machines that are not available")
	}
	why := fmt.Sprintf("%d available, %d needed", p.availableMachines(), p.minAvailable)
	for _, set := range old {
		if spare <= 0 {
			return
		}
		spare -= p.lowerSize(set, min(spare, p.removalBudget()), why)
	}
}

// trimCurrentSet removes unavailable new machines if there are too many machines in all, for example after
// spec.replicas was reduced.
func (p *planner) trimCurrentSet() {
	over := sumOverSets(p.sets, sizeOfSet) - p.facts.Replicas - p.surge
	idle := p.current.size - p.current.availableMachines
	p.lowerSize(p.current, min(over, idle), fmt.Sprintf("%d are allowed in all", p.facts.Replicas+p.surge))
}

// breakDeadlock reduces the size of an old set with an unavailable machine if no other size can change. In a deadlock,
// no machine is being created or deleted, all new machines are available, the surge permits no further machine, and an
// old set might delete an available machine. Source: Cluster API.
func (p *planner) breakDeadlock() {
	busy := func(set *setPlan) bool {
		return set.size != set.activeMachines || set.terminatingMachines > 0 || set.ActedOn != set.size
	}
	stuck := p.leavesSizesUnchanged() && p.current.availableMachines == p.current.activeMachines &&
		sumOverSets(p.oldSets(), sizeOfSet) > p.oldMachinesToKeep()
	if !stuck || slices.ContainsFunc(p.sets, busy) {
		return
	}
	for _, set := range p.oldSets() {
		if set.size > 0 && set.activeMachines > set.availableMachines+set.updatingMachines {
			set.size, set.isForced = set.size-1, true
			set.sizeReason = "no other size can change, and it has a machine that is not available"
			return
		}
	}
}

func (p *planner) availableMachines() int {
	return sumOverSets(p.sets, func(set *setPlan) int { return set.availableMachines })
}

// recordIdleReason records the reason why no size changes.
func (p *planner) recordIdleReason(why string) {
	if !p.leavesSizesUnchanged() {
		return
	}
	old := sumOverSets(p.oldSets(), sizeOfSet)
	updating := sumOverSets(p.sets, func(set *setPlan) int { return set.updatingMachines })
	switch joining := p.current.size - p.current.availableMachines; {
	case updating > 0 && p.hasTransfers():
		p.idleReason = fmt.Sprintf(
			"%s %s updated in place: %d available, %d needed",
			machineCount(updating),
			phrase.SingularOrPlural(updating, "is", "are"),
			p.availableMachines(),
			p.minAvailable,
		)
	case joining > 0 && p.current.size > 0:
		kind := cmp.Or(phrase.TextIf(old > 0, "new machine"), "machine")
		is := func(n int) string { return phrase.SingularOrPlural(n, "is", "are") }
		p.idleReason = fmt.Sprintf(
			"%s %s not available yet: %d %s available, %d %s needed",
			phrase.CountText(
				joining,
				kind,
			),
			is(joining),
			p.availableMachines(),
			is(p.availableMachines()),
			p.minAvailable,
			is(p.minAvailable),
		)
	case why != "":
		p.idleReason = why
	case old > p.oldMachinesToKeep():
		p.idleReason = fmt.Sprintf("%d available, %d needed", p.availableMachines(), p.minAvailable)
	}
}

// resizeRecreate removes all old machines and their instances before the first new machine is created. A machine that
// the workflow of an old set may still create counts as an existing machine. If a pinned set cannot create machines,
// the machines of the template are not removed.
func (p *planner) resizeRecreate() {
	if lacks := p.current.MissingObject(); p.pin != nil && lacks != "" {
		p.idleReason = fmt.Sprintf("%s does not exist: revision %d gets no machines", lacks, p.current.Revision)
		return
	}
	left := p.terminatingMachines
	for _, set := range p.oldSets() {
		set.setSize(0, "old machines are deleted first")
		left += max(set.activeMachines+set.terminatingMachines, set.Counted, set.Replicas, set.ActedOn)
	}
	if left == 0 {
		p.idleReason = p.growCurrentSet(0)
		return
	}
	p.idleReason = fmt.Sprintf("%s of old templates still there", machineCount(left))
}

// resizeOnDelete uses machines of the current set to replace machines that people deleted from old sets. A new template
// does not cause the deletion of a machine. If spec.replicas became smaller, unavailable new machines are removed
// first, then old machines.
func (p *planner) resizeOnDelete() {
	p.lowerOldSetsToActive()
	p.growCurrentSet(0)
	over := max(sumOverSets(p.sets, sizeOfSet)-p.facts.Replicas, 0)
	idle, why := min(
		over,
		max(p.current.size-p.current.availableMachines, 0),
	), fmt.Sprintf(
		"%d wanted in all",
		p.facts.Replicas,
	)
	p.current.setSize(p.current.size-idle, why)
	over -= idle // also if setSize did not change the size, because the old machines are not deleted
	for _, set := range p.oldSets() {
		by := min(over, set.size)
		set.setSize(set.size-by, why)
		over -= by
	}
	if old := sumOverSets(p.oldSets(), sizeOfSet); old > 0 {
		p.idleReason = fmt.Sprintf("%s of old templates stay until somebody deletes them", machineCount(old))
	}
}

// lowerOldSetsToActive lowers each old set's size to its number of machines, unless the set may still create a machine.
func (p *planner) lowerOldSetsToActive() {
	for _, set := range p.oldSets() {
		if set.NoScaleUp && set.activeMachines < set.size {
			set.setSize(set.activeMachines, fmt.Sprintf("it has %s left", machineCount(set.activeMachines)))
		}
	}
}

// followReplicas adapts the sizes to spec.replicas while the deployment is paused or held, or waits for its first set.
// A single set gets the whole change. If there are several sets, the current or youngest set grows, and all sets shrink
// in proportion to their sizes.
func (p *planner) followReplicas() {
	p.continueTransfers()
	nonEmpty := list.Filter(p.sets, func(set *setPlan) bool { return set.size != 0 })
	missing := p.missingMachines()
	switch {
	case len(p.sets) == 0:
	case p.movingMachines() > 0 && missing <= 0: // the sizes follow a smaller spec.replicas when all moves are complete
	case missing > 0 && len(nonEmpty) == 1:
		p.enlargeSet(nonEmpty[0], missing)
	case missing > 0:
		p.enlargeSet(cmp.Or(p.current, newestSet(p.sets)), missing)
	case len(nonEmpty) == 1:
		nonEmpty[0].setSize(p.facts.Replicas, fmt.Sprintf("%d wanted in all", p.facts.Replicas))
	default:
		p.shareSurplus(nonEmpty, -missing-p.surge)
	}
}

// enlargeSet adds at most `by` machines to a set, as far as the surge permits.
func (p *planner) enlargeSet(set *setPlan, by int) {
	room, _ := p.remainingPlaces(p.surge)
	set.raiseSize(min(room, by), fmt.Sprintf("%d wanted in all", p.facts.Replicas))
}

// shareSurplus removes a surplus from sets in proportion to their sizes. The largest set loses the machines that remain
// after rounding. Machines that the autoscaler or an operator chose are removed first, from any set. No set loses an
// available machine that is needed. As in MCM, the proportion is the size times the number of machines allowed now,
// divided by the number allowed when the set got its size.
func (p *planner) shareSurplus(sets []*setPlan, over int) {
	if over <= 0 {
		return
	}
	why := fmt.Sprintf("%d wanted in all, shared among the sets", p.facts.Replicas)
	take := func(set *setPlan, n int) { over -= p.lowerSize(set, min(n, over), why) }
	for _, set := range sets {
		take(set, set.chosenMachines)
	}
	slices.SortStableFunc(sets, func(x, y *setPlan) int { return cmp.Compare(y.size, x.size) })
	parts := make([]int, len(sets))
	total := sumOverSets(sets, sizeOfSet)
	for i, set := range sets {
		before := set.Max
		if before <= 0 || before < total-over {
			before = total
		}
		parts[i] = set.size - int(math.Round(float64(set.size)*float64(p.facts.Replicas+p.surge)/float64(before)))
	}
	for i, set := range sets {
		take(set, parts[i])
	}
	for _, set := range sets {
		take(set, over)
	}
}
