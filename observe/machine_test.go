package observe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/observe"
)

func TestMachineFactsOfANewMachine(t *testing.T) {
	assert.Equal(t, attention.MachineFacts{Alone: true}, observe.MachineFacts(machine("m"), observe.Around{}, time.Time{}))
}

func TestMachineFactsOfAMachineInUse(t *testing.T) {
	m := machine("m", templated, onNode("n"), phase(v1alpha1.MachineRunning), goingMachine, isDue, isGranted)
	m.Finalizers = []string{"example.com/backup", v1alpha1.FinalizerMachine}
	m.Spec.ProviderID = "fake:///i-1"
	n := inSync(goingNode, critical)
	assert.Equal(t, attention.MachineFacts{
		Deleting: true, Finalizer: true, Phase: "Running", ProviderID: "fake:///i-1", NodeName: "n", NoTarget: true,
		NodeExists: true, NodeHealthy: true, NodeGoing: true, NodeHeld: true, Uncopied: true, Due: true, Granted: true,
		Unsynced: "node has another value of label " + v1alpha1.LabelMachineName,
	}, observe.MachineFacts(renamed(m, "other"), observe.Around{Node: n, Class: withDongles("2"), Set: set("s", ofDeployment), NoTarget: true}, time.Time{}))

	m.Status.Conditions = append(observe.CopiedConditions(n), m.Status.Conditions...)
	calm := observe.MachineFacts(m, observe.Around{Node: n, Class: withDongles("2")}, time.Time{})
	assert.False(t, calm.Uncopied)
	assert.Empty(t, calm.Unsynced)
	assert.NotEmpty(t, observe.MachineFacts(m, observe.Around{Node: n, Class: withDongles("3")}, time.Time{}).Unsynced, "the class counts")
	assert.False(t, observe.MachineFacts(m, observe.Around{Node: inSync()}, time.Time{}).NodeHeld, "another taint holds nothing")
}

func TestHowANodeIsCountsUntilItsMachineIsPastTheDrain(t *testing.T) {
	for stage, want := range map[v1alpha1.MachineDeletionStage]bool{
		"": false, v1alpha1.MachineDeletionPreDrainHooks: false, v1alpha1.MachineDeletionDrain: false, v1alpha1.MachineDeletionDetach: false,
		v1alpha1.MachineDeletionPreTerminateHooks: false, v1alpha1.MachineDeletionInstance: true, v1alpha1.MachineDeletionNode: true,
	} {
		m := machine("m", onNode("n"), goingMachine)
		m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: stage}
		assert.Equal(t, want, observe.MachineFacts(m, observe.Around{}, time.Time{}).Emptied, stage)
	}
}

func isDue(m *v1alpha1.Machine) {
	m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{Type: v1alpha1.MachineReplacementDue, Status: "True", Reason: "HealthTimeout"})
}

func isGranted(m *v1alpha1.Machine) {
	m.Annotations = map[string]string{v1alpha1.AnnotationReplacementGranted: "2026-01-01T12:00:00Z"}
}

func renamed(m *v1alpha1.Machine, name string) *v1alpha1.Machine {
	m = m.DeepCopy()
	m.Name = name
	return m
}

func goingNode(n *corev1.Node) { n.DeletionTimestamp = now() }

// critical puts the taint on a node that it carries until its critical components are ready.
func critical(n *corev1.Node) {
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: "NoSchedule"})
}

func ofDeployment(s *v1alpha1.MachineSet) {
	s.OwnerReferences = ownedBy(deployment("d"), "MachineDeployment")
}

func TestANodeHasItsOwnHealth(t *testing.T) {
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
			facts := observe.MachineFacts(m, observe.Around{Node: node(row.conditions...)}, time.Time{})
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
	facts := observe.MachineFacts(m, observe.Around{Node: node(condition("Ready", "True"))}, time.Time{})
	assert.True(t, facts.NodeHealthy, "the node is asked, not the copy")
}

func TestAloneIsWhoHasNoDeployment(t *testing.T) {
	daemon := set("s", func(s *v1alpha1.MachineSet) { s.OwnerReferences = ownedBy(s, "Daemon") })
	uncontrolled := set("s", ofDeployment)
	uncontrolled.OwnerReferences[0].Controller = nil
	for name, row := range map[string]struct {
		set   *v1alpha1.MachineSet
		alone bool
	}{
		"no set":                               {nil, true},
		"a set on its own":                     {set("s"), true},
		"a set that something else controls":   {daemon, true},
		"a set that a deployment does not own": {uncontrolled, true},
		"a set below a deployment":             {set("s", ofDeployment), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.alone, observe.MachineFacts(machine("m"), observe.Around{Set: row.set}, time.Time{}).Alone)
		})
	}
}

