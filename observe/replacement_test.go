package observe_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/replace"
	"millwright/observe"
)

func TestWhoWaitsToBeReplaced(t *testing.T) {
	recovered := func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.MachineReplacementDue, Status: "False", Reason: "Recovered"}}
	}
	otherCondition := func(m *v1alpha1.Machine) { m.Status.Conditions = []corev1.NodeCondition{condition("Ready", "True")} }
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		due     bool
		waiting bool
	}{
		{"a new machine", machine("m"), false, false},
		{"sick, in time", machine("m", phase(v1alpha1.MachineUnknown)), false, false},
		{"another condition is True", machine("m", phase(v1alpha1.MachineRunning), otherCondition), false, false},
		{"U114: due", machine("m", phase(v1alpha1.MachineUnknown), isDue), true, true},
		{"U114: due and granted", machine("m", phase(v1alpha1.MachineUnknown), isDue, isGranted), true, false},
		{"U112: due until it recovered", machine("m", phase(v1alpha1.MachineRunning), recovered), false, false},
		{"due and preserved", machine("m", phase(v1alpha1.MachineUnknown), isDue, preserved), true, false},
		{"due and being deleted", machine("m", phase(v1alpha1.MachineUnknown), isDue, goingMachine), true, false},
		{"U65: the creation timed out", machine("m", phase(v1alpha1.MachineFailed), isDue), true, true},
		{"failed, by another controller", machine("m", phase(v1alpha1.MachineFailed)), false, true},
		{"failed and granted", machine("m", phase(v1alpha1.MachineFailed), isGranted), false, false},
		{"failed and preserved", machine("m", phase(v1alpha1.MachineFailed), preserved), false, false},
		{"failed and being deleted", machine("m", phase(v1alpha1.MachineFailed), goingMachine), false, false},
		{"granted by a person", machine("m", phase(v1alpha1.MachineRunning), isGranted), false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.due, observe.IsDue(row.machine))
			assert.Equal(t, row.waiting, observe.IsWaiting(row.machine))
			waiting := observe.DeploymentFacts(observe.Family{Deployment: deployment("d"), Members: []*v1alpha1.Machine{row.machine}}, noon).Due == 1
			assert.Equal(t, row.waiting, waiting)
		})
	}
	assert.True(t, observe.IsPreserved(machine("m", preserved)))
	assert.False(t, observe.IsPreserved(machine("m")))
}

func TestReplaceObserved(t *testing.T) {
	inZone := class("small", func(c *v1alpha1.MachineClass) { c.NodeTemplate = &v1alpha1.NodeTemplate{Zone: "a"} })
	running := machine("running", phase(v1alpha1.MachineRunning))
	cluster, _ := start(t, []runtime.Object{node()}, inZone, running)
	d := deployment("d")
	d.Spec.Replicas = 7
	granted := ago(3)
	d.Status.Replacements = []v1alpha1.MachineReplacement{{UID: "uid-x", Name: "x", FailureDomain: "b", Reason: "NodeDeleted", GrantedAt: granted}}
	o := cluster.ReplaceObserved(d, []*v1alpha1.Machine{running, machine("going", goingMachine)}, noon)
	assert.Equal(t, replace.Observed{
		Machines: []replace.Machine{
			{Name: "running", UID: "uid-running", Domain: "a", Joined: true},
			{Name: "going", UID: "uid-going", Domain: "a", Deleting: true},
		},
		Grants:  []replace.Grant{{UID: "uid-x", Name: "x", Domain: "b", Reason: "NodeDeleted", At: granted.Time}},
		Missing: 6, // the one that goes does not count
		Budget:  replace.Budget{Value: 1},
		Nodes:   replace.Nodes{Joined: 1, Dead: 1},
		Now:     noon,
	}, o)
	d.Spec.Replicas = 0
	assert.Zero(t, cluster.ReplaceObserved(d, []*v1alpha1.Machine{running}, noon).Missing, "one too many is not one missing")
}

