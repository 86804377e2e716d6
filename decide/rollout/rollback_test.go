package rollout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

func TestRollback(t *testing.T) {
	to := func(revision int64, sets ...rollout.MachineSet) *rollout.Rollback {
		o := rollingUpdate(3, 1, 0, sets...)
		o.RollbackTo = &revision
		return rollout.Decide(o).Rollback
	}
	r := to(1, oldSet(1, 0, 0, 0), oldSet(2, 0, 0, 0), currentSet(3, 3, 3, 3))
	t.Run("the set of the revision gives its template", func(t *testing.T) {
		assert.Equal(t, &rollout.Rollback{
			Set:      &rollout.ObjectTarget{Name: "ms1", UID: "uid-ms1", Version: "5", Why: "its template returns"},
			Revision: 1, Reason: "DeploymentRollback", Why: "return to revision 1, set ms1",
		}, r)
	})
	t.Run("0 is the one before", func(t *testing.T) {
		assert.Equal(t, int64(2), to(0, oldSet(1, 0, 0, 0), oldSet(2, 0, 0, 0), currentSet(3, 3, 3, 3)).Revision)
	})
	t.Run("there is none", func(t *testing.T) {
		assert.Equal(t, "DeploymentRollbackRevisionNotFound", to(0, currentSet(3, 3, 3, 3)).Reason)
		assert.Equal(t, "DeploymentRollbackRevisionNotFound", to(7, oldSet(1, 0, 0, 0), currentSet(3, 3, 3, 3)).Reason)
		assert.Nil(t, to(7, oldSet(1, 0, 0, 0), currentSet(3, 3, 3, 3)).Set)
	})
	t.Run("it is the same", func(t *testing.T) {
		assert.Equal(t, "DeploymentRollbackTemplateUnchanged", to(3, oldSet(1, 0, 0, 0), currentSet(3, 3, 3, 3)).Reason)
	})
	t.Run("not while paused, as in MCM", func(t *testing.T) {
		o := pausedDeployment(rollingUpdate(3, 1, 0, oldSet(1, 0, 0, 0), currentSet(3, 3, 3, 3)))
		o.RollbackTo = new(int64(1))
		assert.Nil(t, rollout.Decide(o).Rollback)
	})
	t.Run("a held rollout is undone", func(t *testing.T) {
		o := rollingUpdate(3, 1, 0, oldSet(1, 0, 0, 0), currentSet(3, 3, 3, 3))
		o.RollbackTo, o.Held = new(int64(1)), "cancelled"
		assert.NotNil(t, rollout.Decide(o).Rollback)
	})
}

