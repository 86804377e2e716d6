package fleet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	observemachine "millwright/observe/machine"
)

// Durations measure how long machines take to be created, to join, to be drained and to be deleted. Make them with
// NewDurations.
type Durations struct {
	last    map[string]*prometheus.GaugeVec // machine-controller-manager's names
	took    map[string]*prometheus.HistogramVec
	drained *prometheus.GaugeVec
	failed  *prometheus.CounterVec
}

// What is measured.
const (
	create = "create"
	join   = "join"
	remove = "delete"
)

// NewDurations registers the metrics. Call it once for each registry.
func NewDurations(registry prometheus.Registerer) Durations {
	d := Durations{last: map[string]*prometheus.GaugeVec{}, took: map[string]*prometheus.HistogramVec{}}
	of := []string{"namespace", "machine_deployment", "instance_type", "zone"}
	for what, help := range map[string]string{
		create: "from the creation of the Machine until the provider has created its instance",
		join:   "from the creation of the Machine until its node was ready for the first time",
		remove: "from the request to delete the Machine until it was gone",
	} {
		d.last[what] = prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mcm_machine_" + what + "_duration_seconds", Help: "Time " + help + ". The last one that was seen.",
		}, of)
		d.took[what] = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "millwright_machine_" + what + "_duration_seconds", Help: "Time " + help + ".",
			// past the defaults of creationTimeout and drainTimeout
			Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 3600, 7200, 14400},
		}, []string{"instance_type", "zone"})
		registry.MustRegister(d.last[what], d.took[what])
	}
	d.drained = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "mcm_machine_drain_duration_seconds",
		Help: "Time from the first eviction until the drain of a deleted Machine ended. The last one that was seen.",
	}, of[:2])
	d.failed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mcm_machine_num_failed_join", Help: "Machines that did not join within their creation timeout.",
	}, of)
	registry.MustRegister(d.drained, d.failed)
	return d
}

// Watch measures what the events of a cluster's caches show until stop is called. What happened before the call, and
// what happens while no bridge is the leader, is not measured.
func (d Durations) Watch(cluster *cache.Cluster) (stop func(), err error) {
	machines, deployments := cluster.Informer(cache.Machines), cluster.Informer(cache.Deployments)
	w := watcher{Durations: d, cluster: cluster}
	onMachines, err := machines.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if m := after.(machine); cluster.Ours(m.Namespace) {
				w.changed(before.(machine), m)
			}
		},
		DeleteFunc: func(object any) {
			// A tombstone has another type: the machine was deleted while the watch was broken, and nobody knows when.
			if m, is := object.(machine); is && cluster.Ours(m.Namespace) {
				w.gone(m, time.Now())
			}
		},
	})
	if err != nil {
		return nil, err
	}
	onDeployments, err := deployments.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: d.forget})
	stop = func() {
		_ = machines.RemoveEventHandler(onMachines) // fails only for a handler of another informer
		if onDeployments != nil {
			_ = deployments.RemoveEventHandler(onDeployments)
		}
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// forget removes the series of a deployment that is gone: otherwise the number of series would grow without bound.
func (d Durations) forget(object any) {
	key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	namespace, name, err := toolscache.SplitMetaNamespaceKey(key)
	if err != nil {
		return
	}
	labels := prometheus.Labels{"namespace": namespace, "machine_deployment": name}
	for _, last := range d.last {
		last.DeletePartialMatch(labels)
	}
	d.drained.DeletePartialMatch(labels)
	d.failed.DeletePartialMatch(labels)
}

// watcher compares versions of machines.
type watcher struct {
	Durations

	cluster *cache.Cluster
}

func (w watcher) changed(before, after machine) {
	if at, is := turnedTrue(before, after, v1alpha1.MachineInstanceReady); is {
		w.measure(create, after, at.Sub(after.CreationTimestamp.Time))
	}
	if joined(before, after) {
		w.measure(join, after, after.Status.CurrentStatus.LastUpdateTime.Sub(after.CreationTimestamp.Time))
	}
	due := cache.Condition(after.Status.Conditions, v1alpha1.MachineReplacementDue)
	if _, is := turnedTrue(before, after, v1alpha1.MachineReplacementDue); is &&
		due.Reason == v1alpha1.ReasonCreationTimeout {
		w.failed.WithLabelValues(w.labels(after)...).Inc()
	}
	if d := after.Status.Deletion; d != nil && d.Drain != nil && stage(before) == v1alpha1.MachineDeletionDrain &&
		d.Stage != v1alpha1.MachineDeletionDrain {
		w.drained.WithLabelValues(w.labels(after)[:2]...).Set(seconds(d.Since.Sub(d.Drain.StartedAt.Time)))
	}
}

func (w watcher) gone(m machine, now time.Time) {
	if m.DeletionTimestamp != nil {
		w.measure(remove, m, now.Sub(m.DeletionTimestamp.Time))
	}
}

func (w watcher) measure(what string, m machine, took time.Duration) {
	labels := w.labels(m)
	w.last[what].WithLabelValues(labels...).Set(seconds(took))
	w.took[what].WithLabelValues(labels[2:]...).Observe(seconds(took))
}

// labels returns namespace, deployment, instance type and zone of a machine; an unknown one is empty.
func (w watcher) labels(m machine) []string {
	var owner, instanceType string
	if o := metav1.GetControllerOf(m); o != nil {
		if s, found := w.cluster.Set(m.Namespace + "/" + o.Name); found && s.UID == o.UID {
			if of := metav1.GetControllerOf(s); of != nil {
				owner = of.Name
			}
		}
	}
	class := w.cluster.ClassOf(m)
	if class != nil && class.NodeTemplate != nil {
		instanceType = class.NodeTemplate.InstanceType
	}
	return []string{m.Namespace, owner, instanceType, observemachine.FailureDomain(m, class)}
}

// joined reports whether a machine's node became ready for the first time.
func joined(before, after machine) bool {
	switch before.Status.CurrentStatus.Phase {
	case "", v1alpha1.MachinePending, v1alpha1.MachineCrashLoopBackOff:
		return after.Status.CurrentStatus.Phase == v1alpha1.MachineRunning
	default:
		return false
	}
}

func stage(m machine) v1alpha1.MachineDeletionStage {
	if m.Status.Deletion == nil {
		return ""
	}
	return m.Status.Deletion.Stage
}

// turnedTrue reports whether a condition became True between two versions of a machine, and when.
func turnedTrue(before, after machine, of corev1.NodeConditionType) (time.Time, bool) {
	c := cache.Condition(after.Status.Conditions, of)
	if c == nil || c.Status != corev1.ConditionTrue {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, !cache.IsTrue(before.Status.Conditions, of)
}

// seconds returns 0 for a negative duration: the times of the API have whole seconds, and the clocks of hosts differ.
func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }
