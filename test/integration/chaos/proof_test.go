//go:build integration

package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// A converged stack sends no signal for a minute, and nothing but its deployment's workflow is open.
func TestConvergedStackIsSilent(t *testing.T) {
	t.Parallel()
	r.Namespace(t, "silent", "")
	pool := r.Pool(t, "silent", "silent", 10)
	pool.AwaitRunning(t, 10)
	leader := component.Bridge
	if r.Metric(t, component.SecondBridge, "millwright_bridge_leader") == 1 {
		leader = component.SecondBridge
	}
	before := -1.0
	rig.Eventually(t, "the last status writes of the scale-up are over", func() (bool, any) {
		was := before
		before = r.Metric(t, leader, "millwright_bridge_signals_total")
		if was != before {
			time.Sleep(5 * time.Second)
		}
		return was == before, before
	})
	require.Positive(t, before)
	time.Sleep(time.Minute)
	require.Equal(t, before, r.Metric(t, leader, "millwright_bridge_signals_total"), "signals of a converged stack")
	rig.Eventually(t, "only deployments' workflows are open", func() (bool, any) {
		open := r.OpenWorkflows(t, pool.Namespace)
		return open["Machine"]+open["MachineSet"] == 0 && open["MachineDeployment"] == 1, open
	})
	pool.Delete(t)
	pool.AwaitGone(t)
}
