package deployment_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	workflows "millwright/workflows/deployment"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

// left is a decision with that many machines of former templates and of the new one.
func left(d deployment.Decision, old, updated int) deployment.Decision {
	d.Picture.Old, d.Picture.Counts.Updated = old, updated
	return d
}

func blocked(d deployment.Decision, reason string) deployment.Decision {
	d.Picture.Blocked = reason
	return d
}

func TestRolloutRollsUntilAllIsThere(t *testing.T) {
	w := newDeploymentWorld(t, left(moving("one more"), 3, 0), left(awaiting(rollout.HeldByMachines), 3, 1))
	w.answer(0)
	w.after(
		time.Minute,
		left(moving("another one"), 1, 1),
		blocked(left(awaiting(rollout.HeldByMachines), 1, 2), "ResourceExhausted"),
	)
	w.after(3*time.Minute, left(awaiting(rollout.HeldByStep), 1, 2))
	w.after(3*time.Minute+30*time.Second, left(complete(), 0, 3))
	result := w.rollOut(t)
	require.Equal(t, workflows.RolloutResult{
		Outcome:  workflows.OutcomeCompleted,
		Why:      "all is there",
		Revision: 7,
		Replaced: 3,
		Machines: 3,
		Took:     "3m30s",
		Slowest:  "another one",
		SlowTook: "2m30s",
		Waited: []workflows.RolloutWait{
			{For: "ResourceExhausted", Took: "2m"},
			{For: "Machines", Took: "1m"},
			{For: "Step", Took: "30s"},
		},
		Versions: kube.MinVersions{kube.SetsResource: "31"},
	}, result)
	require.Equal(t, []string{"ChangeSets", "ChangeSets"}, w.log)
	require.Equal(
		t,
		deployment.SetChanges{
			Deployment: workflowstest.Ref,
			SetChanges: rollout.SetChanges{Resize: moving("").Rollout.Resize},
		},
		w.orders[0],
	)
	require.True(t, w.reads[0].Live, "it is not known what was written before")
	require.False(t, w.reads[1].Live)
	require.Equal(t, "31", w.reads[1].Versions[kube.SetsResource], "it sees what it wrote")
	require.Equal(t, rolloutID, w.reads[0].WorkflowID, "the status has to name it")
}

// A rollout ends only after its last report is written.
func TestRolloutEndsWhenNothingIsLeftToDo(t *testing.T) {
	last := with(complete(), func(d *deployment.Decision) {
		d.Pending.Need, d.Report, d.Rollout.Delete = attention.Scale, true, []rollout.Target{{Name: "s-1"}}
	})
	w := newDeploymentWorld(t, last, complete())
	w.answer(0)
	require.Equal(t, workflows.OutcomeCompleted, w.rollOut(t).Outcome)
	require.Equal(t, []string{"ChangeSets", "ReportDeployment"}, w.log)
	require.Equal(
		t,
		deployment.SetChanges{Deployment: workflowstest.Ref, SetChanges: rollout.SetChanges{Delete: last.Rollout.Delete}},
		w.orders[0],
	)
	require.Len(t, w.reads, 2)
}

// Counts change several times a second while many machines roll: they are written once a second, and the last ones are
// written.
func TestRolloutWritesItsCountsOnceASecond(t *testing.T) {
	counts := with(awaiting(rollout.HeldByMachines), func(d *deployment.Decision) { d.Report = true })
	calm := awaiting(rollout.HeldByMachines)
	w := newDeploymentWorld(t, counts, calm)
	w.answer(0)
	written := func(n int, at time.Duration) {
		w.env.RegisterDelayedCallback(func() {
			defer w.lock()()
			require.Len(t, w.log, n, "after %s", at)
		}, at)
	}
	written(1, 200*time.Millisecond) // the first is written at once; time also passes here while an activity runs
	w.after(250*time.Millisecond, counts)
	w.after(400*time.Millisecond, counts)
	w.after(600*time.Millisecond, counts, counts, calm)
	written(1, 900*time.Millisecond)
	written(2, 1500*time.Millisecond)
	written(2, 30*time.Second)
	w.after(time.Minute, counts, calm)
	written(3, time.Minute+300*time.Millisecond) // longer than ReportEach after the last report
	w.after(
		time.Minute+400*time.Millisecond,
		with(complete(), func(d *deployment.Decision) { d.Report = true }),
		complete(),
	)
	require.Equal(t, workflows.OutcomeCompleted, w.rollOut(t).Outcome)
	require.Len(t, w.log, 4, "a complete rollout is reported at once")
}

