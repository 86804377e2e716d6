package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

func TestSetWithTheTemplateIsFoundOrCreated(t *testing.T) {
	for _, row := range []struct {
		name string
		in   rollout.Facts
		want *rollout.SetCreation
	}{
		{"no set yet", rollingUpdateDeployment(0, 1, 0), &rollout.SetCreation{Revision: 1, Max: 0}},
		{"with machines", rollingUpdateDeployment(3, 1, 0), &rollout.SetCreation{Replicas: 3, Revision: 1, Desired: 3, Max: 4}},
		{"invalid", withInvalidSpec(rollingUpdateDeployment(3, 1, 0)), nil},
		{"RollingUpdate", rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3)), &rollout.SetCreation{Replicas: 1, Revision: 2, Desired: 3, Max: 4}},
		{"Recreate, old machines are there", withStrategy(rollout.Recreate, rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3))), &rollout.SetCreation{Revision: 2, Desired: 3, Max: 3}},
		{"Recreate, none is", withStrategy(rollout.Recreate, rollingUpdateDeployment(3, 1, 0, oldSet(1, 0, 0, 0))), &rollout.SetCreation{Replicas: 3, Revision: 2, Desired: 3, Max: 3}},
		{"in-place Auto has its surge", withStrategy(rollout.InPlaceAuto, rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3))), &rollout.SetCreation{Replicas: 1, Revision: 2, Desired: 3, Max: 3}},
		{"in-place Manual begins with none", withStrategy(rollout.InPlaceManual, rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3))), &rollout.SetCreation{Revision: 2, Desired: 3, Max: 3}},
		{"OnDelete begins with none", withStrategy(rollout.OnDelete, rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3))), &rollout.SetCreation{Revision: 2, Desired: 3, Max: 3}},
		{"one that is being deleted is none", rollingUpdateDeployment(3, 1, 0, withDeletion(currentSet(1, 0, 0, 0))), &rollout.SetCreation{Replicas: 3, Revision: 2, Desired: 3, Max: 4}},
		{"paused: none is made", withPause(rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3))), nil},
		{"in steps: as many as the first wants", withRolloutSteps(rollingUpdateDeployment(10, 5, 0, oldSet(1, 10, 10, 10)), rollout.Step{Size: countValue(2), NeedsApproval: true}), &rollout.SetCreation{Replicas: 2, Revision: 2, Desired: 10, Max: 15}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := rollout.Decide(row.in)
			assert.Equal(t, row.want, d.Create)
			assert.Empty(t, d.Resize)
		})
	}
	t.Run("all as it should be", func(t *testing.T) {
		d := rollout.Decide(rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 3)))
		assert.False(t, d.HasActions())
		assert.True(t, d.Complete)
		assert.Equal(t, "3 machines wanted and there, all of revision 1", d.Why)
	})
	t.Run("a deployment that is being deleted deletes its sets", func(t *testing.T) {
		o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 3, 3, 3), withDeletion(oldSet(3, 0, 0, 0)))
		o.Deleting = true
		d := rollout.Decide(o)
		assert.Equal(t, []string{"ms1", "ms2"}, targetNames(d.Delete))
		assert.False(t, d.Done)
		o.Sets = nil
		assert.True(t, rollout.Decide(o).Done)
	})
	t.Run(
		"a set that is deleted with --cascade=orphan is made again when it is gone, and then adopts its machines",
		func(t *testing.T) {
			set := withDeletion(currentSet(2, 3, 3, 3))
			set.Orphaning = true
			d := rollout.Decide(rollingUpdateDeployment(3, 3, 0, oldSet(1, 0, 0, 0), set))
			assert.False(t, d.HasActions())
			assert.Equal(
				t,
				"set ms2 is being deleted and has let go of its machines: when it is gone, a new one takes them",
				d.Why,
			)
			free := withDeletion(currentSet(2, 3, 0, 0))
			free.HasFinalizer = true
			assert.False(
				t,
				rollout.Decide(rollingUpdateDeployment(3, 3, 0, free)).HasActions(),
				"the garbage collector is done, and the set is not gone yet",
			)
			free.HasFinalizer = false
			assert.NotNil(
				t,
				rollout.Decide(rollingUpdateDeployment(3, 3, 0, free)).Create,
				"the finalizer of somebody else is not waited for",
			)
			set.Current = false
			assert.NotNil(
				t,
				rollout.Decide(rollingUpdateDeployment(3, 3, 0, set)).Create,
				"a set of another template is not waited for",
			)
		},
	)
	t.Run("of two with the template, the oldest is the one", func(t *testing.T) {
		d := rollout.Decide(rollingUpdateDeployment(3, 1, 0, currentSet(2, 3, 3, 3), currentSet(1, 1, 1, 1)))
		assert.Equal(t, "ms1", d.Revise.Name)
		assert.Equal(t, int64(3), d.Revise.Revision)
	})
	t.Run("an invalid one says so, and can still go", func(t *testing.T) {
		o := withInvalidSpec(rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 3)))
		assert.Equal(t, "the selector is empty", rollout.Decide(o).Why)
		assert.Equal(t, "Invalid", rollout.Decide(o).HoldBy)
		o.Deleting = true
		assert.Len(t, rollout.Decide(o).Delete, 1)
	})
}

