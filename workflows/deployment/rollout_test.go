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

// withMachineCounts returns the decision with old machines of earlier templates and updated machines of the new
// template.
func withMachineCounts(d deployment.Decision, old, updated int) deployment.Decision {
	d.Picture.Old, d.Picture.Counts.Updated, d.Picture.Counts.Replicas = old, updated, old+updated
	return d
}

func withBlocker(d deployment.Decision, reason string) deployment.Decision {
	d.Picture.Blocked = reason
	return d
}

func TestRolloutRunsUntilAllMachinesHaveTheRevision(t *testing.T) {
	w := newDeploymentTestEnv(
		t,
		withMachineCounts(resizeDecision("one more"), 3, 0),
		withMachineCounts(waitDecision(rollout.HeldByMachines), 3, 1),
	)
	w.mockWrites(0)
	w.changeAfterDelay(
		time.Minute,
		withMachineCounts(resizeDecision("another one"), 1, 1),
		withBlocker(withMachineCounts(waitDecision(rollout.HeldByMachines), 1, 2), "ResourceExhausted"),
	)
	w.changeAfterDelay(3*time.Minute, withMachineCounts(waitDecision(rollout.HeldByStep), 1, 2))
	w.changeAfterDelay(3*time.Minute+30*time.Second, withMachineCounts(completedRolloutDecision(), 0, 3))
	result := w.runRollout(t)
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
	require.Equal(t, []string{"ChangeSets", "ChangeSets"}, w.activityLog)
	require.Equal(
		t,
		deployment.SetChanges{
			Deployment: workflowstest.ObjectRef,
			SetChanges: rollout.SetChanges{Resize: resizeDecision("").Rollout.Resize},
		},
		w.activityInputs[0],
	)
	require.True(t, w.decisionInputs[0].Live, "it is not known what was written before")
	require.False(t, w.decisionInputs[1].Live)
	require.Equal(t, "31", w.decisionInputs[1].Versions[kube.SetsResource], "it sees what it wrote")
	require.Equal(t, rolloutID, w.decisionInputs[0].WorkflowID, "the status has to name it")
}

// A rollout ends only after its last report is written.
func TestRolloutEndsWhenNothingIsLeftToDo(t *testing.T) {
	last := withChange(completedRolloutDecision(), func(d *deployment.Decision) {
		d.Pending.Need, d.Report, d.Rollout.Delete = attention.NeedScaling, true, []rollout.ObjectTarget{{Name: "s-1"}}
	})
	w := newDeploymentTestEnv(t, last, completedRolloutDecision())
	w.mockWrites(0)
	require.Equal(t, workflows.OutcomeCompleted, w.runRollout(t).Outcome)
	require.Equal(t, []string{"ChangeSets", "ReportDeployment"}, w.activityLog)
	require.Equal(
		t,
		deployment.SetChanges{
			Deployment: workflowstest.ObjectRef,
			SetChanges: rollout.SetChanges{Delete: last.Rollout.Delete},
		},
		w.activityInputs[0],
	)
	require.Len(t, w.decisionInputs, 2)
}

// While a rollout replaces many machines, the counts in the status change several times a second. The workflow writes
// the counts once a second, and always writes the final counts.
func TestRolloutWritesItsCountsOnceASecond(t *testing.T) {
	counts := withChange(waitDecision(rollout.HeldByMachines), func(d *deployment.Decision) { d.Report = true })
	calm := waitDecision(rollout.HeldByMachines)
	w := newDeploymentTestEnv(t, counts, calm)
	w.mockWrites(0)
	written := func(n int, at time.Duration) {
		w.env.RegisterDelayedCallback(func() {
			defer w.lock()()
			require.Len(t, w.activityLog, n, "after %s", at)
		}, at)
	}
	// the first write is immediate; the clock of the test also advances while an activity runs
	written(1, 200*time.Millisecond)
	w.changeAfterDelay(250*time.Millisecond, counts)
	w.changeAfterDelay(400*time.Millisecond, counts)
	w.changeAfterDelay(600*time.Millisecond, counts, counts, calm)
	written(1, 900*time.Millisecond)
	written(2, 1500*time.Millisecond)
	written(2, 30*time.Second)
	w.changeAfterDelay(time.Minute, counts, calm)
	written(3, time.Minute+300*time.Millisecond) // more than MinReportInterval has passed since the last report
	w.changeAfterDelay(
		time.Minute+400*time.Millisecond,
		withChange(completedRolloutDecision(), func(d *deployment.Decision) { d.Report = true }),
		completedRolloutDecision(),
	)
	require.Equal(t, workflows.OutcomeCompleted, w.runRollout(t).Outcome)
	require.Len(t, w.activityLog, 4, "a complete rollout is reported at once")
}

