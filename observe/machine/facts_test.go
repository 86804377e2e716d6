package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/health"
	"millwright/decide/ownership"
	"millwright/observe/drain"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

func TestMachineFactsOfANewMachine(t *testing.T) {
	m := observetest.Machine("m", observetest.IsGranted)
	m.CreationTimestamp = observetest.Ago(1)
	assert.Equal(t, attention.MachineFacts{
		Facts: health.Facts{
			Name:     "m",
			NoTarget: true,
			Clocks: health.Clocks{
				Created:  observetest.Ago(1).Time,
				CreateBy: observetest.Noon.Add(19 * time.Minute),
			},
			Timeout:       10 * time.Minute,
			UpdateTimeout: 20 * time.Minute,
			Replacement: health.Replacement{
				Granted: true,
				Alone:   true,
			},
			Now: observetest.Noon,
		},
		Preservation: machine.PreserveFacts(m, nil, observetest.Noon),
	}, machine.Facts(m, machine.Related{NoTarget: true}, observetest.Noon))
}

func TestMachineFactsOfAMachineInUse(t *testing.T) {
	gone, recovered := observetest.Ago(1), observetest.Ago(2)
	m := observetest.Machine(
		"m",
		observetest.Templated,
		withJoinedNode,
		observetest.Phase(v1alpha1.MachineUnknown),
		observetest.GoingMachine,
		observetest.IsDue,
		observetest.IsGranted,
	)
	m.Finalizers = []string{"example.com/backup", v1alpha1.FinalizerMachine}
	m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
		MachineHealthTimeout: &metav1.Duration{Duration: 7 * time.Minute}, DisableHealthTimeout: new(true),
		MachineCreationTimeout: &metav1.Duration{Duration: 40 * time.Minute},
	}
	m.Status.Health = &v1alpha1.MachineHealth{
		UnhealthySince: observetest.Ago(3),
		RecoveredAt:    &recovered,
		InstanceGoneAt: &gone,
	}
	n := syncedNode(
		goingNode,
		observetest.Critical,
		func(n *corev1.Node) { n.Labels[v1alpha1.LabelUpdateResult] = "failed" },
	)
	related := machine.Related{
		Node:     n,
		Class:    classWithDongles("2"),
		Set:      observetest.Set("s", observetest.OfDeployment),
		NoTarget: true,
	}
	facts := machine.Facts(m, related, observetest.Noon)
	wanted, carries := machine.NodeSyncFacts(m, related.Class, n)
	assert.Equal(t, attention.MachineFacts{
		Facts: health.Facts{
			Name:     "m",
			Phase:    "Unknown",
			NoTarget: true,
			Node: health.Node{
				NodeName:     "n",
				NodeDeleting: true,
				NodeWaits:    "its critical components are not ready",
			},
			Clocks: health.Clocks{
				Created:        observetest.Ago(60).Time,
				CreateBy:       observetest.Ago(20).Time,
				Since:          observetest.Ago(30).Time,
				UnhealthySince: observetest.Ago(3).Time,
				RecoveredAt:    observetest.Ago(2).Time,
				InstanceGoneAt: observetest.Ago(1).Time,
			},
			Timeout:       7 * time.Minute,
			NoTimeout:     true,
			UpdateTimeout: 20 * time.Minute,
			UpdateResult:  "failed",
			Replacement: health.Replacement{
				Due:     true,
				Granted: true,
			},
			Now: observetest.Noon,
		},
		Deleting:     true,
		Finalizer:    true,
		ProviderID:   "fake:///i-1",
		NodeExists:   true,
		Uncopied:     true,
		Conditions:   []health.Condition{{Type: "Ready", Status: "True", Reason: "Because"}},
		Bad:          facts.Bad,
		Wanted:       wanted,
		Carries:      carries,
		Update:       drain.InPlaceNode(n),
		Preservation: machine.PreserveFacts(m, n, observetest.Noon),
	}, facts)

	m.Status.Conditions = append(machine.CopiedConditions(n), m.Status.Conditions...)
	assert.False(t, machine.Facts(m, related, time.Time{}).Uncopied)
	assert.Empty(
		t,
		machine.Facts(m, machine.Related{Node: syncedNode()}, time.Time{}).NodeWaits,
		"another taint holds nothing",
	)
	uninitialized := syncedNode()
	uninitialized.Spec.Taints = append(
		uninitialized.Spec.Taints,
		corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: "NoSchedule"},
	)
	assert.Equal(
		t,
		"its cloud controller manager has not initialised it",
		machine.Facts(m, machine.Related{Node: uninitialized}, time.Time{}).NodeWaits,
	)
	n.Labels[v1alpha1.LabelUpdateResult] = "maybe"
	assert.Empty(t, machine.Facts(m, related, time.Time{}).UpdateResult, "another word is no result")
}

