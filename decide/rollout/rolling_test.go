package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

func TestARollingUpdateResizesTheCurrentSet(t *testing.T) {
	for _, row := range []struct {
		name string
		in   rollout.Facts
		want map[string]int
	}{
		{"0 to 2", rollingUpdateDeployment(2, 2, 0, currentSet(1, 0, 0, 0)), map[string]int{"ms1": 2}},
		{"2 to 0", rollingUpdateDeployment(0, 2, 0, currentSet(1, 2, 2, 2)), map[string]int{"ms1": 0}},
		{"not above 3 and 2", rollingUpdateDeployment(3, 2, 0, oldSet(1, 3, 3, 3), currentSet(2, 1, 0, 0)), map[string]int{"ms2": 2}},
		{
			"machines on their way out count",
			rollingUpdateDeployment(1, 0, 0, withAdditionalMachines(oldSet(1, 0, 0, 0), newMachine("out", asDeletingMachine)), currentSet(2, 0, 0, 0)),
			map[string]int{},
		},
		{
			"unless they are not to",
			withIgnoredDeletingMachines(rollingUpdateDeployment(1, 0, 0, withAdditionalMachines(oldSet(1, 0, 0, 0), newMachine("out", asDeletingMachine)), currentSet(2, 0, 0, 0))),
			map[string]int{"ms2": 1},
		},
		{
			"what a set is about to make counts, and what it says that it has",
			rollingUpdateDeployment(3, 2, 0, withStatusMachineCount(oldSet(1, 3, 3, 3), 4), currentSet(2, 1, 0, 0)),
			map[string]int{},
		},
		{
			"a set that has not seen its size may still make machines",
			rollingUpdateDeployment(4, 2, 0, withObservedReplicas(oldSet(1, 3, 3, 3), 5), currentSet(2, 1, 1, 1)),
			map[string]int{},
		},
		{
			"machines of a set that is being deleted count",
			rollingUpdateDeployment(3, 1, 0, withDeletion(oldSet(1, 0, 2, 2)), currentSet(2, 0, 0, 0)),
			map[string]int{"ms2": 2},
		},
		{"scaling out goes to the new set only", rollingUpdateDeployment(8, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 1, 1, 1)), map[string]int{"ms2": 6}},
		{"the size is right", rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 3)), map[string]int{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, changedSizes(rollout.Decide(row.in)))
		})
	}
	t.Run("the mark that forbids creation goes, before anything else", func(t *testing.T) {
		d := rollout.Decide(rollingUpdateDeployment(2, 0, 0, withoutScaleUp(currentSet(1, 2, 0, 0))))
		assert.Equal(t, []string{"ms1"}, targetNames(d.AllowScaleUp))
		assert.Empty(t, d.Resize)
	})
}

func withIgnoredDeletingMachines(o rollout.Facts) rollout.Facts {
	o.IgnoresDeletingMachines = true
	return o
}

func withStatusMachineCount(s rollout.MachineSet, n int) rollout.MachineSet {
	s.StatusMachineCount = n
	return s
}

func withObservedReplicas(s rollout.MachineSet, n int) rollout.MachineSet {
	s.ObservedReplicas = n
	return s
}

func withDeletion(s rollout.MachineSet) rollout.MachineSet    { s.Deleting = true; return s }
func listOfSets(s ...rollout.MachineSet) []rollout.MachineSet { return s }
func rollingUpdateDeploymentOfSets(r, s, u int, l []rollout.MachineSet) rollout.Facts {
	return rollingUpdateDeployment(r, s, u, l...)
}

func withAllMachinesChanged(s rollout.MachineSet, f func(*rollout.Member)) rollout.MachineSet {
	for i := range s.Machines {
		s = withChangedMachine(s, i, f)
	}
	return s
}

