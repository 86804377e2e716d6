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

// DurationMetrics measures how long machines take to be created, to join, to be drained and to be deleted. Use
// NewDurationMetrics to create DurationMetrics.
type DurationMetrics struct {
	lastDurations     map[string]*prometheus.GaugeVec // metrics with machine-controller-manager's names
	histograms        map[string]*prometheus.HistogramVec
	lastDrainDuration *prometheus.GaugeVec
	failedJoins       *prometheus.CounterVec
}

// The measured durations.
const (
	durationCreate = "create"
	durationJoin   = "join"
	durationDelete = "delete"
)

// NewDurationMetrics registers the metrics. Call NewDurationMetrics once per registry.
func NewDurationMetrics(registry prometheus.Registerer) DurationMetrics {
	d := DurationMetrics{
		lastDurations: map[string]*prometheus.GaugeVec{},
		histograms:    map[string]*prometheus.HistogramVec{},
	}
	of := []string{"namespace", "machine_deployment", "instance_type", "zone"}
	for what, help := range map[string]string{
		durationCreate: "from the creation of the Machine until the provider has created its instance",
		durationJoin:   "from the creation of the Machine until its node was ready for the first time",
		durationDelete: "from the request to delete the Machine until it was gone",
	} {
		d.lastDurations[what] = prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mcm_machine_" + what + "_duration_seconds", Help: "Time " + help + ". The last one that was seen.",
		}, of)
		d.histograms[what] = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "millwright_machine_" + what + "_duration_seconds", Help: "Time " + help + ".",
			// the largest buckets exceed the defaults of creationTimeout and drainTimeout
			Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 3600, 7200, 14400},
		}, []string{"instance_type", "zone"})
		registry.MustRegister(d.lastDurations[what], d.histograms[what])
	}
	d.lastDrainDuration = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "mcm_machine_drain_duration_seconds",
		Help: "Time from the first eviction until the drain of a deleted Machine ended. The last one that was seen.",
	}, of[:2])
	d.failedJoins = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mcm_machine_num_failed_join", Help: "Machines that did not join within their creation timeout.",
	}, of)
	registry.MustRegister(d.lastDrainDuration, d.failedJoins)
	return d
}

