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

// RecordOfCurrentAttempt returns the record of a rollout if the record belongs to this revision and to this or a later
// attempt; otherwise nil. The rollout keeps the policy settings in the record.
func RecordOfCurrentAttempt(r *v1alpha1.RolloutStatus, revision int64, attempt int) *v1alpha1.RolloutStatus {
	if r == nil || r.Revision != revision || int(r.Attempt) < attempt {
		return nil
	}
	return r
}

// ApplyRecordedPolicy uses the policy settings that the rollout to the current revision has recorded, if any, instead
// of the present settings.
func ApplyRecordedPolicy(o *rollout.Facts, r *v1alpha1.RolloutStatus, revision int64) {
	kept := RecordOfCurrentAttempt(r, revision, o.RetryCount)
	if kept == nil || kept.Steps == nil { // an earlier version of Millwright recorded no steps
		return
	}
	o.Steps, o.RollbackPolicy = ConvertSteps(kept.Steps), convertAutomaticRollback(kept.AutomaticRollback)
}

// RecordedProgress returns the progress in the record of a rollout; a nil record gives the zero Progress.
func RecordedProgress(r *v1alpha1.RolloutStatus) rollout.Progress {
	if r == nil {
		return rollout.Progress{}
	}
	p := rollout.Progress{
		Revision:  r.Revision,
		Set:       r.Set,
		Step:      int(r.Step),
		Reached:   cache.TimeOrZero(r.ReachedAt),
		Failed:    r.FailedMachines,
		Attempt:   int(r.Attempt),
		Completed: cache.TimeOrZero(r.CompletedAt),
		Good:      r.LastGoodSet,

		FormerMachines: cache.TimeOrZero(r.FormerMachinesUntil),
		FormerGood:     r.FormerGoodSet,
	}
	if r.Turn != nil {
		p.Turn = rollout.Turn{Since: r.Turn.Since.Time, Ended: cache.TimeOrZero(r.Turn.EndedAt)}
	}
	if pin := r.Pin; pin != nil {
		p.Pin = &rollout.Pin{
			Set: pin.Set, Revision: pin.Revision, Since: pin.Since.Time, Why: pin.Reason, By: pin.RequestedBy,
		}
	}
	return p
}

// RolloutRecord returns the record of a rollout's progress. If the old record is for the same revision and attempt,
// RolloutRecord keeps the policy settings of the old record; a new attempt gets the present settings.
func RolloutRecord(
	was *v1alpha1.RolloutStatus,
	p rollout.Progress,
	policy *v1alpha1.RolloutPolicy,
) *v1alpha1.RolloutStatus {
	spec := policy.PolicySpec()
	r := &v1alpha1.RolloutStatus{
		Revision: p.Revision, Step: int32(p.Step), FailedMachines: p.Failed,
		Steps: append([]v1alpha1.RolloutStep{}, spec.Steps...), AutomaticRollback: spec.AutomaticRollback,
		Set: p.Set, Attempt: int32(p.Attempt), LastGoodSet: p.Good, FormerGoodSet: p.FormerGood,
	}
	if kept := RecordOfCurrentAttempt(was, p.Revision, p.Attempt); kept != nil {
		r.Steps, r.AutomaticRollback = kept.Steps, kept.AutomaticRollback
	}
	if !p.Reached.IsZero() {
		r.ReachedAt = new(metav1.NewTime(p.Reached))
	}
	if !p.Completed.IsZero() {
		r.CompletedAt = new(metav1.NewTime(p.Completed))
	}
	if !p.FormerMachines.IsZero() {
		r.FormerMachinesUntil = new(metav1.NewTime(p.FormerMachines))
	}
	if !p.Turn.Since.IsZero() {
		r.Turn = &v1alpha1.RolloutTurn{Since: metav1.NewTime(p.Turn.Since)}
	}
	if !p.Turn.Ended.IsZero() {
		r.Turn.EndedAt = new(metav1.NewTime(p.Turn.Ended))
	}
	if pin := p.Pin; pin != nil {
		r.Pin = &v1alpha1.RolloutPin{
			Set: pin.Set, Revision: pin.Revision, Since: metav1.NewTime(pin.Since), Reason: pin.Why, RequestedBy: pin.By,
		}
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

// CurrentRevision returns the revision of the set with the current template; 0 if no set has the current template. If
// several sets have the current template, the oldest set is used.
func CurrentRevision(sets []rollout.MachineSet) int64 {
	current := slices.DeleteFunc(slices.Clone(sets), func(s rollout.MachineSet) bool { return !s.Current || s.Deleting })
	if len(current) == 0 {
		return 0
	}
	byAge := func(a, b rollout.MachineSet) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Name, b.Name))
	}
	return slices.MinFunc(current, byAge).Revision
}

// ApplyRequests adds the requests of people about the rollout of one revision to the facts. ApplyRequests ignores
// requests for another revision.
func ApplyRequests(o *rollout.Facts, d metav1.Object, revision int64) {
	if revision == 0 {
		return
	}
	_, why := parseRequestAnnotation(d, v1alpha1.AnnotationRolloutHold, revision)
	o.HoldReason = why
	approved, _ := parseRequestAnnotation(d, v1alpha1.AnnotationRolloutApprove, revision)
	retry, _ := parseRequestAnnotation(d, v1alpha1.AnnotationRolloutRetry, revision)
	pinTo, by := parseRequestAnnotation(d, v1alpha1.AnnotationRolloutPin, revision)
	o.ApprovedStepCount, o.RetryCount, o.PinRevision = int(approved), int(retry), pinTo
	if pinTo != 0 {
		o.PinRequestedBy = by
	}
}

// parseRequestAnnotation parses a request such as "8/2 ann: looks well" for revision 8: it returns the number 2 and the
// text after it. parseRequestAnnotation returns 0 and "" if there is no request, or if the request is for another
// revision.
func parseRequestAnnotation(d metav1.Object, key string, revision int64) (number int64, words string) {
	about, words, _ := strings.Cut(d.GetAnnotations()[key], " ")
	about, text, _ := strings.Cut(about, "/")
	if about != strconv.FormatInt(revision, 10) {
		return 0, ""
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		number = max(n, 0)
	}
	return number, cmp.Or(strings.TrimSpace(words), "no reason given")
}

// reportedStatus returns the part of a deployment's status that rollout.PlanDeployment computes.
func reportedStatus(s *v1alpha1.MachineDeploymentStatus) rollout.Status {
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
			Type: string(
				c.Type,
			),
			Status:         string(c.Status),
			Reason:         c.Reason,
			Message:        c.Message,
			LastUpdateTime: c.LastUpdateTime.Time,
		})
	}
	for _, m := range s.FailedMachines {
		r.FailedNames = append(r.FailedNames, m.Name)
	}
	return r
}
