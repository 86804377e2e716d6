package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

func inPlaceUpdateDeployment(replicas, surge, unavailable int, sets ...rollout.MachineSet) rollout.Facts {
	return withStrategy(rollout.InPlaceAuto, rollingUpdateDeployment(replicas, surge, unavailable, sets...))
}

// candidateSet returns the set with the label scale-up-disabled, and with all nodes labelled as candidates for an
// update.
func candidateSet(s rollout.MachineSet) rollout.MachineSet {
	return withoutScaleUp(withAllMachinesChanged(s, asUpdateCandidate))
}

func TestSetSizesOfInPlaceUpdate(t *testing.T) {
	for _, row := range []struct {
		name string
		in   rollout.Facts
		want map[string]int
	}{
		{"handed machines raise the new set, the old set is lowered", inPlaceUpdateDeployment(3, 0, 1, candidateSet(oldSet(1, 3, 2, 2)), withChangedMachine(currentSet(2, 0, 1, 1), 0, asHandedOverMachine)), map[string]int{"ms1": 2, "ms2": 1}},
		{"no more than the label says", inPlaceUpdateDeployment(6, 0, 1, candidateSet(oldSet(1, 4, 4, 4)), withChangedMachine(currentSet(2, 0, 2, 2), 0, asHandedOverMachine)), map[string]int{"ms2": 1}},
		{"handed machines of a template that was changed meanwhile are not too many", inPlaceUpdateDeployment(3, 0, 1, withoutScaleUp(withChangedMachine(withChangedMachine(oldSet(1, 0, 2, 2), 0, asHandedOverMachine), 1, asHandedOverMachine)), currentSet(2, 1, 1, 1)), map[string]int{"ms1": 2}},
		{"and stay its when the strategy is another one meanwhile", rollingUpdateDeployment(3, 0, 1, withoutScaleUp(oldSet(1, 2, 2, 2)), withChangedMachine(currentSet(2, 0, 1, 1), 0, asHandedOverMachine)), map[string]int{"ms2": 1}},
		{"those of a former template, too", rollingUpdateDeployment(4, 0, 1, withoutScaleUp(withChangedMachine(oldSet(1, 0, 1, 1), 0, asHandedOverMachine)), oldSet(2, 1, 1, 1), currentSet(3, 2, 2, 2)), map[string]int{"ms1": 1}},
		{"equal", inPlaceUpdateDeployment(3, 0, 1, currentSet(2, 3, 3, 3)), map[string]int{}},
		{"lower", inPlaceUpdateDeployment(2, 0, 1, currentSet(2, 3, 3, 3)), map[string]int{"ms2": 2}},
		{"without old machines", inPlaceUpdateDeployment(3, 0, 1, oldSet(1, 0, 0, 0), currentSet(2, 0, 0, 0)), map[string]int{"ms2": 3}},
		{"what is missing comes new", inPlaceUpdateDeployment(5, 0, 1, candidateSet(oldSet(1, 2, 2, 2)), currentSet(2, 1, 1, 1)), map[string]int{"ms2": 3}},
		{"without replicas", inPlaceUpdateDeployment(0, 0, 1, candidateSet(oldSet(1, 2, 2, 2)), currentSet(2, 0, 0, 0)), map[string]int{"ms1": 0}},
		{"scaled out on the way", inPlaceUpdateDeployment(6, 0, 1, candidateSet(oldSet(1, 2, 2, 2)), currentSet(2, 1, 1, 1)), map[string]int{"ms2": 4}},
		{"scaled in on the way", inPlaceUpdateDeployment(2, 0, 1, candidateSet(oldSet(1, 2, 2, 2)), currentSet(2, 1, 1, 1)), map[string]int{"ms1": 1}},
		{"the surge is the old set's end", inPlaceUpdateDeployment(3, 1, 0, candidateSet(oldSet(1, 1, 1, 1)), currentSet(2, 3, 3, 3)), map[string]int{"ms1": 0}},
		{"Auto, surge reached", inPlaceUpdateDeployment(3, 1, 0, candidateSet(oldSet(1, 3, 3, 3)), currentSet(2, 1, 1, 0)), map[string]int{}},
		{"Manual", withStrategy(rollout.InPlaceManual, inPlaceUpdateDeployment(3, 1, 0, candidateSet(oldSet(1, 3, 3, 3)), currentSet(2, 0, 0, 0))), map[string]int{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, changedSizes(rollout.Decide(row.in)))
		})
	}
}

