package deployment_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/observe/deployment"
	"millwright/observe/machine"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

// setWithMachines returns a set of a deployment with a revision, and the set's Running machines.
func setWithMachines(
	d *v1alpha1.MachineDeployment,
	name, revision string,
	machines int32,
	change ...func(*v1alpha1.MachineSet),
) (*v1alpha1.MachineSet, []*v1alpha1.Machine) {
	s := observetest.NewSet(name, append([]func(*v1alpha1.MachineSet){func(s *v1alpha1.MachineSet) {
		s.OwnerReferences = observetest.ControllerReferences(d, "MachineDeployment")
		s.Annotations = map[string]string{v1alpha1.AnnotationRevision: revision}
		s.Spec.Replicas, s.Status.Replicas, s.Status.ObservedReplicas = machines, machines, machines
	}}, change...)...)
	var members []*v1alpha1.Machine
	for i := range machines {
		members = append(
			members,
			observetest.NewMachine(
				name+"-"+string('a'+i),
				observetest.WithPhase(v1alpha1.MachineRunning),
				func(m *v1alpha1.Machine) {
					m.OwnerReferences = observetest.ControllerReferences(s, "MachineSet")
				},
			),
		)
	}
	return s, members
}

func withOldClass(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" }

// treeInRollout returns a deployment of four machines; one of the machines has the new template.
func treeInRollout(change ...func(*v1alpha1.MachineDeployment)) deployment.ObjectTree {
	d := observetest.NewDeployment("d", append([]func(*v1alpha1.MachineDeployment){func(d *v1alpha1.MachineDeployment) {
		d.Spec.Replicas, d.Annotations = 4, map[string]string{v1alpha1.AnnotationRevision: "7"}
		d.Spec.Strategy.Type = v1alpha1.RollingUpdateMachineDeploymentStrategyType
	}}, change...)...)
	oldest, _ := setWithMachines(d, "d-1", "3", 0, withOldClass)
	old, oldMachines := setWithMachines(d, "d-2", "6", 3, withOldClass)
	leaving, leavingMachines := setWithMachines(d, "d-3", "5", 0, withOldClass, observetest.AsDeletingSet)
	current, newMachines := setWithMachines(d, "d-4", "7", 1)
	deployment.CopyDeploymentFields(current, d)
	for _, s := range []*v1alpha1.MachineSet{old, current} {
		s.Annotations[v1alpha1.AnnotationDesiredReplicas], s.Annotations[v1alpha1.AnnotationMaxReplicas] = "4", "5"
	}
	return deployment.ObjectTree{
		Policy: policyWithSteps(
			v1alpha1.RolloutStep{Replicas: intstr.FromInt32(1), Approve: true},
			v1alpha1.RolloutStep{Replicas: intstr.FromString("50%"), Wait: &metav1.Duration{Duration: time.Hour}},
		),
		Deployment: d, Sets: []*v1alpha1.MachineSet{old, current, leaving, oldest},
		Members: append(append(oldMachines, newMachines...), leavingMachines...),
	}
}

func TestRequestFactsOfARollout(t *testing.T) {
	f := deploymentRequestFacts(treeInRollout(func(d *v1alpha1.MachineDeployment) {
		d.Annotations[v1alpha1.AnnotationLastRequest] = "2026-11-21T12:00:00Z ann requested start"
		d.Spec.Template.Annotations[v1alpha1.AnnotationRestartedAt] = "2026-11-21T12:00:00Z"
	}), observetest.RequestTime)
	assert.Equal(
		t,
		[]int64{6, 7, 3},
		f.EarlierRevisions,
		"the template of d-4 has another time: it is no longer the current one",
	)
	assert.Zero(t, f.Revision, "the set has yet to be made")
	assert.Equal(t, "2026-11-21T12:00:00Z", f.RestartedAt)
	assert.Equal(t, "2026-11-21T12:00:00Z ann requested start", f.LastRecord)

	assert.Equal(t, request.DeploymentFacts{
		Name:             "shop/d",
		UID:              "uid-d",
		Now:              observetest.RequestTime,
		Rolling:          true,
		Revision:         7,
		EarlierRevisions: []int64{6, 3},
		RolloutStepFacts: request.RolloutStepFacts{WaitingStep: 1, StepCount: 2, NextRolloutStepCount: 2},
	}, deploymentRequestFacts(treeInRollout(), observetest.RequestTime))
}

func TestRequestFactsOfAStoppedRollout(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.MachineDeployment)
		check  func(request.DeploymentFacts) bool
	}{
		"paused":  {func(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true }, func(f request.DeploymentFacts) bool { return f.Paused && f.WaitingStep == 1 }},
		"held":    {func(d *v1alpha1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationRolloutHold] = "7 ann: why" }, func(f request.DeploymentFacts) bool { return f.HoldReason == "ann: why" }},
		"was":     {func(d *v1alpha1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationRolloutHold] = "6 ann: why" }, func(f request.DeploymentFacts) bool { return f.HoldReason == "" }},
		"going":   {func(d *v1alpha1.MachineDeployment) { d.DeletionTimestamp = observetest.Now() }, func(f request.DeploymentFacts) bool { return f.Deleting }},
		"invalid": {func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "" }, func(f request.DeploymentFacts) bool { return f.InvalidReason == "the template names no machine class" }},
		"undone":  {func(d *v1alpha1.MachineDeployment) { d.Spec.RollbackTo = &v1alpha1.RollbackConfig{Revision: 3} }, func(f request.DeploymentFacts) bool { return *f.RollbackTo == 3 && f.Revision == 7 }},
		"passed":  {func(d *v1alpha1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationRolloutApprove] = "7/1 ann" }, func(f request.DeploymentFacts) bool { return f.ApprovedStepCount == 1 && f.WaitingStep == 0 }},
		"completed": {func(d *v1alpha1.MachineDeployment) {
			d.Status.Rollout = &v1alpha1.RolloutStatus{Revision: 6, Set: "d-2", LastGoodSet: "d-1"}
		}, func(f request.DeploymentFacts) bool { return f.LastGoodRevision == 3 }},
		"completed, and in its bake time": {func(d *v1alpha1.MachineDeployment) {
			d.Status.Rollout = &v1alpha1.RolloutStatus{Revision: 7, Set: "d-4", LastGoodSet: "d-4", FormerGoodSet: "d-1"}
		}, func(f request.DeploymentFacts) bool { return f.LastGoodRevision == 3 }},
		"completed and deleted": {func(d *v1alpha1.MachineDeployment) {
			d.Status.Rollout = &v1alpha1.RolloutStatus{Revision: 6, Set: "d-2", LastGoodSet: "d-3"}
		}, func(f request.DeploymentFacts) bool { return f.LastGoodRevision == 0 }},
		"OnDelete knows no steps": {
			func(d *v1alpha1.MachineDeployment) {
				d.Spec.Strategy.Type = v1alpha1.OnDeleteMachineDeploymentStrategyType
			}, func(f request.DeploymentFacts) bool { return f.IsOnDelete && f.StepCount == 0 },
		},
	} {
		f := deploymentRequestFacts(treeInRollout(c.change), observetest.RequestTime)
		assert.True(t, c.check(f), "%s: %+v", name, f)
	}
}

