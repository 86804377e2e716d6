// Tier: test-all. Package kills tests one kill of each process, and this package tests all other moments and faults.

//go:build integration

// Package chaos shows that no machine is made twice or lost if any process dies.
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

var testRig *rig.Rig

func TestMain(m *testing.M) {
	components := append(component.Names(), component.SecondBridge, component.SecondWorker)
	os.Exit(rig.Main(m, stack.Options{Components: components}, func(up *rig.Rig) {
		testRig = up
		if err := testRig.Stack.StopComponent(context.Background(), component.SecondWorker); err != nil {
			// the second worker stops here, because only one test needs two workers
			panic(err)
		}
	}))
}

// scaleUpSize is the number of machines that a scale-up creates while a process dies.
const scaleUpSize = 50

// slowProviderSpec is the provider spec of a class whose creations take three seconds, so that many creations are in
// progress when a process dies.
const slowProviderSpec = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"3s"}`

// cloudBehaviour is the behaviour of the cloud during a kill.
type cloudBehaviour struct {
	name                  string
	usesClientTokens      bool
	readStaleness         time.Duration // age of the state that reads return
	createVisibilityDelay time.Duration // time for which reads do not show a create request
	isFaulty              bool          // use rig.MakeCloudFaulty
}

func (w cloudBehaviour) applyBehaviour(t *testing.T, r *rig.Rig) {
	t.Helper()
	b := admin.DefaultBehaviour()
	b.HonorClientTokens, b.ReadStaleness, b.AcceptLatency = w.usesClientTokens, virtual.Duration(
		w.readStaleness,
	), virtual.Duration(
		w.createVisibilityDelay,
	)
	if w.isFaulty {
		rig.MakeCloudFaulty(&b)
	}
	require.NoError(t, r.Cloud.SetBehaviour(t.Context(), b))
	t.Cleanup(func() {
		if err := r.Cloud.SetBehaviour(context.WithoutCancel(t.Context()), admin.DefaultBehaviour()); err != nil {
			t.Error(err)
		}
	})
}

func cloudStats(t *testing.T, r *rig.Rig) admin.Stats {
	t.Helper()
	s, err := r.Cloud.Stats(t.Context())
	require.NoError(t, err)
	return s
}

// awaitCreationsInFlight waits until five create calls are in progress, or ten instances are created.
func awaitCreationsInFlight(t *testing.T, r *rig.Rig, before admin.Stats) {
	t.Helper()
	rig.Eventually(t, "creations are in flight", func() (bool, any) {
		now := cloudStats(t, r)
		return now.PendingCreates >= 5 || now.CreatedInstances-before.CreatedInstances >= 10, now
	})
}

// requireOneInstancePerMachine checks that the cloud made exactly one instance for each machine. Then
// requireOneInstancePerMachine deletes the pool, and checks that all objects of the pool are gone.
func requireOneInstancePerMachine(t *testing.T, r *rig.Rig, pool *rig.Pool, before admin.Stats, size int) {
	t.Helper()
	pool.AwaitRunningMachines(t, size)
	after := cloudStats(t, r)
	require.Equal(t, size, after.CreatedInstances-before.CreatedInstances, "instances made")
	require.Equal(t, before.DuplicateInstances, after.DuplicateInstances, "instances made twice")
	require.Len(t, pool.ProviderIDs(t), size)
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}

func TestWorkerIsKilledWhileInstancesAreCreated(t *testing.T) {
	for i, w := range []cloudBehaviour{
		{"client tokens", true, 0, 0, false},
		{"client tokens and stale reads", true, 2 * time.Second, 0, false},
		{"no client tokens", false, 0, 0, false},
		{"no client tokens, stale reads, requests without a record, faultyCloud", false, 2 * time.Second, time.Second, true},
	} {
		t.Run("create side: "+w.name, func(t *testing.T) {
			name := fmt.Sprintf("worker-%d", i)
			w.applyBehaviour(t, testRig)
			testRig.CreateNamespace(t, name, slowProviderSpec)
			before := cloudStats(t, testRig)
			pool := testRig.CreatePool(t, name, name, scaleUpSize)
			awaitCreationsInFlight(t, testRig, before)
			require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Worker))
			require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.Worker))
			requireOneInstancePerMachine(t, testRig, pool, before, scaleUpSize)
		})
	}
}

func TestBridgeOrTemporalIsKilledWhileInstancesAreCreated(t *testing.T) {
	for _, component := range []string{component.Bridge, component.Temporal} {
		t.Run(component, func(t *testing.T) {
			name := "kill-" + component
			testRig.CreateNamespace(t, name, slowProviderSpec)
			before := cloudStats(t, testRig)
			pool := testRig.CreatePool(t, name, name, scaleUpSize)
			awaitCreationsInFlight(t, testRig, before)
			require.NoError(t, testRig.Stack.KillComponent(t.Context(), component))
			require.NoError(t, testRig.Stack.StartComponent(t.Context(), component))
			requireOneInstancePerMachine(t, testRig, pool, before, scaleUpSize)
		})
	}
}

// Two bridges run, and one of them is the leader. When the leader is killed, the other bridge becomes the leader and
// checks all objects. No instance is created twice.
func TestLeaderOfTwoBridgesIsKilled(t *testing.T) {
	rig.Eventually(t, "one bridge leads", func() (bool, any) { return leadingBridge(t) != "", "none" })
	first := leadingBridge(t)
	testRig.CreateNamespace(t, "leader", slowProviderSpec)
	before := cloudStats(t, testRig)
	pool := testRig.CreatePool(t, "leader", "leader", scaleUpSize)
	awaitCreationsInFlight(t, testRig, before)
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), first))
	second := map[string]string{component.Bridge: component.SecondBridge, component.SecondBridge: component.Bridge}[first]
	rig.Eventually(t, "the other bridge leads", func() (bool, any) {
		return testRig.ReadMetric(t, second, "millwright_bridge_leader") == 1, "it does not"
	})
	requireOneInstancePerMachine(t, testRig, pool, before, scaleUpSize)
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), first))
}

// countMachineCreations reads from the API server's audit log how many Machines of a namespace were ever created.
func countMachineCreations(t *testing.T, r *rig.Rig, namespace string) int {
	t.Helper()
	return len(r.AuditedRequests(t, func(a rig.AuditedRequest) bool {
		o := a.ObjectRef
		return a.Verb == "create" && o.Resource == "machines" && o.Namespace == namespace && o.Subresource == "" &&
			a.ResponseStatus.Code == 201
	}))
}
