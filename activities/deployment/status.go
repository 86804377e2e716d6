package deployment

import (
	"context"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/decide/replace"
	"millwright/decide/rollout"
	"millwright/observe/deployment"
	"millwright/observe/machine"
)

// Report is what a MachineDeployment's status should say besides what is counted.
type Report struct {
	Input
	Step   *kube.Step        // nil clears it: the deployment is calm
	Record *rollout.Progress // how far the rollout is, to add to what is on record; nil keeps that
	NoSet  string            // why the API server took no set of the current template; empty: it did, or was not asked to
}

// ReportDeployment counts the machines of a deployment's sets and writes its status. Where the status says it already, nothing is
// written. Where it names a rollout that is not known to be over, only a rollout may write: else it is a Conflict. It returns the
// version to wait for, or ObjectGone. An API server that does not keep the record is an error of TypeOldCRDs.
func (a *Activities) ReportDeployment(ctx context.Context, in Report) (string, error) {
	for range kube.MaxConflicts {
		family, err := Family(ctx, a.Kube, in.Read)
		if err != nil {
			return "", err
		}
		d := family.Deployment
		if d == nil {
			return "", kube.ObjectGone(in.Ref)
		}
		if named := deployment.Named(d); in.WorkflowID == "" && named != "" && named != in.Over {
			return "", kube.Conflict(in.Ref)
		}
		changed := d.DeepCopy()
		family.Deployment = changed
		a.applyDeploymentReport(family, in, phrase.Later(time.Now(), in.At))
		if equality.Semantic.DeepEqual(timeless(changed.Status), timeless(d.Status)) {
			return d.ResourceVersion, nil
		}
		written, err := a.deployments(in.Ref).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		switch {
		case err == nil && in.Record != nil && !kept(written.Status.Rollout, changed.Status.Rollout):
			return "", temporal.NewNonRetryableApplicationError("the API server does not keep status.rollout: the CRDs of this version are not installed", kube.TypeOldCRDs, nil)
		case err == nil:
			a.tellConditions(d, written)
			return written.ResourceVersion, nil
		case apierrors.IsConflict(err):
			in.Live = true
		default:
			return "", kube.WriteError(in.Ref, err)
		}
	}
	return "", kube.Contended(in.Ref)
}

// kept reports whether a record was written as it was to be, but for what an API server may write in another way.
func kept(written, wanted *v1alpha1.RolloutStatus) bool {
	return written != nil && written.Revision == wanted.Revision
}

// timeless returns a status without the time of its last progress, which is no news by itself: of progress, something else
// tells too.
func timeless(s v1alpha1.MachineDeploymentStatus) v1alpha1.MachineDeploymentStatus {
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		if s.Conditions[i].Type == v1alpha1.MachineDeploymentProgressing {
			s.Conditions[i].LastUpdateTime = metav1.Time{}
		}
	}
	return s
}

// applyDeploymentReport changes the status of a family's deployment as a report wants it.
func (a *Activities) applyDeploymentReport(family deployment.Family, in Report, now time.Time) {
	d, at := family.Deployment, metav1.NewTime(now).Rfc3339Copy()
	s := &d.Status
	observed := deployment.Observed(family, now)
	observed.NoSet = in.NoSet
	observed.Reported = rollout.Report(observed) // before the record of a new revision is there, which starts its clock
	want := observed.Reported
	if p := in.Record; p != nil {
		observed.Progress = observed.Progress.Recorded(*p)
		p = &observed.Progress
		s.Rollout = &v1alpha1.RolloutStatus{Revision: p.Revision, Step: int32(p.Step), FailedMachines: p.Failed}
		if !p.Reached.IsZero() {
			s.Rollout.ReachedAt = new(metav1.NewTime(p.Reached))
		}
	}
	deployment.ApplyStatus(s, want, at)
	s.FailedMachines = nil
	for _, m := range kube.Summary(family.Members) {
		if slices.Contains(want.Failed, m.Name) { // preserved ones are left out
			s.FailedMachines = append(s.FailedMachines, m)
		}
	}
	s.ObservedGeneration, observed.ObservedGeneration = d.Generation, d.Generation
	s.Selector = kube.SelectorText(d.Spec.Selector)
	s.Conditions = withMessage(s.Conditions, v1alpha1.MachineDeploymentSelectorOverlap, v1alpha1.ReasonSelectorOverlap, a.overlap(d), at)
	hold := ""
	if slices.ContainsFunc(family.Members, machine.IsWaiting) && d.DeletionTimestamp == nil {
		hold = replace.Decide(deployment.ReplaceObserved(a.Kube.Cluster, d, family.Members, now)).Hold
	}
	s.Conditions = withMessage(s.Conditions, v1alpha1.MachineDeploymentReplacementHeld, v1alpha1.ReasonReplacementHeld, hold, at)
	s.CurrentOperation = kube.Operation(in.Step)
	if rollout.Look(observed).Pending.Calm() { // often that was all there was to do
		s.CurrentOperation = nil
	}
}

// withMessage puts a condition with this message into the list, and takes it off where there is none.
func withMessage(
	list []v1alpha1.MachineDeploymentCondition, kind v1alpha1.MachineDeploymentConditionType, reason, message string, now metav1.Time,
) []v1alpha1.MachineDeploymentCondition {
	if message == "" {
		return slices.DeleteFunc(list, func(c v1alpha1.MachineDeploymentCondition) bool { return c.Type == kind })
	}
	return deployment.SetCondition(list, v1alpha1.MachineDeploymentCondition{
		Type: kind, Status: v1alpha1.ConditionTrue, Reason: reason, Message: message,
	}, now)
}

// messageOf returns what such a condition of a deployment says; empty where it has none.
func messageOf(d *v1alpha1.MachineDeployment, kind v1alpha1.MachineDeploymentConditionType) string {
	for _, c := range d.Status.Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}

// tellConditions records an event for what only a controller can see, when it appears.
func (a *Activities) tellConditions(before, after *v1alpha1.MachineDeployment) {
	had, has := messageOf(before, v1alpha1.MachineDeploymentSelectorOverlap), messageOf(after, v1alpha1.MachineDeploymentSelectorOverlap)
	if had == "" && has != "" {
		a.Kube.Recorder.Event(after, corev1.EventTypeWarning, v1alpha1.ReasonSelectorOverlap, has)
	}
}
