package checker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func newMachine(name string, changes ...func(*v1alpha1.Machine)) v1alpha1.Machine {
	m := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name:              name,
		UID:               types.UID("uid-" + name),
		Labels:            map[string]string{"pool": "p"},
		CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
	}}
	m.Spec.ProviderID = "virtual:///eu/i-" + name
	m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
	for _, change := range changes {
		change(&m)
	}
	return m
}

func markDeleted(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(noon)) }

func newInstance(id, machine string) admin.Instance {
	return admin.Instance{Instance: virtual.Instance{
		ID:         id,
		ProviderID: "virtual:///eu/" + id,
		State:      virtual.StateRunning,
		Tags:       virtual.Tags{MachineName: machine, MachineUID: "uid-" + machine},
	}}
}

func newNode(id string, status corev1.ConditionStatus) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: corev1.NodeSpec{ProviderID: "virtual:///eu/" + id}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	return n
}

// snapshotWithRunningMachines returns a snapshot in which deployment p has these machines, all running.
func snapshotWithRunningMachines(replicas int32, names ...string) Snapshot {
	d := v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Generation: 1}}
	d.Spec.Replicas = replicas
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "p"}}
	d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{
		UpdateConfiguration: v1alpha1.UpdateConfiguration{
			MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
		},
	}
	s := Snapshot{Time: noon, IsConsistent: true, Deployments: []v1alpha1.MachineDeployment{d}}
	for _, name := range names {
		s.Machines = append(s.Machines, newMachine(name))
		s.Instances = append(s.Instances, newInstance("i-"+name, name))
		s.Nodes = append(s.Nodes, newNode("i-"+name, corev1.ConditionTrue))
	}
	return s
}

func objectNames(found []Finding) (names []string) {
	for _, f := range found {
		names = append(names, f.Object)
	}
	return names
}

func TestFindDuplicateInstances(t *testing.T) {
	s := snapshotWithRunningMachines(2, "a", "b")
	assert.Empty(t, FindDuplicateInstances(s))
	s.Instances = append(s.Instances, newInstance("i-9", "a"))
	assert.Equal(t, []string{"a/uid-a"}, objectNames(FindDuplicateInstances(s)))
}

func TestFindOrphanedInstances(t *testing.T) {
	s := snapshotWithRunningMachines(2, "a", "b")
	assert.Empty(t, FindOrphanedInstances(s, nil))
	s.Machines = s.Machines[:1]
	assert.Equal(t, []string{"i-b"}, objectNames(FindOrphanedInstances(s, nil)))
	assert.Empty(t, FindOrphanedInstances(s, map[string]bool{"uid-b": true}), "a person removed the finalizer")
}

func TestFindMissingInstances(t *testing.T) {
	s := snapshotWithRunningMachines(2, "a", "b")
	s.Instances = s.Instances[:1]
	s.Machines[1].Status.CurrentStatus.Phase = ""
	assert.Equal(t, []string{"b"}, objectNames(FindMissingInstances(s)))
	s.Machines[1].Status.CurrentStatus.Phase = v1alpha1.MachineFailed
	assert.Empty(t, FindMissingInstances(s), "it shows that it failed")
	s.Machines[1].Status.CurrentStatus.Phase = ""
	s.Machines[1].Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
		MachineCreationTimeout: &metav1.Duration{Duration: 2 * time.Hour},
	}
	assert.Empty(t, FindMissingInstances(s), "it has time left")
}

