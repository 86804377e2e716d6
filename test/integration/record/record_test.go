//go:build integration

package record

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

var r *rig.Rig

func TestMain(m *testing.M) {
	if !Enabled() {
		os.Exit(m.Run())
	}
	os.Exit(rig.Main(m, stack.Options{}, func(up *rig.Rig) { r = up }))
}

func TestRecord(t *testing.T) {
	Begin(t)
	t.Parallel()
	slow := `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"20s"}`

	// A machine that is created, joins, loses its node, gets it back and is deleted.
	r.Namespace(t, "life", `{"region":"eu","zone":"eu-1","instanceType":"small","initialize":true}`)
	life := r.Pool(t, "life", "life", 1)
	life.AwaitRunning(t, 1)
	save(t, "machine/awaited", Kind(run.KindMachine, "life")+Ended)
	label := func(value string) {
		_, err := r.Stack.Kubectl(
			t.Context(),
			"label",
			"node",
			life.Machines(t)[0].Name,
			"--overwrite",
			"node-not-ready.stage.kwok.x-k8s.io"+value,
		)
		require.NoError(t, err)
	}
	label("=true")
	phase(t, life, v1alpha1.MachineUnknown)
	label("-")
	phase(t, life, v1alpha1.MachineRunning)
	life.Scale(t, 60)
	life.AwaitRunning(t, 60)
	life.Scale(t, 0)
	life.AwaitRunning(t, 0)
	save(t, "machineset/scaled-in-batches", Kind(run.KindMachineSet, "life")+Ended)

	// A creation in flight, interrupted by the deletion of everything.
	r.Namespace(t, "cut", slow)
	cut := r.Pool(t, "cut", "cut", 2)
	step(t, cut, "create-instance")
	save(t, "machine/creating", Kind(run.KindMachine, "cut")+Open)
	cut.Delete(t)
	cut.AwaitGone(t)
	save(t, "machine/creation-interrupted", Kind(run.KindMachine, "cut")+Ended)
	save(t, "machineset/deleted", Kind(run.KindMachineSet, "cut")+Ended)
	save(t, "machinedeployment/deleted", Kind(run.KindMachineDeployment, "cut")+Ended)

	// A machine that waits for a Secret, another that waits for a busy cloud, a third that waits for its node.
	r.Namespace(t, "stuck", "")
	r.DeleteClassAndSecret(t, "stuck")
	_, err := r.Machines.MachineV1alpha1().
		MachineClasses("stuck").
		Create(t.Context(), rig.Class("stuck", ""), metav1.CreateOptions{})
	require.NoError(t, err)
	stuck := r.Pool(t, "stuck", "stuck", 1)
	condition(t, stuck, v1alpha1.ReasonSecretNotFound)
	save(t, "machine/waiting-for-secret", Kind(run.KindMachine, "stuck")+Open)
	_, err = r.Kube.CoreV1().Secrets("stuck").Create(t.Context(), rig.Credentials("stuck"), metav1.CreateOptions{})
	require.NoError(t, err)
	stuck.AwaitRunning(t, 1)
	save(t, "machine/secret-appeared", Kind(run.KindMachine, "stuck")+Ended)

	r.Namespace(t, "busy", "")
	require.NoError(
		t,
		r.Cloud.AddFault(
			t.Context(),
			admin.Fault{Operation: admin.Create, Code: "ResourceExhausted", Message: "no capacity in eu-1", Class: "busy/small"},
		),
	)
	busy := r.Pool(t, "busy", "busy", 1)
	condition(t, busy, "ResourceExhausted")
	save(t, "machine/backing-off", Kind(run.KindMachine, "busy")+Open)

	r.Namespace(t, "unborn", `{"region":"eu","zone":"eu-1","instanceType":"small","neverBoots":true}`)
	unborn := r.Pool(t, "unborn", "unborn", 1)
	phase(t, unborn, v1alpha1.MachinePending)
	save(t, "machine/awaiting-node", Kind(run.KindMachine, "unborn")+Open)
	save(t, "machinedeployment/open", Kind(run.KindMachineDeployment, "unborn")+Open)

	// A node that stays ill: the machine waits, is granted its replacement, fails and goes.
	r.Namespace(t, "ill", "")
	ill := r.Pool(t, "ill", "ill", 2, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineHealthTimeout: &metav1.Duration{Duration: 5 * time.Second},
		}
	})
	ill.AwaitRunning(t, 2)
	victim := ill.Machines(t)[0].Name
	_, err = r.Stack.Kubectl(t.Context(), "label", "node", victim, "node-not-ready.stage.kwok.x-k8s.io=true")
	require.NoError(t, err)
	phase(t, ill, v1alpha1.MachineUnknown)
	save(t, "machine/awaiting-recovery", Kind(run.KindMachine, "ill")+fmt.Sprintf(" AND Machine = %q", victim)+Open)
	rig.Eventually(t, "the ill machine is gone", func() (bool, any) {
		return !slices.ContainsFunc(ill.Machines(t), func(m v1alpha1.Machine) bool { return m.Name == victim }), nil
	})
	save(t, "machine/replaced", Kind(run.KindMachine, "ill")+fmt.Sprintf(" AND Machine = %q", victim)+Ended)
	save(t, "machinedeployment/replacing", Kind(run.KindMachineDeployment, "ill"))

	// A machine that is preserved, and one whose node is updated in place.
	r.Namespace(t, "kept", "")
	kept := r.Pool(t, "kept", "kept", 1)
	kept.AwaitRunning(t, 1)
	_, err = r.Stack.Kubectl(
		t.Context(),
		"annotate",
		"machine",
		"-n",
		"kept",
		kept.Machines(t)[0].Name,
		v1alpha1.AnnotationPreserve+"=now",
	)
	require.NoError(t, err)
	step(t, kept, "preserved")
	save(t, "machine/preserved", Kind(run.KindMachine, "kept")+Open)
	r.Namespace(t, "updated", "")
	updated := r.Pool(t, "updated", "updated", 1)
	updated.AwaitRunning(t, 1)
	for _, label := range []string{v1alpha1.LabelCandidateForUpdate + "=true", v1alpha1.LabelSelectedForUpdate + "=true"} {
		_, err = r.Stack.Kubectl(t.Context(), "label", "node", updated.Machines(t)[0].Name, label)
		require.NoError(t, err)
	}
	phase(t, updated, v1alpha1.MachineInPlaceUpdating)
	_, err = r.Stack.Kubectl(
		t.Context(),
		"label",
		"node",
		updated.Machines(t)[0].Name,
		v1alpha1.LabelUpdateResult+"=successful",
	)
	require.NoError(t, err)
	phase(t, updated, v1alpha1.MachineRunning)
	save(t, "machine/updated-in-place", Kind(run.KindMachine, "updated")+Ended)

	// A class and its Secret that go when the last machine has gone.
	ill.Delete(t)
	ill.AwaitGone(t)
	r.DeleteClassAndSecret(t, "ill")
	save(t, "machineclass/deleted", Kind(run.KindMachineClass, "ill")+Ended)

	// A rollout that is paused, resumed and superseded, and one that is completed.
	r.Namespace(t, "rolled", "")
	rolled := r.Pool(t, "rolled", "rolled", 6)
	r.Policy(
		t,
		"rolled",
		"rolled",
		v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(2), Approve: true}}},
	)
	rolled.AwaitRunning(t, 6)
	edition := func(value string) {
		rolled.Patch(t, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"edition":%q}}}}}`, value))
	}
	edition("2")
	progressing(t, rolled, v1alpha1.ReasonRolloutWaiting)
	rolled.Patch(t, `{"spec":{"paused":true}}`)
	progressing(t, rolled, v1alpha1.ReasonDeploymentPaused)
	save(t, "rollout/paused", Kind(run.KindRollout, "rolled")+Open)
	save(t, "machinedeployment/rolling", Kind(run.KindMachineDeployment, "rolled")+Open)
	rolled.Patch(t, `{"spec":{"paused":false}}`)
	progressing(t, rolled, v1alpha1.ReasonRolloutWaiting)
	edition("3")
	rig.Eventually(t, "the first rollout is superseded", func() (bool, any) {
		list := r.Workflows(t, Kind(run.KindRollout, "rolled")+` AND ExecutionStatus = "Completed"`)
		return len(list) == 1, list
	})
	save(t, "rollout/superseded", Kind(run.KindRollout, "rolled")+` AND ExecutionStatus = "Completed"`)
	progressing(t, rolled, v1alpha1.ReasonRolloutWaiting)
	rolled.Patch(t, `{"metadata":{"annotations":{"rollout.machine.sapcloud.io/approve":"3/1 ann"}}}`)
	progressing(t, rolled, v1alpha1.ReasonNewMachineSetAvailable)
	save(t, "rollout/completed", Kind(run.KindRollout, "rolled")+` AND ExecutionStatus = "Completed"`)

	// An instance without a machine, at the second sweep.
	sweepTwice(t, "rolled")
	save(t, "orphancollection/collected", Kind(run.KindOrphanCollection, "rolled")+Ended)

	// A machine whose node is drained: a budget blocks it, and then lets it go.
	r.Namespace(t, "drained", "")
	drained := r.Pool(t, "drained", "drained", 2, rig.LabelNodes)
	drained.AwaitRunning(t, 2)
	drained.AwaitHosts(t, 2)
	drained.Deploy(t, "web", 3)
	drained.Budget(t, "web", 3)
	host, _ := drained.Host(t, "web")
	drained.Remove(t, host.Name)
	of := fmt.Sprintf(" AND Machine = %q", host.Name)
	condition(t, drained, "Blocked")
	save(t, "drain/blocked", Kind(run.KindDrain, "drained")+Open)
	save(t, "machine/draining", Kind(run.KindMachine, "drained")+of+Open)
	// Another drainTimeout makes the drain give its activity up, which ends with what it saw: the next one has another ID.
	drained.Patch(t, `{"spec":{"template":{"spec":{"drainTimeout":"5h"}}}}`)
	rig.Eventually(t, "another activity", func() (bool, any) {
		w := r.Workflows(t, Kind(run.KindDrain, "drained"))[0].Execution
		d, err := r.Temporal.DescribeWorkflowExecution(t.Context(), w.WorkflowId, w.RunId)
		require.NoError(t, err)
		pending := d.GetPendingActivities()
		return len(pending) == 1 && pending[0].GetActivityId() == "evict-pods-2", pending
	})
	save(t, "drain/given-up", Kind(run.KindDrain, "drained")+Open)
	drained.RelaxBudget(t, "web", 1)
	save(t, "drain/drained", Kind(run.KindDrain, "drained")+Ended)
	save(t, "machine/drained-and-deleted", Kind(run.KindMachine, "drained")+of+Ended)

	rig.Eventually(t, "a deployment continues as new when it has settled", func() (bool, any) {
		list := r.Workflows(t, Kind(run.KindMachineDeployment, "life")+` AND ExecutionStatus = "ContinuedAsNew"`)
		return len(list) > 0, list
	})
	save(
		t,
		"machinedeployment/continued-as-new",
		Kind(run.KindMachineDeployment, "life")+` AND ExecutionStatus = "ContinuedAsNew"`,
	)
}

// sweepTwice makes an instance in a namespace's class that no machine claims, and starts sweeps until it is gone.
func sweepTwice(t *testing.T, namespace string) {
	t.Helper()
	r.CreateByHand(t, namespace, "lost")
	sweeps := r.Sweeps(t, namespace, time.Second)
	rig.Eventually(t, "the instance is collected", func() (bool, any) {
		require.NoError(t, sweeps.Trigger(t.Context(), sdk.ScheduleTriggerOptions{}))
		time.Sleep(2 * time.Second) // two looks, so far apart
		left, err := r.Cloud.Instances(t.Context())
		require.NoError(t, err)
		return !slices.ContainsFunc(left, func(i admin.Instance) bool { return i.Name == "lost" }), len(left)
	})
}

// progressing waits until the deployment's condition has this reason.
func progressing(t *testing.T, p *rig.Pool, reason string) {
	t.Helper()
	rig.Eventually(t, "Progressing: "+reason, func() (bool, any) {
		conditions := p.Deployment(t).Status.Conditions
		return slices.ContainsFunc(conditions, func(c v1alpha1.MachineDeploymentCondition) bool {
			return c.Type == v1alpha1.MachineDeploymentProgressing && c.Reason == reason
		}), conditions
	})
}

// save stores a history of this stack.
func save(t *testing.T, name, query string, activities ...string) {
	t.Helper()
	Save(t, r, name, query, activities...)
}

func phase(t *testing.T, p *rig.Pool, want v1alpha1.MachinePhase) {
	t.Helper()
	some(t, p, "phase "+string(want), func(m v1alpha1.Machine) bool { return m.Status.CurrentStatus.Phase == want })
}

func step(t *testing.T, p *rig.Pool, want string) {
	t.Helper()
	some(t, p, "step "+want, func(m v1alpha1.Machine) bool {
		return m.Status.CurrentOperation != nil && m.Status.CurrentOperation.Step == want
	})
}

func condition(t *testing.T, p *rig.Pool, reason string) {
	t.Helper()
	some(t, p, "condition "+reason, func(m v1alpha1.Machine) bool {
		for _, c := range m.Status.Conditions {
			if c.Reason == reason {
				return true
			}
		}
		return false
	})
}

func some(t *testing.T, p *rig.Pool, what string, holds func(v1alpha1.Machine) bool) {
	t.Helper()
	rig.Eventually(t, what, func() (bool, any) {
		machines := p.Machines(t)
		return slices.ContainsFunc(machines, holds), machines
	})
}
