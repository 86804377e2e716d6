package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/decide/replace"
	"millwright/observe/cache"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

func TestJoinedNodeCounts(t *testing.T) {
	named := func(name string, conditions ...corev1.NodeCondition) *corev1.Node {
		n := observetest.NewNode(conditions...)
		n.Name = name
		return n
	}
	ready := observetest.NewNodeCondition("Ready", "True")
	silent := observetest.NewNodeCondition("Ready", "Unknown")
	pressure := observetest.NewNodeCondition("DiskPressure", "True")
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
	elsewhere := observetest.NewMachine(
		"elsewhere",
		observetest.WithPhase(v1alpha1.MachineRunning),
		observetest.WithNodeLabel("silent"),
	)
	elsewhere.Namespace = "other"
	nodes := []runtime.Object{
		named("well", ready), named("silent", silent), named("full", ready, pressure), named("mute"),
		func() *corev1.Node { n := named("going", ready); asDeletingNode(n); return n }(), held,
	}
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		nodes   replace.NodeCounts
	}{
		{"well", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel("well")), replace.NodeCounts{Joined: 1}},
		{"well, and not yet told", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithNodeLabel("well")), replace.NodeCounts{Joined: 1, RecoveryTimes: []time.Time{moment}}},
		{"recovered", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel("well"), recovered), replace.NodeCounts{Joined: 1, RecoveryTimes: []time.Time{back.Time}}},
		{"recovered, and silent again", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel("silent"), recovered), replace.NodeCounts{Joined: 1, Dead: 1}},
		{"well, and held by its critical components", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithNodeLabel("held"), recovered), replace.NodeCounts{Joined: 1}},
		{"silent", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithNodeLabel("silent")), replace.NodeCounts{Joined: 1, Dead: 1}},
		{"silent, and not yet told", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel("silent")), replace.NodeCounts{Joined: 1, Dead: 1}},
		{"a node without conditions", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel("mute")), replace.NodeCounts{Joined: 1, Dead: 1}},
		{"a bad condition", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel("full")), replace.NodeCounts{Joined: 1, Dead: 1}},
		{"a condition that the machine does not watch", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel("full"), watchesNothing), replace.NodeCounts{Joined: 1}},
		{"silent, and its health clock runs", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithNodeLabel("silent"), onceSick), replace.NodeCounts{Joined: 1, Dead: 1}},
		{"no such node", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel("missing")), replace.NodeCounts{Joined: 1, Dead: 1}},
		{"no node", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown)), replace.NodeCounts{Joined: 1, Dead: 1}},
		{"a node that is being deleted", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithNodeLabel("going")), replace.NodeCounts{Joined: 1, Dead: 1}},
		{"of another namespace: there is one target", elsewhere, replace.NodeCounts{Joined: 1, Dead: 1}},
		{"its instance is gone, and its node may be cut off", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithNodeLabel("silent"), instanceGone), replace.NodeCounts{Joined: 1, Dead: 1, Lost: 1}},
		{"its instance and its node are gone: that is not the network", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithNodeLabel("missing"), instanceGone), replace.NodeCounts{}},
		{"a machine that is being deleted", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel("silent"), observetest.AsDeletingMachine), replace.NodeCounts{Joined: 1, Dead: 1}},
		{"a machine that is being deleted because of its node", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithNodeLabel("silent"), observetest.AsDeletingMachine, observetest.WithReplacementDue), replace.NodeCounts{}},
		{"a machine that is being deleted, and its node is gone", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel("missing"), observetest.AsDeletingMachine), replace.NodeCounts{}},
		{"a machine whose instance is being deleted", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel("silent"), observetest.AsDeletingMachine, observetest.InDeletionStage(v1alpha1.MachineDeletionInstance, nil)), replace.NodeCounts{}},
		{"a machine that is being deleted before it joined", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachinePending), observetest.WithNodeLabel("silent"), observetest.AsDeletingMachine), replace.NodeCounts{}},
		{"not joined yet", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachinePending), observetest.WithNodeLabel("silent")), replace.NodeCounts{}},
		{"new", observetest.NewMachine("m"), replace.NodeCounts{}},
		{"its creation keeps failing", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineCrashLoopBackOff)), replace.NodeCounts{}},
		{"without a target", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineAvailable)), replace.NodeCounts{}},
		{"failed: it is given up already", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithNodeLabel("silent")), replace.NodeCounts{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			cluster, _ := observetest.StartCaches(t, nodes, row.machine)
			assert.Equal(t, row.nodes, machine.JoinedNodeCounts(cluster, "shop", moment).WithUncheckedNodesCounted())
		})
	}
	t.Run("all are counted", func(t *testing.T) {
		cluster, _ := observetest.StartCaches(
			t,
			nodes,
			elsewhere,
			observetest.NewMachine(
				"a",
				observetest.WithPhase(v1alpha1.MachineRunning),
				observetest.WithNodeLabel("well"),
			),
			observetest.NewMachine("b", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel("missing")),
			observetest.NewMachine(
				"c",
				observetest.WithPhase(v1alpha1.MachineUnknown),
				observetest.WithNodeLabel("silent"),
			),
			observetest.NewMachine("d", observetest.WithPhase(v1alpha1.MachinePending)),
		)
		assert.Equal(
			t,
			replace.NodeCounts{Joined: 4, Dead: 3},
			machine.JoinedNodeCounts(cluster, "shop", moment).WithUncheckedNodesCounted(),
		)
	})
}

