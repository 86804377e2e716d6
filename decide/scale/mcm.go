package scale

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
)

// MCMMember holds the facts that only machines of MCM's kinds have. Only the files mcm*.go read MCMMember.
type MCMMember struct {
	Labelled            bool // the machine has all labels of the template
	Failed              bool // the machine is in phase Failed
	LastOperationFailed bool // the machine's last operation failed
	CreationFailing     bool // the creation of the machine's instance keeps failing
	ServesWithoutNode   bool // the machine counts as available without a node, because there is no target cluster
	// CreationProblem is the reason why the provider creates no instance; zero: no problem.
	CreationProblem Problem

	Replaceable           bool // the machine failed and may be replaced now; also true while the machine is being deleted
	Preserved             bool // the machine is preserved, so the set deletes it last
	PreservedUntil        time.Time
	AutoPreserved         bool      // the set preserved the machine because it failed
	PreservationForbidden bool      // the machine's annotation forbids its preservation
	ChosenAt              time.Time // when the autoscaler chose the machine for deletion; zero: not chosen
}

// MCMSet holds the facts that only sets of MCM's kinds have. Only the files mcm*.go read MCMSet.
type MCMSet struct {
	MaxAutoPreserved int // maximum number of failed members that the set preserves
	Freeze           FreezeState
	AutoscaledAt     time.Time // when the autoscaler last changed the size; zero: never
}

// FreezeState describes the label freeze of a set. The freeze stops the creation of machines.
type FreezeState struct {
	HasLabel           bool // the set has the label freeze
	OwnerIsFrozen      bool // the deployment has the label, and the deployment's freeze has not ended
	UnfreezeRequested  bool // the set has the annotation unfreeze
	EndsAtMachineCount int  // the freeze ends when the number of machines is at most EndsAt; zero: only the annotation ends it
}

// hasFreezeEnded reports whether the set's freeze has ended, so that the set's label or annotation must be removed.
func (o *planner) hasFreezeEnded() bool {
	return o.MCM.Freeze.UnfreezeRequested ||
		o.MCM.Freeze.HasLabel && o.MCM.Freeze.EndsAtMachineCount > 0 && len(o.Members) <= o.MCM.Freeze.EndsAtMachineCount
}

// isFrozen reports whether a freeze stops the creation of machines.
func (o *planner) isFrozen() bool {
	return o.MCM.Freeze.OwnerIsFrozen || o.MCM.Freeze.HasLabel && !o.hasFreezeEnded()
}

// preserveFailedMembers preserves failed members instead of replacing them. preserveFailedMembers starts with the
// oldest member, and preserves at most o.MCM.Keep members in all.
func preserveFailedMembers(o *planner, active []Member) Decision {
	left := o.MCM.MaxAutoPreserved - list.CountWhere(active, func(m Member) bool { return m.MCM.AutoPreserved })
	failed := memberPointers(
		active,
		func(m Member) bool {
			return m.MCM.Failed && !m.MCM.AutoPreserved && !m.MCM.Preserved && !m.MCM.PreservationForbidden
		},
	)
	slices.SortFunc(
		failed,
		func(a, b *Member) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Name, b.Name)) },
	)
	failed = firstBatch(failed[:max(min(left, len(failed)), 0)])
	d := Decision{Keep: list.Map(failed, func(m *Member) MachineTarget { return m.asTarget("failed") })}
	d.Why = fmt.Sprintf("keep %s that failed, of at most %d", machineCountText(len(d.Keep)), o.MCM.MaxAutoPreserved)
	return d
}

// failedMembersToRemove returns the failed members to delete as soon as their substitutes permit it, at most
// MaxBatchSize.
func failedMembersToRemove(o *planner) []Member {
	return rankedMembers(o, o.liveMembers, func(m Member) bool {
		return (m.needsReplacement() || o.isFailedSubstitute(m)) && retryHoldReason(o, m) == ""
	})
}

// removeFailedMembers deletes failed members, so that the set creates their replacements.
func removeFailedMembers(o *planner, active []Member) Decision {
	failed := o.failedToRemove
	d := deleteMembers(o, active, failed, " that failed")
	d.Delete, d.Generations = firstTargets(failed, "failed"), generationsToRecord(o, failed)
	return d
}

