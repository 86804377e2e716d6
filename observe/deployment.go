package observe

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
)

// DeploymentFacts turns a deployment and all below it into the facts that say whether the deployment is calm at that time.
func DeploymentFacts(family Family, now time.Time) attention.DeploymentFacts {
	d := family.Deployment
	o := RolloutObserved(family, now)
	next := rollout.Decide(o)
	f := attention.DeploymentFacts{
		Deleting:           o.Deleting,
		Finalizer:          HasFinalizer(d.Finalizers),
		Generation:         d.Generation,
		ObservedGeneration: d.Status.ObservedGeneration,
		Machines:           len(family.Members),
		Rolling:            next.Rolling && next.HoldBy != rollout.HeldBy,
		Recheck:            !next.Recheck.IsZero(),
		Unreported:         !ReportsDeployment(d, rollout.Report(o)),
		Replacing:          len(d.Status.Replacements),
		Says:               next.Why,
	}
	if next.Acts() {
		f.Next = next.Why
	}
	for _, m := range family.Members {
		if IsWaiting(m) {
			f.Due++
		}
	}
	return f
}

// RolloutNamed returns the workflow ID of the rollout that a deployment's status names as what is under way; empty when it names none. A
// status that came with the object from elsewhere names one of another UID, which is none.
func RolloutNamed(d *v1alpha1.MachineDeployment) string {
	o := d.Status.CurrentOperation
	if o == nil || !strings.HasPrefix(o.WorkflowID, "rollout/") || !strings.Contains(o.WorkflowID, "/"+string(d.UID)+"/") {
		return ""
	}
	return o.WorkflowID
}

// ReportsDeployment reports whether a deployment's status says what was counted and decided.
func ReportsDeployment(d *v1alpha1.MachineDeployment, want rollout.Status) bool {
	changed := d.DeepCopy()
	ApplyRolloutStatus(&changed.Status, want, metav1.Time{})
	a, b := &changed.Status, &d.Status
	return a.Replicas == b.Replicas && a.UpdatedReplicas == b.UpdatedReplicas && a.ReadyReplicas == b.ReadyReplicas &&
		a.AvailableReplicas == b.AvailableReplicas && a.UnavailableReplicas == b.UnavailableReplicas &&
		a.PreservedFailedReplicas == b.PreservedFailedReplicas &&
		slices.EqualFunc(want.Failed, b.FailedMachines, func(name string, m v1alpha1.MachineSummary) bool { return m.Name == name }) &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(x, y v1alpha1.MachineDeploymentCondition) bool {
			return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
		})
}

// ofRollout are the conditions that rollout.Report speaks of. It leaves the last two out while they are not True.
var ofRollout = []v1alpha1.MachineDeploymentConditionType{
	v1alpha1.MachineDeploymentAvailable, v1alpha1.MachineDeploymentProgressing,
	v1alpha1.MachineDeploymentReplicaFailure, v1alpha1.MachineDeploymentFrozen,
}

// ApplyRolloutStatus makes a status say what rollout.Report says, but for the failed machines, of which it knows the names
// only. Other conditions stay. The sentence of ReplicaFailure stays while its reason does: another machine's is no news.
func ApplyRolloutStatus(s *v1alpha1.MachineDeploymentStatus, want rollout.Status, now metav1.Time) {
	c := want.Counts
	s.Replicas, s.UpdatedReplicas, s.ReadyReplicas = int32(c.Replicas), int32(c.Updated), int32(c.Ready)
	s.AvailableReplicas, s.UnavailableReplicas, s.PreservedFailedReplicas = int32(c.Available), int32(c.Unavailable), int32(c.PreservedFailed)
	s.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(c v1alpha1.MachineDeploymentCondition) bool {
		told := slices.ContainsFunc(want.Conditions, func(w rollout.Condition) bool { return w.Type == string(c.Type) })
		return slices.Contains(ofRollout, c.Type) && !told
	})
	for _, c := range want.Conditions {
		updated := now
		if !c.Updated.IsZero() {
			updated = metav1.NewTime(c.Updated).Rfc3339Copy()
		}
		s.Conditions = SetDeploymentCondition(s.Conditions, v1alpha1.MachineDeploymentCondition{
			Type: v1alpha1.MachineDeploymentConditionType(c.Type), Status: v1alpha1.ConditionStatus(c.Status),
			Reason: c.Reason, Message: short(c.Message), LastUpdateTime: updated,
		}, now)
	}
}

// SetDeploymentCondition puts a condition into the list. Its transition time moves with its status; its update time is the one it
// brings, or now when it says something else than before.
func SetDeploymentCondition(list []v1alpha1.MachineDeploymentCondition, c v1alpha1.MachineDeploymentCondition, now metav1.Time) []v1alpha1.MachineDeploymentCondition {
	c.LastTransitionTime = now
	i := slices.IndexFunc(list, func(o v1alpha1.MachineDeploymentCondition) bool { return o.Type == c.Type })
	if i < 0 {
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		return append(list, c)
	}
	old := list[i]
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	if c.Type == v1alpha1.MachineDeploymentReplicaFailure && old.Reason == c.Reason {
		c.Message = old.Message
	}
	switch same := old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message; {
	case same && c.Type != v1alpha1.MachineDeploymentProgressing:
		c.LastUpdateTime = old.LastUpdateTime
	case c.LastUpdateTime.IsZero():
		c.LastUpdateTime = now
	}
	list[i] = c
	return list
}
