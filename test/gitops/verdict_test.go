// Package gitops checks the status of MachineDeployments as GitOps tools do: Argo CD with the script
// deploy/gitops/argocd-health.lua, and Flux with kstatus.
package gitops

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/deployment"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// newMachineSet returns a set with this number of machines. The parameter available is the number of
// available machines, which are the first machines of the set.
func newMachineSet(revision int64, current bool, replicas, available int) rollout.MachineSet {
	name := map[bool]string{true: "new", false: "old"}[current]
	s := rollout.MachineSet{
		Name: name, UID: "uid-" + name, Version: "1", Current: current, Replicas: replicas, ObservedReplicas: replicas,
		Revision: revision, DesiredReplicas: 3, MaxReplicas: 4, CreatedAt: now.Add(time.Duration(revision) * time.Minute),
	}
	for i := range replicas {
		m := rollout.Member{Name: name + string(rune('a'+i)), UID: name + string(rune('a'+i)), Version: "1", CreatedAt: now}
		m.Ready, m.Available, m.Joined = i < available, i < available, i < available
		s.Machines = append(s.Machines, m)
	}
	return s
}

// newCompleteRolloutFacts returns a deployment of three machines whose rollout is complete, with changes.
func newCompleteRolloutFacts(changes ...func(*rollout.Facts)) rollout.Facts {
	o := rollout.Facts{
		Now: now, Generation: 1, ObservedGeneration: 1,
		Settings: rollout.Settings{
			Replicas:       3,
			Strategy:       rollout.RollingUpdate,
			MaxSurge:       rollout.IntOrPercent{Value: 1},
			MaxUnavailable: rollout.IntOrPercent{},
		},
		Sets:     []rollout.MachineSet{newMachineSet(2, true, 3, 3)},
		Progress: rollout.Progress{Revision: 2, Set: "new", Completed: now, Good: "new"},
	}
	for _, change := range changes {
		change(&o)
	}
	return o
}

// withStartedRollout starts the rollout of revision 2: the new set has one machine, and the old set still has three.
func withStartedRollout(available int) func(*rollout.Facts) {
	return func(o *rollout.Facts) {
		o.Sets = []rollout.MachineSet{
			newMachineSet(1, false, 3, 3),
			newMachineSet(2, true, 1, available),
		}
		o.Progress = rollout.Progress{Revision: 2, Set: "new", Good: "old"}
	}
}

func withPinnedRevision(old, fresh int) func(*rollout.Facts) {
	return func(o *rollout.Facts) {
		o.Sets = []rollout.MachineSet{
			newMachineSet(1, false, old, old),
			newMachineSet(2, true, fresh, 0),
		}
		o.Progress = rollout.Progress{Revision: 2, Set: "new", Good: "old", Pin: &rollout.Pin{
			Set: "old", Revision: 1, Since: now, Why: "1 machine of it failed, 0 allowed",
		}}
	}
}

// withMissedDeadline sets a progress deadline of one minute that has passed.
func withMissedDeadline(o *rollout.Facts) {
	o.ProgressDeadline = new(time.Minute)
	o.ReportedStatus.Counts = rollout.PlannedStatus(*o).Counts
	o.ReportedStatus.Conditions = []rollout.Condition{
		{Type: "Progressing", Status: "True", Reason: "MachineSetUpdated", LastUpdateTime: now.Add(-time.Hour)},
	}
}

// toUnstructured returns an object as a tool reads it.
func toUnstructured(t *testing.T, object any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: content}
}

// newMCMDeployment returns the deployment of MCM's kinds with the status that Millwright writes for the facts.
func newMCMDeployment(t *testing.T, o rollout.Facts) *unstructured.Unstructured {
	t.Helper()
	d := &v1alpha1.MachineDeployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "machine.sapcloud.io/v1alpha1", Kind: "MachineDeployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: o.Generation},
	}
	if o.Deleting {
		d.DeletionTimestamp = &metav1.Time{Time: now}
	}
	deployment.ApplyStatus(&d.Status, rollout.PlannedStatus(o), metav1.NewTime(now))
	d.Status.ObservedGeneration = o.ObservedGeneration
	return toUnstructured(t, d)
}