func TestAutomaticRollback(t *testing.T) {
	bad := func(failures int, policy rollout.AutoRollback) rollout.Facts {
		o := rollingUpdate(5, 2, 0, oldSet(1, 0, 0, 0), oldSet(2, 5, 5, 5), currentSet(3, 2, 2, 0))
		for i := range failures {
			o.Sets[2] = withMachine(o.Sets[2], i, asFailedMachine)
		}
		o.Automatic = policy
		return o
	}
	t.Run("off by default", func(t *testing.T) {
		o := bad(2, rollout.AutoRollback{})
		assert.Nil(t, rollout.Decide(o).Rollback)
		assert.Nil(t, rollout.Decide(o).Record)
	})
	// recorded returns the deployment with its failed machines recorded.
	recorded := func(o rollout.Facts) rollout.Facts {
		if record := rollout.Decide(o).Record; record != nil {
			o.Progress = o.Progress.MergedWith(*record)
		}
		return o
	}
	t.Run("too many new machines failed", func(t *testing.T) {
		o := bad(2, rollout.AutoRollback{Failed: true, MaxFailed: 1})
		d := rollout.Decide(o)
		assert.Nil(t, d.Rollback, "which is on record first")
		assert.Equal(
			t,
			rollout.Decision{
				Revision: 3,
				Record:   &rollout.Progress{Revision: 3, Failed: []string{"ms3-00", "ms3-01"}},
				Why:      d.Why,
			},
			d,
		)
		d = rollout.Decide(recorded(o))
		assert.True(t, d.Rollback.Automatic)
		assert.Nil(t, d.Record)
		assert.Equal(t, "return to revision 2, set ms2: 2 machines of the new template failed, 1 allowed", d.Rollback.Why)
	})
	t.Run("one may: it is noted, for it is soon replaced", func(t *testing.T) {
		o := bad(1, rollout.AutoRollback{Failed: true, MaxFailed: 1})
		d := rollout.Decide(o)
		assert.Nil(t, d.Rollback)
		assert.Equal(t, []string{"ms3-00"}, d.Record.Failed)
		o.Progress = *d.Record
		o.Sets[2] = withMachines(currentSet(3, 2, 1, 1), newMachine("ms3-99", asFailedMachine))
		assert.NotNil(t, rollout.Decide(recorded(o)).Rollback)
	})
	t.Run("the deadline passed", func(t *testing.T) {
		o := bad(0, rollout.AutoRollback{OnDeadline: true})
		o.Deadline = new(time.Minute)
		o.Reported.Counts = rollout.PlannedStatus(o).Counts
		o.Reported.Conditions = []rollout.Condition{
			{Type: "Progressing", Status: "True", Reason: "MachineSetUpdated", Updated: epochPlus(-59 * time.Second)},
		}
		d := rollout.Decide(o)
		assert.Nil(t, d.Rollback)
		assert.Equal(t, epochPlus(time.Second), d.Recheck)
		o.Now = epochPlus(time.Second)
		assert.Equal(t, "return to revision 2, set ms2: no progress for 1m", rollout.Decide(o).Rollback.Why)
		away := o
		away.Absent = 20 * time.Second
		assert.Nil(t, rollout.Decide(away).Rollback, "no worker was at work for 20 s of that minute")
		assert.Equal(t, epochPlus(21*time.Second), rollout.Decide(away).Recheck)
		o.Held = "cancelled"
		assert.Nil(t, rollout.Decide(o).Rollback)
	})
	t.Run("a new revision has its own time: the lateness of the one before is not its own", func(t *testing.T) {
		o := bad(0, rollout.AutoRollback{OnDeadline: true})
		o.Deadline = new(time.Minute)
		o.Reported.Counts = rollout.PlannedStatus(o).Counts
		o.Reported.Counts.Updated, o.Reported.Counts.Available = 9, 9
		o.Reported.Conditions = []rollout.Condition{
			{Type: "Progressing", Status: "False", Reason: "ProgressDeadlineExceeded", Updated: epochPlus(-time.Hour)},
		}
		assert.NotNil(t, rollout.Decide(o).Rollback, "it is late")
		assert.Zero(t, rollout.Decide(o).Recheck, "and nothing more comes with time")
		o.Progress.Revision--
		assert.Nil(t, rollout.Decide(o).Rollback, "a fix is given its chance")
		assert.NotNil(t, rollout.Decide(o).Record)
		assert.Equal(t, "NewMachineSetCreated", rollout.PlannedStatus(o).Conditions[1].Reason)
		assert.Equal(t, o.Now, rollout.PlannedStatus(o).Conditions[1].Updated)
	})
	t.Run("a set of the same template is none to return to", func(t *testing.T) {
		o := bad(2, rollout.AutoRollback{Failed: true, MaxFailed: 1})
		twin := o.Sets[1]
		twin.Current = true
		o.Sets = []rollout.MachineSet{o.Sets[2], twin}
		assert.Nil(t, rollout.Decide(recorded(o)).Rollback)
	})
	t.Run("what came by a rollback does not roll back again", func(t *testing.T) {
		o := bad(2, rollout.AutoRollback{Failed: true})
		o.RolledBackTo = "uid-ms3"
		o.Sets[2].History = "1"
		assert.Nil(t, rollout.Decide(recorded(o)).Rollback)
	})
	// begun returns a deployment without failed machines whose record leads to a rollback.
	begun := func() rollout.Facts {
		o := bad(2, rollout.AutoRollback{Failed: true, MaxFailed: 1, OnDeadline: true})
		o.Deadline = new(time.Minute)
		o.Progress.Step, o.Progress.Reached = 1, epochPlus(-time.Minute)
		o = recorded(o)
		o.Sets[2] = currentSet(3, 2, 2, 0)
		o.Reported.Counts = rollout.PlannedStatus(o).Counts
		o.Reported.Conditions = []rollout.Condition{
			{Type: "Progressing", Status: "False", Reason: "ProgressDeadlineExceeded", Updated: epochPlus(-time.Hour)},
		}
		return o
	}
	// written returns the deployment after the rollback was written: the old template is back, and the annotation names
	// it.
	written := func() rollout.Facts {
		o := begun()
		o.Sets[1].Current, o.Sets[2].Current, o.RolledBackTo = true, false, "uid-ms2"
		return o
	}
	t.Run("the machines that failed are on record first, beside what was there", func(t *testing.T) {
		assert.Equal(
			t,
			rollout.Progress{Revision: 3, Step: 1, Reached: epochPlus(-time.Minute), Failed: []string{"ms3-00", "ms3-01"}},
			begun().Progress,
		)
	})
	t.Run("a template that met a conflict is written again; nothing was forgotten", func(t *testing.T) {
		d := rollout.Decide(begun())
		assert.Equal(t, "return to revision 2, set ms2: 2 machines of the new template failed, 1 allowed", d.Rollback.Why)
		assert.Nil(t, d.Record)
	})
	t.Run("what becomes of it does not roll back again, and has its own time", func(t *testing.T) {
		o := written()
		revised := rollout.Decide(o).Revise
		assert.Equal(t, int64(4), revised.Revision)
		o.Sets[1].Revision, o.Sets[1].History = revised.Revision, revised.History
		o.Sets[1] = withMachine(withMachine(o.Sets[1], 0, asFailedMachine), 1, asFailedMachine)
		d := rollout.Decide(o)
		assert.Nil(t, d.Rollback)
		assert.Equal(t, &rollout.Progress{Revision: 4, Failed: []string{"ms2-00", "ms2-01"}}, d.Record)
		assert.Equal(t, "FoundNewMachineSet", rollout.PlannedStatus(o).Conditions[1].Reason)
		assert.Equal(t, o.Now, rollout.PlannedStatus(o).Conditions[1].Updated)
		assert.Nil(t, rollout.Decide(recorded(o)).Rollback)
	})
	t.Run("a template that somebody wrote afterwards does, and has its own time and record", func(t *testing.T) {
		o := written()
		o.Sets[1].Current = false
		o.Sets = append(o.Sets, currentSet(4, 1, 1, 0))
		d := rollout.Decide(o)
		assert.Nil(t, d.Rollback)
		assert.Equal(t, &rollout.Progress{Revision: 4}, d.Record)
		assert.Equal(t, "NewMachineSetCreated", rollout.PlannedStatus(o).Conditions[1].Reason)
		o.Progress = *d.Record
		o.Sets[3] = withMachines(withMachine(o.Sets[3], 0, asFailedMachine), newMachine("ms4-99", asFailedMachine))
		assert.NotNil(t, rollout.Decide(recorded(o)).Rollback)
	})
	t.Run("a person who wants the same set has asked for it", func(t *testing.T) {
		o := begun()
		o.RollbackTo = new(int64(2))
		d := rollout.Decide(o)
		assert.Equal(t, "ms2", d.Rollback.Set.Name)
		assert.False(t, d.Rollback.Automatic)
		assert.Nil(t, d.Record)
	})
	t.Run("another former template that somebody wrote in its stead came by no rollback", func(t *testing.T) {
		o := written()
		o.Sets[0].Current, o.Sets[1].Current = true, false
		o.Sets[0].Revision, o.Sets[0].History = 4, "1"
		assert.Equal(t, &rollout.Progress{Revision: 4}, rollout.Decide(o).Record)
		o.Sets[0] = withMachine(withMachines(o.Sets[0], newMachine("ms1-99", asFailedMachine)), 0, asFailedMachine)
		o.Sets[0] = withMachines(o.Sets[0], newMachine("ms1-98", asFailedMachine))
		assert.NotNil(t, rollout.Decide(recorded(o)).Rollback)
	})
	t.Run("one that is held now is not rolled back", func(t *testing.T) {
		o := begun()
		o.Held = "cancelled"
		assert.Nil(t, rollout.Decide(o).Rollback)
	})
	t.Run("there is nothing to return to", func(t *testing.T) {
		o := bad(2, rollout.AutoRollback{Failed: true})
		o.Sets = o.Sets[2:]
		assert.Nil(t, rollout.Decide(recorded(o)).Rollback)
	})
	t.Run("a rollout that is complete stays", func(t *testing.T) {
		o := rollingUpdate(1, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 1, 1, 1))
		o.Automatic = rollout.AutoRollback{Failed: true}
		o.Progress.Failed = []string{"x"}
		assert.Nil(t, rollout.Decide(o).Rollback)
	})
}