func TestCheckSnapshotFindsTooManyMachines(t *testing.T) {
	b := &SizeBounds{ChecksDeletingMachines: true}
	judge := func(s Snapshot) []string { return objectNames(b.CheckSnapshot(s, &s.Deployments[0])) }
	assert.Empty(
		t,
		judge(snapshotWithRunningMachines(2, "a", "b", "c", "d")),
		"no bound is in force before it is first met",
	)
	assert.Empty(t, judge(snapshotWithRunningMachines(2, "a", "b", "c")))
	assert.Equal(t, []string{"p"}, judge(snapshotWithRunningMachines(2, "a", "b", "c", "d")))
	assert.Empty(t, judge(snapshotWithRunningMachines(3, "a", "b", "c", "d")), "a looser bound counts at once")
	assert.Empty(
		t,
		judge(snapshotWithRunningMachines(1, "a", "b", "c", "d")),
		"a stricter bound counts from the moment it is met",
	)
	assert.Empty(t, judge(snapshotWithRunningMachines(1, "a", "b")))
	assert.Equal(t, []string{"p"}, judge(snapshotWithRunningMachines(1, "a", "b", "c")))

	s := snapshotWithRunningMachines(1, "a", "b", "c")
	markDeleted(&s.Machines[2])
	assert.Equal(t, []string{"p"}, judge(s), "machines that are being deleted count")
	b.ChecksDeletingMachines = false
	assert.Empty(t, judge(s), "or they do not")
	b.ForgetBounds()
	assert.Empty(t, judge(snapshotWithRunningMachines(1, "a", "b", "c")), "nothing was seen for a while")
	s = snapshotWithRunningMachines(1, "a", "b", "c")
	s.IsConsistent = false
	assert.Empty(t, judge(s))

	*b = SizeBounds{}
	assert.Empty(t, judge(snapshotWithRunningMachines(1, "a", "b")))
	s = snapshotWithRunningMachines(1, "a", "b", "c")
	s.IsConsistent, s.DeploymentsAtStart = false, snapshotWithRunningMachines(2).Deployments
	assert.Empty(t, judge(s))
	s.IsConsistent, s.DeploymentsAtStart = true, nil
	assert.Empty(t, judge(s), "more was allowed when the last snapshot began")
}

func TestCheckSnapshotFindsTooManyInstances(t *testing.T) {
	b := &SizeBounds{ChecksDeletingMachines: true}
	judge := func(s Snapshot) (checks []string) {
		for _, f := range b.CheckSnapshot(s, &s.Deployments[0]) {
			checks = append(checks, f.Check)
		}
		return checks
	}
	with := func(s Snapshot, machine string) Snapshot {
		s.Instances = append(s.Instances, newInstance("i-9", machine))
		return s
	}
	full := snapshotWithRunningMachines(2, "p-a", "p-b", "p-c")
	assert.Empty(t, judge(with(full, "p-x")), "no bound is in force before it is first met")
	assert.Equal(t, []string{CheckTooManyInstances}, judge(with(full, "p-a")), "a second instance")
	assert.Equal(t, []string{CheckTooManyInstances}, judge(with(full, "p-x")), "an instance whose machine is gone")
	assert.Empty(t, judge(with(full, "q-x")), "another deployment's")
	assert.Empty(t, judge(with(snapshotWithRunningMachines(2, "p-a", "p-b"), "p-x")))
	b.ChecksDeletingMachines = false
	assert.Empty(t, judge(with(full, "p-x")))
}

func TestCheckSnapshotFindsTooFewReadyNodes(t *testing.T) {
	b := &SizeBounds{ChecksNodes: true}
	judge := func(s Snapshot) []string { return objectNames(b.CheckSnapshot(s, &s.Deployments[0])) }
	sick := snapshotWithRunningMachines(2, "a", "b")
	sick.Nodes[1] = newNode("i-b", corev1.ConditionUnknown)
	assert.Empty(t, judge(sick), "no bound is in force before it is first met")
	assert.Empty(t, judge(snapshotWithRunningMachines(2, "a", "b")))
	assert.Equal(t, []string{"p"}, judge(sick))
	s := snapshotWithRunningMachines(2, "a", "b")
	markDeleted(&s.Machines[0])
	assert.Equal(t, []string{"p"}, judge(s), "a machine that is being deleted gives no node")
	b.ChecksNodes = false
	assert.Empty(t, judge(sick))
}

