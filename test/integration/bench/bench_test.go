//go:build integration && bench

// Package bench measures: how long a scale-up takes, what it asks of the API server, and what it leaves in Temporal. It
// asserts counts, never times; the figures are in its output. `make bench` runs it alone, on an otherwise quiet machine.
package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/devstack/stack"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

var r *rig.Rig

func TestMain(m *testing.M) {
	os.Exit(rig.Main(m, stack.Options{Quiet: true}, func(up *rig.Rig) { r = up }))
}

func TestScaleUpFromNoneTo100(t *testing.T) {
	const size = 100
	r.Namespace(t, "bench", "")
	pool := r.Pool(t, "bench", "bench", 0)
	rig.Eventually(t, 20*time.Second, "the set exists", func() (bool, any) { return len(pool.Sets(t)) == 1, 0 })
	mark := auditSize(t)
	start := time.Now()
	pool.Scale(t, size)
	pool.AwaitRunning(t, size, 3*time.Minute)
	took := time.Since(start)
	counts := requests(t, mark)

	stats, err := r.Cloud.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, size, stats.Creates)
	require.Zero(t, stats.DuplicateCreates)

	total := 0
	for _, n := range counts {
		total += n
	}
	awaitCalm(t, pool)
	events, runs := 0, 0
	for _, w := range r.Workflows(t, fmt.Sprintf("WorkflowType = %q", run.KindMachine)) {
		events, runs = events+int(w.HistoryLength), runs+1
	}
	t.Logf("0 -> %d machines Running: %.1f s", size, took.Seconds())
	t.Logf("requests to the API server by worker and bridge: %.1f a machine (%d in all)", float64(total)/size, total)
	for _, what := range sorted(counts) {
		t.Logf("  %5d %s", counts[what], what)
	}
	t.Logf("Temporal events of Machine workflows: %.1f a machine (%d runs)", float64(events)/size, runs)
	start = time.Now()
	pool.Scale(t, 0)
	pool.AwaitRunning(t, 0, 3*time.Minute)
	t.Logf("%d -> 0 machines (empty nodes): %.1f s", size, time.Since(start).Seconds())
	pool.Delete(t)
	pool.AwaitGone(t, time.Minute)
}

// awaitCalm waits until nothing is left to do for any machine: what follows is not measured together with what came before.
func awaitCalm(t *testing.T, pool *rig.Pool) {
	t.Helper()
	rig.Eventually(t, time.Minute, "the machines are calm", func() (bool, any) {
		open := r.OpenWorkflows(t, pool.Namespace)
		return open["Machine"] == 0, open
	})
}

// auditSize is how long the audit log is.
func auditSize(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(r.Stack.AuditLog())
	require.NoError(t, err)
	return info.Size()
}

// requests counts what our processes asked of the API server, from a place in the audit log on.
func requests(t *testing.T, from int64) map[string]int {
	t.Helper()
	time.Sleep(2 * time.Second) // the log is written in batches
	file, err := os.Open(r.Stack.AuditLog())
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	_, err = file.Seek(from, 0)
	require.NoError(t, err)
	counts := map[string]int{}
	for decoder := json.NewDecoder(file); decoder.More(); {
		var event struct {
			Stage, Verb string
			User        struct{ Username string }
			ObjectRef   struct{ Resource, Subresource string }
		}
		if decoder.Decode(&event) != nil {
			break // its last line is being written
		}
		if strings.HasPrefix(event.User.Username, "millwright-") && event.Stage == "ResponseComplete" {
			counts[fmt.Sprintf("%s %s %s", event.User.Username, event.Verb, strings.TrimSuffix(event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/"))]++
		}
	}
	return counts
}

func sorted(counts map[string]int) []string {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	return names
}
