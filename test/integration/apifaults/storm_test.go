//go:build integration

package apifaults

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// While a pool is created and rolled out, many requests get 429, many writes get 409, and some writes take effect
// although their answer is lost. Each machine is created once, and replaced once.
func TestPoolIsCreatedAndRolledOutDespiteConflictsAndRefusals(t *testing.T) {
	const size = 6
	testRig.CreateNamespace(t, "storm", "")
	verify, before := startNamespaceChecker(t, "storm"), cloudStats(t)
	testRig.Proxies.SetFaultsForTest(t, rig.APIFaults{BusyChance: 0.1, ConflictChance: 0.25, LostAnswerChance: 0.08})
	pool := testRig.CreatePool(t, "storm", "storm", size)
	pool.AwaitRunningMachines(t, size)
	requireCreateCount(t, before, size)

	pool.Patch(
		t,
		`{"spec":{"template":{"metadata":{"labels":{"edition":"2"}}},"strategy":{"rollingUpdate":{"maxSurge":3,"maxUnavailable":1}}}}`,
	)
	rig.Eventually(t, "the rollout has ended", func() (bool, any) {
		machines := pool.Machines(t)
		fresh := 0
		for _, m := range machines {
			if m.Labels["edition"] == "2" && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
				fresh++
			}
		}
		return fresh == size && len(machines) == size, fresh
	})
	pool.AwaitRunningMachines(t, size)
	requireCreateCount(t, before, 2*size)
	require.Len(t, pool.ProviderIDs(t), size)
	// the bridge makes only one request in 15 s: see ADR 0088
	requireFaultsOfProcess(t, "worker", testRig.Proxies.Worker.FaultCounts(), []string{"busy", "conflict", "lost"})
	testRig.Proxies.SetFaults(rig.APIFaults{})

	pool.Delete(t)
	pool.AwaitPoolGone(t)
	verify()
}
