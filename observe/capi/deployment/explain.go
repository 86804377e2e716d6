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

// ExplanationFacts returns the facts that explain what blocks a deployment and its sets. The plan contains the
// conditions that the deployment's status should have.
func ExplanationFacts(f ObjectTree, plan rollout.PlanResult, now time.Time) explain.Deployment {
	d := f.Deployment
	e := explain.Deployment{
		Namespace: d.Namespace, Name: d.Name, IsClusterAPI: true, ResumeCommand: f.resumeCommand(),
		HasPendingChanges: plan.Decision.NoSet || !plan.Decision.Complete || d.DeletionTimestamp != nil,
		MachineCount:      max(len(f.Members), int(capi.ValueOrZero(d.Spec.Replicas))),
	}
	if pin := plan.Decision.Pin; pin != nil {
		e.PinWait = explain.WaitState{
			Blockers: []string{pin.Reason()}, Cause: pin.SentenceWithoutTime(plan.Decision.Revision), Since: pin.Since,
		}
	}
	if p := plan.Decision.Pause; p != nil && !p.Approve {
		e.RolloutStep, e.RolloutStepEnd = p.ReachedClause(), p.Until
	}
	e.Turn = plan.Decision.Turn
	for _, c := range plan.Status.Conditions {
		since := c.LastUpdateTime
		if was := capi.ConditionOfType(d.Status.Conditions, c.Type); since.IsZero() &&
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
			capiset.ExplanationFacts(
				set,
				capi.RelatedObjects{Members: f.MachinesOfSet(set), Cluster: f.Cluster},
				conditionsOfSet(set),
				now,
			),
		)
	}
	return e
}

// resumeCommand returns the command that ends a pause of the deployment or of its Cluster; empty if neither is paused.
func (f ObjectTree) resumeCommand() string {
	d := f.Deployment
	if _, paused := d.Annotations[clusterv1.PausedAnnotation]; paused {
		return fmt.Sprintf(
			"kubectl annotate machinedeployments.cluster.x-k8s.io -n %s %s %s-",
			d.Namespace,
			d.Name,
			clusterv1.PausedAnnotation,
		)
	}
	if f.Cluster != nil && capi.ValueOrZero(f.Cluster.Spec.Paused) {
		return fmt.Sprintf("kubectl edit clusters.cluster.x-k8s.io -n %s %s", d.Namespace, f.Cluster.Name)
	}
	return ""
}

// MachinesOfSet returns the machines of one of the deployment's sets, unsorted.
func (f ObjectTree) MachinesOfSet(set *clusterv1.MachineSet) []*clusterv1.Machine {
	return slices.DeleteFunc(
		slices.Clone(f.Members),
		func(m *clusterv1.Machine) bool { return !metav1.IsControlledBy(m, set) },
	)
}

// conditionsOfSet returns the conditions in the status of a set.
func conditionsOfSet(set *clusterv1.MachineSet) (all []scale.Condition) {
	for _, c := range set.Status.Conditions {
		all = append(
			all,
			scale.Condition{Type: c.Type, Status: scale.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message},
		)
	}
	return all
}
