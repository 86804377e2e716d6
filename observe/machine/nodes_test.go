package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/decide/replace"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

func TestJoinedNodes(t *testing.T) {
	named := func(name string, conditions ...corev1.NodeCondition) *corev1.Node {
		n := observetest.Node(conditions...)
		n.Name = name
		return n
	}
	ready := observetest.Condition("Ready", "True")
	silent := observetest.Condition("Ready", "Unknown")
	pressure := observetest.Condition("DiskPressure", "True")
	watchesNothing := func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{NodeConditions: new("")}
	}
	instanceGone := func(m *v1alpha1.Machine) {
		m.Status.Health = &v1alpha1.MachineHealth{InstanceGoneAt: observetest.Now()}
	}
	moment, back := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), observetest.Now()
	recovered := func(m *v1alpha1.Machine) {
		m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: *observetest.Now(), RecoveredAt: back}
	}
	held := named("held", ready)
	held.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintCriticalComponentsNotReady}}
	onceSick := func(m *v1alpha1.Machine) {
		m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: *observetest.Now()}
	}
	elsewhere := observetest.Machine("elsewhere", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("silent"))
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
		{"well", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("well")), replace.Nodes{Joined: 1}},
		{"well, and not yet told", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), observetest.OnNode("well")), replace.Nodes{Joined: 1, Recovered: []time.Time{moment}}},
		{"recovered", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("well"), recovered), replace.Nodes{Joined: 1, Recovered: []time.Time{back.Time}}},
		{"recovered, and silent again", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("silent"), recovered), replace.Nodes{Joined: 1, Dead: 1}},
		{"well, and held by its critical components", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), observetest.OnNode("held"), recovered), replace.Nodes{Joined: 1}},
		{"silent", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), observetest.OnNode("silent")), replace.Nodes{Joined: 1, Dead: 1}},
		{"silent, and not yet told", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("silent")), replace.Nodes{Joined: 1, Dead: 1}},
		{"a node without conditions", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("mute")), replace.Nodes{Joined: 1, Dead: 1}},
		{"a bad condition", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("full")), replace.Nodes{Joined: 1, Dead: 1}},
		{"a condition that the machine does not watch", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("full"), watchesNothing), replace.Nodes{Joined: 1}},
		{"silent, and its health clock runs", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), observetest.OnNode("silent"), onceSick), replace.Nodes{Joined: 1, Dead: 1}},
		{"no such node", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("missing")), replace.Nodes{Joined: 1, Dead: 1}},
		{"no node", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown)), replace.Nodes{Joined: 1, Dead: 1}},
		{"a node that is being deleted", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), observetest.OnNode("going")), replace.Nodes{Joined: 1, Dead: 1}},
		{"of another namespace: there is one target", elsewhere, replace.Nodes{Joined: 1, Dead: 1}},
		{"its instance is gone, and its node may be cut off", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), observetest.OnNode("silent"), instanceGone), replace.Nodes{Joined: 1, Dead: 1, Lost: 1}},
		{"its instance and its node are gone: that is not the network", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), observetest.OnNode("missing"), instanceGone), replace.Nodes{}},
		{"a machine that is being deleted", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("silent"), observetest.GoingMachine), replace.Nodes{Joined: 1, Dead: 1}},
		{"a machine that is being deleted because of its node", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), observetest.OnNode("silent"), observetest.GoingMachine, observetest.IsDue), replace.Nodes{}},
		{"a machine that is being deleted, and its node is gone", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("missing"), observetest.GoingMachine), replace.Nodes{}},
		{"a machine whose instance is being deleted", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("silent"), observetest.GoingMachine, observetest.At(v1alpha1.MachineDeletionInstance, nil)), replace.Nodes{}},
		{"a machine that is being deleted before it joined", observetest.Machine("m", observetest.Phase(v1alpha1.MachinePending), observetest.OnNode("silent"), observetest.GoingMachine), replace.Nodes{}},
		{"not joined yet", observetest.Machine("m", observetest.Phase(v1alpha1.MachinePending), observetest.OnNode("silent")), replace.Nodes{}},
		{"new", observetest.Machine("m"), replace.Nodes{}},
		{"its creation keeps failing", observetest.Machine("m", observetest.Phase(v1alpha1.MachineCrashLoopBackOff)), replace.Nodes{}},
		{"without a target", observetest.Machine("m", observetest.Phase(v1alpha1.MachineAvailable)), replace.Nodes{}},
		{"failed: it is given up already", observetest.Machine("m", observetest.Phase(v1alpha1.MachineFailed), observetest.OnNode("silent")), replace.Nodes{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			cluster, _ := observetest.Start(t, nodes, row.machine)
			assert.Equal(t, row.nodes, machine.JoinedNodes(cluster, "shop", moment).Judged())
		})
	}
	t.Run("all are counted", func(t *testing.T) {
		cluster, _ := observetest.Start(
			t,
			nodes,
			elsewhere,
			observetest.Machine(
				"a",
				observetest.Phase(v1alpha1.MachineRunning),
				observetest.OnNode("well"),
			),
			observetest.Machine("b", observetest.Phase(v1alpha1.MachineRunning), observetest.OnNode("missing")),
			observetest.Machine(
				"c",
				observetest.Phase(v1alpha1.MachineUnknown),
				observetest.OnNode("silent"),
			),
			observetest.Machine("d", observetest.Phase(v1alpha1.MachinePending)),
		)
		assert.Equal(t, replace.Nodes{Joined: 4, Dead: 3}, machine.JoinedNodes(cluster, "shop", moment).Judged())
	})
}

func TestFailureDomain(t *testing.T) {
	labelled := observetest.Machine("m", func(m *v1alpha1.Machine) {
		m.Spec.NodeTemplateSpec.Labels = map[string]string{"topology.kubernetes.io/zone": "b"}
	})
	inZone := observetest.Class(
		"small",
		func(c *v1alpha1.MachineClass) { c.NodeTemplate = &v1alpha1.NodeTemplate{Zone: "a"} },
	)
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		class   *v1alpha1.MachineClass
		domain  string
	}{
		{"nothing tells", observetest.Machine("m"), nil, ""},
		{"a class without a node template", observetest.Machine("m"), observetest.Class("small"), ""},
		{"the class tells", observetest.Machine("m"), inZone, "a"},
		{"the machine's node template comes first", labelled, inZone, "b"},
		{"the machine's node template alone", labelled, nil, "b"},
		{"a label of the machine itself is none of its node", observetest.Machine("m", func(m *v1alpha1.Machine) {
			m.Labels["topology.kubernetes.io/zone"] = "b"
		}), inZone, "a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.domain, machine.FailureDomain(row.machine, row.class))
		})
	}
}
