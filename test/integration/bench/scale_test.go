//go:build integration && bench

package bench

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"

	"millwright/test/bench"
	"millwright/test/integration/rig"
)

func TestScale100Machines(t *testing.T)  { measureScaling(t, 100, 5, 5) }
func TestScale500Machines(t *testing.T)  { measureScaling(t, 500, 22, 16) }
func TestScale1000Machines(t *testing.T) { measureScaling(t, 1000, 44, 0) }

// measureScaling measures how a pool of empty nodes is scaled from 0 to size machines, and back to 0. The parameters up
// and down are the target times in seconds; 0 means no target.
func measureScaling(t *testing.T, size int, up, down float64) {
	namespace := fmt.Sprintf("scale-%d", size)
	testRig.CreateNamespace(t, namespace, "")
	pool := testRig.CreatePool(t, namespace, "pool", 0)
	rig.Eventually(t, "the set exists", func() (bool, any) { return len(pool.Sets(t)) == 1, 0 })
	before, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	load := bench.LoadResult{
		Name:         fmt.Sprintf("0 -> %d", size),
		MachineCount: size,
		Targets: []bench.Target{
			{Figure: bench.FigureSeconds, Value: up},
			{Figure: bench.FigureRequestsPerMachine, Value: 9},
		},
	}
	var start time.Time
	grown := measureLoad(t, load, func() {
		start = time.Now()
		scalePoolAndAwait(t, pool, size)
	})
	grown.Intervals = append(grown.Intervals, measureCreationDelays(t, pool, start))
	stats, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, size, stats.CreatedInstances-before.CreatedInstances)
	require.Equal(t, before.DuplicateInstances, stats.DuplicateInstances)
	awaitSettledPool(t, pool)
	histories := testRig.MachineHistories(t, namespace)
	grown.EventsPerMachine = eventsPerMachine(t, namespace, size)
	grown.Intervals = append(grown.Intervals, taskWaitTimes(histories)...)
	grown.EventCounts = countHistoryEvents(histories)
	load = bench.LoadResult{Name: fmt.Sprintf("%d -> 0, empty nodes", size), MachineCount: size}
	if down != 0 {
		load.Targets = []bench.Target{{Figure: bench.FigureSeconds, Value: down}}
	}
	shrunk := measureLoad(t, load, func() {
		scalePoolAndAwait(t, pool, 0)
	})
	awaitSettledPool(t, pool)
	later := testRig.MachineHistories(t, namespace)
	maps.DeleteFunc(later, func(run string, _ *historypb.History) bool { return histories[run] != nil })
	shrunk.Intervals, shrunk.EventCounts = taskWaitTimes(later), countHistoryEvents(later)
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}

// measureCreationDelays returns the times from start to the creation of each Machine object of a pool. The API server
// stores creation times in whole seconds.
func measureCreationDelays(t *testing.T, pool *rig.Pool, start time.Time) bench.Interval {
	t.Helper()
	var after []time.Duration
	for _, m := range pool.Machines(t) {
		after = append(after, m.CreationTimestamp.Sub(start))
	}
	return bench.NewInterval("from the new size to a Machine object", after, 0)
}

// TestIdle500Machines measures the requests and the processor time for 500 idle machines. The requests include the
// Lease renewals of worker and bridge.
func TestIdle500Machines(t *testing.T) {
	const size, took = 500, 3 * time.Minute
	testRig.CreateNamespace(t, "idle", "")
	pool := testRig.CreatePool(t, "idle", "pool", size)
	pool.AwaitRunningMachines(t, size)
	awaitSettledPool(t, pool)
	time.Sleep(30 * time.Second) // wait for late status writes and for the ends of runs
	measureLoad(
		t,
		bench.LoadResult{
			Name:         "500 at rest",
			MachineCount: size,
			Targets:      []bench.Target{{Figure: bench.FigureRequestsPerMinute, Value: 10}},
		},
		func() { time.Sleep(took) },
	)
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}