func TestARollingUpdateResizesOldSets(t *testing.T) {
	held := map[string]int{}
	for _, row := range []struct {
		name string
		in   rollout.Facts
		want map[string]int
	}{
		{"no replicas", rollingUpdateDeploymentOfSets(10, 1, 0, listOfSets(oldSet(1, 0, 0, 0), currentSet(2, 10, 10, 10))), held},
		{"exactly as many available as needed", rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 2, 2, 2), currentSet(2, 2, 2, 1))), held},
		{"fewer available than needed", rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 2, 2, 1), currentSet(2, 2, 1, 1))), held},
		{"being scaled down already", rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 2, 3, 3), currentSet(2, 1, 1, 1))), held},
		{"a machine under in-place update", rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 2, 2, 2), withChangedMachine(oldSet(2, 1, 1, 1), 0, asUpdatingMachine), currentSet(3, 1, 1, 1))), held},
		{"another one is being scaled down", rollingUpdateDeploymentOfSets(6, 3, 1, listOfSets(oldSet(1, 2, 3, 3), oldSet(2, 3, 3, 3), currentSet(3, 3, 0, 0))), held},
		{"all unavailable, surge 1", rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 3, 3, 0), currentSet(2, 1, 1, 0))), held},
		{"all unavailable, surge 0", rollingUpdateDeploymentOfSets(3, 0, 1, listOfSets(oldSet(1, 2, 2, 0), currentSet(2, 1, 1, 0))), held},
		{"this round takes from the new set", rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 1, 1, 1), currentSet(2, 4, 4, 3))), map[string]int{"ms2": 3}},
		{"this round takes from an old set", rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 2, 2, 2), oldSet(2, 1, 1, 1), currentSet(3, 1, 1, 1))), map[string]int{"ms1": 1}},
		{"the new set has unavailable ones", rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 3, 3, 3), currentSet(2, 1, 1, 0))), held},
		{"all available", rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 3, 3, 3), currentSet(2, 1, 1, 1))), map[string]int{"ms1": 2}},
		{
			"unavailable ones first",
			rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 2, 2, 2), oldSet(2, 1, 1, 0), oldSet(3, 2, 2, 0), currentSet(4, 1, 1, 1))),
			map[string]int{"ms2": 0, "ms3": 0},
		},
		{
			"then available ones",
			rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 3, 3, 3), oldSet(2, 1, 1, 0), oldSet(3, 2, 2, 0), currentSet(4, 1, 1, 1))),
			map[string]int{"ms2": 0, "ms3": 0, "ms1": 2},
		},
		{
			"not misled by replicas without machine",
			rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 4, 3, 3), oldSet(2, 2, 1, 0), oldSet(3, 5, 2, 0), currentSet(4, 1, 1, 1))),
			map[string]int{"ms2": 0, "ms3": 0, "ms1": 2},
		},
		{
			"stops before too few are available",
			rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 1, 1, 1), oldSet(2, 1, 1, 0), oldSet(3, 2, 2, 1), currentSet(4, 1, 1, 1))),
			map[string]int{"ms2": 0},
		},
		{
			"stops in time, not misled",
			rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 2, 1, 1), oldSet(2, 3, 1, 0), oldSet(3, 3, 2, 1), currentSet(4, 1, 1, 1))),
			map[string]int{"ms1": 1, "ms2": 0, "ms3": 2},
		},
		{"an earlier scale-down is counted", rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 3, 4, 4), currentSet(2, 2, 2, 2))), map[string]int{"ms1": 1}},
		{"a scale-down of the new set is counted", rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 3, 3, 3), currentSet(2, 4, 4, 4))), map[string]int{"ms1": 0, "ms2": 3}},
		{"a scale-down of an old set is counted", rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 1, 1, 0), oldSet(2, 3, 3, 3), currentSet(3, 2, 2, 2))), map[string]int{"ms1": 0, "ms2": 1}},
		{
			"a sick machine goes first for sure: nothing is risked",
			rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(withChangedMachine(oldSet(1, 3, 3, 3), 2, asUnhealthyMachine), currentSet(2, 1, 1, 1))),
			map[string]int{"ms1": 2},
		},
		{
			"but not where a person chose an available one",
			rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(withChangedMachine(withChangedMachine(oldSet(1, 3, 3, 3), 2, asUnhealthyMachine), 0, func(m *rollout.Member) { m.DeleteFirst = true }), currentSet(2, 2, 2, 1))), held,
		},
		{
			"a failed machine that is preserved is not waited for",
			rollingUpdateDeploymentOfSets(3, 1, 0, listOfSets(oldSet(1, 1, 1, 1), withChangedMachine(currentSet(2, 3, 3, 3), 0, asFailedMachine, asPreservedMachine))),
			map[string]int{"ms1": 0},
		},
		{
			"fewer wanted: new machines that are not available go before a bound is broken for long",
			rollingUpdateDeploymentOfSets(6, 3, 1, listOfSets(oldSet(1, 6, 6, 6), withAllMachinesChanged(currentSet(2, 6, 6, 0), asUnhealthyMachine))),
			map[string]int{"ms1": 5, "ms2": 4},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := rollout.Decide(row.in)
			assert.Equal(t, row.want, changedSizes(d))
			assert.Empty(t, forcedResizeSetNames(d))
			if len(row.want) == 0 && !d.Complete {
				assert.NotEmpty(t, d.Hold)
				assert.Equal(t, d.Hold, d.Why)
			}
		})
	}
	t.Run("the old set has unavailable ones, and might take an available one: only to end a deadlock", func(t *testing.T) {
		d := rollout.Decide(rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 2), currentSet(2, 1, 1, 1)))
		assert.Equal(t, []string{"ms1"}, forcedResizeSetNames(d))
		d = rollout.Decide(
			rollingUpdateDeployment(
				3,
				1,
				0,
				oldSet(1, 3, 3, 2),
				withAdditionalMachines(currentSet(2, 1, 1, 1), newMachine("out", asDeletingMachine)),
			),
		)
		assert.Empty(t, changedSizes(d))
	})
}

