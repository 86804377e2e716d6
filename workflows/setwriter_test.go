package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/workflows"
)

var aTarget = []rollout.Target{{Name: "x", UID: "uid-x"}}

// everything is a step with something to do at sets, machines and nodes.
func everything() activities.DeploymentDecision {
	return with(moving("grow"), func(d *activities.DeploymentDecision) {
		d.Accept, d.Strip = aTarget, aTarget
	})
}

func TestNodesSetsAndMachinesAreChangedSideBySide(t *testing.T) {
	w := newDeploymentWorld(t, everything(), complete())
	w.answer(10 * time.Second)
	w.rollOut(t)
	require.ElementsMatch(t, []string{"ChangeNodes", "ChangeSets", "ChangeMachines"}, w.log)
	require.Equal(t, []time.Duration{0, 10 * time.Second}, w.looks)
	require.Equal(t, activities.Gate{activities.SetsResource: "31", activities.MachinesResource: "32", activities.NodesResource: "33"}, w.reads[1].Gate)
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
			require.Len(t, w.reads[1].Gate, 2, "what the others wrote is waited for")
		})
	}
}

// What a decision lists goes to the activity that knows how to do it, and to no other.
func TestWhoCarriesOutWhat(t *testing.T) {
	resize, move := []rollout.Resize{{Name: "s-7", From: 1, To: 2}}, []rollout.Move{{Machine: aTarget[0], To: "s-7"}}
	revise, trigger := &rollout.Revise{Target: aTarget[0], Revision: 7}, &rollout.Trigger{Drop: []string{"m"}}
	mark := []rollout.Mark{{Target: aTarget[0], At: "now"}}
	for _, row := range []struct {
		name  string
		d     rollout.Decision
		order any
	}{
		{"trigger", rollout.Decision{Trigger: trigger}, activities.Marks{Deployment: ref, Version: "4", Trigger: trigger}},
		{"mark", rollout.Decision{Mark: mark}, activities.Marks{Deployment: ref, Version: "4", Mark: mark}},
		{"unmark", rollout.Decision{Unmark: aTarget}, activities.Marks{Deployment: ref, Version: "4", Unmark: aTarget}},
		{"open", rollout.Decision{Open: aTarget}, activities.SetChanges{Deployment: ref, Open: aTarget}},
		{"close", rollout.Decision{Close: aTarget}, activities.SetChanges{Deployment: ref, Close: aTarget}},
		{"revise", rollout.Decision{Revise: revise}, activities.SetChanges{Deployment: ref, Revise: revise}},
		{"sync", rollout.Decision{Sync: aTarget}, activities.SetChanges{Deployment: ref, Sync: aTarget}},
		{"resize", rollout.Decision{Resize: resize}, activities.SetChanges{Deployment: ref, Resize: resize}},
		{"delete", rollout.Decision{Delete: aTarget}, activities.SetChanges{Deployment: ref, Delete: aTarget}},
		{"move", rollout.Decision{Move: move}, activities.MachineChanges{Deployment: ref, Move: move}},
		{"accept", rollout.Decision{Accept: aTarget}, activities.MachineChanges{Deployment: ref, Accept: aTarget}},
		{"settle", rollout.Decision{Settle: aTarget}, activities.NodeChanges{Deployment: ref, Settle: aTarget}},
		{"strip", rollout.Decision{Strip: aTarget}, activities.NodeChanges{Deployment: ref, Strip: aTarget}},
		{"candidates", rollout.Decision{Candidates: aTarget}, activities.NodeChanges{Deployment: ref, Candidates: aTarget}},
		{"select", rollout.Decision{Select: aTarget}, activities.NodeChanges{Deployment: ref, Select: aTarget}},
		{"taint", rollout.Decision{Taint: aTarget}, activities.NodeChanges{Deployment: ref, Taint: aTarget}},
		{"untaint", rollout.Decision{Untaint: aTarget}, activities.NodeChanges{Deployment: ref, Untaint: aTarget}},
		{"guard", rollout.Decision{Guard: aTarget}, activities.NodeChanges{Deployment: ref, Guard: aTarget}},
		{"unguard", rollout.Decision{Unguard: aTarget}, activities.NodeChanges{Deployment: ref, Unguard: aTarget}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newDeploymentWorld(t, activities.DeploymentDecision{Version: "4", Need: attention.Scale, Decision: row.d}, gone())
			w.answer(0)
			w.rollOut(t)
			require.Equal(t, []any{row.order}, w.orders)
		})
	}
}

