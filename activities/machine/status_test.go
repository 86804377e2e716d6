package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
)

// reportMachine runs ReportMachine twice and returns the resulting status.
func reportMachine(w *activitiestest.World, in machine.Report) v1alpha1.MachineStatus {
	w.T.Helper()
	reported := activitiestest.RunActivityTwice[kube.ReportResult](w, newActivities(w.Kube).ReportMachine, in)
	m := w.Machine(in.Read.Ref.Name)
	assert.Equal(w.T, m.ResourceVersion, reported.Version, "the version to wait for")
	return m.Status
}

func TestReportMachine(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m")
	w := activitiestest.NewWorld(t, m)
	step := kube.Step{
		WorkflowID: "machine/shop/m",
		Name:       "create-instance",
		Since:      activitiestest.OldTime.Time,
		Deadline:   activitiestest.OldTime.Add(time.Hour),
		BlockedBy:  []string{"Unavailable"},
		Cause:      "no capacity",
	}
	status := reportMachine(w, machine.Report{
		Read:           activitiestest.NewReadInput(m),
		Phase:          "CrashLoopBackOff",
		Step:           &step,
		LastKnownState: "state-7",
		Operation: &machine.LastOperation{
			Type:        "Create",
			State:       "Failed",
			Description: "no capacity",
			ErrorCode:   "ResourceExhausted",
		},
		Conditions: []machine.Condition{{Type: "InstanceReady", Reason: "ResourceExhausted", Message: "no capacity"}},
		Event:      &kube.Event{Warning: true, Reason: "ResourceExhausted", Message: "no capacity"},
	})
	assert.Equal(t, v1alpha1.MachineCrashLoopBackOff, status.CurrentStatus.Phase)
	assert.False(t, status.CurrentStatus.LastUpdateTime.IsZero())
	assert.Equal(t, []string{"Create", "Failed", "no capacity", "ResourceExhausted"}, []string{
		string(status.LastOperation.Type),
		string(status.LastOperation.State),
		status.LastOperation.Description,
		status.LastOperation.ErrorCode,
	})
	assert.Equal(t, "state-7", status.LastKnownState)
	assert.Equal(t, "create-instance", status.CurrentOperation.Step)
	assert.True(t, status.CurrentOperation.Since.Equal(&activitiestest.OldTime))
	assert.True(t, status.CurrentOperation.Deadline.Time.Equal(step.Deadline))
	assert.Equal(t, []string{"Unavailable"}, status.CurrentOperation.BlockedBy)
	assert.Equal(
		t,
		"no capacity (since 2026-01-01 00:00:00 UTC); it is tried again; if its instance is not ready, it counts as failed at 2026-01-01 01:00:00 UTC; `millwright provider check -n shop small`",
		status.CurrentOperation.WaitsFor,
	)
	require.Len(t, status.Conditions, 2)
	assert.Equal(t, corev1.ConditionFalse, status.Conditions[0].Status)
	assert.Equal(t, corev1.NodeCondition{
		Type:               v1alpha1.MachineBlocked,
		Status:             corev1.ConditionTrue,
		Reason:             "Unavailable",
		Message:            status.CurrentOperation.WaitsFor,
		LastTransitionTime: status.CurrentOperation.Since,
	}, status.Conditions[1])

	t.Run("people hear of it, once", func(t *testing.T) {
		assert.Equal(t, []string{"Warning ResourceExhausted no capacity"}, w.TakeNewEvents())
	})
	assert.Equal(t, []string{"update machines/status"}, w.MutatingRequests())
}

// runningMachine returns a running machine whose status was written long ago.
func runningMachine() *v1alpha1.Machine {
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
	m.Status.CurrentStatus.LastUpdateTime = activitiestest.OldTime
	m.Status.LastOperation = v1alpha1.LastOperation{
		Type:           "Create",
		State:          "Successful",
		Description:    "joined",
		LastUpdateTime: activitiestest.OldTime,
	}
	m.Status.LastKnownState = "state-7"
	m.Status.Conditions = []corev1.NodeCondition{
		{
			Type:               v1alpha1.MachineInstanceReady,
			Status:             "True",
			Reason:             "InstanceCreated",
			LastTransitionTime: activitiestest.OldTime,
		},
	}
	return m
}

