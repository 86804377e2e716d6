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

// MCMMember holds the facts that only machines of MCM's kinds have. Only the files mcm*.go read MCMMember.
type MCMMember struct {
	NodeName            string // name of the machine's node; empty: unknown
	LastOperationFailed bool   // status.lastOperation failed
	Preserved           bool
	MarkedAt            string // annotation marked-for-deletion-time; empty: no annotation

	NodeTainted                   bool   // the machine's node has the taint prefer-no-schedule
	ScaleDownDisabledValue        string // value of the node's annotation scale-down-disabled; empty: no annotation
	ScaleDownDisabledByMillwright bool   // the node has Millwright's marker, so Millwright wrote the value in Guard
	Updated                       bool   // the node's in-place update succeeded, and the machine has left phase InPlaceUpdating
	HandedOver                    bool   // the machine was moved to this set after its update, and still has the label update-result
	HasUpdateLabels               bool   // the machine's node has labels of an in-place update
	IsUpdateCandidate             bool   // the machine's node has the label candidate-for-update
}

// MCMSet holds the facts that only sets of MCM's kinds have. Only the files mcm*.go read MCMSet.
type MCMSet struct {
	Unselected bool // the deployment's selector does not match the set's labels
	Frozen     bool // the set has the label freeze
	// MissingClass names the missing class of an old set, such as "MachineClass shop/small"; empty: the class exists, or
	// is unknown.
	MissingClass string
}

// MCMDeployment holds the facts that only deployments of MCM's kinds have. Only the files mcm*.go read MCMDeployment.
type MCMDeployment struct {
	Frozen             bool // the deployment has the label freeze
	UnfreezeRequested  bool // the annotation unfreeze ends the freeze of the deployment and of its sets
	FreezeEndsWithSets bool // the deployment's freeze ends as soon as none of its sets is frozen

	ProtectsNodesFromAutoscaler bool   // a rollout stops the cluster autoscaler from removing the deployment's nodes
	TriggerAnnotation           string // value of the annotation trigger-deletion-by-mcm
	AutoscaledAt                string // annotation last-deployment-replica-change-by-scaler-time
	DueMachineCount             int    // number of machines that wait for a replacement grant
	PendingGrantCount           int    // number of grants whose replacement is not complete
}

// WithEndedFreeze returns the facts after the deployment's freeze has ended. If the annotation unfreeze ends the
// freeze, the sets are not frozen either.
func (o Facts) WithEndedFreeze() Facts {
	o.Sets = slices.Clone(o.Sets)
	for i := range o.Sets {
		o.Sets[i].MCM.Frozen = o.Sets[i].MCM.Frozen && !o.MCM.UnfreezeRequested
	}
	o.MCM.Frozen, o.MCM.UnfreezeRequested, o.MCM.FreezeEndsWithSets = false, false, false
	return o
}

// hasFreezeEnded reports whether the freeze has ended, so that the label freeze and the annotation unfreeze must be
// removed.
func (o Facts) hasFreezeEnded() bool {
	return o.MCM.UnfreezeRequested ||
		o.MCM.FreezeEndsWithSets && o.MCM.Frozen &&
			!slices.ContainsFunc(o.Sets, func(s MachineSet) bool { return s.MCM.Frozen })
}

// frozenCondition returns the condition Frozen. The label freeze of the deployment is checked first, and then the
// labels of its sets.
func (p *planner) frozenCondition() Condition {
	set := cmp.Or(list.FindFirst(p.sets, func(set *setPlan) bool { return set.MCM.Frozen }), &setPlan{})
	message := fmt.Sprintf(
		"No machine is created while the label freeze%s is True",
		phrase.TextIf(!p.facts.MCM.Frozen, " of set %s", set.Name),
	)
	return list.ValueIf(p.facts.MCM.Frozen || set.MCM.Frozen, Condition{
		Type:    vocabulary.ConditionFrozen,
		Status:  "True",
		Reason:  vocabulary.ReasonMachineDeploymentStateSync,
		Message: message,
	})
}

// pendingReplacementWork returns the replacements of broken machines that are in progress or waiting, as pending work.
func (o Facts) pendingReplacementWork() attention.Decision {
	waiting, running := o.MCM.DueMachineCount, o.MCM.PendingGrantCount
	const says = "replacements: %d in progress, %d waiting"
	return attention.DecisionIf(waiting+running > 0, attention.NeedReplacement, says, running, waiting)
}

// isFrozen reports whether the label freeze stops the creation of machines.
func (o Facts) isFrozen() bool { return o.MCM.Frozen }

// missingClass names the missing class of an old set; empty: none is missing.
func (s MachineSet) missingClass() string { return s.MCM.MissingClass }

func (s MachineSet) isUnselected() bool { return s.MCM.Unselected }

// handedOverMachineCount returns how many machines were moved to the set after their in-place update.
func (s MachineSet) handedOverMachineCount() int {
	return list.CountWhere(s.Machines, func(m Member) bool { return m.MCM.HandedOver && !m.Deleting })
}