func TestNodesSelectedForInPlaceUpdate(t *testing.T) {
	busy := func(n int, s rollout.MachineSet) rollout.MachineSet {
		for i := range n {
			s = withChangedMachine(s, i, asUpdatingMachine)
		}
		return s
	}
	for _, row := range []struct {
		name string
		in   rollout.Facts
		want []string
	}{
		{"one at a time", inPlaceUpdateDeployment(3, 0, 1, candidateSet(oldSet(1, 3, 3, 3)), currentSet(2, 0, 0, 0)), []string{"ms1-00"}},
		{"the new one is not available yet", inPlaceUpdateDeployment(3, 0, 1, candidateSet(oldSet(1, 2, 2, 2)), currentSet(2, 1, 1, 0)), nil},
		{"those under way count", inPlaceUpdateDeployment(6, 0, 3, candidateSet(oldSet(1, 6, 6, 6)), currentSet(2, 0, 0, 0)), []string{"ms1-00", "ms1-01", "ms1-02"}},
		{"two are under way", inPlaceUpdateDeployment(6, 0, 3, busy(2, candidateSet(oldSet(1, 6, 6, 6))), currentSet(2, 0, 0, 0)), []string{"ms1-02"}},
		{"all that may are under way", inPlaceUpdateDeployment(6, 0, 3, busy(3, candidateSet(oldSet(1, 6, 6, 6))), currentSet(2, 0, 0, 0)), nil},
		{"nothing to do", inPlaceUpdateDeployment(3, 0, 1, currentSet(2, 3, 3, 3)), nil},
		{"all", inPlaceUpdateDeployment(2, 0, 2, candidateSet(oldSet(1, 2, 2, 2)), currentSet(2, 0, 0, 0)), []string{"ms1-00", "ms1-01"}},
		{"the only one", inPlaceUpdateDeployment(3, 0, 3, withChangedMachine(withoutScaleUp(oldSet(1, 3, 3, 3)), 1, asUpdateCandidate), currentSet(2, 0, 0, 0)), []string{"ms1-01"}},
		{"all are selected already", inPlaceUpdateDeployment(2, 0, 2, busy(2, candidateSet(oldSet(1, 2, 2, 2))), currentSet(2, 0, 0, 0)), nil},
		{"none is labelled", inPlaceUpdateDeployment(3, 0, 1, withoutScaleUp(oldSet(1, 3, 3, 3)), currentSet(2, 0, 0, 0)), nil},
		{"no more than the new set wants", inPlaceUpdateDeployment(3, 0, 3, candidateSet(oldSet(1, 1, 1, 1)), currentSet(2, 2, 2, 2)), []string{"ms1-00"}},
		{"the unhealthy first, they cost nothing", inPlaceUpdateDeployment(3, 0, 1, withChangedMachine(candidateSet(oldSet(1, 3, 3, 3)), 2, asUnavailableMachine), currentSet(2, 0, 0, 0)), []string{"ms1-02"}},
		{"Manual: a person does that", withStrategy(rollout.InPlaceManual, inPlaceUpdateDeployment(3, 0, 1, candidateSet(oldSet(1, 3, 3, 3)), currentSet(2, 0, 0, 0))), nil},
		{"the oldest set first", inPlaceUpdateDeployment(4, 0, 1, candidateSet(oldSet(1, 2, 2, 2)), candidateSet(oldSet(2, 2, 2, 2)), currentSet(3, 0, 0, 0)), []string{"ms1-00"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := rollout.Decide(row.in)
			assert.Equal(t, row.want, targetNames(d.Select))
		})
	}
}

