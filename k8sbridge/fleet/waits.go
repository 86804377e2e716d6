package fleet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
)

// none is the value of a label without content: Prometheus does not distinguish an empty label from an absent one.
const none = "None"

func orNone(value string) string {
	if value == "" {
		return none
	}
	return value
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// waits are gauges of the objects that are in motion and of those that stand still: their number, and since when the
// oldest has been.
type waits struct{ operations, oldest, blocked, longest *prometheus.Desc }

func newWaits() waits {
	return waits{
		operations: desc(
			"millwright_operations_open",
			"Objects with a current operation, by step and by the reason of their condition Blocked. Reason None: not blocked.",
			"kind",
			"step",
			"reason",
		),
		oldest: desc("millwright_operations_oldest_start_timestamp_seconds",
			"When the oldest of the open operations began its step, in seconds since 1970.", "kind", "step", "reason"),
		blocked: desc(
			"millwright_blocked_objects",
			"Objects that stand still, by the reason of their condition Blocked.",
			"kind",
			"reason",
		),
		longest: desc("millwright_blocked_oldest_start_timestamp_seconds",
			"Since when the oldest of the blocked objects has stood still, in seconds since 1970.", "kind", "reason"),
	}
}

func (w waits) describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{w.operations, w.oldest, w.blocked, w.longest} {
		descs <- d
	}
}

// moving is an object that may have work in progress.
type moving struct {
	kind      string
	operation *v1alpha1.Operation // nil: it has none
	reason    string              // reason of its condition Blocked; empty: it is not blocked
	since     time.Time           // since when it is blocked
}

// inMotion returns for each object of Millwright its operation and what blocks it.
func inMotion(machines []machine, sets []set, deployments []deployment) (all []moving) {
	for _, m := range machines {
		reason, since := blockedBy(m.Status.Conditions, func(c corev1.NodeCondition) (bool, string, metav1.Time) {
			return c.Type == v1alpha1.MachineBlocked && c.Status == corev1.ConditionTrue, c.Reason, c.LastTransitionTime
		})
		all = append(all, moving{"Machine", m.Status.CurrentOperation, reason, since})
	}
	for _, s := range sets {
		reason, since := blockedBy(s.Status.Conditions, func(c v1alpha1.MachineSetCondition) (bool, string, metav1.Time) {
			return c.Type == v1alpha1.MachineSetBlocked && c.Status == v1alpha1.ConditionTrue, c.Reason, c.LastTransitionTime
		})
		all = append(all, moving{"MachineSet", s.Status.CurrentOperation, reason, since})
	}
	for _, d := range deployments {
		reason, since := blockedBy(
			d.Status.Conditions,
			func(c v1alpha1.MachineDeploymentCondition) (bool, string, metav1.Time) {
				return c.Type == v1alpha1.MachineDeploymentBlocked &&
					c.Status == v1alpha1.ConditionTrue, c.Reason, c.LastTransitionTime
			},
		)
		all = append(all, moving{"MachineDeployment", d.Status.CurrentOperation, reason, since})
	}
	return all
}

func (w waits) collect(samples chan<- prometheus.Metric, all []moving) {
	open, blocked := groups{}, groups{}
	for _, m := range all {
		if m.reason != "" {
			blocked.add(m.since, m.kind, m.reason)
		}
		if m.operation != nil {
			open.add(m.operation.Since.Time, m.kind, orNone(m.operation.Step), orNone(m.reason))
		}
	}
	open.send(samples, w.operations, w.oldest)
	blocked.send(samples, w.blocked, w.longest)
}

// blockedBy returns the reason of the condition Blocked, and since when it is True; an empty reason if it is not.
func blockedBy[C any](
	conditions []C,
	read func(C) (blocked bool, reason string, since metav1.Time),
) (string, time.Time) {
	for _, c := range conditions {
		if blocked, reason, since := read(c); blocked {
			return orNone(reason), since.Time
		}
	}
	return "", time.Time{}
}

// groups count objects by two or three labels; the third place of a key is empty if there are two.
type groups map[[3]string]*group

type group struct {
	labels []string
	n      int
	oldest time.Time // zero: no time is known
}

func (g groups) add(since time.Time, labels ...string) {
	var key [3]string
	copy(key[:], labels)
	if g[key] == nil {
		g[key] = &group{labels: labels}
	}
	of := g[key]
	of.n++
	if !since.IsZero() && (of.oldest.IsZero() || since.Before(of.oldest)) {
		of.oldest = since
	}
}

func (g groups) send(samples chan<- prometheus.Metric, count, oldest *prometheus.Desc) {
	for _, of := range g {
		samples <- prometheus.MustNewConstMetric(count, prometheus.GaugeValue, float64(of.n), of.labels...)
		if !of.oldest.IsZero() {
			samples <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, float64(of.oldest.Unix()), of.labels...)
		}
	}
}
