package scale

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// ClusterAPIMember holds the facts that only machines of Cluster API have. Only the files clusterapi*.go read
// ClusterAPIMember.
type ClusterAPIMember struct {
	UpdateDue     bool     // the machine was moved to this set for an in-place update that the set must begin now
	MarkMessage   string   // message with which a health check marked the machine for replacement; empty: no message
	DrainBlockers []string // why Cluster API's drain of the node lasts long: values of the constants Drain…
}

// Values of ClusterAPIMember.DrainBlockers. Source: the words and their order in the conditions of Cluster API.
const (
	DrainBudgets        = "PodDisruptionBudgets"
	DrainNotTerminating = "Pods not terminating"
	DrainEvictionErrors = "Pod eviction errors"
	DrainNotCompleted   = "Pods not completed yet"
)

// ClusterAPISet holds the facts that only sets of Cluster API have. Only the files clusterapi*.go read ClusterAPISet.
type ClusterAPISet struct {
	// MoveTarget is the set that receives this set's surplus machines and updates them in place; empty: the surplus is
	// deleted.
	MoveTarget   string
	NoMoveReason string // why the set MoveTo receives no machine now; empty: it receives machines
	// DeletingUpToDateCount is the number of members that are being deleted and match the template. Cluster API counts
	// members that are being deleted as up to date if they match the template.
	DeletingUpToDateCount int
	// ReportsReconciling means that the status has one of the conditions Reconciling and Stalled of kstatus while the
	// machines do not match the spec.
	ReportsReconciling bool
}

// deletingUpToDateCount returns the number of members that are being deleted and count as up to date.
func (o *planner) deletingUpToDateCount() int { return o.ClusterAPI.DeletingUpToDateCount }

// reconcileCondition returns the condition Reconciling or Stalled, which tools such as kstatus read. If Reason is empty,
// neither condition is True. c has the counts of the set's status. The reasons of the condition MachinesCreated that end
// without a person, such as an upgrade of the control plane, do not make a set Stalled.
func (o *planner) reconcileCondition(c MachineCounts) Condition {
	if !o.ClusterAPI.ReportsReconciling || o.Deleting {
		return Condition{}
	}
	created := machinesCreatedCondition(o)
	stalled := cmp.Or(
		list.ValueIf(
			o.InvalidReason != "",
			Condition{Reason: vocabulary.ReasonMachineSetInvalid, Message: o.InvalidReason},
		),
		list.ValueIf(created.Reason == vocabulary.ReasonTemplateNotFound, created),
	)
	served := c.Replicas == o.Replicas && c.Available >= o.Replicas
	counts := fmt.Sprintf("%s, %d of %d available", machineCountText(c.Replicas), c.Available, o.Replicas)
	waits := cmp.Or(
		list.ValueIf(
			len(o.PauseSentences) > 0,
			Condition{Reason: vocabulary.ConditionPaused, Message: strings.Join(o.PauseSentences, ", ")},
		),
		list.ValueIf(created.Status == ConditionFalse, created),
		Condition{Reason: vocabulary.ReasonScaling, Message: counts},
	)
	switch {
	case stalled.Reason != "":
		return Condition{vocabulary.ConditionStalled, ConditionTrue, stalled.Reason, stalled.Message}
	case !served:
		return Condition{vocabulary.ConditionReconciling, ConditionTrue, waits.Reason, waits.Message}
	default:
		return Condition{}
	}
}

// hasMoveTarget reports whether surplus machines move to another set.
func (o *planner) hasMoveTarget() bool { return o.ClusterAPI.MoveTarget != "" }

// drainBlockersText returns why the drains of machines last long; empty if no cause is known.
func drainBlockersText(members []*Member) string {
	blockers := list.Filter(
		[]string{DrainBudgets, DrainNotTerminating, DrainEvictionErrors, DrainNotCompleted},
		func(blocker string) bool {
			return slices.ContainsFunc(
				members,
				func(m *Member) bool { return slices.Contains(m.ClusterAPI.DrainBlockers, blocker) },
			)
		},
	)
	return phrase.TextIf(len(blockers) > 0, ", delay likely due to %s", strings.Join(blockers, ", "))
}

// moveSurplus moves the surplus machines to the set that updates them in place. The machines move in the deletion
// order. Members of three kinds are not moved. If a member is being updated, another member is moved instead. A member
// that a health check has marked for replacement is deleted. A member without a node is deleted if no member has a
// node, because there is nothing to update yet. If the other set receives no machine now, the surplus waits.
func moveSurplus(o *planner, active []Member, surplus int) Decision {
	if o.ClusterAPI.NoMoveReason != "" {
		return Decision{}
	}
	movable := func(m Member) bool { return !m.MovedForUpdate && !m.Updating }
	if marked := rankedMembers(
		o,
		active,
		func(m Member) bool { return movable(m) && m.isMarkedUnhealthy() },
	); len(
		marked,
	) > 0 {
		return deleteMembers(o, active, marked[:min(len(marked), surplus)], " marked unhealthy")
	}
	joined := rankedMembers(o, active, func(m Member) bool { return movable(m) && m.NodeState != NoNode })
	if len(joined) == 0 {
		rest := rankedMembers(o, active, movable)
		return deleteMembers(o, active, rest[:min(len(rest), surplus)], " without a node")
	}
	d := Decision{
		Move: firstTargets(
			joined[:min(len(joined), surplus)],
			"surplus: MachineSet "+o.ClusterAPI.MoveTarget+" updates it in place",
		),
	}
	d.Why = fmt.Sprintf(
		"move %s to MachineSet %s, which updates them in place: %d wanted, %d there",
		machineCountText(len(d.Move)),
		o.ClusterAPI.MoveTarget,
		o.Replicas,
		len(active),
	)
	return d
}

// moveBlocker returns the reason why the surplus is not moved; empty: there is no surplus, or it is moved.
func moveBlocker(o *planner) string {
	surplus := list.CountWhere(o.liveMembers, func(m Member) bool { return !m.MovedForUpdate }) - o.Replicas
	return phrase.TextIf(
		o.ClusterAPI.MoveTarget != "" && o.ClusterAPI.NoMoveReason != "" && surplus > 0,
		"%s to be moved to MachineSet %s wait: %s",
		machineCountText(max(surplus, 0)),
		o.ClusterAPI.MoveTarget,
		o.ClusterAPI.NoMoveReason,
	)
}

// beginUpdates begins the in-place updates of members that were moved to this set for an update. No update begins if
// the template's objects do not exist.
func beginUpdates(o *planner, active []Member) Decision {
	if len(o.MissingObjectKinds) > 0 {
		return Decision{}
	}
	due := firstTargets(
		list.Filter(active, func(m Member) bool { return m.ClusterAPI.UpdateDue }),
		"it was moved to this set to be updated in place",
	)
	return Decision{Update: due, Why: fmt.Sprintf("begin the update in place of %s", machineCountText(len(due)))}
}
