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

func TestScaleHundred(t *testing.T)     { scale(t, 100, 5, 5) }
func TestScaleFiveHundred(t *testing.T) { scale(t, 500, 22, 16) }
func TestScaleThousand(t *testing.T)    { scale(t, 1000, 44, 0) }

// scale measures how a pool of empty nodes grows from none to a size, and back; up and down are aims in seconds, zero
// for none.
func scale(t *testing.T, size int, up, down float64) {
	namespace := fmt.Sprintf("scale-%d", size)
	r.Namespace(t, namespace, "")
	pool := r.Pool(t, namespace, "pool", 0)
	rig.Eventually(t, "the set exists", func() (bool, any) { return len(pool.Sets(t)) == 1, 0 })
	before, err := r.Cloud.Stats(t.Context())
	require.NoError(t, err)
	load := bench.Load{
		Name:     fmt.Sprintf("0 -> %d", size),
		Machines: size,
		Bars:     []bench.Bar{{Of: bench.Seconds, Aim: up}, {Of: bench.Requests, Aim: 9}},
	}
	var start time.Time
	grown := measure(t, load, func() {
		start = time.Now()
		grow(t, pool, size)
	})
	grown.Hops = append(grown.Hops, created(t, pool, start))
	stats, err := r.Cloud.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, size, stats.Creates-before.Creates)
	require.Equal(t, before.DuplicateCreates, stats.DuplicateCreates)
	awaitCalm(t, pool)
	histories := r.Histories(t, namespace)
	grown.Events = events(t, namespace, size)
	grown.Hops = append(grown.Hops, waits(histories)...)
	grown.Kept = kept(histories)
	load = bench.Load{Name: fmt.Sprintf("%d -> 0, empty nodes", size), Machines: size}
	if down != 0 {
		load.Bars = []bench.Bar{{Of: bench.Seconds, Aim: down}}
	}
	shrunk := measure(t, load, func() {
		grow(t, pool, 0)
	})
	awaitCalm(t, pool)
	later := r.Histories(t, namespace)
	maps.DeleteFunc(later, func(run string, _ *historypb.History) bool { return histories[run] != nil })
	shrunk.Hops, shrunk.Kept = waits(later), kept(later)
	pool.Delete(t)
	pool.AwaitGone(t)
}

// created returns after how many seconds the Machine objects of a pool were created. The API server writes whole
// seconds.
func created(t *testing.T, pool *rig.Pool, start time.Time) bench.Hop {
	t.Helper()
	var after []time.Duration
	for _, m := range pool.Machines(t) {
		after = append(after, m.CreationTimestamp.Sub(start))
	}
	return bench.HopOf("from the new size to a Machine object", after, 0)
}

// TestIdle500 measures what machines that run cost while nothing changes. The leases of worker and bridge are counted,
// too.
func TestIdle500(t *testing.T) {
	const size, took = 500, 3 * time.Minute
	r.Namespace(t, "idle", "")
	pool := r.Pool(t, "idle", "pool", size)
	pool.AwaitRunning(t, size)
	awaitCalm(t, pool)
	time.Sleep(30 * time.Second) // statuses that are written late, and runs that end
	measure(
		t,
		bench.Load{Name: "500 at rest", Machines: size, Bars: []bench.Bar{{Of: bench.Minute, Aim: 10}}},
		func() { time.Sleep(took) },
	)
	pool.Delete(t)
	pool.AwaitGone(t)
}
