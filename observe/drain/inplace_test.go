package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/inplace"
	"millwright/observe/drain"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

// newNodeSelectedForUpdate returns a node that is selected for an in-place update and has the update's condition.
func newNodeSelectedForUpdate(change ...func(*corev1.Node)) *corev1.Node {
	n := observetest.NewNode(observetest.NewNodeCondition("Ready", "True"), corev1.NodeCondition{
		Type: v1alpha1.NodeInPlaceUpdate, Status: "True", Reason: v1alpha1.ReasonSelectedForUpdate, Message: "because",
		LastTransitionTime: metav1.Unix(1_700_000_000, 0),
	})
	n.Labels = map[string]string{v1alpha1.LabelCandidateForUpdate: "true", v1alpha1.LabelSelectedForUpdate: "true"}
	for _, f := range change {
		f(n)
	}
	return n
}

func TestInPlaceFacts(t *testing.T) {
	n := newNodeSelectedForUpdate(func(n *corev1.Node) {
		n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateFailed
		n.Annotations = map[string]string{v1alpha1.AnnotationUpdateFailedReason: "disk full"}
		n.Spec.Unschedulable = true
	})
	want := inplace.Node{
		Candidate: true, Selected: true, Result: "failed", FailedReason: "disk full",
		Reason: "SelectedForUpdate", Message: "because", Since: time.Unix(1_700_000_000, 0), Cordoned: true,
	}
	assert.Equal(t, want, drain.InPlaceFacts(n))
	assert.Equal(t, inplace.Node{}, drain.InPlaceFacts(observetest.NewNode(observetest.NewNodeCondition("Ready", "True"))))

	for _, value := range []string{"", "false", "True", "yes"} {
		n.Labels[v1alpha1.LabelCandidateForUpdate], n.Labels[v1alpha1.LabelSelectedForUpdate] = value, value
		want.Candidate, want.Selected = false, false
		assert.Equal(t, want, drain.InPlaceFacts(n), value)
	}
}

func TestInPlaceUpdateDecisions(t *testing.T) {
	bare := func(n *corev1.Node) { n.Status.Conditions = nil }
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		node    *corev1.Node
		want    inplace.Step
		reason  string
	}{
		{"the node is missing", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning)), nil, inplace.StepNothing, ""},
		{"it has no labels", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning)), observetest.NewNode(observetest.NewNodeCondition("Ready", "True")), inplace.StepNothing, ""},
		{"it has labels", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning)), newNodeSelectedForUpdate(bare), inplace.StepWriteCondition, v1alpha1.ReasonSelectedForUpdate},
		{"it is selected", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning)), newNodeSelectedForUpdate(), inplace.StepDrain, v1alpha1.ReasonDrainSuccessful},
		{"it is selected, and its machine has not joined", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachinePending)), newNodeSelectedForUpdate(), inplace.StepNothing, ""},
		{"the machine is being deleted", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.AsDeletingMachine), newNodeSelectedForUpdate(bare), inplace.StepNothing, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := attention.PlanMachine(machine.Facts(row.machine, machine.RelatedObjects{Node: row.node}, time.Time{})).InPlace
			assert.Equal(t, row.want, d.Step)
			assert.Equal(t, row.reason, d.Reason)
		})
	}
}

// The state of the node after one step determines the next step.
func TestInPlaceStepsFollowEachOther(t *testing.T) {
	m := observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning))
	n := observetest.NewNode(observetest.NewNodeCondition("Ready", "True"))
	n.Labels = map[string]string{v1alpha1.LabelCandidateForUpdate: v1alpha1.ValueLowerTrue}
	next := func() string {
		t.Helper()
		d := inplace.Decide(drain.InPlaceFacts(n), string(m.Status.CurrentStatus.Phase))
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: v1alpha1.NodeInPlaceUpdate, Status: "True", Reason: d.Reason, Message: d.Message},
		}
		return d.Reason
	}
	assert.Equal(t, v1alpha1.ReasonCandidateForUpdate, next())
	n.Labels[v1alpha1.LabelSelectedForUpdate] = v1alpha1.ValueLowerTrue
	assert.Equal(t, v1alpha1.ReasonSelectedForUpdate, next())
	n.Spec.Unschedulable = true
	assert.Equal(t, v1alpha1.ReasonDrainSuccessful, next())
	assert.Equal(t, inplace.StepSetUpdatingPhase, inplace.Decide(drain.InPlaceFacts(n), "Running").Step)
	m.Status.CurrentStatus.Phase = v1alpha1.MachineInPlaceUpdating
	assert.Equal(t, v1alpha1.ReasonReadyForUpdate, next())
	n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateFailed
	assert.Equal(t, v1alpha1.ReasonUpdateFailed, next())
	n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
	assert.Equal(t, v1alpha1.ReasonUpdateSuccessful, next())
}
