package rollout

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// resizeForRollingUpdate enlarges the current set if the surge permits it, and shrinks old sets if enough machines are
// available. The sizes also follow changes of spec.replicas.
func (p *planner) resizeForRollingUpdate() {
	if p.waitsForExtensionAnswer() {
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
	current, goal := p.currentSet, p.stepMachineCount
	if current.size > p.facts.Replicas {
		current.setSize(p.facts.Replicas, fmt.Sprintf("%d wanted in all", p.facts.Replicas))
	}
	if current.size >= goal {
		return ""
	}
	room, why := p.freeCapacity(surge)
	current.raiseSize(min(room, goal-current.size), fmt.Sprintf("room for %s, %d wanted", machineCountText(room), goal))
	return why
}

// growNewestOldSet enlarges the newest old set while the rollout step allows no more new machines. A waiting rollout
// therefore keeps the wanted number of machines.
func (p *planner) growNewestOldSet() {
	old := p.oldSets()
	missing := p.minOldMachineCount() - sumOverSets(old, sizeOfSet)
	if missing <= 0 || len(old) == 0 {
		return
	}
	last := newestSetWithMachines(old)
	room, _ := p.freeCapacity(p.surge)
	last.raiseSize(
		min(room, missing),
		fmt.Sprintf(
			"%d wanted in all, and this step has %s of the new template",
			p.facts.Replicas,
			machineCountText(p.stepMachineCount),
		),
	)
}

// minOldMachineCount returns the number of old machines that must remain during the rollout step.
func (p *planner) minOldMachineCount() int {
	return max(p.facts.Replicas-max(p.stepMachineCount, p.currentSet.size), 0)
}

// newestSetWithMachines returns the youngest set that has machines. If no set has machines, newestSetWithMachines
// returns the youngest set.
func newestSetWithMachines(sets []*setPlan) *setPlan {
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
	waiting := max(p.currentSet.size-p.currentSet.availableMachineCount, 0)
	spare := sumOverSets(
		p.sets,
		sizeOfSet,
	) - p.minAvailable - waiting - sumOverSets(
		old,
		func(set *setPlan) int { return set.updatingMachineCount },
	)
	spare = min(spare, sumOverSets(old, sizeOfSet)-p.minOldMachineCount())
	if p.hasTransfers() {
		spare = min(spare, p.remainingTransferCount())
	}
	old = list.Filter(old, func(set *setPlan) bool { return !set.deletesBeforeTransfer })
	for _, set := range old {
		spare -= p.lowerSize(set, min(spare, set.leavingMachineCount), "the autoscaler chose machines of it")
		broken := set.size - set.availableMachineCount - set.updatingMachineCount
		spare -= p.lowerSize(set, min(spare, broken), "it has machines that are not available")
	}
	why := fmt.Sprintf("%d available, %d needed", p.availableMachineCount(), p.minAvailable)
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
	idle := p.currentSet.size - p.currentSet.availableMachineCount
	p.lowerSize(p.currentSet, min(over, idle), fmt.Sprintf("%d are allowed in all", p.facts.Replicas+p.surge))
}

// breakDeadlock reduces the size of an old set with an unavailable machine if no other size can change. In a deadlock,
// no machine is being created or deleted, all new machines are available, the surge permits no further machine, and an
// old set might delete an available machine. Source: Cluster API.
func (p *planner) breakDeadlock() {
	busy := func(set *setPlan) bool {
		return set.size != set.activeMachineCount || set.terminatingMachineCount > 0 || set.ObservedReplicas != set.size
	}
	stuck := p.leavesSizesUnchanged() && p.currentSet.availableMachineCount == p.currentSet.activeMachineCount &&
		sumOverSets(p.oldSets(), sizeOfSet) > p.minOldMachineCount()
	if !stuck || slices.ContainsFunc(p.sets, busy) {
		return
	}
	for _, set := range p.oldSets() {
		if set.size > 0 && set.activeMachineCount > set.availableMachineCount+set.updatingMachineCount {
			set.size, set.isResizeForced = set.size-1, true
			set.sizeReason = "no other size can change, and it has a machine that is not available"
			return
		}
	}
}

func (p *planner) availableMachineCount() int {
	return sumOverSets(p.sets, func(set *setPlan) int { return set.availableMachineCount })
}

// recordIdleReason records the reason why no size changes.
func (p *planner) recordIdleReason(why string) {
	if !p.leavesSizesUnchanged() {
		return
	}
	old := sumOverSets(p.oldSets(), sizeOfSet)
	updating := sumOverSets(p.sets, func(set *setPlan) int { return set.updatingMachineCount })
	switch joining := p.currentSet.size - p.currentSet.availableMachineCount; {
	case updating > 0 && p.hasTransfers():
		p.idleReason = fmt.Sprintf(
			"%s %s updated in place: %d available, %d needed",
			machineCountText(updating),
			phrase.SingularOrPlural(updating, "is", "are"),
			p.availableMachineCount(),
			p.minAvailable,
		)
	case joining > 0 && p.currentSet.size > 0:
		kind := cmp.Or(phrase.TextIf(old > 0, "new machine"), "machine")
		is := func(n int) string { return phrase.SingularOrPlural(n, "is", "are") }
		p.idleReason = fmt.Sprintf(
			"%s %s not available yet: %d %s available, %d %s needed",
			phrase.CountText(
				joining,
				kind,
			),
			is(joining),
			p.availableMachineCount(),
			is(p.availableMachineCount()),
			p.minAvailable,
			is(p.minAvailable),
		)
	case why != "":
		p.idleReason = why
	case old > p.minOldMachineCount():
		p.idleReason = fmt.Sprintf("%d available, %d needed", p.availableMachineCount(), p.minAvailable)
	}
}

// resizeForRecreate removes all old machines and their instances before the first new machine is created. A machine
// that the workflow of an old set may still create counts as an existing machine. If a pinned set cannot create
// machines, the machines of the template are not removed.
func (p *planner) resizeForRecreate() {
	if lacks := p.currentSet.MissingObject(); p.pin != nil && lacks != "" {
		p.idleReason = fmt.Sprintf("%s does not exist: revision %d gets no machines", lacks, p.currentSet.Revision)
		return
	}
	left := p.terminatingMachineCount
	for _, set := range p.oldSets() {
		set.setSize(0, "old machines are deleted first")
		left += max(
			set.activeMachineCount+set.terminatingMachineCount,
			set.StatusMachineCount,
			set.Replicas,
			set.ObservedReplicas,
		)
	}
	if left == 0 {
		p.idleReason = p.growCurrentSet(0)
		return
	}
	p.idleReason = fmt.Sprintf("%s of old templates still there", machineCountText(left))
}

// resizeForOnDelete uses machines of the current set to replace machines that people deleted from old sets. A new
// template does not cause the deletion of a machine. If spec.replicas became smaller, unavailable new machines are
// removed first, then old machines.
func (p *planner) resizeForOnDelete() {
	p.lowerOldSetSizesToMachineCount()
	p.growCurrentSet(0)
	over := max(sumOverSets(p.sets, sizeOfSet)-p.facts.Replicas, 0)
	idle, why := min(
		over,
		max(p.currentSet.size-p.currentSet.availableMachineCount, 0),
	), fmt.Sprintf(
		"%d wanted in all",
		p.facts.Replicas,
	)
	p.currentSet.setSize(p.currentSet.size-idle, why)
	over -= idle // also if setSize did not change the size, because the old machines are not deleted
	for _, set := range p.oldSets() {
		by := min(over, set.size)
		set.setSize(set.size-by, why)
		over -= by
	}
	if old := sumOverSets(p.oldSets(), sizeOfSet); old > 0 {
		p.idleReason = fmt.Sprintf("%s of old templates stay until somebody deletes them", machineCountText(old))
	}
}

// lowerOldSetSizesToMachineCount lowers each old set's size to its number of machines, unless the set may still create
// a machine.
func (p *planner) lowerOldSetSizesToMachineCount() {
	for _, set := range p.oldSets() {
		if set.ScaleUpDisabled && set.activeMachineCount < set.size {
			set.setSize(set.activeMachineCount, fmt.Sprintf("it has %s left", machineCountText(set.activeMachineCount)))
		}
	}
}

// followReplicas adapts the sizes to spec.replicas while the deployment is paused or held, or waits for its first set.
// A single set gets the whole change. If there are several sets, the current or youngest set grows, and all sets shrink
// in proportion to their sizes.
func (p *planner) followReplicas() {
	p.continueTransfers()
	nonEmpty := list.Filter(p.sets, func(set *setPlan) bool { return set.size != 0 })
	missing := p.missingMachineCount()
	switch {
	case len(p.sets) == 0:
	case p.movingMachineCount() > 0 && missing <= 0: // the sizes follow a smaller spec.replicas when all moves are complete
	case missing > 0 && len(nonEmpty) == 1:
		p.enlargeSet(nonEmpty[0], missing)
	case missing > 0:
		p.enlargeSet(cmp.Or(p.currentSet, newestSetWithMachines(p.sets)), missing)
	case len(nonEmpty) == 1:
		nonEmpty[0].setSize(p.facts.Replicas, fmt.Sprintf("%d wanted in all", p.facts.Replicas))
	default:
		p.removeSurplusProportionally(nonEmpty, -missing-p.surge)
	}
}

// enlargeSet adds at most `by` machines to a set, as far as the surge permits.
func (p *planner) enlargeSet(set *setPlan, by int) {
	room, _ := p.freeCapacity(p.surge)
	set.raiseSize(min(room, by), fmt.Sprintf("%d wanted in all", p.facts.Replicas))
}

// removeSurplusProportionally removes a surplus from sets in proportion to their sizes. The largest set loses the
// machines that remain after rounding. Machines that the autoscaler or an operator chose are removed first, from any
// set. No set loses an available machine that is needed. As in MCM, the proportion is the size times the number of
// machines allowed now, divided by the number allowed when the set got its size.
func (p *planner) removeSurplusProportionally(sets []*setPlan, over int) {
	if over <= 0 {
		return
	}
	why := fmt.Sprintf("%d wanted in all, shared among the sets", p.facts.Replicas)
	take := func(set *setPlan, n int) { over -= p.lowerSize(set, min(n, over), why) }
	for _, set := range sets {
		take(set, set.chosenMachineCount)
	}
	slices.SortStableFunc(sets, func(x, y *setPlan) int { return cmp.Compare(y.size, x.size) })
	parts := make([]int, len(sets))
	total := sumOverSets(sets, sizeOfSet)
	for i, set := range sets {
		before := set.MaxReplicas
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
