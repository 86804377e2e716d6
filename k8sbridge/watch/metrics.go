package watch

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts received events and sent signals. Use NewMetrics to create Metrics.
type Metrics struct {
	events                 *prometheus.CounterVec
	signals                *prometheus.CounterVec
	evaluationsWithoutWork *prometheus.CounterVec
	signalFailures         *prometheus.CounterVec
}

// NewMetrics registers the bridge's metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		registry.MustRegister(c)
		return c
	}
	return &Metrics{
		events:  counter("millwright_bridge_events_total", "Events received from the API server.", "resource"),
		signals: counter("millwright_bridge_signals_total", "Signals sent to workflows.", "kind"),
		evaluationsWithoutWork: counter(
			"millwright_bridge_calm_total",
			"Evaluations that sent no signal: the object was calm.",
			"kind",
		),
		signalFailures: counter(
			"millwright_bridge_signal_failures_total",
			"Signals that Temporal did not take; each is tried again.",
			"kind",
		),
	}
}

// NewLeaderGauge registers the gauge that reports whether this bridge is the leader. Call NewLeaderGauge once per
// registry.
func NewLeaderGauge(registry prometheus.Registerer) prometheus.Gauge {
	leading := prometheus.NewGauge(
		prometheus.GaugeOpts{
			Name: "millwright_bridge_leader",
			Help: "1 while this process is the leader; with several shards, while it is the bridge of shard 0.",
		},
	)
	registry.MustRegister(leading)
	return leading
}
