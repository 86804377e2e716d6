package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// inPlaceCandidateSets returns the old sets that have machines and another template, and whose machines an extension
// may update in place. A set with the current template is not a candidate for in-place updates, because its machines
// are replaced.
func (p *planner) inPlaceCandidateSets() []*setPlan {
	if !p.facts.ClusterAPI.UsesExtension || p.facts.Strategy != RollingUpdate || p.currentSet == nil ||
		p.currentSet.size >= p.stepMachineCount {
		return nil
	}
	ofTemplate := func(set *setPlan) bool { return set == p.templateSet || set.ClusterAPI.DuplicatesTemplate }
	return list.Filter(p.oldSets(), func(set *setPlan) bool {
		return (!ofTemplate(set) || !ofTemplate(p.currentSet)) && (set.size > 0 || set.activeMachineCount > 0)
	})
}

// remainingTransferCount returns how many more machines may move to the current set: stepMachineCount, minus the size
// of the current set, minus the number of machines that are already due to move.
func (p *planner) remainingTransferCount() int {
	return p.stepMachineCount - p.currentSet.size - sumOverSets(p.oldSets(), func(set *setPlan) int {
		if set.transfer.To == "" {
			return 0
		}
		return max(set.activeMachineCount-set.size, 0)
	})
}

// hasExtensionAnswer reports whether an extension has answered the request whether a set's machines can be updated in
// place to the current template.
func (p *planner) hasExtensionAnswer(set *setPlan) bool {
	return set.ClusterAPI.ExtensionAnswer.TargetSetUID == p.currentSet.UID && p.currentSet.UID != "" &&
		!set.ClusterAPI.ExtensionAnswer.Failed
}

// waitsForExtensionAnswer reports whether the rollout waits for an extension, or stops because the extension cannot
// update machines that the rollout must not replace. Meanwhile, old sets still follow spec.replicas.
func (p *planner) waitsForExtensionAnswer() bool {
	all, refusal := p.inPlaceCandidateSets(), p.inPlaceRefusal()
	if refusal == "" && !slices.ContainsFunc(all, func(set *setPlan) bool { return !p.hasExtensionAnswer(set) }) {
		p.assignTransfers(all)
		return false
	}
	if p.currentSet.transfer.From == "" { // if From is set, machines may be moving to the current set
		p.assignTransfers(nil)
	}
	if why := cmp.Or(p.extensionFailure(), refusal); why != "" {
		p.followReplicasInOldSet()
		p.idleReason = why
	}
	return true
}

// extensionFailure names the set for which the request to an extension failed, and the reason. If no request has
// failed, extensionFailure returns an empty string.
func (p *planner) extensionFailure() string {
	for _, set := range p.inPlaceCandidateSets() {
		if a := set.ClusterAPI.ExtensionAnswer; a.Failed && a.TargetSetUID == p.currentSet.UID {
			return fmt.Sprintf(
				"no runtime extension says whether the machines of set %s can be updated in place: %s",
				set.Name,
				phrase.TruncateText(a.Why, maxReasonBytes),
			)
		}
	}
	return ""
}

// inPlaceRefusal names the set whose machines the extension cannot update in place although the deployment forbids to
// replace them, and the extension's reason; empty: no such set.
func (p *planner) inPlaceRefusal() string {
	for _, set := range p.inPlaceCandidateSets() {
		if p.facts.ClusterAPI.RequiresExtension && p.hasExtensionAnswer(set) && !set.ClusterAPI.ExtensionAnswer.Possible {
			return fmt.Sprintf(
				"the machines of set %s cannot be updated in place, and in-place-updates is \"required\": %s",
				set.Name,
				phrase.TruncateText(set.ClusterAPI.ExtensionAnswer.Why, maxReasonBytes),
			)
		}
	}
	return ""
}

// followReplicasInOldSet adapts the sizes to spec.replicas like followReplicas, but adds machines to the newest old
// set.
func (p *planner) followReplicasInOldSet() {
	if missing := p.missingMachineCount(); missing > 0 {
		p.enlargeSet(newestSetWithMachines(p.oldSets()), missing)
		return
	}
	p.followReplicas()
}

// assignTransfers makes each set whose machines can be updated in place transfer its surplus machines to the current
// set. A transfer moves available machines first. If a set still has to delete unavailable machines, its transfer
// begins after their deletion.
func (p *planner) assignTransfers(all []*setPlan) {
	for _, set := range p.sets {
		possible := slices.Contains(all, set) && set.ClusterAPI.ExtensionAnswer.Possible
		set.deletesBeforeTransfer = possible && set.transfer.To == "" && !set.hasReachedSize()
		if set.transfer.To = ""; possible && !set.deletesBeforeTransfer {
			set.transfer.To, set.unhealthyMachineCount = p.currentSet.Name, 0 // a transfer moves machines with nodes first
		}
	}
	p.setTransferSources()
}

// hasReachedSize reports whether a set has no surplus and its workflow has acted on its size.
func (set *setPlan) hasReachedSize() bool {
	return set.activeMachineCount <= set.size && set.ObservedReplicas == set.Replicas
}