func TestD43_ConditionsAreCopiedWithEverythingButTheHeartbeat(t *testing.T) {
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
		{"D43: the same", []corev1.NodeCondition{whole}, false},
		{"D43: only the heartbeat differs", with(func(c *corev1.NodeCondition) { c.LastHeartbeatTime = later }), false},
		{"D43: only the message differs", with(func(c *corev1.NodeCondition) { c.Message = "kubelet has disk pressure" }), true},
		{"D43: only the reason differs", with(func(c *corev1.NodeCondition) { c.Reason = "Other" }), true},
		{"D43: only the transition differs", with(func(c *corev1.NodeCondition) { c.LastTransitionTime = later }), true},
		{"D43: the status differs", with(func(c *corev1.NodeCondition) { c.Status = "False" }), true},
		{"D43: the type differs", with(func(c *corev1.NodeCondition) { c.Type = "DiskPressure" }), true},
		{"D43: one more", []corev1.NodeCondition{whole, condition("DiskPressure", "False")}, true},
		{"D43: one less", nil, true},
		{"D43: one of ours, on a node by mistake", []corev1.NodeCondition{whole, {Type: v1alpha1.MachineReplacementDue, Status: "True"}}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := machine("m", onNode("n"))
			m.Status.Conditions = append(observe.CopiedConditions(node(whole)), own)
			n := node(row.node...)
			before := n.DeepCopy()
			assert.Equal(t, row.uncopied, observe.MachineFacts(m, observe.Around{Node: n}, time.Time{}).Uncopied)

			m.Status.Conditions = append([]corev1.NodeCondition{own}, observe.CopiedConditions(n)...)
			for _, c := range m.Status.Conditions {
				assert.Zero(t, c.LastHeartbeatTime)
			}
			assert.False(t, observe.MachineFacts(m, observe.Around{Node: n}, time.Time{}).Uncopied, "one copy is enough, wherever ours stand")
			assert.Equal(t, before, n, "the node of the cache stays as it is")
		})
	}
	t.Run("D43: without a node the last copy stays", func(t *testing.T) {
		m := machine("m", onNode("n"))
		m.Status.Conditions = []corev1.NodeCondition{whole}
		assert.False(t, observe.MachineFacts(m, observe.Around{}, time.Time{}).Uncopied)
	})
}

func TestNodeOf(t *testing.T) {
	cluster, _ := start(t, []runtime.Object{node()})
	assert.Equal(t, "n", cluster.NodeOf(machine("m", onNode("n"))).Name)
	assert.Nil(t, cluster.NodeOf(machine("m", onNode("gone"))))
	assert.Nil(t, cluster.NodeOf(machine("n")), "a name in common is no label")
}

func TestAround(t *testing.T) {
	s := set("s")
	cluster, _ := start(t, []runtime.Object{node()}, s, class("small"))
	full := cluster.Around(machine("m", onNode("n"), of(s)))
	assert.Equal(t, "n", full.Node.Name)
	assert.Equal(t, "small", full.Class.Name)
	assert.Equal(t, "s", full.Set.Name)
	assert.False(t, full.NoTarget)

	lone := machine("m", onNode("gone"))
	lone.Spec.Class.Name = "gone"
	lone.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "s", UID: s.UID}} // not as controller
	assert.Equal(t, observe.Around{}, cluster.Around(lone))

	former := set("s")
	former.UID = "uid-former"
	assert.Nil(t, cluster.Around(machine("m", of(former))).Set, "another set of the same name is not its own")
}

func TestHowManyOthersOfASetCallTheCloud(t *testing.T) {
	s, other := set("s"), set("other")
	begun := func(m *v1alpha1.Machine) {
		m.Status.LastOperation.Type, m.Status.LastOperation.State = v1alpha1.MachineOperationCreate, v1alpha1.MachineStateProcessing
	}
	failed := func(m *v1alpha1.Machine) { m.Status.LastOperation.State = v1alpha1.MachineStateFailed }
	made := func(m *v1alpha1.Machine) { m.Spec.ProviderID = "fake:///n" }
	at := func(stage v1alpha1.MachineDeletionStage) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: stage} }
	}
	cluster, _ := start(t, nil, s, other,
		machine("a", of(s), begun), machine("b", of(s), begun, made), machine("c", of(s)), machine("d", of(s), begun), machine("e", of(other), begun), machine("i", of(s), begun, failed),
		machine("f", of(s), begun, goingMachine, at(v1alpha1.MachineDeletionInstance)), machine("g", of(s), goingMachine, at(v1alpha1.MachineDeletionDrain)),
		machine("h", of(s), begun, goingMachine))
	assert.Equal(t, 2, cluster.Calling(machine("m", of(s))), "a and d")
	assert.Equal(t, 1, cluster.Calling(machine("d", of(s), begun)), "it is no other one")
	assert.Equal(t, 1, cluster.Calling(machine("m", of(s), made, goingMachine)), "f")
	assert.Equal(t, 0, cluster.Calling(machine("m")), "it belongs to no set")
}
