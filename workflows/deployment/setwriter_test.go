package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	workflows "millwright/workflows/deployment"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

var testTargets = []rollout.ObjectTarget{{Name: "x", UID: "uid-x"}}

// allChangesDecision returns a decision with changes of sets, machines and nodes.
func allChangesDecision() deployment.Decision {
	return withChange(resizeDecision("grow"), func(d *deployment.Decision) {
		d.Rollout.ClearUpdateResult, d.Rollout.ClearUpdateLabels = testTargets, testTargets
	})
}

func TestNodesSetsAndMachinesAreChangedConcurrently(t *testing.T) {
	w := newDeploymentTestEnv(t, allChangesDecision(), completedRolloutDecision())
	w.mockWrites(10 * time.Second)
	w.runRollout(t)
	require.ElementsMatch(t, []string{"ChangeNodes", "ChangeSets", "ChangeMachines"}, w.activityLog)
	require.Equal(t, []time.Duration{0, 10 * time.Second}, w.decisionTimes)
	require.Equal(
		t,
		kube.MinVersions{kube.SetsResource: "31", kube.MachinesResource: "32", kube.NodesResource: "33"},
		w.decisionInputs[1].Versions,
	)
}

func TestAllWritesAreAwaitedIfOneFails(t *testing.T) {
	for _, name := range []string{"ChangeNodes", "ChangeSets", "ChangeMachines"} {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentTestEnv(t, allChangesDecision(), completedRolloutDecision())
			w.mockWrites(10 * time.Second)
			w.nextErrors[name] = conflictError()
			w.runRollout(t)
			require.Len(t, w.activityLog, 3)
			require.Equal(t, []time.Duration{0, 10 * time.Second}, w.decisionTimes)
			require.True(t, w.decisionInputs[1].Live)
			require.Len(t, w.decisionInputs[1].Versions, 2, "what the others wrote is waited for")
		})
	}
}

