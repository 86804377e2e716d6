package deployment

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
)

// CurrentRolloutID returns the workflow ID of the rollout that a deployment's status names as its current operation.
// CurrentRolloutID is empty if the status names no rollout, or if it names the rollout of another object. A restored
// deployment, for example, has the status of the deleted deployment.
func CurrentRolloutID(d *v1alpha1.MachineDeployment) string {
	if o := d.Status.CurrentOperation; o != nil && o.RolloutOf == d.UID {
		return o.WorkflowID
	}
	return ""
}

// plannedConditionTypes are the condition types that rollout.PlanDeployment computes. Plan returns ReplicaFailure and
// Frozen only while they are True.
var plannedConditionTypes = []v1alpha1.MachineDeploymentConditionType{
	v1alpha1.MachineDeploymentAvailable, v1alpha1.MachineDeploymentProgressing,
	v1alpha1.MachineDeploymentReplicaFailure, v1alpha1.MachineDeploymentFrozen,
	v1alpha1.MachineDeploymentDegraded, v1alpha1.MachineDeploymentReconciling, v1alpha1.MachineDeploymentStalled,
}

// ApplyStatus writes the status that rollout.PlanDeployment computed, without the failed machines, because the plan
// contains only their names. ApplyStatus keeps all other conditions.
func ApplyStatus(s *v1alpha1.MachineDeploymentStatus, want rollout.Status, now metav1.Time) {
	c := want.Counts
	s.Replicas, s.UpdatedReplicas, s.ReadyReplicas = int32(c.Replicas), int32(c.Updated), int32(c.Ready)
	s.AvailableReplicas = int32(c.Available)
	s.UnavailableReplicas = int32(c.Unavailable)
	s.PreservedFailedReplicas = int32(c.PreservedFailed)
	s.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(c v1alpha1.MachineDeploymentCondition) bool {
		stays := slices.ContainsFunc(want.Conditions, func(w rollout.Condition) bool { return w.Type == string(c.Type) })
		return slices.Contains(plannedConditionTypes, c.Type) && !stays
	})
	for _, c := range want.Conditions {
		updated := now
		if !c.LastUpdateTime.IsZero() {
			updated = metav1.NewTime(c.LastUpdateTime).Rfc3339Copy()
		}
		s.Conditions = SetCondition(s.Conditions, v1alpha1.MachineDeploymentCondition{
			Type: v1alpha1.MachineDeploymentConditionType(c.Type), Status: v1alpha1.ConditionStatus(c.Status),
			Reason: c.Reason, Message: c.Message, LastUpdateTime: updated,
		}, now)
	}
}

// SetCondition sets a condition in the list. A condition's transition time changes only with its status. If status,
// reason and message stay the same, the update time stays the same too, except for Progressing. If status, reason or
// message changed, SetCondition uses the condition's own update time, or now if the own update time is zero.
func SetCondition(
	list []v1alpha1.MachineDeploymentCondition,
	c v1alpha1.MachineDeploymentCondition,
	now metav1.Time,
) []v1alpha1.MachineDeploymentCondition {
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
	switch same := old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message; {
	case same && c.Type != v1alpha1.MachineDeploymentProgressing:
		c.LastUpdateTime = old.LastUpdateTime
	case c.LastUpdateTime.IsZero():
		c.LastUpdateTime = now
	}
	list[i] = c
	return list
}
