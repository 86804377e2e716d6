package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
)

var longAgo = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// reportMachine reports twice and returns the status that came of it.
func reportMachine(w *world, in activities.MachineReport) v1alpha1.MachineStatus {
	w.t.Helper()
	version := twice[string](w, w.ReportMachine, in)
	m := w.machine(in.Read.Ref.Name)
	assert.Equal(w.t, m.ResourceVersion, version, "the version to wait for")
	return m.Status
}

func TestU61_ReportMachine(t *testing.T) {
	t.Parallel()
	m := machine("m")
	w := newWorld(t, m)
	step := activities.Step{WorkflowID: "machine/shop/m", Name: "create-instance", Since: longAgo.Time, Deadline: longAgo.Add(time.Hour), LastError: "Unavailable"}
	status := reportMachine(w, activities.MachineReport{
		Read: read(m), Phase: "CrashLoopBackOff", Step: &step, LastKnownState: "state-7",
		Operation:  &activities.LastOperation{Type: "Create", State: "Failed", Description: "no capacity", ErrorCode: "ResourceExhausted"},
		Conditions: []activities.Condition{{Type: "InstanceReady", Reason: "ResourceExhausted", Message: "no capacity"}},
		Event:      &activities.Event{Warning: true, Reason: "ResourceExhausted", Message: "no capacity"},
	})
	assert.Equal(t, v1alpha1.MachineCrashLoopBackOff, status.CurrentStatus.Phase)
	assert.False(t, status.CurrentStatus.LastUpdateTime.IsZero())
	assert.Equal(t, []string{"Create", "Failed", "no capacity", "ResourceExhausted"}, []string{
		string(status.LastOperation.Type), string(status.LastOperation.State), status.LastOperation.Description, status.LastOperation.ErrorCode,
	})
	assert.Equal(t, "state-7", status.LastKnownState)
	assert.Equal(t, "create-instance", status.CurrentOperation.Step)
	assert.True(t, status.CurrentOperation.Since.Equal(&longAgo))
	assert.True(t, status.CurrentOperation.Deadline.Time.Equal(step.Deadline))
	assert.Equal(t, "Unavailable", status.CurrentOperation.LastError)
	require.Len(t, status.Conditions, 1)
	assert.Equal(t, corev1.ConditionFalse, status.Conditions[0].Status)

	t.Run("D38: people hear of it, once", func(t *testing.T) {
		assert.Equal(t, []string{"Warning ResourceExhausted no capacity"}, w.told())
	})
	assert.Equal(t, []string{"update machines/status"}, w.writes())
}

// inUse returns a machine whose status was written long ago.
func inUse() *v1alpha1.Machine {
	m := machine("m", onNode, phase(v1alpha1.MachineRunning))
	m.Status.CurrentStatus.LastUpdateTime = longAgo
	m.Status.LastOperation = v1alpha1.LastOperation{Type: "Create", State: "Successful", Description: "joined", LastUpdateTime: longAgo}
	m.Status.LastKnownState = "state-7"
	m.Status.Conditions = []corev1.NodeCondition{
		{Type: v1alpha1.MachineInstanceReady, Status: "True", Reason: "InstanceCreated", LastTransitionTime: longAgo},
	}
	return m
}

