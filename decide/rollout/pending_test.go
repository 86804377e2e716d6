package rollout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/attention"
	"millwright/decide/rollout"
)

// withCurrentStatus returns the deployment with a finalizer and with the status that PlannedStatus returns.
func withCurrentStatus(o rollout.Facts) rollout.Facts {
	o.HasFinalizer, o.Generation, o.ObservedGeneration = true, 2, 2
	for range 2 { // the second report depends on the first
		o.ReportedStatus = rollout.PlannedStatus(o)
		if record := rollout.Decide(o).Record; record != nil {
			o.Progress = o.Progress.MergedWith(*record)
		}
	}
	return o
}

func TestPendingWork(t *testing.T) {
	calm := rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 3))
	waits := withRolloutSteps(
		rollingUpdateDeployment(3, 1, 0, oldSet(1, 2, 2, 2), currentSet(2, 1, 1, 1)),
		rollout.Step{Size: countValue(1), NeedsApproval: true},
	)
	change := func(o rollout.Facts, edit func(*rollout.Facts)) rollout.Facts {
		o = withCurrentStatus(o)
		edit(&o)
		return o
	}
	goes := func(o *rollout.Facts) { o.Deleting = true }
	bare := func(o *rollout.Facts) { o.HasFinalizer = false }
	both := func(a, b func(*rollout.Facts)) func(*rollout.Facts) {
		return func(o *rollout.Facts) { a(o); b(o) }
	}
	due := func(o *rollout.Facts) { o.MCM.DueMachineCount = 2 }
	scale, all := attention.NeedScaling, "3 machines wanted and there, all of revision 1"
	for _, row := range []struct {
		name string
		o    rollout.Facts
		need attention.Need
		why  string
	}{
		{"calm", withCurrentStatus(calm), attention.NeedNothing, all},
		{"no finalizer", change(calm, bare), scale, "new: our finalizer is missing"},
		{"spec changed", change(calm, func(o *rollout.Facts) { o.Generation = 3 }), scale, "generation 3 was not seen yet (last seen: 2)"},
		{"something to do", change(calm, func(o *rollout.Facts) { o.Replicas = 4 }), scale, "resize set ms1 3→4: room for 4 machines, 4 wanted"},
		{"status late", change(calm, func(o *rollout.Facts) { o.ReportedStatus.Counts.Ready = 1 }), scale, "status is out of date"},
		{"a rollout waits", change(waits, due), attention.NeedRollout, "revision 2: step 1 of 1 done (1 of 3 machines), waits for approval"},
		{"a rollout that somebody cancelled", change(waits, func(o *rollout.Facts) {
			o.HoldReason = "ann"
			o.ReportedStatus = rollout.PlannedStatus(*o)
		}), attention.NeedNothing, "held (ann)"},
		{"to be deleted", change(calm, goes), attention.NeedDeletion, "deletion was asked for; 3 machines left"},
		{"released", change(calm, both(goes, bare)), attention.NeedNothing, "released: the API server removes it"},
		{"machines wait to be replaced", change(calm, due), attention.NeedReplacement, "replacements: 0 in progress, 2 waiting"},
		{"machines are being replaced", change(calm, both(due, func(o *rollout.Facts) { o.MCM.PendingGrantCount = 1 })), attention.NeedReplacement, "replacements: 1 in progress, 2 waiting"},
		{"the last one is being replaced", change(calm, func(o *rollout.Facts) { o.MCM.PendingGrantCount = 1 }), attention.NeedReplacement, "replacements: 1 in progress, 0 waiting"},
		{"its size comes first", change(calm, both(due, func(o *rollout.Facts) { o.Replicas = 4 })), scale, "resize set ms1 3→4: room for 4 machines, 4 wanted"},
		{"to be deleted: nothing is replaced", change(calm, both(due, goes)), attention.NeedDeletion, "deletion was asked for; 3 machines left"},
		{"released: nothing is replaced", change(calm, both(due, both(goes, bare))), attention.NeedNothing, "released: the API server removes it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			is := rollout.PlanDeployment(row.o).PendingWork
			assert.Equal(t, attention.Decision{Need: row.need, Why: row.why}, attention.Decision{Need: is.Need, Why: is.Why})
		})
	}
	t.Run("as time passes it is late", func(t *testing.T) {
		o := withCurrentStatus(rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 2)))
		o.ProgressDeadline = new(time.Minute)
		o.ReportedStatus.Conditions[1] = rollout.Condition{
			Type:           "Progressing",
			Status:         "True",
			Reason:         "MachineSetUpdated",
			LastUpdateTime: o.Now,
		}
		o.ReportedStatus.Conditions[1].Message = rollout.PlannedStatus(o).Conditions[1].Message
		plan := rollout.PlanDeployment(o)
		assert.False(t, plan.NeedsStatusWrite)
		assert.Equal(
			t,
			attention.Decision{
				Need:  scale,
				Why:   plan.Decision.Why + "; it waits for the time to pass",
				Waits: plan.Decision.Why,
			},
			plan.PendingWork,
		)
	})
}

