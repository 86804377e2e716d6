package activities

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/replace"
	"millwright/observe"
)

// DeploymentReport is what a MachineDeployment's status should say besides what is counted.
type DeploymentReport struct {
	Read    Read
	Pending bool  // the template changed and no rollout follows yet
	Step    *Step // nil clears it: the deployment is calm
}

// ReportDeployment adds up the sets' statuses and writes the deployment's. Where the status says it already, nothing is
// written. It returns the version to wait for, or ObjectGone.
func (a *Activities) ReportDeployment(ctx context.Context, in DeploymentReport) (string, error) {
	for range maxConflicts {
		d, sets, members, err := a.family(ctx, in.Read)
		if err != nil {
			return "", err
		}
		if d == nil {
			return "", objectGone(in.Read.Ref)
		}
		changed := d.DeepCopy()
		a.applyDeploymentReport(changed, sets, members, in)
		if equality.Semantic.DeepEqual(changed.Status, d.Status) {
			return d.ResourceVersion, nil
		}
		written, err := a.Cluster.Client().MachineV1alpha1().MachineDeployments(d.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		switch {
		case err == nil:
			a.tellConditions(d, written)
			return written.ResourceVersion, nil
		case apierrors.IsConflict(err):
			in.Read.Live = true
		default:
			return "", writeError(in.Read.Ref, err)
		}
	}
	return "", contended(in.Read.Ref)
}

func (a *Activities) applyDeploymentReport(d *v1alpha1.MachineDeployment, sets []*v1alpha1.MachineSet, members []*v1alpha1.Machine, in DeploymentReport) {
	facts, s := observe.DeploymentFacts(d, sets, members), &d.Status
	counts := facts.Actual
	s.Replicas, s.ReadyReplicas, s.AvailableReplicas = counts.Replicas, counts.Ready, counts.Available
	s.UpdatedReplicas, s.UnavailableReplicas = counts.Updated, counts.Unavailable
	s.ObservedGeneration = d.Generation
	s.Selector = selectorText(d.Spec.Selector)
	s.CurrentOperation = operation(in.Step)
	if attention.MachineDeployment(reported(facts)).Calm() {
		s.CurrentOperation = nil
	}
	s.FailedMachines = nil
	for _, set := range sets {
		s.FailedMachines = append(s.FailedMachines, set.Status.FailedMachines...)
	}
	slices.SortFunc(s.FailedMachines, func(x, y v1alpha1.MachineSummary) int { return cmp.Compare(x.Name, y.Name) })
	overlap := a.overlap(d)
	for _, c := range deploymentConditions(d, counts.Updated, in.Pending, overlap) {
		s.Conditions = setDeploymentCondition(s.Conditions, c, metav1.Now())
	}
	if overlap == "" {
		s.Conditions = withoutCondition(s.Conditions, v1alpha1.MachineDeploymentSelectorOverlap)
	}
	s.Conditions = deploymentFailure(s.Conditions, sets, counts.Blocked)
	hold := ""
	if facts.Due > 0 && !facts.Deleting {
		hold = replace.Decide(a.Cluster.ReplaceObserved(d, members, time.Now())).Hold
	}
	s.Conditions = replacementHeld(s.Conditions, hold)
}

// deploymentFailure copies from the sets why machines get no instance.
func deploymentFailure(list []v1alpha1.MachineDeploymentCondition, sets []*v1alpha1.MachineSet, reason string) []v1alpha1.MachineDeploymentCondition {
	for _, set := range sets {
		for _, c := range set.Status.Conditions {
			if reason != "" && c.Type == v1alpha1.MachineSetReplicaFailure && c.Reason == reason {
				return setDeploymentCondition(list, v1alpha1.MachineDeploymentCondition{
					Type: v1alpha1.MachineDeploymentReplicaFailure, Status: v1alpha1.ConditionTrue, Reason: reason, Message: c.Message,
				}, metav1.Now())
			}
		}
	}
	return withoutCondition(list, v1alpha1.MachineDeploymentReplicaFailure)
}

// replacementHeld says why machines that are due are not replaced.
func replacementHeld(list []v1alpha1.MachineDeploymentCondition, hold string) []v1alpha1.MachineDeploymentCondition {
	if hold == "" {
		return withoutCondition(list, v1alpha1.MachineDeploymentReplacementHeld)
	}
	return setDeploymentCondition(list, v1alpha1.MachineDeploymentCondition{
		Type: v1alpha1.MachineDeploymentReplacementHeld, Status: v1alpha1.ConditionTrue, Reason: v1alpha1.ReasonReplacementHeld, Message: hold,
	}, metav1.Now())
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

// deploymentConditions returns the conditions that follow from the counts in the status.
func deploymentConditions(d *v1alpha1.MachineDeployment, updated int32, pending bool, overlap string) []v1alpha1.MachineDeploymentCondition {
	_, unavailable := surgeAndUnavailable(d)
	needed := max(d.Spec.Replicas-unavailable, 0)
	available := v1alpha1.MachineDeploymentCondition{
		Type: v1alpha1.MachineDeploymentAvailable, Status: v1alpha1.ConditionTrue, Reason: v1alpha1.ReasonMinimumReplicasAvailable,
		Message: fmt.Sprintf("%d of %d machines available, %d needed", d.Status.AvailableReplicas, d.Spec.Replicas, needed),
	}
	if d.Status.AvailableReplicas < needed {
		available.Status, available.Reason = v1alpha1.ConditionFalse, v1alpha1.ReasonMinimumReplicasUnavailable
	}
	progressing := v1alpha1.MachineDeploymentCondition{
		Type: v1alpha1.MachineDeploymentProgressing, Status: v1alpha1.ConditionTrue, Reason: v1alpha1.ReasonMachineSetUpdated,
		Message: fmt.Sprintf("%d of %d machines up to date, %d available", updated, d.Spec.Replicas, d.Status.AvailableReplicas),
	}
	switch complete := updated == d.Spec.Replicas && d.Status.Replicas == d.Spec.Replicas && d.Status.AvailableReplicas == d.Spec.Replicas; {
	case pending:
		progressing.Status, progressing.Reason = v1alpha1.ConditionFalse, v1alpha1.ReasonRolloutPending
		progressing.Message = "the template changed; this version keeps existing machines as they are and does not roll them yet"
	case complete:
		progressing.Reason = v1alpha1.ReasonNewMachineSetAvailable
	}
	conditions := []v1alpha1.MachineDeploymentCondition{available, progressing}
	if overlap != "" {
		conditions = append(conditions, v1alpha1.MachineDeploymentCondition{
			Type: v1alpha1.MachineDeploymentSelectorOverlap, Status: v1alpha1.ConditionTrue, Reason: v1alpha1.ReasonSelectorOverlap, Message: overlap,
		})
	}
	return conditions
}

// setDeploymentCondition puts a condition into the list. Its times move only when it changes.
func setDeploymentCondition(list []v1alpha1.MachineDeploymentCondition, c v1alpha1.MachineDeploymentCondition, now metav1.Time) []v1alpha1.MachineDeploymentCondition {
	c.LastUpdateTime, c.LastTransitionTime = now, now
	for i, old := range list {
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
			if old.Reason == c.Reason && old.Message == c.Message {
				c.LastUpdateTime = old.LastUpdateTime
			}
		}
		list[i] = c
		return list
	}
	return append(list, c)
}

// tellConditions records an event for what only a controller can see, when it appears.
func (a *Activities) tellConditions(before, after *v1alpha1.MachineDeployment) {
	had := slices.ContainsFunc(before.Status.Conditions, isOverlap)
	if i := slices.IndexFunc(after.Status.Conditions, isOverlap); i >= 0 && !had {
		a.Recorder.Event(after, corev1.EventTypeWarning, v1alpha1.ReasonSelectorOverlap, after.Status.Conditions[i].Message)
	}
}

// surgeAndUnavailable resolves the strategy's numbers as MCM does: surge up, unavailable down, and 1 unavailable where
// both are 0, else nothing could ever move. Only a rolling update may exceed the deployment's size: the surge of an in-place
// update bounds its new set, and of nothing when people choose the nodes.
func surgeAndUnavailable(d *v1alpha1.MachineDeployment) (surge, unavailable int32) {
	strategy := &d.Spec.Strategy
	kind := strategy.EffectiveType()
	if d.Spec.Replicas == 0 || kind == v1alpha1.RecreateMachineDeploymentStrategyType {
		return 0, 0
	}
	inPlace := kind == v1alpha1.InPlaceUpdateMachineDeploymentStrategyType
	s, u := strategy.EffectiveRollingUpdate()
	if inPlace {
		s, u = strategy.EffectiveInPlaceUpdate()
	}
	if inPlace && strategy.InPlaceUpdate != nil && strategy.InPlaceUpdate.OrchestrationType == v1alpha1.OrchestrationTypeManual {
		s = intstr.FromInt32(0)
	}
	surge = resolve(s, d.Spec.Replicas, true)
	unavailable = resolve(u, d.Spec.Replicas, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	if inPlace {
		surge = 0
	}
	return surge, min(unavailable, d.Spec.Replicas)
}

// resolve turns a number or percentage of total into a number. A string without a percent sign is a percentage too, as in
// MCM; admission refuses every other string.
func resolve(value intstr.IntOrString, total int32, up bool) int32 {
	if value.Type == intstr.String && value.StrVal != "" && value.StrVal[len(value.StrVal)-1] != '%' {
		value.StrVal += "%"
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, int(total), up)
	if err != nil {
		return 0
	}
	return int32(min(n, math.MaxInt32))
}

// reported returns the facts as they are once the status says what was counted: often that was all there was to do, and
// then no operation must be left behind in it.
func reported(f attention.GroupFacts) attention.GroupFacts {
	f.Reported, f.ObservedGeneration = f.Actual, f.Generation
	return f
}
