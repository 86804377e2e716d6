// Tier: none. It measures, and compares with nothing: make bench, make fleet.

//go:build integration && (bench || endurance)

// Package bench measures loads on the real stack: how long each takes, what it asks of the API server, how much
// processor time each process needs, and what it leaves in Temporal. It asserts counts, never times. `make bench` runs
// it, on an otherwise quiet machine. At its end it prints a table, writes it to the file BENCH_OUT as JSON, and
// compares it with the file BENCH_BASE.
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
	r       *rig.Rig
	options = stack.Options{Quiet: true}
	report  = bench.New(os.Getenv("BENCH_COMMIT"))
)

func TestMain(m *testing.M) {
	code := rig.Main(m, options, func(up *rig.Rig) { r = up })
	if len(report.Loads) > 0 {
		if err := show(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// show prints the report, writes it and compares it with an earlier one.
func show() error {
	fmt.Printf("\n%s\n", report.Table())
	if base := os.Getenv("BENCH_BASE"); base != "" {
		before, err := bench.Read(base)
		if err != nil {
			return err
		}
		fmt.Println(report.Compare(before))
	}
	if out := os.Getenv("BENCH_OUT"); out != "" {
		return report.Write(out)
	}
	return nil
}

// measure does a load and adds it to the report with its time, its requests and its processor time. The returned load
// may be completed by the caller.
func measure(t *testing.T, load bench.Load, do func()) *bench.Load {
	t.Helper()
	offset, before, used := auditSize(t), processors(t), share(t)
	start := time.Now()
	do()
	load.Seconds = time.Since(start).Seconds()
	logShare(t, used, load.Seconds)
	load.CPU = processors(t)
	for name, used := range load.CPU {
		if used >= before[name] { // less: the process has started again
			load.CPU[name] -= before[name]
		}
	}
	load.Memory = memory(t)
	load.Requests = requests(t, offset)
	report.Loads = append(report.Loads, load)
	l := &report.Loads[len(report.Loads)-1]
	t.Logf(
		"%s: %.1f s, %.1f requests a machine (%d), %.1f s of processor time",
		l.Name,
		l.Seconds,
		l.PerMachine(),
		l.All(),
		l.Processors(),
	)
	return l
}

// processors returns the seconds of processor time of each process of the stack since its start.
func processors(t *testing.T) map[string]float64 {
	t.Helper()
	list, err := r.Stack.Status(t.Context())
	require.NoError(t, err)
	used := map[string]float64{}
	for _, c := range list {
		used[c.Name] = c.CPU.Seconds()
	}
	return used
}

// memory returns the resident memory of each process of the stack, in MiB.
func memory(t *testing.T) map[string]float64 {
	t.Helper()
	list, err := r.Stack.Status(t.Context())
	require.NoError(t, err)
	used := map[string]float64{}
	for _, c := range list {
		if c.Memory > 0 {
			used[c.Name] = float64(c.Memory) / (1 << 20)
		}
	}
	return used
}

// events returns how many events the workflows of a namespace have in their histories, a machine.
func events(t *testing.T, namespace string, machines int) float64 {
	t.Helper()
	n := 0
	for _, w := range r.Workflows(t, fmt.Sprintf("MachineNamespace = %q", namespace)) {
		n += int(w.HistoryLength)
	}
	return float64(n) / float64(machines)
}

// awaitCalm waits until no machine has work left. The next measurement then does not contain work of the load before.
func awaitCalm(t *testing.T, pool *rig.Pool) {
	t.Helper()
	rig.Eventually(t, "the machines are calm", func() (bool, any) {
		open := r.OpenWorkflows(t, pool.Namespace)
		return open["Machine"] == 0, open
	})
}

// auditSize returns the size of the audit log in bytes.
func auditSize(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(r.Stack.AuditLog())
	require.NoError(t, err)
	return info.Size()
}

// requests counts the requests of worker and bridge to the API server, from an offset in the audit log on.
func requests(t *testing.T, from int64) map[string]int {
	t.Helper()
	time.Sleep(2 * time.Second) // the log is written in batches
	file, err := os.Open(r.Stack.AuditLog())
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
			break // its last line is being written
		}
		if user, ours := strings.CutPrefix(event.User.Username, "millwright-"); ours && event.Stage == "ResponseComplete" {
			counts[fmt.Sprintf("%s %s %s", user, event.Verb, strings.TrimSuffix(event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/"))]++
		}
	}
	return counts
}

// bounded returns a context that ends before the test's own.
func bounded(t *testing.T, most time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	t.Cleanup(cancel)
	return ctx
}