func TestRolloutThatIsOverWritesNothingMore(t *testing.T) {
	type change = func(*deployment.Decision)
	for _, row := range []struct {
		name    string
		change  change
		outcome string
		why     string
	}{
		{"the template changed, and the set of the new one is there", func(d *deployment.Decision) { d.Rollout.Revision = 8 }, workflows.OutcomeSuperseded, "the template changed"},
		{"the template changed, and has no set yet", func(d *deployment.Decision) {
			d.Rollout.Revision, d.Rollout.Create = 0, &rollout.Creation{Revision: 8}
		}, workflows.OutcomeSuperseded, "the template changed"},
		{"the template changed, and gets no set now", func(d *deployment.Decision) { d.Rollout.Revision, d.Rollout.NoSet = 0, true }, workflows.OutcomeSuperseded, "the template changed"},
		{"the deployment is being deleted", func(d *deployment.Decision) { d.Pending.Need, d.Rollout.Revision = attention.Deletion, 0 }, workflows.OutcomeSuperseded, "the deployment is being deleted"},
		{"somebody cancelled it", func(d *deployment.Decision) { d.Rollout.HoldBy = rollout.HeldBy }, workflows.OutcomeCancelled, "hold"},
		{"the deployment is gone", func(d *deployment.Decision) { *d = gone() }, run.OutcomeGone, "the object is gone"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := with(moving("hold"), func(d *deployment.Decision) {
				d.Report, d.Rollout.Record = true, &rollout.Progress{Revision: 7}
			})
			w := newDeploymentWorld(t, awaiting(rollout.HeldByMachines))
			w.answer(0)
			w.after(time.Minute, with(d, row.change))
			result := w.rollOut(t)
			require.Equal(t, []string{row.outcome, row.why}, []string{result.Outcome, result.Why})
			require.Equal(t, int64(7), result.Revision)
			require.Equal(t, "1m", result.Took)
			require.Empty(t, w.log)
		})
	}
}

// backTo is a decision to roll back to the template of a former set.
func backTo(automatic bool) deployment.Decision {
	d := deployment.Decision{
		Pending: attention.Decision{Need: attention.Scale, Why: "go back"},
		Version: "4",
		Rollout: rollout.Decision{
			Revision: 7, Why: "return to revision 6", Rollback: &rollout.Rollback{
				Set: &rollout.Target{Name: "s-6", UID: "uid-6"}, Revision: 6, Automatic: automatic, Why: "return to revision 6",
			},
		},
	}
	return d
}

func TestRolloutEndsWithARollback(t *testing.T) {
	w := newDeploymentWorld(t, backTo(false))
	w.answer(0)
	result := w.rollOut(t)
	require.Equal(t, []string{workflows.OutcomeRolledBack, "return to revision 6"}, []string{result.Outcome, result.Why})
	require.Equal(t, "34", result.Versions[kube.DeploymentsResource], "the deployment must see the template that returned")
	require.Equal(t, []string{"RollBackDeployment"}, w.log)
	require.Equal(
		t,
		deployment.RollBack{Deployment: workflowstest.Ref, Version: "4", Rollback: *backTo(false).Rollout.Rollback},
		w.orders[0],
	)
}

// recorded is the decision before a rollback: the failed machines are not on record yet.
func recorded(d deployment.Decision) deployment.Decision {
	d.Rollout.Rollback, d.Rollout.Record = nil, &rollout.Progress{Revision: 7, Failed: []string{"m-1"}}
	return d
}

// Failed machines may be gone when the template is written: they are recorded before.
func TestMachinesThatFailedAreOnRecordBeforeARollback(t *testing.T) {
	w := newDeploymentWorld(t, recorded(backTo(true)), backTo(true))
	w.answer(0)
	require.Equal(t, workflows.OutcomeRolledBack, w.rollOut(t).Outcome)
	require.Equal(t, []string{"ReportDeployment", "RollBackDeployment"}, w.log)
	require.Equal(t, &rollout.Progress{Revision: 7, Failed: []string{"m-1"}}, w.orders[0].(deployment.Report).Record)
	require.Equal(t, workflowstest.Ref.UID, w.orders[0].(deployment.Report).Step.RolloutOf)
	require.Equal(t, "21", w.reads[1].Versions[kube.DeploymentsResource], "it is decided again with the record in sight")
	require.Equal(
		t,
		deployment.RollBack{Deployment: workflowstest.Ref, Version: "4", Rollback: *backTo(true).Rollout.Rollback},
		w.orders[1],
	)
}

func TestAutomaticRollbackThatIsNotWantedAnyMoreIsNotDone(t *testing.T) {
	w := newDeploymentWorld(t, recorded(backTo(true)), gone())
	w.answer(0)
	require.Equal(t, run.OutcomeGone, w.rollOut(t).Outcome)
	require.Equal(t, []string{"ReportDeployment"}, w.log)
}

func TestAMachineThatFailedAndCannotBeRecordedIsDecidedOnAgain(t *testing.T) {
	w := newDeploymentWorld(t, recorded(backTo(true)), gone())
	w.answer(0)
	w.fails["ReportDeployment"] = conflicting()
	require.Equal(t, run.OutcomeGone, w.rollOut(t).Outcome)
	require.Equal(t, []string{"ReportDeployment"}, w.log)
	require.True(t, w.reads[1].Live)
}

func TestRolloutGoesOnWhenThereIsNothingToReturnTo(t *testing.T) {
	nowhere := with(backTo(false), func(d *deployment.Decision) {
		d.Rollout.Rollback = &rollout.Rollback{Revision: 5, Why: "no such set"}
	})
	w := newDeploymentWorld(t, nowhere, complete())
	w.answer(0)
	require.Equal(t, workflows.OutcomeCompleted, w.rollOut(t).Outcome)
	require.Equal(t, []string{"RollBackDeployment"}, w.log, "what asked for it is cleared")
}

