package rollout

import (
	"fmt"
	"slices"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// setPlan is the state of a set during a decision: its facts as numbers, and its new size.
type setPlan struct {
	MachineSet
	size                    int // the size decided so far
	activeMachineCount      int // number of machines that are not being deleted
	terminatingMachineCount int // number of machines that are being deleted
	availableMachineCount   int
	unhealthyMachineCount   int // unavailable machines that the set deletes before available machines
	updatingMachineCount    int
	chosenMachineCount      int // machines that the autoscaler or an operator chose for deletion
	// available machines that the set deletes even if its size does not require it, because the autoscaler chose them
	leavingMachineCount int
	sizeReason          string // reason of the last change of size
	isResizeForced      bool
	// a scale-down may be reverted at once, because no other size depends on the smaller size
	canRevertScaleDown    bool
	transfer              MachineTransfer
	deletesBeforeTransfer bool // the set deletes an earlier surplus before it transfers machines
}

// planner is the state of a deployment during a decision.
type planner struct {
	facts                   Facts
	surge                   int
	minAvailable            int        // number of machines that must be available
	sets                    []*setPlan // sets that are not being deleted, from the oldest to the newest
	templateSet             *setPlan   // the set of the deployment's template; nil: no such set
	currentSet              *setPlan   // the set that gets the machines: template or, while a pin is in force, an old set
	pin                     *Pin       // the pin that is in force; nil: none
	terminatingMachineCount int        // number of machines of sets that are being deleted
	stepMachineCount        int        // number of new machines that the current rollout step requires
	idleReason              string     // the reason why no size changes
	turn                    Turn       // the turn to record
	takesTurn               bool       // the deployment takes its turn now, and begins its rollout later
	turnWait                *TurnWait  // why the rollout does not begin; nil: it is the deployment's turn, or it needs none
}

// newPlanner returns the planner of these facts. The facts must be sorted.
func newPlanner(o Facts) *planner {
	surge, unavailable := SurgeAndUnavailable(o)
	p := &planner{facts: o, surge: surge, stepMachineCount: o.Replicas}
	preserved := 0
	for _, s := range o.Sets {
		set := newSetPlan(s)
		set.leavingMachineCount = list.CountWhere(s.Machines, func(m Member) bool {
			return m.Available && !m.Updating && !m.Deleting && o.isDeletedAtAnySize(m)
		})
		preserved += list.CountWhere(s.Machines, func(m Member) bool { return m.isPreservedFailed() && !m.Deleting })
		if s.Deleting {
			p.terminatingMachineCount += max(set.activeMachineCount+set.terminatingMachineCount, s.StatusMachineCount)
			continue
		}
		p.sets = append(p.sets, set)
		if s.Current && p.templateSet == nil {
			p.templateSet = set
		}
	}
	p.currentSet = p.templateSet
	if p.pin = p.activePin(); p.pin != nil {
		p.currentSet = p.setByName(p.pin.Set)
	}
	p.minAvailable = max(o.Replicas-unavailable-preserved, 0)
	for _, set := range p.sets {
		set.canRevertScaleDown = p.isOnlyScaling()
	}
	p.planTurn()
	return p
}

func newSetPlan(s MachineSet) *setPlan {
	active := list.Filter(s.Machines, func(m Member) bool { return !m.Deleting })
	of := func(holds func(Member) bool) int { return list.CountWhere(active, holds) }
	set := &setPlan{
		MachineSet:              s,
		size:                    s.Replicas,
		activeMachineCount:      len(active),
		terminatingMachineCount: len(s.Machines) - len(active),
		transfer:                s.machineTransfer(),
		updatingMachineCount:    of(func(m Member) bool { return m.Updating }),
		availableMachineCount:   of(func(m Member) bool { return m.Available && !m.Updating }),
		unhealthyMachineCount: of(
			func(m Member) bool { return m.Unhealthy && !m.isPreserved() && !m.Available && !m.Updating },
		),
		chosenMachineCount: of(func(m Member) bool { return m.DeleteFirst || m.isChosen() }),
	}
	exposed := slices.ContainsFunc(active, func(m Member) bool {
		// Before an unavailable machine, the set may delete an available machine that has a low priority or that an
		// operator chose.
		return m.Available && !m.Updating && (m.DeleteFirst || m.Priority < vocabulary.PriorityDefault)
	})
	if exposed || s.ObservedReplicas != s.Replicas || s.machineTransfer().To != "" {
		// The set's workflow may have chosen machines for deletion earlier, when other machines were unhealthy.
		set.unhealthyMachineCount = 0
	}
	return set
}

// oldSets returns the sets of other templates, from the oldest to the newest.
func (p *planner) oldSets() []*setPlan {
	return slices.DeleteFunc(slices.Clone(p.sets), func(set *setPlan) bool { return set == p.currentSet })
}

func sumOverSets(sets []*setPlan, of func(*setPlan) int) int {
	n := 0
	for _, set := range sets {
		n += of(set)
	}
	return n
}

func sizeOfSet(set *setPlan) int { return set.size }

// usedCapacity returns the number of a set's machines that count against Replicas plus surge. usedCapacity
// includes existing machines, machines that the set may create now and, unless IgnoresDeletingMachines is true,
// machines that are being deleted. usedCapacity uses the largest size that the set's workflow may act on, because
// the workflow may be creating machines now. A growing set may still delete the surplus of a smaller size and then
// create other machines.
func (p *planner) usedCapacity(set *setPlan) int {
	most := max(set.size, set.Replicas, set.ObservedReplicas)
	here := max(most, set.activeMachineCount)
	if p.facts.IgnoresDeletingMachines {
		return here
	}
	if set.ObservedReplicas <= set.Replicas {
		here = most + max(set.activeMachineCount-set.ObservedReplicas, 0)
	}
	return max(here+set.terminatingMachineCount, set.StatusMachineCount)
}

// isOnlyScaling reports whether the number of machines is the only difference from the spec. No machine has another
// template, and the last rollout is complete. If there is no rollout, the size follows spec.replicas at once, as in
// MCM, so that a scale-up does not wait for drains.
func (p *planner) isOnlyScaling() bool {
	return !p.hasOldMachines() &&
		p.facts.reportedCondition(vocabulary.ConditionProgressing).Reason == vocabulary.ReasonNewMachineSetAvailable
}

// freeCapacity returns how many machines may be added now. If no machine may be added, the returned text gives
// the reason.
func (p *planner) freeCapacity(surge int) (int, string) {
	if p.isOnlyScaling() {
		return p.facts.Replicas, ""
	}
	taken := sumOverSets(p.sets, p.usedCapacity)
	if !p.facts.IgnoresDeletingMachines {
		taken += p.terminatingMachineCount
	}
	if taken >= p.facts.Replicas+surge {
		here := min(taken, p.existingMachineCount())
		return 0, fmt.Sprintf(
			"no room: %d of at most %s exist or are being deleted", here, machineCountText(p.facts.Replicas+surge)) +
			phrase.TextIf(taken > here, "; %d more may exist or be created", taken-here)
	}
	return p.facts.Replicas + surge - taken, ""
}

// existingMachineCount returns the number of existing machines that count against Replicas plus surge. Machines that a
// set may still create are not included.
func (p *planner) existingMachineCount() int {
	active := sumOverSets(p.sets, func(set *setPlan) int { return set.activeMachineCount })
	if p.facts.IgnoresDeletingMachines {
		return active
	}
	return active + sumOverSets(
		p.sets,
		func(set *setPlan) int { return set.terminatingMachineCount },
	) + p.terminatingMachineCount
}

// guaranteedAvailableCount returns how many machines of a set are certain to stay available if the size becomes n.
// The set deletes unhealthy machines first, but may then delete available machines before other unavailable machines.
// The set's workflow may still act on a smaller size. Machines that the autoscaler chose are deleted at any size.
func (set *setPlan) guaranteedAvailableCount(n int) int {
	return set.availableMachineCount - min(
		max(set.safeSize()-min(n, set.smallestSize()), set.leavingMachineCount),
		set.availableMachineCount,
	)
}

// safeSize returns the smallest size at which the set deletes no available machine. The set deletes unhealthy machines
// first. A set that transfers machines takes available machines, which have nodes, before machines that it is still
// creating.
func (set *setPlan) safeSize() int {
	if set.transfer.To != "" {
		return max(set.activeMachineCount, set.size, set.Replicas, set.ObservedReplicas)
	}
	return set.activeMachineCount - set.unhealthyMachineCount
}

// smallestSize returns the smallest size that the set's workflow may act on.
func (set *setPlan) smallestSize() int { return min(set.size, set.Replicas, set.ObservedReplicas) }

// setSize sets a set's size, and reports whether the size changed. Until the set's workflow has acted on the last size,
// the size changes only in the same direction. The number of the set's machines is therefore between the old and the
// new size. Without a rollout, a scale-down may be reverted before the set has acted on it. A scale-up is never
// reverted, because the cache may not contain the machines that are being created. If a scale-up were reverted, a new
// template could add the same number of machines again.
func (set *setPlan) setSize(n int, why string) bool {
	if n == set.size || n > set.Replicas && set.ObservedReplicas > set.Replicas && !set.canRevertScaleDown ||
		n < set.Replicas && set.ObservedReplicas < set.Replicas {
		return false
	}
	set.size, set.sizeReason = n, why
	return true
}

// removalBudget returns how many available machines may be removed. If removalBudget is 0 or negative, no available
// machine may be removed.
func (p *planner) removalBudget() int {
	return sumOverSets(
		p.sets,
		func(set *setPlan) int { return set.guaranteedAvailableCount(set.size) },
	) - p.minAvailable
}

// lowerSize reduces a set's size by at most `by` machines, and returns the reduction. At most removalBudget of the
// removed machines are available.
func (p *planner) lowerSize(set *setPlan, by int, why string) int {
	n := max(set.size-max(by, 0), 0)
	if n == set.size { // return early, because removalBudget reads every set
		return 0
	}
	budget := max(p.removalBudget(), 0)
	if set.guaranteedAvailableCount(set.size)-set.guaranteedAvailableCount(n) > budget {
		n = max(min(set.smallestSize(), set.safeSize())-budget, n)
	}
	if by = set.size - n; by <= 0 || !set.setSize(n, why) {
		return 0
	}
	return by
}

// raiseSize adds `by` machines to the set's size.
func (set *setPlan) raiseSize(by int, why string) {
	if by > 0 {
		set.setSize(set.size+by, why)
	}
}

// leavesSizesUnchanged reports whether the decision changes no size.
func (p *planner) leavesSizesUnchanged() bool {
	return !slices.ContainsFunc(p.sets, func(set *setPlan) bool { return set.size != set.Replicas })
}
