package rollout

import (
	"cmp"
	"fmt"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/scale"
)

// ofClusterAPI returns the conditions of a MachineDeployment of Cluster API, Available first.
func (p *planner) ofClusterAPI() []Condition {
	return append(
		[]Condition{p.isAvailableInClusterAPI()},
		list.Map(scale.OfDeployment(*p.o.Machines), func(c scale.Condition) Condition {
			return Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message}
		})...)
}

// isAvailableInClusterAPI reports whether enough machines are available. Source of reasons and messages: Cluster API.
func (p *planner) isAvailableInClusterAPI() Condition {
	const kind = vocabulary.ConditionAvailable
	_, unavailable := Bounds(p.o)
	needed, available := p.o.Replicas-min(unavailable, p.o.Replicas), p.count().Available
	bounds := ""
	if p.o.Strategy == RollingUpdate {
		bounds = fmt.Sprintf(
			" (spec.strategy.rollout.maxUnavailable is %s, spec.replicas is %d)",
			p.o.Unavailable,
			p.o.Replicas,
		)
	}
	message := cmp.Or(
		phrase.If(p.o.Deleting, "Deletion in progress"),
		fmt.Sprintf("%d available replicas, at least %d required%s", available, needed, bounds),
	)
	return cmp.Or(
		list.When(p.o.Machines.Unsized, Condition{
			Type:    kind,
			Status:  vocabulary.StatusUnknown,
			Reason:  vocabulary.ReasonWaitingForReplicasSet,
			Message: "Waiting for spec.replicas set",
		}),
		list.When(available >= needed, Condition{Type: kind, Status: vocabulary.StatusTrue, Reason: kind}),
		Condition{Type: kind, Status: vocabulary.StatusFalse, Reason: vocabulary.ReasonNotAvailable, Message: message},
	)
}

// String returns a bound as it stands in a spec.
func (b Bound) String() string { return fmt.Sprint(b.Value) + phrase.If(b.Percent, "%%") }
