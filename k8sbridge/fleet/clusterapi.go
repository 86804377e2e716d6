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
	upstreamSet        = *clusterv1.MachineSet
	upstreamDeployment = *clusterv1.MachineDeployment
)

// upstreamSum returns a gauge with one series for each Cluster: the sum of value over the objects of one kind of
// Cluster API that Millwright reconciles. A label with the name of the object would make one series for each object.
// These gauges do not have machine-controller-manager's names, because those have no label for the API group.
func upstreamSum[T metav1.Object](name, help string, clusterOf func(T) string, value func(T) *int32) gauge[T] {
	return gauge[T]{
		desc(
			"millwright_cluster_api_"+name,
			help+" of Cluster API that Millwright reconciles, by Cluster.",
			"namespace",
			"cluster",
		),
		func(objects []T, send emit) {
			sums := map[[2]string]float64{}
			for _, o := range objects {
				of := [2]string{o.GetNamespace(), clusterOf(o)}
				sums[of] += 0 // a series also for a Cluster none of whose objects has a value
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

// one returns 1 for an object that counts, else nil.
func one(counts bool) *int32 {
	if counts {
		return new(int32(1))
	}
	return nil
}

func upstreamSetGauges() []gauge[upstreamSet] {
	sum := func(name, help string, value func(upstreamSet) *int32) gauge[upstreamSet] {
		return upstreamSum("set_"+name, help, func(s upstreamSet) string { return s.Spec.ClusterName }, value)
	}
	return []gauge[upstreamSet]{
		sum("items", "MachineSets", func(upstreamSet) *int32 { return one(true) }),
		sum(
			"spec_replicas",
			"Machines that are wanted by the MachineSets",
			func(s upstreamSet) *int32 { return s.Spec.Replicas },
		),
		sum(
			"status_replicas",
			"Machines (including those that are being deleted) of the MachineSets",
			func(s upstreamSet) *int32 { return s.Status.Replicas },
		),
		sum(
			"status_ready_replicas",
			"Ready machines of the MachineSets",
			func(s upstreamSet) *int32 { return s.Status.ReadyReplicas },
		),
		sum(
			"status_available_replicas",
			"Machines that have been ready for minReadySeconds, of the MachineSets",
			func(s upstreamSet) *int32 { return s.Status.AvailableReplicas },
		),
		sum(
			"status_up_to_date_replicas",
			"Machines that match the template, of the MachineSets",
			func(s upstreamSet) *int32 { return s.Status.UpToDateReplicas },
		),
	}
}

func upstreamDeploymentGauges() []gauge[upstreamDeployment] {
	sum := func(name, help string, value func(upstreamDeployment) *int32) gauge[upstreamDeployment] {
		return upstreamSum("deployment_"+name, help, func(d upstreamDeployment) string { return d.Spec.ClusterName }, value)
	}
	without := func(condition string) func(upstreamDeployment) *int32 {
		return func(d upstreamDeployment) *int32 {
			return one(capi.ConditionOf(d.Status.Conditions, condition).Status == metav1.ConditionFalse)
		}
	}
	return []gauge[upstreamDeployment]{
		sum("items", "MachineDeployments", func(upstreamDeployment) *int32 { return one(true) }),
		sum(
			"paused_items",
			"Paused MachineDeployments",
			func(d upstreamDeployment) *int32 { return one(capi.Value(d.Spec.Paused)) },
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
			func(d upstreamDeployment) *int32 { return d.Spec.Replicas },
		),
		sum(
			"status_replicas",
			"Machines (including those that are being deleted) of the MachineDeployments",
			func(d upstreamDeployment) *int32 { return d.Status.Replicas },
		),
		sum(
			"status_ready_replicas",
			"Ready machines of the MachineDeployments",
			func(d upstreamDeployment) *int32 { return d.Status.ReadyReplicas },
		),
		sum(
			"status_available_replicas",
			"Machines that have been ready for minReadySeconds, of the MachineDeployments",
			func(d upstreamDeployment) *int32 { return d.Status.AvailableReplicas },
		),
		sum(
			"status_up_to_date_replicas",
			"Machines of the newest template of the MachineDeployments",
			func(d upstreamDeployment) *int32 { return d.Status.UpToDateReplicas },
		),
	}
}

func upstreamMachineGauges() []gauge[*clusterv1.Machine] {
	help := "Machines of the MachineSets of Cluster API that Millwright reconciles, by phase. Phase None: not processed yet."
	return []gauge[*clusterv1.Machine]{
		{desc("millwright_cluster_api_machines", help, "phase"), func(machines []*clusterv1.Machine, send emit) {
			phases := map[string]int{}
			for _, m := range machines {
				phases[m.Status.Phase]++
			}
			for phase, n := range phases {
				send(float64(n), orNone(phase))
			}
		}},
	}
}

// kindOfMachine names machines of Cluster API in the label kind. Millwright has no workflow for them.
const kindOfMachine = "ClusterAPIMachine"

// collectClusterAPI sends the gauges of the objects of Cluster API, and returns what these objects do.
func (g *Gauges) collectClusterAPI(samples chan<- prometheus.Metric) (all []moving) {
	now, sets, machines := time.Now(), g.api.Sets(), []*clusterv1.Machine{}
	for _, s := range sets {
		machines = append(machines, g.api.MachinesOf(s)...)
		all = append(all, movingAs(string(run.KindClusterAPISet), capiset.Operation(s)))
	}
	deployments := g.api.Deployments()
	for _, d := range deployments {
		all = append(all, movingAs(string(run.KindClusterAPIDeployment), observedeployment.Moves(d)))
	}
	for _, m := range machines {
		all = append(all, movingAs(kindOfMachine, capiset.MachineOperation(m, now)))
	}
	collect(samples, g.upstreamDeployments, deployments)
	collect(samples, g.upstreamSets, sets)
	collect(samples, g.upstreamMachines, machines)
	return all
}

// movingAs returns what an object of Cluster API does: its operation, which also names what blocks it.
func movingAs(kind string, o *v1alpha1.Operation) moving {
	m := moving{kind: kind, operation: o, reason: capiset.Reason(o)}
	if m.reason != "" {
		m.since = o.Since.Time
	}
	return m
}