func withInvalidSpec(o rollout.Facts) rollout.Facts {
	o.InvalidReason = "the selector is empty"
	return o
}
func withPause(o rollout.Facts) rollout.Facts { o.Paused = true; return o }

func withRolloutSteps(o rollout.Facts, steps ...rollout.Step) rollout.Facts {
	o.Steps = steps
	return o
}

func TestRecreateStrategy(t *testing.T) {
	recreate := func(sets ...rollout.MachineSet) rollout.Decision {
		return rollout.Decide(withStrategy(rollout.Recreate, rollingUpdateDeployment(3, 1, 1, sets...)))
	}
	t.Run("first the old set goes to 0", func(t *testing.T) {
		assert.Equal(t, map[string]int{"ms1": 0}, changedSizes(recreate(oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0))))
	})
	t.Run("it waits until the last old machine is gone", func(t *testing.T) {
		d := recreate(
			withAdditionalMachines(oldSet(1, 0, 0, 0), newMachine("out", asDeletingMachine)),
			currentSet(2, 0, 0, 0),
		)
		assert.Empty(t, changedSizes(d))
		assert.Equal(t, "1 machine of old templates still there", d.Hold)
		assert.True(t, d.Rolling)
	})
	t.Run("it waits until no old set may create a machine", func(t *testing.T) {
		empty := oldSet(1, 1, 0, 0)
		assert.Equal(t, map[string]int{"ms1": 0}, changedSizes(recreate(empty, currentSet(2, 0, 0, 0))))
		empty.Replicas, empty.ObservedReplicas = 0, 1
		assert.Empty(t, changedSizes(recreate(empty, currentSet(2, 0, 0, 0))))
	})
	t.Run("then the new set gets its full size", func(t *testing.T) {
		assert.Equal(t, map[string]int{"ms2": 3}, changedSizes(recreate(oldSet(1, 0, 0, 0), currentSet(2, 0, 0, 0))))
	})
	t.Run("without a block of bounds nothing is an error, and nothing may be missing", func(t *testing.T) {
		o := withStrategy(rollout.Recreate, rollingUpdateDeployment(3, 0, 0, currentSet(1, 3, 3, 2)))
		assert.Equal(t, rollout.Condition{
			Type:    "Available",
			Status:  "False",
			Reason:  "MinimumReplicasUnavailable",
			Message: "2 of 3 machines available, 3 needed",
		}, rollout.PlannedStatus(o).Conditions[0])
		assert.False(t, rollout.Decide(o).HasActions())
	})
}

