package process

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
)

// temporalTagNames returns all tags that the SDK uses in any metric. The SDK uses one metric name with different sets
// of tags, which Prometheus rejects. Therefore every metric gets all tags, except client_name, which contains no
// information.
func temporalTagNames() []string {
	return []string{
		"namespace", "task_queue", "worker_type", "workflow_type", "activity_type", "poller_type", "operation", "status_code",
		"failure_reason", "cause",
	}
}

// temporalMetrics registers the SDK's metrics with Prometheus. Counters get the suffix _total; timers become histograms
// in seconds.
type temporalMetrics struct {
	registry prometheus.Registerer
	// cache of the metrics by name: the SDK requests the metric for each count, and creating a metric is expensive
	metricsByName *sync.Map
	labels        prometheus.Labels
}

// NewTemporalMetrics returns a metrics handler for a Temporal client.
func NewTemporalMetrics(registry prometheus.Registerer) client.MetricsHandler {
	labels := prometheus.Labels{}
	for _, name := range temporalTagNames() {
		labels[name] = ""
	}
	return &temporalMetrics{registry: registry, metricsByName: &sync.Map{}, labels: labels}
}

// WithTags returns a handler whose metrics also have these tags.
func (m *temporalMetrics) WithTags(tags map[string]string) client.MetricsHandler {
	labels := make(prometheus.Labels, len(m.labels))
	for name, value := range m.labels {
		labels[name] = value
		if tag, set := tags[name]; set && tag != "none" {
			labels[name] = tag
		}
	}
	return &temporalMetrics{registry: m.registry, metricsByName: m.metricsByName, labels: labels}
}

func (m *temporalMetrics) Counter(name string) client.MetricsCounter {
	v := getOrCreateMetric(m, name+"_total", func(full string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: full, Help: metricHelp(name)}, temporalTagNames())
	})
	c := v.With(m.labels)
	return counterFunc(func(n int64) { c.Add(float64(n)) })
}

func (m *temporalMetrics) Gauge(name string) client.MetricsGauge {
	v := getOrCreateMetric(m, name, func(full string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: full, Help: metricHelp(name)}, temporalTagNames())
	})
	return gaugeFunc(v.With(m.labels).Set)
}

func (m *temporalMetrics) Timer(name string) client.MetricsTimer {
	v := getOrCreateMetric(m, name+"_seconds", func(full string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: full, Help: metricHelp(name), Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), // from 1 ms to 262 s
		}, temporalTagNames())
	})
	h := v.With(m.labels)
	return timerFunc(func(d time.Duration) { h.Observe(d.Seconds()) })
}

type (
	counterFunc func(int64)
	gaugeFunc   func(float64)
	timerFunc   func(time.Duration)
)

func (c counterFunc) Inc(n int64)          { c(n) }
func (g gaugeFunc) Update(v float64)       { g(v) }
func (t timerFunc) Record(d time.Duration) { t(d) }

func metricHelp(name string) string {
	return "Temporal SDK: " + strings.ReplaceAll(name, "_", " ") + "."
}

// getOrCreateMetric returns the metric of a name. The first call creates and registers the metric.
func getOrCreateMetric[V prometheus.Collector](m *temporalMetrics, name string, create func(name string) V) V {
	if known, ok := m.metricsByName.Load(name); ok {
		if v, ok := known.(V); ok {
			return v
		}
	}
	v := registerOnce(m.registry, create(name))
	m.metricsByName.LoadOrStore(name, v)
	return v
}

// registerOnce registers a collector, or returns the existing collector with the same name.
func registerOnce[C prometheus.Collector](registry prometheus.Registerer, c C) C {
	err := registry.Register(c)
	if known, ok := err.(prometheus.AlreadyRegisteredError); ok { //nolint:errorlint // documented to be returned as it is
		if old, ok := known.ExistingCollector.(C); ok {
			return old
		}
	}
	return c
}