func TestReplacementsAreGrantedWhileARolloutIsOpen(t *testing.T) {
	w := newDeploymentWorld(t, with(moving("grow"), func(d *activities.DeploymentDecision) { d.Replace, d.Report = true, true }), complete())
	w.answer(0)
	w.rollOut(t)
	require.Equal(t, []string{"ChangeSets", "GrantReplacements"}, w.log, "what was granted is looked at before it is reported")
}

func TestHeldReplacementsAreLookedAtAgainDuringARollout(t *testing.T) {
	w := newDeploymentWorld(t)
	w.script = []activities.DeploymentDecision{with(awaiting(rollout.HeldByMachines), func(d *activities.DeploymentDecision) {
		d.Held, d.HeldUntil, d.Recheck = true, w.begun.Add(time.Minute), w.begun.Add(time.Hour)
	}), complete()}
	w.rollOut(t)
	require.Equal(t, []time.Duration{0, time.Minute}, w.looks)
}

// What people see of a rollout at a glance.
func TestWhatARolloutShows(t *testing.T) {
	type change = func(*activities.DeploymentDecision)
	later := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name      string
		change    change
		stage     string
		blockedBy []string
		stuck     bool
		deadline  time.Time
	}{
		{"it acts", func(d *activities.DeploymentDecision) { d.HoldBy, d.Unmark = "", aTarget }, "roll", nil, false, time.Time{}},
		{"it waits for machines", func(*activities.DeploymentDecision) {}, "await-machines", nil, false, time.Time{}},
		{"until the progress deadline", func(d *activities.DeploymentDecision) { d.Recheck = later }, "await-machines", nil, false, later},
		{"which has passed", func(d *activities.DeploymentDecision) { d.Late, d.Recheck = true, later }, "await-machines", nil, true, time.Time{}},
		{"machines get no instance", func(d *activities.DeploymentDecision) { d.Picture.Blocked = "ResourceExhausted" }, "await-machines", []string{"ResourceExhausted"}, false, time.Time{}},
		{"paused", func(d *activities.DeploymentDecision) { d.HoldBy = rollout.HeldByPause }, "paused", []string{"Paused"}, true, time.Time{}},
		{"a person passes the stage", func(d *activities.DeploymentDecision) {
			d.HoldBy, d.Gate = rollout.HeldByStage, &rollout.Gate{Approve: true}
		}, "await-approval", []string{"Approval"}, true, time.Time{}},
		{"time passes the stage", func(d *activities.DeploymentDecision) {
			d.HoldBy, d.Gate, d.Recheck = rollout.HeldByStage, &rollout.Gate{Until: later}, later
		}, "await-stage", nil, false, time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newDeploymentWorld(t, with(awaiting(rollout.HeldByMachines), row.change), gone()) // it shows nothing more then
			w.answer(0)
			w.show()
			w.env.RegisterDelayedCallback(func() { changed(w.env) }, time.Minute)
			w.rollOut(t)
			stuck, _ := w.shown["Stuck"].(bool)
			blockedBy, _ := w.shown["BlockedBy"].([]string)
			deadline, _ := w.shown["Deadline"].(time.Time)
			require.Equal(t, row.stage, w.shown["Stage"])
			require.Equal(t, row.stuck, stuck)
			require.Equal(t, row.blockedBy, blockedBy)
			require.True(t, row.deadline.Equal(deadline), deadline)
		})
	}
}

func TestWhatADeploymentShows(t *testing.T) {
	for _, row := range []struct {
		name      string
		d         activities.DeploymentDecision
		stage     any
		blockedBy any
		stuck     any
	}{
		{"calm", complete(), nil, nil, nil},
		{"to go", activities.DeploymentDecision{Need: attention.Deletion}, "await-sets", nil, nil},
		{"machines are replaced", activities.DeploymentDecision{Need: attention.Replace}, "await-replacements", nil, nil},
		{"machines may not be replaced", activities.DeploymentDecision{Need: attention.Replace, Held: true}, "await-replacements", []string{"ReplacementHeld"}, nil},
		{"nothing can be done with it", activities.DeploymentDecision{Need: attention.Scale, Decision: rollout.Decision{HoldBy: rollout.HeldByFault}}, "invalid", []string{"Invalid"}, true},
		{"its rollout was cancelled", awaiting(rollout.HeldBy), nil, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newDeploymentWorld(t, row.d)
			w.show()
			w.after(10*time.Second, gone())
			w.env.ExecuteWorkflow(workflows.MachineDeployment, workflows.Input{Ref: ref})
			require.NoError(t, w.env.GetWorkflowError())
			require.Equal(t, []any{row.stage, row.blockedBy, row.stuck}, []any{w.shown["Stage"], w.shown["BlockedBy"], w.shown["Stuck"]})
		})
	}
}
