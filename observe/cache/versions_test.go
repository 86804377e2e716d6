package cache_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/observe/cache"
	"millwright/observe/observetest"
)

func TestRaiseVersion(t *testing.T) {
	for _, row := range []struct {
		name              string
		has, raised, want string
	}{
		{"the first version stays", "", "7", "7"},
		{"a newer one replaces it", "7", "8", "8"},
		{"an older one changes nothing", "8", "7", "8"},
		{"longer is newer, whatever the first digit", "9", "10", "10"},
		{"longer than any integer type", "9", "99999999999999999999999999", "99999999999999999999999999"},
		{"an empty one changes nothing", "7", "", "7"},
		{"a malformed one changes nothing", "7", "seven", "7"},
		{"a malformed one is not kept either: it would hide what comes after it", "", "seven", ""},
		{"zero is no version", "", "0", ""},
		{"nor is one with a leading zero", "", "07", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			versions := cache.MinVersions{}
			for range 2 { // a second RaiseVersion changes nothing
				versions.RaiseVersion(cache.MachinesResource, row.has)
				versions.RaiseVersion(cache.MachinesResource, row.raised)
				assert.Equal(t, row.want, versions[cache.MachinesResource])
			}
			assert.Empty(t, versions[cache.NodesResource], "versions of one resource say nothing about another")
		})
	}
}

func TestAwaitVersions(t *testing.T) {
	cluster, client := observetest.StartCaches(t, nil)
	at := func(version string) cache.MinVersions { return cache.MinVersions{cache.MachinesResource: version} }
	createMachine(t, client, "m-1", "100")

	t.Run("returns at once when nothing is asked for", func(t *testing.T) {
		assert.True(t, cluster.AwaitVersions(t.Context(), "shop", nil, 0))
		assert.True(t, cluster.AwaitVersions(t.Context(), "shop", cache.MinVersions{}, 0))
	})
	t.Run("returns when the cache has applied the version", func(t *testing.T) {
		assert.True(t, cluster.AwaitVersions(t.Context(), "shop", at("100"), time.Minute))
		assert.True(t, cluster.AwaitVersions(t.Context(), "shop", at("99"), time.Minute), "and any older one")
		_, found := cluster.Machine("shop/m-1")
		assert.True(t, found, "what has been waited for is there to be read")
	})
	t.Run("gives up at the limit", func(t *testing.T) {
		assert.False(t, cluster.AwaitVersions(t.Context(), "shop", at("101"), 10*time.Millisecond))
	})
	t.Run("waits for each resource of the versions", func(t *testing.T) {
		versions := cache.MinVersions{cache.MachinesResource: "100", cache.SetsResource: "100"}
		assert.False(t, cluster.AwaitVersions(t.Context(), "shop", versions, 10*time.Millisecond))
	})
	t.Run("knows nothing of resources that have no cache", func(t *testing.T) {
		assert.True(t, cluster.AwaitVersions(t.Context(), "shop", cache.MinVersions{"secrets": "900"}, 0))
	})
	t.Run("a malformed version holds nobody up", func(t *testing.T) {
		assert.True(t, cluster.AwaitVersions(t.Context(), "shop", at("seven"), time.Minute))
	})
	t.Run("ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.False(t, cluster.AwaitVersions(ctx, "shop", at("101"), time.Hour))
	})
	t.Run("is woken by what arrives meanwhile", func(t *testing.T) {
		reached := make(chan bool)
		go func() { reached <- cluster.AwaitVersions(context.Background(), "shop", at("102"), time.Minute) }()
		createMachine(t, client, "m-2", "102")
		assert.True(t, <-reached)
	})
}

func createMachine(t *testing.T, client *fake.Clientset, name, version string) {
	t.Helper()
	m := observetest.NewMachine(name)
	m.ResourceVersion = version
	_, err := client.MachineV1alpha1().Machines(m.Namespace).Create(t.Context(), m, metav1.CreateOptions{})
	require.NoError(t, err)
}

// While a target is not ready, its cache of nodes reaches no version. A decision that waited for a version would never
// be made.
func TestDecisionsDoNotWaitForNodesOfAnUnreadyTarget(t *testing.T) {
	cluster, _ := observetest.StartCaches(t, nil)
	target := observetest.NewUnfilledTarget(t, "cluster-1", cache.TargetReady)
	cluster.SetTargetSource(observetest.Targets{"shop": target})
	versions := cache.MinVersions{cache.NodesResource: "7"}
	assert.False(t, cluster.AwaitVersions(t.Context(), "shop", versions, time.Millisecond), "a ready target")
	for _, state := range []cache.TargetState{cache.TargetMissing, cache.TargetConnecting, cache.TargetUnavailable} {
		target.SetStatus(cache.TargetStatus{State: state})
		assert.True(t, cluster.AwaitVersions(t.Context(), "shop", versions, time.Millisecond), state)
		isOlder, err := cluster.IsServerOlder(t.Context(), "shop", versions)
		require.NoError(t, err)
		assert.False(t, isOlder, state)
		versions[cache.MachinesResource] = "7"
		assert.False(t, cluster.AwaitVersions(t.Context(), "shop", versions, time.Millisecond), "machines count always")
		delete(versions, cache.MachinesResource)
	}
}
