package set

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/scale"
	"millwright/observe/capi"
	observeset "millwright/observe/set"
)

// ExplainPlan adds three things to a plan: what blocks the set, the other writes that the set needs, and the time at
// which a machine stalls. The plan was made from the facts o.
func ExplainPlan(
	s *clusterv1.MachineSet,
	related capi.RelatedObjects,
	o scale.Facts,
	plan scale.PlanResult,
) observeset.ExplainedPlan {
	explained := ExplanationFacts(s, related, plan.Status.Conditions, o.Now)
	plan.PendingWork = PendingWork(s, related, o, plan, explained)
	plan.Decision.Recheck = RecheckTime(plan, explained)
	blocked := explained.BlockedSummary(o.Now)
	return observeset.ExplainedPlan{
		PlanResult:      plan,
		Facts:           o,
		BlockedSummary:  blocked,
		IsShownInStatus: StatusShowsBlockers(s, related, blocked),
	}
}