func TestEndedRolloutWritesNothing(t *testing.T) {
	type change = func(*deployment.Decision)
	for _, row := range []struct {
		name    string
		change  change
		outcome string
		why     string
	}{
		{"the template changed, and the set of the new one is there", func(d *deployment.Decision) { d.Rollout.Revision = 8 }, workflows.OutcomeSuperseded, "the machines get revision 8 instead"},
		{"the template changed, and has no set yet", func(d *deployment.Decision) {
			d.Rollout.Revision, d.Rollout.Create = 0, &rollout.SetCreation{Revision: 8}
		}, workflows.OutcomeSuperseded, "the template changed"},
		{"the template changed, and gets no set now", func(d *deployment.Decision) { d.Rollout.Revision, d.Rollout.NoSet = 0, true }, workflows.OutcomeSuperseded, "the template changed"},
		{"the deployment is being deleted", func(d *deployment.Decision) { d.Pending.Need, d.Rollout.Revision = attention.NeedDeletion, 0 }, workflows.OutcomeSuperseded, "the deployment is being deleted"},
		{"somebody cancelled it", func(d *deployment.Decision) { d.Rollout.HoldBy = rollout.HeldByCancel }, workflows.OutcomeCancelled, "hold"},
		{"the deployment is gone", func(d *deployment.Decision) { *d = goneDeploymentDecision() }, run.OutcomeGone, "the object is gone"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := withChange(resizeDecision("hold"), func(d *deployment.Decision) {
				d.Report, d.Rollout.Record = true, &rollout.Progress{Revision: 7}
			})
			w := newDeploymentTestEnv(t, waitDecision(rollout.HeldByMachines))
			w.mockWrites(0)
			w.changeAfterDelay(time.Minute, withChange(d, row.change))
			result := w.runRollout(t)
			require.Equal(t, []string{row.outcome, row.why}, []string{result.Outcome, result.Why})
			require.Equal(t, int64(7), result.Revision)
			require.Equal(t, "1m", result.Took)
			require.Empty(t, w.activityLog)
		})
	}
}

// rollbackDecision returns a decision that rolls back to the template of an earlier set.
func rollbackDecision() deployment.Decision {
	d := deployment.Decision{
		Pending: attention.Decision{Need: attention.NeedScaling, Why: "go back"},
		Version: "4",
		Rollout: rollout.Decision{
			Revision: 7, Why: "return to revision 6", Rollback: &rollout.Rollback{
				Set: &rollout.ObjectTarget{Name: "s-6", UID: "uid-6"}, Revision: 6, Why: "return to revision 6",
			},
		},
	}
	return d
}

// pinDecision returns a decision that records the pin of an automatic rollback.
func pinDecision() deployment.Decision {
	pin := &rollout.Pin{Set: "pool-6", Revision: 6, Why: "1 machine of it failed, 0 allowed"}
	return deployment.Decision{
		Pending: attention.Decision{Need: attention.NeedScaling, Why: "go back"},
		Version: "4",
		Rollout: rollout.Decision{
			Revision: 7,
			Why:      "revision 7 failed",
			Record:   &rollout.Progress{Revision: 7, Set: "pool-7", Failed: []string{"m-1"}, Pin: pin},
		},
	}
}

func TestRolloutEndsWithARollback(t *testing.T) {
	w := newDeploymentTestEnv(t, rollbackDecision())
	w.mockWrites(0)
	result := w.runRollout(t)
	require.Equal(t, []string{workflows.OutcomeRolledBack, "return to revision 6"}, []string{result.Outcome, result.Why})
	require.Equal(t, "34", result.Versions[kube.DeploymentsResource], "the deployment must see the template that returned")
	require.Equal(t, []string{"RollBackDeployment"}, w.activityLog)
	require.Equal(
		t,
		deployment.RollbackInput{
			Deployment: workflowstest.ObjectRef,
			Version:    "4",
			Rollback:   *rollbackDecision().Rollout.Rollback,
		},
		w.activityInputs[0],
	)
}

