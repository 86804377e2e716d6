//go:build integration

package chaos

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/devstack/component"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
)

// The API server refuses every write of the worker until runs of both pools have received such an error. The machines
// are late, and no run fails.
func TestTheWorkerLosesItsRoleWhileMachinesAreMadeAndDeleted(t *testing.T) {
	const made, deleted = 10, 5
	rights, err := testRig.RightsOfUser(t.Context(), component.WorkerIdentity)
	require.NoError(t, err)
	restore := func() error { return rights.Restore(context.WithoutCancel(t.Context())) }
	defer func() { _ = restore() }() // restore the rights also after a failure, because the next test needs them

	testRig.CreateNamespace(t, "no-role", slowProviderSpec)
	leaving := testRig.CreatePool(t, "no-role", "leaving", deleted)
	leaving.AwaitRunningMachines(t, deleted)
	before := cloudStats(t, testRig)
	later := admin.Fault{
		Operation: admin.OperationDelete,
		Class:     "no-role/small",
		Code:      "Unavailable",
		Message:   "a moment",
	}
	require.NoError(t, testRig.Cloud.AddFault(t.Context(), later)) // no deletion ends before the rights are revoked
	leaving.Delete(t)
	rig.Eventually(t, "deletions are in flight", func() (bool, any) {
		calling := 0
		for _, m := range leaving.Machines(t) {
			if d := m.Status.Deletion; d != nil && d.Stage == v1alpha1.MachineDeletionInstance {
				calling++
			}
		}
		return calling == deleted, calling
	})
	arriving := testRig.CreatePool(t, "no-role", "arriving", made)
	rig.Eventually(t, "creations are in flight", func() (bool, any) {
		now := cloudStats(t, testRig)
		return now.CreatedInstances > before.CreatedInstances, now
	})
	require.NoError(t, rights.Revoke(t.Context()))
	require.NoError(t, testRig.Cloud.ClearFaults(t.Context()))
	for _, pool := range []string{"arriving", "leaving"} {
		rig.Eventually(t, "a write for "+pool+" is refused", func() (bool, any) {
			refused := testRig.WorkflowRuns(
				t,
				fmt.Sprintf(
					"ExecutionStatus = 'Running' AND Step = %q AND MachineNamespace = 'no-role' AND MachineDeployment = %q",
					vocabulary.StepWriteRefused,
					pool,
				),
			)
			return len(refused) > 0, len(refused)
		})
	}
	require.NoError(t, restore())

	arriving.AwaitRunningMachines(t, made)
	leaving.AwaitPoolGone(t)
	require.Equal(t, made, cloudStats(t, testRig).CreatedInstances-before.CreatedInstances, "instances made")
	require.Empty(t, testRig.WorkflowRuns(t, `ExecutionStatus = "Failed" AND MachineNamespace = "no-role"`))
	arriving.Delete(t)
	arriving.AwaitPoolGone(t)
}
