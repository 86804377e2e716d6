package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

// Each row maps the phase of a machine to three facts for its set: whether the node is ready, the state of the node,
// and whether the node has ever joined.
func TestNodeReadinessByPhase(t *testing.T) {
	for _, row := range []struct {
		phase  v1alpha1.MachinePhase
		ready  scale.ConditionStatus
		why    string
		node   scale.NodeState
		joined bool // HasJoined for a machine without the annotation of the join duration
	}{
		{"", "", "", scale.NoNode, false},
		{v1alpha1.MachinePending, scale.ConditionFalse, "phase Pending", scale.NoNode, false},
		{v1alpha1.MachineCrashLoopBackOff, scale.ConditionFalse, "phase CrashLoopBackOff", scale.NoNode, false},
		{v1alpha1.MachineAvailable, scale.ConditionFalse, "phase Available", scale.NoNode, true},
		{v1alpha1.MachineRunning, scale.ConditionTrue, "", scale.NodeHealthy, true},
		{v1alpha1.MachineUnknown, scale.ConditionFalse, "phase Unknown", scale.NodeUnhealthy, true},
		{v1alpha1.MachineInPlaceUpdating, scale.ConditionFalse, "phase InPlaceUpdating", scale.NodeHealthy, true},
		{v1alpha1.MachineInPlaceUpdateSuccessful, scale.ConditionFalse, "phase InPlaceUpdateSuccessful", scale.NodeHealthy, true},
		{v1alpha1.MachineInPlaceUpdateFailed, scale.ConditionFalse, "phase InPlaceUpdateFailed", scale.NodeUnhealthy, true},
		{v1alpha1.MachineFailed, scale.ConditionFalse, "phase Failed", scale.NodeUnhealthy, false},
		{v1alpha1.MachineTerminating, scale.ConditionFalse, "phase Terminating", scale.NodeUnhealthy, false},
	} {
		t.Run("phase "+string(row.phase), func(t *testing.T) {
			m := observetest.MachineFromTemplate(observetest.WithPhase(row.phase))
			f := observetest.MemberFacts(m, observetest.NewSet("s"), nil)
			assert.Equal(
				t,
				[]any{row.ready, row.why, row.node, row.joined},
				[]any{f.Ready, f.NotReadyReason, f.NodeState, f.Joined},
			)

			observetest.WithAnnotation(v1alpha1.AnnotationMachineJoinDuration, "1m")(m)
			m.Status.LastOperation.Description = "the API server is away"
			f = observetest.MemberFacts(m, observetest.NewSet("s"), nil)
			assert.True(t, f.Joined, "it was a node once")
			if row.why != "" {
				assert.Equal(t, "the API server is away", f.NotReadyReason, "what was last attempted tells more than a phase")
			} else {
				assert.Empty(t, f.NotReadyReason)
			}
		})
	}
}

func TestNodeReadyTime(t *testing.T) {
	entered := func(m *v1alpha1.Machine) { m.Status.CurrentStatus.LastUpdateTime = observetest.MinutesBeforeNoon(7) }
	other := func(m *v1alpha1.Machine) {
		m.Status.Conditions = append(
			m.Status.Conditions,
			corev1.NodeCondition{
				Type:               corev1.NodeDiskPressure,
				Status:             "False",
				LastTransitionTime: observetest.MinutesBeforeNoon(9),
			},
		)
	}
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		want    metav1.Time
	}{
		{"since its node says so", observetest.NewMachine("m", entered, other, observetest.WithReadyTime(observetest.MinutesBeforeNoon(3))), observetest.MinutesBeforeNoon(3)},
		{"its node says nothing: since it runs", observetest.NewMachine("m", entered, other, observetest.WithPhase(v1alpha1.MachineRunning)), observetest.MinutesBeforeNoon(7)},
		{"among other conditions", observetest.NewMachine("m", observetest.WithReadyTime(observetest.MinutesBeforeNoon(3)), other, entered), observetest.MinutesBeforeNoon(3)},
		{"it does not run any more", observetest.NewMachine("m", entered, observetest.WithReadyTime(observetest.MinutesBeforeNoon(3)), observetest.WithPhase(v1alpha1.MachineUnknown)), metav1.Time{}},
		{"nor yet", observetest.NewMachine("m", entered, observetest.WithReadyTime(observetest.MinutesBeforeNoon(3)), observetest.WithPhase(v1alpha1.MachinePending)), metav1.Time{}},
		{"new", observetest.NewMachine("m"), metav1.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want.Time, machine.NodeReadyTime(row.machine))
			assert.Equal(t, row.want.Time, observetest.MemberFacts(row.machine, observetest.NewSet("s"), nil).ReadySince)
		})
	}
	assert.Equal(
		t,
		time.Time{},
		machine.NodeReadyTime(observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning))),
		"nobody knows since when",
	)
}