// The rollout records the pin with the failed machines, and ends. Then the rollout to the earlier revision starts.
func TestRolloutEndsWithAPin(t *testing.T) {
	w := newDeploymentTestEnv(t, pinDecision())
	w.mockWrites(0)
	result := w.runRollout(t)
	require.Equal(t, []string{workflows.OutcomeRolledBack, "revision 7 failed"}, []string{result.Outcome, result.Why})
	require.Equal(t, []string{"ReportDeployment"}, w.activityLog)
	require.Equal(t, pinDecision().Rollout.Record, w.activityInputs[0].(deployment.Report).Record)
	require.Equal(t, workflowstest.ObjectRef.UID, w.activityInputs[0].(deployment.Report).Step.RolloutOf)
}

// If a run is terminated after it has written the pin, the next run ends with the outcome of the pin and does nothing
// else.
func TestRolloutEndsIfItsRevisionIsPinned(t *testing.T) {
	d := pinDecision()
	d.Rollout.Pin, d.Rollout.Record = d.Rollout.Record.Pin, nil
	w := newDeploymentTestEnv(t, d)
	w.mockWrites(0)
	require.Equal(t, workflows.OutcomeRolledBack, w.runRollout(t).Outcome)
	require.Empty(t, w.activityLog)
}

func TestPinIsDecidedAgainAfterAConflict(t *testing.T) {
	w := newDeploymentTestEnv(t, pinDecision(), goneDeploymentDecision())
	w.mockWrites(0)
	w.nextErrors["ReportDeployment"] = conflictError()
	require.Equal(t, run.OutcomeGone, w.runRollout(t).Outcome)
	require.Equal(t, []string{"ReportDeployment"}, w.activityLog)
	require.True(t, w.decisionInputs[1].Live)
}

func TestRolloutContinuesWithoutASetToRollBackTo(t *testing.T) {
	nowhere := withChange(rollbackDecision(), func(d *deployment.Decision) {
		d.Rollout.Rollback = &rollout.Rollback{Revision: 5, Why: "no such set"}
	})
	w := newDeploymentTestEnv(t, nowhere, completedRolloutDecision())
	w.mockWrites(0)
	require.Equal(t, workflows.OutcomeCompleted, w.runRollout(t).Outcome)
	require.Equal(t, []string{"RollBackDeployment"}, w.activityLog, "what asked for it is cleared")
}

func TestRolloutReadsLiveAfterAnUnexpectedError(t *testing.T) {
	for name, failure := range map[string]error{
		"conflict":  conflictError(),
		"gone":      temporal.NewNonRetryableApplicationError("gone", kube.FailureTypeObjectGone, nil),
		"timed out": temporal.NewTimeoutError(3, errors.New("slow")), // enum value 3 is schedule-to-close
	} {
		for _, activity := range []string{"ChangeSets", "RollBackDeployment"} {
			t.Run(name+" "+activity, func(t *testing.T) {
				d := resizeDecision("grow")
				if activity == "RollBackDeployment" {
					d = rollbackDecision()
				}
				w := newDeploymentTestEnv(t, d, completedRolloutDecision())
				w.mockWrites(0)
				w.nextErrors[activity] = failure
				log := []string{activity}
				if name == "timed out" && activity == "ChangeSets" { // the local activity has already run
					w.failsBothActivities, log = true, append(log, activity)
				}
				result := w.runRollout(t)
				require.Equal(t, workflows.OutcomeCompleted, result.Outcome)
				require.Equal(t, log, w.activityLog)
				require.True(t, w.decisionInputs[1].Live)
			})
		}
	}
}

func TestRolloutFailsAfterANonRetryableError(t *testing.T) {
	w := newDeploymentTestEnv(t, resizeDecision("grow"))
	w.mockWrites(0)
	w.nextErrors["ChangeSets"] = temporal.NewNonRetryableApplicationError("no", "Odd", nil)
	w.env.ExecuteWorkflow(
		workflows.Rollout,
		workflows.RolloutInput{Input: run.Input{Ref: workflowstest.ObjectRef}, Revision: 7},
	)
	require.ErrorContains(t, w.env.GetWorkflowError(), "Odd")
}

