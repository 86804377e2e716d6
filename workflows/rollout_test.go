package workflows_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/workflows"
)

// left makes a decision see so many machines of former templates, and so many new ones.
func left(d activities.DeploymentDecision, old, updated int) activities.DeploymentDecision {
	d.Picture.Old, d.Picture.Counts.Updated = old, updated
	return d
}

func blocked(d activities.DeploymentDecision, reason string) activities.DeploymentDecision {
	d.Picture.Blocked = reason
	return d
}

func TestRolloutRollsUntilAllIsThere(t *testing.T) {
	w := newDeploymentWorld(t, left(moving("one more"), 3, 0), left(awaiting(rollout.HeldByMachines), 3, 1))
	w.answer(0)
	w.after(time.Minute, left(moving("another one"), 1, 1), blocked(left(awaiting(rollout.HeldByMachines), 1, 2), "ResourceExhausted"))
	w.after(3*time.Minute, left(awaiting(rollout.HeldByStage), 1, 2))
	w.after(3*time.Minute+30*time.Second, left(complete(), 0, 3))
	result := w.rollOut(t)
	require.Equal(t, workflows.RolloutResult{
		Outcome: workflows.OutcomeCompleted, Why: "all is there", Revision: 7,
		Replaced: 3, Machines: 3, Took: "3m30s", Slowest: "another one", SlowTook: "2m30s",
		Waited:   []workflows.RolloutWait{{For: "ResourceExhausted", Took: "2m0s"}, {For: "Machines", Took: "1m0s"}, {For: "Stage", Took: "30s"}},
		Versions: activities.Gate{activities.SetsResource: "31"},
	}, result)
	require.Equal(t, []string{"ChangeSets", "ChangeSets"}, w.log)
	require.Equal(t, activities.SetChanges{Deployment: ref, Resize: moving("").Resize}, w.orders[0])
	require.True(t, w.reads[0].Live, "nobody knows what was written before")
	require.False(t, w.reads[1].Live)
	require.Equal(t, "31", w.reads[1].Gate[activities.SetsResource], "it sees what it wrote")
	require.Equal(t, rolloutID, w.reads[0].WorkflowID, "the status has to name it")
}

// A rollout is over when its last words are written, too.
func TestRolloutEndsWhenNothingIsLeftToDo(t *testing.T) {
	last := with(complete(), func(d *activities.DeploymentDecision) {
		d.Need, d.Report, d.Delete = attention.Scale, true, []rollout.Target{{Name: "s-1"}}
	})
	w := newDeploymentWorld(t, last, complete())
	w.answer(0)
	require.Equal(t, workflows.OutcomeCompleted, w.rollOut(t).Outcome)
	require.Equal(t, []string{"ChangeSets", "ReportDeployment"}, w.log)
	require.Equal(t, activities.SetChanges{Deployment: ref, Delete: last.Delete}, w.orders[0])
	require.Len(t, w.reads, 2)
}

// Counts change several times a second while many machines roll: they are written once a second, and none is lost.
func TestRolloutWritesItsCountsOnceASecond(t *testing.T) {
	counts := with(awaiting(rollout.HeldByMachines), func(d *activities.DeploymentDecision) { d.Report = true })
	calm := awaiting(rollout.HeldByMachines)
	w := newDeploymentWorld(t, counts, calm)
	w.answer(0)
	written := func(n int, at time.Duration) {
		w.env.RegisterDelayedCallback(func() {
			defer w.lock()()
			require.Len(t, w.log, n, "after %s", at)
		}, at)
	}
	written(1, 200*time.Millisecond) // the first of all at once; while an activity runs, time passes here too
	w.after(250*time.Millisecond, counts)
	w.after(400*time.Millisecond, counts)
	w.after(600*time.Millisecond, counts, counts, calm)
	written(1, 900*time.Millisecond)
	written(2, 1500*time.Millisecond)
	written(2, 30*time.Second)
	w.after(time.Minute, counts, calm)
	written(3, time.Minute+300*time.Millisecond) // it was calm for long enough
	w.after(time.Minute+400*time.Millisecond, with(complete(), func(d *activities.DeploymentDecision) { d.Report = true }), complete())
	require.Equal(t, workflows.OutcomeCompleted, w.rollOut(t).Outcome)
	require.Len(t, w.log, 4, "what is complete is told at once")
}

