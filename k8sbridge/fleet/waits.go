package fleet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
)

// noneLabelValue is the value for an empty label, because Prometheus does not distinguish an empty label from an absent
// label.
const noneLabelValue = "None"

func labelValueOrNone(value string) string {
	if value == "" {
		return noneLabelValue
	}
	return value
}

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// operationAndBlockGauges are the gauges of objects with an open operation and of blocked objects: their number, and
// the earliest start time.
type operationAndBlockGauges struct {
	openOperations, oldestOperation, blockedObjects, oldestBlock, blockedByNamespace *prometheus.Desc
}

func newOperationAndBlockGauges() operationAndBlockGauges {
	return operationAndBlockGauges{
		openOperations: newDesc(
			"millwright_operations_open",
			"Objects with a current operation, by step and by the reason of their condition Blocked. Reason None: not blocked.",
			"kind",
			"step",
			"reason",
		),
		oldestOperation: newDesc("millwright_operations_oldest_start_timestamp_seconds",
			"When the oldest of the open operations began its step, in seconds since 1970.", "kind", "step", "reason"),
		blockedObjects: newDesc(
			"millwright_blocked_objects",
			"Objects that stand still, by the reason of their condition Blocked.",
			"kind",
			"reason",
		),
		oldestBlock: newDesc("millwright_blocked_oldest_start_timestamp_seconds",
			"Since when the oldest of the blocked objects has stood still, in seconds since 1970.", "kind", "reason"),
		blockedByNamespace: newDesc("millwright_namespace_blocked_objects",
			"Objects that stand still, by namespace. No value: none stands still.", "namespace", "kind"),
	}
}

func (w operationAndBlockGauges) describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		w.openOperations, w.oldestOperation, w.blockedObjects, w.oldestBlock, w.blockedByNamespace,
	} {
		descs <- d
	}
}

// objectWithOperation is an object that may have a current operation.
type objectWithOperation struct {
	kind          string
	namespace     string
	operation     *v1alpha1.Operation // nil: the object has no current operation
	blockedReason string              // reason of the object's condition Blocked; empty: not blocked
	blockedSince  time.Time           // start time of the block
}

// millwrightObjectsWithOperations returns the operation and the blocker of each object of Millwright.
func millwrightObjectsWithOperations(
	machines []machine,
	sets []machineSet,
	deployments []deployment,
) (all []objectWithOperation) {
	for _, m := range machines {
		reason, since := findBlockedReason(m.Status.Conditions, func(c corev1.NodeCondition) (bool, string, metav1.Time) {
			return c.Type == v1alpha1.MachineBlocked && c.Status == corev1.ConditionTrue, c.Reason, c.LastTransitionTime
		})
		all = append(all, objectWithOperation{"Machine", m.Namespace, m.Status.CurrentOperation, reason, since})
	}
	for _, s := range sets {
		reason, since := findBlockedReason(
			s.Status.Conditions,
			func(c v1alpha1.MachineSetCondition) (bool, string, metav1.Time) {
				return c.Type == v1alpha1.MachineSetBlocked && c.Status == v1alpha1.ConditionTrue, c.Reason, c.LastTransitionTime
			},
		)
		all = append(all, objectWithOperation{"MachineSet", s.Namespace, s.Status.CurrentOperation, reason, since})
	}
	for _, d := range deployments {
		reason, since := findBlockedReason(
			d.Status.Conditions,
			func(c v1alpha1.MachineDeploymentCondition) (bool, string, metav1.Time) {
				return c.Type == v1alpha1.MachineDeploymentBlocked &&
					c.Status == v1alpha1.ConditionTrue, c.Reason, c.LastTransitionTime
			},
		)
		all = append(all, objectWithOperation{"MachineDeployment", d.Namespace, d.Status.CurrentOperation, reason, since})
	}
	return all
}

func (w operationAndBlockGauges) collect(samples chan<- prometheus.Metric, all []objectWithOperation) {
	open, blocked := labelGroups{}, labelGroups{}
	byNamespace := map[[2]string]int{}
	for _, m := range all {
		if m.blockedReason != "" {
			blocked.addObject(m.blockedSince, m.kind, m.blockedReason)
			byNamespace[[2]string{m.namespace, m.kind}]++
		}
		if m.operation != nil {
			open.addObject(m.operation.Since.Time, m.kind, labelValueOrNone(m.operation.Step), labelValueOrNone(m.blockedReason))
		}
	}
	open.sendSamples(samples, w.openOperations, w.oldestOperation)
	blocked.sendSamples(samples, w.blockedObjects, w.oldestBlock)
	for labels, count := range byNamespace {
		samples <- prometheus.MustNewConstMetric(w.blockedByNamespace, prometheus.GaugeValue, float64(count), labels[:]...)
	}
}

// findBlockedReason returns the reason of the condition Blocked and its transition time. The reason is empty if Blocked
// is not True.
func findBlockedReason[C any](
	conditions []C,
	read func(C) (blocked bool, reason string, since metav1.Time),
) (string, time.Time) {
	for _, c := range conditions {
		if blocked, reason, since := read(c); blocked {
			return labelValueOrNone(reason), since.Time
		}
	}
	return "", time.Time{}
}

// labelGroups counts objects by two or three labels. With two labels, the third element of the key is empty.
type labelGroups map[[3]string]*labelGroup

type labelGroup struct {
	labels      []string
	count       int
	oldestStart time.Time // zero: no time is known
}

func (g labelGroups) addObject(since time.Time, labels ...string) {
	var key [3]string
	copy(key[:], labels)
	if g[key] == nil {
		g[key] = &labelGroup{labels: labels}
	}
	of := g[key]
	of.count++
	if !since.IsZero() && (of.oldestStart.IsZero() || since.Before(of.oldestStart)) {
		of.oldestStart = since
	}
}

func (g labelGroups) sendSamples(samples chan<- prometheus.Metric, count, oldest *prometheus.Desc) {
	for _, of := range g {
		samples <- prometheus.MustNewConstMetric(count, prometheus.GaugeValue, float64(of.count), of.labels...)
		if !of.oldestStart.IsZero() {
			samples <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, float64(of.oldestStart.Unix()), of.labels...)
		}
	}
}