func TestTimesOfAReportMoveOnlyWithWhatTheyStandFor(t *testing.T) {
	t.Parallel()
	same := activities.LastOperation{Type: "Create", State: "Successful", Description: "joined"}
	for name, row := range map[string]struct {
		report              activities.MachineReport
		phase, last, status bool // whether it moves
	}{
		"the same again":                 {activities.MachineReport{Phase: "Running", Operation: &same}, false, false, false},
		"a step, and nothing else":       {activities.MachineReport{Step: &activities.Step{Name: "x"}}, false, false, false},
		"an operation in the same phase": {activities.MachineReport{Phase: "Running", Operation: &activities.LastOperation{Type: "HealthCheck"}}, false, true, false},
		"another phase":                  {activities.MachineReport{Phase: "Unknown"}, true, false, false},
		"another reason of a condition":  {activities.MachineReport{Conditions: []activities.Condition{{Type: "InstanceReady", True: true, Reason: "Adopted"}}}, false, false, false},
		"another status of a condition":  {activities.MachineReport{Conditions: []activities.Condition{{Type: "InstanceReady", Reason: "Internal"}}}, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := inUse()
			row.report.Read = read(m)
			status := reportMachine(newWorld(t, m), row.report)
			assert.Equal(t, row.phase, !status.CurrentStatus.LastUpdateTime.Equal(&longAgo), "of the phase")
			assert.Equal(t, row.last, !status.LastOperation.LastUpdateTime.Equal(&longAgo), "of the operation")
			assert.Equal(t, row.status, !status.Conditions[0].LastTransitionTime.Equal(&longAgo), "of the condition")
		})
	}
}

func TestWhatAReportDoesNotNameStays(t *testing.T) {
	t.Parallel()
	m := inUse()
	m.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: "machine/shop/m"}
	w := newWorld(t, m)
	status := reportMachine(w, activities.MachineReport{
		Read: read(m), Before: &activities.Event{Reason: "First", Message: "of two"}, Event: &activities.Event{Reason: "Calm", Message: "all is well"},
	})
	assert.Equal(t, "state-7", status.LastKnownState)
	assert.Equal(t, v1alpha1.MachineRunning, status.CurrentStatus.Phase)
	assert.Equal(t, "joined", status.LastOperation.Description)
	assert.Len(t, status.Conditions, 1)
	assert.Nil(t, status.CurrentOperation, "except the operation: none means calm")
	assert.Equal(t, []string{"Normal First of two", "Normal Calm all is well"}, w.told())

	t.Run("U62: and where it says nothing new, nothing is written and nobody is told", func(t *testing.T) {
		w.forget()
		reportMachine(w, activities.MachineReport{Read: read(m), Phase: "Running", Event: &activities.Event{Reason: "Calm", Message: "all is well"}})
		assert.Empty(t, w.requests())
		assert.Empty(t, w.told())
	})
}

func TestWhatTheProviderMustRememberOutlivesErrors(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"Internal", "InvalidArgument", "ResourceExhausted", "Unavailable"} {
		t.Run("D29: "+code, func(t *testing.T) {
			m := inUse()
			status := reportMachine(newWorld(t, m), activities.MachineReport{
				Read: read(m), Phase: "CrashLoopBackOff", Operation: &activities.LastOperation{Type: "Create", State: "Failed", ErrorCode: code},
			})
			assert.Equal(t, "state-7", status.LastKnownState)
		})
	}
}

func TestReportMachineCopiesTheNodesConditions(t *testing.T) {
	t.Parallel()
	m := inUse()
	m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{Type: "Ready", Status: "True", Message: "old"}, corev1.NodeCondition{Type: "Gone", Status: "True"})
	n := node(func(n *corev1.Node) {
		n.Status.Conditions[0].LastHeartbeatTime, n.Status.Conditions[0].LastTransitionTime = metav1.Now(), longAgo
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: v1alpha1.MachineInstanceReady, Status: "False"})
	})
	w := newWorld(t, m, n)
	status := reportMachine(w, activities.MachineReport{Read: read(m)})
	require.Len(t, status.Conditions, 2)
	assert.Equal(t, corev1.NodeConditionType("Ready"), status.Conditions[0].Type)
	assert.True(t, status.Conditions[0].LastTransitionTime.Equal(&longAgo))
	assert.Equal(t, v1alpha1.MachineInstanceReady, status.Conditions[1].Type, "ours stays")
	assert.Equal(t, corev1.ConditionTrue, status.Conditions[1].Status, "and the node cannot speak for it")

	t.Run("D43: messages too", func(t *testing.T) {
		assert.Equal(t, "kubelet is posting ready status", status.Conditions[0].Message)
		n := w.node()
		n.Status.Conditions[0].Message = "kubelet stopped posting node status"
		w.rewrite(n)
		status := reportMachine(w, activities.MachineReport{Read: read(m)})
		assert.Equal(t, "kubelet stopped posting node status", status.Conditions[0].Message)
	})
	t.Run("a heartbeat is no news", func(t *testing.T) {
		assert.True(t, status.Conditions[0].LastHeartbeatTime.IsZero())
	})
	t.Run("without its node the last copy stays", func(t *testing.T) {
		alone := inUse()
		alone.Status.Conditions = append(alone.Status.Conditions, corev1.NodeCondition{Type: "Ready", Status: "Unknown", Message: "last words"})
		status := reportMachine(newWorld(t, alone), activities.MachineReport{Read: read(alone)})
		assert.Equal(t, "last words", status.Conditions[0].Message)
	})
}

