package fleet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/observe/capi"
	observedeployment "millwright/observe/capi/deployment"
	capiset "millwright/observe/capi/set"
	"millwright/workflows/run"
)

type (
	clusterAPISet        = *clusterv1.MachineSet
	clusterAPIDeployment = *clusterv1.MachineDeployment
)

// clusterSumGauge returns a gauge with one series per Cluster: the sum of value over the Cluster API objects of one
// kind that Millwright reconciles. A label with the object's name would create one series per object.
// machine-controller-manager's metric names have no label for the API group, so these gauges have their own names.
func clusterSumGauge[T metav1.Object](name, help string, clusterOf func(T) string, value func(T) *int32) gauge[T] {
	return gauge[T]{
		newDesc(
			"millwright_cluster_api_"+name,
			help+" of Cluster API that Millwright reconciles, by Cluster.",
			"namespace",
			"cluster",
		),
		func(objects []T, send sendSampleFunc) {
			sums := map[[2]string]float64{}
			for _, o := range objects {
				of := [2]string{o.GetNamespace(), clusterOf(o)}
				sums[of] += 0 // creates a series also for a Cluster whose objects have no value
				if n := value(o); n != nil {
					sums[of] += float64(*n)
				}
			}
			for of, n := range sums {
				send(n, of[:]...)
			}
		},
	}
}

// oneIfTrue returns 1 if counts is true, else nil.
func oneIfTrue(counts bool) *int32 {
	if counts {
		return new(int32(1))
	}
	return nil
}

func clusterAPISetGauges() []gauge[clusterAPISet] {
	sum := func(name, help string, value func(clusterAPISet) *int32) gauge[clusterAPISet] {
		return clusterSumGauge("set_"+name, help, func(s clusterAPISet) string { return s.Spec.ClusterName }, value)
	}
	return []gauge[clusterAPISet]{
		sum("items", "MachineSets", func(clusterAPISet) *int32 { return oneIfTrue(true) }),
		sum(
			"spec_replicas",
			"Machines that are wanted by the MachineSets",
			func(s clusterAPISet) *int32 { return s.Spec.Replicas },
		),
		sum(
			"status_replicas",
			"Machines (including those that are being deleted) of the MachineSets",
			func(s clusterAPISet) *int32 { return s.Status.Replicas },
		),
		sum(
			"status_ready_replicas",
			"Ready machines of the MachineSets",
			func(s clusterAPISet) *int32 { return s.Status.ReadyReplicas },
		),
		sum(
			"status_available_replicas",
			"Machines that have been ready for minReadySeconds, of the MachineSets",
			func(s clusterAPISet) *int32 { return s.Status.AvailableReplicas },
		),
		sum(
			"status_up_to_date_replicas",
			"Machines that match the template, of the MachineSets",
			func(s clusterAPISet) *int32 { return s.Status.UpToDateReplicas },
		),
	}
}