func TestCheckSnapshotCountsServingNodes(t *testing.T) {
	b := &SizeBounds{ChecksNodes: true}
	judge := func(s Snapshot) []string { return objectNames(b.CheckSnapshot(s, &s.Deployments[0])) }
	assert.Empty(t, judge(snapshotWithRunningMachines(2, "a", "b")))
	cordoned := snapshotWithRunningMachines(2, "a", "b")
	cordoned.Nodes[1].Spec.Unschedulable = true
	assert.Equal(t, []string{"p"}, judge(cordoned), "a node that takes no pods does not serve")
	cordoned.MachinesDeletedDuringSnapshot = machinesDeletedBetween(cordoned.Machines, cordoned.Machines[:1])
	assert.Empty(t, judge(cordoned), "its machine was deleted between two reads: it may have served at the first one")
	young := snapshotWithRunningMachines(2, "a", "b")
	young.Instances = young.Instances[:1]
	assert.Empty(t, judge(young), "the list of the cloud was read before it had the instance")
	b.ForgetBounds()
	assert.False(t, b.MatchesSpec(&cordoned.Deployments[0]))
	judge(snapshotWithRunningMachines(2, "a", "b"))
	assert.True(t, b.MatchesSpec(&cordoned.Deployments[0]))
	assert.False(t, b.MatchesSpec(&snapshotWithRunningMachines(3).Deployments[0]), "of another size")
}

func TestMachinesDeletedBetweenTwoLists(t *testing.T) {
	first := []v1alpha1.Machine{
		newMachine("stays"),
		newMachine("gone"),
		newMachine("leaves"),
		newMachine("going", markDeleted),
	}
	later := []v1alpha1.Machine{
		newMachine("stays"),
		newMachine("leaves", markDeleted),
		newMachine("going", markDeleted),
		newMachine("new"),
		newMachine("brief", markDeleted),
	}
	assert.Equal(t, map[types.UID]bool{
		"uid-stays": false, "uid-gone": true, "uid-leaves": true, "uid-going": false, "uid-new": false, "uid-brief": false,
	}, machinesDeletedBetween(first, later))
}

func TestSizeGuaranteeOfADeployment(t *testing.T) {
	bounds := func(surge, unavailable int32) v1alpha1.UpdateConfiguration {
		return v1alpha1.UpdateConfiguration{
			MaxSurge:       new(intstr.FromInt32(surge)),
			MaxUnavailable: new(intstr.FromInt32(unavailable)),
		}
	}
	for name, row := range map[string]struct {
		strategy v1alpha1.MachineDeploymentStrategy
		want     sizeGuarantee
	}{
		"nothing is said": {v1alpha1.MachineDeploymentStrategy{}, sizeGuarantee{10, 1, 0}},
		"rolling":         {v1alpha1.MachineDeploymentStrategy{RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: bounds(3, 2)}}, sizeGuarantee{10, 3, 2}},
		"neither":         {v1alpha1.MachineDeploymentStrategy{RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: bounds(0, 0)}}, sizeGuarantee{10, 0, 1}},
		"percentages": {v1alpha1.MachineDeploymentStrategy{RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
			MaxSurge: new(intstr.FromString("25%")), MaxUnavailable: new(intstr.FromString("25%")),
		}}}, sizeGuarantee{10, 3, 2}},
		"in place": {v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType, InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{UpdateConfiguration: bounds(0, 4)},
		}, sizeGuarantee{10, 0, 4}},
		"anew": {v1alpha1.MachineDeploymentStrategy{Type: v1alpha1.RecreateMachineDeploymentStrategyType}, sizeGuarantee{10, 0, 10}},
	} {
		d := v1alpha1.MachineDeployment{}
		d.Spec.Replicas, d.Spec.Strategy = 10, row.strategy
		assert.Equal(t, row.want, sizeGuaranteeOfDeployment(&d), name)
	}
}

