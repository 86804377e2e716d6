package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/replace"
	"millwright/decide/rollout"
	"millwright/observe/deployment"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

func TestMachinesThatWaitForReplacement(t *testing.T) {
	recovered := func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{
			{Type: v1alpha1.MachineReplacementDue, Status: "False", Reason: "Recovered"},
		}
	}
	otherCondition := func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{observetest.Condition("Ready", "True")}
	}
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		due     bool
		waiting bool
	}{
		{"a new machine", observetest.Machine("m"), false, false},
		{"sick, in time", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown)), false, false},
		{"another condition is True", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), otherCondition), false, false},
		{"due", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), observetest.IsDue), true, true},
		{"due and granted", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), observetest.IsDue, observetest.IsGranted), true, false},
		{"due until it recovered", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), recovered), false, false},
		{"due and preserved", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), observetest.IsDue, observetest.Preserved), true, false},
		{"due and being deleted", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), observetest.IsDue, observetest.GoingMachine), true, false},
		{"the creation timed out", observetest.Machine("m", observetest.Phase(v1alpha1.MachineFailed), observetest.IsDue), true, true},
		{"failed, by another controller", observetest.Machine("m", observetest.Phase(v1alpha1.MachineFailed)), false, true},
		{"failed and granted", observetest.Machine("m", observetest.Phase(v1alpha1.MachineFailed), observetest.IsGranted), false, false},
		{"failed and preserved", observetest.Machine("m", observetest.Phase(v1alpha1.MachineFailed), observetest.Preserved), false, false},
		{"failed and being deleted", observetest.Machine("m", observetest.Phase(v1alpha1.MachineFailed), observetest.GoingMachine), false, false},
		{"granted by a person", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.IsGranted), false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.due, machine.IsDue(row.machine))
			assert.Equal(t, row.waiting, machine.IsWaiting(row.machine))
			waiting := deployment.Observed(
				deployment.Tree{Deployment: observetest.Deployment("d"), Members: []*v1alpha1.Machine{row.machine}},
				observetest.Noon,
			).MCM.Due == 1
			assert.Equal(t, row.waiting, waiting)
		})
	}
	assert.True(t, machine.IsPreserved(observetest.Machine("m", observetest.Preserved)))
	assert.False(t, machine.IsPreserved(observetest.Machine("m")))
}

func TestReplaceObserved(t *testing.T) {
	inZone := observetest.Class(
		"small",
		func(c *v1alpha1.MachineClass) { c.NodeTemplate = &v1alpha1.NodeTemplate{Zone: "a"} },
	)
	running := observetest.Machine("running", observetest.Phase(v1alpha1.MachineRunning))
	cluster, _ := observetest.Start(t, []runtime.Object{observetest.Node()}, inZone, running)
	d := observetest.Deployment("d")
	d.Spec.Replicas = 7
	granted := observetest.Ago(3)
	d.Status.Replacements = []v1alpha1.MachineReplacement{
		{UID: "uid-x", Name: "x", FailureDomain: "b", Reason: "NodeDeleted", GrantedAt: granted},
	}
	o := deployment.ReplaceObserved(
		cluster,
		d,
		[]*v1alpha1.Machine{running, observetest.Machine("going", observetest.GoingMachine)},
		observetest.Noon,
	)
	assert.Equal(t, replace.Observed{
		Machines: []replace.Machine{
			{Name: "running", UID: "uid-running", Domain: "a", Joined: true},
			{Name: "going", UID: "uid-going", Domain: "a", Deleting: true},
		},
		Grants:  []replace.Grant{{UID: "uid-x", Name: "x", Domain: "b", Reason: "NodeDeleted", At: granted.Time}},
		Missing: 6, // the machine that is being deleted does not count
		Budget:  rollout.Bound{Value: 1},
		Nodes:   replace.Nodes{Joined: 1, Dead: 1},
		Now:     observetest.Noon,
	}, o)
	d.Spec.Replicas = 0
	assert.Zero(
		t,
		deployment.ReplaceObserved(cluster, d, []*v1alpha1.Machine{running}, observetest.Noon).Missing,
		"one too many is not one missing",
	)
}

