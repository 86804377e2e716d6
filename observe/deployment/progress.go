package deployment

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
)

// RecordedSteps returns the steps with which the rollout to a revision began, and which the rollout keeps.
// RecordedSteps returns nil if the status has no steps for this revision: the record is for another revision, or an
// older version of Millwright recorded no steps. A rollout without steps has an empty list.
func RecordedSteps(r *v1alpha1.RolloutStatus, revision int64) []v1alpha1.RolloutStep {
	if r == nil || r.Revision != revision {
		return nil
	}
	return r.Steps
}

// RecordedProgress returns the progress in the record of a rollout; a nil record gives the zero Progress.
func RecordedProgress(r *v1alpha1.RolloutStatus) rollout.Progress {
	if r == nil {
		return rollout.Progress{}
	}
	return rollout.Progress{
		Revision: r.Revision,
		Step:     int(r.Step),
		Reached:  cache.TimeOrZero(r.ReachedAt),
		Failed:   r.FailedMachines,
	}
}

// RolloutRecord returns the record of a progress. If the old record is for the same revision, RolloutRecord keeps the
// old record's steps; a new revision gets the steps of the policy.
func RolloutRecord(
	was *v1alpha1.RolloutStatus,
	p rollout.Progress,
	policy *v1alpha1.RolloutPolicy,
) *v1alpha1.RolloutStatus {
	steps := RecordedSteps(was, p.Revision)
	if steps == nil {
		steps = append([]v1alpha1.RolloutStep{}, policy.PolicySpec().Steps...)
	}
	r := &v1alpha1.RolloutStatus{Revision: p.Revision, Step: int32(p.Step), Steps: steps, FailedMachines: p.Failed}
	if !p.Reached.IsZero() {
		r.ReachedAt = new(metav1.NewTime(p.Reached))
	}
	return r
}

// Revision returns the revision of a deployment or set; 0 if the annotation is missing or not a number.
func Revision(o metav1.Object) int64 {
	n, err := strconv.ParseInt(o.GetAnnotations()[v1alpha1.AnnotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// CurrentRevision returns the revision of the set with the current template; 0 if no set has the current template.
// Among several sets with the current template, the oldest counts.
func CurrentRevision(sets []rollout.MachineSet) int64 {
	current := slices.DeleteFunc(slices.Clone(sets), func(s rollout.MachineSet) bool { return !s.Current || s.Deleting })
	if len(current) == 0 {
		return 0
	}
	byAge := func(a, b rollout.MachineSet) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	}
	return slices.MinFunc(current, byAge).Revision
}

// OperatorRequests reads an operator's requests about the rollout of one revision: held is the reason of a hold, empty
// without a hold; approved is the number of approved steps. OperatorRequests ignores requests about another revision.
func OperatorRequests(d metav1.Object, revision int64) (held string, approved int) {
	if revision == 0 {
		return "", 0
	}
	if which, words, _ := strings.Cut(d.GetAnnotations()[v1alpha1.AnnotationRolloutHold], " "); which != "" &&
		which == strconv.FormatInt(revision, 10) {
		held = cmp.Or(strings.TrimSpace(words), "no reason given")
	}
	which, _, _ := strings.Cut(d.GetAnnotations()[v1alpha1.AnnotationRolloutApprove], " ")
	which, steps, _ := strings.Cut(which, "/")
	if n, err := strconv.Atoi(steps); err == nil && which == strconv.FormatInt(revision, 10) {
		approved = max(n, 0)
	}
	return held, approved
}

// reportedRollout returns the part of a deployment's status that rollout.PlanDeployment computes.
func reportedRollout(s *v1alpha1.MachineDeploymentStatus) rollout.Status {
	r := rollout.Status{Counts: rollout.MachineCounts{
		Replicas:        int(s.Replicas),
		Updated:         int(s.UpdatedReplicas),
		Ready:           int(s.ReadyReplicas),
		Available:       int(s.AvailableReplicas),
		Unavailable:     int(s.UnavailableReplicas),
		PreservedFailed: int(s.PreservedFailedReplicas),
	}}
	for _, c := range s.Conditions {
		r.Conditions = append(r.Conditions, rollout.Condition{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Updated: c.LastUpdateTime.Time,
		})
	}
	for _, m := range s.FailedMachines {
		r.Failed = append(r.Failed, m.Name)
	}
	return r
}