func TestReportChangesTimestampsOnlyWithValues(t *testing.T) {
	t.Parallel()
	same := machine.LastOperation{Type: "Create", State: "Successful", Description: "joined"}
	for name, row := range map[string]struct {
		report              machine.Report
		phase, last, status bool // whether the timestamps of the phase, the lastOperation and the conditions change
	}{
		"the same again":                 {machine.Report{Phase: "Running", Operation: &same}, false, false, false},
		"a step, and nothing else":       {machine.Report{Step: &kube.Step{Name: "x"}}, false, false, false},
		"an operation in the same phase": {machine.Report{Phase: "Running", Operation: &machine.LastOperation{Type: "HealthCheck"}}, false, true, false},
		"another phase":                  {machine.Report{Phase: "Unknown"}, true, false, false},
		"another reason of a condition":  {machine.Report{Conditions: []machine.Condition{{Type: "InstanceReady", True: true, Reason: "Adopted"}}}, false, false, false},
		"another status of a condition":  {machine.Report{Conditions: []machine.Condition{{Type: "InstanceReady", Reason: "Internal"}}}, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := runningMachine()
			row.report.Read = activitiestest.NewReadInput(m)
			status := reportMachine(activitiestest.NewWorld(t, m), row.report)
			assert.Equal(t, row.phase, !status.CurrentStatus.LastUpdateTime.Equal(&activitiestest.OldTime), "of the phase")
			assert.Equal(t, row.last, !status.LastOperation.LastUpdateTime.Equal(&activitiestest.OldTime), "of the operation")
			assert.Equal(
				t,
				row.status,
				!status.Conditions[0].LastTransitionTime.Equal(&activitiestest.OldTime),
				"of the condition",
			)
		})
	}
}

func TestReportKeepsOmittedFields(t *testing.T) {
	t.Parallel()
	m := runningMachine()
	m.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: "machine/shop/m"}
	w := activitiestest.NewWorld(t, m)
	status := reportMachine(w, machine.Report{
		Read: activitiestest.NewReadInput(m), Event: &kube.Event{Reason: "Calm", Message: "all is well"},
	})
	assert.Equal(t, "state-7", status.LastKnownState)
	assert.Equal(t, v1alpha1.MachineRunning, status.CurrentStatus.Phase)
	assert.Equal(t, "joined", status.LastOperation.Description)
	assert.Len(t, status.Conditions, 1)
	assert.Nil(t, status.CurrentOperation, "except the operation: none means calm")
	assert.Equal(t, []string{"Normal Calm all is well"}, w.TakeNewEvents())

	t.Run("and where it says nothing new, nothing is written and nobody is told", func(t *testing.T) {
		w.ForgetRequests()
		reportMachine(
			w,
			machine.Report{
				Read:  activitiestest.NewReadInput(m),
				Phase: "Running",
				Event: &kube.Event{Reason: "Calm", Message: "all is well"},
			},
		)
		assert.Empty(t, w.Requests())
		assert.Empty(t, w.TakeNewEvents())
	})
}

func TestErrorsDoNotRemoveTheLastKnownState(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"Internal", "InvalidArgument", "ResourceExhausted", "Unavailable"} {
		t.Run(code, func(t *testing.T) {
			m := runningMachine()
			status := reportMachine(activitiestest.NewWorld(t, m), machine.Report{
				Read:      activitiestest.NewReadInput(m),
				Phase:     "CrashLoopBackOff",
				Operation: &machine.LastOperation{Type: "Create", State: "Failed", ErrorCode: code},
			})
			assert.Equal(t, "state-7", status.LastKnownState)
		})
	}
}

