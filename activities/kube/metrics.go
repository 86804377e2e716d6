package kube

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millwright/decide/drain"
)

// Metrics are the metrics of activities. The zero Metrics counts nothing.
type Metrics struct {
	factReads        *prometheus.CounterVec
	drainDurations   *prometheus.HistogramVec
	blockedPods      *prometheus.GaugeVec
	evictionRequests *prometheus.CounterVec
	orphanSweeps     *prometheus.CounterVec
	collectedOrphans *prometheus.CounterVec
	reconciles       *prometheus.CounterVec
	reconcileTimes   *prometheus.HistogramVec
}

// NewMetrics registers the metrics. Call NewMetrics once per registry.
func NewMetrics(registry prometheus.Registerer) Metrics {
	m := Metrics{
		factReads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millwright_fact_reads_total",
			Help: "Reads of facts before a decision or a write, by freshness: cached; live, because it must be; behind: the caches were too old, " +
				"and a regular activity reads again; late: the caches were still too old, so live; rewound: the API server was restored.",
		}, []string{"freshness"}),
		drainDurations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "millwright_drain_duration_seconds", Help: "Duration of drains, by result.",
			// The buckets range from the drain of an empty node to twice the default timeout.
			Buckets: []float64{1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400},
		}, []string{"result"}),
		blockedPods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millwright_drain_blocked_pods",
			Help: "Pods that cannot leave the nodes that this worker drains now, by kind of blocker.",
		}, []string{"reason"}),
		evictionRequests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millwright_drain_requests_total", Help: "Requests to evict or delete a pod, by means and by result.",
		}, []string{"means", "result"}),
		orphanSweeps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millwright_orphan_sweeps_total",
			Help: "Sweeps for instances that no Machine claims, by result: clean, collected, held or failed.",
		}, []string{"namespace", "class", "result"}),
		collectedOrphans: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millwright_orphans_collected_total", Help: "Instances deleted because no Machine claimed them.",
		}, []string{"namespace", "class"}),
		reconciles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capi_reconcile_total",
			Help: "Decisions about objects of Cluster API, by result: success or error. The controller is machineset or machinedeployment.",
		}, []string{"controller", "result"}),
		reconcileTimes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "capi_reconcile_time_seconds",
			Help: "Duration of decisions about objects of Cluster API. The writes that follow a decision are activities of their own.",
			// The buckets are Cluster API's buckets below the timeout of a decision.
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
		}, []string{"controller"}),
	}
	registry.MustRegister(
		m.factReads,
		m.drainDurations,
		m.blockedPods,
		m.evictionRequests,
		m.orphanSweeps,
		m.collectedOrphans,
		m.reconciles,
		m.reconcileTimes,
	)
	return m
}

func (m Metrics) countFactRead(freshness string) {
	if m.factReads != nil {
		m.factReads.WithLabelValues(freshness).Inc()
	}
}

// CountDrain counts a drain that has ended.
func (m Metrics) CountDrain(result string, took time.Duration) {
	if m.drainDurations != nil {
		m.drainDurations.WithLabelValues(result).Observe(took.Seconds())
	}
}

// CountEvictionRequest counts a request to evict or delete a pod.
func (m Metrics) CountEvictionRequest(a drain.RequestAnswer) {
	if m.evictionRequests != nil {
		m.evictionRequests.WithLabelValues(string(a.Means), string(a.Result)).Inc()
	}
}

// CountSweep counts a sweep for orphans, and the instances that the sweep deleted.
func (m Metrics) CountSweep(class Ref, result string, deleted int) {
	if m.orphanSweeps != nil {
		m.orphanSweeps.WithLabelValues(class.Namespace, class.Name, result).Inc()
		m.collectedOrphans.WithLabelValues(class.Namespace, class.Name).Add(float64(deleted))
	}
}

// CountReconcile counts a decision about an object of Cluster API, under the names of Cluster API's metrics. The
// controller is machineset or machinedeployment.
func (m Metrics) CountReconcile(controller string, took time.Duration, err error) {
	if m.reconciles == nil {
		return
	}
	result := "success"
	if err != nil {
		result = "error"
	}
	m.reconciles.WithLabelValues(controller, result).Inc()
	m.reconcileTimes.WithLabelValues(controller).Observe(took.Seconds())
}

// UpdateBlockedPods replaces the blockers of one drain in the metric.
func (m Metrics) UpdateBlockedPods(before, now []drain.Blocker) {
	if m.blockedPods == nil {
		return
	}
	for _, b := range before {
		m.blockedPods.WithLabelValues(b.Kind).Sub(float64(b.Pods))
	}
	for _, b := range now {
		m.blockedPods.WithLabelValues(b.Kind).Add(float64(b.Pods))
	}
}