// Each target cluster has a breaker of its own: dead nodes in one cluster stop no replacement in another cluster.
func TestEachTargetClusterHasItsOwnCircuitBreaker(t *testing.T) {
	inNamespace := func(namespace, name string) *v1alpha1.Machine {
		m := observetest.NewMachine(
			namespace+"-"+name, observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithNodeLabel(name),
		)
		m.Namespace = namespace
		return m
	}
	var objects []runtime.Object
	nodes := map[string][]runtime.Object{}
	for _, name := range []string{"a", "b", "c", "d"} {
		objects = append(objects, inNamespace("shop", name), inNamespace("bank", name))
		for namespace, status := range map[string]string{"shop": "Unknown", "bank": "True"} {
			n := observetest.NewNode(observetest.NewNodeCondition("Ready", status))
			n.Name = name
			nodes[namespace] = append(nodes[namespace], n)
		}
	}
	objects = append(objects, inNamespace("branch", "a"))
	cluster, _ := observetest.StartCaches(t, nil, objects...)
	down := observetest.NewUnfilledTarget(t, "cluster-3", cache.TargetConnecting)
	// a second connection to the cluster of the namespace bank, without a filled cache; it was ready before
	branch := observetest.NewUnfilledTarget(t, "cluster-2", cache.TargetReady)
	branch.SetStatus(
		cache.TargetStatus{State: cache.TargetUnavailable, Message: "connection refused", Since: observetest.Noon},
	)
	cluster.SetTargetSource(observetest.Targets{
		"shop":   observetest.NewTarget(t, "cluster-1", nodes["shop"]...),
		"bank":   observetest.NewTarget(t, "cluster-2", nodes["bank"]...),
		"branch": branch,
		"depot":  down,
	})
	now := observetest.Noon
	counts := machine.JoinedNodeCounts(cluster, "bank", now)
	assert.Equal(t, replace.NodeCounts{Joined: 5}, counts.WithUncheckedNodesCounted())
	open, why, _ := replace.BreakerState(counts, now)
	assert.False(t, open, why)

	counts = machine.JoinedNodeCounts(cluster, "shop", now)
	assert.Equal(t, replace.NodeCounts{Joined: 4, Dead: 4}, counts.WithUncheckedNodesCounted())
	open, _, _ = replace.BreakerState(counts, now)
	assert.True(t, open)

	open, why, _ = replace.BreakerState(machine.JoinedNodeCounts(cluster, "depot", now), now)
	assert.True(t, open, "the states of its nodes are not known")
	assert.Equal(
		t,
		"the target cluster of namespace depot is not connected: connection refused; nothing is replaced until the states of the nodes are known",
		why,
	)
	down.SetStatus(cache.TargetStatus{State: cache.TargetReady})
	open, why, _ = replace.BreakerState(machine.JoinedNodeCounts(cluster, "depot", now), now)
	assert.False(t, open, why)
}

func TestFailureDomain(t *testing.T) {
	labelled := observetest.NewMachine("m", func(m *v1alpha1.Machine) {
		m.Spec.NodeTemplateSpec.Labels = map[string]string{"topology.kubernetes.io/zone": "b"}
	})
	inZone := observetest.NewClass(
		"small",
		func(c *v1alpha1.MachineClass) { c.NodeTemplate = &v1alpha1.NodeTemplate{Zone: "a"} },
	)
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		class   *v1alpha1.MachineClass
		domain  string
	}{
		{"nothing tells", observetest.NewMachine("m"), nil, ""},
		{"a class without a node template", observetest.NewMachine("m"), observetest.NewClass("small"), ""},
		{"the class tells", observetest.NewMachine("m"), inZone, "a"},
		{"the machine's node template comes first", labelled, inZone, "b"},
		{"the machine's node template alone", labelled, nil, "b"},
		{"a label of the machine itself is none of its node", observetest.NewMachine("m", func(m *v1alpha1.Machine) {
			m.Labels["topology.kubernetes.io/zone"] = "b"
		}), inZone, "a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.domain, machine.FailureDomain(row.machine, row.class))
		})
	}
}
