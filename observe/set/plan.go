package set

import (
	"millwright/api/v1alpha1"
	"millwright/decide/explain"
	"millwright/decide/scale"
)

// Planned is the plan of a set of either API, together with the blockers of the set.
type Planned struct {
	scale.Planned
	Observed scale.Observed  // facts from which scale.Plan made the plan
	Blocked  explain.Summary // blockers of the set and its machines
	Said     bool            // the status of the set shows the blockers
}

// Explain adds the blockers of a set to a plan. The plan was made from the facts o.
func Explain(s *v1alpha1.MachineSet, related Related, o scale.Observed, plan scale.Planned) Planned {
	blocked := Explained(s, related, plan.Status.Conditions, o.Now).Blocked(o.Now)
	return Planned{plan, o, blocked, IsExplained(&s.Status, blocked)}
}
