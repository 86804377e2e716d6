// Package fleet exports metrics about machines, sets and deployments: their number by state, the blocked objects, and
// the start times of waits. The bridge's main uses package fleet while the bridge is the leader. Package fleet reads
// the bridge's caches at each scrape, and sends no requests.
//
// Metrics with the prefix mcm_ have the names and labels of machine-controller-manager (ADR 0077).
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

// GaugeCollector is a collector of gauges that are computed from the caches at each scrape. Use NewGaugeCollector to
// create GaugeCollector.
type GaugeCollector struct {
	cluster                 *cache.Cluster
	machineGauges           []gauge[*v1alpha1.Machine]
	machineSetGauges        []gauge[*v1alpha1.MachineSet]
	deploymentGauges        []gauge[*v1alpha1.MachineDeployment]
	operationAndBlockGauges operationAndBlockGauges

	clusterAPICache            *capi.Cache // nil: Cluster API is not watched
	clusterAPIDeploymentGauges []gauge[*clusterv1.MachineDeployment]
	clusterAPISetGauges        []gauge[*clusterv1.MachineSet]
	clusterAPIMachineGauges    []gauge[*clusterv1.Machine]
}

// NewGaugeCollector returns the gauges of the objects in a cluster's caches and of the Cluster API objects that
// Millwright reconciles (api == nil: none). The caches are read only at a scrape.
func NewGaugeCollector(cluster *cache.Cluster, api *capi.Cache) *GaugeCollector {
	return &GaugeCollector{
		cluster:                    cluster,
		machineGauges:              machineGauges(),
		machineSetGauges:           machineSetGauges(),
		deploymentGauges:           deploymentGauges(),
		operationAndBlockGauges:    newOperationAndBlockGauges(),
		clusterAPICache:            api,
		clusterAPIDeploymentGauges: clusterAPIDeploymentGauges(),
		clusterAPISetGauges:        clusterAPISetGauges(),
		clusterAPIMachineGauges:    clusterAPIMachineGauges(),
	}
}

// Describe implements prometheus.Collector.
func (g *GaugeCollector) Describe(descs chan<- *prometheus.Desc) {
	describeGauges(descs, g.machineGauges)
	describeGauges(descs, g.machineSetGauges)
	describeGauges(descs, g.deploymentGauges)
	describeGauges(descs, g.clusterAPIDeploymentGauges)
	describeGauges(descs, g.clusterAPISetGauges)
	describeGauges(descs, g.clusterAPIMachineGauges)
	g.operationAndBlockGauges.describe(descs)
}

// Collect implements prometheus.Collector.
func (g *GaugeCollector) Collect(samples chan<- prometheus.Metric) {
	machines := millwrightObjects[*v1alpha1.Machine](g.cluster, cache.MachinesResource)
	sets := millwrightObjects[*v1alpha1.MachineSet](g.cluster, cache.SetsResource)
	deployments := millwrightObjects[*v1alpha1.MachineDeployment](g.cluster, cache.DeploymentsResource)
	collectGauges(samples, g.machineGauges, machines)
	collectGauges(samples, g.machineSetGauges, sets)
	collectGauges(samples, g.deploymentGauges, deployments)
	moving := millwrightObjectsWithOperations(machines, sets, deployments)
	if g.clusterAPICache != nil {
		moving = append(moving, g.collectClusterAPIGauges(samples)...)
	}
	g.operationAndBlockGauges.collect(samples, moving)
}

// millwrightObjects returns the objects of a resource in Millwright's namespaces, in any order.
func millwrightObjects[T metav1.Object](cluster *cache.Cluster, resource cache.Resource) []T {
	known := map[string]bool{}
	return slices.DeleteFunc(cache.AllObjects[T](cluster.Informer(resource)), func(o T) bool {
		namespace := o.GetNamespace()
		is, asked := known[namespace]
		if !asked {
			is = cluster.ActsOnMachines(namespace)
			known[namespace] = is
		}
		return !is
	})
}

// sendSampleFunc sends one sample. The label values have the order of the gauge's label names.
type sendSampleFunc func(value float64, labels ...string)

// gauge is a metric about the objects of one kind.
type gauge[T any] struct {
	desc        *prometheus.Desc
	sendSamples func(objects []T, send sendSampleFunc)
}

func describeGauges[T any](descs chan<- *prometheus.Desc, gauges []gauge[T]) {
	for _, g := range gauges {
		descs <- g.desc
	}
}

func collectGauges[T any](samples chan<- prometheus.Metric, gauges []gauge[T], objects []T) {
	for _, g := range gauges {
		g.sendSamples(objects, func(value float64, labels ...string) {
			samples <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, labels...)
		})
	}
}

// objectCountGauge returns a gauge of the number of objects.
func objectCountGauge[T any](name, help string) gauge[T] {
	return gauge[T]{
		prometheus.NewDesc(name, help, nil, nil),
		func(objects []T, send sendSampleFunc) { send(float64(len(objects))) },
	}
}

// perObjectGauge returns a gauge with one sample per object, with the labels name and namespace.
func perObjectGauge[T metav1.Object](name, help string, value func(T) float64) gauge[T] {
	return multiSampleGauge(name, help, nil, func(object T, send sendSampleFunc) { send(value(object)) })
}

// multiSampleGauge returns a gauge with any number of samples per object, with the labels name, namespace and more.
func multiSampleGauge[T metav1.Object](name, help string, more []string, samples func(T, sendSampleFunc)) gauge[T] {
	return gauge[T]{
		prometheus.NewDesc(name, help, append([]string{"name", "namespace"}, more...), nil),
		func(objects []T, send sendSampleFunc) {
			for _, object := range objects {
				samples(object, func(value float64, labels ...string) {
					send(value, append([]string{object.GetName(), object.GetNamespace()}, labels...)...)
				})
			}
		},
	}
}

// sendOptionalValue sends a number if it is present.
func sendOptionalValue[N int32 | int64](send sendSampleFunc, value *N) {
	if value != nil {
		send(float64(*value))
	}
}

// failedMachinesGauge returns a gauge with one sample of 1 for each failed machine in a status. A status names at
// most 50 failed machines (ADR 0043).
func failedMachinesGauge[T metav1.Object](name, help string, failed func(T) []v1alpha1.MachineSummary) gauge[T] {
	labels := []string{
		"failed_machine_name",
		"failed_machine_provider_id",
		"failed_machine_owner_ref",
		"failed_machine_last_operation_state",
		"failed_machine_last_operation_machine_operation_type",
	}
	return multiSampleGauge(name, help, labels, func(object T, send sendSampleFunc) {
		sent := map[string]bool{} // a duplicate name would fail the whole scrape
		for _, m := range failed(object) {
			if !sent[m.Name] {
				sent[m.Name] = true
				send(1, m.Name, m.ProviderID, m.OwnerRef, string(m.LastOperation.State), string(m.LastOperation.Type))
			}
		}
	})
}

// sendConditions sends one sample per condition: 1 for True, 0 for False, 2 for Unknown. The values are the same as in
// machine-controller-manager.
func sendConditions[C any](send sendSampleFunc, all []C, read func(C) (kind, status string)) {
	sent := map[string]bool{} // the API allows a duplicate type in a Machine, but it would fail the scrape
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

// creationUnixSeconds returns the creation time in seconds since 1970, as in machine-controller-manager's metrics.
func creationUnixSeconds(object metav1.Object) string {
	return strconv.FormatInt(object.GetCreationTimestamp().Unix(), 10)
}
