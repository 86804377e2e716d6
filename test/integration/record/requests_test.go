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

// idOf returns the ID of the workflow of an object.
func idOf(k run.Kind, o metav1.Object, revision ...int64) string {
	return rig.Installation.ID(
		k,
		kube.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())},
		revision...)
}

// ask sends a request to a workflow by an update, as soon as the workflow is open.
func ask(t *testing.T, id string, command request.Command) {
	t.Helper()
	in := run.RequestInput{Command: command, Actor: "ann", Reason: "a recording"}
	rig.Eventually(t, string(command)+" is answered", func() (bool, any) {
		handle, err := r.Temporal.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: id, UpdateName: run.MessageRequest, WaitForStage: client.WorkflowUpdateStageCompleted, Args: []any{in},
		})
		if err != nil {
			return false, err
		}
		err = handle.Get(t.Context(), nil)
		return err == nil, err
	})
}

// say sends a request to a workflow by a signal.
func say(t *testing.T, id string, command request.Command) {
	t.Helper()
	in := run.RequestInput{Command: command, Actor: "bob", Reason: "a recording"}
	require.NoError(t, r.Temporal.SignalWorkflow(t.Context(), id, "", run.MessageRequest, in))
}

// of narrows a query to the runs of a machine.
func of(name string) string { return fmt.Sprintf(" AND Machine = %q", name) }

// What people request of machines and of their drains: by updates, by signals, and by cancelling a workflow.
func TestRecordRequestsForMachines(t *testing.T) {
	Begin(t)
	t.Parallel()
	r.Namespace(t, "asked", "")
	p := r.Pool(t, "asked", "asked", 4, rig.LabelNodes)
	p.AwaitRunning(t, 4)
	p.AwaitHosts(t, 4)
	p.Deploy(t, "web", 8)
	p.Budget(t, "web", 8)
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
		p.Remove(t, host.Name)
		awaitDrained(t, p, host.Name, v1alpha1.ReasonBlocked)
		return host
	}

	forced := blocked()
	id := idOf(run.KindDrain, &forced)
	ask(t, id, request.Hold)
	say(t, id, request.Resume)
	say(t, id, request.Unpreserve) // refused
	ask(t, id, request.Retry)
	ask(t, id, request.Force)
	awaitGone(t, p, forced.Name)
	save(t, "drain/forced", Kind(run.KindDrain, "asked")+of(forced.Name)+Ended)

	skipped := blocked()
	ask(t, idOf(run.KindDrain, &skipped), request.Skip)
	awaitGone(t, p, skipped.Name)
	save(t, "drain/skipped", Kind(run.KindDrain, "asked")+of(skipped.Name)+Ended)

	cancelled := blocked()
	require.NoError(t, r.Temporal.CancelWorkflow(t.Context(), idOf(run.KindDrain, &cancelled), ""))
	some(t, p, "the deletion is held", func(m v1alpha1.Machine) bool {
		return m.Name == cancelled.Name && m.Annotations[v1alpha1.AnnotationHold] != ""
	})
	save(t, "drain/cancelled", Kind(run.KindDrain, "asked")+of(cancelled.Name)+Ended)
	step(t, p, "held")
	save(t, "machine/held", Kind(run.KindMachine, "asked")+of(cancelled.Name)+Open)
	ask(t, idOf(run.KindMachine, &cancelled), request.Resume)
	p.RelaxBudget(t, "web", 0)
	awaitGone(t, p, cancelled.Name)
	save(t, "machine/resumed", Kind(run.KindMachine, "asked")+of(cancelled.Name)+Ended)

	// The cloud refuses to delete the instance, and a person gives the instance up.
	require.NoError(
		t,
		r.Cloud.AddFault(
			t.Context(),
			admin.Fault{Operation: admin.Delete, Code: "PermissionDenied", Message: "no right to delete", Class: "asked/small"},
		),
	)
	given := p.Machines(t)[0]
	p.Remove(t, given.Name)
	condition(t, p, "PermissionDenied")
	save(t, "machine/deletion-refused", Kind(run.KindMachine, "asked")+of(given.Name)+Open)
	ask(t, idOf(run.KindMachine, &given), request.AbandonInstance)
	awaitGone(t, p, given.Name)
	save(t, "machine/abandoned", Kind(run.KindMachine, "asked")+of(given.Name)+Ended)
}