func (m Member) isPreserved() bool { return m.MCM.Preserved }

// isPreservedFailed reports whether a machine is both Failed and preserved.
func (m Member) isPreservedFailed() bool { return m.Failed && m.MCM.Preserved }

// lastOperationFailed reports whether the machine's last operation failed. For a preserved Failed machine,
// lastOperationFailed returns false.
func (m Member) lastOperationFailed() bool {
	return m.MCM.LastOperationFailed && !m.isPreservedFailed()
}

// asTarget returns the machine and its node as an ObjectTarget of a decision.
func (m Member) asTarget(why string) ObjectTarget {
	return ObjectTarget{Name: m.Name, UID: m.UID, Version: m.Version, Node: m.MCM.NodeName, Why: why}
}

// resizeForInPlaceUpdate sets the sizes of the sets of an in-place update from the number of moved machines.
// resizeForInPlaceUpdate runs with each decision, so that the sizes also follow changes of spec.replicas.
func (p *planner) resizeForInPlaceUpdate() {
	current := p.currentSet
	p.lowerOldSetSizesToMachineCount()
	p.growCurrentSet(p.surge)
	// The rollout step does not limit the growth of the current set, because old sets create no machines any more.
	p.enlargeSet(current, p.facts.Replicas-sumOverSets(p.sets, sizeOfSet))
	if current.size >= p.facts.Replicas && current.availableMachineCount >= min(p.minAvailable, current.size) {
		for _, set := range p.oldSets() { // surge machines replace the machines that are left in old sets
			p.lowerSize(set, set.size, "the new set has all machines that are wanted")
		}
	}
	p.removeSurplusFromOldSets()
	if old := sumOverSets(p.oldSets(), sizeOfSet); old > 0 && p.leavesSizesUnchanged() {
		n := p.updatingOldMachineCount()
		p.idleReason = cmp.Or(
			phrase.TextIf(n > 0, "%s being updated in place", machineCountText(n)),
			phrase.TextIf(p.facts.Strategy == InPlaceManual, "a person has to select the next nodes"),
			fmt.Sprintf("%d available, %d needed", p.availableMachineCount(), p.minAvailable),
		)
	}
}

// removeSurplusFromOldSets reduces the sizes of old sets when spec.replicas became smaller. The size of an old set
// still includes machines that are being updated, because otherwise the set might delete one of them.
func (p *planner) removeSurplusFromOldSets() {
	over := sumOverSets(p.sets, sizeOfSet) - p.facts.Replicas - p.surge
	for _, set := range p.oldSets() {
		over -= p.lowerSize(
			set,
			min(over, set.size-set.updatingMachineCount),
			fmt.Sprintf("%d are allowed in all", p.facts.Replicas+p.surge),
		)
	}
	p.trimCurrentSet()
}

// updatingOldMachineCount returns how many machines of old sets are being updated in place.
func (p *planner) updatingOldMachineCount() int {
	return sumOverSets(p.oldSets(), func(set *setPlan) int { return set.updatingMachineCount })
}

// MachineMove moves a machine that was updated in place to the current set.
type MachineMove struct {
	Machine ObjectTarget
	From    string // name of the machine's old set
	To      string // name of the machine's new set
	ToUID   string
}

// decideInPlaceChanges decides the changes of machines and nodes for an in-place update. Updated machines move to the
// current set before more nodes are selected. Nodes are selected only if no size changes.
func (p *planner) decideInPlaceChanges(d *Decision) {
	p.finishInPlaceUpdates(d)
	if p.currentSet == nil || !p.facts.isInPlace() {
		return
	}
	p.visitMachines(func(set *setPlan, m Member) {
		if set != p.currentSet && m.MCM.Updated && !m.MCM.HandedOver {
			appendBounded(
				&d.Move,
				MachineMove{m.asTarget("it was updated in place"), set.Name, p.currentSet.Name, p.currentSet.UID},
			)
		}
	})
	if len(d.Move) > 0 {
		return
	}
	p.visitMachines(func(set *setPlan, m Member) {
		// If HandedOver is true, the label update-result must be removed first.
		if set != p.currentSet && !m.MCM.IsUpdateCandidate && !m.MCM.HandedOver && m.MCM.NodeName != "" {
			appendBounded(&d.Candidates, m.asTarget("its set is old"))
		}
	})
	if p.facts.Strategy == InPlaceAuto && p.leavesSizesUnchanged() {
		p.selectNodesToUpdate(d)
	}
}

// visitMachines calls visit for each machine that is not being deleted, from the oldest set to the newest.
func (p *planner) visitMachines(visit func(*setPlan, Member)) {
	for _, set := range p.sets {
		for _, m := range set.Machines {
			if !m.Deleting {
				visit(set, m)
			}
		}
	}
}