func TestReportMachineCopiesTheNodesConditions(t *testing.T) {
	t.Parallel()
	m := runningMachine()
	m.Status.Conditions = append(
		m.Status.Conditions,
		corev1.NodeCondition{Type: "Ready", Status: "True", Message: "old"},
		corev1.NodeCondition{Type: "Gone", Status: "True"},
	)
	n := activitiestest.NewNode(func(n *corev1.Node) {
		n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		n.Status.Conditions[0].LastTransitionTime = activitiestest.OldTime
		n.Status.Conditions = append(
			n.Status.Conditions,
			corev1.NodeCondition{Type: v1alpha1.MachineInstanceReady, Status: "False"},
		)
	})
	w := activitiestest.NewWorld(t, m, n)
	status := reportMachine(w, machine.Report{Read: activitiestest.NewReadInput(m)})
	require.Len(t, status.Conditions, 2)
	assert.Equal(t, corev1.NodeConditionType("Ready"), status.Conditions[0].Type)
	assert.True(t, status.Conditions[0].LastTransitionTime.Equal(&activitiestest.OldTime))
	assert.Equal(t, v1alpha1.MachineInstanceReady, status.Conditions[1].Type, "ours stays")
	assert.Equal(t, corev1.ConditionTrue, status.Conditions[1].Status, "and the node cannot speak for it")

	t.Run("messages too", func(t *testing.T) {
		assert.Equal(t, "kubelet is posting ready status", status.Conditions[0].Message)
		n := w.Node()
		n.Status.Conditions[0].Message = "kubelet stopped posting node status"
		w.WriteStatus(n)
		status := reportMachine(w, machine.Report{Read: activitiestest.NewReadInput(m)})
		assert.Equal(t, "kubelet stopped posting node status", status.Conditions[0].Message)
	})
	t.Run("a heartbeat is no news", func(t *testing.T) {
		assert.True(t, status.Conditions[0].LastHeartbeatTime.IsZero())
	})
	t.Run("without its node the last copy stays", func(t *testing.T) {
		alone := runningMachine()
		alone.Status.Conditions = append(
			alone.Status.Conditions,
			corev1.NodeCondition{Type: "Ready", Status: "Unknown", Message: "last words"},
		)
		status := reportMachine(activitiestest.NewWorld(t, alone), machine.Report{Read: activitiestest.NewReadInput(alone)})
		assert.Equal(t, "last words", status.Conditions[0].Message)
	})
}

func TestAChangedMessageAloneIsReported(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
	w := newWorldWithIdleMachine(t, m, activitiestest.NewClass())
	n := w.Node()
	n.Status.Conditions[0].Message = "kubelet is posting ready status. AppArmor enabled"
	w.WriteStatus(n)
	assert.Equal(t, attention.NeedStatusUpdate, activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Need)
	activitiestest.RunActivityTwice[kube.ReportResult](
		w,
		newActivities(w.Kube).ReportMachine,
		machine.Report{Read: activitiestest.NewReadInput(m)},
	)
	assert.Equal(t, attention.NeedNothing, activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Need)

	n = w.Node()
	n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
	w.WriteStatus(n)
	assert.Equal(
		t,
		attention.NeedNothing,
		activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Need,
		"a heartbeat is no news",
	)
}

func TestReportOfCreatedInstanceClearsError(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine(
		"m",
		activitiestest.WithNode,
		activitiestest.WithPhase(v1alpha1.MachineCrashLoopBackOff),
	)
	m.Status.Conditions = []corev1.NodeCondition{
		{
			Type:               v1alpha1.MachineInstanceReady,
			Status:             "False",
			Reason:             "Unavailable",
			LastTransitionTime: activitiestest.OldTime,
		},
	}
	status := reportMachine(activitiestest.NewWorld(t, m), machine.Report{
		Read:       activitiestest.NewReadInput(m),
		Phase:      "Pending",
		Operation:  &machine.LastOperation{Type: "Create", State: "Processing"},
		Conditions: []machine.Condition{{Type: "InstanceReady", True: true, Reason: "InstanceCreated"}},
	})
	assert.Equal(t, v1alpha1.MachinePending, status.CurrentStatus.Phase)
	assert.Empty(t, status.LastOperation.ErrorCode)
	require.Len(t, status.Conditions, 1)
	assert.Equal(t, corev1.ConditionTrue, status.Conditions[0].Status)
}

