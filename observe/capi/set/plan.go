package set

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/scale"
	"millwright/observe/capi"
	observeset "millwright/observe/set"
)

// Explain adds to a plan the blockers of a set, the set's further writes, and the time at which a machine will count as
// stalled. The plan was made from the facts o.
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
	return observeset.Planned{Planned: plan, Observed: o, Blocked: blocked, Said: IsExplained(s, related, blocked)}
}