func TestOnDeleteStrategy(t *testing.T) {
	onDelete := func(replicas int, sets ...rollout.MachineSet) rollout.Decision {
		return rollout.Decide(withStrategy(rollout.OnDelete, rollingUpdateDeployment(replicas, 3, 3, sets...)))
	}
	t.Run("old sets make no machines any more", func(t *testing.T) {
		assert.Equal(t, []string{"ms1"}, targetNames(onDelete(3, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0)).ForbidScaleUp))
	})
	t.Run("they stay", func(t *testing.T) {
		d := onDelete(3, withoutScaleUp(oldSet(1, 3, 3, 3)), currentSet(2, 0, 0, 0))
		assert.Empty(t, changedSizes(d))
		assert.Equal(t, "3 machines of old templates stay until somebody deletes them", d.Hold)
	})
	t.Run("what is deleted comes back in the new set, once it is gone", func(t *testing.T) {
		assert.Equal(
			t,
			map[string]int{"ms1": 2},
			changedSizes(
				onDelete(
					3,
					withAdditionalMachines(withoutScaleUp(oldSet(1, 3, 2, 2)), newMachine("out", asDeletingMachine)),
					currentSet(2, 0, 0, 0),
				),
			),
		)
		assert.Equal(
			t,
			map[string]int{"ms2": 1},
			changedSizes(onDelete(3, withoutScaleUp(oldSet(1, 2, 2, 2)), currentSet(2, 0, 0, 0))),
		)
	})
	t.Run("fewer wanted: new ones go first that do not serve yet", func(t *testing.T) {
		assert.Equal(
			t,
			map[string]int{"ms2": 1},
			changedSizes(onDelete(4, withoutScaleUp(oldSet(1, 3, 3, 3)), currentSet(2, 3, 3, 0))),
		)
		assert.Equal(
			t,
			map[string]int{"ms1": 1, "ms2": 1},
			changedSizes(onDelete(2, withoutScaleUp(oldSet(1, 3, 3, 3)), currentSet(2, 2, 2, 1))),
		)
	})
	t.Run("old ones serve as long as those have not gone", func(t *testing.T) {
		assert.Empty(
			t,
			changedSizes(onDelete(4, withoutScaleUp(oldSet(1, 3, 3, 3)), withObservedReplicas(currentSet(2, 3, 1, 0), 0))),
		)
	})
	t.Run("fewer wanted: from the oldest set", func(t *testing.T) {
		assert.Equal(
			t,
			map[string]int{"ms1": 0, "ms2": 1},
			changedSizes(
				onDelete(3, withoutScaleUp(oldSet(1, 2, 2, 2)), withoutScaleUp(oldSet(2, 2, 2, 2)), currentSet(3, 2, 2, 2)),
			),
		)
	})
}

func TestSurgeAndUnavailable(t *testing.T) {
	for _, row := range []struct {
		name               string
		in                 rollout.Facts
		surge, unavailable int
	}{
		{"Recreate", withStrategy(rollout.Recreate, rollingUpdateDeployment(5, 1, 1)), 0, 0},
		{"0 replicas", rollingUpdateDeployment(0, 1, 1), 0, 0},
		{"1 of 5", rollingUpdateDeployment(5, 1, 1), 1, 1},
		{"10 of 5 is capped", rollingUpdateDeployment(5, 1, 10), 1, 5},
		{"in-place Manual has no surge", withStrategy(rollout.InPlaceManual, rollingUpdateDeployment(5, 1, 0)), 0, 1},
		{"in-place Auto", withStrategy(rollout.InPlaceAuto, rollingUpdateDeployment(5, 1, 0)), 1, 0},
		{"both zero", rollingUpdateDeployment(5, 0, 0), 0, 1},
		{"surge is rounded up, unavailable down", rollout.Facts{Settings: rollout.Settings{Strategy: rollout.RollingUpdate, Replicas: 5, MaxSurge: percentValue(25), MaxUnavailable: percentValue(25)}}, 2, 1},
		{"no number below zero", rollingUpdateDeployment(5, -3, 1), 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			surge, unavailable := rollout.SurgeAndUnavailable(row.in)
			assert.Equal(t, []int{row.surge, row.unavailable}, []int{surge, unavailable})
		})
	}
}

