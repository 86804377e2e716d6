package machine_test

import (
	"fmt"
	"strings"
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
	m := observetest.NewMachine("m", observetest.WithReplacementGrant)
	m.CreationTimestamp = observetest.MinutesBeforeNoon(1)
	assert.Equal(t, attention.MachineFacts{
		Facts: health.Facts{
			Name:            "m",
			NoTargetCluster: true,
			TimeoutClocks: health.TimeoutClocks{
				Created:  observetest.MinutesBeforeNoon(1).Time,
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
		Preservation: machine.PreservationFacts(m, nil, observetest.Noon),
	}, machine.Facts(m, machine.RelatedObjects{NoTargetCluster: true}, observetest.Noon))
}

func TestMachineFactsOfAMachineInUse(t *testing.T) {
	gone, recovered := observetest.MinutesBeforeNoon(1), observetest.MinutesBeforeNoon(2)
	m := observetest.NewMachine(
		"m",
		observetest.WithNodeTemplate,
		withJoinedNode,
		observetest.WithPhase(v1alpha1.MachineUnknown),
		observetest.AsDeletingMachine,
		observetest.WithReplacementDue,
		observetest.WithReplacementGrant,
	)
	m.Finalizers = []string{"example.com/backup", v1alpha1.FinalizerMachine}
	m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
		MachineHealthTimeout: &metav1.Duration{Duration: 7 * time.Minute}, DisableHealthTimeout: new(true),
		MachineCreationTimeout: &metav1.Duration{Duration: 40 * time.Minute},
	}
	m.Status.Health = &v1alpha1.MachineHealth{
		UnhealthySince: observetest.MinutesBeforeNoon(3),
		RecoveredAt:    &recovered,
		InstanceGoneAt: &gone,
	}
	n := syncedNode(
		asDeletingNode,
		observetest.WithCriticalTaint,
		func(n *corev1.Node) { n.Labels[v1alpha1.LabelUpdateResult] = "failed" },
	)
	related := machine.RelatedObjects{
		Node:            n,
		Class:           classWithDongles("2"),
		Set:             observetest.NewSet("s", observetest.WithDeploymentOwner),
		NoTargetCluster: true,
	}
	facts := machine.Facts(m, related, observetest.Noon)
	wanted, carries := machine.NodeSyncFacts(m, related.Class, n)
	assert.Equal(t, attention.MachineFacts{
		Facts: health.Facts{
			Name:            "m",
			Phase:           "Unknown",
			NoTargetCluster: true,
			Node: health.Node{
				NodeName:     "n",
				NodeDeleting: true,
				NodeWaits:    "its critical components are not ready",
			},
			TimeoutClocks: health.TimeoutClocks{
				Created:        observetest.MinutesBeforeNoon(60).Time,
				CreateBy:       observetest.MinutesBeforeNoon(20).Time,
				Since:          observetest.MinutesBeforeNoon(30).Time,
				UnhealthySince: observetest.MinutesBeforeNoon(3).Time,
				RecoveredAt:    observetest.MinutesBeforeNoon(2).Time,
				InstanceGoneAt: observetest.MinutesBeforeNoon(1).Time,
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
		Update:       drain.InPlaceFacts(n),
		Preservation: machine.PreservationFacts(m, n, observetest.Noon),
	}, facts)

	m.Status.Conditions = append(machine.CopiedConditions(n), m.Status.Conditions...)
	assert.False(t, machine.Facts(m, related, time.Time{}).Uncopied)
	assert.Empty(
		t,
		machine.Facts(m, machine.RelatedObjects{Node: syncedNode()}, time.Time{}).NodeWaits,
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
		machine.Facts(m, machine.RelatedObjects{Node: uninitialized}, time.Time{}).NodeWaits,
	)
	n.Labels[v1alpha1.LabelUpdateResult] = "maybe"
	assert.Empty(t, machine.Facts(m, related, time.Time{}).UpdateResult, "another word is no result")
}

func TestDrainIsOverInTheStagesInstanceAndNode(t *testing.T) {
	for stage, want := range map[v1alpha1.MachineDeletionStage]bool{
		"": false, v1alpha1.MachineDeletionPreDrainHooks: false, v1alpha1.MachineDeletionDrain: false, v1alpha1.MachineDeletionDetach: false,
		v1alpha1.MachineDeletionPreTerminateHooks: false, v1alpha1.MachineDeletionInstance: true, v1alpha1.MachineDeletionNode: true,
	} {
		m := observetest.NewMachine("m", observetest.WithNodeLabel("n"), observetest.AsDeletingMachine)
		m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: stage}
		assert.Equal(t, want, machine.Facts(m, machine.RelatedObjects{}, time.Time{}).Emptied, stage)
	}
}

func asDeletingNode(n *corev1.Node) { n.DeletionTimestamp = observetest.Now() }

func TestNodeHealthFromConditions(t *testing.T) {
	ready := observetest.NewNodeCondition("Ready", "True")
	for _, row := range []struct {
		name       string
		watched    *string // value of spec.nodeConditions
		conditions []corev1.NodeCondition
		healthy    bool
		why        string
	}{
		{"a node that is ready", nil, []corev1.NodeCondition{ready}, true, ""},
		{"a node that has not reported yet", nil, nil, false, "no Ready condition reported yet"},
		{"a node that is not ready", nil, []corev1.NodeCondition{observetest.NewNodeCondition("Ready", "Unknown")}, false, "Ready is Unknown (Because)"},
		{"a bad condition", nil, []corev1.NodeCondition{ready, observetest.NewNodeCondition("DiskPressure", "True")}, false, "DiskPressure is True (Because)"},
		{"one that cannot be told counts as bad", nil, []corev1.NodeCondition{ready, observetest.NewNodeCondition("DiskPressure", "Unknown")}, false, "DiskPressure is Unknown (Because)"},
		{"a condition that nobody watches", nil, []corev1.NodeCondition{ready, observetest.NewNodeCondition("MemoryPressure", "True")}, true, ""},
		{"the machine says which to watch", new("MemoryPressure"), []corev1.NodeCondition{ready, observetest.NewNodeCondition("MemoryPressure", "True")}, false, "MemoryPressure is True (Because)"},
		{"and which not", new(""), []corev1.NodeCondition{ready, observetest.NewNodeCondition("DiskPressure", "True")}, true, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := observetest.NewMachine("m", observetest.WithNodeLabel("n"))
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{NodeConditions: row.watched}
			facts := machine.Facts(m, machine.RelatedObjects{Node: observetest.NewNode(row.conditions...)}, time.Time{})
			healthy, why := health.DecideNodeHealth(facts.Conditions, facts.Bad)
			assert.Equal(t, row.healthy, healthy)
			assert.Equal(t, row.why, why)
		})
	}
}

func TestCopiedConditionsDoNotCountAsNodeHealth(t *testing.T) {
	m := observetest.NewMachine("m", observetest.WithNodeLabel("n"))
	m.Status.Conditions = []corev1.NodeCondition{
		{
			Type:   v1alpha1.MachineInstanceReady,
			Status: "False",
		},
		{Type: "Ready", Status: "False"},
		{Type: "DiskPressure", Status: "True"},
	}
	facts := machine.Facts(
		m,
		machine.RelatedObjects{Node: observetest.NewNode(observetest.NewNodeCondition("Ready", "True"))},
		time.Time{},
	)
	healthy, _ := health.DecideNodeHealth(facts.Conditions, facts.Bad)
	assert.True(t, healthy, "the node is asked, not the copy")
}

func TestMachineFactsOfAMachineWithoutADeployment(t *testing.T) {
	daemon := observetest.NewSet(
		"s",
		func(s *v1alpha1.MachineSet) { s.OwnerReferences = observetest.ControllerReferences(s, "Daemon") },
	)
	uncontrolled := observetest.NewSet("s", observetest.WithDeploymentOwner)
	uncontrolled.OwnerReferences[0].Controller = nil
	for name, row := range map[string]struct {
		set   *v1alpha1.MachineSet
		alone bool
	}{
		"no set":                               {nil, true},
		"a set on its own":                     {observetest.NewSet("s"), true},
		"a set that something else controls":   {daemon, true},
		"a set that a deployment does not own": {uncontrolled, true},
		"a set below a deployment":             {observetest.NewSet("s", observetest.WithDeploymentOwner), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(
				t,
				row.alone,
				machine.Facts(observetest.NewMachine("m"), machine.RelatedObjects{Set: row.set}, time.Time{}).Alone,
			)
		})
	}
}