func TestRolloutThatIsOverWritesNothingMore(t *testing.T) {
	type change = func(*activities.DeploymentDecision)
	for _, row := range []struct {
		name    string
		change  change
		outcome string
		why     string
	}{
		{"N17: the template changed, and the set of the new one is there", func(d *activities.DeploymentDecision) { d.Revision = 8 }, workflows.OutcomeSuperseded, "the template changed"},
		{"N17: the template changed, and has no set yet", func(d *activities.DeploymentDecision) { d.Revision, d.Create = 0, &rollout.Creation{Revision: 8} }, workflows.OutcomeSuperseded, "the template changed"},
		{"the template changed, and gets no set now", func(d *activities.DeploymentDecision) { d.Revision, d.Pending = 0, true }, workflows.OutcomeSuperseded, "the template changed"},
		{"the deployment is to go", func(d *activities.DeploymentDecision) { d.Need, d.Revision = attention.Deletion, 0 }, workflows.OutcomeSuperseded, "the deployment is to go"},
		{"somebody cancelled it", func(d *activities.DeploymentDecision) { d.HoldBy = rollout.HeldBy }, workflows.OutcomeCancelled, "hold"},
		{"the deployment is gone", func(d *activities.DeploymentDecision) { *d = gone() }, workflows.OutcomeGone, "the object is gone"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := with(moving("hold"), func(d *activities.DeploymentDecision) { d.Report, d.Record = true, &rollout.Progress{Revision: 7} })
			w := newDeploymentWorld(t, awaiting(rollout.HeldByMachines))
			w.answer(0)
			w.after(time.Minute, with(d, row.change))
			result := w.rollOut(t)
			require.Equal(t, []string{row.outcome, row.why}, []string{result.Outcome, result.Why})
			require.Equal(t, int64(7), result.Revision)
			require.Equal(t, "1m0s", result.Took)
			require.Empty(t, w.log)
		})
	}
}

// backTo is a decision to return to the template of a former set.
func backTo(automatic bool) activities.DeploymentDecision {
	d := activities.DeploymentDecision{Need: attention.Scale, Version: "4", Why: "go back", Decision: rollout.Decision{
		Revision: 7, Why: "go back", Rollback: &rollout.Rollback{
			Set: &rollout.Target{Name: "s-6", UID: "uid-6"}, Revision: 6, Automatic: automatic, Why: "return to revision 6",
		},
	}}
	return d
}

func TestRolloutEndsWithARollback(t *testing.T) {
	w := newDeploymentWorld(t, backTo(false))
	w.answer(0)
	result := w.rollOut(t)
	require.Equal(t, []string{workflows.OutcomeRolledBack, "return to revision 6"}, []string{result.Outcome, result.Why})
	require.Equal(t, "34", result.Versions[activities.DeploymentsResource], "the deployment must see the template that returned")
	require.Equal(t, []string{"RollBackDeployment"}, w.log)
	require.Equal(t, activities.RollBack{Deployment: ref, Version: "4", Rollback: *backTo(false).Rollback}, w.orders[0])
}

// recorded is the same decision while the set that it returns to is not on record yet.
func recorded(d activities.DeploymentDecision) activities.DeploymentDecision {
	d.Record = &rollout.Progress{Revision: 7, ReturnsTo: "s-6"}
	return d
}

// A revision that comes by itself must not go by itself: that is on record before the template returns, and what came meanwhile is weighed.
func TestAutomaticRollbackIsOnRecordFirst(t *testing.T) {
	w := newDeploymentWorld(t, recorded(backTo(true)), backTo(true))
	w.answer(0)
	require.Equal(t, workflows.OutcomeRolledBack, w.rollOut(t).Outcome)
	require.Equal(t, []string{"ReportDeployment", "RollBackDeployment"}, w.log)
	require.Equal(t, &rollout.Progress{Revision: 7, ReturnsTo: "s-6"}, w.orders[0].(activities.DeploymentReport).Record)
	require.Equal(t, "21", w.reads[1].Gate[activities.DeploymentsResource], "it is decided again with the record in sight")
	require.Equal(t, "4", w.orders[1].(activities.RollBack).Version)
}