func TestFindBrokenBudgets(t *testing.T) {
	pod := func(status corev1.ConditionStatus) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
		return p
	}
	s := Snapshot{Pods: []corev1.Pod{pod(corev1.ConditionTrue), pod(corev1.ConditionTrue)}}
	s.Budgets = []policyv1.PodDisruptionBudget{
		{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
		}},
	}
	assert.Empty(t, FindBrokenBudgets(s))
	s.Pods[0] = pod(corev1.ConditionFalse)
	assert.Equal(t, []string{"x"}, objectNames(FindBrokenBudgets(s)))
	s.Pods[0] = pod(corev1.ConditionTrue)
	s.Pods[1].DeletionTimestamp = new(metav1.NewTime(noon))
	assert.Equal(t, []string{"x"}, objectNames(FindBrokenBudgets(s)), "a pod that goes does not count")
}

func TestBudgetMinimum(t *testing.T) {
	number := func(n int32) *intstr.IntOrString { return new(intstr.FromInt32(n)) }
	percent := func(s string) *intstr.IntOrString { return new(intstr.FromString(s)) }
	for name, c := range map[string]struct {
		min, max *intstr.IntOrString
		expected int32
		least    int
		known    bool
	}{
		"minAvailable":                  {number(3), nil, 0, 3, true},
		"minAvailable in percent":       {percent("70%"), nil, 5, 4, true},
		"maxUnavailable":                {nil, number(1), 4, 3, true},
		"maxUnavailable in percent":     {nil, percent("30%"), 4, 2, true},
		"more than there are":           {nil, number(9), 4, 0, true},
		"a percentage of what":          {percent("70%"), nil, 0, 0, false},
		"unavailable of how many":       {nil, number(1), 0, 0, false},
		"a number that is no number":    {percent("x"), nil, 4, 0, false},
		"a budget that says nothing":    {nil, nil, 4, 0, false},
		"minAvailable 100%, so no pods": {percent("100%"), nil, 4, 4, true},
	} {
		b := policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: c.min, MaxUnavailable: c.max}}
		b.Status.ExpectedPods = c.expected
		least, known := budgetMinimum(&b)
		assert.Equal(t, c.known, known, name)
		if known {
			assert.Equal(t, c.least, least, name)
		}
	}
}

func TestFindPodsGoneWithoutEviction(t *testing.T) {
	pods := func(names ...string) (all []corev1.Pod) {
		for _, name := range names {
			all = append(
				all,
				corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "i-a"}},
			)
		}
		return all
	}
	before, after := snapshotWithRunningMachines(1, "a"), snapshotWithRunningMachines(1, "a")
	before.Pods, after.Pods = pods("x", "y", "z"), pods("x", "y")
	assert.Empty(t, FindPodDepartures(before, after), "the machine is to stay: a controller may delete pods")
	markDeleted(&after.Machines[0])
	after.Machines[0].Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
		MachineDrainTimeout: &metav1.Duration{Duration: time.Minute},
	}
	deadline := after.Machines[0].DeletionTimestamp.Add(time.Minute)
	after.Pods[1].DeletionTimestamp = new(metav1.NewTime(noon))
	left := FindPodDepartures(before, after)
	assert.Equal(t, []PodDeparture{{noon, "y", "i-a", deadline}, {noon, "z", "i-a", deadline}}, left)
	assert.Len(t, FindPodDepartures(before, snapshotWithRunningMachines(0)), 3, "machine and pods are gone")

	line := func(pod string, code int) string {
		return fmt.Sprintf(
			`{"verb":"create","objectRef":{"resource":"pods","namespace":"n","name":%q,"subresource":"eviction"},"responseStatus":{"code":%d}}`+"\n",
			pod,
			code,
		)
	}
	log := line("y", 429) + line("y", 201) + line("z", 429) + `{"verb":"cre`
	assert.Equal(
		t,
		[]string{"z"},
		objectNames(FindPodsGoneWithoutEviction(left, ReadEvictedPods(strings.NewReader(log), "n"))),
	)
	left[1].Deadline = noon
	assert.Empty(
		t,
		FindPodsGoneWithoutEviction(left, ReadEvictedPods(strings.NewReader(log), "n")),
		"the drain's time is over",
	)
}

