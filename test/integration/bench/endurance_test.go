//go:build integration && endurance

package bench

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/bench"
	"millwright/test/integration/rig"
)

// Node Leases last an hour, because Quiet's shorter Leases would load the API server more than Millwright does. The
// second worker and the second bridge run only in the last load.
func init() {
	stackOptions.NodeLeaseDuration = time.Hour
	stackOptions.Components = append(component.Names(), component.SecondWorker, component.SecondBridge)
}

const (
	fleetNamespace = "crowd" // namespace of the fleet
	// machines per deployment; the rolled deployment and the last deployment may have fewer
	machinesPerDeployment = 1000
	rolledMachineCount    = 100       // machines of the deployment that is rolled
	maxPayloadBytes       = 256 << 10 // Temporal's warning threshold for a payload in bytes; the limit is 8 times larger
	// maximum number of requests of worker and bridge per minute while a fleet of any size is idle. Of these requests,
	// 8 renew Leases (docs/adr/0088-few-renewals.md), and the others renew watches
	maxIdleRequestsPerMinute = 40
)

// TestEnduranceTenThousandMachines creates a fleet in steps. TestEnduranceTenThousandMachines measures the idle
// fleet, a restart of the bridge, and a rollout of a deployment with 100 machines. Then the test measures a second
// rollout with two workers and two bridges, and kills one worker and one bridge during this rollout. ENDURANCE_MACHINES
// sets another size of the fleet. The machines exist until the stack ends.
func TestEnduranceTenThousandMachines(t *testing.T) {
	size, err := strconv.Atoi(cmp.Or(os.Getenv("ENDURANCE_MACHINES"), "10000"))
	require.NoError(t, err)
	require.Greater(t, size, rolledMachineCount)
	for _, second := range []string{component.SecondWorker, component.SecondBridge} {
		require.NoError(t, testRig.Stack.StopComponent(t.Context(), second))
	}
	testRig.CreateNamespace(t, fleetNamespace, "")
	rolled := addDeployment(t, "rolled", 0, rolledMachineCount)
	deployments := 1
	for there := rolledMachineCount; there < size; deployments++ {
		n := min(machinesPerDeployment, size-there)
		addDeployment(t, fmt.Sprint("pool-", deployments), there, n)
		there += n
	}
	awaitSettledPool(t, rolled)
	among := fmt.Sprintf("among %d machines", size)

	time.Sleep(30 * time.Second) // wait for late status writes and for the ends of runs
	rest := measureLoad(
		t,
		bench.LoadResult{Name: "at rest, " + among, MachineCount: size},
		func() { time.Sleep(3 * time.Minute) },
	)
	require.LessOrEqual(t, rest.RequestsPerMinute(), float64(maxIdleRequestsPerMinute), "requests a minute")
	require.Empty(t, testRig.CountOpenRuns(t, fleetNamespace)["Machine"], "open runs of machines")

	measureLoad(t, bench.LoadResult{Name: "the bridge starts again, " + among, MachineCount: size}, func() {
		require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Bridge))
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.Bridge))
		rig.Eventually(t, "the bridge has looked at all objects", func() (bool, any) {
			looked := testRig.ReadMetric(t, component.Bridge, "millwright_bridge_calm_total") +
				testRig.ReadMetric(t, component.Bridge, "millwright_bridge_signals_total")
			return int(looked) >= size+2*deployments, looked // all machines, and a set and its deployment for each pool
		})
	})
	require.LessOrEqual(
		t,
		testRig.ReadMetric(t, component.Bridge, "millwright_bridge_signals_total"),
		float64(deployments),
		"signals to objects that are calm",
	)

	// the requests in these 30 s do not belong to the rollout
	measureLoad(
		t,
		bench.LoadResult{Name: "the 30 s after that, " + among, MachineCount: size},
		func() { time.Sleep(30 * time.Second) },
	)

	measureRolloutInFleet(t, rolled, "2", among, size, func() {})
	for _, second := range []string{component.SecondWorker, component.SecondBridge} {
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), second))
	}
	time.Sleep(30 * time.Second) // wait until the caches of the second worker and the second bridge are filled
	last := measureRolloutInFleet(t, rolled, "3", among+", a worker and a bridge of two each die", size, func() {
		rig.Eventually(t, "a third is of the new template", func() (bool, any) {
			n := rolled.Deployment(t).Status.UpdatedReplicas
			return n >= rolledMachineCount/3, n
		})
		for _, first := range []string{component.Worker, component.Bridge} {
			require.NoError(t, testRig.Stack.KillComponent(t.Context(), first))
		}
	})

	// the checks at the end of the stack need worker and bridge
	for _, first := range []string{component.Worker, component.Bridge} {
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), first))
	}

	last.MaxPayloadBytes = testRig.LargestPayloadSizes(t)
	for kind, bytes := range last.MaxPayloadBytes {
		require.LessOrEqual(t, bytes, maxPayloadBytes, kind)
	}
}

// measureRolloutInFleet measures the rollout of one deployment of the fleet, and calls meanwhile after it has changed
// the template. The test fails unless exactly one instance is created per machine.
func measureRolloutInFleet(
	t *testing.T,
	pool *rig.Pool,
	edition, among string,
	size int,
	meanwhile func(),
) *bench.LoadResult {
	t.Helper()
	before, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	f := fleet{namespace: fleetNamespace, size: rolledMachineCount}
	load := measureLoad(
		t,
		bench.LoadResult{
			Name:         fmt.Sprintf("rolling %d, surge 10, %s", rolledMachineCount, among),
			MachineCount: rolledMachineCount,
		},
		func() {
			pool.Patch(t, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"edition":%q}}}}}`, edition))
			meanwhile()
			f.awaitRolloutEnd(t, pool)
		},
	)
	rig.Eventually(
		t,
		"the rollout has ended",
		func() (bool, any) {
			open := testRig.CountOpenRuns(t, fleetNamespace)
			return open["Rollout"] == 0, open
		},
	)
	after, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, rolledMachineCount, after.CreatedInstances-before.CreatedInstances, "instances for the new template")
	require.Equal(t, before.DuplicateInstances, after.DuplicateInstances)
	require.Equal(t, size, after.LiveInstances, "instances")
	return load
}

// addDeployment creates a deployment of n machines and waits until all of them are available.
func addDeployment(t *testing.T, name string, there, n int) *rig.Pool {
	t.Helper()
	pool := testRig.CreatePool(t, fleetNamespace, name, 0, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{
				MaxSurge: new(intstr.FromInt32(10)), MaxUnavailable: new(intstr.FromInt32(0)),
			},
		}
	})
	measureLoad(t, bench.LoadResult{Name: fmt.Sprintf("%d -> %d", there, there+n), MachineCount: n}, func() {
		pool.Scale(t, n)
		fleet{size: n}.awaitRolloutEnd(t, pool)
	})
	return pool
}
