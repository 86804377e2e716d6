package serve

import "github.com/prometheus/client_golang/prometheus"

// NewHeartbeatGauge registers the metric of a worker's last heartbeat. Call NewHeartbeatGauge once per registry. If
// several workers run, each worker makes only some of the renewals, so use the maximum of the metric.
func NewHeartbeatGauge(registry prometheus.Registerer) prometheus.Gauge {
	heartbeat := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "millwright_worker_heartbeat_timestamp_seconds",
		Help: "When this worker last renewed the Lease millwright-worker, which it does while Temporal and the API server answer, in seconds since 1970; 0: never.",
	})
	registry.MustRegister(heartbeat)
	return heartbeat
}
