package fleet_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/k8sbridge/fleet"
	"millwright/observe/cache"
)

// timeAt returns a time that is the given number of seconds after a fixed start time.
func timeAt(seconds int64) metav1.Time { return metav1.Unix(1_700_000_000+seconds, 0) }

// filledCaches returns caches that contain the given objects.
func filledCaches(t *testing.T, objects ...runtime.Object) (*cache.Cluster, *fake.Clientset) {
	t.Helper()
	client := fake.NewSimpleClientset(objects...)
	cluster, err := cache.NewCluster(client, nil, nil)
	require.NoError(t, err)
	require.NoError(t, cluster.Start(t.Context()))
	return cluster, client
}

// scrapeMetrics returns the samples of a registry as name{label="value",…}, in the order of the labels. A histogram's
// value is its count.
func scrapeMetrics(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	samples := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue() // a sample is a gauge, a counter or a histogram
			value += float64(m.GetHistogram().GetSampleCount())
			samples[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = value
		}
	}
	return samples
}

// scrapeGauges returns the samples of the gauges for these objects whose names start with prefix. scrapeGauges removes
// the prefix.
func scrapeGauges(t *testing.T, prefix string, objects ...runtime.Object) map[string]float64 {
	t.Helper()
	cluster, _ := filledCaches(t, objects...)
	registry := prometheus.NewPedanticRegistry() // a pedantic registry compares the samples with the result of Describe
	registry.MustRegister(fleet.NewGaugeCollector(cluster, nil))
	got := map[string]float64{}
	for name, v := range scrapeMetrics(t, registry) {
		if rest, has := strings.CutPrefix(name, prefix); has {
			got[rest] = v
		}
	}
	return got
}

func TestMachineSetMetricsAreExported(t *testing.T) {
	s := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s", CreationTimestamp: timeAt(0)}}
	s.Spec.Replicas, s.Spec.MinReadySeconds = 5, 7
	s.Spec.Template.Spec.Class = v1alpha1.ClassSpec{APIGroup: "machine.sapcloud.io", Kind: "MachineClass", Name: "small"}
	failed := v1alpha1.MachineSummary{
		Name:          "m",
		ProviderID:    "cloud:///m",
		OwnerRef:      "s",
		LastOperation: v1alpha1.LastOperation{State: "Failed", Type: "Create"},
	}
	s.Status = v1alpha1.MachineSetStatus{
		Replicas: 4, FullyLabeledReplicas: 3, ReadyReplicas: 2, AvailableReplicas: 1,
		FailedMachines: []v1alpha1.MachineSummary{failed, failed},
		Conditions: []v1alpha1.MachineSetCondition{
			{Type: v1alpha1.MachineSetFrozen, Status: v1alpha1.ConditionTrue},
			{Type: v1alpha1.MachineSetMachinesReady, Status: v1alpha1.ConditionFalse},
			{Type: v1alpha1.MachineSetScalingUp, Status: v1alpha1.ConditionUnknown},
		},
	}
	assert.Equal(t, map[string]float64{
		"items_total{}": 1,
		"info{createdAt=1700000000,name=s,namespace=shop,spec_machine_class_api_group=machine.sapcloud.io,spec_machine_class_kind=MachineClass,spec_machine_class_name=small}": 1,
		"info_spec_replicas{name=s,namespace=shop}":                       5,
		"info_spec_min_ready_seconds{name=s,namespace=shop}":              7,
		"status_replicas{name=s,namespace=shop}":                          4,
		"status_fully_labelled_replicas{name=s,namespace=shop}":           3,
		"status_ready_replicas{name=s,namespace=shop}":                    2,
		"status_available_replicas{name=s,namespace=shop}":                1,
		"status_condition{condition=Frozen,name=s,namespace=shop}":        1,
		"status_condition{condition=MachinesReady,name=s,namespace=shop}": 0,
		"status_condition{condition=ScalingUp,name=s,namespace=shop}":     2,
		"failed_machines{failed_machine_last_operation_machine_operation_type=Create,failed_machine_last_operation_state=Failed,failed_machine_name=m,failed_machine_owner_ref=s,failed_machine_provider_id=cloud:///m,name=s,namespace=shop}": 1,
	}, scrapeGauges(t, "mcm_machine_set_", s))
}