// continueTransfers continues the transfers of sets with surplus machines, and ends all other transfers. Without a
// transfer, the set deletes its surplus machines.
func (p *planner) continueTransfers() {
	for _, set := range p.sets {
		if set.hasReachedSize() {
			set.transfer.To = ""
		}
	}
	p.setTransferSources()
}

// setTransferSources writes into each receiving set the names of the sets that transfer machines to it.
func (p *planner) setTransferSources() {
	for _, set := range p.sets {
		from := list.Map(
			list.Filter(p.sets, func(giver *setPlan) bool { return giver.transfer.To == set.Name }),
			func(giver *setPlan) string { return giver.Name },
		)
		slices.Sort(from)
		set.transfer.From = strings.Join(from, ",")
	}
}

// missingMachineCount returns spec.replicas, minus the sizes of all sets, minus the number of machines that are moving
// between sets. A negative result means that there are too many machines.
func (p *planner) missingMachineCount() int {
	return p.facts.Replicas - sumOverSets(p.sets, sizeOfSet) - p.movingMachineCount()
}

// movingMachineCount returns how many machines are moving between sets. Moving machines are not part of any set's size.
func (p *planner) movingMachineCount() int {
	return sumOverSets(p.sets, func(set *setPlan) int {
		n := max(set.activeMachineCount-set.size, 0)
		if set.transfer.To == "" {
			n = min(n, list.CountWhere(set.Machines, func(m Member) bool { return m.ClusterAPI.Unacknowledged && !m.Deleting }))
		}
		return n
	})
}

// hasTransfers reports whether an old set transfers machines to the current set, or will do so after it has deleted
// unavailable machines.
func (p *planner) hasTransfers() bool {
	return p.currentSet.transfer.From != "" ||
		slices.ContainsFunc(p.sets, func(set *setPlan) bool { return set.deletesBeforeTransfer })
}

// askExtension sends a request to the extension for each set without an answer. After a failed request, askExtension
// waits ExtensionRetryInterval before the retry.
func (p *planner) askExtension(d *Decision) {
	if p.stopReason() != "" || p.currentSet == nil || p.currentSet.UID == "" {
		return
	}
	for _, set := range p.inPlaceCandidateSets() {
		switch {
		case p.hasExtensionAnswer(set):
		case set.ClusterAPI.ExtensionAnswer.TargetSetUID == p.currentSet.UID && p.facts.Now.Before(set.ClusterAPI.ExtensionAnswer.RequestedAt.Add(ExtensionRetryInterval)):
			d.limitRecheckTime(set.ClusterAPI.ExtensionAnswer.RequestedAt.Add(ExtensionRetryInterval))
		default:
			appendBounded(&d.Ask, set.asTarget("the template is new"))
		}
	}
}

// limitRecheckTime sets Recheck to the given time if that time is earlier. A zero time changes nothing.
func (d *Decision) limitRecheckTime(at time.Time) {
	if !at.IsZero() && (d.Recheck.IsZero() || at.Before(d.Recheck)) {
		d.Recheck = at
	}
}

// addSurgeMachine adds one new machine if the surge permits it and no other change is in progress. The added machine
// keeps enough machines available while another machine is updated in place. Source: Cluster API.
func (p *planner) addSurgeMachine() {
	busy := func(set *setPlan) bool {
		return set.size != set.activeMachineCount || set.terminatingMachineCount > 0 || set.ObservedReplicas != set.size ||
			set.updatingMachineCount > 0
	}
	if !p.hasTransfers() || !p.leavesSizesUnchanged() || slices.ContainsFunc(p.sets, busy) ||
		p.currentSet.availableMachineCount != p.currentSet.size {
		return
	}
	p.growCurrentSet(min(p.surge, 1))
}

// acknowledgeMoves adds the machines that were moved to a set for in-place updates to the set's size, so that the
// updates may begin. The sizes of old sets also include moved machines, because the template may have changed since the
// move. At most MaxBatchSize moved machines are added at a time, because an annotation names them until their updates
// begin.
func (p *planner) acknowledgeMoves() {
	for _, set := range p.sets {
		counted := list.Filter(
			set.Machines,
			func(m Member) bool { return m.ClusterAPI.Moved && !m.ClusterAPI.Unacknowledged },
		)
		fresh := list.Filter(set.Machines, func(m Member) bool { return m.ClusterAPI.Unacknowledged && !m.Deleting })
		fresh = fresh[:min(len(fresh), max(MaxBatchSize-len(counted), 0))]
		size := set.size + min(len(fresh), max(set.activeMachineCount-set.size, 0))
		if set.raiseSize(size-set.size, "machines that are updated in place have moved to it"); set.size >= size {
			counted = append(counted, fresh...)
		}
		names := list.Map(counted, func(m Member) string { return m.Name })
		slices.Sort(names)
		set.transfer.Acknowledged = strings.Join(names, ",")
	}
}

// sortReceiversFirst sorts the set that receives machines before the sets that transfer machines, because they read its
// annotations.
func sortReceiversFirst(resizes []SetResize) {
	slices.SortStableFunc(
		resizes,
		func(a, b SetResize) int { return list.CompareFalseFirst(a.Transfer.From == "", b.Transfer.From == "") },
	)
}
