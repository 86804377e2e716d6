package drain_test

import (
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/observe/cache"
)

// While the watch of attachments is interrupted, an empty cache does not prove that all volumes are detached. If an
// instance is deleted with an attached volume, other nodes cannot attach that volume.
func TestAwaitDetachWithInterruptedWatch(t *testing.T) {
	t.Parallel()
	cutOff := func(t *testing.T, test func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait, back func() *watch.RaceFreeFakeWatcher)) {
		runDetachTest(t, []runtime.Object{}, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait) {
			var now atomic.Pointer[watch.RaceFreeFakeWatcher]
			var away atomic.Bool
			d.TargetClient.PrependWatchReactor("volumeattachments", func(clienttesting.Action) (bool, watch.Interface, error) {
				if away.Load() {
					return true, nil, syscall.ECONNREFUSED
				}
				w := watch.NewRaceFreeFake()
				now.Store(w)
				return true, w, nil
			})
			cluster, err := cache.NewCluster(d.MachineClient, d.TargetClient, nil)
			require.NoError(t, err)
			require.NoError(t, cluster.WatchDrainResources())
			require.NoError(t, cluster.Start(t.Context()))
			d.Cluster = cluster
			synctest.Wait()
			away.Store(true)
			now.Load().Stop()
			synctest.Wait()
			require.False(t, cluster.Target("").IsAttachmentCacheCurrent())
			in.Since = time.Now()
			test(t, d, in, func() *watch.RaceFreeFakeWatcher {
				before := now.Load()
				away.Store(false)
				for now.Load() == before {
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
				}
				return now.Load()
			})
		})
	}
	t.Run("it waits for the watch, and ends without volumes", func(t *testing.T) {
		cutOff(
			t,
			func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait, back func() *watch.RaceFreeFakeWatcher) {
				a := d.StartDetachWait(in)
				activitiestest.AdvanceTime(30 * time.Second)
				a.AssertRunning(t)
				back()
				got, took := a.AwaitResult(t)
				assert.Empty(t, got.Left)
				assert.LessOrEqual(t, took, 2*cache.WatchCatchUpTime, "one until the cache counts, one until the next look")
			},
		)
	})
	t.Run("it waits for the volume that it did not see", func(t *testing.T) {
		cutOff(
			t,
			func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait, back func() *watch.RaceFreeFakeWatcher) {
				a := d.StartDetachWait(in)
				a.AssertRunning(t)
				back().Add(activitiestest.NewVolumeAttachment("a", "n"))
				activitiestest.AdvanceTime(10 * time.Second)
				a.AssertRunning(t)
				got, _ := a.AwaitResult(t)
				assert.Equal(t, []string{"pv-a"}, got.Left)
			},
		)
	})
	t.Run("but not without an end", func(t *testing.T) {
		cutOff(
			t,
			func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait, _ func() *watch.RaceFreeFakeWatcher) {
				got, took := d.StartDetachWait(in).AwaitResult(t)
				assert.Empty(t, got.Left)
				assert.Equal(t, kube.DefaultDetachTimeout, took)
			},
		)
	})
}
