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

var aTarget = []rollout.Target{{Name: "x", UID: "uid-x"}}

// everything is a decision with changes of sets, machines and nodes.
func everything() deployment.Decision {
	return with(moving("grow"), func(d *deployment.Decision) {
		d.Rollout.ClearUpdateResult, d.Rollout.ClearUpdateLabels = aTarget, aTarget
	})
}

func TestNodesSetsAndMachinesAreChangedSideBySide(t *testing.T) {
	w := newDeploymentWorld(t, everything(), complete())
	w.answer(10 * time.Second)
	w.rollOut(t)
	require.ElementsMatch(t, []string{"ChangeNodes", "ChangeSets", "ChangeMachines"}, w.log)
	require.Equal(t, []time.Duration{0, 10 * time.Second}, w.looks)
	require.Equal(
		t,
		kube.MinVersions{kube.SetsResource: "31", kube.MachinesResource: "32", kube.NodesResource: "33"},
		w.reads[1].Versions,
	)
}

func TestAllWritesAreAwaitedWhateverBecomesOfOne(t *testing.T) {
	for _, name := range []string{"ChangeNodes", "ChangeSets", "ChangeMachines"} {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentWorld(t, everything(), complete())
			w.answer(10 * time.Second)
			w.fails[name] = conflicting()
			w.rollOut(t)
			require.Len(t, w.log, 3)
			require.Equal(t, []time.Duration{0, 10 * time.Second}, w.looks)
			require.True(t, w.reads[1].Live)
			require.Len(t, w.reads[1].Versions, 2, "what the others wrote is waited for")
		})
	}
}

