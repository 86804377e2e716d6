// Package fleet answers what a monitoring system asks about machines, sets and deployments: how many there are, in
// which state, which of them stand still, and since when. The bridge's main calls it while the bridge is the leader. It
// reads the bridge's caches at each scrape, and sends nothing.
//
// Metrics that begin with mcm_ have the names and labels of machine-controller-manager (ADR 0077).
package fleet

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/capi"
)

// Gauges is a collector of gauges that are computed from the caches at each scrape. Make it with NewGauges.
type Gauges struct {
	cluster     *cache.Cluster
	machines    []gauge[*v1alpha1.Machine]
	sets        []gauge[*v1alpha1.MachineSet]
	deployments []gauge[*v1alpha1.MachineDeployment]
	waits       waits

	api                 *capi.Cache // nil: Cluster API is not watched
	upstreamDeployments []gauge[*clusterv1.MachineDeployment]
	upstreamSets        []gauge[*clusterv1.MachineSet]
	upstreamMachines    []gauge[*clusterv1.Machine]
}

// NewGauges returns the gauges of the objects in a cluster's caches, and of the objects of Cluster API that Millwright
// reconciles (nil: none). The caches are only read at a scrape.
func NewGauges(cluster *cache.Cluster, api *capi.Cache) *Gauges {
	return &Gauges{
		cluster:             cluster,
		machines:            machineGauges(),
		sets:                setGauges(),
		deployments:         deploymentGauges(),
		waits:               newWaits(),
		api:                 api,
		upstreamDeployments: upstreamDeploymentGauges(),
		upstreamSets:        upstreamSetGauges(),
		upstreamMachines:    upstreamMachineGauges(),
	}
}

// Describe implements prometheus.Collector.
func (g *Gauges) Describe(descs chan<- *prometheus.Desc) {
	describe(descs, g.machines)
	describe(descs, g.sets)
	describe(descs, g.deployments)
	describe(descs, g.upstreamDeployments)
	describe(descs, g.upstreamSets)
	describe(descs, g.upstreamMachines)
	g.waits.describe(descs)
}

// Collect implements prometheus.Collector.
func (g *Gauges) Collect(samples chan<- prometheus.Metric) {
	machines := ours[*v1alpha1.Machine](g.cluster, cache.Machines)
	sets := ours[*v1alpha1.MachineSet](g.cluster, cache.Sets)
	deployments := ours[*v1alpha1.MachineDeployment](g.cluster, cache.Deployments)
	collect(samples, g.machines, machines)
	collect(samples, g.sets, sets)
	collect(samples, g.deployments, deployments)
	moving := inMotion(machines, sets, deployments)
	if g.api != nil {
		moving = append(moving, g.collectClusterAPI(samples)...)
	}
	g.waits.collect(samples, moving)
}

// ours returns the objects of a resource in the namespaces that are Millwright's, in any order.
func ours[T metav1.Object](cluster *cache.Cluster, resource cache.Resource) []T {
	known := map[string]bool{}
	return slices.DeleteFunc(cache.All[T](cluster.Informer(resource)), func(o T) bool {
		namespace := o.GetNamespace()
		is, asked := known[namespace]
		if !asked {
			is = cluster.Ours(namespace)
			known[namespace] = is
		}
		return !is
	})
}

// emit sends one sample; labels are in the order of the gauge.
type emit func(value float64, labels ...string)

// gauge is a metric of the objects of one kind.
type gauge[T any] struct {
	desc    *prometheus.Desc
	samples func(objects []T, send emit)
}

func describe[T any](descs chan<- *prometheus.Desc, gauges []gauge[T]) {
	for _, g := range gauges {
		descs <- g.desc
	}
}

func collect[T any](samples chan<- prometheus.Metric, gauges []gauge[T], objects []T) {
	for _, g := range gauges {
		g.samples(objects, func(value float64, labels ...string) {
			samples <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, labels...)
		})
	}
}

// total is a gauge of how many objects there are.
func total[T any](name, help string) gauge[T] {
	return gauge[T]{prometheus.NewDesc(name, help, nil, nil), func(objects []T, send emit) { send(float64(len(objects))) }}
}

// number is a gauge with one sample for each object, with the labels name and namespace.
func number[T metav1.Object](name, help string, value func(T) float64) gauge[T] {
	return several(name, help, nil, func(object T, send emit) { send(value(object)) })
}

// several is a gauge with any number of samples for each object, with the labels name, namespace and more.
func several[T metav1.Object](name, help string, more []string, samples func(T, emit)) gauge[T] {
	return gauge[T]{
		prometheus.NewDesc(name, help, append([]string{"name", "namespace"}, more...), nil),
		func(objects []T, send emit) {
			for _, object := range objects {
				samples(object, func(value float64, labels ...string) {
					send(value, append([]string{object.GetName(), object.GetNamespace()}, labels...)...)
				})
			}
		},
	}
}

// optional sends a number that may be absent.
func optional[N int32 | int64](send emit, value *N) {
	if value != nil {
		send(float64(*value))
	}
}

// failedMachines is a gauge with one sample of 1 for each failed machine in a status, which names at most 50 of them
// (ADR 0043).
func failedMachines[T metav1.Object](name, help string, failed func(T) []v1alpha1.MachineSummary) gauge[T] {
	labels := []string{
		"failed_machine_name",
		"failed_machine_provider_id",
		"failed_machine_owner_ref",
		"failed_machine_last_operation_state",
		"failed_machine_last_operation_machine_operation_type",
	}
	return several(name, help, labels, func(object T, send emit) {
		sent := map[string]bool{} // a name that is in a status twice would make the whole scrape fail
		for _, m := range failed(object) {
			if !sent[m.Name] {
				sent[m.Name] = true
				send(1, m.Name, m.ProviderID, m.OwnerRef, string(m.LastOperation.State), string(m.LastOperation.Type))
			}
		}
	})
}

// conditions sends one sample for each condition: 1 for True, 0 for False, 2 for Unknown. Source of the values:
// machine-controller-manager.
func conditions[C any](send emit, all []C, read func(C) (kind, status string)) {
	sent := map[string]bool{} // a type twice would make the whole scrape fail; the API allows it in a Machine
	for _, c := range all {
		kind, status := read(c)
		if sent[kind] {
			continue
		}
		sent[kind] = true
		value := 2.0
		switch v1alpha1.ConditionStatus(status) {
		case v1alpha1.ConditionTrue:
			value = 1
		case v1alpha1.ConditionFalse:
			value = 0
		case v1alpha1.ConditionUnknown:
		}
		send(value, kind)
	}
}

// createdAt returns the time of creation as machine-controller-manager writes it: seconds since 1970.
func createdAt(object metav1.Object) string {
	return strconv.FormatInt(object.GetCreationTimestamp().Unix(), 10)
}