// removeChosenMembers deletes the members that the autoscaler chose, even without a surplus, because the autoscaler
// expects the deletion of these machines. A choice that is later than the last change of the size is ignored until the
// next change.
func removeChosenMembers(o *planner, active []Member) Decision {
	return deleteMembers(o, active, rankedMembers(o, active, func(m Member) bool {
		return m.Priority == vocabulary.PriorityChosenByAutoscaler && !m.MCM.ChosenAt.IsZero() &&
			!m.MCM.ChosenAt.After(o.MCM.AutoscaledAt) &&
			!m.isProtected()
	}), " that the autoscaler chose")
}

// waitingFailedMembers returns the failed members that are not deleted yet, each with the reason. After the last retry,
// the deployment grants no replacement, so waitingFailedMembers also returns members without a grant.
func waitingFailedMembers(o *planner) (later []machineMessage) {
	for _, m := range o.liveMembers {
		if !m.isFailed() || m.isProtected() {
			continue
		}
		hold := retryHoldReason(o, m)
		if hold != "" && (m.needsReplacement() || o.isFailedSubstitute(m) || hold == vocabulary.ReasonMaxRetryReached) {
			later = append(later, machineMessage{m.Name, retryHoldText(o, hold)})
		}
	}
	return later
}

// needsReplacement reports whether a member failed and must be deleted as soon as retryHoldReason returns no reason.
func (m Member) needsReplacement() bool { return m.MCM.Replaceable && !m.isProtected() }

// isProtected reports whether a member is preserved, or was updated in place and is not part of the set's size yet.
func (m Member) isProtected() bool { return m.MCM.Preserved || m.MovedForUpdate }

// isFailed reports whether a member is in phase Failed.
func (m Member) isFailed() bool { return m.MCM.Failed }

// isCreationFailing reports whether the creation of a member's instance keeps failing.
func (m Member) isCreationFailing() bool { return m.MCM.CreationFailing }

// servesWithoutNode reports whether a member counts as available without a node.
func (m Member) servesWithoutNode() bool { return m.MCM.ServesWithoutNode }

// isChosen reports whether the autoscaler chose a member.
func (m Member) isChosen() bool { return !m.MCM.ChosenAt.IsZero() }

// lastOperationFailed reports whether a member's last operation failed. For a preserved Failed member,
// lastOperationFailed returns false.
func (m Member) lastOperationFailed() bool {
	return m.MCM.LastOperationFailed && (!m.MCM.Failed || !m.MCM.Preserved)
}

// compareByChoiceTime compares the times at which the autoscaler chose two members. The earliest choice comes first,
// and members without a choice come last.
func compareByChoiceTime(a, b *Member) int {
	return list.CompareTimesZeroLast(a.MCM.ChosenAt, b.MCM.ChosenAt)
}

// compareByPreservation sorts members that are not preserved first, then members that the set preserved, then other
// preserved members. Members that are preserved in the same way are sorted by the end of the preservation.
func compareByPreservation(a, b *Member) int {
	if !a.MCM.Preserved || !b.MCM.Preserved {
		return list.CompareFalseFirst(a.MCM.Preserved, b.MCM.Preserved)
	}
	return cmp.Or(
		list.CompareFalseFirst(b.MCM.AutoPreserved, a.MCM.AutoPreserved),
		a.MCM.PreservedUntil.Compare(b.MCM.PreservedUntil),
	)
}

// addMCMCounts adds the counts that only the status of MCM's kinds has.
func (c *MachineCounts) addMCMCounts(members []Member) {
	c.Labelled = list.CountWhere(members, func(m Member) bool { return m.MCM.Labelled })
	c.PreservedFailed = list.CountWhere(members, func(m Member) bool { return m.MCM.Failed && m.MCM.Preserved })
	c.AutoPreserved = list.CountWhere(members, func(m Member) bool { return m.MCM.AutoPreserved && !m.Deleting })
}

// creationProblemCondition returns the reason why machines get no instance. If Reason is empty, each machine gets its
// instance. If there are several reasons, creationProblemCondition returns the last reason in alphabetical order, with
// the message of the first machine by name.
func creationProblemCondition(o *planner) (c Condition) {
	for _, m := range o.Members {
		if why := m.MCM.CreationProblem; !m.Deleting && why.Reason > c.Reason {
			c.Reason = why.Reason
			c.Message = fmt.Sprintf("machines get no instance; machine %s: %s", m.Name, why.Message)
		}
	}
	return c
}
