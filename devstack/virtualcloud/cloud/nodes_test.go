package cloud

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
)

// runWithMemoryNodeClient runs a test in a synctest bubble, with Nodes in memory.
func runWithMemoryNodeClient(t *testing.T, test func(t *testing.T, dir string, nodes *memoryNodeClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, t.TempDir(), &memoryNodeClient{}) })
}

// advanceTime advances the bubble's time and waits until all goroutines are blocked.
func advanceTime(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestNodeRegistersAfterTheBootLatency(t *testing.T) {
	runWithMemoryNodeClient(t, func(t *testing.T, dir string, nodes *memoryNodeClient) {
		c := openCloud(t, dir, nodes)
		defer crashCloud(t, c)
		r := newCreateRequest("a")
		r.Spec.CreateLatency, r.Spec.BootLatency = durationPointer(3*time.Second), durationPointer(2*time.Second)
		mustCreateInstance(t, c, r)
		mustCreateInstance(t, c, newCreateRequest("at-once"))
		advanceTime(time.Second)
		assert.Equal(t, []string{"at-once"}, nodes.nodeNames())
		advanceTime(time.Second)
		assert.Equal(t, []string{"a", "at-once"}, nodes.nodeNames())
		assert.Equal(t, 2, c.Stats().CreatedNodes)
		assert.False(t, c.Instances()[0].RegisteredAt.IsZero())
	})
}

func TestNodeRegistersOnlyAfterTheInitializeCall(t *testing.T) {
	runWithMemoryNodeClient(t, func(t *testing.T, dir string, nodes *memoryNodeClient) {
		c := openCloud(t, dir, nodes)
		defer crashCloud(t, c)
		r := newCreateRequest("a")
		r.Spec.NeedsInitialization, r.Spec.BootLatency = true, durationPointer(time.Second)
		mustCreateInstance(t, c, r)
		advanceTime(time.Hour)
		assert.Empty(t, nodes.nodeNames())
		_, err := c.initializeInstance("i-1")
		require.NoError(t, err)
		advanceTime(time.Millisecond)
		assert.Equal(t, []string{"a"}, nodes.nodeNames())
	})
}

func TestInstanceThatNeverBootsRegistersNoNode(t *testing.T) {
	runWithMemoryNodeClient(t, func(t *testing.T, dir string, nodes *memoryNodeClient) {
		c := openCloud(t, dir, nodes)
		defer crashCloud(t, c)
		r := newCreateRequest("a")
		r.Spec.NeverBoots = true
		mustCreateInstance(t, c, r)
		advanceTime(time.Hour)
		assert.Empty(t, nodes.nodeNames())
		require.NoError(t, c.terminateInstance("i-1", "c1"))
		advanceTime(time.Hour)
		assert.Zero(t, nodes.attemptCount)
	})
}

func TestInstanceDeletedBeforeBootRegistersNoNode(t *testing.T) {
	runWithMemoryNodeClient(t, func(t *testing.T, dir string, nodes *memoryNodeClient) {
		c := openCloud(t, dir, nodes)
		defer crashCloud(t, c)
		r := newCreateRequest("a")
		r.Spec.BootLatency, r.Spec.DeleteLatency = durationPointer(time.Second), durationPointer(time.Minute)
		mustCreateInstance(t, c, r)
		require.NoError(t, c.terminateInstance("i-1", "c1"))
		advanceTime(time.Hour)
		assert.Zero(t, nodes.attemptCount)
	})
}

func TestNodeRegistrationIsRetriedWhileAPIServerIsUnavailable(t *testing.T) {
	runWithMemoryNodeClient(t, func(t *testing.T, dir string, nodes *memoryNodeClient) {
		c := openCloud(t, dir, nodes)
		defer crashCloud(t, c)
		nodes.setAPIServerUnavailable(true)
		mustCreateInstance(t, c, newCreateRequest("a"))
		advanceTime(time.Minute)
		assert.Greater(t, nodes.attemptCount, 8)
		assert.Less(t, nodes.attemptCount, 30, "it backs off")
		nodes.setAPIServerUnavailable(false)
		advanceTime(maxNodeRetryDelay)
		assert.Equal(t, []string{"a"}, nodes.nodeNames())
	})
}

func TestNodeIsCleanedUpSomeTimeAfterItsInstance(t *testing.T) {
	runWithMemoryNodeClient(t, func(t *testing.T, dir string, nodes *memoryNodeClient) {
		c := openCloud(t, dir, nodes)
		defer crashCloud(t, c)
		r := newCreateRequest("a")
		r.Spec.DeleteLatency = durationPointer(time.Minute)
		mustCreateInstance(t, c, r)
		advanceTime(time.Second)
		require.NoError(t, c.terminateInstance("i-1", "c1"))
		advanceTime(time.Minute + 9*time.Second)
		assert.Equal(t, []string{"a"}, nodes.nodeNames())
		advanceTime(time.Second)
		assert.Empty(t, nodes.nodeNames())
		assert.Equal(t, 1, c.Stats().CleanedUpNodes)
		tries := nodes.attemptCount
		advanceTime(time.Hour)
		assert.Equal(t, tries, nodes.attemptCount, "once is enough")
	})
}

// An API server that was restored to an older state lacks the Node of a live instance, and has the Node of an instance
// that is gone.
func TestNodesRejoinARestoredAPIServer(t *testing.T) {
	runWithMemoryNodeClient(t, func(t *testing.T, dir string, nodes *memoryNodeClient) {
		c := openCloud(t, dir, nodes)
		defer crashCloud(t, c)
		mustCreateInstance(t, c, newCreateRequest("gone"))
		advanceTime(time.Second)
		require.NoError(t, c.terminateInstance("i-1", "c1"))
		advanceTime(time.Minute)
		made := mustCreateInstance(t, c, newCreateRequest("lost"))
		advanceTime(time.Second)
		_, err := nodes.Remove(t.Context(), made)
		require.NoError(t, err)
		gone := made
		gone.NodeName, gone.ProviderID = "gone", virtual.ProviderID("eu", "i-1")
		require.NoError(t, nodes.Register(t.Context(), gone, virtual.Spec{}, false))
		advanceTime(time.Hour)
		assert.Equal(t, []string{"gone"}, nodes.nodeNames(), "nothing happens by itself")
		require.NoError(t, c.ResyncNodes())
		advanceTime(time.Second)
		assert.Equal(t, []string{"lost"}, nodes.nodeNames())
	})
}

func TestCleanUpKeepsTheNodeOfANewerInstance(t *testing.T) {
	runWithMemoryNodeClient(t, func(t *testing.T, dir string, nodes *memoryNodeClient) {
		c := openCloud(t, dir, nodes)
		defer crashCloud(t, c)
		mustCreateInstance(t, c, newCreateRequest("a"))
		advanceTime(time.Second)
		require.NoError(t, c.terminateInstance("i-1", "c1"))
		nodes.mu.Lock()
		nodes.providerIDs["a"] = "virtual:///eu/i-2"
		nodes.mu.Unlock()
		advanceTime(time.Hour)
		assert.Equal(t, []string{"a"}, nodes.nodeNames())
		assert.Zero(t, c.Stats().CleanedUpNodes)
	})
}

func TestVanishedInstanceLeavesANodeWithoutKubelet(t *testing.T) {
	runWithMemoryNodeClient(t, func(t *testing.T, dir string, nodes *memoryNodeClient) {
		c := openCloud(t, dir, nodes)
		defer crashCloud(t, c)
		mustCreateInstance(t, c, newCreateRequest("a"))
		mustCreateInstance(t, c, newCreateRequest("b"))
		advanceTime(time.Second)
		require.NoError(t, c.MakeInstanceVanish(admin.VanishRequest{Machine: "a"}))
		require.NoError(t, c.MakeInstanceVanish(admin.VanishRequest{ID: "i-2", DeleteNode: true}))
		assert.Error(t, c.MakeInstanceVanish(admin.VanishRequest{Machine: "a"}), "it is gone")
		advanceTime(time.Hour)
		assert.Equal(t, []string{"a"}, nodes.nodeNames())
		assert.Contains(t, nodes.stoppedKubelets, "a")
		assert.Contains(t, nodes.stoppedKubelets, "b")
		assert.Equal(t, 2, c.Stats().VanishedInstances)
		assert.Zero(t, c.Stats().LiveInstances)
	})
}

func TestRestartResumesBootsDeletionsAndCleanUps(t *testing.T) {
	runWithMemoryNodeClient(t, func(t *testing.T, dir string, nodes *memoryNodeClient) {
		c := openCloud(t, dir, nodes)
		editBehaviour(t, c, func(b *admin.Behaviour) { b.CreateLatency = virtual.Duration(time.Minute) })
		gone := newCreateRequest("gone")
		gone.Spec.CreateLatency, gone.Spec.DeleteLatency = durationPointer(0), durationPointer(time.Minute)
		mustCreateInstance(t, c, gone)
		advanceTime(time.Second)
		require.NoError(t, c.terminateInstance("i-1", "c1"))
		go func() { _, _ = c.createInstance(t.Context(), newCreateRequest("pending")) }()
		advanceTime(time.Second)
		crashCloud(t, c)
		advanceTime(30 * time.Second)
		c = openCloud(t, dir, nodes)
		defer crashCloud(t, c)
		assert.Equal(
			t,
			map[string]string{"gone": virtual.StateTerminating, "pending": virtual.StatePending},
			statesByName(c.listInstances("c1", "")),
		)
		advanceTime(time.Minute)
		assert.Equal(t, map[string]string{"pending": virtual.StateRunning}, statesByName(c.listInstances("c1", "")))
		assert.Equal(t, []string{"pending"}, nodes.nodeNames())
	})
}

func TestCloudThatChoosesNodeNamesInitializesNodes(t *testing.T) {
	runWithMemoryNodeClient(t, func(t *testing.T, dir string, nodes *memoryNodeClient) {
		c := openCloud(t, dir, nodes)
		defer crashCloud(t, c)
		editBehaviour(
			t,
			c,
			func(b *admin.Behaviour) {
				b.ChooseNodeNames, b.NodeInitializationDelay = true, virtual.Duration(time.Minute)
			},
		)
		r := newCreateRequest("a")
		r.Spec.BootLatency = durationPointer(time.Second)
		assert.Empty(t, mustCreateInstance(t, c, r).NodeName, "known when it boots")
		advanceTime(2 * time.Second)
		assert.Equal(t, map[string]string{"ip-10-0-0-1": ""}, nodes.providerIDs)
		assert.Equal(t, "ip-10-0-0-1", c.listInstances("c1", "").Items[0].NodeName)
		advanceTime(time.Minute)
		assert.Equal(t, map[string]string{"ip-10-0-0-1": "virtual:///eu/i-1"}, nodes.providerIDs)
		require.NoError(t, c.terminateInstance("i-1", "c1"))
		advanceTime(time.Minute)
		assert.Empty(t, nodes.nodeNames())
	})
}

func TestNodesOfARegionAreInTheClusterOfTheRegion(t *testing.T) {
	own, others := &memoryNodeClient{}, &memoryNodeClient{}
	clients := NewRegionNodeClient(map[string]NodeClient{"eu": own}, others)
	inOwn := virtual.Instance{NodeName: "a", ProviderID: virtual.ProviderID("eu", "i-1")}
	inOthers := virtual.Instance{NodeName: "b", ProviderID: virtual.ProviderID("us", "i-2")}
	for _, instance := range []virtual.Instance{inOwn, inOthers} {
		require.NoError(t, clients.Register(t.Context(), instance, virtual.Spec{}, true))
		require.NoError(t, clients.Initialize(t.Context(), instance))
		require.NoError(t, clients.StopKubelet(t.Context(), instance))
	}
	assert.Equal(t, map[string]string{"a": inOwn.ProviderID}, own.providerIDs)
	assert.Equal(t, map[string]string{"b": inOthers.ProviderID}, others.providerIDs)
	assert.Equal(t, []string{"a"}, own.stoppedKubelets)
	assert.Equal(t, []string{"b"}, others.stoppedKubelets)
	deleted, err := clients.Remove(t.Context(), inOwn)
	require.NoError(t, err)
	assert.True(t, deleted)
	assert.Empty(t, own.nodeNames())
	assert.Equal(t, []string{"b"}, others.nodeNames())
}
