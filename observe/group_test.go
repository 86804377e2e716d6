package observe_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/observe"
)

// blocked is a machine that the provider makes no instance for, as its condition of this type says.
func blocked(kind corev1.NodeConditionType, reason string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
		m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{Type: kind, Status: "False", Reason: reason, Message: "no " + reason})
	}
}

func preserved(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = now() }

func TestBlocked(t *testing.T) {
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		reason  string
		message string
	}{
		{"a new machine", machine("m"), "", ""},
		{"the provider has none", machine("m", blocked("InstanceReady", "ResourceExhausted")), "ResourceExhausted", "no ResourceExhausted"},
		{"the class is missing", machine("m", blocked("ClassReady", "ClassNotFound")), "ClassNotFound", "no ClassNotFound"},
		{"it is being made", machine("m", blocked("InstanceReady", "Creating"), phase(v1alpha1.MachinePending)), "", ""},
		{"it is to go", machine("m", blocked("InstanceReady", "ResourceExhausted"), goingMachine), "", ""},
		{"a condition of a node says nothing of an instance", machine("m", blocked("Ready", "KubeletNotReady")), "", ""},
		{"nor does one that patience has not ended", machine("m", blocked("ReplacementDue", "Recovered")), "", ""},
		{"one that is in order", machine("m", blocked("ClassReady", ""), func(m *v1alpha1.Machine) { m.Status.Conditions[0].Status = "True" }), "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			reason, message := observe.Blocked(row.machine)
			assert.Equal(t, row.reason, reason)
			assert.Equal(t, row.message, message)
		})
	}
}

func TestPriority(t *testing.T) {
	for value, want := range map[string]int{"1": 1, "-5": -5, "100": 100, "": 3, "high": 3, "1.5": 3} {
		m := machine("m")
		m.Annotations = map[string]string{v1alpha1.AnnotationMachinePriority: value}
		assert.Equal(t, want, observe.Priority(m), "annotation %q", value)
	}
	assert.Equal(t, 3, observe.Priority(machine("m")), "no annotation")
}
