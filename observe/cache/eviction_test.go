package cache_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clientcache "k8s.io/client-go/tools/cache"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/observe/cache"
)

// newTargetWithEviction returns a target whose discovery lists pods and their evictions, and serves policy/v1 if policy
// is true.
func newTargetWithEviction(policy bool) *kubefake.Clientset {
	target := kubefake.NewClientset()
	target.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "pods", Kind: "Pod"}, {Name: "pods/eviction", Group: "policy", Version: "v1", Kind: "Eviction"},
	}}}
	if policy {
		target.Resources = append(target.Resources, &metav1.APIResourceList{GroupVersion: "policy/v1"})
	}
	return target
}

func newCluster(t *testing.T, target *kubefake.Clientset) *cache.Cluster {
	t.Helper()
	cluster, err := cache.NewCluster(fake.NewSimpleClientset(), target, nil)
	require.NoError(t, err)
	require.NoError(t, cluster.WatchDrainResources())
	// Replace the default handler, because it waits on a clock that all tests share.
	require.NoError(
		t,
		cluster.Target("").
			Informer(cache.DisruptionBudgetsResource).
			SetWatchErrorHandler(func(*clientcache.Reflector, error) {}),
	)
	return cluster
}

func TestConcurrentDrainsRunDiscoveryOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newTargetWithEviction(false)
		target.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(time.Second)
			return false, nil, nil
		})
		cluster := newCluster(t, target)
		var asking sync.WaitGroup
		for range 20 {
			asking.Go(func() {
				why, err := cluster.Target("web").NoEvictionReason(t.Context())
				assert.NoError(t, err)
				assert.Equal(t, "the API server does not serve policy/v1", why)
			})
		}
		asking.Wait()
		assert.Len(t, target.Actions(), 2, "v1 and policy/v1")
	})
}

func TestACallerThatWaitsForDiscoveryKeepsItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newTargetWithEviction(true)
		target.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(time.Minute)
			return false, nil, nil
		})
		cluster := newCluster(t, target)
		go func() { _, _ = cluster.Target("web").NoEvictionReason(t.Context()) }()
		synctest.Wait()
		bounded, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := cluster.Target("web").NoEvictionReason(bounded)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(began))
		time.Sleep(3 * time.Minute)
	})
}

// A worker also starts if its target cannot evict and has no disruption budgets. Only the target's own answer proves
// that the target cannot evict.
func TestAWorkerStartsWithoutDisruptionBudgets(t *testing.T) {
	for name, row := range map[string]struct {
		policy   bool
		fails    error // error that discovery returns
		begins   bool
		afterAll bool // the start succeeds once discovery, or the list, works
	}{
		"it cannot evict":                {policy: false, begins: true},
		"it can, and lists none for now": {policy: true, afterAll: true},
		"it does not say, and cannot":    {policy: false, fails: errors.New("connection refused"), afterAll: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				target := newTargetWithEviction(row.policy)
				var failing atomic.Bool
				failing.Store(true)
				target.PrependReactor("list", "poddisruptionbudgets", func(clienttesting.Action) (bool, runtime.Object, error) {
					missing := !row.policy || failing.Load()
					return missing, nil, apierrors.NewNotFound(
						schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"},
						"",
					)
				})
				target.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
					return row.fails != nil && failing.Load(), nil, row.fails
				})
				cluster := newCluster(t, target)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- cluster.Start(ctx) }()
				time.Sleep(time.Minute)
				assert.Equal(t, row.begins, len(ended) == 1)
				failing.Store(false)
				time.Sleep(2 * time.Minute)
				assert.Equal(t, row.begins || row.afterAll, len(ended) == 1)
				require.NoError(t, <-ended)
				assert.True(
					t,
					slices.ContainsFunc(
						target.Actions(),
						func(a clienttesting.Action) bool { return a.GetResource().Resource == "resource" },
					),
				)
			})
		})
	}
}

func TestTimedOutStartNamesTheUnfilledCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newTargetWithEviction(true)
		target.PrependReactor("list", "poddisruptionbudgets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("connection refused")
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorContains(
			t,
			newCluster(t, target).Start(ctx),
			"fill cache of poddisruptionbudgets: context deadline exceeded",
		)
	})
}
