package scale

import (
	"fmt"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// ClusterAPIMember is what only the machines of Cluster API have. Only the files clusterapi*.go read it.
type ClusterAPIMember struct {
	UpdateDue bool   // it was handed over to be updated in place, and the set has to begin that now
	MarkedWhy string // what the health check's mark says about the replacement; empty: nothing
}

// ClusterAPISet is what only the sets of Cluster API have. Only the files clusterapi*.go read it.
type ClusterAPISet struct {
	// MoveTo is the set that takes the surplus of this one, to update the machines in place; empty: the surplus is
	// deleted.
	MoveTo string
	NoMove string // why that set takes no machine now; empty: it takes them
	// LeavingUpToDate is how many members are being deleted and match the template: Cluster API counts them as up to date.
	LeavingUpToDate int
}

// leavingUpToDate returns how many members that are being deleted count as up to date.
func (o *planner) leavingUpToDate() int { return o.ClusterAPI.LeavingUpToDate }

// movesSurplus reports whether another set takes the surplus.
func (o *planner) movesSurplus() bool { return o.ClusterAPI.MoveTo != "" }

// move hands the surplus over to the set that updates it in place, the first to be deleted first. Three kinds of
// members are not moved. A member that is already being updated stays, and another one is moved in its place. A member
// that a health check wants replaced is deleted. A member without a node is deleted if no member with a node is left,
// because there is nothing to update yet. If the other set takes none, the surplus waits.
func move(o *planner, active []Member, surplus int) Decision {
	if o.ClusterAPI.NoMove != "" {
		return Decision{}
	}
	movable := func(m Member) bool { return !m.Updated && !m.Updating }
	if marked := ranked(o, active, func(m Member) bool { return movable(m) && m.marked() }); len(marked) > 0 {
		return remove(o, active, marked[:min(len(marked), surplus)], " marked unhealthy")
	}
	joined := ranked(o, active, func(m Member) bool { return movable(m) && m.Node != NoNode })
	if len(joined) == 0 {
		rest := ranked(o, active, movable)
		return remove(o, active, rest[:min(len(rest), surplus)], " without a node")
	}
	d := Decision{
		Move: targets(joined[:min(len(joined), surplus)], "surplus: MachineSet "+o.ClusterAPI.MoveTo+" updates it in place"),
	}
	d.Why = fmt.Sprintf(
		"move %s to MachineSet %s, which updates them in place: %d wanted, %d there",
		machines(len(d.Move)),
		o.ClusterAPI.MoveTo,
		o.Replicas,
		len(active),
	)
	return d
}

// cannotMove says why the surplus is not moved; empty: there is none, or it is moved.
func cannotMove(o *planner) string {
	surplus := list.Count(o.live, func(m Member) bool { return !m.Updated }) - o.Replicas
	return phrase.If(
		o.ClusterAPI.MoveTo != "" && o.ClusterAPI.NoMove != "" && surplus > 0,
		"%s to be moved to MachineSet %s wait: %s",
		machines(max(surplus, 0)),
		o.ClusterAPI.MoveTo,
		o.ClusterAPI.NoMove,
	)
}

// update begins the updates in place of members that were handed over for that. Without a template there is nothing to
// update to.
func update(o *planner, active []Member) Decision {
	if len(o.Missing) > 0 {
		return Decision{}
	}
	due := targets(
		list.Where(active, func(m Member) bool { return m.ClusterAPI.UpdateDue }),
		"it was moved to this set to be updated in place",
	)
	return Decision{Update: due, Why: fmt.Sprintf("begin the update in place of %s", machines(len(due)))}
}
