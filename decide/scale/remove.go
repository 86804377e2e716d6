package scale

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Messages about marked machines. Source: Cluster API.
const (
	deletingMessage            = "Machine is deleting"
	outdatedMessage            = "Machine won't be remediated because it is pending removal due to rollout"
	tooManyRemediationsMessage = "Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is %s)"
)

// machineMessage is a message about one machine.
type machineMessage struct{ name, message string }

// remediateMarkedMembers deletes unhealthy members whose replacement a health check requested.
func remediateMarkedMembers(o *planner, active []Member) Decision {
	now := o.membersToRemediate
	d := deleteMembers(o, active, now, " marked unhealthy")
	d.Delete, d.Remediate = nil, firstTargets(now, "unhealthy, and marked to be replaced by its owner")
	d.Generations = generationsToRecord(o, now)
	return d
}

// removeSurplus deletes the surplus members in the deletion order. Members that were moved to this set for an in-place
// update are not surplus, because the set's size will include them.
func removeSurplus(o *planner, active []Member) Decision {
	surplus := list.CountWhere(active, func(m Member) bool { return !m.MovedForUpdate }) - o.Replicas
	switch {
	case surplus <= 0:
		return Decision{}
	case o.hasMoveTarget():
		return moveSurplus(o, active, surplus)
	}
	all := rankedMembers(o, active, func(m Member) bool { return !m.MovedForUpdate })
	return deleteMembers(o, active, all[:min(len(all), surplus)], "")
}

// rankedMembers returns the members for which holds returns true, in the deletion order, at most MaxBatchSize.
func rankedMembers(o *planner, active []Member, holds func(Member) bool) []Member {
	all := memberPointers(active, holds)
	slices.SortFunc(all, deletionComparator(o.DeletionOrder))
	return list.Map(firstBatch(all), func(m *Member) Member { return *m })
}

// memberPointers returns pointers to the members for which holds returns true. To copy thousands of members would take
// longer than the decision.
func memberPointers(members []Member, holds func(Member) bool) (all []*Member) {
	for i := range members {
		if holds(members[i]) {
			all = append(all, &members[i])
		}
	}
	return all
}

// deleteMembers returns the decision to delete the members in `from`, at most MaxBatchSize. `which` is the description
// of the members in Why.
func deleteMembers(o *planner, active, from []Member, which string) Decision {
	if len(from) == 0 {
		return Decision{}
	}
	d := Decision{
		Delete: list.Map(from, func(m Member) MachineTarget { return m.asTarget(m.surplusReason()) }),
		Hold:   waitReasonsText(o),
	}
	d.Why = fmt.Sprintf(
		"delete %s%s: %d wanted, %d there",
		machineCountText(len(d.Delete)),
		which,
		o.Replicas,
		len(active),
	)
	return d
}

// markedMember is a member that a health check or an operator has marked for replacement.
type markedMember struct {
	Member
	why     string // why the member is not deleted now; empty: it is deleted
	hasTurn bool   // the member is among the members that MaxInFlight permits, whether or not a substitute may be created
}

// rankMarkedMembers returns the marked members in the order of their replacement. Members that an operator marked are
// deleted first, and then the newest members, because older members are known to work. A member that is being deleted
// counts toward MaxInFlight until its object is gone.
func rankMarkedMembers(o *planner) []markedMember {
	marked := memberPointers(o.liveMembers, func(m Member) bool { return m.isMarkedUnhealthy() && !m.isProtected() })
	slices.SortFunc(marked, func(a, b *Member) int {
		return cmp.Or(
			list.CompareFalseFirst(b.Urgent, a.Urgent),
			list.CompareTimesZeroLast(b.CreatedAt, a.CreatedAt),
			cmp.Compare(a.Name, b.Name),
		)
	})
	left := len(marked)
	if o.Remediation.HasMaxInFlight {
		left = o.Remediation.MaxInFlight - list.CountWhere(
			o.Members,
			func(m Member) bool { return m.Deleting && m.isMarkedUnhealthy() },
		)
	}
	blocked := strings.Join(substituteBlockers(o), "; ")
	limit := cmp.Or(o.Remediation.MaxInFlightText, strconv.Itoa(o.Remediation.MaxInFlight))
	many := fmt.Sprintf(tooManyRemediationsMessage, limit)
	ranked := make([]markedMember, 0, len(marked))
	for _, m := range marked {
		next := markedMember{Member: *m}
		switch hold := retryHoldReason(o, *m); {
		case o.Remediation.SetIsOutdated:
			next.why = outdatedMessage
		case o.Remediation.Blocker != "":
			next.why = o.Remediation.Blocker
		case hold != "":
			next.why = retryHoldText(o, hold)
		case left <= 0:
			next.why = many
		default:
			next.why, next.hasTurn = blocked, true
			left--
		}
		ranked = append(ranked, next)
	}
	return ranked
}