func TestADeadlockIsBroken(t *testing.T) {
	none := []string(nil)
	for _, row := range []struct {
		name string
		in   rollout.Facts
		want []string
	}{
		{"no replicas in old sets", rollingUpdateDeployment(10, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 10, 10, 10)), none},
		{"all of old sets are available", rollingUpdateDeployment(9, 1, 0, oldSet(1, 5, 5, 5), currentSet(2, 5, 5, 5)), none},
		{"the new set is still scaling", rollingUpdateDeployment(10, 1, 0, oldSet(1, 5, 5, 4), currentSet(2, 6, 5, 5)), none},
		{"an old set is still scaling", rollingUpdateDeployment(10, 1, 0, oldSet(1, 5, 6, 4), currentSet(2, 5, 5, 5)), none},
		{"this round scales the new set", rollingUpdateDeployment(10, 1, 0, oldSet(1, 5, 5, 4), currentSet(2, 5, 5, 5)), none},
		{"this round scales an old set", rollingUpdateDeployment(8, 1, 0, oldSet(1, 5, 5, 4), currentSet(2, 5, 5, 5)), none},
		{"the new set has unavailable machines", rollingUpdateDeployment(9, 1, 0, oldSet(1, 5, 5, 4), currentSet(2, 5, 5, 3)), none},
		{"nothing else can move", rollingUpdateDeployment(9, 1, 0, oldSet(1, 5, 5, 4), currentSet(2, 5, 5, 5)), []string{"ms1"}},
		{"nor while a machine is under update", rollingUpdateDeployment(9, 1, 0, withChangedMachine(oldSet(1, 5, 5, 5), 0, asUpdatingMachine), currentSet(2, 5, 5, 5)), none},
		{"the oldest one that can", rollingUpdateDeployment(9, 1, 0, oldSet(1, 2, 2, 2), oldSet(2, 3, 3, 2), currentSet(3, 5, 5, 5)), []string{"ms2"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, forcedResizeSetNames(rollout.Decide(row.in)))
		})
	}
}

// A set whose status does not show its new size may still create machines. Machines that the set may still create count
// against Replicas plus surge, but are not existing machines.
func TestIdleReasonCountsExistingMachines(t *testing.T) {
	gone := func(s rollout.MachineSet) rollout.MachineSet {
		return withAdditionalMachines(s, newMachine("out", asDeletingMachine))
	}
	for _, row := range []struct {
		name, want string
		old        rollout.MachineSet
	}{
		{"all are there", "no room: 3 of at most 3 machines exist or are being deleted", gone(oldSet(1, 1, 1, 1))},
		{
			"the set has not said that it has seen its size", "no room: 3 of at most 3 machines exist or are being deleted; 1 more may exist or be created",
			withObservedReplicas(gone(oldSet(1, 1, 1, 1)), 2),
		},
		{
			"the set counts one that was not read", "no room: 2 of at most 3 machines exist or are being deleted; 1 more may exist or be created",
			withStatusMachineCount(oldSet(1, 1, 1, 1), 2),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := rollout.Decide(rollingUpdateDeployment(2, 1, 0, row.old, currentSet(2, 1, 1, 1)))
			assert.Empty(t, changedSizes(d))
			assert.Equal(t, row.want, d.Why)
		})
	}
}
