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

// withNodes runs a test of a cloud with a cluster in memory in a synctest bubble.
func withNodes(t *testing.T, test func(t *testing.T, dir string, nodes *memoryNodes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, t.TempDir(), &memoryNodes{}) })
}

// pass lets time pass and waits until all work that is due is done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestNodeRegistersAfterTheBootLatency(t *testing.T) {
	withNodes(t, func(t *testing.T, dir string, nodes *memoryNodes) {
		c := open(t, dir, nodes)
		defer crash(t, c)
		r := request("a")
		r.Spec.CreateLatency, r.Spec.BootLatency = duration(3*time.Second), duration(2*time.Second)
		make1(t, c, r)
		make1(t, c, request("at-once"))
		pass(time.Second)
		assert.Equal(t, []string{"at-once"}, nodes.names())
		pass(time.Second)
		assert.Equal(t, []string{"a", "at-once"}, nodes.names())
		assert.Equal(t, 2, c.Stats().Nodes)
		assert.False(t, c.Instances()[0].Registered.IsZero())
	})
}

func TestNodeWaitsForInitialize(t *testing.T) {
	withNodes(t, func(t *testing.T, dir string, nodes *memoryNodes) {
		c := open(t, dir, nodes)
		defer crash(t, c)
		r := request("a")
		r.Spec.Initialize, r.Spec.BootLatency = true, duration(time.Second)
		make1(t, c, r)
		pass(time.Hour)
		assert.Empty(t, nodes.names())
		_, err := c.initialize("i-1")
		require.NoError(t, err)
		pass(time.Millisecond)
		assert.Equal(t, []string{"a"}, nodes.names())
	})
}

func TestNodeThatNeverBoots(t *testing.T) {
	withNodes(t, func(t *testing.T, dir string, nodes *memoryNodes) {
		c := open(t, dir, nodes)
		defer crash(t, c)
		r := request("a")
		r.Spec.NeverBoots = true
		make1(t, c, r)
		pass(time.Hour)
		assert.Empty(t, nodes.names())
		require.NoError(t, c.terminate("i-1", "c1"))
		pass(time.Hour)
		assert.Zero(t, nodes.tries)
	})
}

func TestDeletedBeforeItBootsRegistersNoNode(t *testing.T) {
	withNodes(t, func(t *testing.T, dir string, nodes *memoryNodes) {
		c := open(t, dir, nodes)
		defer crash(t, c)
		r := request("a")
		r.Spec.BootLatency, r.Spec.DeleteLatency = duration(time.Second), duration(time.Minute)
		make1(t, c, r)
		require.NoError(t, c.terminate("i-1", "c1"))
		pass(time.Hour)
		assert.Zero(t, nodes.tries)
	})
}

func TestNodeIsTriedAgainWhileTheAPIServerIsAway(t *testing.T) {
	withNodes(t, func(t *testing.T, dir string, nodes *memoryNodes) {
		c := open(t, dir, nodes)
		defer crash(t, c)
		nodes.setAway(true)
		make1(t, c, request("a"))
		pass(time.Minute)
		assert.Greater(t, nodes.tries, 8)
		assert.Less(t, nodes.tries, 30, "it backs off")
		nodes.setAway(false)
		pass(nodeRetryLast)
		assert.Equal(t, []string{"a"}, nodes.names())
	})
}

func TestNodeIsCleanedUpSomeTimeAfterItsInstance(t *testing.T) {
	withNodes(t, func(t *testing.T, dir string, nodes *memoryNodes) {
		c := open(t, dir, nodes)
		defer crash(t, c)
		r := request("a")
		r.Spec.DeleteLatency = duration(time.Minute)
		make1(t, c, r)
		pass(time.Second)
		require.NoError(t, c.terminate("i-1", "c1"))
		pass(time.Minute + 9*time.Second)
		assert.Equal(t, []string{"a"}, nodes.names())
		pass(time.Second)
		assert.Empty(t, nodes.names())
		assert.Equal(t, 1, c.Stats().NodesCleaned)
		tries := nodes.tries
		pass(time.Hour)
		assert.Equal(t, tries, nodes.tries, "once is enough")
	})
}