// A rollout writes the record of a step before it resizes the sets for this step.
func TestRolloutRecordsTheStepBeforeItResizes(t *testing.T) {
	record := &rollout.Progress{Revision: 7, Step: 1}
	w := newDeploymentTestEnv(
		t,
		withChange(resizeDecision("next stage"), func(d *deployment.Decision) { d.Rollout.Record, d.Report = record, true }),
		completedRolloutDecision(),
	)
	w.mockWrites(0)
	w.runRollout(t)
	require.Equal(t, []string{"ReportDeployment", "ChangeSets"}, w.activityLog, "and it reports once")
	report := w.activityInputs[0].(deployment.Report)
	require.Equal(t, record, report.Record)
	require.Equal(t, rolloutID, report.WorkflowID)
	require.Equal(t, rolloutID, report.Step.WorkflowID)
	require.Equal(t, "roll", report.Step.Name)
	require.Equal(t, "21", w.decisionInputs[1].Versions[kube.DeploymentsResource])
}

func TestRolloutResizesNothingIfTheStepIsNotRecorded(t *testing.T) {
	w := newDeploymentTestEnv(
		t,
		withChange(
			resizeDecision("next stage"),
			func(d *deployment.Decision) { d.Rollout.Record = &rollout.Progress{Revision: 7} },
		),
		completedRolloutDecision(),
	)
	w.mockWrites(0)
	w.nextErrors["ReportDeployment"] = conflictError()
	w.runRollout(t)
	require.Equal(t, []string{"ReportDeployment"}, w.activityLog)
}

// No signal reports that a pause between steps or the progress deadline has ended.
func TestRolloutDecidesAgainAtTheRecheckTime(t *testing.T) {
	w := newDeploymentTestEnv(t)
	at := func(d time.Duration) deployment.Decision {
		return withChange(
			waitDecision(rollout.HeldByStep),
			func(a *deployment.Decision) { a.Rollout.Recheck = w.startTime.Add(d) },
		)
	}
	w.decisionScript = []deployment.Decision{
		at(time.Minute),
		at(3 * time.Minute),
		at(time.Minute),
		waitDecision(rollout.HeldByMachines),
	}
	w.changeAfterDelay(time.Hour, completedRolloutDecision())
	require.Equal(t, workflows.OutcomeCompleted, w.runRollout(t).Outcome)
	require.Equal(
		t,
		[]time.Duration{0, time.Minute, 3 * time.Minute, 3*time.Minute + time.Second, time.Hour},
		w.decisionTimes,
		"a time that is over by the worker's clock only is waited for",
	)
}

func TestRolloutThatContinuesAsNewKeepsItsFigures(t *testing.T) {
	w := newDeploymentTestEnv(
		t,
		withMachineCounts(resizeDecision("one more"), 3, 0),
		withMachineCounts(waitDecision(rollout.HeldByMachines), 2, 1),
	)
	w.mockWrites(0)
	w.env.RegisterDelayedCallback(func() {
		w.env.SetContinueAsNewSuggested(true)
		workflowstest.SignalChange(w.env)
	}, time.Minute)
	w.env.ExecuteWorkflow(
		workflows.Rollout,
		workflows.RolloutInput{Input: run.Input{Ref: workflowstest.ObjectRef}, Revision: 7},
	)
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, w.env.GetWorkflowError(), &next)
	var in workflows.RolloutInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	require.Equal(
		t,
		run.Input{Ref: workflowstest.ObjectRef, Versions: kube.MinVersions{kube.SetsResource: "31"}, Continued: true},
		in.Input,
	)
	require.Equal(t, int64(7), in.Revision)

	later := newDeploymentTestEnv(t, withMachineCounts(completedRolloutDecision(), 0, 3))
	later.env.SetStartTime(w.startTime.Add(2 * time.Minute))
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
	require.False(t, later.decisionInputs[0].Live, "the versions are complete")
}

