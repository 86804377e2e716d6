package scale_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/attention"
	"millwright/decide/scale"
)

// When a freeze has ended, the removal of its label and annotation is pending work, even if the status is current.
func TestEndOfAFreeze(t *testing.T) {
	for _, row := range []struct {
		name         string
		freeze       scale.FreezeState
		frozen, thaw bool
	}{
		{"no freeze", scale.FreezeState{}, false, false},
		{"frozen", scale.FreezeState{HasLabel: true}, true, false},
		{"its deployment is frozen", scale.FreezeState{OwnerIsFrozen: true}, true, false},
		{"the annotation ends it", scale.FreezeState{HasLabel: true, UnfreezeRequested: true}, false, true},
		{"an annotation without a freeze is removed, too", scale.FreezeState{UnfreezeRequested: true}, false, true},
		{"its deployment is still frozen", scale.FreezeState{OwnerIsFrozen: true, HasLabel: true, UnfreezeRequested: true}, true, true},
		{"as MCM: as many as end it", scale.FreezeState{HasLabel: true, EndsAtMachineCount: 2}, false, true},
		{"as MCM: one more", scale.FreezeState{HasLabel: true, EndsAtMachineCount: 1}, true, false},
		{"as MCM: not frozen", scale.FreezeState{EndsAtMachineCount: 5}, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := newSet(3, runningMembers(2)...)
			o.MCM.Freeze = row.freeze
			plan := scale.PlanSet(o)
			assert.Equal(t, []bool{row.frozen, row.thaw}, []bool{len(plan.Decision.Create) == 0, plan.FreezeEnded})
			if row.thaw {
				o.Replicas = 2
				o.ReportedStatus, o.ObservedGeneration = scale.PlanSet(o).Status, o.Generation
				assert.Equal(t, attention.NeedScaling, scale.PlanSet(o).PendingWork.Need, "the label has to go")
			}
		})
	}
}