func TestFindFailedRuns(t *testing.T) {
	d := WorkflowState{Runs: []WorkflowRun{
		{"a", "Machine", enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED},
		{"b", "Machine", enumspb.WORKFLOW_EXECUTION_STATUS_FAILED},
		{"c", "Drain", enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED},
		{"d", "MachineSet", enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT},
		{"e", "OrphanCollection", enumspb.WORKFLOW_EXECUTION_STATUS_FAILED},
	}}
	assert.Equal(t, []string{"b", "c", "d"}, objectNames(FindFailedRuns(d)), "a sweep for orphans may fail")

	w := NewWatcher(Clients{}, "n", SizeBounds{})
	w.AddRunViolations(d)
	w.AddRunViolations(d)
	violations, _ := w.Violations()
	assert.Len(t, violations, 3, "each is told once")
}

func TestFindUnsettledObjects(t *testing.T) {
	calm := func() (Snapshot, WorkflowState) {
		s := snapshotWithRunningMachines(2, "a", "b")
		s.Classes = []v1alpha1.MachineClass{{ObjectMeta: metav1.ObjectMeta{Name: "small", UID: "class"}}}
		return s, WorkflowState{Schedules: []string{"x/orphans/n/small/class"}, Runs: []WorkflowRun{
			{
				"d",
				"MachineDeployment",
				enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
			},
			{"m", "Machine", enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED},
		}}
	}
	s, d := calm()
	require.Empty(t, FindUnsettledObjects(s, d, nil))
	for name, disturb := range map[string]func(*Snapshot, *WorkflowState){
		"a machine is missing": func(s *Snapshot, _ *WorkflowState) { s.Machines, s.Instances = s.Machines[:1], s.Instances[:1] },
		"a machine is Pending": func(s *Snapshot, _ *WorkflowState) {
			s.Machines[0].Status.CurrentStatus.Phase = v1alpha1.MachinePending
		},
		"a machine is being deleted":    func(s *Snapshot, _ *WorkflowState) { markDeleted(&s.Machines[0]) },
		"an instance is missing":        func(s *Snapshot, _ *WorkflowState) { s.Instances = s.Instances[:1] },
		"an instance is too many":       func(s *Snapshot, _ *WorkflowState) { s.Instances = append(s.Instances, newInstance("i-9", "a")) },
		"an orphan":                     func(s *Snapshot, _ *WorkflowState) { s.Instances = append(s.Instances, newInstance("i-9", "z")) },
		"another instance is on record": func(s *Snapshot, _ *WorkflowState) { s.Machines[0].Spec.ProviderID = "virtual:///eu/i-9" },
		"a node is not ready":           func(s *Snapshot, _ *WorkflowState) { s.Nodes[0] = newNode("i-a", corev1.ConditionFalse) },
		"a node is being deleted":       func(s *Snapshot, _ *WorkflowState) { s.Nodes[0].DeletionTimestamp = new(metav1.NewTime(noon)) },
		"a machine has a former template": func(s *Snapshot, _ *WorkflowState) {
			s.Deployments[0].Spec.Template.Labels = map[string]string{"edition": "2"}
		},
		"a set is not adopted": func(s *Snapshot, _ *WorkflowState) {
			s.Sets = []v1alpha1.MachineSet{{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "p"}}}}
		},
		"a set is being deleted": func(s *Snapshot, _ *WorkflowState) {
			s.Sets = []v1alpha1.MachineSet{{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(noon))}}}
		},
		"the run of a machine is open": func(_ *Snapshot, d *WorkflowState) { d.Runs[1].Status = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING },
		"the class has no schedule":    func(_ *Snapshot, d *WorkflowState) { d.Schedules = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s, d := calm()
			disturb(&s, &d)
			assert.NotEmpty(t, FindUnsettledObjects(s, d, nil))
		})
	}
}

