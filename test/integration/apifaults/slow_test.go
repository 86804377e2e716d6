//go:build integration

package apifaults

import (
	"testing"
	"time"

	"millwright/test/integration/rig"
)

// A worker whose caches are five seconds slow makes no second machine: decisions wait for what they wrote, or read
// live. In the middle of each change its watches break, and those of the bridge.
func TestWorkerWithSlowCachesMakesNoMachineTwice(t *testing.T) {
	r.Namespace(t, "slow", "")
	verify, before := watched(t, "slow"), stats(t)
	r.Proxies.Worker.Set(rig.APIFaults{WatchDelay: 5 * time.Second})
	t.Cleanup(func() { r.Proxies.Set(rig.APIFaults{}) })
	pool := r.Pool(t, "slow", "slow", 0)
	for _, n := range []int{40, 10, 25} {
		pool.Scale(t, n)
		time.Sleep(6 * time.Second) // the first events of this change have arrived, others are on their way
		r.Proxies.CutWatches(time.Second)
		pool.AwaitRunning(t, n)
	}
	// 40, then 30 fewer, 15 more
	made(t, before, 55)
	verify()
	told(t, "cut")
	r.Proxies.Set(rig.APIFaults{})
	pool.Delete(t)
	pool.AwaitGone(t)
}
