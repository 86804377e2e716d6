package deployment

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
)

// Named returns the workflow ID of the rollout that a deployment's status names as its current operation. It is empty
// when the status names none, or the rollout of another object: a restored object brings the status of its predecessor.
func Named(d *v1alpha1.MachineDeployment) string {
	if o := d.Status.CurrentOperation; o != nil && o.RolloutOf == d.UID {
		return o.WorkflowID
	}
	return ""
}

// ofRollout are the conditions that rollout.Plan decides. It returns the last two only while they are True.
var ofRollout = []v1alpha1.MachineDeploymentConditionType{
	v1alpha1.MachineDeploymentAvailable, v1alpha1.MachineDeploymentProgressing,
	v1alpha1.MachineDeploymentReplicaFailure, v1alpha1.MachineDeploymentFrozen,
}

// ApplyStatus writes the status that rollout.Plan decided, except the failed machines, of which it knows only the
// names. Other conditions stay.
func ApplyStatus(s *v1alpha1.MachineDeploymentStatus, want rollout.Status, now metav1.Time) {
	c := want.Counts
	s.Replicas, s.UpdatedReplicas, s.ReadyReplicas = int32(c.Replicas), int32(c.Updated), int32(c.Ready)
	s.AvailableReplicas = int32(c.Available)
	s.UnavailableReplicas = int32(c.Unavailable)
	s.PreservedFailedReplicas = int32(c.PreservedFailed)
	s.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(c v1alpha1.MachineDeploymentCondition) bool {
		stays := slices.ContainsFunc(want.Conditions, func(w rollout.Condition) bool { return w.Type == string(c.Type) })
		return slices.Contains(ofRollout, c.Type) && !stays
	})
	for _, c := range want.Conditions {
		updated := now
		if !c.Updated.IsZero() {
			updated = metav1.NewTime(c.Updated).Rfc3339Copy()
		}
		s.Conditions = SetCondition(s.Conditions, v1alpha1.MachineDeploymentCondition{
			Type: v1alpha1.MachineDeploymentConditionType(c.Type), Status: v1alpha1.ConditionStatus(c.Status),
			Reason: c.Reason, Message: c.Message, LastUpdateTime: updated,
		}, now)
	}
}

// SetCondition puts a condition into the list. Its transition time changes only with its status. Its update time stays
// if nothing else has changed, except that of Progressing; otherwise it is the given one, or now if none is given.
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