// An API server that was restored to an older state lacks one Node, and has one whose instance is gone.
func TestNodesRejoinARestoredAPIServer(t *testing.T) {
	withNodes(t, func(t *testing.T, dir string, nodes *memoryNodes) {
		c := open(t, dir, nodes)
		defer crash(t, c)
		make1(t, c, request("gone"))
		pass(time.Second)
		require.NoError(t, c.terminate("i-1", "c1"))
		pass(time.Minute)
		made := make1(t, c, request("lost"))
		pass(time.Second)
		_, err := nodes.Remove(t.Context(), made)
		require.NoError(t, err)
		gone := made
		gone.NodeName, gone.ProviderID = "gone", virtual.ProviderID("eu", "i-1")
		require.NoError(t, nodes.Register(t.Context(), gone, virtual.Spec{}, false))
		pass(time.Hour)
		assert.Equal(t, []string{"gone"}, nodes.names(), "nothing happens by itself")
		require.NoError(t, c.Rejoin())
		pass(time.Second)
		assert.Equal(t, []string{"lost"}, nodes.names())
	})
}

func TestCleanUpLeavesASuccessorsNodeAlone(t *testing.T) {
	withNodes(t, func(t *testing.T, dir string, nodes *memoryNodes) {
		c := open(t, dir, nodes)
		defer crash(t, c)
		make1(t, c, request("a"))
		pass(time.Second)
		require.NoError(t, c.terminate("i-1", "c1"))
		nodes.mu.Lock()
		nodes.byName["a"] = "virtual:///eu/i-2"
		nodes.mu.Unlock()
		pass(time.Hour)
		assert.Equal(t, []string{"a"}, nodes.names())
		assert.Zero(t, c.Stats().NodesCleaned)
	})
}

func TestVanishedInstanceLeavesADeadNode(t *testing.T) {
	withNodes(t, func(t *testing.T, dir string, nodes *memoryNodes) {
		c := open(t, dir, nodes)
		defer crash(t, c)
		make1(t, c, request("a"))
		make1(t, c, request("b"))
		pass(time.Second)
		require.NoError(t, c.Vanish(admin.Vanish{Machine: "a"}))
		require.NoError(t, c.Vanish(admin.Vanish{ID: "i-2", DeleteNode: true}))
		assert.Error(t, c.Vanish(admin.Vanish{Machine: "a"}), "it is gone")
		pass(time.Hour)
		assert.Equal(t, []string{"a"}, nodes.names())
		assert.Contains(t, nodes.silenced, "a")
		assert.Contains(t, nodes.silenced, "b")
		assert.Equal(t, 2, c.Stats().Vanished)
		assert.Zero(t, c.Stats().Live)
	})
}

func TestRestartResumesBootsDeletionsAndCleanUps(t *testing.T) {
	withNodes(t, func(t *testing.T, dir string, nodes *memoryNodes) {
		c := open(t, dir, nodes)
		behave(t, c, func(b *admin.Behaviour) { b.CreateLatency = virtual.Duration(time.Minute) })
		gone := request("gone")
		gone.Spec.CreateLatency, gone.Spec.DeleteLatency = duration(0), duration(time.Minute)
		make1(t, c, gone)
		pass(time.Second)
		require.NoError(t, c.terminate("i-1", "c1"))
		go func() { _, _ = c.create(t.Context(), request("pending")) }()
		pass(time.Second)
		crash(t, c)
		pass(30 * time.Second)
		c = open(t, dir, nodes)
		defer crash(t, c)
		assert.Equal(
			t,
			map[string]string{"gone": virtual.StateTerminating, "pending": virtual.StatePending},
			states(c.list("c1", "")),
		)
		pass(time.Minute)
		assert.Equal(t, map[string]string{"pending": virtual.StateRunning}, states(c.list("c1", "")))
		assert.Equal(t, []string{"pending"}, nodes.names())
	})
}

func TestACloudThatNamesItsNodesAndInitializesThem(t *testing.T) {
	withNodes(t, func(t *testing.T, dir string, nodes *memoryNodes) {
		c := open(t, dir, nodes)
		defer crash(t, c)
		behave(t, c, func(b *admin.Behaviour) { b.OwnNodeNames, b.NodeInit = true, virtual.Duration(time.Minute) })
		r := request("a")
		r.Spec.BootLatency = duration(time.Second)
		assert.Empty(t, make1(t, c, r).NodeName, "known when it boots")
		pass(2 * time.Second)
		assert.Equal(t, map[string]string{"ip-10-0-0-1": ""}, nodes.byName)
		assert.Equal(t, "ip-10-0-0-1", c.list("c1", "").Items[0].NodeName)
		pass(time.Minute)
		assert.Equal(t, map[string]string{"ip-10-0-0-1": "virtual:///eu/i-1"}, nodes.byName)
		require.NoError(t, c.terminate("i-1", "c1"))
		pass(time.Minute)
		assert.Empty(t, nodes.names())
	})
}
