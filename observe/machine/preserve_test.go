package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/preserve"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

func decidePreservation(m *v1alpha1.Machine, n *corev1.Node, at time.Time) preserve.Decision {
	return preserve.Decide(machine.PreservationFacts(m, n, at))
}

// preservedNode returns the node of a preserved failed machine.
func preservedNode(change ...func(*corev1.Node)) *corev1.Node {
	n := observetest.NewNode(observetest.NewNodeCondition("Ready", "False"), corev1.NodeCondition{
		Type: v1alpha1.NodePreserved, Status: "True", Reason: v1alpha1.ReasonPreservedByUser,
		Message: "Preserved node is not drained. Machine preserved until 2026-03-05T12:00:00Z.",
	})
	n.Annotations = map[string]string{
		v1alpha1.AnnotationScaleDownDisabled:      "true",
		v1alpha1.AnnotationScaleDownDisabledByMCM: "true",
	}
	n.Spec.Taints = []corev1.Taint{
		{Key: v1alpha1.TaintPreserved, Effect: v1alpha1.TaintPreservedEffect, TimeAdded: observetest.Now()},
	}
	for _, f := range change {
		f(n)
	}
	return n
}

func TestPreservationFacts(t *testing.T) {
	m := observetest.NewMachine(
		"m",
		observetest.WithPhase(v1alpha1.MachineFailed),
		observetest.WithPreservationEnd(observetest.PreservationEnd),
		observetest.AsDeletingMachine,
		func(m *v1alpha1.Machine) {
			m.Annotations = map[string]string{
				v1alpha1.AnnotationPreserve:            "now",
				v1alpha1.AnnotationLastAppliedPreserve: "false",
			}
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
				MachinePreserveTimeout: &metav1.Duration{Duration: time.Hour},
			}
		},
	)
	n := preservedNode(func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationPreserve] = "" })
	want := preserve.Facts{
		OnMachine: preserve.Annotation{
			Present: true,
			Text:    "now",
		},
		LastApplied: preserve.Annotation{Present: true, Text: "false"},
		Deleting:    true,
		Failed:      true,
		Expiry:      observetest.PreservationEnd.Time,
		Timeout:     time.Hour,
		Now:         observetest.PreservationStart,
	}
	assert.Equal(t, want, machine.PreservationFacts(m, nil, observetest.PreservationStart), "without a node")

	want.NodeExists, want.Tainted, want.OnNode = true, true, preserve.Annotation{Present: true}
	want.ScaleDownDisabled = preserve.Annotation{Present: true, Text: "true"}
	want.DisabledByUs = preserve.Annotation{Present: true, Text: "true"}
	want.Condition = &preserve.Condition{
		True:    true,
		Reason:  "Preserved by user.",
		Message: "Preserved node is not drained. Machine preserved until 2026-03-05T12:00:00Z.",
	}
	before, nodeBefore := m.DeepCopy(), n.DeepCopy()
	assert.Equal(t, want, machine.PreservationFacts(m, n, observetest.PreservationStart))
	assert.Equal(t, before, m, "what it is given stays as it is")
	assert.Equal(t, nodeBefore, n)

	assert.Equal(
		t,
		preserve.Facts{NodeExists: true, Timeout: v1alpha1.DefaultPreserveTimeout},
		machine.PreservationFacts(observetest.NewMachine("m"), observetest.NewNode(), time.Time{}),
	)
	assert.Equal(
		t,
		preserve.Annotation{},
		machine.PreservationFacts(m, observetest.NewNode(), observetest.PreservationStart).OnNode,
	)
}

func TestPreservationDecisions(t *testing.T) {
	failed := observetest.WithPhase(v1alpha1.MachineFailed)
	kept := func() *v1alpha1.Machine {
		return observetest.NewMachine(
			"m",
			failed,
			observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveWhenFailed),
			observetest.WithPreservationEnd(observetest.PreservationEnd),
		)
	}
	for _, row := range []struct {
		name     string
		machine  *v1alpha1.Machine
		node     *corev1.Node
		now      time.Time
		preserve bool
		empty    bool
	}{
		{"nobody asks", observetest.NewMachine("m"), observetest.NewNode(), observetest.PreservationStart, false, true},
		{"asked for", observetest.NewMachine("m", observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveNow)), observetest.NewNode(), observetest.PreservationStart, true, false},
		{"asked for, without a node", observetest.NewMachine("m", observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveNow), observetest.WithPreservationEnd(observetest.PreservationEnd)), nil, observetest.PreservationStart, true, true},
		{"complete", kept(), preservedNode(), observetest.PreservationStart, true, true},
		{"complete, whatever the time", kept(), preservedNode(), time.Time{}, true, true},
		{"a cordon by somebody is not looked at", kept(), preservedNode(func(n *corev1.Node) { n.Spec.Unschedulable = true }), observetest.PreservationStart, true, true},
		{"the taint with another effect is another taint", kept(), preservedNode(func(n *corev1.Node) { n.Spec.Taints[0].Effect = "NoExecute" }), observetest.PreservationStart, true, false},
		{"its time is over", kept(), preservedNode(), observetest.PreservationEnd.Time, false, false},
		{"to go", observetest.NewMachine("m", failed, observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveNow), observetest.AsDeletingMachine), preservedNode(), observetest.PreservationStart, false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := decidePreservation(row.machine, row.node, row.now)
			assert.Equal(t, row.preserve, d.IsPreserved)
			assert.Equal(t, row.empty, d.IsEmpty(), d.Why)
		})
	}
}