func TestMachineDeploymentMetricsAreExported(t *testing.T) {
	d := &v1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: timeAt(0)},
	}
	surge, unavailable := intstr.FromString("25%"), intstr.FromString("25")
	d.Spec = v1alpha1.MachineDeploymentSpec{
		Replicas:             10,
		Paused:               true,
		MinReadySeconds:      3,
		RevisionHistoryLimit: new(int32),
		RollbackTo:           &v1alpha1.RollbackConfig{Revision: 2},
		Strategy: v1alpha1.MachineDeploymentStrategy{RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &surge, MaxUnavailable: &unavailable},
		}},
	}
	d.Status = v1alpha1.MachineDeploymentStatus{
		Replicas:            9,
		UpdatedReplicas:     8,
		ReadyReplicas:       7,
		AvailableReplicas:   6,
		UnavailableReplicas: 4,
		Conditions: []v1alpha1.MachineDeploymentCondition{
			{Type: v1alpha1.MachineDeploymentAvailable, Status: v1alpha1.ConditionFalse},
		},
		FailedMachines: []v1alpha1.MachineSummary{{Name: "m"}},
	}
	const of = "{name=web,namespace=shop}"
	assert.Equal(t, map[string]float64{
		"items_total{}": 1,
		"info{createdAt=1700000000,name=web,namespace=shop,spec_strategy_type=RollingUpdate}": 1,
		"info_spec_replicas" + of:                                       10,
		"info_spec_paused" + of:                                         1,
		"info_spec_min_ready_seconds" + of:                              3,
		"info_spec_rolling_update_max_surge" + of:                       3, // maxSurge is rounded up
		"info_spec_rolling_update_max_unavailable" + of:                 2, // maxUnavailable is rounded down
		"info_spec_revision_history_limit" + of:                         0,
		"info_spec_rollback_to_revision" + of:                           2,
		"status_replicas" + of:                                          9,
		"status_updated_replicas" + of:                                  8,
		"status_ready_replicas" + of:                                    7,
		"status_available_replicas" + of:                                6,
		"status_unavailable_replicas" + of:                              4,
		"status_condition{condition=Available,name=web,namespace=shop}": 0,
		"failed_machines{failed_machine_last_operation_machine_operation_type=,failed_machine_last_operation_state=,failed_machine_name=m,failed_machine_owner_ref=,failed_machine_provider_id=,name=web,namespace=shop}": 1,
	}, scrapeGauges(t, "mcm_machine_deployment_", d), "progress_deadline_seconds and status_collision_count are not set")

	d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{Type: v1alpha1.RecreateMachineDeploymentStrategyType}
	assert.Empty(t, scrapeGauges(t, "mcm_machine_deployment_info_spec_rolling_update", d))
}

// machineInPhase returns a machine in a phase, with a current operation since the given time. A non-empty reason means
// that the machine is blocked.
func machineInPhase(
	name string,
	phase v1alpha1.MachinePhase,
	step string,
	since metav1.Time,
	reason string,
) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: timeAt(0)}}
	m.Status.CurrentStatus.Phase = phase
	if step != "" {
		m.Status.CurrentOperation = &v1alpha1.Operation{Step: step, Since: since}
	}
	if reason != "" {
		m.Status.Conditions = []corev1.NodeCondition{
			{Type: v1alpha1.MachineBlocked, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: since},
		}
	}
	return m
}

func TestMachineMetricsAreExported(t *testing.T) {
	m := machineInPhase("m", v1alpha1.MachineTerminating, "", timeAt(0), "")
	m.Spec = v1alpha1.MachineSpec{ProviderID: "cloud:///m", Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}}
	m.Status.NodeName = "n"
	m.Status.Conditions = []corev1.NodeCondition{
		{Type: "Ready", Status: corev1.ConditionUnknown},
		{Type: "Ready", Status: corev1.ConditionTrue},
	}
	assert.Equal(t, map[string]float64{
		"items_total{}": 1,
		"info{createdAt=1700000000,name=m,namespace=shop,node_name=n,spec_class_api_group=,spec_class_kind=MachineClass,spec_class_name=small,spec_provider_id=cloud:///m}": 1,
		"current_status_phase{name=m,namespace=shop}":             -4,
		"status_condition{condition=Ready,name=m,namespace=shop}": 2,
		"set_items_total{}":        0,
		"deployment_items_total{}": 0,
	}, scrapeGauges(t, "mcm_machine_", m))
}

func TestPhaseGaugesCountMachines(t *testing.T) {
	var objects []runtime.Object
	for _, phase := range []v1alpha1.MachinePhase{
		"", v1alpha1.MachinePending, v1alpha1.MachineRunning, v1alpha1.MachineUnknown, v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineFailed, v1alpha1.MachineAvailable,
	} {
		objects = append(objects, machineInPhase("m-"+strings.ToLower(string(phase)), phase, "", timeAt(0), ""))
	}
	objects = append(objects, machineInPhase("m-2", v1alpha1.MachineRunning, "", timeAt(0), ""))
	numbers := scrapeGauges(t, "mcm_machine_current_status_phase", objects...)
	assert.Equal(t, []float64{-3, -2, -1, 0, 0, 0, 1, 1}, slices.Sorted(maps.Values(numbers)))
	assert.InDelta(t, -2, numbers["{name=m-crashloopbackoff,namespace=shop}"], 0)
	assert.Equal(t, map[string]float64{
		"{phase=None}":             1,
		"{phase=Pending}":          1,
		"{phase=Running}":          2,
		"{phase=Unknown}":          1,
		"{phase=CrashLoopBackOff}": 1,
		"{phase=Failed}":           1,
		"{phase=Available}":        1,
	}, scrapeGauges(t, "millwright_machines", objects...))
}

