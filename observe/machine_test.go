package observe_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/observe"
)

func TestMachineFactsOfANewMachine(t *testing.T) {
	assert.Equal(t, attention.MachineFacts{}, observe.MachineFacts(machine("m"), nil))
}

func TestMachineFactsOfAMachineInUse(t *testing.T) {
	m := machine("m", onNode("n"), phase(v1alpha1.MachineRunning), goingMachine)
	m.Finalizers = []string{"example.com/backup", v1alpha1.FinalizerMachine}
	m.Spec.ProviderID = "fake:///i-1"
	assert.Equal(t, attention.MachineFacts{
		Deleting: true, Finalizer: true, Phase: "Running", ProviderID: "fake:///i-1", NodeName: "n",
		NodeExists: true, NodeHealthy: true,
	}, observe.MachineFacts(m, node(condition("Ready", "True"))))
}

func TestNodeHealth(t *testing.T) {
	ready := condition("Ready", "True")
	for _, row := range []struct {
		name       string
		watched    *string // spec.nodeConditions
		conditions []corev1.NodeCondition
		healthy    bool
		why        string
	}{
		{"a node that is ready", nil, []corev1.NodeCondition{ready}, true, ""},
		{"a node that has not reported yet", nil, nil, false, "no Ready condition reported yet"},
		{"a node that is not ready", nil, []corev1.NodeCondition{condition("Ready", "Unknown")}, false, "Ready is Unknown (Because)"},
		{"a bad condition", nil, []corev1.NodeCondition{ready, condition("DiskPressure", "True")}, false, "DiskPressure is True (Because)"},
		{"one that cannot be told counts as bad", nil, []corev1.NodeCondition{ready, condition("DiskPressure", "Unknown")}, false, "DiskPressure is Unknown (Because)"},
		{"a condition that nobody watches", nil, []corev1.NodeCondition{ready, condition("MemoryPressure", "True")}, true, ""},
		{"the machine says which to watch", new("MemoryPressure"), []corev1.NodeCondition{ready, condition("MemoryPressure", "True")}, false, "MemoryPressure is True (Because)"},
		{"and which not", new(""), []corev1.NodeCondition{ready, condition("DiskPressure", "True")}, true, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := machine("m", onNode("n"))
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{NodeConditions: row.watched}
			facts := observe.MachineFacts(m, node(row.conditions...))
			assert.Equal(t, row.healthy, facts.NodeHealthy)
			assert.Equal(t, row.why, facts.NodeWhy)
		})
	}
}

func TestConditionsOfTheMachineItselfSayNothingOfItsNode(t *testing.T) {
	m := machine("m", onNode("n"))
	m.Status.Conditions = []corev1.NodeCondition{
		{Type: v1alpha1.MachineInstanceReady, Status: "False"}, {Type: "Ready", Status: "False"}, {Type: "DiskPressure", Status: "True"},
	}
	assert.True(t, observe.MachineFacts(m, node(condition("Ready", "True"))).NodeHealthy, "the node is asked, not the copy")
}

func TestNodeOf(t *testing.T) {
	cluster, _ := start(t, []runtime.Object{node()})
	assert.Equal(t, "n", cluster.NodeOf(machine("m", onNode("n"))).Name)
	assert.Nil(t, cluster.NodeOf(machine("m", onNode("gone"))))
	assert.Nil(t, cluster.NodeOf(machine("n")), "a name in common is no label")
}
