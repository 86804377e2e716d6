package watch

import (
	"github.com/prometheus/client_golang/prometheus"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// Metrics count what the bridge receives and sends. Make them with NewMetrics.
type Metrics struct {
	events   *prometheus.CounterVec
	signals  *prometheus.CounterVec
	calm     *prometheus.CounterVec
	failures *prometheus.CounterVec
}

// NewMetrics registers the bridge's metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		registry.MustRegister(c)
		return c
	}
	return &Metrics{
		events:   counter("millwright_bridge_events_total", "Events received from the API server.", "resource"),
		signals:  counter("millwright_bridge_signals_total", "Signals sent to workflows.", "kind"),
		calm:     counter("millwright_bridge_calm_total", "Evaluations that sent no signal: the object was calm.", "kind"),
		failures: counter("millwright_bridge_signal_failures_total", "Signals that Temporal did not take; each is tried again.", "kind"),
	}
}

// setMetrics are gauges of the sets in a cluster's caches.
type setMetrics struct {
	cluster *cache.Cluster
	gauges  map[*prometheus.Desc]func(*v1alpha1.MachineSet) int32
}

// NewSetMetrics registers gauges of the sets in a cluster's caches, with the names that machine-controller-manager uses. They
// are read at each scrape. Call it once for each registry.
func NewSetMetrics(cluster *cache.Cluster, registry prometheus.Registerer) {
	m := setMetrics{cluster: cluster, gauges: map[*prometheus.Desc]func(*v1alpha1.MachineSet) int32{}}
	gauge := func(name, help string, value func(*v1alpha1.MachineSet) int32) {
		m.gauges[prometheus.NewDesc("mcm_machine_set_"+name, help, []string{"name", "namespace"}, nil)] = value
	}
	gauge("info_spec_replicas", "Machines that are wanted.", func(s *v1alpha1.MachineSet) int32 { return s.Spec.Replicas })
	gauge("status_replicas", "Machines, those that are being deleted included.", func(s *v1alpha1.MachineSet) int32 { return s.Status.Replicas })
	gauge("status_fully_labelled_replicas", "Machines with all labels of the template.", func(s *v1alpha1.MachineSet) int32 { return s.Status.FullyLabeledReplicas })
	gauge("status_ready_replicas", "Machines whose node is ready.", func(s *v1alpha1.MachineSet) int32 { return s.Status.ReadyReplicas })
	gauge("status_available_replicas", "Machines that have been ready for minReadySeconds.", func(s *v1alpha1.MachineSet) int32 { return s.Status.AvailableReplicas })
	registry.MustRegister(m)
}

// Describe implements prometheus.Collector.
func (m setMetrics) Describe(descs chan<- *prometheus.Desc) {
	for desc := range m.gauges {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (m setMetrics) Collect(metrics chan<- prometheus.Metric) {
	for _, item := range m.cluster.Informer(cache.Sets).GetStore().List() {
		set := item.(*v1alpha1.MachineSet)
		for desc, value := range m.gauges {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value(set)), set.Name, set.Namespace)
		}
	}
}