func TestBlockedObjectsAreCounted(t *testing.T) {
	s := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}}
	s.Status.CurrentOperation = &v1alpha1.Operation{Step: "await-machines", Since: timeAt(40)}
	s.Status.Conditions = []v1alpha1.MachineSetCondition{
		{
			Type:               v1alpha1.MachineSetBlocked,
			Status:             v1alpha1.ConditionTrue,
			Reason:             "PodDisruptionBudget",
			LastTransitionTime: timeAt(10),
		},
	}
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "d"}}
	d.Status.Conditions = []v1alpha1.MachineDeploymentCondition{
		{
			Type:               v1alpha1.MachineDeploymentBlocked,
			Status:             v1alpha1.ConditionTrue,
			Reason:             "Paused",
			LastTransitionTime: timeAt(50),
		},
	}
	world := []runtime.Object{
		machineInPhase("calm", v1alpha1.MachineRunning, "", timeAt(0), ""),
		machineInPhase("joins", v1alpha1.MachinePending, "await-node", timeAt(30), ""),
		machineInPhase("new", "", "create-instance", metav1.Time{}, ""),
		machineInPhase("younger", v1alpha1.MachineTerminating, "evict-pods", timeAt(20), "PodDisruptionBudget"),
		machineInPhase("older", v1alpha1.MachineTerminating, "evict-pods", timeAt(10), "PodDisruptionBudget"),
		machineInPhase("volume", v1alpha1.MachineTerminating, "await-detach", timeAt(25), "Volume"),
		s, d,
	}
	start := float64(timeAt(0).Unix())
	assert.Equal(t, map[string]float64{
		"objects{kind=Machine,reason=PodDisruptionBudget}":                           2,
		"objects{kind=Machine,reason=Volume}":                                        1,
		"objects{kind=MachineSet,reason=PodDisruptionBudget}":                        1,
		"objects{kind=MachineDeployment,reason=Paused}":                              1,
		"oldest_start_timestamp_seconds{kind=Machine,reason=PodDisruptionBudget}":    start + 10,
		"oldest_start_timestamp_seconds{kind=Machine,reason=Volume}":                 start + 25,
		"oldest_start_timestamp_seconds{kind=MachineSet,reason=PodDisruptionBudget}": start + 10,
		"oldest_start_timestamp_seconds{kind=MachineDeployment,reason=Paused}":       start + 50,
	}, scrapeGauges(t, "millwright_blocked_", world...))
	assert.Equal(t, map[string]float64{
		"open{kind=Machine,reason=None,step=await-node}":                                                 1,
		"open{kind=Machine,reason=None,step=create-instance}":                                            1,
		"open{kind=Machine,reason=PodDisruptionBudget,step=evict-pods}":                                  2,
		"open{kind=Machine,reason=Volume,step=await-detach}":                                             1,
		"open{kind=MachineSet,reason=PodDisruptionBudget,step=await-machines}":                           1,
		"oldest_start_timestamp_seconds{kind=Machine,reason=None,step=await-node}":                       start + 30,
		"oldest_start_timestamp_seconds{kind=Machine,reason=PodDisruptionBudget,step=evict-pods}":        start + 10,
		"oldest_start_timestamp_seconds{kind=Machine,reason=Volume,step=await-detach}":                   start + 25,
		"oldest_start_timestamp_seconds{kind=MachineSet,reason=PodDisruptionBudget,step=await-machines}": start + 40,
	}, scrapeGauges(t, "millwright_operations_", world...), "an operation whose start is not known has no time")
	assert.Equal(t, map[string]float64{
		"{kind=Machine,namespace=shop}":           3,
		"{kind=MachineSet,namespace=shop}":        1,
		"{kind=MachineDeployment,namespace=shop}": 1,
	}, scrapeGauges(t, "millwright_namespace_blocked_objects", world...))
	assert.Empty(t, scrapeGauges(t, "millwright_blocked_"))
}

// assertEventually waits until holds succeeds, because the caches receive events with a delay.
func assertEventually(t *testing.T, holds func(c *assert.CollectT)) {
	t.Helper()
	require.EventuallyWithT(t, holds, 2*time.Minute, 5*time.Millisecond)
}

// Objects of another controller are not counted.
func TestObjectsOfOtherNamespacesAreNotCounted(t *testing.T) {
	var objects []runtime.Object
	for _, namespace := range []string{"shop", "theirs"} {
		of := metav1.ObjectMeta{Namespace: namespace, Name: "x"}
		objects = append(objects,
			&v1alpha1.Machine{ObjectMeta: of}, &v1alpha1.MachineSet{ObjectMeta: of}, &v1alpha1.MachineDeployment{ObjectMeta: of})
	}
	cluster, _ := filledCaches(t, objects...)
	cluster.Scope.ExceptNamespaces = []string{"theirs"}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(fleet.NewGaugeCollector(cluster, nil))
	samples := scrapeMetrics(t, registry)
	for _, kind := range []string{"machine", "machine_set", "machine_deployment"} {
		assert.InDelta(t, 1, samples["mcm_"+kind+"_items_total{}"], 0, kind)
	}
	for name := range samples {
		assert.NotContains(t, name, "theirs")
	}
}