// finishInPlaceUpdates ends the update of a node if its machine was moved or belongs to the current set. If the
// strategy is no longer in-place, finishInPlaceUpdates ends the updates of all nodes. The label update-result protects
// a machine from deletion by its new set. The label update-result is removed last, when the set's size includes the
// machine or the set may delete it. The label update-result is needed, because a node that still reports its update
// would otherwise seem to have the current template.
func (p *planner) finishInPlaceUpdates(d *Decision) {
	p.visitMachines(func(set *setPlan, m Member) {
		current := set == p.currentSet
		switch {
		case m.MCM.HasUpdateLabels && m.MCM.Updated && (m.MCM.HandedOver || current || !p.facts.isInPlace()):
			appendBounded(&d.FinishUpdate, m.asTarget("it was updated, and serves again"))
		case m.MCM.HasUpdateLabels && !m.Updating && current:
			appendBounded(&d.ClearUpdateLabels, m.asTarget("its set is the current one: there is nothing to update"))
		case m.MCM.HandedOver && !m.MCM.HasUpdateLabels && p.mayClearUpdateResults(set):
			appendBounded(&d.ClearUpdateResult, m.asTarget("its set counts it now"))
		}
	})
}

// mayClearUpdateResults reports whether a set's size includes the machines that were moved to the set, or the set may
// delete them. The status must show a size that includes a moved machine, because the cached size may be older than the
// cached machines. An old set may delete as many machines as the deployment can spare. With the strategy Recreate, it
// may delete all its machines.
func (p *planner) mayClearUpdateResults(set *setPlan) bool {
	counts := min(set.Replicas, set.ObservedReplicas)
	// The budget treats the moved machines as lost.
	lost := set != p.currentSet && (p.facts.Strategy == Recreate || p.removalBudget() >= 0)
	return set.activeMachineCount <= counts || lost || set == p.currentSet && counts >= p.facts.Replicas
}

// appendBounded appends an entry if the list has fewer than MaxBatchSize entries.
func appendBounded[T any](list *[]T, entry T) {
	if len(*list) < MaxBatchSize {
		*list = append(*list, entry)
	}
}

// selectNodesToUpdate selects the next nodes to update, as many as may be unavailable. Unhealthy machines are updated
// first, because their updates do not reduce availability. The other machines are updated after unhealthy machines,
// from the oldest set to the newest. The formulas are from MCM, but a machine that is being updated is counted only
// once.
func (p *planner) selectNodesToUpdate(d *Decision) {
	under := p.updatingOldMachineCount()
	waiting := max(p.currentSet.size-p.currentSet.availableMachineCount, 0)
	places := p.stepMachineCount - p.currentSet.size - under
	free := min(sumOverSets(p.sets, sizeOfSet)-p.minAvailable-waiting-under, places)
	var unhealthy, healthy []Member
	p.visitMachines(func(set *setPlan, m Member) {
		switch {
		case set == p.currentSet || !m.MCM.IsUpdateCandidate || m.Updating || m.MCM.Updated || m.Failed || m.MCM.NodeName == "":
		case m.Available:
			healthy = append(healthy, m)
		default:
			unhealthy = append(unhealthy, m)
		}
	})
	pick := unhealthy[:max(min(free, len(unhealthy)), 0)]
	able := min(p.removalBudget(), free-len(pick))
	pick = append(slices.Clone(pick), healthy[:max(min(able, len(healthy)), 0)]...)
	for _, m := range pick {
		appendBounded(&d.Select, m.asTarget("its node is next"))
	}
}

// taintAndProtectNodes taints all nodes of old sets, including nodes that joined late, so that new pods run on other
// nodes. taintAndProtectNodes removes the taint from nodes of the current set. taintAndProtectNodes reads the current
// state of each node.
//
// While there are old and new nodes, taintAndProtectNodes annotates all nodes, so that the cluster autoscaler does not
// remove them. After the rollout, taintAndProtectNodes removes Millwright's annotations. taintAndProtectNodes does not
// change an annotation of another party, and does not remove the annotation of a preserved machine.
func (p *planner) taintAndProtectNodes(d *Decision, rolls bool) {
	taint := rolls && p.currentSet != nil && p.facts.Strategy != Recreate
	guard := p.facts.MCM.ProtectsNodesFromAutoscaler && d.Rolling
	p.visitMachines(func(set *setPlan, m Member) {
		switch old := set != p.currentSet; {
		case m.MCM.NodeName == "":
			return
		case m.MCM.NodeTainted == old: // the taint is already correct
		case m.MCM.NodeTainted:
			appendBounded(&d.Untaint, m.asTarget("its set is the current one"))
		case taint:
			appendBounded(&d.Taint, m.asTarget("its set is old"))
		}
		switch {
		case guard && rolls && m.MCM.ScaleDownDisabledValue != vocabulary.ValueScaleDownDisabled:
			appendBounded(&d.ProtectFromAutoscaler, m.asTarget("a rollout is under way"))
		case !guard && m.MCM.ScaleDownDisabledByMillwright && !m.MCM.Preserved:
			appendBounded(&d.UnprotectFromAutoscaler, m.asTarget("no rollout is under way"))
		}
	})
}