func TestReportSetsTimeoutActiveByPhase(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]bool{"Pending": true, "Unknown": true, "Running": false, "Failed": false, "Terminating": false} {
		m := activitiestest.NewMachine("m")
		status := reportMachine(
			activitiestest.NewWorld(t, m),
			machine.Report{Read: activitiestest.NewReadInput(m), Phase: to},
		)
		assert.Equal(t, want, status.CurrentStatus.TimeoutActive, to)
	}
}

func TestReportNamesIgnoredClassKind(t *testing.T) {
	t.Parallel()
	read := machine.Condition{
		Type:    "ClassReady",
		True:    true,
		Reason:  "ClassFound",
		Message: "MachineClass small and its Secrets were read",
	}
	missing := machine.Condition{Type: "ClassReady", Reason: "ClassNotFound", Message: "there is no MachineClass small"}
	const ignored = `; class.kind "machineclass" has no effect: the only kind is MachineClass, and the one named small is used`
	for name, row := range map[string]struct {
		kind string
		own  machine.Condition
		want string
	}{
		"another kind": {"machineclass", read, read.Message + ignored},
		"its kind":     {"MachineClass", read, read.Message},
		"another kind, and no class of that name": {"machineclass", missing, missing.Message},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", func(m *v1alpha1.Machine) { m.Spec.Class.Kind = row.kind })
			status := reportMachine(
				activitiestest.NewWorld(t, m),
				machine.Report{Read: activitiestest.NewReadInput(m), Conditions: []machine.Condition{row.own}},
			)
			assert.Equal(t, row.want, status.Conditions[0].Message)
		})
	}
}

func TestReportMachineRejectsReplacedMachine(t *testing.T) {
	t.Parallel()
	t.Run("that has the name now", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.NewMachine("m"))
		_, err := activitiestest.RunActivity[kube.ReportResult](
			w,
			newActivities(w.Kube).ReportMachine,
			machine.Report{
				Read:  kube.ReadInput{Ref: activitiestest.NewFormerObjectRef(activitiestest.NewMachine("m"))},
				Phase: "Failed",
			},
		)
		assertObjectGoneError(t, err)
		assert.Empty(t, w.Machine("m").Status.CurrentStatus.Phase)
	})
	t.Run("of which the cache has not heard", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithoutFinalizers)
		w := activitiestest.NewWorld(t, m)
		w.HoldEvents()
		w.RecreateMachine(m)
		_, err := activitiestest.RunActivity[kube.ReportResult](
			w,
			newActivities(w.Kube).ReportMachine,
			machine.Report{Read: activitiestest.NewReadInput(m), Phase: "Failed", Event: &kube.Event{}},
		)
		assertObjectGoneError(t, err)
		assert.Empty(t, w.Machine("m").Status.CurrentStatus.Phase)
		assert.Empty(t, w.TakeNewEvents())
	})
}

// A message may quote the API server of a target cluster, whose texts have no bound.
func TestMessagesOfAReportAreBounded(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("x", 1<<20)
	m := activitiestest.NewMachine("m")
	w := activitiestest.NewWorld(t, m)
	status := reportMachine(w, machine.Report{
		Read:       activitiestest.NewReadInput(m),
		Operation:  &machine.LastOperation{Type: "Create", State: "Failed", Description: huge},
		Conditions: []machine.Condition{{Type: "InstanceReady", Reason: "Creating", Message: huge}},
		Event:      &kube.Event{Reason: "Creating", Message: huge},
	})
	assert.Len(t, status.LastOperation.Description, 1000)
	require.Len(t, status.Conditions, 1)
	assert.Len(t, status.Conditions[0].Message, 1000)
	events := w.TakeNewEvents()
	require.Len(t, events, 1)
	assert.Less(t, len(events[0]), 1100)
}
