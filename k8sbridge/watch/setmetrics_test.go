package watch_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/k8sbridge/watch"
	"millwright/observe/cache"
)

func TestD13_MetricsOfASet(t *testing.T) {
	s := &v1alpha1.MachineSet{}
	s.Namespace, s.Name, s.Spec.Replicas = "shop", "s", 5
	s.Status = v1alpha1.MachineSetStatus{Replicas: 4, FullyLabeledReplicas: 3, ReadyReplicas: 2, AvailableReplicas: 1}
	cluster, err := cache.NewCluster(fake.NewSimpleClientset(s), nil, nil)
	require.NoError(t, err)
	require.NoError(t, cluster.Start(t.Context()))
	registry := prometheus.NewRegistry()
	watch.NewSetMetrics(cluster, registry)
	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, family := range families {
		for _, sample := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range sample.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			require.Equal(t, map[string]string{"name": "s", "namespace": "shop"}, labels)
			got[family.GetName()] = sample.GetGauge().GetValue()
		}
	}
	require.Equal(t, map[string]float64{
		"mcm_machine_set_info_spec_replicas":             5,
		"mcm_machine_set_status_replicas":                4,
		"mcm_machine_set_status_fully_labelled_replicas": 3,
		"mcm_machine_set_status_ready_replicas":          2,
		"mcm_machine_set_status_available_replicas":      1,
	}, got)
}