// A person cancels the workflow of a machine; another run continues its work.
func TestRecordACancelledMachine(t *testing.T) {
	Begin(t)
	t.Parallel()
	r.Namespace(t, "halted", `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"20s"}`)
	p := r.Pool(t, "halted", "halted", 1)
	step(t, p, "create-instance")
	m := p.Machines(t)[0]
	require.NoError(t, r.Temporal.CancelWorkflow(t.Context(), idOf(run.KindMachine, &m), ""))
	save(t, "machine/cancelled", Kind(run.KindMachine, "halted")+` AND ExecutionStatus = "Canceled"`)
	p.Scale(t, 0)
	p.AwaitRunning(t, 0)
}

// What people request of a deployment and its rollouts.
func TestRecordRequestsForDeployments(t *testing.T) {
	Begin(t)
	t.Parallel()
	r.Namespace(t, "steered", "")
	p := r.Pool(t, "steered", "steered", 3)
	r.Policy(
		t,
		"steered",
		"steered",
		v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}},
	)
	p.AwaitRunning(t, 3)
	id := idOf(run.KindMachineDeployment, p.Deployment(t))
	rolloutID := func() string {
		t.Helper()
		d := p.Deployment(t)
		return idOf(run.KindRollout, d, revisionOf(t, d))
	}
	waits := func() {
		t.Helper()
		progressing(t, p, v1alpha1.ReasonRolloutWaiting)
	}
	runOf := func(id string) string { return fmt.Sprintf("WorkflowId = %q", id) }
	edition(t, p, "2")
	waits()
	ask(t, id, request.Pause)
	progressing(t, p, v1alpha1.ReasonDeploymentPaused)
	say(t, rolloutID(), request.Resume)
	waits()
	ask(t, rolloutID(), request.Cancel)
	progressing(t, p, v1alpha1.ReasonRolloutHeld)
	save(t, "rollout/held", runOf(rolloutID())+Ended)
	save(t, "machinedeployment/held", runOf(id)+Open)
	ask(t, id, request.Undo)
	ask(t, id, request.Approve)
	progressing(t, p, v1alpha1.ReasonNewMachineSetAvailable)
	ask(t, id, request.Start)
	waits()
	require.NoError(t, r.Temporal.CancelWorkflow(t.Context(), rolloutID(), ""))
	progressing(t, p, v1alpha1.ReasonRolloutHeld)
	save(t, "rollout/cancelled", runOf(rolloutID())+Ended)
	ask(t, id, request.Resume)
	waits()

	// Another run of the deployment's workflow follows the rollout that the former one has started.
	require.NoError(t, r.Temporal.TerminateWorkflow(t.Context(), id, "", "a recording"))
	p.Scale(t, 4)
	rig.Eventually(t, "another run", func() (bool, any) {
		open := r.Workflows(t, runOf(id)+Open)
		return len(open) == 1, open
	})
	r.AwaitFollowed(t, rolloutID(), id)
	ask(t, rolloutID(), request.Approve)
	progressing(t, p, v1alpha1.ReasonNewMachineSetAvailable)
	save(t, "rollout/followed", runOf(rolloutID())+Ended)
	save(t, "machinedeployment/following", runOf(id)+Open)
	edition(t, p, "3")
	waits()
	last := rolloutID()
	p.Delete(t)
	p.AwaitGone(t)
	save(t, "rollout/deleted", runOf(last)+Ended)
}

// The mark of an installation, which is open, and one that is given up.
func TestRecordInstallations(t *testing.T) {
	Begin(t)
	t.Parallel()
	mark := `WorkflowType = "Installation"`
	save(t, "installation/open", mark+Open)
	id := run.Installation("former").MarkID()
	options := client.StartWorkflowOptions{ID: id, TaskQueue: rig.Installation.Queue(run.QueueMachines)}
	former, err := r.Temporal.ExecuteWorkflow(
		t.Context(),
		options,
		string(run.KindInstallation),
		installation.Input{ControlCluster: "a-cluster"},
	)
	require.NoError(t, err)
	rig.Eventually(t, "the mark shows whose the name is", func() (bool, any) {
		details := r.Details(t, id)
		return details != "", details
	})
	require.NoError(t, r.Temporal.CancelWorkflow(t.Context(), id, ""))
	require.NoError(t, former.Get(t.Context(), nil))
	save(t, "installation/cancelled", fmt.Sprintf("WorkflowId = %q", id)+Ended)
}