// If a former set becomes current again, the set still has its old revision when an operator writes a request.
func TestRequestFactsNameTheNextRevision(t *testing.T) {
	tree := treeInRollout(func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "old" })
	for _, s := range tree.Sets {
		if s.Name == "d-1" {
			s.Spec.Template.Spec.Class.Name = "older"
		}
	}
	f := deploymentRequestFacts(tree, observetest.RequestTime)
	assert.EqualValues(t, 8, f.Revision)
	assert.Equal(t, []int64{7, 3}, f.EarlierRevisions)
	assert.True(t, f.Rolling)
}

func TestRequestFactsWithoutARollout(t *testing.T) {
	tree := treeInRollout()
	for _, s := range tree.Sets {
		if s.Name == "d-2" {
			s.Spec.Replicas = 0
		}
	}
	members := tree.Members
	assert.True(t, deploymentRequestFacts(tree, observetest.RequestTime).Rolling, "its machines are still there")
	tree.Members = members[3:]
	assert.False(t, deploymentRequestFacts(tree, observetest.RequestTime).Rolling)
}

func TestRequestPatch(t *testing.T) {
	for want, c := range map[string]struct {
		kind     request.Kind
		command  request.Command
		decision request.Decision
	}{
		`{"metadata":{"annotations":{"drain.machine.sapcloud.io/force":"ann: why"}}}`: {
			request.KindMachine, request.Force, request.Decision{AnnotationValue: new("ann: why")},
		},
		`{"metadata":{"annotations":{"drain.machine.sapcloud.io/hold":null}}}`: {
			request.KindMachine, request.Resume, request.Decision{AnnotationValue: new("")},
		},
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-request":"x"}},"spec":{"paused":true}}`: {
			request.KindMachineDeployment, request.Pause, request.Decision{Record: "x", Paused: new(true)},
		},
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-request":"x","rollout.machine.sapcloud.io/hold":null,"rollout.machine.sapcloud.io/paused-by":null}},"spec":{"paused":false}}`: {
			request.KindMachineDeployment, request.Resume, request.Decision{Record: "x", Paused: new(false), AnnotationValue: new("")},
		},
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-request":"x","rollout.machine.sapcloud.io/paused-by":"ann: why"}},"spec":{"paused":true}}`: {
			request.KindMachineDeployment, request.Pause, request.Decision{Record: "x", Paused: new(true), AnnotationValue: new("ann: why")},
		},
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-request":"x","rollout.machine.sapcloud.io/hold":"7 ann: why"}}}`: {
			request.KindMachineDeployment, request.Cancel, request.Decision{Record: "x", AnnotationValue: new("7 ann: why")},
		},
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-request":"x","rollout.machine.sapcloud.io/approve":"7/2 ann"}}}`: {
			request.KindMachineDeployment, request.Approve, request.Decision{Record: "x", AnnotationValue: new("7/2 ann")},
		},
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-request":"x"}},"spec":{"rollbackTo":{"revision":6}}}`: {
			request.KindMachineDeployment, request.Undo, request.Decision{Record: "x", RollbackTo: new(int64(6))},
		},
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-request":"x","kubernetes.io/change-cause":"started by ann"}},
			"spec":{"template":{"metadata":{"annotations":{"rollout.machine.sapcloud.io/restarted-at":"t"}}}}}`: {
			request.KindMachineDeployment, request.Start, request.Decision{Record: "x", RestartedAt: new("t"), AnnotationValue: new("started by ann")},
		},
		`null`: {request.KindMachineDeployment, request.Pause, request.Decision{Repeated: true, Message: "y"}},
	} {
		got, err := json.Marshal(machine.RequestPatch(c.kind, c.command, c.decision))
		require.NoError(t, err)
		assert.JSONEq(t, want, string(got))
	}
	assert.Nil(t, machine.RequestPatch(request.KindMachine, request.Force, request.Decision{RefusalReason: "no"}))
}

// The record of a request concerns the deployment, and not its sets.
func TestRecordOfARequestIsNotCopiedToSets(t *testing.T) {
	d := observetest.NewDeployment("d", func(d *v1alpha1.MachineDeployment) {
		d.Annotations = map[string]string{v1alpha1.AnnotationLastRequest: "x"}
	})
	s := observetest.NewSet("s")
	deployment.CopyDeploymentFields(s, d)
	assert.NotContains(t, s.Annotations, v1alpha1.AnnotationLastRequest)
	assert.True(t, v1alpha1.IsOwnMetadataKey(v1alpha1.AnnotationLastRequest))
}

// A start must change the template; otherwise there would be no rollout.
func TestStartRequestChangesTheTemplate(t *testing.T) {
	d := observetest.NewDeployment("d")
	before := d.Spec.Template.DeepCopy()
	d.Spec.Template.Annotations[v1alpha1.AnnotationRestartedAt] = "2026-11-21T12:00:00Z"
	assert.False(t, set.IsSameTemplate(before, &d.Spec.Template))
}

func deploymentRequestFacts(tree deployment.ObjectTree, now time.Time) request.DeploymentFacts {
	o := deployment.RolloutFacts(tree, now)
	return deployment.RequestFacts(tree.Deployment, o, rollout.Decide(o))
}
