package activities

import (
	"context"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/replace"
	"millwright/decide/rollout"
	"millwright/observe"
)

// DeploymentReport is what a MachineDeployment's status should say besides what is counted.
type DeploymentReport struct {
	DeploymentRead
	Step   *Step             // nil clears it: the deployment is calm
	Record *rollout.Progress // how far the rollout is, to add to what is on record; nil keeps that
	NoSet  string            // why the API server took no set of the current template; empty: it did, or was not asked to
}

// ReportDeployment counts the machines of a deployment's sets and writes its status. Where the status says it already, nothing is
// written. Where it names a rollout that is not known to be over, only a rollout may write: else it is a Conflict. It returns the
// version to wait for, or ObjectGone. An API server that does not keep the record is an error of TypeOldCRDs.
func (a *Activities) ReportDeployment(ctx context.Context, in DeploymentReport) (string, error) {
	for range maxConflicts {
		family, err := a.family(ctx, in.Read)
		if err != nil {
			return "", err
		}
		d := family.Deployment
		if d == nil {
			return "", objectGone(in.Ref)
		}
		if named := observe.RolloutNamed(d); in.WorkflowID == "" && named != "" && named != in.Over {
			return "", conflict(in.Ref)
		}
		changed := d.DeepCopy()
		family.Deployment = changed
		a.applyDeploymentReport(family, in, later(time.Now(), in.At))
		if equality.Semantic.DeepEqual(timeless(changed.Status), timeless(d.Status)) {
			return d.ResourceVersion, nil
		}
		written, err := a.Cluster.Client().MachineV1alpha1().MachineDeployments(d.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		switch {
		case err == nil && in.Record != nil && !kept(written.Status.Rollout, changed.Status.Rollout):
			return "", temporal.NewNonRetryableApplicationError("the API server does not keep status.rollout: the CRDs of this version are not installed", TypeOldCRDs, nil)
		case err == nil:
			a.tellConditions(d, written)
			return written.ResourceVersion, nil
		case apierrors.IsConflict(err):
			in.Live = true
		default:
			return "", writeError(in.Ref, err)
		}
	}
	return "", contended(in.Ref)
}

// kept reports whether a record was written as it was to be, but for what an API server may write in another way.
func kept(written, wanted *v1alpha1.RolloutStatus) bool {
	return written != nil && written.Revision == wanted.Revision && written.ReturnsTo == wanted.ReturnsTo && written.Automatic == wanted.Automatic
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
func (a *Activities) applyDeploymentReport(family observe.Family, in DeploymentReport, now time.Time) {
	d, at := family.Deployment, metav1.NewTime(now).Rfc3339Copy()
	s := &d.Status
	observed := observe.RolloutObserved(family, now)
	observed.NoSet = in.NoSet
	want := rollout.Report(observed) // before the record of a new revision is there, which starts its clock
	if p := in.Record; p != nil {
		p := observe.RolloutProgress(d).Recorded(*p)
		s.Rollout = &v1alpha1.RolloutStatus{
			Revision: p.Revision, Step: int32(p.Step), FailedMachines: p.Failed, Automatic: p.Automatic, ReturnsTo: p.ReturnsTo,
		}
		if !p.Reached.IsZero() {
			s.Rollout.ReachedAt = ptr(metav1.NewTime(p.Reached))
		}
	}
	observe.ApplyRolloutStatus(s, want, at)
	s.FailedMachines = nil
	for _, m := range summary(family.Members) {
		if slices.Contains(want.Failed, m.Name) { // preserved ones are left out
			s.FailedMachines = append(s.FailedMachines, m)
		}
	}
	s.ObservedGeneration = d.Generation
	s.Selector = selectorText(d.Spec.Selector)
	s.Conditions = selectorOverlap(s.Conditions, a.overlap(d), at)
	hold := ""
	if slices.ContainsFunc(family.Members, observe.IsWaiting) && d.DeletionTimestamp == nil {
		hold = replace.Decide(a.Cluster.ReplaceObserved(d, family.Members, now)).Hold
	}
	s.Conditions = replacementHeld(s.Conditions, hold, at)
	s.CurrentOperation = operation(in.Step)
	if attention.MachineDeployment(observe.DeploymentFacts(family, now)).Calm() { // often that was all there was to do
		s.CurrentOperation = nil
	}
}

// replacementHeld says why machines that are due are not replaced.
func replacementHeld(list []v1alpha1.MachineDeploymentCondition, hold string, now metav1.Time) []v1alpha1.MachineDeploymentCondition {
	if hold == "" {
		return withoutCondition(list, v1alpha1.MachineDeploymentReplacementHeld)
	}
	return observe.SetDeploymentCondition(list, v1alpha1.MachineDeploymentCondition{
		Type: v1alpha1.MachineDeploymentReplacementHeld, Status: v1alpha1.ConditionTrue, Reason: v1alpha1.ReasonReplacementHeld, Message: hold,
	}, now)
}

// selectorOverlap says with whose selectors the deployment's machines collide.
func selectorOverlap(list []v1alpha1.MachineDeploymentCondition, overlap string, now metav1.Time) []v1alpha1.MachineDeploymentCondition {
	if overlap == "" {
		return withoutCondition(list, v1alpha1.MachineDeploymentSelectorOverlap)
	}
	return observe.SetDeploymentCondition(list, v1alpha1.MachineDeploymentCondition{
		Type: v1alpha1.MachineDeploymentSelectorOverlap, Status: v1alpha1.ConditionTrue, Reason: v1alpha1.ReasonSelectorOverlap, Message: overlap,
	}, now)
}

// holdOf returns what a deployment's status says about that.
func holdOf(d *v1alpha1.MachineDeployment) string {
	for _, c := range d.Status.Conditions {
		if c.Type == v1alpha1.MachineDeploymentReplacementHeld {
			return c.Message
		}
	}
	return ""
}

func withoutCondition(list []v1alpha1.MachineDeploymentCondition, kind v1alpha1.MachineDeploymentConditionType) []v1alpha1.MachineDeploymentCondition {
	return slices.DeleteFunc(list, func(c v1alpha1.MachineDeploymentCondition) bool { return c.Type == kind })
}

func isOverlap(c v1alpha1.MachineDeploymentCondition) bool {
	return c.Type == v1alpha1.MachineDeploymentSelectorOverlap
}

// tellConditions records an event for what only a controller can see, when it appears.
func (a *Activities) tellConditions(before, after *v1alpha1.MachineDeployment) {
	had := slices.ContainsFunc(before.Status.Conditions, isOverlap)
	if i := slices.IndexFunc(after.Status.Conditions, isOverlap); i >= 0 && !had {
		a.Recorder.Event(after, corev1.EventTypeWarning, v1alpha1.ReasonSelectorOverlap, after.Status.Conditions[i].Message)
	}
}