func TestAutomaticRollbackThatIsNotWantedAnyMoreIsNotDone(t *testing.T) {
	w := newDeploymentWorld(t, recorded(backTo(true)), gone())
	w.answer(0)
	require.Equal(t, workflows.OutcomeGone, w.rollOut(t).Outcome)
	require.Equal(t, []string{"ReportDeployment"}, w.log)
}

func TestAutomaticRollbackThatCannotBeRecordedIsNotDone(t *testing.T) {
	w := newDeploymentWorld(t, recorded(backTo(true)), gone())
	w.answer(0)
	w.fails["ReportDeployment"] = conflicting()
	require.Equal(t, workflows.OutcomeGone, w.rollOut(t).Outcome)
	require.Equal(t, []string{"ReportDeployment"}, w.log)
	require.True(t, w.reads[1].Live)
}

func TestRolloutGoesOnWhenThereIsNothingToReturnTo(t *testing.T) {
	nowhere := with(backTo(false), func(d *activities.DeploymentDecision) {
		d.Rollback = &rollout.Rollback{Revision: 5, Why: "no such set"}
	})
	w := newDeploymentWorld(t, nowhere, complete())
	w.answer(0)
	require.Equal(t, workflows.OutcomeCompleted, w.rollOut(t).Outcome)
	require.Equal(t, []string{"RollBackDeployment"}, w.log, "what asked for it is cleared")
}

func TestRolloutLooksAgainAfterWhatItDidNotExpect(t *testing.T) {
	for name, failure := range map[string]error{
		"conflict":  conflicting(),
		"gone":      temporal.NewNonRetryableApplicationError("gone", activities.TypeObjectGone, nil),
		"timed out": temporal.NewTimeoutError(3, errors.New("slow")), // schedule to close
	} {
		for _, activity := range []string{"ChangeSets", "RollBackDeployment"} {
			t.Run(name+" "+activity, func(t *testing.T) {
				d := moving("grow")
				if activity == "RollBackDeployment" {
					d = backTo(false)
				}
				w := newDeploymentWorld(t, d, complete())
				w.answer(0)
				w.fails[activity] = failure
				log := []string{activity}
				if name == "timed out" && activity == "ChangeSets" { // a local activity was tried before
					w.both, log = true, append(log, activity)
				}
				result := w.rollOut(t)
				require.Equal(t, workflows.OutcomeCompleted, result.Outcome)
				require.Equal(t, log, w.log)
				require.True(t, w.reads[1].Live)
			})
		}
	}
}

func TestRolloutThatFailsForGood(t *testing.T) {
	w := newDeploymentWorld(t, moving("grow"))
	w.answer(0)
	w.fails["ChangeSets"] = temporal.NewNonRetryableApplicationError("no", "Odd", nil)
	w.env.ExecuteWorkflow(workflows.Rollout, workflows.RolloutInput{Input: workflows.Input{Ref: ref}, Revision: 7})
	require.ErrorContains(t, w.env.GetWorkflowError(), "Odd")
}

// What follows from a stage must not be seen before the stage.
func TestRolloutRecordsBeforeItResizes(t *testing.T) {
	record := &rollout.Progress{Revision: 7, Step: 1}
	w := newDeploymentWorld(t, with(moving("next stage"), func(d *activities.DeploymentDecision) { d.Record, d.Report = record, true }), complete())
	w.answer(0)
	w.rollOut(t)
	require.Equal(t, []string{"ReportDeployment", "ChangeSets"}, w.log, "and it reports once")
	report := w.orders[0].(activities.DeploymentReport)
	require.Equal(t, record, report.Record)
	require.Equal(t, rolloutID, report.WorkflowID)
	require.Equal(t, rolloutID, report.Step.WorkflowID)
	require.Equal(t, "roll", report.Step.Name)
	require.Equal(t, "21", w.reads[1].Gate[activities.DeploymentsResource])
}