// Each list in a decision is written by its own activity.
func TestEachListOfADecisionHasItsActivity(t *testing.T) {
	resize, move := []rollout.SetResize{
		{Name: "s-7", From: 1, To: 2},
	}, []rollout.MachineMove{
		{Machine: testTargets[0], To: "s-7"},
	}
	revise, trigger := &rollout.RevisionChange{
		ObjectTarget: testTargets[0],
		Revision:     7,
	}, &rollout.TriggerAnnotationUpdate{
		Drop: []string{"m"},
	}
	mark := []rollout.ChoiceMark{{ObjectTarget: testTargets[0], At: "now"}}
	for _, row := range []struct {
		name  string
		d     rollout.Decision
		order any
	}{
		{"trigger", rollout.Decision{Trigger: trigger}, deployment.MachineMarks{Deployment: workflowstest.ObjectRef, Version: "4", Trigger: trigger}},
		{"mark", rollout.Decision{MachineChanges: rollout.MachineChanges{Mark: mark}}, deployment.MachineMarks{Deployment: workflowstest.ObjectRef, Version: "4", Mark: mark}},
		{"unmark", rollout.Decision{MachineChanges: rollout.MachineChanges{Unmark: testTargets}}, deployment.MachineMarks{Deployment: workflowstest.ObjectRef, Version: "4", Unmark: testTargets}},
		{"open", rollout.Decision{SetChanges: rollout.SetChanges{AllowScaleUp: testTargets}}, deployment.SetChanges{Deployment: workflowstest.ObjectRef, SetChanges: rollout.SetChanges{AllowScaleUp: testTargets}}},
		{"close", rollout.Decision{SetChanges: rollout.SetChanges{ForbidScaleUp: testTargets}}, deployment.SetChanges{Deployment: workflowstest.ObjectRef, SetChanges: rollout.SetChanges{ForbidScaleUp: testTargets}}},
		{"revise", rollout.Decision{SetChanges: rollout.SetChanges{Revise: revise}}, deployment.SetChanges{Deployment: workflowstest.ObjectRef, SetChanges: rollout.SetChanges{Revise: revise}}},
		{"sync", rollout.Decision{SetChanges: rollout.SetChanges{Sync: testTargets}}, deployment.SetChanges{Deployment: workflowstest.ObjectRef, SetChanges: rollout.SetChanges{Sync: testTargets}}},
		{"resize", rollout.Decision{SetChanges: rollout.SetChanges{Resize: resize}}, deployment.SetChanges{Deployment: workflowstest.ObjectRef, SetChanges: rollout.SetChanges{Resize: resize}}},
		{"delete", rollout.Decision{SetChanges: rollout.SetChanges{Delete: testTargets}}, deployment.SetChanges{Deployment: workflowstest.ObjectRef, SetChanges: rollout.SetChanges{Delete: testTargets}}},
		{"move", rollout.Decision{MachineChanges: rollout.MachineChanges{Move: move}}, deployment.MachineChanges{Deployment: workflowstest.ObjectRef, MachineChanges: rollout.MachineChanges{Move: move}}},
		{"accept", rollout.Decision{MachineChanges: rollout.MachineChanges{ClearUpdateResult: testTargets}}, deployment.MachineChanges{Deployment: workflowstest.ObjectRef, MachineChanges: rollout.MachineChanges{ClearUpdateResult: testTargets}}},
		{"settle", rollout.Decision{NodeChanges: rollout.NodeChanges{FinishUpdate: testTargets}}, deployment.NodeChanges{Deployment: workflowstest.ObjectRef, NodeChanges: rollout.NodeChanges{FinishUpdate: testTargets}}},
		{"strip", rollout.Decision{NodeChanges: rollout.NodeChanges{ClearUpdateLabels: testTargets}}, deployment.NodeChanges{Deployment: workflowstest.ObjectRef, NodeChanges: rollout.NodeChanges{ClearUpdateLabels: testTargets}}},
		{"candidates", rollout.Decision{NodeChanges: rollout.NodeChanges{Candidates: testTargets}}, deployment.NodeChanges{Deployment: workflowstest.ObjectRef, NodeChanges: rollout.NodeChanges{Candidates: testTargets}}},
		{"select", rollout.Decision{NodeChanges: rollout.NodeChanges{Select: testTargets}}, deployment.NodeChanges{Deployment: workflowstest.ObjectRef, NodeChanges: rollout.NodeChanges{Select: testTargets}}},
		{"taint", rollout.Decision{NodeChanges: rollout.NodeChanges{Taint: testTargets}}, deployment.NodeChanges{Deployment: workflowstest.ObjectRef, NodeChanges: rollout.NodeChanges{Taint: testTargets}}},
		{"untaint", rollout.Decision{NodeChanges: rollout.NodeChanges{Untaint: testTargets}}, deployment.NodeChanges{Deployment: workflowstest.ObjectRef, NodeChanges: rollout.NodeChanges{Untaint: testTargets}}},
		{"guard", rollout.Decision{NodeChanges: rollout.NodeChanges{ProtectFromAutoscaler: testTargets}}, deployment.NodeChanges{Deployment: workflowstest.ObjectRef, NodeChanges: rollout.NodeChanges{ProtectFromAutoscaler: testTargets}}},
		{"unguard", rollout.Decision{NodeChanges: rollout.NodeChanges{UnprotectFromAutoscaler: testTargets}}, deployment.NodeChanges{Deployment: workflowstest.ObjectRef, NodeChanges: rollout.NodeChanges{UnprotectFromAutoscaler: testTargets}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newDeploymentTestEnv(
				t,
				deployment.Decision{Pending: attention.Decision{Need: attention.NeedScaling}, Version: "4", Rollout: row.d},
				goneDeploymentDecision(),
			)
			w.mockWrites(0)
			w.runRollout(t)
			require.Equal(t, []any{row.order}, w.activityInputs)
		})
	}
}

func TestReplacementsAreGrantedWhileARolloutIsOpen(t *testing.T) {
	w := newDeploymentTestEnv(
		t,
		withChange(resizeDecision("grow"), func(d *deployment.Decision) { d.Replace, d.Report = true, true }),
		completedRolloutDecision(),
	)
	w.mockWrites(0)
	w.runRollout(t)
	require.Equal(
		t,
		[]string{"ChangeSets", "GrantReplacements"},
		w.activityLog,
		"what was granted is looked at before it is reported",
	)
}

func TestHeldReplacementsAreDecidedAgainDuringARollout(t *testing.T) {
	w := newDeploymentTestEnv(t)
	w.decisionScript = []deployment.Decision{
		withChange(waitDecision(rollout.HeldByMachines), func(d *deployment.Decision) {
			d.ReplaceHeld, d.ReplaceHeldUntil, d.Rollout.Recheck = true, w.startTime.Add(time.Minute), w.startTime.Add(time.Hour)
		}),
		completedRolloutDecision(),
	}
	w.runRollout(t)
	require.Equal(t, []time.Duration{0, time.Minute}, w.decisionTimes)
}