func TestConditionsAreCopiedWithoutTheHeartbeat(t *testing.T) {
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
		{"one more", []corev1.NodeCondition{whole, observetest.NewNodeCondition("DiskPressure", "False")}, true},
		{"one less", nil, true},
		{"one of ours, on a node by mistake", []corev1.NodeCondition{whole, {Type: v1alpha1.MachineReplacementDue, Status: "True"}}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := observetest.NewMachine("m", observetest.WithNodeLabel("n"))
			m.Status.Conditions = append(machine.CopiedConditions(observetest.NewNode(whole)), own)
			n := observetest.NewNode(row.node...)
			before := n.DeepCopy()
			assert.Equal(t, row.uncopied, machine.Facts(m, machine.RelatedObjects{Node: n}, time.Time{}).Uncopied)

			m.Status.Conditions = append([]corev1.NodeCondition{own}, machine.CopiedConditions(n)...)
			for _, c := range m.Status.Conditions {
				assert.Zero(t, c.LastHeartbeatTime)
			}
			assert.False(
				t,
				machine.Facts(m, machine.RelatedObjects{Node: n}, time.Time{}).Uncopied,
				"one copy is enough, wherever ours stand",
			)
			assert.Equal(t, before, n, "the node of the cache stays as it is")
		})
	}
	t.Run("without a node the last copy stays", func(t *testing.T) {
		m := observetest.NewMachine("m", observetest.WithNodeLabel("n"))
		m.Status.Conditions = []corev1.NodeCondition{whole}
		assert.False(t, machine.Facts(m, machine.RelatedObjects{}, time.Time{}).Uncopied)
	})
}

