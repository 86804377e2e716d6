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

// Report holds the contents of a MachineDeployment's status beyond the counts.
type Report struct {
	Input
	Step   *kube.Step        // nil clears the current operation: the deployment is idle
	Record *rollout.Progress // new progress of the rollout; nil keeps the recorded progress
	NoSet  string            // why the API server rejected the current template's set; empty: not rejected
}

// ReportDeployment counts the machines of a deployment's sets, and writes the deployment's status if it differs. If the
// status names a rollout that may still be running, only the workflow of this rollout may write the status. A report by
// any other caller fails with a Conflict. If the deployment is gone, ReportDeployment fails with ObjectGone. If the API
// server drops the rollout's record, ReportDeployment fails with TypeOldCRDs.
func (a *Activities) ReportDeployment(ctx context.Context, in Report) (string, error) {
	var recorded *v1alpha1.RolloutStatus
	var frozen []*v1alpha1.MachineSet
	thaw, stamp := false, in.TimeToRecord(ctx)
	look := func(read kube.ReadInput) (d, changed *v1alpha1.MachineDeployment, err error) {
		tree, err := ReadObjectTree(ctx, a.Kube, read)
		if d = tree.Deployment; err != nil || d == nil {
			return nil, nil, err
		}
		if named := deployment.CurrentRolloutID(d); in.WorkflowID == "" && named != "" && named != in.Over {
			return nil, nil, kube.ConflictError(in.Ref)
		}
		changed = d.DeepCopy()
		tree.Deployment = changed
		thaw, frozen = a.applyReport(tree, in, stamp), frozenSets(tree.Sets)
		if equality.Semantic.DeepEqual(withoutProgressTime(changed.Status), withoutProgressTime(d.Status)) {
			return d, d, nil
		}
		recorded = changed.Status.Rollout.DeepCopy()
		return d, changed, nil
	}
	before, after, err := kube.WriteStatus(ctx, in.ReadInput, a.Kube.Deployments(in.Ref.Namespace), look)
	switch {
	case err != nil:
		return "", err
	case after != before && in.Record != nil && !equality.Semantic.DeepEqual(after.Status.Rollout, recorded):
		return "", temporal.NewNonRetryableApplicationError(
			"the API server does not keep all of status.rollout: the CRDs of this version are not installed",
			kube.FailureTypeOldCRDs,
			nil,
		)
	}
	a.recordWarnings(before, after)
	RecordPinWarning(a.Kube, after, before.Status.Rollout, after.Status.Rollout, stamp)
	if thaw {
		return a.unfreezeDeployment(ctx, in.Ref, after, frozen)
	}
	return after.ResourceVersion, nil
}

// recordWarnings records events about problems that admission cannot detect, when the condition of a problem appears.
func (a *Activities) recordWarnings(before, after *v1alpha1.MachineDeployment) {
	for kind, reason := range map[v1alpha1.MachineDeploymentConditionType]string{
		v1alpha1.MachineDeploymentSelectorOverlap:  v1alpha1.ReasonSelectorOverlap,
		v1alpha1.MachineDeploymentClassKindIgnored: v1alpha1.ReasonClassKindIgnored,
	} {
		if message := deployment.ConditionMessage(
			after,
			kind,
		); message != "" &&
			deployment.ConditionMessage(before, kind) == "" {
			a.Kube.Recorder.Event(after, corev1.EventTypeWarning, reason, message)
		}
	}
}

// unfreezeDeployment ends the freeze of a deployment. The annotation "unfreeze" of the deployment also ends the freeze
// of its sets. unfreezeDeployment annotates each set first; then the workflow of the set removes the label "freeze".
func (a *Activities) unfreezeDeployment(
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
			if _, err := kube.PatchObject(
				ctx,
				a.Kube.Sets(set.Namespace),
				set,
				annotation,
			); err != nil &&
				!apierrors.IsNotFound(err) {
				return "", kube.ClassifyWriteError(
					ctx,
					kube.Ref{Namespace: set.Namespace, Name: set.Name, UID: string(set.UID)},
					err,
				)
			}
		}
	}
	return kube.UnfreezeObject(ctx, a.Kube.Deployments(d.Namespace), ref, d)
}

// frozenSets returns the sets that have the label "freeze" and no annotation that has ended the freeze.
func frozenSets(sets []*v1alpha1.MachineSet) []*v1alpha1.MachineSet {
	return list.Filter(sets, func(s *v1alpha1.MachineSet) bool { return cache.IsFrozen(s) })
}

