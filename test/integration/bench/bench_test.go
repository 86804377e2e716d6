// Tier: none. The package only measures; `make bench` and `make fleet` run it.

//go:build integration && (bench || endurance)

// Package bench measures loads on the real stack: the duration of each load, its requests to the API server, the
// processor time of each process, and the events in Temporal. The tests of the package assert counts, never times. Run
// `make bench` on an otherwise idle computer. After the tests, the package prints a table, writes the table as JSON to
// the file that BENCH_OUT names, and compares the table with the file that BENCH_BASE names.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/devstack/stack"
	"millwright/test/bench"
	"millwright/test/integration/rig"
)

var (
	testRig      *rig.Rig
	stackOptions = stack.Options{UseLongLeases: true}
	report       = bench.New(os.Getenv("BENCH_COMMIT"))
)

func TestMain(m *testing.M) {
	code := rig.Main(m, stackOptions, func(up *rig.Rig) { testRig = up })
	if len(report.Loads) > 0 {
		if err := writeReport(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// writeReport prints the report, writes it to BENCH_OUT, and compares it with the earlier report in BENCH_BASE.
func writeReport() error {
	fmt.Printf("\n%s\n", report.FormatTable())
	if base := os.Getenv("BENCH_BASE"); base != "" {
		before, err := bench.ReadReport(base)
		if err != nil {
			return err
		}
		fmt.Println(report.CompareWithReport(before))
	}
	if out := os.Getenv("BENCH_OUT"); out != "" {
		return report.Write(out)
	}
	return nil
}

// measureLoad calls do, measures its duration, requests and processor time, and adds the result to the report. The
// caller may add values to the returned load.
func measureLoad(t *testing.T, load bench.LoadResult, do func()) *bench.LoadResult {
	t.Helper()
	offset, before, used := auditLogBytes(t), cpuSecondsByProcess(t), priorityLevelMetrics(t)
	start := time.Now()
	do()
	load.Seconds = time.Since(start).Seconds()
	logPriorityLevelSeats(t, used, load.Seconds)
	load.CPUSeconds = cpuSecondsByProcess(t)
	for name, used := range load.CPUSeconds {
		if used >= before[name] { // a smaller value means that the process has restarted
			load.CPUSeconds[name] -= before[name]
		}
	}
	load.MemoryMiB = memoryMiBByProcess(t)
	load.RequestCounts = countRequests(t, offset)
	report.Loads = append(report.Loads, load)
	l := &report.Loads[len(report.Loads)-1]
	t.Logf(
		"%s: %.1f s, %.1f requests a machine (%d), %.1f s of processor time",
		l.Name,
		l.Seconds,
		l.RequestsPerMachine(),
		l.TotalRequests(),
		l.TotalCPUSeconds(),
	)
	return l
}

// cpuSecondsByProcess returns the processor time of each process of the stack since its start, in seconds.
func cpuSecondsByProcess(t *testing.T) map[string]float64 {
	t.Helper()
	list, err := testRig.Stack.Status(t.Context())
	require.NoError(t, err)
	used := map[string]float64{}
	for _, c := range list {
		used[c.Name] = c.CPUTime.Seconds()
	}
	return used
}

// memoryMiBByProcess returns the resident memory of each process of the stack, in MiB.
func memoryMiBByProcess(t *testing.T) map[string]float64 {
	t.Helper()
	list, err := testRig.Stack.Status(t.Context())
	require.NoError(t, err)
	used := map[string]float64{}
	for _, c := range list {
		if c.MemoryBytes > 0 {
			used[c.Name] = float64(c.MemoryBytes) / (1 << 20)
		}
	}
	return used
}

// eventsPerMachine returns the number of history events of all workflows of a namespace, divided by the number of
// machines.
func eventsPerMachine(t *testing.T, namespace string, machines int) float64 {
	t.Helper()
	n := 0
	for _, w := range testRig.WorkflowRuns(t, fmt.Sprintf("MachineNamespace = %q", namespace)) {
		n += int(w.HistoryLength)
	}
	return float64(n) / float64(machines)
}

// awaitSettledPool waits until no machine has an open run. The next measurement then does not include work of the
// previous load.
func awaitSettledPool(t *testing.T, pool *rig.Pool) {
	t.Helper()
	rig.Eventually(t, "the machines are calm", func() (bool, any) {
		open := testRig.CountOpenRuns(t, pool.Namespace)
		return open["Machine"] == 0, open
	})
}

// auditLogBytes returns the size of the audit log in bytes.
func auditLogBytes(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(testRig.Stack.AuditLogPath())
	require.NoError(t, err)
	return info.Size()
}

// countRequests counts the requests of worker and bridge to the API server in the audit log, beginning at an offset.
func countRequests(t *testing.T, from int64) map[string]int {
	t.Helper()
	time.Sleep(2 * time.Second) // the API server writes the log in batches
	file, err := os.Open(testRig.Stack.AuditLogPath())
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	_, err = file.Seek(from, io.SeekStart)
	require.NoError(t, err)
	counts := map[string]int{}
	for decoder := json.NewDecoder(file); decoder.More(); {
		var event struct {
			Stage, Verb string
			User        struct{ Username string }
			ObjectRef   struct{ Resource, Subresource string }
		}
		if decoder.Decode(&event) != nil {
			break // the last line of the log may be incomplete
		}
		if user, ours := strings.CutPrefix(event.User.Username, "millwright-"); ours && event.Stage == "ResponseComplete" {
			counts[fmt.Sprintf("%s %s %s", user, event.Verb, strings.TrimSuffix(event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/"))]++
		}
	}
	return counts
}

// contextWithTimeout returns a context that is cancelled after the duration most, or when the test ends.
func contextWithTimeout(t *testing.T, most time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	t.Cleanup(cancel)
	return ctx
}
