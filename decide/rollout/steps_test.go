package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/rollout"
	"millwright/decide/rollout/simulate"
)

func TestRolloutSteps(t *testing.T) {
	steps := []rollout.Step{{Size: countValue(1), NeedsApproval: true}, {Size: percentValue(50), Wait: time.Hour}}
	at10 := func(step int, reached time.Time, approved int, sets ...rollout.MachineSet) rollout.Facts {
		o := withRolloutSteps(rollingUpdateDeployment(10, 2, 0, sets...), steps...)
		o.Progress = rollout.Progress{Revision: 2, Set: "ms2", Step: step, Reached: reached}
		o.ApprovedStepCount = approved
		return o
	}
	none := time.Time{}
	t.Run("the first step keeps as many as are wanted", func(t *testing.T) {
		d := rollout.Decide(at10(0, none, 0, oldSet(1, 10, 10, 10), currentSet(2, 1, 1, 1)))
		assert.Equal(t, map[string]int{"ms1": 9}, changedSizes(d))
		assert.Nil(t, d.Pause)
	})
	t.Run("reached: it is noted, and waits for a person", func(t *testing.T) {
		d := rollout.Decide(at10(0, none, 0, oldSet(1, 9, 9, 9), currentSet(2, 1, 1, 1)))
		assert.Empty(t, changedSizes(d))
		assert.Equal(t, &rollout.PausePoint{Step: 0, Of: 2, Size: 1, All: 10, Rolls: 2, Approve: true}, d.Pause)
		assert.Equal(t, &rollout.Progress{Revision: 2, Set: "ms2", Reached: epoch}, d.Record)
		assert.Equal(t, "revision 2: step 1 of 2 done (1 of 10 machines), waits for approval", d.Hold)
		assert.True(t, d.Recheck.IsZero())
	})
	t.Run("passed", func(t *testing.T) {
		d := rollout.Decide(at10(0, epoch, 1, oldSet(1, 9, 9, 9), currentSet(2, 1, 1, 1)))
		assert.Equal(t, map[string]int{"ms2": 3}, changedSizes(d))
		assert.Equal(t, 1, d.Record.Step)
	})
	t.Run("the second one waits by the clock", func(t *testing.T) {
		d := rollout.Decide(at10(1, epochPlus(-10*time.Minute), 1, oldSet(1, 5, 5, 5), currentSet(2, 5, 5, 5)))
		assert.Equal(t, "Step", d.HoldBy)
		assert.Equal(t, epochPlus(50*time.Minute), d.Recheck)
		assert.Contains(t, d.Hold, "waits until 00:50:00 UTC")
	})
	t.Run("and is over", func(t *testing.T) {
		d := rollout.Decide(at10(1, epochPlus(-time.Hour), 1, oldSet(1, 5, 5, 5), currentSet(2, 5, 5, 5)))
		assert.Equal(t, map[string]int{"ms2": 7}, changedSizes(d))
		assert.Equal(t, 2, d.Record.Step)
	})
	t.Run("scaled out at a step: old machines come, and of the new ones their part", func(t *testing.T) {
		o := at10(1, epochPlus(-10*time.Minute), 1, oldSet(1, 5, 5, 5), currentSet(2, 5, 5, 5))
		o.Replicas = 20
		assert.Equal(t, map[string]int{"ms1": 10, "ms2": 10}, changedSizes(rollout.Decide(o)))
	})
	t.Run("scaled in at a step", func(t *testing.T) {
		o := at10(0, epoch, 0, oldSet(1, 9, 9, 9), currentSet(2, 1, 1, 1))
		o.Replicas = 4
		assert.Equal(t, map[string]int{"ms1": 3}, changedSizes(rollout.Decide(o)))
	})
	t.Run("a record of another revision counts for nothing", func(t *testing.T) {
		o := at10(2, none, 0, oldSet(1, 10, 10, 10), currentSet(2, 1, 1, 1))
		o.Progress.Revision = 1
		assert.Equal(t, map[string]int{"ms1": 9}, changedSizes(rollout.Decide(o)))
	})
	t.Run("without old machines there is nothing to go by steps", func(t *testing.T) {
		assert.Equal(
			t,
			map[string]int{"ms2": 10},
			changedSizes(rollout.Decide(at10(0, none, 0, oldSet(1, 0, 0, 0), currentSet(2, 0, 0, 0)))),
		)
	})
	t.Run("Recreate knows none", func(t *testing.T) {
		d := rollout.Decide(withStrategy(rollout.Recreate, at10(0, none, 0, oldSet(1, 9, 9, 9), currentSet(2, 1, 1, 1))))
		assert.Nil(t, d.Pause)
		assert.Equal(t, map[string]int{"ms1": 0}, changedSizes(d))
	})
}

