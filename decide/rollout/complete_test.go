package rollout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/api/vocabulary"
	"millwright/decide/rollout"
)

// A rollout is complete when the current set has acted on its size and all machines are available. A machine that has
// been ready for less than minReadySeconds may still fail. A set whose status does not show its new size yet may still
// create or delete machines.
func TestRolloutCompletion(t *testing.T) {
	seen := func(n int, s rollout.MachineSet) rollout.MachineSet { s.ObservedReplicas = n; return s }
	tooYoung := func(m *rollout.Member) { m.Available = false }
	for _, row := range []struct {
		name string
		set  rollout.MachineSet
		want bool
	}{
		{"all are available", currentSet(2, 3, 3, 3), true},
		{"all are ready, one is too young", withChangedMachine(currentSet(2, 3, 3, 3), 1, tooYoung), false},
		{"the set has not seen that it became larger", seen(2, currentSet(2, 3, 3, 3)), false},
		{"the set has not seen that it became smaller", seen(4, currentSet(2, 3, 3, 3)), false},
		{"one is Failed", withChangedMachine(currentSet(2, 3, 3, 3), 1, asFailedMachine), false},
		{"one is Failed and preserved", withChangedMachine(currentSet(2, 3, 3, 3), 1, asFailedMachine, asPreservedMachine), true},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, rollout.Decide(rollingUpdateDeployment(3, 1, 0, row.set)).Complete)
		})
	}
	t.Run("the status says so only then, and the deadline runs until then", func(t *testing.T) {
		o := rollingUpdateDeployment(3, 1, 0, withChangedMachine(currentSet(2, 3, 3, 3), 1, tooYoung))
		o.ProgressDeadline = new(time.Minute)
		for _, c := range rollout.PlannedStatus(o).Conditions {
			if c.Type == vocabulary.ConditionProgressing {
				assert.NotEqual(t, vocabulary.ReasonNewMachineSetAvailable, c.Reason)
			}
		}
	})
}

// An unhealthy machine that is updated in place counts toward the rollout step. The update of an unhealthy machine does
// not reduce the number of available machines, but the rollout step limits the number of machines with the new
// template.
func TestUnhealthyMachinesCountTowardAnInPlaceStep(t *testing.T) {
	oldSet := withChangedMachine(candidateSet(oldSet(1, 6, 6, 6)), 5, asUnhealthyMachine)
	for _, row := range []struct {
		name string
		step int
		want []string
	}{
		{"one place: the unhealthy one takes it", 1, []string{"ms1-05"}},
		{"two places: one is left", 2, []string{"ms1-05", "ms1-00"}},
		{"three places: two are left", 3, []string{"ms1-05", "ms1-00", "ms1-01"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := withRolloutSteps(
				inPlaceUpdateDeployment(6, 0, 4, oldSet, currentSet(2, 0, 0, 0)),
				rollout.Step{Size: countValue(row.step), NeedsApproval: true},
			)
			assert.Equal(t, row.want, targetNames(rollout.Decide(o).Select))
		})
	}
}