func TestRolloutResizesNothingWhenItCannotRecord(t *testing.T) {
	w := newDeploymentWorld(t, with(moving("next stage"), func(d *activities.DeploymentDecision) { d.Record = &rollout.Progress{Revision: 7} }), complete())
	w.answer(0)
	w.fails["ReportDeployment"] = conflicting()
	w.rollOut(t)
	require.Equal(t, []string{"ReportDeployment"}, w.log)
}

// Nobody tells a rollout that a stage or the progress deadline is over.
func TestRolloutLooksAgainWhenTheTimeHasCome(t *testing.T) {
	w := newDeploymentWorld(t)
	at := func(d time.Duration) activities.DeploymentDecision {
		return with(awaiting(rollout.HeldByStage), func(a *activities.DeploymentDecision) { a.Recheck = w.begun.Add(d) })
	}
	w.script = []activities.DeploymentDecision{at(time.Minute), at(3 * time.Minute), at(time.Minute), awaiting(rollout.HeldByMachines)}
	w.after(time.Hour, complete())
	require.Equal(t, workflows.OutcomeCompleted, w.rollOut(t).Outcome)
	require.Equal(t, []time.Duration{0, time.Minute, 3 * time.Minute, 3*time.Minute + time.Second, time.Hour}, w.looks,
		"a time that is over by the worker's clock only is waited for")
}

func TestRolloutThatContinuesAsNewKeepsItsTally(t *testing.T) {
	w := newDeploymentWorld(t, left(moving("one more"), 3, 0), left(awaiting(rollout.HeldByMachines), 2, 1))
	w.answer(0)
	w.env.RegisterDelayedCallback(func() {
		w.env.SetContinueAsNewSuggested(true)
		changed(w.env)
	}, time.Minute)
	w.env.ExecuteWorkflow(workflows.Rollout, workflows.RolloutInput{Input: workflows.Input{Ref: ref}, Revision: 7})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, w.env.GetWorkflowError(), &next)
	var in workflows.RolloutInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	require.Equal(t, workflows.Input{Ref: ref, Gate: activities.Gate{activities.SetsResource: "31"}, Continued: true}, in.Input)
	require.Equal(t, int64(7), in.Revision)

	later := newDeploymentWorld(t, left(complete(), 0, 3))
	later.env.SetStartTime(w.begun.Add(2 * time.Minute))
	later.env.ExecuteWorkflow(workflows.Rollout, in)
	var result workflows.RolloutResult
	require.NoError(t, later.env.GetWorkflowResult(&result))
	require.Equal(t, workflows.RolloutResult{
		Outcome: workflows.OutcomeCompleted, Why: "all is there", Revision: 7, Replaced: 3, Machines: 3, Took: "2m0s",
		Slowest: "one more", SlowTook: "2m0s", Waited: []workflows.RolloutWait{{For: "Machines", Took: "2m0s"}}, Versions: in.Gate,
	}, result)
	require.False(t, later.reads[0].Live, "the gate is complete")
}

func TestRolloutPutsTheFinalizerOnBeforeItReturns(t *testing.T) {
	w := newDeploymentWorld(t, with(backTo(false), func(d *activities.DeploymentDecision) { d.Prepare = true }), backTo(false))
	w.answer(0)
	require.Equal(t, workflows.OutcomeRolledBack, w.rollOut(t).Outcome)
	require.Equal(t, []string{"FinalizeDeployment", "RollBackDeployment"}, w.log)
}

func TestRolloutOfADeploymentThatBecameInvalidIsStuck(t *testing.T) {
	w := newDeploymentWorld(t, activities.DeploymentDecision{Need: attention.Scale, Decision: rollout.Decision{Revision: 7, HoldBy: rollout.HeldByFault, Why: "hold"}})
	w.show()
	w.after(time.Minute, gone())
	w.rollOut(t)
	require.Equal(t, []any{"invalid", true}, []any{w.shown["Stage"], w.shown["Stuck"]})
}
