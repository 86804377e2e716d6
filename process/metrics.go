package process

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
)

// temporalLabels is the union of the tags that the SDK uses. The SDK uses different sets of tags for one name, which
// Prometheus refuses, so every metric gets all of them. client_name is left out, because it has no information.
func temporalLabels() []string {
	return []string{
		"namespace", "task_queue", "worker_type", "workflow_type", "activity_type", "poller_type", "operation", "status_code",
		"failure_reason", "cause",
	}
}

// temporalMetrics registers the SDK's metrics with Prometheus: counters get the suffix _total, timers become histograms
// in seconds.
type temporalMetrics struct {
	registry prometheus.Registerer
	vectors  *sync.Map // by name; the SDK asks for a metric each time that it counts, and creating one is not cheap
	labels   prometheus.Labels
}

// NewTemporalMetrics returns a metrics handler for a Temporal client.
func NewTemporalMetrics(registry prometheus.Registerer) client.MetricsHandler {
	labels := prometheus.Labels{}
	for _, name := range temporalLabels() {
		labels[name] = ""
	}
	return &temporalMetrics{registry: registry, vectors: &sync.Map{}, labels: labels}
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
	return &temporalMetrics{registry: m.registry, vectors: m.vectors, labels: labels}
}

func (m *temporalMetrics) Counter(name string) client.MetricsCounter {
	v := vector(m, name+"_total", func(full string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: full, Help: help(name)}, temporalLabels())
	})
	c := v.With(m.labels)
	return counter(func(n int64) { c.Add(float64(n)) })
}

func (m *temporalMetrics) Gauge(name string) client.MetricsGauge {
	v := vector(m, name, func(full string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: full, Help: help(name)}, temporalLabels())
	})
	return gauge(v.With(m.labels).Set)
}

func (m *temporalMetrics) Timer(name string) client.MetricsTimer {
	v := vector(m, name+"_seconds", func(full string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: full, Help: help(name), Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), // 1 ms to 262 s
		}, temporalLabels())
	})
	h := v.With(m.labels)
	return timer(func(d time.Duration) { h.Observe(d.Seconds()) })
}

type (
	counter func(int64)
	gauge   func(float64)
	timer   func(time.Duration)
)

func (c counter) Inc(n int64)          { c(n) }
func (g gauge) Update(v float64)       { g(v) }
func (t timer) Record(d time.Duration) { t(d) }

func help(name string) string { return "Temporal SDK: " + strings.ReplaceAll(name, "_", " ") + "." }

// vector returns the metric of a name; it creates and registers the metric on the first call.
func vector[V prometheus.Collector](m *temporalMetrics, name string, create func(name string) V) V {
	if known, ok := m.vectors.Load(name); ok {
		if v, ok := known.(V); ok {
			return v
		}
	}
	v := register(m.registry, create(name))
	m.vectors.LoadOrStore(name, v)
	return v
}

// register registers a collector, or returns the one that has this name already.
func register[C prometheus.Collector](registry prometheus.Registerer, c C) C {
	err := registry.Register(c)
	if known, ok := err.(prometheus.AlreadyRegisteredError); ok { //nolint:errorlint // documented to be returned as it is
		if old, ok := known.ExistingCollector.(C); ok {
			return old
		}
	}
	return c
}