// withoutProgressTime returns a status without the time of its last progress. If only this time differs, the status is
// not written, because progress always changes another field as well.
func withoutProgressTime(s v1alpha1.MachineDeploymentStatus) v1alpha1.MachineDeploymentStatus {
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		if s.Conditions[i].Type == v1alpha1.MachineDeploymentProgressing {
			s.Conditions[i].LastUpdateTime = metav1.Time{}
		}
	}
	return s
}

// applyReport changes the status of the deployment in tree as the report requires. thaw is true if the freeze of the
// deployment must end.
func (a *Activities) applyReport(tree deployment.ObjectTree, in Report, now time.Time) (thaw bool) {
	d, at := tree.Deployment, metav1.NewTime(now).Rfc3339Copy()
	s := &d.Status
	observed := deployment.RolloutFacts(tree, now)
	said := in.Content(observed, d)
	want := said.Status
	if in.Record != nil {
		s.Rollout = deployment.RolloutRecord(s.Rollout, said.Progress, tree.Policy)
	}
	deployment.ApplyStatus(s, want, at)
	s.FailedMachines = kube.SummarizeMachines(tree.Members, want.FailedNames)
	s.ObservedGeneration = d.Generation
	s.Selector = kube.SelectorText(d.Spec.Selector)
	others := deployment.OverlappingDeploymentNames(a.Kube.Cluster, d)
	overlap := phrase.TextIf(
		len(others) > 0,
		"the selector of %s matches the machines of this deployment",
		strings.Join(others, ", "),
	)
	s.Conditions = setConditionMessage(
		s.Conditions,
		v1alpha1.MachineDeploymentSelectorOverlap,
		v1alpha1.ReasonSelectorOverlap,
		overlap,
		at,
	)
	ignored := kube.IgnoredKindMessage(d.Spec.Template.Spec.Class)
	s.Conditions = setConditionMessage(
		s.Conditions,
		v1alpha1.MachineDeploymentClassKindIgnored,
		v1alpha1.ReasonClassKindIgnored,
		ignored,
		at,
	)
	hold := ""
	if slices.ContainsFunc(tree.Members, machine.WaitsForReplacementGrant) && d.DeletionTimestamp == nil {
		hold = replace.Decide(deployment.ReplacementFacts(a.Kube.Cluster, d, tree.Members, now)).HoldReason
	}
	s.Conditions = setConditionMessage(
		s.Conditions,
		v1alpha1.MachineDeploymentReplacementHeld,
		v1alpha1.ReasonReplacementHeld,
		hold,
		at,
	)
	blocked := deployment.ExplanationFacts(tree, said.Plan, hold, now).BlockedSummary(now)
	deployment.ApplyBlockedCondition(s, blocked, at)
	s.CurrentOperation = kube.AddBlockersToOperation(said.Operation, blocked)
	return said.NeedsUnfreeze
}

// ReportContent is the content of a report.
type ReportContent struct {
	rollout.Status
	Progress      rollout.Progress    // includes the report's record
	Operation     *v1alpha1.Operation // nil: the deployment is idle
	Plan          rollout.PlanResult  // plan after the status is written
	NeedsUnfreeze bool                // the freeze of the deployment must end
}

// Content returns the status that a report writes on a deployment of MCM or of Cluster API.
func (in Report) Content(observed rollout.Facts, d metav1.Object) ReportContent {
	observed.CreationError = in.NoSet
	said := ReportContent{
		Operation:     kube.OperationOfStep(in.Step),
		NeedsUnfreeze: rollout.PlanDeployment(observed).FreezeEnded,
	}
	if said.NeedsUnfreeze {
		observed = observed.WithEndedFreeze()
	}
	// must precede the record of a new revision, because the record restarts the progress deadline
	said.Status = rollout.PlannedStatus(observed)
	if in.Record != nil {
		observed.Progress = observed.Progress.MergedWith(*in.Record)
	}
	observed.ReportedStatus, observed.ObservedGeneration = said.Status, d.GetGeneration()
	said.Progress, said.Plan = observed.Progress, rollout.PlanDeployment(observed)
	if said.Plan.PendingWork.NeedsNothing() { // this report may have been the last pending work
		said.Operation = nil
	}
	said.Plan.Status = said.Status
	return said
}

// setConditionMessage sets the message of a condition in the list; an empty message removes the condition.
func setConditionMessage(
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
