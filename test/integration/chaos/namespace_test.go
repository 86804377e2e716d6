//go:build integration && endurance

package chaos

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

// A worker whose Temporal namespace is missing for more than two minutes exits, so that it can be restarted. With
// Temporal's SDK alone, the worker would continue to run, but would not poll.
func TestEnduranceWorkerExitsWithoutItsTemporalNamespace(t *testing.T) {
	t.Parallel()
	own, err := rig.StartRig(t.Context(), t.TempDir(), stack.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := own.Stack.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	own.DeleteTemporalData(t)
	rig.Eventually(t, "the worker has ended", func() (bool, any) {
		status, err := own.Stack.Status(t.Context())
		require.NoError(t, err)
		for _, s := range status {
			if s.Name == component.Worker {
				return s.State == stack.StateExited, s
			}
		}
		return false, status
	})
	require.NoError(t, own.Stack.StartComponent(t.Context(), component.Bootstrap))
	require.NoError(t, own.Stack.StartComponent(t.Context(), component.Worker))
	own.CreateNamespace(t, "again", "")
	pool := own.CreatePool(t, "again", "again", 3)
	pool.AwaitRunningMachines(t, 3)
}
