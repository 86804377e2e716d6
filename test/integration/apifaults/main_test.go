// Tier: test-all. Package apifaults injects faults only between Millwright's processes and the API server; package
// kills tests the most important kills of processes.

//go:build integration

// Package apifaults shows that an API server that refuses requests, does not answer, or sends watch events late delays
// Millwright and causes no other harm.
package apifaults

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/checker"
	"millwright/test/integration/rig"
)

var testRig *rig.Rig

func TestMain(m *testing.M) {
	components := append(component.Names(), component.SecondBridge)
	os.Exit(rig.MainBehindProxies(m, stack.Options{Components: components}, func(up *rig.Rig) { testRig = up }))
}

// startNamespaceChecker starts a checker for a namespace. The returned function fails the test if there was a
// violation, or if a workflow run failed, timed out or was terminated.
func startNamespaceChecker(t *testing.T, namespace string) (verify func()) {
	t.Helper()
	sources := checker.Clients{
		MachineClient: testRig.MachineClient,
		Kube:          testRig.Kube,
		Cloud:         testRig.Cloud,
		Temporal:      testRig.Temporal,
	}
	watcher := checker.NewWatcher(sources, namespace, checker.SizeBounds{})
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go watcher.Run(ctx)
	return func() {
		t.Helper()
		durable, err := watcher.ReadWorkflowState(ctx)
		require.NoError(t, err)
		watcher.AddRunViolations(durable)
		violations, snapshots := watcher.Violations()
		require.NotZero(t, snapshots)
		require.Empty(t, violations)
	}
}

func cloudStats(t *testing.T) admin.Stats {
	t.Helper()
	s, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	return s
}

// requireCreateCount requires that the cloud has created n instances since the statistics in before, and has created no
// instance twice.
func requireCreateCount(t *testing.T, before admin.Stats, n int) {
	t.Helper()
	after := cloudStats(t)
	require.Equal(t, n, after.CreatedInstances-before.CreatedInstances, "instances made")
	require.Equal(t, before.DuplicateInstances, after.DuplicateInstances, "instances made twice")
}

// phasesByMachineUID returns the phase of each machine of a pool.
func phasesByMachineUID(t *testing.T, p *rig.Pool) map[types.UID]v1alpha1.MachinePhase {
	t.Helper()
	all := map[types.UID]v1alpha1.MachinePhase{}
	for _, m := range p.Machines(t) {
		all[m.UID] = m.Status.CurrentStatus.Phase
	}
	return all
}

// requireFaults logs which faults worker and bridge met, and fails the test if worker or bridge did not meet each fault
// in names.
func requireFaults(t *testing.T, names ...string) {
	t.Helper()
	requireFaultsOfProcess(t, "worker", testRig.Proxies.Worker.FaultCounts(), names)
	requireFaultsOfProcess(t, "bridge", testRig.Proxies.Bridge.FaultCounts(), names)
}

// requireFaultsOfProcess logs which faults a process met, and fails the test if the process did not meet each fault in
// names.
func requireFaultsOfProcess(t *testing.T, who string, counts map[string]int, names []string) {
	t.Helper()
	t.Logf("faults of the %s so far: %v", who, counts)
	for _, name := range names {
		require.Positive(t, counts[name], "no fault %q of the %s: the test shows nothing", name, who)
	}
}
