package bench_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/test/bench"
)

func TestReportIsSavedFormattedAndCompared(t *testing.T) {
	t.Parallel()
	before := bench.Report{Commit: "abc", Time: time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC), Loads: []bench.LoadResult{
		{
			Name:          "0 -> 100",
			MachineCount:  100,
			Seconds:       10,
			RequestCounts: map[string]int{"worker get secrets": 300, "worker create events": 1200},
			CPUSeconds:    map[string]float64{"worker": 4, "etcd": 1},
			Targets: []bench.Target{
				{Figure: bench.FigureSeconds, Value: 5},
				{Figure: bench.FigureRequestsPerMachine, Value: 10},
				{Figure: bench.FigureRequestsPerMinute, Value: 4500},
			},
			EventsPerMachine: 40,
		},
		{
			Name:          "rolling",
			MachineCount:  100,
			Seconds:       33,
			IdealSeconds:  30,
			Targets:       []bench.Target{{Figure: bench.FigureRatioToIdeal, Value: 1.08}},
			RequestCounts: map[string]int{"worker get secrets": 2000},
			EventCounts:   map[string]int{"timers": 200, "events": 3000},
			MemoryMiB: map[string]float64{
				"worker": 90,
				"bridge": 120.4,
			},
			MaxPayloadBytes: map[string]int{"ActivityTaskCompleted DecideSet": 9000},
			Intervals: []bench.Interval{
				bench.NewInterval(
					"made -> Running",
					[]time.Duration{3 * time.Second, 5 * time.Second, 4 * time.Second},
					2*time.Second,
				),
			},
		},
	}}
	file := filepath.Join(t.TempDir(), "report.json")
	require.NoError(t, before.Write(file))
	read, err := bench.ReadReport(file)
	require.NoError(t, err)
	assert.Equal(t, before, read)

	lines := strings.Split(before.FormatTable(), "\n")
	assert.Equal(
		t,
		strings.Fields(
			"0 -> 100 10.0 15.0 9000 5.0 40.0 - 2.00 of 5 seconds; 1.50 of 10 requests a machine; 2.00 of 4500 requests a minute",
		),
		strings.Fields(lines[1]),
	)
	assert.Equal(
		t,
		strings.Fields("rolling 33.0 20.0 3636 0.0 - 1.10 1.02 of 1.08 x critical path"),
		strings.Fields(lines[2]),
	)
	assert.Equal(t, []string{
		"worker create events 1200 12.00 a machine",
		"worker get secrets 300 3.00 a machine",
		"CPU of worker 4.0 s",
		"CPU of etcd 1.0 s",
	}, []string{collapseSpaces(lines[5]), collapseSpaces(lines[6]), collapseSpaces(lines[7]), collapseSpaces(lines[8])}, "the largest first")
	assert.Contains(
		t,
		collapseSpaces(before.FormatTable()),
		"in Temporal: events 3000 30.00 a machine in Temporal: timers 200 2.00 a machine",
	)
	assert.Contains(
		t,
		collapseSpaces(before.FormatTable()),
		"made -> Running median 2.00 s nine of ten 3.00 s, 99 of 100 3.00 s, 3 times",
	)
	assert.Contains(
		t,
		collapseSpaces(before.FormatTable()),
		"memory of bridge 120 MiB memory of worker 90 MiB largest payload of ActivityTaskCompleted DecideSet 9000 bytes",
	)

	now := bench.Report{
		Loads: []bench.LoadResult{
			{Name: "0 -> 100", MachineCount: 100, Seconds: 5, RequestCounts: map[string]int{"worker create events": 750}},
			{Name: "new", MachineCount: 1},
		},
	}
	lines = strings.Split(now.CompareWithReport(before), "\n")
	assert.Equal(t, "As multiples of the report of 2026-11-26T03:00:00Z at commit abc:", lines[0])
	assert.Equal(t, "0 -> 100 0.50 0.50 - -", collapseSpaces(lines[2]))
	assert.Len(t, lines, 4, "a load that the other report lacks is left out")
	assert.Equal(t, "The two reports have no load in common.\n", now.CompareWithReport(bench.Report{}))
}

func collapseSpaces(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestReadReportErrors(t *testing.T) {
	t.Parallel()
	_, err := bench.ReadReport(filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "read report")
}