// If a write of the status is pending, WaitsFor names the work that follows this write.
func TestWaitTextIgnoresPendingStatusWrite(t *testing.T) {
	calm := rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 3))
	all := "3 machines wanted and there, all of revision 1"
	late := func(o *rollout.Facts) { o.ReportedStatus.Counts.Ready = 1 }
	newer := func(o *rollout.Facts) { o.Generation = 3 }
	replacing := func(o *rollout.Facts) { o.MCM.PendingGrantCount = 1 }
	for _, row := range []struct {
		name     string
		edits    []func(*rollout.Facts)
		says     string
		replaces bool
	}{
		{"calm", nil, all, false},
		{"its status is late", []func(*rollout.Facts){late}, all, false},
		{"its generation was not seen", []func(*rollout.Facts){newer}, all, false},
		{"its status is late while a machine is replaced", []func(*rollout.Facts){late, replacing}, "replacements: 1 in progress, 0 waiting", true},
		{"its generation was not seen, and a set gets another size", []func(*rollout.Facts){newer, func(o *rollout.Facts) { o.Replicas = 4 }}, "resize set ms1 3→4: room for 4 machines, 4 wanted", false},
		{"it was held", []func(*rollout.Facts){func(o *rollout.Facts) { o.HoldReason = "ann" }}, "held (ann)", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := withCurrentStatus(calm)
			for _, edit := range row.edits {
				edit(&o)
			}
			plan := rollout.PlanDeployment(o)
			assert.Equal(t, row.says, plan.PendingWork.WaitText())
			assert.Equal(t, row.replaces, plan.ReplacementPending)
		})
	}
}

// A changed number or condition is enough to write the status. If only a time changed, the status is not written.
func TestTheStatusIsWrittenIfOneNumberChanged(t *testing.T) {
	o := rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 2))
	o.Sets[0].Failure = rollout.Problem{Reason: "ResourceExhausted", Message: "machine a: no"}
	o.Sets[0].Machines[0].MCM.LastOperationFailed, o.MCM.Frozen = true, true
	condition := func(i int, edit func(*rollout.Condition)) func(*rollout.Status) {
		return func(s *rollout.Status) { edit(&s.Conditions[i]) }
	}
	other := func(c *rollout.Condition) { c.Type = "Other" }
	for _, row := range []struct {
		name   string
		change func(*rollout.Status)
		same   bool
	}{
		{"the same", func(*rollout.Status) {}, true},
		{"Replicas", func(s *rollout.Status) { s.Counts.Replicas++ }, false},
		{"Updated", func(s *rollout.Status) { s.Counts.Updated-- }, false},
		{"Ready", func(s *rollout.Status) { s.Counts.Ready = 0 }, false},
		{"Available", func(s *rollout.Status) { s.Counts.Available = 0 }, false},
		{"Unavailable", func(s *rollout.Status) { s.Counts.Unavailable = 0 }, false},
		{"PreservedFailed", func(s *rollout.Status) { s.Counts.PreservedFailed++ }, false},
		{"Failed", func(s *rollout.Status) { s.FailedNames = nil }, false},
		{"Failed", func(s *rollout.Status) { s.FailedNames = []string{"c"} }, false},
		{"no condition", func(s *rollout.Status) { s.Conditions = nil }, false},
		{"one condition less", condition(0, other), false},
		{"a status", condition(0, func(c *rollout.Condition) { c.Status = "Unknown" }), false},
		{"a reason", condition(0, func(c *rollout.Condition) { c.Reason = "R" }), false},
		{"a message", condition(0, func(c *rollout.Condition) { c.Message = "m" }), false},
		{"a time", condition(0, func(c *rollout.Condition) { c.LastUpdateTime = epochPlus(time.Hour) }), true},
		{"the machine that ReplicaFailure names", condition(2, func(c *rollout.Condition) { c.Message = "machine b: no" }), true},
		{"another type", func(s *rollout.Status) { s.Conditions = append(s.Conditions, rollout.Condition{Type: "Other"}) }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := withCurrentStatus(o)
			row.change(&o.ReportedStatus)
			assert.Equal(t, !row.same, rollout.PlanDeployment(o).NeedsStatusWrite)
		})
	}
	t.Run("Frozen is over", func(t *testing.T) {
		o := withCurrentStatus(o)
		o.MCM.Frozen = false
		assert.True(t, rollout.PlanDeployment(o).NeedsStatusWrite)
	})
	t.Run("ReplicaFailure is over", func(t *testing.T) {
		o := withCurrentStatus(o)
		o.Sets[0].Failure = rollout.Problem{}
		assert.True(t, rollout.PlanDeployment(o).NeedsStatusWrite)
	})
	t.Run("machines get no instance for another reason", func(t *testing.T) {
		o := withCurrentStatus(o)
		o.Sets[0].Failure = rollout.Problem{Reason: "Internal", Message: "machine b: odd"}
		assert.True(t, rollout.PlanDeployment(o).NeedsStatusWrite)
		assert.Equal(t, "machine b: odd", rollout.PlannedStatus(o).Conditions[2].Message)
	})
}