// runHealthScript runs the script as Argo CD does: the global obj has the object, and the result has status and
// message.
func runHealthScript(t *testing.T, object *unstructured.Unstructured) (health, message string) {
	t.Helper()
	script, err := os.ReadFile("../../deploy/gitops/argocd-health.lua")
	require.NoError(t, err)
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	l.SetGlobal("obj", toLuaValue(l, object.Object))
	require.NoError(t, l.DoString(string(script)))
	result, isTable := l.Get(-1).(*lua.LTable)
	require.True(t, isTable)
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

// toLuaValue converts a value of JSON.
func toLuaValue(l *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, element := range value {
			table.RawSetString(key, toLuaValue(l, element))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, element := range value {
			table.Append(toLuaValue(l, element))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	default:
		return lua.LNil
	}
}

// verdictRow is a state of an object, the health that Argo CD reports with the script, and the status that Flux reports.
type verdictRow struct {
	name    string
	facts   rollout.Facts
	argo    string
	kstatus status.Status
	message string // part of the script's message
}

// bothFamilies are the states that deployments of both families have.
func bothFamilies() []verdictRow {
	approval := func(o *rollout.Facts) {
		o.Steps = []rollout.Step{{Size: rollout.IntOrPercent{Value: 1}, NeedsApproval: true}}
		o.Progress.Reached = now
		o.Sets[0].Replicas, o.Sets[0].ObservedReplicas, o.Sets[0].Machines = 2, 2, o.Sets[0].Machines[:2]
	}
	byPerson := func(o *rollout.Facts) { o.Progress.Pin.By = "ann: slow disks" }
	return []verdictRow{
		{"complete", newCompleteRolloutFacts(), "Healthy", status.CurrentStatus, ""},
		{
			"a change that Millwright has not seen",
			newCompleteRolloutFacts(func(o *rollout.Facts) { o.Generation = 2 }),
			"Progressing",
			status.InProgressStatus,
			"",
		},
		{
			"a new machine boots",
			newCompleteRolloutFacts(withStartedRollout(0)),
			"Progressing",
			status.InProgressStatus,
			"1 of 3 machines up to date",
		},
		{
			"scaled up",
			newCompleteRolloutFacts(func(o *rollout.Facts) { o.Replicas = 4 }),
			"Progressing",
			status.InProgressStatus,
			"",
		},
		{
			"scaled down",
			newCompleteRolloutFacts(func(o *rollout.Facts) { o.Replicas = 2 }),
			"Progressing",
			status.InProgressStatus,
			"",
		},
		{
			"a machine is not available",
			newCompleteRolloutFacts(func(o *rollout.Facts) { o.Sets[0] = newMachineSet(2, true, 3, 2) }),
			"Progressing",
			status.InProgressStatus,
			"2 available",
		},
		{
			"waits for approval",
			newCompleteRolloutFacts(withStartedRollout(1), approval),
			"Suspended",
			status.InProgressStatus,
			"waits for approval",
		},
		{
			"paused",
			newCompleteRolloutFacts(withStartedRollout(1), func(o *rollout.Facts) { o.Paused = true }),
			"Suspended",
			status.InProgressStatus,
			"paused",
		},
		{
			"held",
			newCompleteRolloutFacts(withStartedRollout(1), func(o *rollout.Facts) { o.HoldReason = "ann: no" }),
			"Suspended",
			status.InProgressStatus,
			"ann",
		},
		{
			"paused after the rollout",
			newCompleteRolloutFacts(func(o *rollout.Facts) { o.Paused = true }),
			"Healthy",
			status.CurrentStatus,
			"",
		},
		{
			"late",
			newCompleteRolloutFacts(withStartedRollout(0), withMissedDeadline),
			"Degraded",
			status.FailedStatus,
			"progress",
		},
		{
			"returns to revision 1",
			newCompleteRolloutFacts(withPinnedRevision(2, 1)),
			"Degraded",
			status.FailedStatus,
			"revision 2 failed",
		},
		{
			"is back on revision 1",
			newCompleteRolloutFacts(withPinnedRevision(3, 0)),
			"Degraded",
			status.FailedStatus,
			"revision 2 failed",
		},
		{
			"a person pinned revision 1",
			newCompleteRolloutFacts(withPinnedRevision(3, 0), byPerson),
			"Degraded",
			status.FailedStatus,
			"revision 2 is pinned by ann (slow disks)",
		},
		{
			"invalid",
			newCompleteRolloutFacts(func(o *rollout.Facts) { o.InvalidReason = "the selector is empty" }),
			"Degraded",
			status.FailedStatus,
			"selector",
		},
	}
}

func TestHealthReportedByGitOpsTools(t *testing.T) {
	for _, row := range bothFamilies() {
		t.Run(row.name, func(t *testing.T) { assertVerdicts(t, newMCMDeployment(t, row.facts), row) })
	}
}

func assertVerdicts(t *testing.T, o *unstructured.Unstructured, row verdictRow) {
	t.Helper()
	health, message := runHealthScript(t, o)
	assert.Equal(t, row.argo, health, message)
	assert.Contains(t, message, row.message)
	verdict, err := status.Compute(o)
	require.NoError(t, err)
	assert.Equal(t, row.kstatus, verdict.Status, verdict.Message)
}

// Argo CD reports an object that is being deleted as Progressing, and runs no script.
func TestADeletedDeploymentIsTerminating(t *testing.T) {
	facts := newCompleteRolloutFacts(func(o *rollout.Facts) { o.Deleting = true })
	for _, o := range []*unstructured.Unstructured{newMCMDeployment(t, facts), newClusterAPIDeployment(t, facts)} {
		verdict, err := status.Compute(o)
		require.NoError(t, err)
		assert.Equal(t, status.TerminatingStatus, verdict.Status)
	}
}