func TestAMachineIsEmptiedFromTheStageInstanceOn(t *testing.T) {
	for stage, want := range map[v1alpha1.MachineDeletionStage]bool{
		"": false, v1alpha1.MachineDeletionPreDrainHooks: false, v1alpha1.MachineDeletionDrain: false, v1alpha1.MachineDeletionDetach: false,
		v1alpha1.MachineDeletionPreTerminateHooks: false, v1alpha1.MachineDeletionInstance: true, v1alpha1.MachineDeletionNode: true,
	} {
		m := observetest.Machine("m", observetest.OnNode("n"), observetest.GoingMachine)
		m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: stage}
		assert.Equal(t, want, machine.Facts(m, machine.Related{}, time.Time{}).Emptied, stage)
	}
}

func goingNode(n *corev1.Node) { n.DeletionTimestamp = observetest.Now() }

func TestNodeHealthFromConditions(t *testing.T) {
	ready := observetest.Condition("Ready", "True")
	for _, row := range []struct {
		name       string
		watched    *string // value of spec.nodeConditions
		conditions []corev1.NodeCondition
		healthy    bool
		why        string
	}{
		{"a node that is ready", nil, []corev1.NodeCondition{ready}, true, ""},
		{"a node that has not reported yet", nil, nil, false, "no Ready condition reported yet"},
		{"a node that is not ready", nil, []corev1.NodeCondition{observetest.Condition("Ready", "Unknown")}, false, "Ready is Unknown (Because)"},
		{"a bad condition", nil, []corev1.NodeCondition{ready, observetest.Condition("DiskPressure", "True")}, false, "DiskPressure is True (Because)"},
		{"one that cannot be told counts as bad", nil, []corev1.NodeCondition{ready, observetest.Condition("DiskPressure", "Unknown")}, false, "DiskPressure is Unknown (Because)"},
		{"a condition that nobody watches", nil, []corev1.NodeCondition{ready, observetest.Condition("MemoryPressure", "True")}, true, ""},
		{"the machine says which to watch", new("MemoryPressure"), []corev1.NodeCondition{ready, observetest.Condition("MemoryPressure", "True")}, false, "MemoryPressure is True (Because)"},
		{"and which not", new(""), []corev1.NodeCondition{ready, observetest.Condition("DiskPressure", "True")}, true, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := observetest.Machine("m", observetest.OnNode("n"))
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{NodeConditions: row.watched}
			facts := machine.Facts(m, machine.Related{Node: observetest.Node(row.conditions...)}, time.Time{})
			healthy, why := health.DecideNode(facts.Conditions, facts.Bad)
			assert.Equal(t, row.healthy, healthy)
			assert.Equal(t, row.why, why)
		})
	}
}

func TestAMachinesOwnConditionsDoNotCountForItsNode(t *testing.T) {
	m := observetest.Machine("m", observetest.OnNode("n"))
	m.Status.Conditions = []corev1.NodeCondition{
		{
			Type:   v1alpha1.MachineInstanceReady,
			Status: "False",
		},
		{Type: "Ready", Status: "False"},
		{Type: "DiskPressure", Status: "True"},
	}
	facts := machine.Facts(m, machine.Related{Node: observetest.Node(observetest.Condition("Ready", "True"))}, time.Time{})
	healthy, _ := health.DecideNode(facts.Conditions, facts.Bad)
	assert.True(t, healthy, "the node is asked, not the copy")
}

