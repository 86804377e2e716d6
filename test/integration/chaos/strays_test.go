//go:build integration

package chaos

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stretchr/testify/require"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// A deployment vanishes while no bridge runs. The workflow of the deployment waits without a timer, and the next leader
// ends the workflow.
func TestWorkflowOfAVanishedDeploymentEnds(t *testing.T) {
	testRig.CreateNamespace(t, "vanished", "")
	pool := testRig.CreatePool(t, "vanished", "vanished", 0)
	open := func() int { return testRig.CountOpenRuns(t, "vanished")["MachineDeployment"] }
	rig.Eventually(t, "the deployment has an open run and its finalizer", func() (bool, any) {
		return open() == 1 && len(pool.Deployment(t).Finalizers) > 0, open()
	})
	rig.Eventually(t, "the run has continued as new: until then it looks again by itself", func() (bool, any) {
		former := testRig.WorkflowRuns(
			t,
			`WorkflowType = "MachineDeployment" AND ExecutionStatus = "ContinuedAsNew" AND MachineNamespace = "vanished"`,
		)
		return len(former) > 0 && open() == 1, len(former)
	})
	testRig.ForceReconcile(t, run.KindMachineDeployment, "vanished", "vanished")
	for _, bridge := range []string{component.Bridge, component.SecondBridge} {
		require.NoError(t, testRig.Stack.StopComponent(t.Context(), bridge))
	}
	pool.Delete(t)
	pool.Patch(t, `{"metadata":{"finalizers":null}}`)
	rig.Eventually(t, "the deployment is gone", func() (bool, any) {
		_, err := testRig.MachineClient.MachineV1alpha1().
			MachineDeployments("vanished").
			Get(t.Context(), "vanished", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	require.Equal(t, 1, open(), "nobody has told the run")
	for _, bridge := range []string{component.Bridge, component.SecondBridge} {
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), bridge))
	}
	rig.Eventually(t, "the run has ended", func() (bool, any) { return open() == 0, open() })
}
