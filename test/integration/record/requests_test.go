//go:build integration

package record

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
	"millwright/workflows/installation"
	"millwright/workflows/run"
)

// workflowID returns the ID of the workflow of an object.
func workflowID(k run.Kind, o metav1.Object, revision ...int64) string {
	return rig.Installation.ID(
		k,
		kube.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())},
		revision...)
}

// sendRequestByUpdate waits until a workflow is open, and sends a request to it as a Temporal update.
func sendRequestByUpdate(t *testing.T, id string, command request.Command) {
	t.Helper()
	in := run.RequestInput{Command: command, Actor: "ann", Reason: "a recording"}
	rig.Eventually(t, string(command)+" is answered", func() (bool, any) {
		handle, err := testRig.Temporal.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
			WorkflowID:   id,
			UpdateName:   run.RequestMessageName,
			WaitForStage: client.WorkflowUpdateStageCompleted,
			Args:         []any{in},
		})
		if err != nil {
			return false, err
		}
		err = handle.Get(t.Context(), nil)
		return err == nil, err
	})
}

// sendRequestBySignal sends a request to a workflow by a signal.
func sendRequestBySignal(t *testing.T, id string, command request.Command) {
	t.Helper()
	in := run.RequestInput{Command: command, Actor: "bob", Reason: "a recording"}
	require.NoError(t, testRig.Temporal.SignalWorkflow(t.Context(), id, "", run.RequestMessageName, in))
}

// machineQueryCondition returns a condition that limits a query to the runs of one machine.
func machineQueryCondition(name string) string { return fmt.Sprintf(" AND Machine = %q", name) }

// TestRecordRequestsForMachines records requests to machines and to their drains. The requests are sent as updates and
// as signals, and by cancelling a workflow.
func TestRecordRequestsForMachines(t *testing.T) {
	SkipUnlessEnabled(t)
	t.Parallel()
	testRig.CreateNamespace(t, "asked", "")
	p := testRig.CreatePool(t, "asked", "asked", 4, rig.WithNodeLabel)
	p.AwaitRunningMachines(t, 4)
	p.AwaitLabelledNodes(t, 4)
	p.DeployPods(t, "web", 8)
	p.CreateBudget(t, "web", 8)
	blocked := func() v1alpha1.Machine {
		t.Helper()
		var host v1alpha1.Machine
		for _, m := range p.Machines(t) {
			for _, pod := range p.Pods(t, "web") {
				if pod.Spec.NodeName == m.Labels[v1alpha1.LabelNode] && m.DeletionTimestamp == nil {
					host = m
				}
			}
		}
		require.NotEmpty(t, host.Name)
		p.DeleteMachine(t, host.Name)
		awaitDrainedReason(t, p, host.Name, v1alpha1.ReasonBlocked)
		return host
	}

	forced := blocked()
	id := workflowID(run.KindDrain, &forced)
	sendRequestByUpdate(t, id, request.Hold)
	sendRequestBySignal(t, id, request.Resume)
	sendRequestBySignal(t, id, request.Unpreserve) // the workflow refuses this request
	sendRequestByUpdate(t, id, request.Retry)
	sendRequestByUpdate(t, id, request.Force)
	awaitMachineGone(t, p, forced.Name)
	saveHistory(
		t,
		"drain/forced",
		QueryForKind(run.KindDrain, "asked")+machineQueryCondition(forced.Name)+EndedRunsCondition,
	)

	skipped := blocked()
	sendRequestByUpdate(t, workflowID(run.KindDrain, &skipped), request.Skip)
	awaitMachineGone(t, p, skipped.Name)
	saveHistory(
		t,
		"drain/skipped",
		QueryForKind(run.KindDrain, "asked")+machineQueryCondition(skipped.Name)+EndedRunsCondition,
	)

	cancelled := blocked()
	require.NoError(t, testRig.Temporal.CancelWorkflow(t.Context(), workflowID(run.KindDrain, &cancelled), ""))
	awaitMachine(t, p, "the deletion is held", func(m v1alpha1.Machine) bool {
		return m.Name == cancelled.Name && m.Annotations[v1alpha1.AnnotationHold] != ""
	})
	saveHistory(
		t,
		"drain/cancelled",
		QueryForKind(run.KindDrain, "asked")+machineQueryCondition(cancelled.Name)+EndedRunsCondition,
	)
	awaitMachineStep(t, p, "held")
	saveHistory(
		t,
		"machine/held",
		QueryForKind(run.KindMachine, "asked")+machineQueryCondition(cancelled.Name)+OpenRunsCondition,
	)
	sendRequestByUpdate(t, workflowID(run.KindMachine, &cancelled), request.Resume)
	p.RelaxBudget(t, "web", 0)
	awaitMachineGone(t, p, cancelled.Name)
	saveHistory(
		t,
		"machine/resumed",
		QueryForKind(run.KindMachine, "asked")+machineQueryCondition(cancelled.Name)+EndedRunsCondition,
	)

	// The cloud refuses to delete the instance, and a person requests to abandon the instance.
	require.NoError(
		t,
		testRig.Cloud.AddFault(
			t.Context(),
			admin.Fault{
				Operation: admin.OperationDelete,
				Code:      "PermissionDenied",
				Message:   "no right to delete",
				Class:     "asked/small",
			},
		),
	)
	given := p.Machines(t)[0]
	p.DeleteMachine(t, given.Name)
	awaitMachineConditionReason(t, p, "PermissionDenied")
	saveHistory(
		t,
		"machine/deletion-refused",
		QueryForKind(run.KindMachine, "asked")+machineQueryCondition(given.Name)+OpenRunsCondition,
	)
	sendRequestByUpdate(t, workflowID(run.KindMachine, &given), request.AbandonInstance)
	awaitMachineGone(t, p, given.Name)
	saveHistory(
		t,
		"machine/abandoned",
		QueryForKind(run.KindMachine, "asked")+machineQueryCondition(given.Name)+EndedRunsCondition,
	)
}

