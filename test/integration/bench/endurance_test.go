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

// Leases of an hour: those of Quiet alone would keep the API server busier than Millwright does. The second worker and
// the second bridge run only in the last load.
func init() {
	options.NodeLease = time.Hour
	options.Components = append(component.Names(), component.SecondWorker, component.SecondBridge)
}

const (
	crowded       = "crowd"   // the namespace
	perDeployment = 1000      // machines of each deployment but two
	rolledAmong   = 100       // machines of the deployment that is rolled
	largest       = 256 << 10 // bytes of a payload. Source: Temporal warns from there on, and refuses eight times as much
	// requests of worker and bridge a minute, whatever the fleet. Source: 8 for leases (docs/adr/0088-few-renewals.md),
	// and watches that are renewed
	restless = 40
)

// TestEndurance_TenThousandMachines makes a fleet in steps, and measures what it costs at rest, when the bridge starts
// again, when a deployment of 100 is rolled in it, and when that is done by two workers and two bridges of which one
// each dies. ENDURANCE_MACHINES is another size. Its machines stay until the stack ends.
func TestEndurance_TenThousandMachines(t *testing.T) {
	size, err := strconv.Atoi(cmp.Or(os.Getenv("ENDURANCE_MACHINES"), "10000"))
	require.NoError(t, err)
	require.Greater(t, size, rolledAmong)
	for _, second := range []string{component.SecondWorker, component.SecondBridge} {
		require.NoError(t, r.Stack.Stop(t.Context(), second))
	}
	r.Namespace(t, crowded, "")
	rolled := crowd(t, "rolled", 0, rolledAmong)
	deployments := 1
	for there := rolledAmong; there < size; deployments++ {
		n := min(perDeployment, size-there)
		crowd(t, fmt.Sprint("pool-", deployments), there, n)
		there += n
	}
	awaitCalm(t, rolled)
	among := fmt.Sprintf("among %d machines", size)

	time.Sleep(30 * time.Second) // statuses that are written late, and runs that end
	rest := measure(t, bench.Load{Name: "at rest, " + among, Machines: size}, func() { time.Sleep(3 * time.Minute) })
	require.LessOrEqual(t, rest.PerMinute(), float64(restless), "requests a minute")
	require.Empty(t, r.OpenWorkflows(t, crowded)["Machine"], "open runs of machines")

	measure(t, bench.Load{Name: "the bridge starts again, " + among, Machines: size}, func() {
		require.NoError(t, r.Stack.Kill(t.Context(), component.Bridge))
		require.NoError(t, r.Stack.Start(t.Context(), component.Bridge))
		rig.Eventually(t, "the bridge has looked at all objects", func() (bool, any) {
			looked := r.Metric(t, component.Bridge, "millwright_bridge_calm_total") +
				r.Metric(t, component.Bridge, "millwright_bridge_signals_total")
			return int(looked) >= size+2*deployments, looked // machines, sets, deployments
		})
	})
	require.LessOrEqual(
		t,
		r.Metric(t, component.Bridge, "millwright_bridge_signals_total"),
		float64(deployments),
		"signals to objects that are calm",
	)

	// not a part of the rollout
	measure(t, bench.Load{Name: "the 30 s after that, " + among, Machines: size}, func() { time.Sleep(30 * time.Second) })

	rollAmong(t, rolled, "2", among, size, func() {})
	for _, second := range []string{component.SecondWorker, component.SecondBridge} {
		require.NoError(t, r.Stack.Start(t.Context(), second))
	}
	time.Sleep(30 * time.Second) // their caches fill
	last := rollAmong(t, rolled, "3", among+", a worker and a bridge of two each die", size, func() {
		rig.Eventually(t, "a third is of the new template", func() (bool, any) {
			n := rolled.Deployment(t).Status.UpdatedReplicas
			return n >= rolledAmong/3, n
		})
		for _, first := range []string{component.Worker, component.Bridge} {
			require.NoError(t, r.Stack.Kill(t.Context(), first))
		}
	})

	for _, first := range []string{component.Worker, component.Bridge} { // for what is looked at when the stack ends
		require.NoError(t, r.Stack.Start(t.Context(), first))
	}

	last.Payloads = r.LargestPayloads(t)
	for kind, bytes := range last.Payloads {
		require.LessOrEqual(t, bytes, largest, kind)
	}
}

// rollAmong rolls a deployment out among others, while something else happens, and measures that. Each machine gets one
// new instance.
func rollAmong(t *testing.T, pool *rig.Pool, edition, among string, size int, meanwhile func()) *bench.Load {
	t.Helper()
	before, err := r.Cloud.Stats(t.Context())
	require.NoError(t, err)
	f := fleet{namespace: crowded, size: rolledAmong}
	load := measure(
		t,
		bench.Load{Name: fmt.Sprintf("rolling %d, surge 10, %s", rolledAmong, among), Machines: rolledAmong},
		func() {
			pool.Patch(t, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"edition":%q}}}}}`, edition))
			meanwhile()
			f.awaitRolled(t, pool)
		},
	)
	rig.Eventually(
		t,
		"the rollout has ended",
		func() (bool, any) { open := r.OpenWorkflows(t, crowded); return open["Rollout"] == 0, open },
	)
	after, err := r.Cloud.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, rolledAmong, after.Creates-before.Creates, "instances for the new template")
	require.Equal(t, before.DuplicateCreates, after.DuplicateCreates)
	require.Equal(t, size, after.Live, "instances")
	return load
}

// crowd makes a deployment of n machines and waits until all of them are available.
func crowd(t *testing.T, name string, there, n int) *rig.Pool {
	t.Helper()
	pool := r.Pool(t, crowded, name, 0, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{
				MaxSurge: new(intstr.FromInt32(10)), MaxUnavailable: new(intstr.FromInt32(0)),
			},
		}
	})
	measure(t, bench.Load{Name: fmt.Sprintf("%d -> %d", there, there+n), Machines: n}, func() {
		pool.Scale(t, n)
		fleet{size: n}.awaitRolled(t, pool)
	})
	return pool
}
