package fleet_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/k8sbridge/fleet"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
)

// The gauges count the Cluster API deployments and sets that Millwright reconciles, and their machines, but no
// others. A set of the other API group with the same name must not fail the scrape.
func TestGaugesCountClusterAPIObjects(t *testing.T) {
	says := func(kind string, status metav1.ConditionStatus, reason string, since metav1.Time) capitest.SetChange {
		return func(s *clusterv1.MachineSet) {
			s.Status.Conditions = append(
				s.Status.Conditions,
				metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: since},
			)
		}
	}
	s := capitest.NewSet(
		"s",
		5,
		says("ScalingDown", "True", "ScalingDown", timeAt(5)),
		says("Blocked", "True", "NodeDrain", timeAt(10)),
	)
	s.Status.Replicas, s.Status.ReadyReplicas, s.Status.AvailableReplicas = new(int32(4)), new(int32(3)), new(int32(2))
	calm := capitest.NewSet("calm", 0)
	calm.Spec.Replicas, calm.Status.Replicas = nil, new(int32(1))
	theirs := capitest.NewSet(
		"theirs",
		3,
		says("Blocked", "True", "Theirs", timeAt(1)),
		func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel] = "upstream" },
	)
	drained := capitest.NewMachine(
		"m-drained",
		s,
		capitest.WithConditionReason(
			clusterv1.MachineDeletingCondition,
			"True",
			clusterv1.MachineDeletingDrainingNodeReason,
			"",
		),
	)
	drained.DeletionTimestamp, drained.Status.Phase = new(timeAt(20)), "Deleting"
	pool := func(name string, replicas int32, available, progressing metav1.ConditionStatus, change ...capitest.DeploymentChange) *clusterv1.MachineDeployment {
		d := capitest.NewPreparedDeployment(replicas, change...)
		d.Name, d.UID = name, types.UID(name)
		d.Status.Conditions = []metav1.Condition{
			{Type: "Available", Status: available},
			{Type: "Progressing", Status: progressing},
		}
		return d
	}
	rolled := pool("rolled", 5, "False", "True", func(d *clusterv1.MachineDeployment) {
		d.Status.Replicas = new(int32(6))
		d.Status.ReadyReplicas = new(int32(4))
		d.Status.AvailableReplicas = new(int32(3))
		d.Status.UpToDateReplicas = new(int32(2))
	})
	late := pool("late", 1, "True", "False")
	paused := pool("paused", 0, "Unknown", "Unknown", func(d *clusterv1.MachineDeployment) { d.Spec.Paused = new(true) })
	upstream := pool(
		"upstream",
		7,
		"False",
		"False",
		func(d *clusterv1.MachineDeployment) { d.Labels[clusterv1.WatchLabel] = "upstream" },
	)
	server := capitest.NewFakeServer(
		rolled,
		late,
		paused,
		upstream,
		s,
		calm,
		theirs,
		capitest.NewMachine("m", s),
		drained,
		capitest.NewMachine("theirs", theirs),
		capitest.NewMachine("new", calm, func(m *clusterv1.Machine) { m.Status.Phase = "" }),
	)

	ours := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: capitest.Namespace, Name: "s"}}
	cluster, err := cache.NewCluster(fake.NewSimpleClientset(ours), nil, nil)
	require.NoError(t, err)
	api, err := capi.WatchObjects(t.Context(), cluster, server.Client, capitest.DefaultSettings)
	require.NoError(t, err)
	require.NoError(t, cluster.Start(t.Context()))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(fleet.NewGaugeCollector(cluster, api))
	of := func(prefix string) map[string]float64 {
		got := map[string]float64{}
		for name, v := range scrapeMetrics(t, registry) {
			if rest, has := strings.CutPrefix(name, prefix); has {
				got[rest] = v
			}
		}
		return got
	}
	assert.Equal(t, map[string]float64{
		"set_items{cluster=c,namespace=shop}":                      2,
		"set_spec_replicas{cluster=c,namespace=shop}":              5,
		"set_status_replicas{cluster=c,namespace=shop}":            5,
		"set_status_ready_replicas{cluster=c,namespace=shop}":      3,
		"set_status_available_replicas{cluster=c,namespace=shop}":  2,
		"set_status_up_to_date_replicas{cluster=c,namespace=shop}": 0,
		"machines{phase=Running}":                                  1,
		"machines{phase=Deleting}":                                 1,
		"machines{phase=None}":                                     1,

		"deployment_items{cluster=c,namespace=shop}":                      3,
		"deployment_paused_items{cluster=c,namespace=shop}":               1,
		"deployment_unavailable_items{cluster=c,namespace=shop}":          1,
		"deployment_late_items{cluster=c,namespace=shop}":                 1,
		"deployment_spec_replicas{cluster=c,namespace=shop}":              6,
		"deployment_status_replicas{cluster=c,namespace=shop}":            6,
		"deployment_status_ready_replicas{cluster=c,namespace=shop}":      4,
		"deployment_status_available_replicas{cluster=c,namespace=shop}":  3,
		"deployment_status_up_to_date_replicas{cluster=c,namespace=shop}": 2,
	}, of("millwright_cluster_api_"))
	start := float64(timeAt(0).Unix())
	assert.Equal(t, map[string]float64{
		"objects{kind=ClusterAPISet,reason=NodeDrain}":                            1,
		"objects{kind=ClusterAPIMachine,reason=NodeDrain}":                        1,
		"oldest_start_timestamp_seconds{kind=ClusterAPISet,reason=NodeDrain}":     start + 10,
		"oldest_start_timestamp_seconds{kind=ClusterAPIMachine,reason=NodeDrain}": start + 20,
	}, of("millwright_blocked_"))
	assert.Equal(t, map[string]float64{
		"{kind=ClusterAPISet,reason=NodeDrain,step=delete-machines}": 1,
		"{kind=ClusterAPIMachine,reason=NodeDrain,step=drain}":       1,
	}, of("millwright_operations_open"))
	assert.Equal(t, map[string]float64{"{}": 1}, of("mcm_machine_set_items_total"))
}
