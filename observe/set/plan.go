package set

import (
	"millwright/api/v1alpha1"
	"millwright/decide/explain"
	"millwright/decide/scale"
)

// Planned is the plan of a set of any kind, with what blocks the set.
type Planned struct {
	scale.Planned
	Observed scale.Observed  // the facts that it was made from
	Blocked  explain.Summary // what blocks the set and its machines
	Said     bool            // the status shows what blocks them
}

// Explain adds what blocks a set to the plan that was made from the facts o.
func Explain(s *v1alpha1.MachineSet, related Related, o scale.Observed, plan scale.Planned) Planned {
	blocked := Explained(s, related, plan.Status.Conditions, o.Now).Blocked(o.Now)
	return Planned{plan, o, blocked, IsExplained(&s.Status, blocked)}
}
