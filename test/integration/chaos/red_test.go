//go:build integration

package chaos

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/checker"
	"millwright/test/integration/rig"
)

// This test proves that the safety test can fail. The worker of this test does not list instances before a create call,
// and the cloud ignores client tokens. As a result, the same kill creates instances twice.
func TestKilledWorkerCreatesDuplicateInstancesWithoutAdoption(t *testing.T) {
	t.Parallel()
	careless, err := rig.StartRig(
		t.Context(),
		t.TempDir(),
		stack.Options{Args: map[string][]string{component.Worker: {"--adopt-before-create=false"}}},
	)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := careless.Stack.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	cloudBehaviour{usesClientTokens: false}.applyBehaviour(t, careless)
	careless.CreateNamespace(t, "careless", slowProviderSpec)
	watcher := checker.NewWatcher(
		checker.Clients{
			MachineClient: careless.MachineClient,
			Kube:          careless.Kube,
			Cloud:         careless.Cloud,
			Temporal:      careless.Temporal,
		},
		"careless",
		checker.SizeBounds{},
	)
	go watcher.Run(t.Context())
	before := cloudStats(t, careless)
	pool := careless.CreatePool(t, "careless", "careless", scaleUpSize)
	awaitCreationsInFlight(t, careless, before)
	require.NoError(t, careless.Stack.KillComponent(t.Context(), component.Worker))
	require.NoError(t, careless.Stack.StartComponent(t.Context(), component.Worker))
	pool.AwaitRunningMachines(t, scaleUpSize)
	require.Positive(
		t,
		cloudStats(t, careless).DuplicateInstances,
		"nothing was made twice: the safety test proves nothing",
	)
	violations, _ := watcher.Violations()
	require.True(
		t,
		slices.ContainsFunc(violations, func(v checker.Violation) bool { return v.Check == checker.CheckDuplicateInstance }),
		"the checker sees it: %v",
		violations,
	)
}