func TestMachinesToReplace(t *testing.T) {
	dueSince := func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{
			condition("Ready", "Unknown"),
			{Type: v1alpha1.MachineReplacementDue, Status: "True", Reason: "HealthTimeout", LastTransitionTime: ago(5)},
		}
	}
	wasDue := func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.MachineReplacementDue, Status: "False", Reason: "Recovered", LastTransitionTime: ago(5)}}
	}
	joinedOnce := func(m *v1alpha1.Machine) {
		m.Annotations = map[string]string{v1alpha1.AnnotationMachineJoinDuration: "1m30s"}
	}
	cluster, _ := start(t, nil)
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		want    replace.Machine
	}{
		{"new", machine("m"), replace.Machine{}},
		{"Pending", machine("m", phase(v1alpha1.MachinePending)), replace.Machine{}},
		{"its creation keeps failing", machine("m", phase(v1alpha1.MachineCrashLoopBackOff)), replace.Machine{}},
		{"Running", machine("m", phase(v1alpha1.MachineRunning)), replace.Machine{Joined: true}},
		{"Available, without a target", machine("m", phase(v1alpha1.MachineAvailable)), replace.Machine{Joined: true}},
		{"U112: Running, and was due", machine("m", phase(v1alpha1.MachineRunning), wasDue), replace.Machine{Joined: true}},
		{"marked by a person: it is neither due nor failed", machine("m", phase(v1alpha1.MachineRunning), isGranted), replace.Machine{Joined: true, Granted: true}},
		{"Unknown", machine("m", phase(v1alpha1.MachineUnknown)), replace.Machine{Joined: true}},
		{"U114: due", machine("m", phase(v1alpha1.MachineUnknown), dueSince), replace.Machine{Joined: true, Due: true, DueSince: ago(5).Time, Reason: "HealthTimeout"}},
		{"preserved", machine("m", phase(v1alpha1.MachineUnknown), dueSince, preserved), replace.Machine{Joined: true, Due: true, DueSince: ago(5).Time, Reason: "HealthTimeout", Preserved: true}},
		{"failed to join", machine("m", phase(v1alpha1.MachineFailed), dueSince), replace.Machine{Failed: true, Due: true, DueSince: ago(5).Time, Reason: "HealthTimeout"}},
		{"failed when it had joined", machine("m", phase(v1alpha1.MachineFailed), dueSince, joinedOnce), replace.Machine{Joined: true, Failed: true, Due: true, DueSince: ago(5).Time, Reason: "HealthTimeout"}},
		{"failed, by another controller", machine("m", phase(v1alpha1.MachineFailed)), replace.Machine{Failed: true, Due: true, DueSince: ago(30).Time, Reason: "Failed"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.machine.CreationTimestamp, row.machine.Status.CurrentStatus.LastUpdateTime = ago(60), ago(30)
			row.want.Name, row.want.UID, row.want.Created = "m", "uid-m", ago(60).Time
			got := cluster.ReplaceObserved(deployment("d"), []*v1alpha1.Machine{row.machine}, noon).Machines
			assert.Equal(t, []replace.Machine{row.want}, got)
		})
	}
}

func TestReplacementBudget(t *testing.T) {
	cluster, _ := start(t, nil)
	for _, row := range []struct {
		name   string
		wanted *intstr.IntOrString
		budget replace.Budget
	}{
		{"one, where nothing is said", nil, replace.Budget{Value: 1}},
		{"none", new(intstr.FromInt32(0)), replace.Budget{}},
		{"a number", new(intstr.FromInt32(3)), replace.Budget{Value: 3}},
		{"a percentage", new(intstr.FromString("20%")), replace.Budget{Value: 20, Percent: true}},
		{"no percent", new(intstr.FromString("0%")), replace.Budget{Percent: true}},
		{"what admission should have refused replaces nothing", new(intstr.FromString("some")), replace.Budget{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := deployment("d")
			d.Spec.MaxReplacements = row.wanted
			assert.Equal(t, row.budget, cluster.ReplaceObserved(d, nil, noon).Budget)
		})
	}
}