func TestPredictSteps(t *testing.T) {
	t.Run("the steps of a rolling update", func(t *testing.T) {
		plan := simulate.PredictSteps(rollingUpdateDeployment(2, 1, 0, oldSet(1, 2, 2, 2)))
		var steps []string
		for _, s := range plan {
			steps = append(steps, s.Action)
		}
		assert.Equal(t, []string{
			"create a set of 1 machine for revision 2: the template has none",
			"resize set ms1 2→1: 3 available, 2 needed",
			"resize set (new) 1→2: room for 1 machine, 2 wanted",
			"resize set ms1 1→0: 3 available, 2 needed",
		}, steps)
		assert.Equal(
			t,
			[]simulate.PredictedSetSize{{Set: "ms1", Replicas: 1}, {Set: "(new)", Replicas: 1, Current: true}},
			plan[1].Sizes,
		)
	})
	t.Run("paused, with steps: what would follow", func(t *testing.T) {
		o := withRolloutSteps(
			withPause(rollingUpdateDeployment(4, 1, 0, oldSet(1, 4, 4, 4))),
			rollout.Step{Size: countValue(1), NeedsApproval: true},
			rollout.Step{Size: countValue(2), Wait: time.Hour},
		)
		plan := simulate.PredictSteps(o)
		assert.Equal(t, "paused; these steps follow when it resumes", plan[0].Action)
		var held int
		for _, s := range plan {
			if strings.Contains(s.Action, ": step ") {
				held++
			}
		}
		assert.Equal(t, 2, held)
		assert.Equal(t, []simulate.PredictedSetSize{{Set: "(new)", Replicas: 4, Current: true}}, plan[len(plan)-1].Sizes)
	})
	t.Run("an undo", func(t *testing.T) {
		o := rollingUpdateDeployment(2, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 2, 2, 2))
		o.RollbackTo = new(int64(1))
		assert.Equal(t, []simulate.PredictedStep{{Action: "return to revision 1, set ms1"}}, simulate.PredictSteps(o))
	})
	t.Run(
		"nothing to do",
		func(t *testing.T) {
			assert.Empty(t, simulate.PredictSteps(rollingUpdateDeployment(2, 1, 0, currentSet(1, 2, 2, 2))))
		},
	)
	t.Run("in place, with a machine that is going and one that comes", func(t *testing.T) {
		o := withStrategy(
			rollout.InPlaceAuto,
			rollingUpdateDeployment(
				3,
				0,
				1,
				withChangedMachine(
					withAdditionalMachines(oldSet(1, 3, 3, 3), newMachine("out", asDeletingMachine)),
					0,
					asUnhealthyMachine,
				),
			),
		)
		o.HistoryLimit, o.MCM.ProtectsNodesFromAutoscaler = new(0), true
		plan := simulate.PredictSteps(o)
		assert.Equal(t, "delete 1 old set: 0 are kept", plan[len(plan)-1].Action)
		assert.Equal(t, []simulate.PredictedSetSize{{Set: "(new)", Replicas: 3, Current: true}}, plan[len(plan)-1].Sizes)
	})
	t.Run("every strategy but OnDelete ends with the new set alone", func(t *testing.T) {
		for _, s := range []rollout.Strategy{rollout.RollingUpdate, rollout.Recreate, rollout.InPlaceAuto} {
			plan := simulate.PredictSteps(
				withStrategy(s, rollingUpdateDeployment(7, 2, 1, oldSet(1, 4, 4, 4), currentSet(2, 3, 3, 3))),
			)
			require.NotEmpty(t, plan)
			assert.Equal(t, []simulate.PredictedSetSize{{Set: "ms2", Replicas: 7, Current: true}}, plan[len(plan)-1].Sizes, s)
		}
	})
}

func TestIdealDuration(t *testing.T) {
	for _, row := range []struct {
		name     string
		in       rollout.Facts
		want     time.Duration
		complete bool
	}{
		{"100 machines, surge 10: ten times a creation and a deletion", rollingUpdateDeployment(100, 10, 0, oldSet(1, 100, 100, 100)), 30 * time.Second, true},
		{"surge of all", rollingUpdateDeployment(100, 100, 0, oldSet(1, 100, 100, 100)), 3 * time.Second, true},
		{"no surge: each machine goes before one comes", rollingUpdateDeployment(3, 0, 1, oldSet(1, 3, 3, 3)), 9 * time.Second, true},
		{"a machine on its way out holds no place", withIgnoredDeletingMachines(rollingUpdateDeployment(100, 10, 0, oldSet(1, 100, 100, 100))), 21 * time.Second, true},
		{"steps", withRolloutSteps(rollingUpdateDeployment(2, 1, 0, oldSet(1, 2, 2, 2)), rollout.Step{Size: countValue(1), Wait: time.Minute}, rollout.Step{Size: countValue(2), NeedsApproval: true}), 65 * time.Second, true},
		{"OnDelete never ends by itself", withStrategy(rollout.OnDelete, rollingUpdateDeployment(3, 0, 0, oldSet(1, 3, 3, 3))), 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			took, complete := simulate.IdealDuration(row.in, 2*time.Second, time.Second)
			assert.Equal(t, row.complete, complete)
			assert.Equal(t, row.want, took)
		})
	}
}

func TestIdealDurationOfMachines(t *testing.T) {
	latencies := []time.Duration{time.Second, 5 * time.Second, 3 * time.Second}
	took, complete := simulate.IdealDurationOfMachines(
		rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3)),
		func() time.Duration {
			next := latencies[0]
			latencies = latencies[1:]
			return next
		},
		time.Second,
	)
	assert.True(t, complete)
	assert.Equal(t, 12*time.Second, took, "each creation and a deletion, one after the other")
	assert.Empty(t, latencies, "IdealDurationOfMachines calls create once for each new machine")
}
