package deployment

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/replace"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/deployment"
	"millwright/observe/machine"
)

// Report is what the status of a MachineDeployment should say besides the counts.
type Report struct {
	Input
	Step   *kube.Step        // nil clears it: the deployment is calm
	Record *rollout.Progress // progress of the rollout, to add to what is recorded; nil keeps that
	NoSet  string            // why the API server rejected the set of the current template; empty: it did not
}

// ReportDeployment counts the machines of a deployment's sets and writes its status, unless it says so already. If the
// status names a rollout that is not known to be over, only a rollout may write it; for others it is a Conflict. It
// returns the version to wait for, or ObjectGone. An API server that drops the record is an error of TypeOldCRDs.
func (a *Activities) ReportDeployment(ctx context.Context, in Report) (string, error) {
	var recorded *v1alpha1.RolloutStatus
	var frozen []*v1alpha1.MachineSet
	thaw, stamp := false, in.Stamp(ctx)
	look := func(read kube.Read) (d, changed *v1alpha1.MachineDeployment, err error) {
		tree, err := ReadTree(ctx, a.Kube, read)
		if d = tree.Deployment; err != nil || d == nil {
			return nil, nil, err
		}
		if named := deployment.Named(d); in.WorkflowID == "" && named != "" && named != in.Over {
			return nil, nil, kube.Conflict(in.Ref)
		}
		changed = d.DeepCopy()
		tree.Deployment = changed
		thaw, frozen = a.applyReport(tree, in, stamp), frozenSets(tree.Sets)
		if equality.Semantic.DeepEqual(timeless(changed.Status), timeless(d.Status)) {
			return d, d, nil
		}
		recorded = changed.Status.Rollout.DeepCopy()
		return d, changed, nil
	}
	before, after, err := kube.WriteStatus(ctx, in.Read, a.Kube.Deployments(in.Ref.Namespace), look)
	switch {
	case err != nil:
		return "", err
	case after != before && in.Record != nil && (after.Status.Rollout == nil || after.Status.Rollout.Revision != recorded.Revision):
		return "", temporal.NewNonRetryableApplicationError(
			"the API server does not keep status.rollout: the CRDs of this version are not installed", kube.TypeOldCRDs, nil)
	}
	a.warn(before, after)
	if thaw {
		return a.thaw(ctx, in.Ref, after, frozen)
	}
	return after.ResourceVersion, nil
}

// warn records events about what admission cannot see, when its conditions appear.
func (a *Activities) warn(before, after *v1alpha1.MachineDeployment) {
	for kind, reason := range map[v1alpha1.MachineDeploymentConditionType]string{
		v1alpha1.MachineDeploymentSelectorOverlap:  v1alpha1.ReasonSelectorOverlap,
		v1alpha1.MachineDeploymentClassKindIgnored: v1alpha1.ReasonClassKindIgnored,
	} {
		if message := deployment.MessageOf(after, kind); message != "" && deployment.MessageOf(before, kind) == "" {
			a.Kube.Recorder.Event(after, corev1.EventTypeWarning, reason, message)
		}
	}
}

// thaw ends the freeze of a deployment. The annotation unfreeze also ends the freeze of its sets: each set gets the
// annotation first, and the set's own workflow removes the label freeze.
func (a *Activities) thaw(
	ctx context.Context,
	ref kube.Ref,
	d *v1alpha1.MachineDeployment,
	frozen []*v1alpha1.MachineSet,
) (string, error) {
	if value, asked := d.Annotations[v1alpha1.AnnotationUnfreeze]; asked {
		for _, set := range frozen {
			annotation := map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationUnfreeze: value}},
			}
			if _, err := kube.Patch(ctx, a.Kube.Sets(set.Namespace), set, annotation); err != nil && !apierrors.IsNotFound(err) {
				return "", kube.WriteError(ctx, kube.Ref{Namespace: set.Namespace, Name: set.Name, UID: string(set.UID)}, err)
			}
		}
	}
	return kube.Thaw(ctx, a.Kube.Deployments(d.Namespace), ref, d)
}

// frozenSets returns the sets that have the label freeze and no annotation that has ended the freeze.
func frozenSets(sets []*v1alpha1.MachineSet) []*v1alpha1.MachineSet {
	return list.Where(sets, func(s *v1alpha1.MachineSet) bool { return cache.IsFrozen(s) })
}