func TestRolloutAddsTheFinalizerBeforeARollback(t *testing.T) {
	w := newDeploymentTestEnv(
		t,
		withChange(rollbackDecision(), func(d *deployment.Decision) { d.Prepare = true }),
		rollbackDecision(),
	)
	w.mockWrites(0)
	require.Equal(t, workflows.OutcomeRolledBack, w.runRollout(t).Outcome)
	require.Equal(t, []string{"FinalizeDeployment", "RollBackDeployment"}, w.activityLog)
}

func TestRolloutOfADeploymentThatBecameInvalidIsStuck(t *testing.T) {
	w := newDeploymentTestEnv(
		t,
		deployment.Decision{
			Pending: attention.Decision{Need: attention.NeedScaling},
			Rollout: rollout.Decision{Revision: 7, HoldBy: rollout.HeldByInvalidSpec, Why: "hold"},
		},
	)
	w.recordSearchAttributes()
	w.changeAfterDelay(time.Minute, goneDeploymentDecision())
	w.runRollout(t)
	require.Equal(t, []any{"invalid", true}, []any{w.searchAttributes["Step"], w.searchAttributes["Stuck"]})
}

// A wait for a person is a bar in Temporal's timeline: a timer, which ends with the wait.
func TestRolloutThatWaitsForAPersonHasATimer(t *testing.T) {
	withPause := func(machines int) deployment.Decision {
		d := waitDecision(rollout.HeldByStep)
		d.Rollout.Pause = &rollout.PausePoint{Of: 2, Size: machines, All: 10, Rolls: 7, Approve: true}
		return d
	}
	withRecheck := func(d deployment.Decision, at time.Time) deployment.Decision {
		d.Rollout.Recheck = at
		return d
	}
	paused := waitDecision(rollout.HeldByPause)
	paused.Rollout.Why = "the deployment is paused"
	byItself := withPause(2)
	byItself.Rollout.Pause.Approve = false
	due := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		decisions          []deployment.Decision
		started, cancelled int // timers of a day
	}{
		"approval":                    {[]deployment.Decision{withPause(2)}, 1, 0},
		"the same wait again":         {[]deployment.Decision{withPause(2), withPause(2)}, 1, 0},
		"another sentence":            {[]deployment.Decision{withPause(2), withPause(3)}, 2, 1},
		"then machines":               {[]deployment.Decision{withPause(2), waitDecision(rollout.HeldByMachines)}, 1, 1},
		"pause":                       {[]deployment.Decision{paused}, 1, 0},
		"machines":                    {[]deployment.Decision{waitDecision(rollout.HeldByMachines)}, 0, 0},
		"a step that ends by itself":  {[]deployment.Decision{byItself}, 0, 0},
		"another timer has the label": {[]deployment.Decision{withRecheck(paused, due)}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentTestEnv(t, row.decisions[0])
			w.mockWrites(0)
			started, cancelled := map[string]bool{}, 0
			w.env.SetOnTimerScheduledListener(func(id string, d time.Duration) {
				if d == 24*time.Hour {
					started[id] = true
				}
			})
			w.env.SetOnTimerCanceledListener(func(id string) {
				if started[id] {
					cancelled++
				}
			})
			for i, d := range row.decisions[1:] {
				w.changeAfterDelay(time.Duration(i+1)*time.Minute, d)
			}
			w.changeAfterDelay(time.Hour, completedRolloutDecision())
			require.Equal(t, workflows.OutcomeCompleted, w.runRollout(t).Outcome)
			require.Len(t, started, row.started)
			require.Equal(t, row.cancelled, cancelled, "before the end of the rollout")
		})
	}
}

// The decision after the end of the timer starts another timer.
func TestLongWaitForAPersonStartsTheTimerAgain(t *testing.T) {
	d := waitDecision(rollout.HeldByStep)
	d.Rollout.Pause = &rollout.PausePoint{Of: 2, Size: 2, All: 10, Rolls: 7, Approve: true}
	w := newDeploymentTestEnv(t, d)
	w.mockWrites(0)
	started := 0
	w.env.SetOnTimerScheduledListener(func(_ string, d time.Duration) {
		if d == 24*time.Hour {
			started++
		}
	})
	w.changeAfterDelay(60*time.Hour, withMachineCounts(completedRolloutDecision(), 0, 3))
	require.Equal(t, workflows.OutcomeCompleted, w.runRollout(t).Outcome)
	require.Equal(t, 3, started)
}