func TestAMachineIsAloneIfItsSetHasNoDeployment(t *testing.T) {
	daemon := observetest.Set("s", func(s *v1alpha1.MachineSet) { s.OwnerReferences = observetest.OwnedBy(s, "Daemon") })
	uncontrolled := observetest.Set("s", observetest.OfDeployment)
	uncontrolled.OwnerReferences[0].Controller = nil
	for name, row := range map[string]struct {
		set   *v1alpha1.MachineSet
		alone bool
	}{
		"no set":                               {nil, true},
		"a set on its own":                     {observetest.Set("s"), true},
		"a set that something else controls":   {daemon, true},
		"a set that a deployment does not own": {uncontrolled, true},
		"a set below a deployment":             {observetest.Set("s", observetest.OfDeployment), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.alone, machine.Facts(observetest.Machine("m"), machine.Related{Set: row.set}, time.Time{}).Alone)
		})
	}
}

func TestConditionsAreCopiedWithEverythingButTheHeartbeat(t *testing.T) {
	noon := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	later := metav1.NewTime(noon.Add(time.Minute))
	whole := corev1.NodeCondition{
		Type: "Ready", Status: "True", Reason: "KubeletReady", Message: "kubelet is posting ready status",
		LastTransitionTime: noon, LastHeartbeatTime: noon,
	}
	own := corev1.NodeCondition{Type: v1alpha1.MachineInstanceReady, Status: "True"}
	with := func(change func(*corev1.NodeCondition)) []corev1.NodeCondition {
		c := whole
		change(&c)
		return []corev1.NodeCondition{c}
	}
	for _, row := range []struct {
		name     string
		node     []corev1.NodeCondition
		uncopied bool
	}{
		{"the same", []corev1.NodeCondition{whole}, false},
		{"only the heartbeat differs", with(func(c *corev1.NodeCondition) { c.LastHeartbeatTime = later }), false},
		{"only the message differs", with(func(c *corev1.NodeCondition) { c.Message = "kubelet has disk pressure" }), true},
		{"only the reason differs", with(func(c *corev1.NodeCondition) { c.Reason = "Other" }), true},
		{"only the transition differs", with(func(c *corev1.NodeCondition) { c.LastTransitionTime = later }), true},
		{"the status differs", with(func(c *corev1.NodeCondition) { c.Status = "False" }), true},
		{"the type differs", with(func(c *corev1.NodeCondition) { c.Type = "DiskPressure" }), true},
		{"one more", []corev1.NodeCondition{whole, observetest.Condition("DiskPressure", "False")}, true},
		{"one less", nil, true},
		{"one of ours, on a node by mistake", []corev1.NodeCondition{whole, {Type: v1alpha1.MachineReplacementDue, Status: "True"}}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := observetest.Machine("m", observetest.OnNode("n"))
			m.Status.Conditions = append(machine.CopiedConditions(observetest.Node(whole)), own)
			n := observetest.Node(row.node...)
			before := n.DeepCopy()
			assert.Equal(t, row.uncopied, machine.Facts(m, machine.Related{Node: n}, time.Time{}).Uncopied)

			m.Status.Conditions = append([]corev1.NodeCondition{own}, machine.CopiedConditions(n)...)
			for _, c := range m.Status.Conditions {
				assert.Zero(t, c.LastHeartbeatTime)
			}
			assert.False(
				t,
				machine.Facts(m, machine.Related{Node: n}, time.Time{}).Uncopied,
				"one copy is enough, wherever ours stand",
			)
			assert.Equal(t, before, n, "the node of the cache stays as it is")
		})
	}
	t.Run("without a node the last copy stays", func(t *testing.T) {
		m := observetest.Machine("m", observetest.OnNode("n"))
		m.Status.Conditions = []corev1.NodeCondition{whole}
		assert.False(t, machine.Facts(m, machine.Related{}, time.Time{}).Uncopied)
	})
}

