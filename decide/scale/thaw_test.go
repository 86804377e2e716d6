package scale_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/attention"
	"millwright/decide/scale"
)

// The rows say when a freeze ends. After a freeze has ended, the removal of its label and annotation is pending work,
// even if the status is current.
func TestThaw(t *testing.T) {
	for _, row := range []struct {
		name         string
		freeze       scale.Freeze
		frozen, thaw bool
	}{
		{"no freeze", scale.Freeze{}, false, false},
		{"frozen", scale.Freeze{Label: true}, true, false},
		{"its deployment is frozen", scale.Freeze{Owner: true}, true, false},
		{"the annotation ends it", scale.Freeze{Label: true, Unfreeze: true}, false, true},
		{"an annotation without a freeze is removed, too", scale.Freeze{Unfreeze: true}, false, true},
		{"its deployment is still frozen", scale.Freeze{Owner: true, Label: true, Unfreeze: true}, true, true},
		{"as MCM: as many as end it", scale.Freeze{Label: true, EndsAt: 2}, false, true},
		{"as MCM: one more", scale.Freeze{Label: true, EndsAt: 1}, true, false},
		{"as MCM: not frozen", scale.Freeze{EndsAt: 5}, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := newSet(3, runningMembers(2)...)
			o.MCM.Freeze = row.freeze
			plan := scale.Plan(o)
			assert.Equal(t, []bool{row.frozen, row.thaw}, []bool{len(plan.Decision.Create) == 0, plan.Thaw})
			if row.thaw {
				o.Replicas = 2
				o.Reported, o.ObservedGeneration = scale.Plan(o).Status, o.Generation
				assert.Equal(t, attention.Scale, scale.Plan(o).Pending.Need, "the label has to go")
			}
		})
	}
}