func TestRolloutLooksAgainAfterWhatItDidNotExpect(t *testing.T) {
	for name, failure := range map[string]error{
		"conflict":  conflicting(),
		"gone":      temporal.NewNonRetryableApplicationError("gone", kube.TypeObjectGone, nil),
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
				if name == "timed out" && activity == "ChangeSets" { // the local activity was tried before
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
	w.env.ExecuteWorkflow(workflows.Rollout, workflows.RolloutInput{Input: run.Input{Ref: workflowstest.Ref}, Revision: 7})
	require.ErrorContains(t, w.env.GetWorkflowError(), "Odd")
}

// A step of the rollout is recorded before the set sizes that follow from it are written.
func TestRolloutRecordsBeforeItResizes(t *testing.T) {
	record := &rollout.Progress{Revision: 7, Step: 1}
	w := newDeploymentWorld(
		t,
		with(moving("next stage"), func(d *deployment.Decision) { d.Rollout.Record, d.Report = record, true }),
		complete(),
	)
	w.answer(0)
	w.rollOut(t)
	require.Equal(t, []string{"ReportDeployment", "ChangeSets"}, w.log, "and it reports once")
	report := w.orders[0].(deployment.Report)
	require.Equal(t, record, report.Record)
	require.Equal(t, rolloutID, report.WorkflowID)
	require.Equal(t, rolloutID, report.Step.WorkflowID)
	require.Equal(t, "roll", report.Step.Name)
	require.Equal(t, "21", w.reads[1].Versions[kube.DeploymentsResource])
}

func TestRolloutResizesNothingWhenItCannotRecord(t *testing.T) {
	w := newDeploymentWorld(
		t,
		with(moving("next stage"), func(d *deployment.Decision) { d.Rollout.Record = &rollout.Progress{Revision: 7} }),
		complete(),
	)
	w.answer(0)
	w.fails["ReportDeployment"] = conflicting()
	w.rollOut(t)
	require.Equal(t, []string{"ReportDeployment"}, w.log)
}

// No signal reports the end of a pause point or of the progress deadline.
func TestRolloutLooksAgainWhenTheTimeHasCome(t *testing.T) {
	w := newDeploymentWorld(t)
	at := func(d time.Duration) deployment.Decision {
		return with(awaiting(rollout.HeldByStep), func(a *deployment.Decision) { a.Rollout.Recheck = w.begun.Add(d) })
	}
	w.script = []deployment.Decision{
		at(time.Minute),
		at(3 * time.Minute),
		at(time.Minute),
		awaiting(rollout.HeldByMachines),
	}
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
		workflowstest.Changed(w.env)
	}, time.Minute)
	w.env.ExecuteWorkflow(workflows.Rollout, workflows.RolloutInput{Input: run.Input{Ref: workflowstest.Ref}, Revision: 7})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, w.env.GetWorkflowError(), &next)
	var in workflows.RolloutInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	require.Equal(
		t,
		run.Input{Ref: workflowstest.Ref, Versions: kube.MinVersions{kube.SetsResource: "31"}, Continued: true},
		in.Input,
	)
	require.Equal(t, int64(7), in.Revision)

	later := newDeploymentWorld(t, left(complete(), 0, 3))
	later.env.SetStartTime(w.begun.Add(2 * time.Minute))
	later.env.ExecuteWorkflow(workflows.Rollout, in)
	var result workflows.RolloutResult
	require.NoError(t, later.env.GetWorkflowResult(&result))
	require.Equal(t, workflows.RolloutResult{
		Outcome:  workflows.OutcomeCompleted,
		Why:      "all is there",
		Revision: 7,
		Replaced: 3,
		Machines: 3,
		Took:     "2m",
		Slowest:  "one more",
		SlowTook: "2m",
		Waited:   []workflows.RolloutWait{{For: "Machines", Took: "2m"}},
		Versions: in.Versions,
	}, result)
	require.False(t, later.reads[0].Live, "the versions are complete")
}

func TestRolloutPutsTheFinalizerOnBeforeItReturns(t *testing.T) {
	w := newDeploymentWorld(t, with(backTo(false), func(d *deployment.Decision) { d.Prepare = true }), backTo(false))
	w.answer(0)
	require.Equal(t, workflows.OutcomeRolledBack, w.rollOut(t).Outcome)
	require.Equal(t, []string{"FinalizeDeployment", "RollBackDeployment"}, w.log)
}

func TestRolloutOfADeploymentThatBecameInvalidIsStuck(t *testing.T) {
	w := newDeploymentWorld(
		t,
		deployment.Decision{
			Pending: attention.Decision{Need: attention.Scale},
			Rollout: rollout.Decision{Revision: 7, HoldBy: rollout.HeldByFault, Why: "hold"},
		},
	)
	w.show()
	w.after(time.Minute, gone())
	w.rollOut(t)
	require.Equal(t, []any{"invalid", true}, []any{w.shown["Step"], w.shown["Stuck"]})
}
