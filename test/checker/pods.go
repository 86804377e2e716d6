package checker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// FindBrokenBudgets finds disruption budgets with fewer ready pods than they must keep. FindBrokenBudgets uses the
// conditions of the pods to count ready pods. The number of expected pods is from the budget's status, which Kubernetes
// writes.
func FindBrokenBudgets(s Snapshot) (found []Finding) {
	for _, b := range s.Budgets {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		least, known := budgetMinimum(&b)
		if err != nil || !known || b.DeletionTimestamp != nil {
			continue
		}
		ready := 0
		for _, p := range s.Pods {
			if selector.Matches(labels.Set(p.Labels)) && isServingPod(&p) {
				ready++
			}
		}
		if ready < least {
			found = append(
				found,
				Finding{CheckBrokenBudget, b.Name, fmt.Sprintf("%d pods ready, the budget keeps %d", ready, least)},
			)
		}
	}
	return found
}

// budgetMinimum returns the minimum number of ready pods of a budget. As in Kubernetes, both fields of the budget are
// rounded up. The result known is false if the minimum depends on the number of pods and Kubernetes has not counted the
// pods yet.
func budgetMinimum(b *policyv1.PodDisruptionBudget) (least int, known bool) {
	expected := int(b.Status.ExpectedPods)
	switch {
	case b.Spec.MaxUnavailable != nil:
		most, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, expected, true)
		return max(0, expected-most), err == nil && expected > 0
	case b.Spec.MinAvailable != nil:
		least, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, expected, true)
		return least, err == nil && (expected > 0 || b.Spec.MinAvailable.Type == intstr.Int)
	default:
		return 0, false
	}
}

// isServingPod reports whether a pod is ready and is not being deleted.
func isServingPod(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// PodDeparture is a pod whose deletion began, or that vanished, while the Machine of its node was being deleted.
type PodDeparture struct {
	Time      time.Time
	Pod, Node string
	Deadline  time.Time // time before which the drain must not delete pods; zero if the Machine is unknown
}

// FindPodDepartures returns the departures between two consecutive snapshots.
func FindPodDepartures(before, after Snapshot) (left []PodDeparture) {
	still := map[types.UID]bool{}
	for _, p := range after.Pods {
		still[p.UID] = p.DeletionTimestamp == nil
	}
	leaving := map[string]time.Time{} // maps the name of a node to the deadline of its drain
	for _, n := range before.Nodes {
		for _, i := range before.Instances {
			if i.ProviderID != n.Spec.ProviderID {
				continue
			}
			now, last := after.MachineByUID(i.Tags.MachineUID), before.MachineByUID(i.Tags.MachineUID)
			switch m := cmp.Or(now, last); {
			// The time is a lower bound: the drain starts after the deletion timestamp, and the drain's deadline is
			// relative to this start.
			case m != nil && m.DeletionTimestamp != nil:
				leaving[n.Name] = m.DeletionTimestamp.Add(m.Spec.EffectiveDrainTimeout())
			case now == nil:
				leaving[n.Name] = time.Time{}
			}
		}
	}
	for _, p := range before.Pods {
		if deadline, leaves := leaving[p.Spec.NodeName]; p.DeletionTimestamp == nil && leaves && !still[p.UID] {
			left = append(left, PodDeparture{Time: after.Time, Pod: p.Name, Node: p.Spec.NodeName, Deadline: deadline})
		}
	}
	return left
}

// FindPodsGoneWithoutEviction finds the departures of pods that left before the drain's deadline without an eviction
// that the API server accepted. After the deadline, drains delete pods.
func FindPodsGoneWithoutEviction(left []PodDeparture, evicted map[string]bool) (found []Finding) {
	for _, d := range left {
		if forced := !d.Deadline.IsZero() && !d.Time.Before(d.Deadline); !evicted[d.Pod] && !forced {
			found = append(
				found,
				Finding{
					CheckPodWithoutEviction,
					d.Pod,
					fmt.Sprintf("left node %s at %s, and no eviction was accepted", d.Node, d.Time.Format("15:04:05.0")),
				},
			)
		}
	}
	return found
}

// ReadEvictedPods returns the names of the pods in a namespace whose eviction the API server has accepted. The source
// is the API server's audit log. Each pod of the namespace, including deleted pods, must have a unique name. The API
// server writes the log in batches, up to 30 s late. If the API server is killed, a batch is lost.
func ReadEvictedPods(auditLog io.Reader, namespace string) map[string]bool {
	evicted := map[string]bool{}
	for decoder := json.NewDecoder(auditLog); ; {
		var event struct {
			Verb           string
			ObjectRef      struct{ Resource, Namespace, Name, Subresource string }
			ResponseStatus struct{ Code int }
		}
		if decoder.Decode(&event) != nil {
			return evicted // the API server is still writing the last line
		}
		o := event.ObjectRef
		if event.Verb == "create" && o.Resource == "pods" && o.Subresource == "eviction" && o.Namespace == namespace &&
			event.ResponseStatus.Code == http.StatusCreated {
			evicted[o.Name] = true
		}
	}
}
