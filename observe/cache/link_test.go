package cache_test

import (
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/observe/cache"
	"millwright/observe/observetest"
)

// A volume that was attached while the watch was interrupted counts as attached: an empty cache does not prove that no
// volume is attached.
func TestInterruptedWatchCountsVolumesAsAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := kubefake.NewClientset()
		var now *watch.RaceFreeFakeWatcher
		var away atomic.Bool
		target.PrependWatchReactor("volumeattachments", func(clienttesting.Action) (bool, watch.Interface, error) {
			if away.Load() {
				return true, nil, syscall.ECONNREFUSED
			}
			now = watch.NewRaceFreeFake()
			return true, now, nil
		})
		target.PrependReactor("list", "volumeattachments", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &storagev1.VolumeAttachmentList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
		})
		cluster, err := cache.NewCluster(fake.NewSimpleClientset(), target, nil)
		require.NoError(t, err)
		require.NoError(t, cluster.WatchDrainResources())
		require.NoError(t, cluster.Start(t.Context()))
		synctest.Wait()
		assert.True(t, cluster.Target("").IsAttachmentCacheCurrent())
		assert.Zero(t, cluster.Target("").AttachedVolumeCount("n"))

		away.Store(true)
		now.Stop()
		synctest.Wait()
		assert.False(t, cluster.Target("").IsAttachmentCacheCurrent())
		assert.Equal(t, 1, cluster.Target("").AttachedVolumeCount("n"), "none is no answer")
		time.Sleep(10 * time.Minute)
		assert.False(t, cluster.Target("").IsAttachmentCacheCurrent())

		away.Store(false)
		for !cluster.Target("").IsAttachmentCacheCurrent() {
			time.Sleep(cache.WatchCatchUpTime)
		}
		now.Add(observetest.NewAttachment("a", "n", "pv-1"))
		now.Add(observetest.NewAttachment("b", "n", "pv-2"))
		synctest.Wait()
		assert.Equal(t, 2, cluster.Target("").AttachedVolumeCount("n"))
		assert.Zero(t, cluster.Target("").AttachedVolumeCount("other"))
	})
}

func TestUnwatchedAttachmentsCountAsCurrent(t *testing.T) {
	cluster, _ := observetest.StartCaches(t, nil)
	assert.True(t, cluster.Target("").IsAttachmentCacheCurrent())
	assert.Zero(t, cluster.Target("").AttachedVolumeCount("n"))
}
