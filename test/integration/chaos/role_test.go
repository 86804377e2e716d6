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
	rights, err := r.RightsOfUser(t.Context(), component.WorkerIdentity)
	require.NoError(t, err)
	restore := func() error { return rights.Restore(context.WithoutCancel(t.Context())) }
	defer func() { _ = restore() }() // restore the rights also after a failure, because the next test needs them

	r.CreateNamespace(t, "no-role", slowClass)
	leaving := r.CreatePool(t, "no-role", "leaving", deleted)
	leaving.AwaitRunningMachines(t, deleted)
	before := cloudStats(t, r)
	later := admin.Fault{Operation: admin.Delete, Class: "no-role/small", Code: "Unavailable", Message: "a moment"}
	require.NoError(t, r.Cloud.AddFault(t.Context(), later)) // no deletion ends before the rights are revoked
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
	arriving := r.CreatePool(t, "no-role", "arriving", made)
	rig.Eventually(t, "creations are in flight", func() (bool, any) {
		now := cloudStats(t, r)
		return now.Creates > before.Creates, now
	})
	require.NoError(t, rights.Revoke(t.Context()))
	require.NoError(t, r.Cloud.ClearFaults(t.Context()))
	for _, pool := range []string{"arriving", "leaving"} {
		rig.Eventually(t, "a write for "+pool+" is refused", func() (bool, any) {
			refused := r.Workflows(
				t,
				fmt.Sprintf(
					"ExecutionStatus = 'Running' AND Step = %q AND MachineNamespace = 'no-role' AND MachineDeployment = %q",
					vocabulary.StepRefused,
					pool,
				),
			)
			return len(refused) > 0, len(refused)
		})
	}
	require.NoError(t, restore())

	arriving.AwaitRunningMachines(t, made)
	leaving.AwaitPoolGone(t)
	require.Equal(t, made, cloudStats(t, r).Creates-before.Creates, "instances made")
	require.Empty(t, r.Workflows(t, `ExecutionStatus = "Failed" AND MachineNamespace = "no-role"`))
	arriving.Delete(t)
	arriving.AwaitPoolGone(t)
}