func TestHistory(t *testing.T) {
	t.Run("a set that is used again gets a new revision, and remembers the former", func(t *testing.T) {
		o := rollingUpdate(3, 1, 0, currentSet(1, 0, 0, 0), oldSet(2, 3, 3, 3))
		o.Sets[0].History = "7"
		d := rollout.Decide(o)
		assert.Equal(t, int64(3), d.Revise.Revision)
		assert.Equal(t, "7,1", d.Revise.History)
		assert.Empty(t, d.Resize)
	})
	t.Run("the history has an end, and no entry where the revision stays", func(t *testing.T) {
		o := rollingUpdate(3, 1, 0, currentSet(1, 0, 0, 0), oldSet(2, 3, 3, 3))
		o.Sets[0].History = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20"
		assert.Equal(t, "2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,1", rollout.Decide(o).Revise.History)
		o.Sets[0].Revision = 5
		o.Sets[0].Drift = true
		d := rollout.Decide(o)
		assert.Nil(t, d.Revise)
		assert.Equal(t, []string{"ms1"}, targetNames(d.Sync))
	})
	limited := func(limit int, sets ...rollout.MachineSet) []string {
		o := rollingUpdate(1, 1, 0, append(sets, currentSet(9, 1, 1, 1))...)
		o.HistoryLimit = &limit
		return targetNames(rollout.Decide(o).Delete)
	}
	t.Run("old sets that nobody needs go, by revision", func(t *testing.T) {
		again := oldSet(1, 0, 0, 0)
		again.Revision = 8
		assert.Equal(t, []string{"ms2"}, limited(2, again, oldSet(2, 0, 0, 0), oldSet(3, 0, 0, 0)))
		assert.Len(t, limited(0, again, oldSet(2, 0, 0, 0), oldSet(3, 0, 0, 0)), 3)
		assert.Empty(t, limited(3, again, oldSet(2, 0, 0, 0), oldSet(3, 0, 0, 0)))
	})
	t.Run("without a limit all are kept; during a rollout, too", func(t *testing.T) {
		assert.Empty(t, rollout.Decide(rollingUpdate(1, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 1, 1, 1))).Delete)
		o := rollingUpdate(1, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 1, 1, 0))
		o.HistoryLimit = new(0)
		assert.Empty(t, rollout.Decide(o).Delete)
		assert.Len(t, rollout.Decide(pausedDeployment(o)).Delete, 1)
	})
	t.Run("one that has machines, or may still make some, stays", func(t *testing.T) {
		o := rollingUpdate(
			1,
			1,
			0,
			withActedOnSize(oldSet(1, 0, 0, 0), 2),
			withCountedMachines(oldSet(2, 0, 0, 0), 1),
			currentSet(3, 1, 1, 1),
		)
		o.HistoryLimit = new(0)
		assert.Empty(t, rollout.Decide(o).Delete)
	})
}
