//go:build integration

package chaos

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// A converged stack sends no signal between two resyncs. The only open workflow is the deployment's workflow.
func TestConvergedStackSendsNoSignals(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "silent", "")
	pool := testRig.CreatePool(t, "silent", "silent", 10)
	pool.AwaitRunningMachines(t, 10)
	leader := component.Bridge
	if testRig.ReadMetric(t, component.SecondBridge, "millwright_bridge_leader") == 1 {
		leader = component.SecondBridge
	}
	resynced := newResyncDetector(t)
	rig.Eventually(
		t,
		"the last status writes of the scale-up are over, and no signal is sent until the next resync",
		func() (bool, any) {
			before := testRig.ReadMetric(t, leader, "millwright_bridge_signals_total")
			require.Positive(t, before)
			resynced()
			after := testRig.ReadMetric(t, leader, "millwright_bridge_signals_total")
			return before == after, []float64{before, after}
		},
	)
	rig.Eventually(t, "only deployments' workflows are open", func() (bool, any) {
		open := testRig.CountOpenRuns(t, pool.Namespace)
		return open["Machine"]+open["MachineSet"] == 0 && open["MachineDeployment"] == 1, open
	})
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}

// newResyncDetector creates a machine whose node never joins. newResyncDetector returns a function that waits until the
// bridge resyncs. The function terminates the machine's run. No object changes, so only a resync of the bridge starts
// the run again.
func newResyncDetector(t *testing.T) (resynced func()) {
	t.Helper()
	const name = "sentinel"
	testRig.CreateNamespace(t, name, `{"region":"eu","zone":"eu-1","instanceType":"small","neverBoots":true}`)
	machines := testRig.MachineClient.MachineV1alpha1().Machines(name)
	m, err := machines.Create(
		t.Context(),
		&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: rig.NewMachineSpec()},
		metav1.CreateOptions{},
	)
	require.NoError(t, err)
	t.Cleanup(func() { _ = machines.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
	rig.Eventually(t, "the machine waits for its node", func() (bool, any) {
		now, err := machines.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		return now.Status.CurrentStatus.Phase == v1alpha1.MachinePending && now.Status.CurrentOperation != nil, now.Status
	})
	id := rig.Installation.ID(run.KindMachine, kube.Ref{Namespace: name, Name: name, UID: string(m.UID)})
	return func() {
		t.Helper()
		require.NoError(t, testRig.Temporal.TerminateWorkflow(t.Context(), id, "", "a sentinel"))
		rig.Eventually(t, "a resync has started the run again", func() (bool, any) {
			shown, err := testRig.Temporal.DescribeWorkflowExecution(t.Context(), id, "")
			require.NoError(t, err)
			status := shown.WorkflowExecutionInfo.Status
			return status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, status
		})
	}
}