func TestScalingWhilePaused(t *testing.T) {
	max12 := func(s rollout.MachineSet) rollout.MachineSet { s.DesiredReplicas, s.MaxReplicas = 10, 12; return s }
	max10 := func(s rollout.MachineSet) rollout.MachineSet { s.DesiredReplicas, s.MaxReplicas = 10, 10; return s }
	frozen := func(replicas, surge int, sets ...rollout.MachineSet) rollout.Decision {
		o := rollout.Facts{
			Now: epoch,
			Settings: rollout.Settings{
				Replicas: replicas,
				Strategy: rollout.RollingUpdate,
				MaxSurge: countValue(surge),
			},
			Sets:             sets,
			OperatorRequests: rollout.OperatorRequests{Paused: true},
		}
		o.Progress.Revision = 2
		for _, s := range sets {
			for _, m := range s.Machines {
				if m.MCM.MarkedAt != "" {
					o.MCM.TriggerAnnotation += "," + m.Name + "~" + m.MCM.MarkedAt
				}
			}
		}
		o.MCM.TriggerAnnotation = strings.TrimPrefix(o.MCM.TriggerAnnotation, ",")
		return rollout.Decide(o)
	}
	for _, row := range []struct {
		name string
		in   rollout.Decision
		want map[string]int
	}{
		{"sizes stay", frozen(10, 2, max12(oldSet(1, 8, 8, 8)), max12(currentSet(2, 4, 4, 4))), map[string]int{}},
		{"out, to the new set only", frozen(14, 2, max12(oldSet(1, 8, 8, 8)), max12(currentSet(2, 4, 4, 4))), map[string]int{"ms2": 6}},
		{"in, with nothing left over", frozen(4, 2, max12(oldSet(1, 8, 8, 8)), max12(currentSet(2, 4, 4, 4))), map[string]int{"ms1": 4, "ms2": 2}},
		{"in, what is left over falls on the largest", frozen(5, 0, max10(oldSet(1, 4, 4, 4)), max10(oldSet(2, 3, 3, 3)), max10(currentSet(3, 3, 3, 3))), map[string]int{"ms1": 1, "ms2": 2, "ms3": 2}},
		{"in to none", frozen(0, 2, max12(oldSet(1, 8, 8, 8)), max12(currentSet(2, 4, 4, 4))), map[string]int{"ms1": 0, "ms2": 0}},
		{"a single set takes it all", frozen(3, 2, max12(oldSet(1, 8, 8, 8)), max12(currentSet(2, 0, 0, 0))), map[string]int{"ms1": 3}},
		{"out, single", frozen(9, 2, max12(oldSet(1, 8, 8, 8)), max12(currentSet(2, 0, 0, 0))), map[string]int{"ms1": 9}},
		{"none is active", frozen(2, 2, max12(oldSet(1, 0, 0, 0)), max12(oldSet(2, 0, 0, 0))), map[string]int{"ms2": 2}},
		{"what has the annotation delete-machine goes first", frozen(8, 2, max12(oldSet(1, 8, 8, 8)), withChangedMachine(withChangedMachine(max12(currentSet(2, 4, 4, 4)), 0, asMachineToDeleteFirst), 1, asMachineToDeleteFirst)), map[string]int{"ms2": 2}},
		{"what the autoscaler chose goes first", frozen(8, 2, max12(oldSet(1, 8, 8, 8)), withChangedMachine(withChangedMachine(max12(currentSet(2, 4, 4, 4)), 0, asChosenMachine), 1, asChosenMachine)), map[string]int{"ms2": 2}},
		{"no set at all", frozen(2, 0), map[string]int{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, changedSizes(row.in))
			assert.Equal(t, "Paused", row.in.HoldBy)
		})
	}
	t.Run("held is like paused", func(t *testing.T) {
		o := rollingUpdateDeployment(10, 2, 0, oldSet(1, 8, 8, 8), currentSet(2, 4, 4, 4))
		o.HoldReason = "cancelled by ann"
		d := rollout.Decide(o)
		assert.False(t, d.HasActions())
		assert.Equal(t, []string{"Held", "held (cancelled by ann)"}, []string{d.HoldBy, d.Hold})
	})
	t.Run("a set that may make none is opened first", func(t *testing.T) {
		d := frozen(9, 2, withoutScaleUp(oldSet(1, 8, 8, 8)))
		assert.Equal(t, []string{"ms1"}, targetNames(d.AllowScaleUp))
		assert.Empty(t, changedSizes(d))
	})
	t.Run("an outdated annotation is put right", func(t *testing.T) {
		o := rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 3), oldSet(2, 0, 0, 0))
		o.Sets[0].DesiredReplicas = 7
		o.Sets[0].Revision = 3
		o.Sets[1].DesiredReplicas = 7
		d := rollout.Decide(o)
		assert.Equal(
			t,
			[]rollout.SetResize{{Name: "ms1", UID: "uid-ms1", Version: "5", From: 3, To: 3, ActedOn: 3, Desired: 3, Max: 4}},
			d.Resize,
		)
	})
	t.Run("a rollback while scaling: both go on at once", func(t *testing.T) {
		o := rollingUpdateDeployment(6, 1, 0, currentSet(1, 1, 1, 1), oldSet(2, 3, 3, 3))
		o.Sets[0].Revision = 3
		assert.Equal(t, map[string]int{"ms1": 4}, changedSizes(rollout.Decide(o)))
	})
	t.Run("outside of a rollout, more are made at once although others are on their way out", func(t *testing.T) {
		o := rollingUpdateDeployment(
			5,
			0,
			1,
			withAdditionalMachines(
				currentSet(1, 2, 2, 2),
				newMachine("a", asDeletingMachine),
				newMachine("b", asDeletingMachine),
				newMachine("c", asDeletingMachine),
			),
		)
		assert.Empty(t, changedSizes(rollout.Decide(o)))
		o.ReportedStatus.Conditions = []rollout.Condition{
			{Type: "Progressing", Status: "True", Reason: "NewMachineSetAvailable", LastUpdateTime: epochPlus(-time.Hour)},
		}
		assert.Equal(t, map[string]int{"ms1": 5}, changedSizes(rollout.Decide(o)))
		assert.Equal(t, "NewMachineSetAvailable", rollout.PlannedStatus(o).Conditions[1].Reason)
	})
	for name, wanted := range map[string]int{"wholly": 10, "in part": 6} {
		t.Run("outside of a rollout, a smaller number is taken back before it is carried out: "+name, func(t *testing.T) {
			o := rollingUpdateDeployment(wanted, 1, 0, withObservedReplicas(currentSet(1, 0, 7, 7), 10))
			assert.Empty(t, changedSizes(rollout.Decide(o)), "while a rollout lasts, two numbers say what there may be")
			o.ReportedStatus.Conditions = []rollout.Condition{
				{Type: "Progressing", Status: "True", Reason: "NewMachineSetAvailable", LastUpdateTime: epochPlus(-time.Hour)},
			}
			assert.Equal(t, map[string]int{"ms1": wanted}, changedSizes(rollout.Decide(o)))
		})
	}
	t.Run("a larger number is carried out first: what is being made is not known yet", func(t *testing.T) {
		o := rollingUpdateDeployment(0, 1, 0, withObservedReplicas(currentSet(1, 10, 0, 0), 0))
		o.ReportedStatus.Conditions = []rollout.Condition{
			{Type: "Progressing", Status: "True", Reason: "NewMachineSetAvailable", LastUpdateTime: epochPlus(-time.Hour)},
		}
		assert.Empty(t, changedSizes(rollout.Decide(o)))
	})
}