// Each list of a decision goes to its own activity.
func TestWhoCarriesOutWhat(t *testing.T) {
	resize, move := []rollout.Resize{{Name: "s-7", From: 1, To: 2}}, []rollout.Move{{Machine: aTarget[0], To: "s-7"}}
	revise, trigger := &rollout.Revise{Target: aTarget[0], Revision: 7}, &rollout.Trigger{Drop: []string{"m"}}
	mark := []rollout.Mark{{Target: aTarget[0], At: "now"}}
	for _, row := range []struct {
		name  string
		d     rollout.Decision
		order any
	}{
		{"trigger", rollout.Decision{Trigger: trigger}, deployment.Marks{Deployment: workflowstest.Ref, Version: "4", Trigger: trigger}},
		{"mark", rollout.Decision{MachineChanges: rollout.MachineChanges{Mark: mark}}, deployment.Marks{Deployment: workflowstest.Ref, Version: "4", Mark: mark}},
		{"unmark", rollout.Decision{MachineChanges: rollout.MachineChanges{Unmark: aTarget}}, deployment.Marks{Deployment: workflowstest.Ref, Version: "4", Unmark: aTarget}},
		{"open", rollout.Decision{SetChanges: rollout.SetChanges{AllowScaleUp: aTarget}}, deployment.SetChanges{Deployment: workflowstest.Ref, SetChanges: rollout.SetChanges{AllowScaleUp: aTarget}}},
		{"close", rollout.Decision{SetChanges: rollout.SetChanges{ForbidScaleUp: aTarget}}, deployment.SetChanges{Deployment: workflowstest.Ref, SetChanges: rollout.SetChanges{ForbidScaleUp: aTarget}}},
		{"revise", rollout.Decision{SetChanges: rollout.SetChanges{Revise: revise}}, deployment.SetChanges{Deployment: workflowstest.Ref, SetChanges: rollout.SetChanges{Revise: revise}}},
		{"sync", rollout.Decision{SetChanges: rollout.SetChanges{Sync: aTarget}}, deployment.SetChanges{Deployment: workflowstest.Ref, SetChanges: rollout.SetChanges{Sync: aTarget}}},
		{"resize", rollout.Decision{SetChanges: rollout.SetChanges{Resize: resize}}, deployment.SetChanges{Deployment: workflowstest.Ref, SetChanges: rollout.SetChanges{Resize: resize}}},
		{"delete", rollout.Decision{SetChanges: rollout.SetChanges{Delete: aTarget}}, deployment.SetChanges{Deployment: workflowstest.Ref, SetChanges: rollout.SetChanges{Delete: aTarget}}},
		{"move", rollout.Decision{MachineChanges: rollout.MachineChanges{Move: move}}, deployment.MachineChanges{Deployment: workflowstest.Ref, MachineChanges: rollout.MachineChanges{Move: move}}},
		{"accept", rollout.Decision{MachineChanges: rollout.MachineChanges{ClearUpdateResult: aTarget}}, deployment.MachineChanges{Deployment: workflowstest.Ref, MachineChanges: rollout.MachineChanges{ClearUpdateResult: aTarget}}},
		{"settle", rollout.Decision{NodeChanges: rollout.NodeChanges{FinishUpdate: aTarget}}, deployment.NodeChanges{Deployment: workflowstest.Ref, NodeChanges: rollout.NodeChanges{FinishUpdate: aTarget}}},
		{"strip", rollout.Decision{NodeChanges: rollout.NodeChanges{ClearUpdateLabels: aTarget}}, deployment.NodeChanges{Deployment: workflowstest.Ref, NodeChanges: rollout.NodeChanges{ClearUpdateLabels: aTarget}}},
		{"candidates", rollout.Decision{NodeChanges: rollout.NodeChanges{Candidates: aTarget}}, deployment.NodeChanges{Deployment: workflowstest.Ref, NodeChanges: rollout.NodeChanges{Candidates: aTarget}}},
		{"select", rollout.Decision{NodeChanges: rollout.NodeChanges{Select: aTarget}}, deployment.NodeChanges{Deployment: workflowstest.Ref, NodeChanges: rollout.NodeChanges{Select: aTarget}}},
		{"taint", rollout.Decision{NodeChanges: rollout.NodeChanges{Taint: aTarget}}, deployment.NodeChanges{Deployment: workflowstest.Ref, NodeChanges: rollout.NodeChanges{Taint: aTarget}}},
		{"untaint", rollout.Decision{NodeChanges: rollout.NodeChanges{Untaint: aTarget}}, deployment.NodeChanges{Deployment: workflowstest.Ref, NodeChanges: rollout.NodeChanges{Untaint: aTarget}}},
		{"guard", rollout.Decision{NodeChanges: rollout.NodeChanges{ProtectFromAutoscaler: aTarget}}, deployment.NodeChanges{Deployment: workflowstest.Ref, NodeChanges: rollout.NodeChanges{ProtectFromAutoscaler: aTarget}}},
		{"unguard", rollout.Decision{NodeChanges: rollout.NodeChanges{UnprotectFromAutoscaler: aTarget}}, deployment.NodeChanges{Deployment: workflowstest.Ref, NodeChanges: rollout.NodeChanges{UnprotectFromAutoscaler: aTarget}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newDeploymentWorld(
				t,
				deployment.Decision{Pending: attention.Decision{Need: attention.Scale}, Version: "4", Rollout: row.d},
				gone(),
			)
			w.answer(0)
			w.rollOut(t)
			require.Equal(t, []any{row.order}, w.orders)
		})
	}
}

func TestReplacementsAreGrantedWhileARolloutIsOpen(t *testing.T) {
	w := newDeploymentWorld(
		t,
		with(moving("grow"), func(d *deployment.Decision) { d.Replace, d.Report = true, true }),
		complete(),
	)
	w.answer(0)
	w.rollOut(t)
	require.Equal(
		t,
		[]string{"ChangeSets", "GrantReplacements"},
		w.log,
		"what was granted is looked at before it is reported",
	)
}

func TestHeldReplacementsAreLookedAtAgainDuringARollout(t *testing.T) {
	w := newDeploymentWorld(t)
	w.script = []deployment.Decision{with(awaiting(rollout.HeldByMachines), func(d *deployment.Decision) {
		d.ReplaceHeld, d.ReplaceHeldUntil, d.Rollout.Recheck = true, w.begun.Add(time.Minute), w.begun.Add(time.Hour)
	}), complete()}
	w.rollOut(t)
	require.Equal(t, []time.Duration{0, time.Minute}, w.looks)
}