func TestNodeOfMachine(t *testing.T) {
	cluster, _ := observetest.StartCaches(t, []runtime.Object{observetest.NewNode()})
	assert.Equal(t, "n", cluster.NodeOfMachine(observetest.NewMachine("m", observetest.WithNodeLabel("n"))).Name)
	assert.Nil(t, cluster.NodeOfMachine(observetest.NewMachine("m", observetest.WithNodeLabel("gone"))))
	assert.Nil(t, cluster.NodeOfMachine(observetest.NewMachine("n")), "a name in common is no label")
}

func TestReadRelatedObjects(t *testing.T) {
	s := observetest.NewSet("s")
	cluster, _ := observetest.StartCaches(t, []runtime.Object{observetest.NewNode()}, s, observetest.NewClass("small"))
	full := machine.ReadRelatedObjects(
		cluster,
		observetest.NewMachine("m", observetest.WithInstanceAndNode("n"), observetest.WithOwnerSet(s)),
	)
	require.NotNil(t, full.Node)
	assert.Equal(t, "n", full.Node.Name)
	assert.Equal(t, full.Node, full.OwnedNode())
	labelled := machine.ReadRelatedObjects(cluster, observetest.NewMachine("m", observetest.WithNodeLabel("n")))
	assert.Nil(t, labelled.Node, "a label alone, without an instance")
	assert.True(t, labelled.NodeOwner.HasOwnerKind(ownership.OwnerNone))
	assert.Equal(t, "small", full.Class.Name)
	assert.Equal(t, "s", full.Set.Name)
	assert.False(t, full.NoTargetCluster)

	lone := observetest.NewMachine("m", observetest.WithNodeLabel("gone"))
	lone.Spec.Class.Name = "gone"
	lone.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "s", UID: s.UID}} // controller: unset
	assert.Equal(t, machine.RelatedObjects{}, machine.ReadRelatedObjects(cluster, lone))

	former := observetest.NewSet("s")
	former.UID = "uid-former"
	assert.Nil(
		t,
		machine.ReadRelatedObjects(cluster, observetest.NewMachine("m", observetest.WithOwnerSet(former))).Set,
		"another set of the same name is not its own",
	)
}

