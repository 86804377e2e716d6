//go:build integration

package apifaults

import (
	"testing"
	"time"

	"millwright/test/integration/rig"
)

// A worker whose caches are five seconds behind creates no machine twice. Before a decision, the worker waits until its
// caches contain its own writes, or it reads from the API server. In the middle of each change, the watches of the
// worker and of the bridge break.
func TestWorkerWithSlowCachesMakesNoMachineTwice(t *testing.T) {
	testRig.CreateNamespace(t, "slow", "")
	verify, before := startNamespaceChecker(t, "slow"), cloudStats(t)
	testRig.Proxies.Worker.SetFaults(rig.APIFaults{WatchDelay: 5 * time.Second})
	t.Cleanup(func() { testRig.Proxies.SetFaults(rig.APIFaults{}) })
	pool := testRig.CreatePool(t, "slow", "slow", 0)
	for _, n := range []int{40, 10, 25} {
		pool.Scale(t, n)
		time.Sleep(6 * time.Second) // the first events of this change have arrived, and the next events are delayed
		testRig.Proxies.CutWatches(time.Second)
		pool.AwaitRunningMachines(t, n)
	}
	// scaled to 40, 10 and 25 machines: 40 + 15 creations
	requireCreateCount(t, before, 55)
	verify()
	requireFaults(t, "cut")
	testRig.Proxies.SetFaults(rig.APIFaults{})
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}