func TestD43_AnotherMessageAloneIsWorthAReport(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, phase(v1alpha1.MachineRunning))
	w := calm(t, m, class())
	n := w.node()
	n.Status.Conditions[0].Message = "kubelet is posting ready status. AppArmor enabled"
	w.rewrite(n)
	assert.Equal(t, attention.Health, decideMachine(w, read(m)).Need)
	twice[string](w, w.ReportMachine, activities.MachineReport{Read: read(m)})
	assert.Equal(t, attention.Nothing, decideMachine(w, read(m)).Need)

	n = w.node()
	n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
	w.rewrite(n)
	assert.Equal(t, attention.Nothing, decideMachine(w, read(m)).Need, "a heartbeat is no news")
}

func TestReportOfAnInstanceThatIsThereAfterAll(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, phase(v1alpha1.MachineCrashLoopBackOff))
	m.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.MachineInstanceReady, Status: "False", Reason: "Unavailable", LastTransitionTime: longAgo}}
	status := reportMachine(newWorld(t, m), activities.MachineReport{
		Read: read(m), Phase: "Pending", Operation: &activities.LastOperation{Type: "Create", State: "Processing"},
		Conditions: []activities.Condition{{Type: "InstanceReady", True: true, Reason: "InstanceCreated"}},
	})
	assert.Equal(t, v1alpha1.MachinePending, status.CurrentStatus.Phase)
	assert.Empty(t, status.LastOperation.ErrorCode)
	require.Len(t, status.Conditions, 1)
	assert.Equal(t, corev1.ConditionTrue, status.Conditions[0].Status)
}

func TestTimeoutActive(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]bool{"Pending": true, "Unknown": true, "Running": false, "Failed": false, "Terminating": false} {
		m := machine("m")
		status := reportMachine(newWorld(t, m), activities.MachineReport{Read: read(m), Phase: to})
		assert.Equal(t, want, status.CurrentStatus.TimeoutActive, to)
	}
}

func TestReportMachineOfAnotherObject(t *testing.T) {
	t.Parallel()
	t.Run("that has the name now", func(t *testing.T) {
		w := newWorld(t, machine("m"))
		_, err := run[string](w, w.ReportMachine, activities.MachineReport{Read: activities.Read{Ref: stranger(machine("m"))}, Phase: "Failed"})
		machinesGone(t, err)
		assert.Empty(t, w.machine("m").Status.CurrentStatus.Phase)
	})
	t.Run("of which the cache has not heard", func(t *testing.T) {
		m := machine("m", bare)
		w := newWorld(t, m)
		w.hold()
		w.replace(m)
		_, err := run[string](w, w.ReportMachine, activities.MachineReport{Read: read(m), Phase: "Failed", Event: &activities.Event{}})
		machinesGone(t, err)
		assert.Empty(t, w.machine("m").Status.CurrentStatus.Phase)
		assert.Empty(t, w.told())
	})
}