func clusterAPIDeploymentGauges() []gauge[clusterAPIDeployment] {
	sum := func(name, help string, value func(clusterAPIDeployment) *int32) gauge[clusterAPIDeployment] {
		return clusterSumGauge(
			"deployment_"+name,
			help,
			func(d clusterAPIDeployment) string { return d.Spec.ClusterName },
			value,
		)
	}
	without := func(condition string) func(clusterAPIDeployment) *int32 {
		return func(d clusterAPIDeployment) *int32 {
			return oneIfTrue(capi.ConditionOfType(d.Status.Conditions, condition).Status == metav1.ConditionFalse)
		}
	}
	return []gauge[clusterAPIDeployment]{
		sum("items", "MachineDeployments", func(clusterAPIDeployment) *int32 { return oneIfTrue(true) }),
		sum(
			"paused_items",
			"Paused MachineDeployments",
			func(d clusterAPIDeployment) *int32 { return oneIfTrue(capi.ValueOrZero(d.Spec.Paused)) },
		),
		sum(
			"unavailable_items",
			"MachineDeployments whose condition Available is False (fewer available machines than maxUnavailable allows)",
			without(clusterv1.MachineDeploymentAvailableCondition),
		),
		sum("late_items", "MachineDeployments whose condition Progressing is False (no progress within the deadline)",
			without(vocabulary.ConditionProgressing)),
		sum(
			"spec_replicas",
			"Machines that are wanted by the MachineDeployments",
			func(d clusterAPIDeployment) *int32 { return d.Spec.Replicas },
		),
		sum(
			"status_replicas",
			"Machines (including those that are being deleted) of the MachineDeployments",
			func(d clusterAPIDeployment) *int32 { return d.Status.Replicas },
		),
		sum(
			"status_ready_replicas",
			"Ready machines of the MachineDeployments",
			func(d clusterAPIDeployment) *int32 { return d.Status.ReadyReplicas },
		),
		sum(
			"status_available_replicas",
			"Machines that have been ready for minReadySeconds, of the MachineDeployments",
			func(d clusterAPIDeployment) *int32 { return d.Status.AvailableReplicas },
		),
		sum(
			"status_up_to_date_replicas",
			"Machines of the newest template of the MachineDeployments",
			func(d clusterAPIDeployment) *int32 { return d.Status.UpToDateReplicas },
		),
	}
}

func clusterAPIMachineGauges() []gauge[*clusterv1.Machine] {
	help := "Machines of the MachineSets of Cluster API that Millwright reconciles, by phase. Phase None: not processed yet."
	return []gauge[*clusterv1.Machine]{
		{newDesc("millwright_cluster_api_machines", help, "phase"), func(machines []*clusterv1.Machine, send sendSampleFunc) {
			phases := map[string]int{}
			for _, m := range machines {
				phases[m.Status.Phase]++
			}
			for phase, n := range phases {
				send(float64(n), labelValueOrNone(phase))
			}
		}},
	}
}

// clusterAPIMachineKind is the value of the label kind for machines of Cluster API, which have no workflow of
// Millwright.
const clusterAPIMachineKind = "ClusterAPIMachine"

// collectClusterAPIGauges sends the gauges of the Cluster API objects, and returns the operations and blockers of these
// objects.
func (g *GaugeCollector) collectClusterAPIGauges(samples chan<- prometheus.Metric) (all []objectWithOperation) {
	now, sets, machines := time.Now(), g.clusterAPICache.MachineSets(), []*clusterv1.Machine{}
	for _, s := range sets {
		machines = append(machines, g.clusterAPICache.MachinesOfSet(s)...)
		all = append(
			all,
			clusterAPIObjectWithOperation(string(run.KindClusterAPISet), s.Namespace, capiset.OperationOfSet(s)),
		)
	}
	deployments := g.clusterAPICache.Deployments()
	for _, d := range deployments {
		operation := observedeployment.OperationWithBlockers(d)
		all = append(all, clusterAPIObjectWithOperation(string(run.KindClusterAPIDeployment), d.Namespace, operation))
	}
	for _, m := range machines {
		all = append(all, clusterAPIObjectWithOperation(clusterAPIMachineKind, m.Namespace, capiset.MachineOperation(m, now)))
	}
	collectGauges(samples, g.clusterAPIDeploymentGauges, deployments)
	collectGauges(samples, g.clusterAPISetGauges, sets)
	collectGauges(samples, g.clusterAPIMachineGauges, machines)
	return all
}

// clusterAPIObjectWithOperation returns the operation of a Cluster API object and the blocker that the operation names.
func clusterAPIObjectWithOperation(kind, namespace string, o *v1alpha1.Operation) objectWithOperation {
	m := objectWithOperation{kind: kind, namespace: namespace, operation: o, blockedReason: capiset.BlockerReason(o)}
	if m.blockedReason != "" {
		m.blockedSince = o.Since.Time
	}
	return m
}