// timeless returns a status without the time of its last progress, which is not worth a write: any progress changes
// another field.
func timeless(s v1alpha1.MachineDeploymentStatus) v1alpha1.MachineDeploymentStatus {
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		if s.Conditions[i].Type == v1alpha1.MachineDeploymentProgressing {
			s.Conditions[i].LastUpdateTime = metav1.Time{}
		}
	}
	return s
}

// applyReport changes the status of a tree's deployment as a report says, and reports whether a freeze of the
// deployment is over.
func (a *Activities) applyReport(tree deployment.Tree, in Report, now time.Time) (thaw bool) {
	d, at := tree.Deployment, metav1.NewTime(now).Rfc3339Copy()
	s := &d.Status
	observed := deployment.Observed(tree, now)
	said := in.Say(observed, d)
	want := said.Status
	if in.Record != nil {
		s.Rollout = deployment.Record(s.Rollout, said.Progress, tree.Policy)
	}
	deployment.ApplyStatus(s, want, at)
	s.FailedMachines = kube.Summary(tree.Members, want.Failed)
	s.ObservedGeneration = d.Generation
	s.Selector = kube.SelectorText(d.Spec.Selector)
	others := deployment.OverlappingDeployments(a.Kube.Cluster, d)
	overlap := phrase.If(
		len(others) > 0,
		"the selector of %s matches the machines of this deployment",
		strings.Join(others, ", "),
	)
	s.Conditions = withMessage(
		s.Conditions,
		v1alpha1.MachineDeploymentSelectorOverlap,
		v1alpha1.ReasonSelectorOverlap,
		overlap,
		at,
	)
	ignored := kube.IgnoredKind(d.Spec.Template.Spec.Class)
	s.Conditions = withMessage(
		s.Conditions,
		v1alpha1.MachineDeploymentClassKindIgnored,
		v1alpha1.ReasonClassKindIgnored,
		ignored,
		at,
	)
	hold := ""
	if slices.ContainsFunc(tree.Members, machine.IsWaiting) && d.DeletionTimestamp == nil {
		hold = replace.Decide(deployment.ReplaceObserved(a.Kube.Cluster, d, tree.Members, now)).Hold
	}
	s.Conditions = withMessage(
		s.Conditions,
		v1alpha1.MachineDeploymentReplacementHeld,
		v1alpha1.ReasonReplacementHeld,
		hold,
		at,
	)
	blocked := deployment.Explained(tree, said.Plan, hold, now).Blocked(now)
	deployment.ApplyBlocked(s, blocked, at)
	s.CurrentOperation = kube.Explained(said.Operation, blocked)
	return said.Thaw
}

// Said is what a report writes.
type Said struct {
	rollout.Status
	Progress  rollout.Progress    // with what the report records
	Operation *v1alpha1.Operation // nil: the deployment is calm
	Plan      rollout.Planned     // as it is once the status is written
	Thaw      bool                // a freeze of the deployment is over
}

// Say returns what a report writes in the status of a deployment, of either family of kinds.
func (in Report) Say(observed rollout.Observed, d metav1.Object) Said {
	observed.NoSet = in.NoSet
	said := Said{Operation: kube.Operation(in.Step), Thaw: rollout.Plan(observed).Thaw}
	if said.Thaw {
		observed = observed.Thawed()
	}
	// before the record of a new revision, which restarts the progress deadline
	said.Status = rollout.Report(observed)
	if in.Record != nil {
		observed.Progress = observed.Progress.Recorded(*in.Record)
	}
	observed.Reported, observed.ObservedGeneration = said.Status, d.GetGeneration()
	said.Progress, said.Plan = observed.Progress, rollout.Plan(observed)
	if said.Plan.Pending.Calm() { // often this report was the last work
		said.Operation = nil
	}
	said.Plan.Status = said.Status
	return said
}

// withMessage puts a condition with this message into the list; with an empty message it removes the condition.
func withMessage(
	list []v1alpha1.MachineDeploymentCondition,
	kind v1alpha1.MachineDeploymentConditionType,
	reason, message string,
	now metav1.Time,
) []v1alpha1.MachineDeploymentCondition {
	if message == "" {
		return slices.DeleteFunc(list, func(c v1alpha1.MachineDeploymentCondition) bool { return c.Type == kind })
	}
	return deployment.SetCondition(list, v1alpha1.MachineDeploymentCondition{
		Type: kind, Status: v1alpha1.ConditionTrue, Reason: reason, Message: message,
	}, now)
}
