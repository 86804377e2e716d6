package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/explain"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/observe/capi"
	capiset "millwright/observe/capi/set"
)

// Explained returns the facts that explain what blocks a deployment and its sets. The plan contains the conditions that
// the deployment's status should have.
func Explained(f Tree, plan rollout.Planned, now time.Time) explain.Deployment {
	d := f.Deployment
	e := explain.Deployment{
		Namespace: d.Namespace, Name: d.Name, ClusterAPI: true, Resume: f.resumeCommand(),
		Busy: plan.Decision.NoSet || !plan.Decision.Complete || d.DeletionTimestamp != nil,
		Of:   max(len(f.Members), int(capi.Value(d.Spec.Replicas))),
	}
	if pin := plan.Decision.Pin; pin != nil {
		e.Pin = explain.Wait{
			Blockers: []string{pin.Reason()}, Cause: pin.Cause(plan.Decision.Revision), Since: pin.Since,
		}
	}
	if p := plan.Decision.Pause; p != nil && !p.Approve {
		e.Step, e.Until = p.Reached(), p.Until
	}
	for _, c := range plan.Status.Conditions {
		since := c.Updated
		if was := capi.ConditionOf(d.Status.Conditions, c.Type); since.IsZero() &&
			was.Status == metav1.ConditionStatus(c.Status) {
			since = was.LastTransitionTime.Time
		}
		e.Conditions = append(
			e.Conditions,
			explain.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Since: cmp.Or(since, now)},
		)
	}
	sets := slices.SortedFunc(slices.Values(f.Sets), func(a, b *clusterv1.MachineSet) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) // newest set first
	})
	for _, set := range sets {
		e.Sets = append(
			e.Sets,
			capiset.Explained(set, capi.Related{Members: f.MembersOf(set), Cluster: f.Cluster}, conditionsOf(set), now),
		)
	}
	return e
}

// resumeCommand returns the command that ends a pause of the deployment or of its Cluster; empty if neither is paused.
func (f Tree) resumeCommand() string {
	d := f.Deployment
	if _, paused := d.Annotations[clusterv1.PausedAnnotation]; paused {
		return fmt.Sprintf(
			"kubectl annotate machinedeployments.cluster.x-k8s.io -n %s %s %s-",
			d.Namespace,
			d.Name,
			clusterv1.PausedAnnotation,
		)
	}
	if f.Cluster != nil && capi.Value(f.Cluster.Spec.Paused) {
		return fmt.Sprintf("kubectl edit clusters.cluster.x-k8s.io -n %s %s", d.Namespace, f.Cluster.Name)
	}
	return ""
}

// MembersOf returns the machines of one of the deployment's sets, unsorted.
func (f Tree) MembersOf(set *clusterv1.MachineSet) []*clusterv1.Machine {
	return slices.DeleteFunc(
		slices.Clone(f.Members),
		func(m *clusterv1.Machine) bool { return !metav1.IsControlledBy(m, set) },
	)
}

// conditionsOf returns the conditions in the status of a set.
func conditionsOf(set *clusterv1.MachineSet) (all []scale.Condition) {
	for _, c := range set.Status.Conditions {
		all = append(all, scale.Condition{Type: c.Type, Status: scale.Answer(c.Status), Reason: c.Reason, Message: c.Message})
	}
	return all
}