func TestRolloutStepsOfInPlaceUpdate(t *testing.T) {
	t.Run("old sets are closed, then their nodes become candidates", func(t *testing.T) {
		o := inPlaceUpdateDeployment(3, 0, 1, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0))
		assert.Equal(t, []string{"ms1"}, targetNames(rollout.Decide(o).ForbidScaleUp))
		o.Sets[0].ScaleUpDisabled = true
		assert.Len(t, rollout.Decide(o).Candidates, 3)
	})
	t.Run("an updated machine is handed over before others are selected", func(t *testing.T) {
		d := rollout.Decide(
			inPlaceUpdateDeployment(
				3,
				0,
				1,
				withChangedMachine(candidateSet(oldSet(1, 3, 3, 3)), 1, asUpdatedMachine),
				currentSet(2, 0, 0, 0),
			),
		)
		assert.Equal(t, []rollout.MachineMove{
			{
				Machine: rollout.ObjectTarget{
					Name:    "ms1-01",
					UID:     "uid-ms1-01",
					Version: "7",
					Node:    "node-ms1-01",
					Why:     "it was updated in place",
				},
				From:  "ms1",
				To:    "ms2",
				ToUID: "uid-ms2",
			},
		}, d.Move)
		assert.Empty(t, d.Select)
		assert.Equal(t, "hand over 1 machine", d.Why)
	})
	t.Run("its node serves again, and only then goes the label that protects it", func(t *testing.T) {
		o := inPlaceUpdateDeployment(
			3,
			0,
			1,
			candidateSet(oldSet(1, 2, 2, 2)),
			withChangedMachine(currentSet(2, 1, 1, 1), 0, asHandedOverMachine),
		)
		d := rollout.Decide(o)
		assert.Equal(t, []string{"ms2-00"}, targetNames(d.FinishUpdate))
		assert.Empty(t, d.ClearUpdateResult)
		o.Sets[1] = withChangedMachine(
			o.Sets[1],
			0,
			func(m *rollout.Member) {
				m.MCM.Updated, m.MCM.HasUpdateLabels, m.MCM.IsUpdateCandidate = false, false, false
			},
		)
		assert.Equal(t, []string{"ms2-00"}, targetNames(rollout.Decide(o).ClearUpdateResult))
		o.Sets[1].ObservedReplicas = 0
		assert.Empty(
			t,
			rollout.Decide(o).ClearUpdateResult,
			"the set may still act on its former size, for which the machine is one too many",
		)
	})
	t.Run("one whose label is to go is no candidate: it would keep it", func(t *testing.T) {
		o := inPlaceUpdateDeployment(
			3,
			0,
			1,
			withoutScaleUp(withChangedMachine(oldSet(1, 1, 1, 1), 0, func(m *rollout.Member) { m.MCM.HandedOver = true })),
			currentSet(2, 2, 2, 2),
		)
		d := rollout.Decide(o)
		assert.Equal(t, []string{"ms1-00"}, targetNames(d.ClearUpdateResult))
		assert.Empty(t, d.Candidates)
	})
	t.Run("one that was updated serves again when the strategy is another one meanwhile", func(t *testing.T) {
		o := withoutScaleUp(withChangedMachine(oldSet(1, 3, 3, 3), 0, asUpdatedMachine))
		assert.Empty(t, rollout.Decide(inPlaceUpdateDeployment(3, 0, 1, o, currentSet(2, 0, 0, 0))).FinishUpdate)
		assert.Equal(
			t,
			[]string{"ms1-00"},
			targetNames(
				rollout.Decide(
					withStrategy(rollout.OnDelete, inPlaceUpdateDeployment(3, 0, 1, o, currentSet(2, 0, 0, 0))),
				).FinishUpdate,
			),
		)
	})
	t.Run("whatever the strategy has become, none goes that has to serve", func(t *testing.T) {
		give := withChangedMachine(
			withChangedMachine(oldSet(1, 0, 1, 1), 0, asHandedOverMachine),
			0,
			func(m *rollout.Member) {
				m.MCM.Updated, m.MCM.HasUpdateLabels, m.MCM.IsUpdateCandidate = false, false, false
			},
		)
		o := rollingUpdateDeployment(3, 0, 1, withoutScaleUp(give), currentSet(2, 1, 1, 1))
		assert.Empty(t, rollout.Decide(o).ClearUpdateResult)
		assert.Equal(
			t,
			[]string{"ms1-00"},
			targetNames(rollout.Decide(withStrategy(rollout.Recreate, o)).ClearUpdateResult),
			"which promises nothing",
		)
		o.Sets[1] = currentSet(2, 3, 3, 3)
		assert.Equal(t, []string{"ms1-00"}, targetNames(rollout.Decide(o).ClearUpdateResult), "there are others")
	})
	t.Run("one that was handed over is no updated one for the template after", func(t *testing.T) {
		d := rollout.Decide(
			inPlaceUpdateDeployment(
				3,
				0,
				1,
				withChangedMachine(candidateSet(oldSet(1, 3, 3, 3)), 0, asHandedOverMachine),
				currentSet(2, 0, 0, 0),
			),
		)
		assert.Empty(t, d.Move)
		assert.Equal(t, []string{"ms1-00"}, targetNames(d.FinishUpdate))
	})
	t.Run("a set that is the current one again may make machines, and its nodes are no candidates", func(t *testing.T) {
		o := inPlaceUpdateDeployment(3, 0, 1, candidateSet(currentSet(1, 3, 3, 3)), oldSet(2, 0, 0, 0))
		o.Sets[0].Revision = 3
		assert.Equal(t, []string{"ms1"}, targetNames(rollout.Decide(o).AllowScaleUp))
		o.Sets[0].ScaleUpDisabled = false
		assert.Len(t, rollout.Decide(o).ClearUpdateLabels, 3)
	})
	t.Run("it does not make again what it gave away", func(t *testing.T) {
		o := inPlaceUpdateDeployment(3, 0, 1, candidateSet(currentSet(1, 3, 1, 1)), candidateSet(oldSet(2, 0, 2, 2)))
		o.Sets[0].Revision = 3
		d := rollout.Decide(o)
		assert.Equal(t, map[string]int{"ms1": 1}, changedSizes(d))
		assert.Empty(t, d.AllowScaleUp)
	})
	t.Run("what it waits for", func(t *testing.T) {
		busy := inPlaceUpdateDeployment(
			3,
			0,
			1,
			withChangedMachine(candidateSet(oldSet(1, 3, 3, 3)), 0, asUpdatingMachine),
			currentSet(2, 0, 0, 0),
		)
		assert.Equal(t, "1 machine being updated in place", rollout.Decide(busy).Hold)
		manual := withStrategy(
			rollout.InPlaceManual,
			inPlaceUpdateDeployment(3, 0, 1, candidateSet(oldSet(1, 3, 3, 3)), currentSet(2, 0, 0, 0)),
		)
		assert.Equal(t, "a person has to select the next nodes", rollout.Decide(manual).Hold)
		ill := inPlaceUpdateDeployment(
			3,
			0,
			1,
			withChangedMachine(candidateSet(oldSet(1, 3, 3, 3)), 0, asFailedMachine),
			currentSet(2, 0, 0, 0),
		)
		assert.Equal(t, "2 available, 2 needed", rollout.Decide(ill).Hold)
	})
}
