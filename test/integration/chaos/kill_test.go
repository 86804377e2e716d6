// Tier: test-all. Each process is killed once in the package kills; these are all other moments and faults.

//go:build integration

// Package chaos shows that the death of any process makes no machine twice and loses none.
package chaos

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
	"millwright/test/integration/rig"
)

var r *rig.Rig

func TestMain(m *testing.M) {
	components := append(component.Names(), component.SecondBridge, component.SecondWorker)
	os.Exit(rig.Main(m, stack.Options{Components: components}, func(up *rig.Rig) {
		r = up
		if err := r.Stack.Stop(context.Background(), component.SecondWorker); err != nil {
			// but for one test, a worker that dies has no other beside it
			panic(err)
		}
	}))
}

// size is how many machines a scale-up makes while something dies.
const size = 50

// slowly is a class whose creations take three seconds, so that many are in flight when a process dies.
const slowly = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"3s"}`

// weather has the behaviour of the cloud during a kill.
type weather struct {
	name        string
	tokens      bool
	staleness   time.Duration // age of what reads show
	accept      time.Duration // time for which a create request has no record at all
	faultyCloud bool          // rig.FaultyCloud
}

func (w weather) apply(t *testing.T, r *rig.Rig) {
	t.Helper()
	b := admin.DefaultBehaviour()
	b.ClientTokens, b.Staleness, b.AcceptLatency = w.tokens, virtual.Duration(w.staleness), virtual.Duration(w.accept)
	if w.faultyCloud {
		rig.FaultyCloud(&b)
	}
	require.NoError(t, r.Cloud.SetBehaviour(t.Context(), b))
	t.Cleanup(func() {
		if err := r.Cloud.SetBehaviour(context.WithoutCancel(t.Context()), admin.DefaultBehaviour()); err != nil {
			t.Error(err)
		}
	})
}

func stats(t *testing.T, r *rig.Rig) admin.Stats {
	t.Helper()
	s, err := r.Cloud.Stats(t.Context())
	require.NoError(t, err)
	return s
}

// midway waits until five creations are in progress, or ten are complete.
func midway(t *testing.T, r *rig.Rig, before admin.Stats) {
	t.Helper()
	rig.Eventually(t, "creations are in flight", func() (bool, any) {
		now := stats(t, r)
		return now.Creating >= 5 || now.Creates-before.Creates >= 10, now
	})
}

// exactly checks that the cloud made one instance for each machine, no more, and that the pool leaves nothing behind.
func exactly(t *testing.T, r *rig.Rig, pool *rig.Pool, before admin.Stats, size int) {
	t.Helper()
	pool.AwaitRunning(t, size)
	after := stats(t, r)
	require.Equal(t, size, after.Creates-before.Creates, "instances made")
	require.Equal(t, before.DuplicateCreates, after.DuplicateCreates, "instances made twice")
	require.Len(t, pool.Instances(t), size)
	pool.Delete(t)
	pool.AwaitGone(t)
}

func TestWorkerIsKilledWhileInstancesAreCreated(t *testing.T) {
	for i, w := range []weather{
		{"client tokens", true, 0, 0, false},
		{"client tokens and stale reads", true, 2 * time.Second, 0, false},
		{"no client tokens", false, 0, 0, false},
		{"no client tokens, stale reads, requests without a record, faultyCloud", false, 2 * time.Second, time.Second, true},
	} {
		t.Run("create side: "+w.name, func(t *testing.T) {
			name := fmt.Sprintf("worker-%d", i)
			w.apply(t, r)
			r.Namespace(t, name, slowly)
			before := stats(t, r)
			pool := r.Pool(t, name, name, size)
			midway(t, r, before)
			require.NoError(t, r.Stack.Kill(t.Context(), component.Worker))
			require.NoError(t, r.Stack.Start(t.Context(), component.Worker))
			exactly(t, r, pool, before, size)
		})
	}
}

func TestBridgeOrTemporalIsKilledWhileInstancesAreCreated(t *testing.T) {
	for _, component := range []string{component.Bridge, component.Temporal} {
		t.Run(component, func(t *testing.T) {
			name := "kill-" + component
			r.Namespace(t, name, slowly)
			before := stats(t, r)
			pool := r.Pool(t, name, name, size)
			midway(t, r, before)
			require.NoError(t, r.Stack.Kill(t.Context(), component))
			require.NoError(t, r.Stack.Start(t.Context(), component))
			exactly(t, r, pool, before, size)
		})
	}
}

// Of two bridges one leads; when it dies the other takes over, looks at everything, and nothing is made twice.
func TestLeaderOfTwoBridgesIsKilled(t *testing.T) {
	rig.Eventually(t, "one bridge leads", func() (bool, any) { return leader(t) != "", "none" })
	first := leader(t)
	r.Namespace(t, "leader", slowly)
	before := stats(t, r)
	pool := r.Pool(t, "leader", "leader", size)
	midway(t, r, before)
	require.NoError(t, r.Stack.Kill(t.Context(), first))
	second := map[string]string{component.Bridge: component.SecondBridge, component.SecondBridge: component.Bridge}[first]
	rig.Eventually(t, "the other bridge leads", func() (bool, any) {
		return r.Metric(t, second, "millwright_bridge_leader") == 1, "it does not"
	})
	exactly(t, r, pool, before, size)
	require.NoError(t, r.Stack.Start(t.Context(), first))
}

// machineCreations counts, in the API server's audit log, the Machines that were ever made in a namespace.
func machineCreations(t *testing.T, r *rig.Rig, namespace string) int {
	t.Helper()
	return len(r.Audit(t, func(a rig.Audited) bool {
		o := a.ObjectRef
		return a.Verb == "create" && o.Resource == "machines" && o.Namespace == namespace && o.Subresource == "" &&
			a.ResponseStatus.Code == 201
	}))
}
