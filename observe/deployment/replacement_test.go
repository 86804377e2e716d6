package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/replace"
	"millwright/decide/rollout"
	"millwright/decide/scale"
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
		m.Status.Conditions = []corev1.NodeCondition{observetest.NewNodeCondition("Ready", "True")}
	}
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		due     bool
		waiting bool
	}{
		{"a new machine", observetest.NewMachine("m"), false, false},
		{"sick, in time", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown)), false, false},
		{"another condition is True", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), otherCondition), false, false},
		{"due", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithReplacementDue), true, true},
		{"due and granted", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithReplacementDue, observetest.WithReplacementGrant), true, false},
		{"due until it recovered", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), recovered), false, false},
		{"due and preserved", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithReplacementDue, observetest.AsPreservedMachine), true, false},
		{"due and being deleted", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithReplacementDue, observetest.AsDeletingMachine), true, false},
		{"the creation timed out", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithReplacementDue), true, true},
		{"failed, by another controller", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineFailed)), false, true},
		{"failed and granted", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithReplacementGrant), false, false},
		{"failed and preserved", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineFailed), observetest.AsPreservedMachine), false, false},
		{"failed and being deleted", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineFailed), observetest.AsDeletingMachine), false, false},
		{"granted by a person", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithReplacementGrant), false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.due, machine.IsReplacementDue(row.machine))
			assert.Equal(t, row.waiting, machine.WaitsForReplacementGrant(row.machine))
			waiting := deployment.RolloutFacts(
				deployment.ObjectTree{Deployment: observetest.NewDeployment("d"), Members: []*v1alpha1.Machine{row.machine}},
				observetest.Noon,
			).MCM.DueMachineCount == 1
			assert.Equal(t, row.waiting, waiting)
		})
	}
	assert.True(t, machine.IsPreserved(observetest.NewMachine("m", observetest.AsPreservedMachine)))
	assert.False(t, machine.IsPreserved(observetest.NewMachine("m")))
}

func TestReplacementFacts(t *testing.T) {
	inZone := observetest.NewClass(
		"small",
		func(c *v1alpha1.MachineClass) { c.NodeTemplate = &v1alpha1.NodeTemplate{Zone: "a"} },
	)
	s := observetest.NewSet("s")
	s.Status.FailedGenerations = &v1alpha1.FailedGenerations{Count: 2, LastFailedAt: observetest.MinutesBeforeNoon(9)}
	running := observetest.NewMachine(
		"running",
		observetest.WithPhase(v1alpha1.MachineRunning),
		observetest.WithOwnerSet(s),
	)
	policy := observetest.NewPolicy(v1alpha1.RolloutPolicySpec{
		Remediation: &v1alpha1.MachineSetRemediation{MaxRetry: new(int32(4))},
	})
	cluster, _ := observetest.StartCaches(t, []runtime.Object{observetest.NewNode()}, inZone, running, s, policy)
	d := observetest.NewDeployment("d")
	d.Spec.Replicas = 7
	granted := observetest.MinutesBeforeNoon(3)
	d.Status.Replacements = []v1alpha1.MachineReplacement{
		{UID: "uid-x", Name: "x", FailureDomain: "b", Reason: "NodeDeleted", GrantedAt: granted},
	}
	o := deployment.ReplacementFacts(
		cluster,
		d,
		[]*v1alpha1.Machine{running, observetest.NewMachine("going", observetest.AsDeletingMachine)},
		observetest.Noon,
	)
	assert.Equal(t, replace.Facts{
		Machines: []replace.Machine{
			{
				Name: "running", UID: "uid-running", Domain: "a", Joined: true,
				Generations: scale.GenerationRecord{Failed: 2, Last: observetest.MinutesBeforeNoon(9).Time},
			},
			{Name: "going", UID: "uid-going", Domain: "a", Deleting: true},
		},
		Grants: []replace.ReplacementGrant{
			{MachineUID: "uid-x", MachineName: "x", Domain: "b", Reason: "NodeDeleted", GrantedAt: granted.Time},
		},
		MissingMachineCount: 6, // a machine that is being deleted is missing too
		Budget:              rollout.IntOrPercent{Value: 1},
		Retries:             scale.RetryPolicy{MaxBackoff: time.Hour, HasMaxRetry: true, MaxRetry: 4},
		NodeCounts:          replace.NodeCounts{Joined: 1, Dead: 1},
		Now:                 observetest.Noon,
	}, o)
	d.Spec.Replicas = 0
	assert.Zero(
		t,
		deployment.ReplacementFacts(cluster, d, []*v1alpha1.Machine{running}, observetest.Noon).MissingMachineCount,
		"one too many is not one missing",
	)
}