func TestCloudCallCount(t *testing.T) {
	s, other := observetest.NewSet("s"), observetest.NewSet("other")
	begun := func(m *v1alpha1.Machine) {
		m.Status.LastOperation.Type = v1alpha1.MachineOperationCreate
		m.Status.LastOperation.State = v1alpha1.MachineStateProcessing
	}
	failed := func(m *v1alpha1.Machine) { m.Status.LastOperation.State = v1alpha1.MachineStateFailed }
	made := func(m *v1alpha1.Machine) { m.Spec.ProviderID = "fake:///n" }
	at := func(stage v1alpha1.MachineDeletionStage) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: stage} }
	}
	cluster, _ := observetest.StartCaches(
		t,
		nil,
		s,
		other,
		observetest.NewMachine(
			"a",
			observetest.WithOwnerSet(s),
			begun,
		),
		observetest.NewMachine("b", observetest.WithOwnerSet(s), begun, made),
		observetest.NewMachine("c", observetest.WithOwnerSet(s)),
		observetest.NewMachine("d", observetest.WithOwnerSet(s), begun),
		observetest.NewMachine("e", observetest.WithOwnerSet(other), begun),
		observetest.NewMachine("i", observetest.WithOwnerSet(s), begun, failed),
		observetest.NewMachine(
			"f",
			observetest.WithOwnerSet(s),
			begun,
			observetest.AsDeletingMachine,
			at(v1alpha1.MachineDeletionInstance),
		),
		observetest.NewMachine(
			"g",
			observetest.WithOwnerSet(s),
			observetest.AsDeletingMachine,
			at(v1alpha1.MachineDeletionDrain),
		),
		observetest.NewMachine("h", observetest.WithOwnerSet(s), begun, observetest.AsDeletingMachine),
	)
	assert.Equal(
		t,
		2,
		machine.CloudCallCount(cluster, observetest.NewMachine("m", observetest.WithOwnerSet(s))),
		"a and d",
	)
	assert.Equal(
		t,
		1,
		machine.CloudCallCount(cluster, observetest.NewMachine("d", observetest.WithOwnerSet(s), begun)),
		"it is no other one",
	)
	assert.Equal(
		t,
		1,
		machine.CloudCallCount(
			cluster,
			observetest.NewMachine("m", observetest.WithOwnerSet(s), made, observetest.AsDeletingMachine),
		),
		"f",
	)
	assert.Equal(t, 0, machine.CloudCallCount(cluster, observetest.NewMachine("m")), "it belongs to no set")
}

// The API server of a target cluster need not obey the limits of Kubernetes.
func TestTextsOfANodeAreBounded(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	n := observetest.NewNode()
	for i := range 10_000 {
		kind := corev1.NodeConditionType(fmt.Sprint(i, huge[:1000]))
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: "True"})
	}
	n.Status.Conditions[1] = corev1.NodeCondition{
		Type: corev1.NodeConditionType(huge), Status: corev1.ConditionStatus(huge), Reason: huge, Message: huge,
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: "True"})
	copied := machine.CopiedConditions(n)
	assert.Len(t, copied, 32)
	assert.Equal(t, corev1.NodeReady, copied[31].Type, "the machine's set reads it in the status")
	size := 0
	for _, c := range copied {
		size += len(c.Type) + len(c.Status) + len(c.Reason) + len(c.Message)
	}
	assert.Less(t, size, 20_000)

	m := observetest.NewMachine("m", observetest.WithNodeLabel("n"))
	m.Status.Conditions = copied
	facts := machine.Facts(m, machine.RelatedObjects{Node: n}, time.Time{})
	assert.False(t, facts.Uncopied, "one copy is enough")
	assert.Len(t, facts.Conditions, 10_001, "the health check reads all conditions")
	assert.LessOrEqual(t, len(facts.Conditions[1].Reason)+len(facts.Conditions[1].Message), 2000)

	n.Spec.ProviderID = "virtual://" + huge + "/i"
	owner := ownership.OwnerOfNode(
		ownership.Node{Name: "n", ProviderID: n.Spec.ProviderID},
		ownership.Machine{ProviderID: "j"},
		nil,
	)
	assert.LessOrEqual(t, len(owner.Why), 1000)
}
