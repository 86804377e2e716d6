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

var testRig *rig.Rig

func TestMain(m *testing.M) {
	if !IsRecordingEnabled() {
		os.Exit(m.Run())
	}
	os.Exit(rig.Main(m, stack.Options{}, func(up *rig.Rig) { testRig = up }))
}

func TestRecordHistories(t *testing.T) {
	SkipUnlessEnabled(t)
	t.Parallel()
	slow := `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"20s"}`

	// A machine is created, joins, loses its node, gets its node back and is deleted.
	testRig.CreateNamespace(t, "life", `{"region":"eu","zone":"eu-1","instanceType":"small","initialize":true}`)
	life := testRig.CreatePool(t, "life", "life", 1)
	life.AwaitRunningMachines(t, 1)
	saveHistory(t, "machine/awaited", QueryForKind(run.KindMachine, "life")+EndedRunsCondition)
	label := func(value string) {
		_, err := testRig.Stack.RunKubectl(
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
	awaitMachinePhase(t, life, v1alpha1.MachineUnknown)
	label("-")
	awaitMachinePhase(t, life, v1alpha1.MachineRunning)
	life.Scale(t, 60)
	life.AwaitRunningMachines(t, 60)
	life.Scale(t, 0)
	life.AwaitRunningMachines(t, 0)
	saveHistory(t, "machineset/scaled-in-batches", QueryForKind(run.KindMachineSet, "life")+EndedRunsCondition)

	// All objects are deleted while an instance is being created.
	testRig.CreateNamespace(t, "cut", slow)
	cut := testRig.CreatePool(t, "cut", "cut", 2)
	awaitMachineStep(t, cut, "create-instance")
	saveHistory(t, "machine/creating", QueryForKind(run.KindMachine, "cut")+OpenRunsCondition)
	cut.Delete(t)
	cut.AwaitPoolGone(t)
	saveHistory(t, "machine/creation-interrupted", QueryForKind(run.KindMachine, "cut")+EndedRunsCondition)
	saveHistory(t, "machineset/deleted", QueryForKind(run.KindMachineSet, "cut")+EndedRunsCondition)
	saveHistory(t, "machinedeployment/deleted", QueryForKind(run.KindMachineDeployment, "cut")+EndedRunsCondition)

	// The first machine waits for a Secret, the second machine waits for a cloud without capacity, and the third
	// machine waits for its node.
	testRig.CreateNamespace(t, "stuck", "")
	testRig.DeleteClassAndSecret(t, "stuck")
	_, err := testRig.MachineClient.MachineV1alpha1().
		MachineClasses("stuck").
		Create(t.Context(), rig.NewClass("stuck", ""), metav1.CreateOptions{})
	require.NoError(t, err)
	stuck := testRig.CreatePool(t, "stuck", "stuck", 1)
	awaitMachineConditionReason(t, stuck, v1alpha1.ReasonSecretNotFound)
	saveHistory(t, "machine/waiting-for-secret", QueryForKind(run.KindMachine, "stuck")+OpenRunsCondition)
	_, err = testRig.Kube.CoreV1().
		Secrets("stuck").
		Create(t.Context(), rig.NewClassSecret("stuck"), metav1.CreateOptions{})
	require.NoError(t, err)
	stuck.AwaitRunningMachines(t, 1)
	saveHistory(t, "machine/secret-appeared", QueryForKind(run.KindMachine, "stuck")+EndedRunsCondition)

	testRig.CreateNamespace(t, "busy", "")
	require.NoError(
		t,
		testRig.Cloud.AddFault(
			t.Context(),
			admin.Fault{
				Operation: admin.OperationCreate,
				Code:      "ResourceExhausted",
				Message:   "no capacity in eu-1",
				Class:     "busy/small",
			},
		),
	)
	busy := testRig.CreatePool(t, "busy", "busy", 1)
	awaitMachineConditionReason(t, busy, "ResourceExhausted")
	saveHistory(t, "machine/backing-off", QueryForKind(run.KindMachine, "busy")+OpenRunsCondition)

	testRig.CreateNamespace(t, "unborn", `{"region":"eu","zone":"eu-1","instanceType":"small","neverBoots":true}`)
	unborn := testRig.CreatePool(t, "unborn", "unborn", 1)
	awaitMachinePhase(t, unborn, v1alpha1.MachinePending)
	saveHistory(t, "machine/awaiting-node", QueryForKind(run.KindMachine, "unborn")+OpenRunsCondition)
	saveHistory(t, "machinedeployment/open", QueryForKind(run.KindMachineDeployment, "unborn")+OpenRunsCondition)

	// A node stays unhealthy. The machine of this node waits until it may be replaced, fails and is deleted.
	testRig.CreateNamespace(t, "ill", "")
	ill := testRig.CreatePool(t, "ill", "ill", 2, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineHealthTimeout: &metav1.Duration{Duration: 5 * time.Second},
		}
	})
	ill.AwaitRunningMachines(t, 2)
	victim := ill.Machines(t)[0].Name
	_, err = testRig.Stack.RunKubectl(t.Context(), "label", "node", victim, "node-not-ready.stage.kwok.x-k8s.io=true")
	require.NoError(t, err)
	awaitMachinePhase(t, ill, v1alpha1.MachineUnknown)
	saveHistory(
		t,
		"machine/awaiting-recovery",
		QueryForKind(run.KindMachine, "ill")+fmt.Sprintf(" AND Machine = %q", victim)+OpenRunsCondition,
	)
	rig.Eventually(t, "the ill machine is gone", func() (bool, any) {
		return !slices.ContainsFunc(ill.Machines(t), func(m v1alpha1.Machine) bool { return m.Name == victim }), nil
	})
	saveHistory(
		t,
		"machine/replaced",
		QueryForKind(run.KindMachine, "ill")+fmt.Sprintf(" AND Machine = %q", victim)+EndedRunsCondition,
	)
	saveHistory(t, "machinedeployment/replacing", QueryForKind(run.KindMachineDeployment, "ill"))

	// A machine is preserved, and the node of a machine is updated in place.
	testRig.CreateNamespace(t, "kept", "")
	kept := testRig.CreatePool(t, "kept", "kept", 1)
	kept.AwaitRunningMachines(t, 1)
	_, err = testRig.Stack.RunKubectl(
		t.Context(),
		"annotate",
		"machine",
		"-n",
		"kept",
		kept.Machines(t)[0].Name,
		v1alpha1.AnnotationPreserve+"=now",
	)
	require.NoError(t, err)
	awaitMachineStep(t, kept, "preserved")
	saveHistory(t, "machine/preserved", QueryForKind(run.KindMachine, "kept")+OpenRunsCondition)
	testRig.CreateNamespace(t, "updated", "")
	updated := testRig.CreatePool(t, "updated", "updated", 1)
	updated.AwaitRunningMachines(t, 1)
	for _, label := range []string{v1alpha1.LabelCandidateForUpdate + "=true", v1alpha1.LabelSelectedForUpdate + "=true"} {
		_, err = testRig.Stack.RunKubectl(t.Context(), "label", "node", updated.Machines(t)[0].Name, label)
		require.NoError(t, err)
	}
	awaitMachinePhase(t, updated, v1alpha1.MachineInPlaceUpdating)
	_, err = testRig.Stack.RunKubectl(
		t.Context(),
		"label",
		"node",
		updated.Machines(t)[0].Name,
		v1alpha1.LabelUpdateResult+"=successful",
	)
	require.NoError(t, err)
	awaitMachinePhase(t, updated, v1alpha1.MachineRunning)
	saveHistory(t, "machine/updated-in-place", QueryForKind(run.KindMachine, "updated")+EndedRunsCondition)

	// A class and its Secret are deleted after the last machine.
	ill.Delete(t)
	ill.AwaitPoolGone(t)
	testRig.DeleteClassAndSecret(t, "ill")
	saveHistory(t, "machineclass/deleted", QueryForKind(run.KindMachineClass, "ill")+EndedRunsCondition)

	// A rollout is paused, resumed and superseded, and another rollout is completed.
	testRig.CreateNamespace(t, "rolled", "")
	rolled := testRig.CreatePool(t, "rolled", "rolled", 6)
	testRig.CreatePolicy(
		t,
		"rolled",
		"rolled",
		v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(2), Approve: true}}},
	)
	rolled.AwaitRunningMachines(t, 6)
	edition := func(value string) {
		rolled.Patch(t, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"edition":%q}}}}}`, value))
	}
	edition("2")
	awaitProgressingReason(t, rolled, v1alpha1.ReasonRolloutWaiting)
	rolled.Patch(t, `{"spec":{"paused":true}}`)
	awaitProgressingReason(t, rolled, v1alpha1.ReasonDeploymentPaused)
	saveHistory(t, "rollout/paused", QueryForKind(run.KindRollout, "rolled")+OpenRunsCondition)
	saveHistory(t, "machinedeployment/rolling", QueryForKind(run.KindMachineDeployment, "rolled")+OpenRunsCondition)
	rolled.Patch(t, `{"spec":{"paused":false}}`)
	awaitProgressingReason(t, rolled, v1alpha1.ReasonRolloutWaiting)
	edition("3")
	rig.Eventually(t, "the first rollout is superseded", func() (bool, any) {
		list := testRig.WorkflowRuns(t, QueryForKind(run.KindRollout, "rolled")+` AND ExecutionStatus = "Completed"`)
		return len(list) == 1, list
	})
	saveHistory(t, "rollout/superseded", QueryForKind(run.KindRollout, "rolled")+` AND ExecutionStatus = "Completed"`)
	awaitProgressingReason(t, rolled, v1alpha1.ReasonRolloutWaiting)
	rolled.Patch(t, `{"metadata":{"annotations":{"rollout.machine.sapcloud.io/approve":"3/1 ann"}}}`)
	awaitProgressingReason(t, rolled, v1alpha1.ReasonNewMachineSetAvailable)
	saveHistory(t, "rollout/completed", QueryForKind(run.KindRollout, "rolled")+` AND ExecutionStatus = "Completed"`)

	// The second sweep finds an instance without a machine.
	sweepUntilInstanceDeleted(t, "rolled")
	saveHistory(t, "orphancollection/collected", QueryForKind(run.KindOrphanCollection, "rolled")+EndedRunsCondition)

	// The node of a machine is drained. A budget first blocks the drain, and later allows it.
	testRig.CreateNamespace(t, "drained", "")
	drained := testRig.CreatePool(t, "drained", "drained", 2, rig.WithNodeLabel)
	drained.AwaitRunningMachines(t, 2)
	drained.AwaitLabelledNodes(t, 2)
	drained.DeployPods(t, "web", 3)
	drained.CreateBudget(t, "web", 3)
	host, _ := drained.MachineWithPods(t, "web")
	drained.DeleteMachine(t, host.Name)
	of := fmt.Sprintf(" AND Machine = %q", host.Name)
	awaitMachineConditionReason(t, drained, "Blocked")
	saveHistory(t, "drain/blocked", QueryForKind(run.KindDrain, "drained")+OpenRunsCondition)
	saveHistory(t, "machine/draining", QueryForKind(run.KindMachine, "drained")+of+OpenRunsCondition)
	// After a change of drainTimeout, the drain cancels its activity, which ends with its last observation. The next
	// activity has another ID.
	drained.Patch(t, `{"spec":{"template":{"spec":{"drainTimeout":"5h"}}}}`)
	rig.Eventually(t, "another activity", func() (bool, any) {
		w := testRig.WorkflowRuns(t, QueryForKind(run.KindDrain, "drained"))[0].Execution
		d, err := testRig.Temporal.DescribeWorkflowExecution(t.Context(), w.WorkflowId, w.RunId)
		require.NoError(t, err)
		pending := d.GetPendingActivities()
		return len(pending) == 1 && pending[0].GetActivityId() == "evict-pods-2", pending
	})
	saveHistory(t, "drain/given-up", QueryForKind(run.KindDrain, "drained")+OpenRunsCondition)
	drained.RelaxBudget(t, "web", 1)
	saveHistory(t, "drain/drained", QueryForKind(run.KindDrain, "drained")+EndedRunsCondition)
	saveHistory(t, "machine/drained-and-deleted", QueryForKind(run.KindMachine, "drained")+of+EndedRunsCondition)

	rig.Eventually(t, "a deployment continues as new when it has settled", func() (bool, any) {
		list := testRig.WorkflowRuns(
			t,
			QueryForKind(run.KindMachineDeployment, "life")+` AND ExecutionStatus = "ContinuedAsNew"`,
		)
		return len(list) > 0, list
	})
	saveHistory(
		t,
		"machinedeployment/continued-as-new",
		QueryForKind(run.KindMachineDeployment, "life")+` AND ExecutionStatus = "ContinuedAsNew"`,
	)
}

// sweepUntilInstanceDeleted makes an instance of a namespace's class that no machine claims, and starts sweeps until
// the instance is gone.
func sweepUntilInstanceDeleted(t *testing.T, namespace string) {
	t.Helper()
	testRig.CreateInstanceByHand(t, namespace, "lost")
	sweeps := testRig.CreateSweepSchedule(t, namespace, time.Second)
	rig.Eventually(t, "the instance is collected", func() (bool, any) {
		require.NoError(t, sweeps.Trigger(t.Context(), sdk.ScheduleTriggerOptions{}))
		time.Sleep(2 * time.Second) // two sweeps must be this far apart
		left, err := testRig.Cloud.Instances(t.Context())
		require.NoError(t, err)
		return !slices.ContainsFunc(left, func(i admin.Instance) bool { return i.Name == "lost" }), len(left)
	})
}

// awaitProgressingReason waits until the deployment's condition Progressing has this reason.
func awaitProgressingReason(t *testing.T, p *rig.Pool, reason string) {
	t.Helper()
	rig.Eventually(t, "Progressing: "+reason, func() (bool, any) {
		conditions := p.Deployment(t).Status.Conditions
		return slices.ContainsFunc(conditions, func(c v1alpha1.MachineDeploymentCondition) bool {
			return c.Type == v1alpha1.MachineDeploymentProgressing && c.Reason == reason
		}), conditions
	})
}

// saveHistory saves a history of this package's stack.
func saveHistory(t *testing.T, name, query string, activities ...string) {
	t.Helper()
	SaveLongestHistory(t, testRig, name, query, activities...)
}

func awaitMachinePhase(t *testing.T, p *rig.Pool, want v1alpha1.MachinePhase) {
	t.Helper()
	awaitMachine(
		t,
		p,
		"phase "+string(want),
		func(m v1alpha1.Machine) bool { return m.Status.CurrentStatus.Phase == want },
	)
}

func awaitMachineStep(t *testing.T, p *rig.Pool, want string) {
	t.Helper()
	awaitMachine(t, p, "step "+want, func(m v1alpha1.Machine) bool {
		return m.Status.CurrentOperation != nil && m.Status.CurrentOperation.Step == want
	})
}

func awaitMachineConditionReason(t *testing.T, p *rig.Pool, reason string) {
	t.Helper()
	awaitMachine(t, p, "condition "+reason, func(m v1alpha1.Machine) bool {
		for _, c := range m.Status.Conditions {
			if c.Reason == reason {
				return true
			}
		}
		return false
	})
}

func awaitMachine(t *testing.T, p *rig.Pool, what string, holds func(v1alpha1.Machine) bool) {
	t.Helper()
	rig.Eventually(t, what, func() (bool, any) {
		machines := p.Machines(t)
		return slices.ContainsFunc(machines, holds), machines
	})
}