// IsProtectedFromReplacement must agree with the decision of a failed machine's workflow.
func TestIsProtectedFromReplacementAgreesWithPreservation(t *testing.T) {
	values := []string{"", "now", "when-failed", "auto-preserved", "false", "nonsense"}
	for _, onMachine := range values {
		for _, onNode := range values {
			for _, last := range []string{"", "now", "false"} {
				for _, timeout := range []time.Duration{0, time.Hour} {
					m := observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineFailed))
					m.Annotations = map[string]string{
						v1alpha1.AnnotationPreserve:            onMachine,
						v1alpha1.AnnotationLastAppliedPreserve: last,
					}
					m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
						MachinePreserveTimeout: &metav1.Duration{Duration: timeout},
					}
					n := observetest.NewNode()
					n.Annotations = map[string]string{v1alpha1.AnnotationPreserve: onNode}
					for _, node := range []*corev1.Node{nil, n} {
						assert.Equal(
							t,
							preserve.PreventsReplacement(machine.PreservationFacts(m, node, time.Time{})),
							machine.IsProtectedFromReplacement(m, node),
							"machine %q, node %v %q, honoured before %q, timeout %s",
							onMachine,
							node != nil,
							onNode,
							last,
							timeout,
						)
					}
					m.Status.CurrentStatus.PreserveExpiryTime = &observetest.PreservationEnd
					assert.True(t, machine.IsProtectedFromReplacement(m, n), "on record")
				}
			}
		}
	}
}

// TestPreservationConstantsMatchTheAPI compares the constants of decide/preserve with the constants of the API.
func TestPreservationConstantsMatchTheAPI(t *testing.T) {
	m := observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineFailed))
	n := observetest.NewNode()
	n.Annotations = map[string]string{v1alpha1.AnnotationPreserve: v1alpha1.ValuePreserveAuto}
	d := decidePreservation(m, n, observetest.PreservationStart)
	assert.Equal(
		t,
		map[string]string{v1alpha1.AnnotationScaleDownDisabled: "true", v1alpha1.AnnotationScaleDownDisabledByMCM: "true"},
		d.Node.Annotations.Set,
	)
	assert.Equal(t, map[string]string{v1alpha1.AnnotationLastAppliedPreserve: "auto-preserved"}, d.Machine.Annotations.Set)
	require.NotNil(t, d.Node.Condition)
	assert.Equal(t, v1alpha1.ReasonPreservedByMCM, d.Node.Condition.Reason)

	m.Annotations = map[string]string{v1alpha1.AnnotationLastAppliedPreserve: "auto-preserved"}
	m.Status.CurrentStatus.PreserveExpiryTime = &observetest.PreservationEnd
	d = decidePreservation(
		m,
		preservedNode(func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationPreserve] = "auto-preserved" }),
		observetest.PreservationEnd.Time,
	)
	assert.Equal(t, []string{
		v1alpha1.AnnotationScaleDownDisabled, v1alpha1.AnnotationScaleDownDisabledByMCM, v1alpha1.AnnotationPreserve,
	}, d.Node.Annotations.Remove)
	assert.Equal(t, v1alpha1.ReasonPreservationStopped, d.Node.Condition.Reason)

	for result, told := range map[string]string{"Drained": v1alpha1.MessagePreservedNodeDrained, "Forced": v1alpha1.MessagePreservedNodeNotDrained} {
		m := observetest.NewMachine(
			"m",
			observetest.WithPhase(v1alpha1.MachineFailed),
			observetest.WithPreserveAnnotation("now"),
			observetest.WithPreservationEnd(observetest.PreservationEnd),
		)
		m.Status.Drain = &v1alpha1.StayingDrain{
			Purpose:      v1alpha1.DrainForPreservation,
			Occasion:     observetest.PreservationEnd,
			MachineDrain: v1alpha1.MachineDrain{Result: result},
		}
		n := preservedNode(func(n *corev1.Node) {
			n.Status.Conditions[1].Message = told + " Machine preserved until 2026-03-05T12:00:00Z."
		})
		assert.True(
			t,
			decidePreservation(m, n, observetest.PreservationStart).IsEmpty(),
			"what became of its drain is told: %s",
			told,
		)
	}
}
