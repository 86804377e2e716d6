package set

import (
	"millwright/api/v1alpha1"
	"millwright/decide/explain"
	"millwright/decide/scale"
)

// ExplainedPlan is the plan of a set of either API, together with the blockers of the set.
type ExplainedPlan struct {
	scale.PlanResult
	Facts           scale.Facts     // facts from which scale.PlanSet made the plan
	BlockedSummary  explain.Summary // blockers of the set and its machines
	IsShownInStatus bool            // whether the set's status already shows BlockedSummary
}

// ExplainPlan adds to a plan what blocks the set. The plan was made from the facts o.
func ExplainPlan(s *v1alpha1.MachineSet, related RelatedObjects, o scale.Facts, plan scale.PlanResult) ExplainedPlan {
	blocked := ExplanationFacts(s, related, plan.Status.Conditions, o.Now).BlockedSummary(o.Now)
	return ExplainedPlan{plan, o, blocked, StatusShowsBlockers(&s.Status, blocked)}
}