// A person cancels the workflow of a machine, and the next run continues the work.
func TestRecordACancelledMachineWorkflow(t *testing.T) {
	SkipUnlessEnabled(t)
	t.Parallel()
	testRig.CreateNamespace(t, "halted", `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"20s"}`)
	p := testRig.CreatePool(t, "halted", "halted", 1)
	awaitMachineStep(t, p, "create-instance")
	m := p.Machines(t)[0]
	require.NoError(t, testRig.Temporal.CancelWorkflow(t.Context(), workflowID(run.KindMachine, &m), ""))
	saveHistory(t, "machine/cancelled", QueryForKind(run.KindMachine, "halted")+` AND ExecutionStatus = "Canceled"`)
	p.Scale(t, 0)
	p.AwaitRunningMachines(t, 0)
}

// TestRecordRequestsForDeployments records people's requests to a deployment and its rollouts.
func TestRecordRequestsForDeployments(t *testing.T) {
	SkipUnlessEnabled(t)
	t.Parallel()
	testRig.CreateNamespace(t, "steered", "")
	p := testRig.CreatePool(t, "steered", "steered", 3)
	testRig.CreatePolicy(
		t,
		"steered",
		"steered",
		v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}},
	)
	p.AwaitRunningMachines(t, 3)
	id := workflowID(run.KindMachineDeployment, p.Deployment(t))
	rolloutID := func() string {
		t.Helper()
		d := p.Deployment(t)
		return workflowID(run.KindRollout, d, revisionOfDeployment(t, d))
	}
	waits := func() {
		t.Helper()
		awaitProgressingReason(t, p, v1alpha1.ReasonRolloutWaiting)
	}
	runOf := func(id string) string { return fmt.Sprintf("WorkflowId = %q", id) }
	setTemplateEdition(t, p, "2")
	waits()
	sendRequestByUpdate(t, id, request.Pause)
	awaitProgressingReason(t, p, v1alpha1.ReasonDeploymentPaused)
	sendRequestBySignal(t, rolloutID(), request.Resume)
	waits()
	sendRequestByUpdate(t, rolloutID(), request.Cancel)
	awaitProgressingReason(t, p, v1alpha1.ReasonRolloutHeld)
	saveHistory(t, "rollout/held", runOf(rolloutID())+EndedRunsCondition)
	saveHistory(t, "machinedeployment/held", runOf(id)+OpenRunsCondition)
	sendRequestByUpdate(t, id, request.Undo)
	sendRequestByUpdate(t, id, request.Approve)
	awaitProgressingReason(t, p, v1alpha1.ReasonNewMachineSetAvailable)
	sendRequestByUpdate(t, id, request.Start)
	waits()
	require.NoError(t, testRig.Temporal.CancelWorkflow(t.Context(), rolloutID(), ""))
	awaitProgressingReason(t, p, v1alpha1.ReasonRolloutHeld)
	saveHistory(t, "rollout/cancelled", runOf(rolloutID())+EndedRunsCondition)
	sendRequestByUpdate(t, id, request.Resume)
	waits()

	// Another run of the deployment's workflow follows the rollout that the terminated run has started.
	require.NoError(t, testRig.Temporal.TerminateWorkflow(t.Context(), id, "", "a recording"))
	p.Scale(t, 4)
	rig.Eventually(t, "another run", func() (bool, any) {
		open := testRig.WorkflowRuns(t, runOf(id)+OpenRunsCondition)
		return len(open) == 1, open
	})
	testRig.AwaitDeploymentFollowsRollout(t, rolloutID(), id)
	sendRequestByUpdate(t, rolloutID(), request.Approve)
	awaitProgressingReason(t, p, v1alpha1.ReasonNewMachineSetAvailable)
	saveHistory(t, "rollout/followed", runOf(rolloutID())+EndedRunsCondition)
	saveHistory(t, "machinedeployment/following", runOf(id)+OpenRunsCondition)
	setTemplateEdition(t, p, "3")
	waits()
	last := rolloutID()
	p.Delete(t)
	p.AwaitPoolGone(t)
	saveHistory(t, "rollout/deleted", runOf(last)+EndedRunsCondition)
}

// TestRecordInstallations records the open workflow that marks an installation, and the workflow of an abandoned
// installation.
func TestRecordInstallations(t *testing.T) {
	SkipUnlessEnabled(t)
	t.Parallel()
	mark := `WorkflowType = "Installation"`
	saveHistory(t, "installation/open", mark+OpenRunsCondition)
	id := run.Installation("former").ReservationWorkflowID()
	options := client.StartWorkflowOptions{ID: id, TaskQueue: rig.Installation.Shard(0).TaskQueue(run.QueueMachines)}
	former, err := testRig.Temporal.ExecuteWorkflow(
		t.Context(),
		options,
		string(run.KindInstallation),
		installation.Input{ControlCluster: "a-cluster"},
	)
	require.NoError(t, err)
	rig.Eventually(t, "the mark shows whose the name is", func() (bool, any) {
		details := testRig.WorkflowDetails(t, id)
		return details != "", details
	})
	require.NoError(t, testRig.Temporal.CancelWorkflow(t.Context(), id, ""))
	require.NoError(t, former.Get(t.Context(), nil))
	saveHistory(t, "installation/cancelled", fmt.Sprintf("WorkflowId = %q", id)+EndedRunsCondition)
}