func TestMachinesToReplace(t *testing.T) {
	dueSince := func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{
			observetest.NewNodeCondition("Ready", "Unknown"),
			{
				Type:               v1alpha1.MachineReplacementDue,
				Status:             "True",
				Reason:             "HealthTimeout",
				LastTransitionTime: observetest.MinutesBeforeNoon(5),
			},
		}
	}
	wasDue := func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{
			{
				Type:               v1alpha1.MachineReplacementDue,
				Status:             "False",
				Reason:             "Recovered",
				LastTransitionTime: observetest.MinutesBeforeNoon(5),
			},
		}
	}
	joinedOnce := func(m *v1alpha1.Machine) {
		m.Status.JoinedAt = new(observetest.MinutesBeforeNoon(9))
	}
	cluster, _ := observetest.StartCaches(t, nil)
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		want    replace.Machine
	}{
		{"new", observetest.NewMachine("m"), replace.Machine{}},
		{"Pending", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachinePending)), replace.Machine{}},
		{"its creation keeps failing", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineCrashLoopBackOff)), replace.Machine{}},
		{"Running", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning)), replace.Machine{Joined: true}},
		{"Available, without a target", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineAvailable)), replace.Machine{Joined: true}},
		{"Running, and was due", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), wasDue), replace.Machine{Joined: true}},
		{"marked by a person: it is neither due nor failed", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineRunning), observetest.WithReplacementGrant), replace.Machine{Joined: true, Granted: true}},
		{"Unknown", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown)), replace.Machine{Joined: true}},
		{"due", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), dueSince), replace.Machine{Joined: true, Due: true, DueSince: observetest.MinutesBeforeNoon(5).Time, Reason: "HealthTimeout"}},
		{"preserved", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineUnknown), dueSince, observetest.AsPreservedMachine), replace.Machine{Joined: true, Due: true, DueSince: observetest.MinutesBeforeNoon(5).Time, Reason: "HealthTimeout", Preserved: true}},
		{"failed to join", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineFailed), dueSince), replace.Machine{Failed: true, Due: true, DueSince: observetest.MinutesBeforeNoon(5).Time, Reason: "HealthTimeout"}},
		{"failed when it had joined", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineFailed), dueSince, joinedOnce), replace.Machine{Joined: true, Failed: true, Due: true, DueSince: observetest.MinutesBeforeNoon(5).Time, Reason: "HealthTimeout"}},
		{"failed, by another controller", observetest.NewMachine("m", observetest.WithPhase(v1alpha1.MachineFailed)), replace.Machine{Failed: true, Due: true, DueSince: observetest.MinutesBeforeNoon(30).Time, Reason: "Failed"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.machine.CreationTimestamp = observetest.MinutesBeforeNoon(60)
			row.machine.Status.CurrentStatus.LastUpdateTime = observetest.MinutesBeforeNoon(30)
			row.want.Name, row.want.UID, row.want.CreatedAt = "m", "uid-m", observetest.MinutesBeforeNoon(60).Time
			got := deployment.ReplacementFacts(
				cluster,
				observetest.NewDeployment("d"),
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
		budget rollout.IntOrPercent
	}{
		{"one, where nothing is said", nil, rollout.IntOrPercent{Value: 1}},
		{"none", new(intstr.FromInt32(0)), rollout.IntOrPercent{}},
		{"a number", new(intstr.FromInt32(3)), rollout.IntOrPercent{Value: 3}},
		{"a percentage", new(intstr.FromString("20%")), rollout.IntOrPercent{Value: 20, IsPercent: true}},
		{"no percent", new(intstr.FromString("0%")), rollout.IntOrPercent{IsPercent: true}},
		{"what admission should have refused replaces nothing", new(intstr.FromString("some")), rollout.IntOrPercent{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := observetest.NewDeployment("d")
			cluster, _ := observetest.StartCaches(
				t,
				nil,
				observetest.NewPolicy(v1alpha1.RolloutPolicySpec{MaxReplacements: row.wanted}),
			)
			assert.Equal(t, row.budget, deployment.ReplacementFacts(cluster, d, nil, observetest.Noon).Budget)
		})
	}
}
