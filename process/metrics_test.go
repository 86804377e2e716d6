package process

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The SDK uses one metric name with different tags in different places; Prometheus rejects this.
func TestOneMetricMayHaveDifferentTags(t *testing.T) {
	registry := prometheus.NewRegistry()
	handler := NewTemporalMetrics(registry)
	handler.Counter("temporal_request").Inc(1)
	handler.WithTags(map[string]string{"operation": "PollWorkflowTaskQueue"}).Counter("temporal_request").Inc(2)
	handler.WithTags(map[string]string{"operation": "PollWorkflowTaskQueue"}).
		WithTags(map[string]string{"task_queue": "machines"}).
		Counter("temporal_request").
		Inc(3)
	handler.WithTags(map[string]string{"operation": "PollWorkflowTaskQueue", "client_name": "temporal_go", "workflow_type": "none"}).
		Counter("temporal_request").
		Inc(4)
	assert.Equal(t, strings.TrimSpace(`
# HELP temporal_request_total Temporal SDK: temporal request.
# TYPE temporal_request_total counter
temporal_request_total{activity_type="",cause="",failure_reason="",namespace="",operation="",poller_type="",status_code="",task_queue="",worker_type="",workflow_type=""} 1
temporal_request_total{activity_type="",cause="",failure_reason="",namespace="",operation="PollWorkflowTaskQueue",poller_type="",status_code="",task_queue="",worker_type="",workflow_type=""} 6
temporal_request_total{activity_type="",cause="",failure_reason="",namespace="",operation="PollWorkflowTaskQueue",poller_type="",status_code="",task_queue="machines",worker_type="",workflow_type=""} 3
`), scrapeMetrics(registry), "a tag that says nothing is as good as none, and WithTags leaves its handler as it was")
}

// scrapeMetrics returns the metrics in Prometheus' text format.
func scrapeMetrics(registry *prometheus.Registry) string {
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).
		ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return strings.TrimSpace(answer.Body.String())
}

func TestGaugesAndTimersAreExported(t *testing.T) {
	registry := prometheus.NewRegistry()
	handler := NewTemporalMetrics(registry).WithTags(map[string]string{"task_queue": "machines"})
	handler.Gauge("temporal_worker_task_slots_used").Update(7)
	handler.Gauge("temporal_worker_task_slots_used").Update(5)
	handler.Timer("temporal_activity_execution_latency").Record(1500 * time.Millisecond)
	handler.Timer("temporal_activity_execution_latency").Record(time.Hour)
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 2)
	assert.Equal(t, "temporal_activity_execution_latency_seconds", families[0].GetName())
	histogram := families[0].GetMetric()[0].GetHistogram()
	assert.Equal(t, uint64(2), histogram.GetSampleCount())
	assert.InDelta(t, 3601.5, histogram.GetSampleSum(), 0.001)
	assert.InDelta(t, 5, families[1].GetMetric()[0].GetGauge().GetValue(), 0, "the last value counts")
}

// If two metrics of different kinds have the same name, nothing panics, and the first metric stays registered.
func TestMetricNameWithTwoKindsDoesNotPanic(t *testing.T) {
	registry := prometheus.NewRegistry()
	handler := NewTemporalMetrics(registry)
	handler.Gauge("odd_total").Update(1)
	assert.NotPanics(t, func() { handler.Counter("odd").Inc(1) })
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
}

func TestTwoClientsShareARegistry(t *testing.T) {
	registry := prometheus.NewRegistry()
	NewTemporalMetrics(registry).Counter("temporal_request").Inc(1)
	NewTemporalMetrics(registry).Counter("temporal_request").Inc(1)
	families, err := registry.Gather()
	require.NoError(t, err)
	assert.InDelta(t, 2, families[0].GetMetric()[0].GetCounter().GetValue(), 0)
}

func TestTemporalMetricsAllowConcurrentUse(t *testing.T) {
	registry := prometheus.NewRegistry()
	handler := NewTemporalMetrics(registry)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for _, queue := range []string{"machines", "kubernetes", "provider-virtual"} {
				for range 50 {
					h := handler.WithTags(map[string]string{"task_queue": queue})
					h.Counter("c").Inc(1)
					h.Gauge("g").Update(1)
					h.Timer("t").Record(time.Second)
				}
			}
		})
	}
	group.Wait()
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 3)
	total := 0.0
	for _, m := range families[0].GetMetric() {
		total += m.GetCounter().GetValue()
	}
	assert.InDelta(t, 8*3*50, total, 0)
}

func BenchmarkCounter(b *testing.B) {
	handler := NewTemporalMetrics(prometheus.NewRegistry()).WithTags(map[string]string{"task_queue": "machines"})
	for b.Loop() {
		handler.Counter("c").Inc(1)
	}
}