// What search attributes and details of a rollout show.
func TestWhatARolloutShows(t *testing.T) {
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
		{"it acts", func(d *deployment.Decision) { d.Rollout.HoldBy, d.Rollout.Unmark = "", aTarget }, "roll", nil, false, time.Time{}},
		{"it waits for machines", func(*deployment.Decision) {}, "await-machines", nil, false, time.Time{}},
		{"until the progress deadline", func(d *deployment.Decision) { d.Rollout.Recheck = later }, "await-machines", nil, false, later},
		{"which has passed", func(d *deployment.Decision) { d.Rollout.Late, d.Rollout.Recheck = true, later }, "await-machines", nil, true, time.Time{}},
		{"machines get no instance", func(d *deployment.Decision) { d.Picture.Blocked = "ResourceExhausted" }, "await-machines", []string{"ResourceExhausted"}, false, time.Time{}},
		{"paused", func(d *deployment.Decision) { d.Rollout.HoldBy = rollout.HeldByPause }, "paused", []string{"Paused"}, true, time.Time{}},
		{"a person passes the stage", func(d *deployment.Decision) {
			d.Rollout.HoldBy, d.Rollout.Pause = rollout.HeldByStep, &rollout.PausePoint{Approve: true}
		}, "await-approval", []string{"Approval"}, true, time.Time{}},
		{"time passes the stage", func(d *deployment.Decision) {
			d.Rollout.HoldBy, d.Rollout.Pause, d.Rollout.Recheck = rollout.HeldByStep, &rollout.PausePoint{Until: later}, later
		}, "await-step", nil, false, time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newDeploymentWorld(t, with(awaiting(rollout.HeldByMachines), row.change), gone()) // it shows no later step
			w.answer(0)
			w.show()
			w.env.RegisterDelayedCallback(func() { workflowstest.Changed(w.env) }, time.Minute)
			w.rollOut(t)
			stuck, _ := w.shown["Stuck"].(bool)
			blockedBy, _ := w.shown["BlockedBy"].([]string)
			deadline, _ := w.shown["Deadline"].(time.Time)
			require.Equal(t, row.stage, w.shown["Step"])
			require.Equal(t, row.stuck, stuck)
			require.Equal(t, row.blockedBy, blockedBy)
			require.True(t, row.deadline.Equal(deadline), deadline)
		})
	}
}

// The status is written because it is late, and says what the deployment waits for.
func TestALateStatusSaysWhatIsWaitedFor(t *testing.T) {
	pending := attention.Decision{
		Need:  attention.Scale,
		Why:   "status is out of date",
		Waits: "1 machine is being replaced: m-1",
	}
	// reported once, then waits
	w := newDeploymentWorld(t, deployment.Decision{Pending: pending, Report: true}, deployment.Decision{Pending: pending})
	w.after(10*time.Second, gone())
	w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.Ref})
	require.NoError(t, w.env.GetWorkflowError())
	report, is := w.orders[0].(deployment.Report)
	require.True(t, is)
	require.Equal(t, "1 machine is being replaced: m-1", report.Step.Cause)
}

func TestWhatADeploymentShows(t *testing.T) {
	for _, row := range []struct {
		name      string
		d         deployment.Decision
		stage     any
		blockedBy any
		stuck     any
	}{
		{"calm", complete(), nil, nil, nil},
		{"to go", deployment.Decision{Pending: attention.Decision{Need: attention.Deletion}}, "await-sets", nil, nil},
		{"machines are replaced", deployment.Decision{Pending: attention.Decision{Need: attention.Replace}}, "await-replacements", nil, nil},
		{"machines may not be replaced", deployment.Decision{Pending: attention.Decision{Need: attention.Replace}, ReplaceHeld: true}, "await-replacements", []string{"ReplacementHeld"}, nil},
		{"nothing can be done with it", deployment.Decision{Pending: attention.Decision{Need: attention.Scale}, Rollout: rollout.Decision{HoldBy: rollout.HeldByFault}}, "invalid", []string{"Invalid"}, true},
		{"its rollout was cancelled", awaiting(rollout.HeldBy), nil, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newDeploymentWorld(t, row.d)
			w.show()
			w.after(10*time.Second, gone())
			w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.Ref})
			require.NoError(t, w.env.GetWorkflowError())
			require.Equal(
				t,
				[]any{row.stage, row.blockedBy, row.stuck},
				[]any{w.shown["Step"], w.shown["BlockedBy"], w.shown["Stuck"]},
			)
		})
	}
}