// The search attributes and details show the current step of a rollout.
func TestSearchAttributesShowTheStepOfARollout(t *testing.T) {
	type change = func(*deployment.Decision)
	later := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name      string
		change    change
		stage     string
		blockedBy []string
		stuck     bool
		deadline  time.Time
	}{
		{"it acts", func(d *deployment.Decision) { d.Rollout.HoldBy, d.Rollout.Unmark = "", testTargets }, "roll", nil, false, time.Time{}},
		{"it waits for machines", func(*deployment.Decision) {}, "await-machines", nil, false, time.Time{}},
		{"until the progress deadline", func(d *deployment.Decision) { d.Rollout.Recheck = later }, "await-machines", nil, false, later},
		{"which has passed", func(d *deployment.Decision) { d.Rollout.Late, d.Rollout.Recheck = true, later }, "await-machines", nil, true, time.Time{}},
		{"machines get no instance", func(d *deployment.Decision) { d.Picture.Blocked = "ResourceExhausted" }, "await-machines", []string{"ResourceExhausted"}, false, time.Time{}},
		{"paused", func(d *deployment.Decision) { d.Rollout.HoldBy = rollout.HeldByPause }, "paused", []string{"Paused"}, true, time.Time{}},
		{"it waits for its turn", func(d *deployment.Decision) { d.Rollout.HoldBy = rollout.HeldByTurn }, "await-turn", []string{"Turn"}, false, time.Time{}},
		{"a person passes the stage", func(d *deployment.Decision) {
			d.Rollout.HoldBy, d.Rollout.Pause = rollout.HeldByStep, &rollout.PausePoint{Approve: true}
		}, "await-approval", []string{"Approval"}, true, time.Time{}},
		{"time passes the stage", func(d *deployment.Decision) {
			d.Rollout.HoldBy, d.Rollout.Pause, d.Rollout.Recheck = rollout.HeldByStep, &rollout.PausePoint{Until: later}, later
		}, "await-step", nil, false, time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newDeploymentTestEnv(
				t,
				withChange(waitDecision(rollout.HeldByMachines), row.change),
				goneDeploymentDecision(),
			) // the last decision contains no step
			w.mockWrites(0)
			w.recordSearchAttributes()
			w.env.RegisterDelayedCallback(func() { workflowstest.SignalChange(w.env) }, time.Minute)
			w.runRollout(t)
			stuck, _ := w.searchAttributes["Stuck"].(bool)
			blockedBy, _ := w.searchAttributes["BlockedBy"].([]string)
			deadline, _ := w.searchAttributes["Deadline"].(time.Time)
			require.Equal(t, row.stage, w.searchAttributes["Step"])
			require.Equal(t, row.stuck, stuck)
			require.Equal(t, row.blockedBy, blockedBy)
			require.True(t, row.deadline.Equal(deadline), deadline)
		})
	}
}

// The status is written because it is out of date. The status contains the cause for which the deployment waits.
func TestStaleStatusIsWrittenWithItsCause(t *testing.T) {
	pending := attention.Decision{
		Need:  attention.NeedScaling,
		Why:   "status is out of date",
		Waits: "1 machine is being replaced: m-1",
	}
	// the workflow reports once, then waits
	w := newDeploymentTestEnv(
		t,
		deployment.Decision{Pending: pending, Report: true},
		deployment.Decision{Pending: pending},
	)
	w.changeAfterDelay(10*time.Second, goneDeploymentDecision())
	w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef})
	require.NoError(t, w.env.GetWorkflowError())
	report, is := w.activityInputs[0].(deployment.Report)
	require.True(t, is)
	require.Equal(t, "1 machine is being replaced: m-1", report.Step.Cause)
}

func TestSearchAttributesShowTheStepOfADeployment(t *testing.T) {
	for _, row := range []struct {
		name      string
		d         deployment.Decision
		stage     any
		blockedBy any
		stuck     any
	}{
		{"calm", completedRolloutDecision(), nil, nil, nil},
		{"to go", deployment.Decision{Pending: attention.Decision{Need: attention.NeedDeletion}}, "await-sets", nil, nil},
		{"machines are replaced", deployment.Decision{Pending: attention.Decision{Need: attention.NeedReplacement}}, "await-replacements", nil, nil},
		{"machines may not be replaced", deployment.Decision{Pending: attention.Decision{Need: attention.NeedReplacement}, ReplaceHeld: true}, "await-replacements", []string{"ReplacementHeld"}, nil},
		{"nothing can be done with it", deployment.Decision{Pending: attention.Decision{Need: attention.NeedScaling}, Rollout: rollout.Decision{HoldBy: rollout.HeldByInvalidSpec}}, "invalid", []string{"Invalid"}, true},
		{"its rollout was cancelled", waitDecision(rollout.HeldByCancel), nil, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newDeploymentTestEnv(t, row.d)
			w.recordSearchAttributes()
			w.changeAfterDelay(10*time.Second, goneDeploymentDecision())
			w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef})
			require.NoError(t, w.env.GetWorkflowError())
			require.Equal(
				t,
				[]any{row.stage, row.blockedBy, row.stuck},
				[]any{w.searchAttributes["Step"], w.searchAttributes["BlockedBy"], w.searchAttributes["Stuck"]},
			)
		})
	}
}