// WatchMachines measures durations from cache events until stop is called. WatchMachines does not measure changes
// before the call, or while no bridge is the leader.
func (d DurationMetrics) WatchMachines(cluster *cache.Cluster) (stop func(), err error) {
	machines, deployments := cluster.Informer(cache.MachinesResource), cluster.Informer(cache.DeploymentsResource)
	w := machineDurationObserver{DurationMetrics: d, cluster: cluster}
	onMachines, err := machines.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if m := after.(machine); cluster.ActsOnMachines(m.Namespace) {
				w.handleUpdate(before.(machine), m)
			}
		},
		DeleteFunc: func(object any) {
			// A tombstone has another type: the deletion happened while the watch was broken, so its time is unknown.
			if m, is := object.(machine); is && cluster.ActsOnMachines(m.Namespace) {
				w.handleDeletion(m, time.Now())
			}
		},
	})
	if err != nil {
		return nil, err
	}
	onDeployments, err := deployments.AddEventHandler(
		toolscache.ResourceEventHandlerFuncs{DeleteFunc: d.deleteDeploymentSeries},
	)
	stop = func() {
		_ = machines.RemoveEventHandler(onMachines) // RemoveEventHandler fails only for a handler of another informer
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

// deleteDeploymentSeries deletes the series of a deleted deployment; otherwise the number of series would grow without
// limit.
func (d DurationMetrics) deleteDeploymentSeries(object any) {
	key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	namespace, name, err := toolscache.SplitMetaNamespaceKey(key)
	if err != nil {
		return
	}
	labels := prometheus.Labels{"namespace": namespace, "machine_deployment": name}
	for _, last := range d.lastDurations {
		last.DeletePartialMatch(labels)
	}
	d.lastDrainDuration.DeletePartialMatch(labels)
	d.failedJoins.DeletePartialMatch(labels)
}

// machineDurationObserver compares two versions of a machine.
type machineDurationObserver struct {
	DurationMetrics

	cluster *cache.Cluster
}

func (w machineDurationObserver) handleUpdate(before, after machine) {
	if at, is := timeConditionBecameTrue(before, after, v1alpha1.MachineInstanceReady); is {
		w.observeDuration(durationCreate, after, at.Sub(after.CreationTimestamp.Time))
	}
	if hasNewlyJoined(before, after) {
		w.observeDuration(durationJoin, after, after.Status.CurrentStatus.LastUpdateTime.Sub(after.CreationTimestamp.Time))
	}
	due := cache.FindNodeCondition(after.Status.Conditions, v1alpha1.MachineReplacementDue)
	if _, is := timeConditionBecameTrue(before, after, v1alpha1.MachineReplacementDue); is &&
		due.Reason == v1alpha1.ReasonCreationTimeout {
		w.failedJoins.WithLabelValues(w.labelValues(after)...).Inc()
	}
	if d := after.Status.Deletion; d != nil && d.Drain != nil && deletionStage(before) == v1alpha1.MachineDeletionDrain &&
		d.Stage != v1alpha1.MachineDeletionDrain {
		w.lastDrainDuration.WithLabelValues(w.labelValues(after)[:2]...).
			Set(nonNegativeSeconds(d.Since.Sub(d.Drain.StartedAt.Time)))
	}
}

func (w machineDurationObserver) handleDeletion(m machine, now time.Time) {
	if m.DeletionTimestamp != nil {
		w.observeDuration(durationDelete, m, now.Sub(m.DeletionTimestamp.Time))
	}
}

func (w machineDurationObserver) observeDuration(what string, m machine, took time.Duration) {
	labels := w.labelValues(m)
	w.lastDurations[what].WithLabelValues(labels...).Set(nonNegativeSeconds(took))
	w.histograms[what].WithLabelValues(labels[2:]...).Observe(nonNegativeSeconds(took))
}

// labelValues returns namespace, deployment, instance type and zone of a machine. Unknown values are empty.
func (w machineDurationObserver) labelValues(m machine) []string {
	var owner, instanceType string
	if o := metav1.GetControllerOf(m); o != nil {
		if s, found := w.cluster.MachineSet(m.Namespace + "/" + o.Name); found && s.UID == o.UID {
			if of := metav1.GetControllerOf(s); of != nil {
				owner = of.Name
			}
		}
	}
	class := w.cluster.ClassOfMachine(m)
	if class != nil && class.NodeTemplate != nil {
		instanceType = class.NodeTemplate.InstanceType
	}
	return []string{m.Namespace, owner, instanceType, observemachine.FailureDomain(m, class)}
}

// hasNewlyJoined reports whether a machine's node became ready for the first time between the two versions.
func hasNewlyJoined(before, after machine) bool {
	switch before.Status.CurrentStatus.Phase {
	case "", v1alpha1.MachinePending, v1alpha1.MachineCrashLoopBackOff:
		return after.Status.CurrentStatus.Phase == v1alpha1.MachineRunning
	default:
		return false
	}
}

func deletionStage(m machine) v1alpha1.MachineDeletionStage {
	if m.Status.Deletion == nil {
		return ""
	}
	return m.Status.Deletion.Stage
}

// timeConditionBecameTrue reports whether a condition became True between two versions of a machine, and returns the
// time.
func timeConditionBecameTrue(before, after machine, of corev1.NodeConditionType) (time.Time, bool) {
	c := cache.FindNodeCondition(after.Status.Conditions, of)
	if c == nil || c.Status != corev1.ConditionTrue {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, !cache.IsConditionTrue(before.Status.Conditions, of)
}

// nonNegativeSeconds returns 0 for a negative duration: API timestamps have whole seconds, and the clocks of hosts
// differ.
func nonNegativeSeconds(d time.Duration) float64 { return max(d, 0).Seconds() }