func TestFindLeftovers(t *testing.T) {
	assert.Empty(
		t,
		FindLeftovers(
			Snapshot{},
			WorkflowState{Runs: []WorkflowRun{{"m", "Machine", enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED}}},
			nil,
		),
	)
	s := snapshotWithRunningMachines(1, "a")
	d := WorkflowState{
		Schedules: []string{"s"},
		Runs:      []WorkflowRun{{"m", "Machine", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}},
	}
	assert.Equal(
		t,
		[]string{"machine a", "deployment p", "instance i-a", "node i-a", "run m", "schedule s"},
		objectNames(FindLeftovers(s, d, nil)),
	)
}

func TestAFindingThatLastsBecomesAViolation(t *testing.T) {
	l, limits := NewFindingTracker(), map[string]time.Duration{"slow": 2 * time.Second}
	f := []Finding{{"slow", "x", "bad"}}
	at := func(seconds int, found []Finding) int {
		return len(l.AddFindings(noon.Add(time.Duration(seconds)*time.Second), limits, found))
	}
	assert.Equal(t, 0, at(0, f))
	assert.Equal(t, 0, at(1, f))
	assert.Equal(t, 0, at(2, nil), "it was over meanwhile")
	assert.Equal(t, 0, at(3, f))
	assert.Equal(t, 1, at(5, f))
	assert.Equal(t, 0, at(6, f), "it is told once")
	assert.Equal(t, 1, at(6, []Finding{{"quick", "y", "bad"}}), "a check without a limit allows nothing")
}

// The instance with the provider ID of a node determines the machine of the node. A machine that stays keeps its node
// and its instance.
func TestFindWronglyDrainedNodesAndVanishedInstances(t *testing.T) {
	of := func(changes ...func(*Snapshot)) Snapshot {
		s := snapshotWithRunningMachines(2, "a", "b")
		for _, change := range changes {
			change(&s)
		}
		return s
	}
	cordoned := func(s *Snapshot) { s.Nodes[1].Spec.Unschedulable = true }
	deleted := func(s *Snapshot) { s.Nodes[1].DeletionTimestamp = new(metav1.NewTime(noon)) }
	gone := func(s *Snapshot) { s.Instances = s.Instances[:1] }
	of2 := func(change func(*v1alpha1.Machine)) func(*Snapshot) {
		return func(s *Snapshot) { change(&s.Machines[1]) }
	}
	failed := func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed }
	for name, row := range map[string]struct {
		s           Snapshot
		taken, lost int
	}{
		"well":                              {of(), 0, 0},
		"cordoned":                          {of(cordoned), 1, 0},
		"deleted":                           {of(deleted), 1, 0},
		"the machine is being deleted":      {of(cordoned, of2(markDeleted)), 0, 0},
		"its deletion begins now":           {of(cordoned, func(s *Snapshot) { s.MachinesDeletedDuringSnapshot = map[types.UID]bool{"uid-b": true} }), 0, 0},
		"the machine failed":                {of(deleted, of2(failed)), 0, 0},
		"the instance is gone":              {of(gone), 0, 1},
		"so is the machine":                 {of(gone, of2(markDeleted)), 0, 0},
		"the machine names no instance yet": {of(gone, of2(func(m *v1alpha1.Machine) { m.Spec.ProviderID = "" })), 0, 0},
	} {
		assert.Len(t, FindWronglyDrainedNodes(row.s), row.taken, name)
		assert.Len(t, FindVanishedInstances(row.s), row.lost, name)
	}
}
