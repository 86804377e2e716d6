package watch

import (
	"github.com/prometheus/client_golang/prometheus"

	"millwright/api/v1alpha1"
	"millwright/observe"
)

// SetMetrics are gauges of the sets in a cluster's caches, with the names that machine-controller-manager gave them.
type SetMetrics struct {
	cluster *observe.Cluster
	gauges  []setGauge
}

// setGauge is one number of a set.
type setGauge struct {
	desc  *prometheus.Desc
	value func(*v1alpha1.MachineSet) int32
}

// NewSetMetrics makes the gauges and registers them. They are read from the caches at each scrape. Call it once for a registry.
func NewSetMetrics(cluster *observe.Cluster, registry prometheus.Registerer) {
	m := &SetMetrics{cluster: cluster}
	for _, g := range []struct {
		name, help string
		value      func(*v1alpha1.MachineSet) int32
	}{
		{"info_spec_replicas", "Machines that are wanted.", func(s *v1alpha1.MachineSet) int32 { return s.Spec.Replicas }},
		{"status_replicas", "Machines, those that are being deleted included.", func(s *v1alpha1.MachineSet) int32 { return s.Status.Replicas }},
		{"status_fully_labelled_replicas", "Machines with all labels of the template.", func(s *v1alpha1.MachineSet) int32 { return s.Status.FullyLabeledReplicas }},
		{"status_ready_replicas", "Machines whose node is ready.", func(s *v1alpha1.MachineSet) int32 { return s.Status.ReadyReplicas }},
		{"status_available_replicas", "Machines that have been ready for minReadySeconds.", func(s *v1alpha1.MachineSet) int32 { return s.Status.AvailableReplicas }},
	} {
		m.gauges = append(m.gauges, setGauge{prometheus.NewDesc("mcm_machine_set_"+g.name, g.help, []string{"name", "namespace"}, nil), g.value})
	}
	registry.MustRegister(m)
}

// Describe does as the interface says.
func (m *SetMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, g := range m.gauges {
		descs <- g.desc
	}
}

// Collect does as the interface says.
func (m *SetMetrics) Collect(metrics chan<- prometheus.Metric) {
	for _, item := range m.cluster.Informer(observe.Sets).GetStore().List() {
		set := item.(*v1alpha1.MachineSet)
		for _, g := range m.gauges {
			metrics <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.value(set)), set.Name, set.Namespace)
		}
	}
}