func TestMachinesToReplace(t *testing.T) {
	dueSince := func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{
			observetest.Condition("Ready", "Unknown"),
			{
				Type:               v1alpha1.MachineReplacementDue,
				Status:             "True",
				Reason:             "HealthTimeout",
				LastTransitionTime: observetest.Ago(5),
			},
		}
	}
	wasDue := func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{
			{Type: v1alpha1.MachineReplacementDue, Status: "False", Reason: "Recovered", LastTransitionTime: observetest.Ago(5)},
		}
	}
	joinedOnce := func(m *v1alpha1.Machine) {
		m.Status.JoinedAt = new(observetest.Ago(9))
	}
	cluster, _ := observetest.Start(t, nil)
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		want    replace.Machine
	}{
		{"new", observetest.Machine("m"), replace.Machine{}},
		{"Pending", observetest.Machine("m", observetest.Phase(v1alpha1.MachinePending)), replace.Machine{}},
		{"its creation keeps failing", observetest.Machine("m", observetest.Phase(v1alpha1.MachineCrashLoopBackOff)), replace.Machine{}},
		{"Running", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning)), replace.Machine{Joined: true}},
		{"Available, without a target", observetest.Machine("m", observetest.Phase(v1alpha1.MachineAvailable)), replace.Machine{Joined: true}},
		{"Running, and was due", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), wasDue), replace.Machine{Joined: true}},
		{"marked by a person: it is neither due nor failed", observetest.Machine("m", observetest.Phase(v1alpha1.MachineRunning), observetest.IsGranted), replace.Machine{Joined: true, Granted: true}},
		{"Unknown", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown)), replace.Machine{Joined: true}},
		{"due", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), dueSince), replace.Machine{Joined: true, Due: true, DueSince: observetest.Ago(5).Time, Reason: "HealthTimeout"}},
		{"preserved", observetest.Machine("m", observetest.Phase(v1alpha1.MachineUnknown), dueSince, observetest.Preserved), replace.Machine{Joined: true, Due: true, DueSince: observetest.Ago(5).Time, Reason: "HealthTimeout", Preserved: true}},
		{"failed to join", observetest.Machine("m", observetest.Phase(v1alpha1.MachineFailed), dueSince), replace.Machine{Failed: true, Due: true, DueSince: observetest.Ago(5).Time, Reason: "HealthTimeout"}},
		{"failed when it had joined", observetest.Machine("m", observetest.Phase(v1alpha1.MachineFailed), dueSince, joinedOnce), replace.Machine{Joined: true, Failed: true, Due: true, DueSince: observetest.Ago(5).Time, Reason: "HealthTimeout"}},
		{"failed, by another controller", observetest.Machine("m", observetest.Phase(v1alpha1.MachineFailed)), replace.Machine{Failed: true, Due: true, DueSince: observetest.Ago(30).Time, Reason: "Failed"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.machine.CreationTimestamp = observetest.Ago(60)
			row.machine.Status.CurrentStatus.LastUpdateTime = observetest.Ago(30)
			row.want.Name, row.want.UID, row.want.Created = "m", "uid-m", observetest.Ago(60).Time
			got := deployment.ReplaceObserved(
				cluster,
				observetest.Deployment("d"),
				[]*v1alpha1.Machine{row.machine},
				observetest.Noon,
			).Machines
			assert.Equal(t, []replace.Machine{row.want}, got)
		})
	}
}

func TestReplacementBudget(t *testing.T) {
	for _, row := range []struct {
		name   string
		wanted *intstr.IntOrString
		budget rollout.Bound
	}{
		{"one, where nothing is said", nil, rollout.Bound{Value: 1}},
		{"none", new(intstr.FromInt32(0)), rollout.Bound{}},
		{"a number", new(intstr.FromInt32(3)), rollout.Bound{Value: 3}},
		{"a percentage", new(intstr.FromString("20%")), rollout.Bound{Value: 20, Percent: true}},
		{"no percent", new(intstr.FromString("0%")), rollout.Bound{Percent: true}},
		{"what admission should have refused replaces nothing", new(intstr.FromString("some")), rollout.Bound{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := observetest.Deployment("d")
			cluster, _ := observetest.Start(t, nil, observetest.Policy(v1alpha1.RolloutPolicySpec{MaxReplacements: row.wanted}))
			assert.Equal(t, row.budget, deployment.ReplaceObserved(cluster, d, nil, observetest.Noon).Budget)
		})
	}
}
