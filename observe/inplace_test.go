package observe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/inplace"
	"millwright/observe"
)

// chosenNode is a node that is selected for an in-place update, and says so.
func chosenNode(change ...func(*corev1.Node)) *corev1.Node {
	n := node(condition("Ready", "True"), corev1.NodeCondition{
		Type: v1alpha1.NodeInPlaceUpdate, Status: "True", Reason: v1alpha1.ReasonSelectedForUpdate, Message: "because",
		LastTransitionTime: metav1.Unix(1_700_000_000, 0),
	})
	n.Labels = map[string]string{v1alpha1.LabelCandidateForUpdate: "true", v1alpha1.LabelSelectedForUpdate: "true"}
	for _, f := range change {
		f(n)
	}
	return n
}

func TestInPlaceNode(t *testing.T) {
	n := chosenNode(func(n *corev1.Node) {
		n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateFailed
		n.Annotations = map[string]string{v1alpha1.AnnotationUpdateFailedReason: "disk full"}
		n.Spec.Unschedulable = true
	})
	want := inplace.Node{
		Candidate: true, Selected: true, Result: "failed", FailedReason: "disk full",
		Reason: "SelectedForUpdate", Message: "because", Since: time.Unix(1_700_000_000, 0), Cordoned: true,
	}
	assert.Equal(t, want, observe.InPlaceNode(n))
	assert.Equal(t, inplace.Node{}, observe.InPlaceNode(node(condition("Ready", "True"))))

	for _, value := range []string{"", "false", "True", "yes"} {
		n.Labels[v1alpha1.LabelCandidateForUpdate], n.Labels[v1alpha1.LabelSelectedForUpdate] = value, value
		want.Candidate, want.Selected = false, false
		assert.Equal(t, want, observe.InPlaceNode(n), value)
	}
}

func TestInPlace(t *testing.T) {
	bare := func(n *corev1.Node) { n.Status.Conditions = nil }
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		node    *corev1.Node
		want    inplace.Step
		reason  string
	}{
		{"U126: the node is missing", machine("m", phase(v1alpha1.MachineRunning)), nil, inplace.Nothing, ""},
		{"U126: it has no labels", machine("m", phase(v1alpha1.MachineRunning)), node(condition("Ready", "True")), inplace.Nothing, ""},
		{"U126: it has labels", machine("m", phase(v1alpha1.MachineRunning)), chosenNode(bare), inplace.Condition, v1alpha1.ReasonSelectedForUpdate},
		{"U127: it is selected", machine("m", phase(v1alpha1.MachineRunning)), chosenNode(), inplace.Drain, v1alpha1.ReasonDrainSuccessful},
		{"U127: it is selected, and its machine has not joined", machine("m", phase(v1alpha1.MachinePending)), chosenNode(), inplace.Nothing, ""},
		{"the machine is to go", machine("m", phase(v1alpha1.MachineRunning), goingMachine), chosenNode(bare), inplace.Nothing, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := observe.InPlace(row.machine, row.node)
			assert.Equal(t, row.want, d.Step)
			assert.Equal(t, row.reason, d.Reason)
		})
	}
}

// The package that decides does not know the API: what it reads and writes must be the API's words.
func TestInPlaceSpeaksTheWordsOfTheAPI(t *testing.T) {
	m := machine("m", phase(v1alpha1.MachineRunning))
	n := node(condition("Ready", "True"))
	n.Labels = map[string]string{v1alpha1.LabelCandidateForUpdate: v1alpha1.ValueLowerTrue}
	next := func() string {
		t.Helper()
		d := observe.InPlace(m, n)
		n.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeInPlaceUpdate, Status: "True", Reason: d.Reason, Message: d.Message}}
		return d.Reason
	}
	assert.Equal(t, v1alpha1.ReasonCandidateForUpdate, next())
	n.Labels[v1alpha1.LabelSelectedForUpdate] = v1alpha1.ValueLowerTrue
	assert.Equal(t, v1alpha1.ReasonSelectedForUpdate, next())
	n.Spec.Unschedulable = true
	assert.Equal(t, v1alpha1.ReasonDrainSuccessful, next())
	assert.Equal(t, inplace.Update, observe.InPlace(m, n).Step)
	m.Status.CurrentStatus.Phase = v1alpha1.MachineInPlaceUpdating
	assert.Equal(t, v1alpha1.ReasonReadyForUpdate, next())
	n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateFailed
	assert.Equal(t, v1alpha1.ReasonUpdateFailed, next())
	n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
	assert.Equal(t, v1alpha1.ReasonUpdateSuccessful, next())
}