func TestNodeOf(t *testing.T) {
	cluster, _ := observetest.Start(t, []runtime.Object{observetest.Node()})
	assert.Equal(t, "n", cluster.NodeOf(observetest.Machine("m", observetest.OnNode("n"))).Name)
	assert.Nil(t, cluster.NodeOf(observetest.Machine("m", observetest.OnNode("gone"))))
	assert.Nil(t, cluster.NodeOf(observetest.Machine("n")), "a name in common is no label")
}

func TestRead(t *testing.T) {
	s := observetest.Set("s")
	cluster, _ := observetest.Start(t, []runtime.Object{observetest.Node()}, s, observetest.Class("small"))
	full := machine.Read(cluster, observetest.Machine("m", observetest.Owning("n"), observetest.Of(s)))
	require.NotNil(t, full.Node)
	assert.Equal(t, "n", full.Node.Name)
	assert.Equal(t, full.Node, full.Own())
	labelled := machine.Read(cluster, observetest.Machine("m", observetest.OnNode("n")))
	assert.Nil(t, labelled.Node, "a label alone, without an instance")
	assert.True(t, labelled.Owner.Is(ownership.Nobodys))
	assert.Equal(t, "small", full.Class.Name)
	assert.Equal(t, "s", full.Set.Name)
	assert.False(t, full.NoTarget)

	lone := observetest.Machine("m", observetest.OnNode("gone"))
	lone.Spec.Class.Name = "gone"
	lone.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "s", UID: s.UID}} // controller: unset
	assert.Equal(t, machine.Related{}, machine.Read(cluster, lone))

	former := observetest.Set("s")
	former.UID = "uid-former"
	assert.Nil(
		t,
		machine.Read(cluster, observetest.Machine("m", observetest.Of(former))).Set,
		"another set of the same name is not its own",
	)
}

func TestHowManyOthersOfASetCallTheCloud(t *testing.T) {
	s, other := observetest.Set("s"), observetest.Set("other")
	begun := func(m *v1alpha1.Machine) {
		m.Status.LastOperation.Type = v1alpha1.MachineOperationCreate
		m.Status.LastOperation.State = v1alpha1.MachineStateProcessing
	}
	failed := func(m *v1alpha1.Machine) { m.Status.LastOperation.State = v1alpha1.MachineStateFailed }
	made := func(m *v1alpha1.Machine) { m.Spec.ProviderID = "fake:///n" }
	at := func(stage v1alpha1.MachineDeletionStage) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: stage} }
	}
	cluster, _ := observetest.Start(
		t,
		nil,
		s,
		other,
		observetest.Machine(
			"a",
			observetest.Of(s),
			begun,
		),
		observetest.Machine("b", observetest.Of(s), begun, made),
		observetest.Machine("c", observetest.Of(s)),
		observetest.Machine("d", observetest.Of(s), begun),
		observetest.Machine("e", observetest.Of(other), begun),
		observetest.Machine("i", observetest.Of(s), begun, failed),
		observetest.Machine(
			"f",
			observetest.Of(s),
			begun,
			observetest.GoingMachine,
			at(v1alpha1.MachineDeletionInstance),
		),
		observetest.Machine("g", observetest.Of(s), observetest.GoingMachine, at(v1alpha1.MachineDeletionDrain)),
		observetest.Machine("h", observetest.Of(s), begun, observetest.GoingMachine),
	)
	assert.Equal(t, 2, machine.Calling(cluster, observetest.Machine("m", observetest.Of(s))), "a and d")
	assert.Equal(t, 1, machine.Calling(cluster, observetest.Machine("d", observetest.Of(s), begun)), "it is no other one")
	assert.Equal(
		t,
		1,
		machine.Calling(cluster, observetest.Machine("m", observetest.Of(s), made, observetest.GoingMachine)),
		"f",
	)
	assert.Equal(t, 0, machine.Calling(cluster, observetest.Machine("m")), "it belongs to no set")
}
