package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/observe/drain"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

func TestMachineCreationBlocker(t *testing.T) {
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		reason  string
		message string
	}{
		{"a new machine", observetest.NewMachine("m"), "", ""},
		{"the provider has none", observetest.NewMachine("m", observetest.WithBlockedCreation("InstanceReady", "ResourceExhausted")), "ResourceExhausted", "no ResourceExhausted"},
		{"the class is missing", observetest.NewMachine("m", observetest.WithBlockedCreation("ClassReady", "ClassNotFound")), "ClassNotFound", "no ClassNotFound"},
		{"it is being made", observetest.NewMachine("m", observetest.WithBlockedCreation("InstanceReady", "Creating"), observetest.WithPhase(v1alpha1.MachinePending)), "", ""},
		{"it is being deleted", observetest.NewMachine("m", observetest.WithBlockedCreation("InstanceReady", "ResourceExhausted"), observetest.AsDeletingMachine), "", ""},
		{"a condition of a node says nothing of an instance", observetest.NewMachine("m", observetest.WithBlockedCreation("Ready", "KubeletNotReady")), "", ""},
		{"nor does one that has recovered", observetest.NewMachine("m", observetest.WithBlockedCreation("ReplacementDue", "Recovered")), "", ""},
		{"one that is in order", observetest.NewMachine("m", observetest.WithBlockedCreation("ClassReady", ""), func(m *v1alpha1.Machine) { m.Status.Conditions[0].Status = "True" }), "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			reason, message := machine.CreationBlocker(row.machine)
			assert.Equal(t, row.reason, reason)
			assert.Equal(t, row.message, message)
		})
	}
}

func TestDeletionPriority(t *testing.T) {
	for value, want := range map[string]int{"1": 1, "-5": -5, "100": 100, "": 3, "high": 3, "1.5": 3} {
		m := observetest.NewMachine("m")
		m.Annotations = map[string]string{v1alpha1.AnnotationMachinePriority: value}
		assert.Equal(t, want, drain.DeletionPriority(m), "annotation %q", value)
	}
	assert.Equal(t, 3, drain.DeletionPriority(observetest.NewMachine("m")), "no annotation")
}

func TestHoldReason(t *testing.T) {
	m := observetest.NewMachine("m")
	assert.Empty(t, drain.HoldReason(m))
	for words, want := range map[string]string{"ann: lunch": "ann: lunch", " ": "no reason given", "": "no reason given"} {
		m.Annotations = map[string]string{v1alpha1.AnnotationHold: words}
		assert.Equal(t, want, drain.HoldReason(m))
	}
}

// The provider has reported that the instance is gone. While the node is ready, its pods still terminate by themselves.
func TestAReadyNodeIsNotLostWhenItsInstanceIsReportedGone(t *testing.T) {
	m := observetest.NewMachine("m")
	m.Status.Health = &v1alpha1.MachineHealth{InstanceGoneAt: observetest.Now()}
	for ready, lost := range map[corev1.ConditionStatus]bool{
		corev1.ConditionTrue: false, corev1.ConditionFalse: true, corev1.ConditionUnknown: true,
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		l := drain.EscalationFacts(m, nil, node, 0, time.Now())
		assert.Equal(t, lost, l.Lost, "Ready is %s", ready)
		assert.Equal(t, lost, l.Unusable != "", "Ready is %s", ready)
	}
}
