//go:build integration && (bench || endurance)

package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// priorityLevelMetrics returns the flow-control metrics of the API server for Millwright's priority level since the API
// server's start, by the name of the metric. Times are in seconds.
func priorityLevelMetrics(t *testing.T) map[string]float64 {
	t.Helper()
	text, err := testRig.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	sums := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, "{")
		labels, value, found := strings.Cut(rest, "} ")
		if name, ours := strings.CutPrefix(name, "apiserver_flowcontrol_"); ours && found &&
			strings.Contains(labels, `priority_level="millwright"`) {
			var n float64
			_, err := fmt.Sscan(value, &n)
			require.NoError(t, err)
			sums[name] += n
		}
	}
	return sums
}

// logPriorityLevelSeats logs how many seats of the priority level were used since the metrics in before. A request
// occupies a seat while the API server serves the request.
func logPriorityLevelSeats(t *testing.T, before map[string]float64, seconds float64) {
	t.Helper()
	now := priorityLevelMetrics(t)
	since := func(name string) float64 { return now[name] - before[name] }
	executed := since("request_execution_seconds_sum")
	requests := max(since("request_execution_seconds_count"), 1)
	t.Logf(
		"share at the API server: %.0f requests, %.1f ms each after a wait of %.1f ms; on average %.1f of %.0f seats; %.0f requests refused",
		requests,
		executed/requests*1000,
		since("request_wait_duration_seconds_sum")/requests*1000,
		executed/seconds,
		now["nominal_limit_seats"],
		since("rejected_requests_total"),
	)
}
