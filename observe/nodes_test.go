package observe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/decide/replace"
	"millwright/observe"
)

func TestNodeHealth(t *testing.T) {
	named := func(name string, conditions ...corev1.NodeCondition) *corev1.Node {
		n := node(conditions...)
		n.Name = name
		return n
	}
	ready, silent, pressure := condition("Ready", "True"), condition("Ready", "Unknown"), condition("DiskPressure", "True")
	watchesNothing := func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{NodeConditions: new("")}
	}
	instanceGone := func(m *v1alpha1.Machine) { m.Status.Health = &v1alpha1.MachineHealth{InstanceGoneAt: now()} }
	moment, back := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), now()
	recovered := func(m *v1alpha1.Machine) {
		m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: *now(), RecoveredAt: back}
	}
	held := named("held", ready)
	held.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintCriticalComponentsNotReady}}
	onceSick := func(m *v1alpha1.Machine) { m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: *now()} }
	elsewhere := machine("elsewhere", phase(v1alpha1.MachineRunning), onNode("silent"))
	elsewhere.Namespace = "other"
	nodes := []runtime.Object{
		named("well", ready), named("silent", silent), named("full", ready, pressure), named("mute"),
		func() *corev1.Node { n := named("going", ready); goingNode(n); return n }(), held,
	}
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		nodes   replace.Nodes
	}{
		{"well", machine("m", phase(v1alpha1.MachineRunning), onNode("well")), replace.Nodes{Joined: 1}},
		{"D24: well, and not yet told", machine("m", phase(v1alpha1.MachineUnknown), onNode("well")), replace.Nodes{Joined: 1, Recovered: []time.Time{moment}}},
		{"recovered", machine("m", phase(v1alpha1.MachineRunning), onNode("well"), recovered), replace.Nodes{Joined: 1, Recovered: []time.Time{back.Time}}},
		{"recovered, and silent again", machine("m", phase(v1alpha1.MachineRunning), onNode("silent"), recovered), replace.Nodes{Joined: 1, Dead: 1}},
		{"well, and held by its critical components", machine("m", phase(v1alpha1.MachineUnknown), onNode("held"), recovered), replace.Nodes{Joined: 1}},
		{"silent", machine("m", phase(v1alpha1.MachineUnknown), onNode("silent")), replace.Nodes{Joined: 1, Dead: 1}},
		{"D24: silent, and not yet told", machine("m", phase(v1alpha1.MachineRunning), onNode("silent")), replace.Nodes{Joined: 1, Dead: 1}},
		{"a node without conditions", machine("m", phase(v1alpha1.MachineRunning), onNode("mute")), replace.Nodes{Joined: 1, Dead: 1}},
		{"a bad condition", machine("m", phase(v1alpha1.MachineRunning), onNode("full")), replace.Nodes{Joined: 1, Dead: 1}},
		{"a condition that the machine does not watch", machine("m", phase(v1alpha1.MachineRunning), onNode("full"), watchesNothing), replace.Nodes{Joined: 1}},
		{"silent, and its health clock runs", machine("m", phase(v1alpha1.MachineUnknown), onNode("silent"), onceSick), replace.Nodes{Joined: 1, Dead: 1}},
		{"no such node", machine("m", phase(v1alpha1.MachineRunning), onNode("missing")), replace.Nodes{Joined: 1, Dead: 1}},
		{"no node", machine("m", phase(v1alpha1.MachineUnknown)), replace.Nodes{Joined: 1, Dead: 1}},
		{"N15: a node that is being deleted is no dead one", machine("m", phase(v1alpha1.MachineUnknown), onNode("going")), replace.Nodes{Joined: 1}},
		{"of another namespace: there is one target", elsewhere, replace.Nodes{Joined: 1, Dead: 1}},
		{"its instance is gone: that is not the network", machine("m", phase(v1alpha1.MachineUnknown), onNode("missing"), instanceGone), replace.Nodes{}},
		{"a machine that is to go", machine("m", phase(v1alpha1.MachineRunning), onNode("silent"), goingMachine), replace.Nodes{}},
		{"not joined yet", machine("m", phase(v1alpha1.MachinePending), onNode("silent")), replace.Nodes{}},
		{"new", machine("m"), replace.Nodes{}},
		{"its creation keeps failing", machine("m", phase(v1alpha1.MachineCrashLoopBackOff)), replace.Nodes{}},
		{"without a target", machine("m", phase(v1alpha1.MachineAvailable)), replace.Nodes{}},
		{"failed: it is given up already", machine("m", phase(v1alpha1.MachineFailed), onNode("silent")), replace.Nodes{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			cluster, _ := start(t, nodes, row.machine)
			assert.Equal(t, row.nodes, cluster.NodeHealth("shop", moment))
		})
	}
	t.Run("all are counted", func(t *testing.T) {
		cluster, _ := start(t, nodes, elsewhere,
			machine("a", phase(v1alpha1.MachineRunning), onNode("well")), machine("b", phase(v1alpha1.MachineRunning), onNode("missing")),
			machine("c", phase(v1alpha1.MachineUnknown), onNode("silent")), machine("d", phase(v1alpha1.MachinePending)))
		assert.Equal(t, replace.Nodes{Joined: 4, Dead: 3}, cluster.NodeHealth("shop", moment))
	})
}

func TestFailureDomain(t *testing.T) {
	labelled := machine("m", func(m *v1alpha1.Machine) {
		m.Spec.NodeTemplateSpec.Labels = map[string]string{"topology.kubernetes.io/zone": "b"}
	})
	inZone := class("small", func(c *v1alpha1.MachineClass) { c.NodeTemplate = &v1alpha1.NodeTemplate{Zone: "a"} })
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		class   *v1alpha1.MachineClass
		domain  string
	}{
		{"nothing tells", machine("m"), nil, ""},
		{"D6: a class without a node template", machine("m"), class("small"), ""},
		{"the class tells", machine("m"), inZone, "a"},
		{"the machine's node template comes first", labelled, inZone, "b"},
		{"the machine's node template alone", labelled, nil, "b"},
		{"a label of the machine itself is none of its node", machine("m", func(m *v1alpha1.Machine) {
			m.Labels["topology.kubernetes.io/zone"] = "b"
		}), inZone, "a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.domain, observe.FailureDomain(row.machine, row.class))
		})
	}
}
