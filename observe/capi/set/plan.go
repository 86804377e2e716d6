package set

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/scale"
	"millwright/observe/capi"
	observeset "millwright/observe/set"
)

// Explain adds to the plan that was made from the facts o what blocks a set, the writes that the set needs besides
// those of the plan, and the time at which a machine counts as standing still.
func Explain(
	s *clusterv1.MachineSet,
	related capi.Related,
	o scale.Observed,
	plan scale.Planned,
) observeset.Planned {
	explained := Explained(s, related, plan.Status.Conditions, o.Now)
	plan.Pending = Pending(s, related, o, plan, explained)
	plan.Decision.Recheck = Recheck(plan, explained)
	blocked := explained.Blocked(o.Now)
	return observeset.Planned{Planned: plan, Observed: o, Blocked: blocked, Said: Said(s, related, blocked)}
}