// splitMarkedMembers returns the marked members to delete, at most MaxBatchSize, and the reasons why the others wait.
func splitMarkedMembers(marked []markedMember) (now []Member, later []machineMessage) {
	for _, m := range marked {
		if m.why == "" {
			now = append(now, m.Member)
		} else {
			later = append(later, machineMessage{m.Name, m.why})
		}
	}
	return firstBatch(now), later
}

// isMarkedUnhealthy reports whether the health check requests the member's replacement and the member is still
// unhealthy.
func (m Member) isMarkedUnhealthy() bool { return m.Marked && m.Healthy == ConditionFalse }

// deletionComparator compares members in the order of deletion. The member whose deletion costs least comes first:
//  1. members that are not preserved, then members that the set preserved, then by the end of the preservation
//  2. members with the annotation cluster.x-k8s.io/delete-machine
//  3. lower priority
//  4. members that the autoscaler chose, the earliest choice first
//  5. failed; creation keeps failing; being updated in place; without a node; with an unhealthy node; the others
//  6. age, by the set's DeletionOrder
//  7. name
//
// The order is from MCM in 1 and 3 to 5, and from Cluster API in 2, 5 and 6. A failed machine is therefore deleted
// before a new machine and before a machine that is being updated. DeletionOrder Random sorts healthy members by a hash
// of the name, and all other members by name.
func deletionComparator(order DeletionOrder) func(a, b *Member) int {
	return func(a, b *Member) int {
		return cmp.Or(
			compareByPreservation(a, b),
			list.CompareFalseFirst(b.DeleteFirst, a.DeleteFirst),
			cmp.Compare(a.Priority, b.Priority),
			compareByChoiceTime(a, b),
			cmp.Compare(defectRank(a), defectRank(b)),
			compareByAge(order, a, b),
			cmp.Compare(a.Name, b.Name),
		)
	}
}

// compareByAge compares ages. A member without a creation time counts as the youngest.
func compareByAge(order DeletionOrder, a, b *Member) int {
	switch order {
	case OldestFirst:
		return list.CompareTimesZeroLast(a.CreatedAt, b.CreatedAt)
	case RandomOrder:
		if defectRank(a) == noDefectRank && !a.DeleteFirst {
			return cmp.Compare(hashName(a.Name), hashName(b.Name))
		}
		return 0
	default:
		return list.CompareTimesZeroLast(b.CreatedAt, a.CreatedAt)
	}
}

func hashName(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // Write of a hash never fails
	_, mixed := nextRandomValue(h.Sum64())
	return mixed
}

// defectRank returns the rank of a member's most severe defect. Members with the lowest rank are deleted first.
func defectRank(m *Member) int {
	return slices.Index([]bool{
		m.isFailed(),
		m.isCreationFailing(),
		m.Updating,
		m.NodeState == NoNode && !m.servesWithoutNode(),
		m.NodeState == NodeUnhealthy || m.Healthy == ConditionFalse,
		true,
	}, true)
}

const noDefectRank = 5 // rank of a member without a defect

// IsUnhealthy reports whether a member is deleted before every healthy member of the same priority.
func (m Member) IsUnhealthy() bool { return defectRank(&m) < noDefectRank }

// surplusReason returns the reason why this member is deleted and not another member.
func (m Member) surplusReason() string {
	return cmp.Or(
		phrase.TextIf(m.DeleteFirst, "surplus: marked to be deleted first"),
		phrase.TextIf(m.isChosen(), "surplus: the autoscaler chose it"),
		phrase.TextIf(m.isFailed(), "surplus: failed"),
		fmt.Sprintf("surplus (priority %d, phase %s)", m.Priority, cmp.Or(m.Phase, "new")),
	)
}
