package set

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/drain"
	"millwright/observe/machine"
)

// ScaleFacts returns the facts from which the plan for a set is made. The parameter seed is the random seed for new
// names.
func ScaleFacts(set *v1alpha1.MachineSet, related RelatedObjects, now time.Time, seed uint64) scale.Facts {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	o := scale.Facts{
		Now:       now,
		NameParts: []string{set.Name + "-", ""},
		Deletion: scale.Deletion{
			Deleting:     set.DeletionTimestamp != nil,
			Orphaning:    cache.IsOrphaning(set),
			HasFinalizer: cache.HasFinalizer(set.Finalizers),
		}, Settings: scale.Settings{
			Replicas:         int(set.Spec.Replicas),
			DeletionOrder:    deletionOrder(related),
			MinReadyDuration: MinReadyDuration(set, related.BehavesAsMCM),
			Remediation:      remediationPolicy(set, related),
		},
		MCM: scale.MCMSet{
			MaxAutoPreserved: int(set.Spec.AutoPreserveFailedMachineMax),
			Freeze:           freezeFacts(set, related),
			AutoscaledAt:     cache.ParseTimeOrZero(set.Annotations[v1alpha1.AnnotationLastScalerChange]),
		},
		NameSeed:       seed,
		PauseSentences: pauseReasons(set, related.Deployment),
		StopReasons:    creationStopReasons(set, related),
		Generation:     set.Generation,
		Reported: scale.Reported{
			ObservedGeneration: set.Status.ObservedGeneration,
			ReportedStatus:     reportedStatus(&set.Status),
		},

		MissingObjectKinds: related.MissingKinds,
		Preflight:          related.Preflight,
	}
	if d := related.Deployment; d != nil {
		o.MCM.Freeze.OwnerIsFrozen = cache.IsFrozen(d)
	}
	o.Generations = GenerationRecord(set)
	switch {
	case err != nil:
		o.InvalidReason, selector = fmt.Sprintf("the selector cannot be read: %v", err), labels.Nothing()
	case selector.Empty():
		o.SelectsAll = true
	case !selector.Matches(labels.Set(set.Spec.Template.Labels)):
		o.InvalidReason = "the selector does not match the labels of the template"
	}
	for _, m := range related.Members {
		f := MemberFacts(m, set, selector)
		f.MCM.Labelled, f.Drift = containsAllEntries(m.Labels, set.Spec.Template.Labels), driftText(m, set)
		if why := outdatedReason(m, set, related); why != "" {
			f.UpToDate, f.OutdatedReason = scale.ConditionFalse, why
		}
		if node := related.PreservationNode(
			m,
		); node != nil &&
			machine.IsProtectedFromReplacement(m, node) { // true even if the preservation is not recorded yet
			f.MCM.Preserved, f.MCM.Replaceable = true, false
		}
		o.Members = append(o.Members, f)
	}
	for _, m := range related.Orphans {
		o.Orphans = append(o.Orphans, scale.Orphan{
			Name:            m.Name,
			UID:             string(m.UID),
			Version:         m.ResourceVersion,
			MatchesSelector: selector.Matches(labels.Set(m.Labels)),
			MayNotBeAdopted: m.DeletionTimestamp != nil,
		})
		if m.DeletionTimestamp == nil && m.Annotations[v1alpha1.AnnotationReleasedBy] == string(set.UID) {
			o.ReleasedMachineCount++
		}
	}
	return o
}

// pauseReasons returns who has paused a set.
func pauseReasons(set *v1alpha1.MachineSet, d *v1alpha1.MachineDeployment) (who []string) {
	if d != nil {
		if _, paused := d.Annotations[v1alpha1.AnnotationPaused]; paused {
			who = append(who, phrase.PausedSentence("MachineDeployment"))
		}
	}
	if _, paused := set.Annotations[v1alpha1.AnnotationPaused]; paused {
		who = append(who, phrase.PausedSentence("MachineSet"))
	}
	return who
}

// MinReadyDuration returns how long a machine of a set must be ready before it is available. MinReadyDuration returns 0
// with asMCM, because machine-controller-manager ignores the field minReadySeconds.
func MinReadyDuration(set *v1alpha1.MachineSet, asMCM bool) time.Duration {
	if asMCM {
		return 0
	}
	return time.Duration(set.Spec.MinReadySeconds) * time.Second
}

// deletionOrder returns which machines are deleted first if no other rule decides. Without a policy,
// machine-controller-manager deletes the oldest machines first.
func deletionOrder(related RelatedObjects) scale.DeletionOrder {
	if order := related.Policy.PolicySpec().DeletionOrder; order != "" || !related.BehavesAsMCM {
		return scale.DeletionOrder(order)
	}
	return scale.OldestFirst
}

// freezeFacts returns the facts about the freeze of a set: its label freeze, and what ends the freeze.
func freezeFacts(set *v1alpha1.MachineSet, related RelatedObjects) scale.FreezeState {
	f := scale.FreezeState{HasLabel: set.Labels[v1alpha1.LabelFreeze] == v1alpha1.ValueTrue}
	_, f.UnfreezeRequested = set.Annotations[v1alpha1.AnnotationUnfreeze]
	if related.BehavesAsMCM {
		f.EndsAtMachineCount = mcmUnfreezeMachineCount(set, related.Deployment)
	}
	return f
}

// Defaults of machine-controller-manager's flags --machine-safety-up and --machine-safety-down
const defaultMCMSafetyUp, defaultMCMSafetyDown = 2, 1

// mcmUnfreezeMachineCount returns the number of machines at which machine-controller-manager ends a freeze. The
// overshoot protection of machine-controller-manager freezes a set that has defaultMCMSafetyUp machines more than
// allowed. It ends the freeze when the set has defaultMCMSafetyDown machines fewer than that. A set without a
// deployment may have twice its replicas.
func mcmUnfreezeMachineCount(set *v1alpha1.MachineSet, d *v1alpha1.MachineDeployment) int {
	most := 2 * int(set.Spec.Replicas)
	if d != nil {
		surge, _ := d.Spec.Strategy.EffectiveRollingUpdate()
		more, err := intstr.GetScaledValueFromIntOrPercent(&surge, int(d.Spec.Replicas), true)
		if err != nil {
			more = 0
		}
		most = int(d.Spec.Replicas) + more
	}
	return most + defaultMCMSafetyUp - defaultMCMSafetyDown
}

// outdatedReason returns why a machine of a set is not up to date; empty for an up-to-date machine.
func outdatedReason(m *v1alpha1.Machine, set *v1alpha1.MachineSet, related RelatedObjects) string {
	have, want := m.Spec.Class, set.Spec.Template.Spec.Class
	switch {
	case IsOutdated(set, related.Deployment):
		return "MachineDeployment " + related.Deployment.Name + " has another template"
	case groupOfClass(have) != groupOfClass(want) || have.Name != want.Name:
		return fmt.Sprintf("MachineSet %s has class %s, the machine has class %s", set.Name, want.Name, have.Name)
	default:
		return ""
	}
}

// remediationPolicy returns the remediation policy of a set. A set with a deployment has no back-off: the deployment's
// replacement budget and pauses decide when failed machines are replaced.
func remediationPolicy(set *v1alpha1.MachineSet, related RelatedObjects) scale.RemediationPolicy {
	spec := related.Policy.PolicySpec().Remediation
	r := scale.RemediationPolicy{
		RetryPolicy: RetryPolicy(spec, v1alpha1.DefaultRemediationBackoff),
		MaxSurge:    RemediationSurge(spec, set.Spec.Replicas),
	}
	if spec != nil && spec.MaxInFlight != nil {
		r.HasMaxInFlight = true
		// If the value does not parse, no machine is replaced.
		r.MaxInFlight, _ = intstr.GetScaledValueFromIntOrPercent(spec.MaxInFlight, int(set.Spec.Replicas), true)
		r.MaxInFlightText = spec.MaxInFlight.String()
	}
	if machine.HasDeployment(set) {
		r.Backoff = 0
	}
	if IsOutdated(set, related.Deployment) {
		r.SetIsOutdated, r.SubstitutesElsewhere = !DoesRolloutStandStill(related.Deployment), closedReason(set)
	}
	return r
}

// creationStopReasons returns why a set creates no machine; nil if nothing stops the creation. For an old set that its
// deployment has closed, remediationPolicy returns the reason.
func creationStopReasons(set *v1alpha1.MachineSet, related RelatedObjects) []string {
	if IsOutdated(set, related.Deployment) {
		return nil
	}
	return phrase.NonEmptyTexts(closedReason(set))
}

// closedReason returns that a set is closed, as one sentence; empty: it is not closed.
func closedReason(set *v1alpha1.MachineSet) string {
	_, closed := set.Labels[v1alpha1.LabelScaleUpDisabled]
	return phrase.TextIf(closed, "MachineSet has the label scale-up-disabled")
}

// IsOutdated reports whether a set has another template than its deployment.
func IsOutdated(set *v1alpha1.MachineSet, d *v1alpha1.MachineDeployment) bool {
	return d != nil && !IsSameTemplate(&set.Spec.Template, &d.Spec.Template)
}

// DoesRolloutStandStill reports whether the rollout of a MachineDeployment removes no machine of an old set now: it is
// paused, or people delete or select the machines. Then nothing but the remediation replaces the unhealthy machines of
// old sets.
func DoesRolloutStandStill(d *v1alpha1.MachineDeployment) bool {
	strategy := d.Spec.Strategy
	return d.Spec.Paused || strategy.EffectiveType() == v1alpha1.OnDeleteMachineDeploymentStrategyType ||
		strategy.EffectiveType() == v1alpha1.InPlaceUpdateMachineDeploymentStrategyType &&
			strategy.InPlaceUpdate != nil && strategy.InPlaceUpdate.OrchestrationType == v1alpha1.OrchestrationTypeManual
}

// GenerationRecord returns the recorded generations of failed machines of a set.
func GenerationRecord(set *v1alpha1.MachineSet) (r scale.GenerationRecord) {
	if g := set.Status.FailedGenerations; g != nil {
		r = scale.GenerationRecord{Failed: int(g.Count), Last: g.LastFailedAt.Time}
	}
	return r
}

// RetryPolicy returns the settings of a policy for failed generations of machines. The parameter backoff is the back-off
// if the policy has none.
func RetryPolicy(spec *v1alpha1.MachineSetRemediation, backoff time.Duration) scale.RetryPolicy {
	r := scale.RetryPolicy{Backoff: backoff, MaxBackoff: v1alpha1.DefaultRemediationMaxBackoff}
	if spec == nil {
		return r
	}
	if spec.Backoff != nil {
		r.Backoff = spec.Backoff.Duration
	}
	if spec.MaxBackoff != nil {
		r.MaxBackoff = spec.MaxBackoff.Duration
	}
	if spec.MaxRetry != nil {
		r.HasMaxRetry, r.MaxRetry = true, int(*spec.MaxRetry)
	}
	return r
}

// RemediationSurge returns how many machines a set with this number of replicas may add while it replaces machines. A
// value that does not parse counts as 0.
func RemediationSurge(spec *v1alpha1.MachineSetRemediation, replicas int32) int {
	if spec == nil || spec.MaxSurge == nil {
		return 0
	}
	surge, err := intstr.GetScaledValueFromIntOrPercent(spec.MaxSurge, int(replicas), true)
	if err != nil {
		return 0
	}
	return surge
}

// MemberFacts returns the facts about a machine of a set that do not depend on the set's template.
func MemberFacts(m *v1alpha1.Machine, set *v1alpha1.MachineSet, selector labels.Selector) scale.Member {
	phase := m.Status.CurrentStatus.Phase
	f := scale.Member{
		Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, CreatedAt: m.CreationTimestamp.Time,
		MatchesSelector: selector.Matches(labels.Set(m.Labels)) || selector.Empty(),
		Deleting:        m.DeletionTimestamp != nil, DeletingSince: cache.TimeOrZero(m.DeletionTimestamp),
		TemplateDifferences: scale.TemplateDifferences{UpToDate: scale.ConditionTrue},

		Phase: string(phase),
		MCM: scale.MCMMember{
			Failed:                phase == v1alpha1.MachineFailed,
			LastOperationFailed:   m.Status.LastOperation.State == v1alpha1.MachineStateFailed,
			CreationFailing:       phase == v1alpha1.MachineCrashLoopBackOff,
			ServesWithoutNode:     phase == v1alpha1.MachineAvailable,
			Replaceable:           machine.IsReplaceable(m, set),
			Preserved:             machine.IsPreservedNowOrLater(m),
			PreservedUntil:        cache.TimeOrZero(m.Status.CurrentStatus.PreserveExpiryTime),
			AutoPreserved:         machine.IsPreservedBySet(m),
			PreservationForbidden: machine.IsPreservationForbidden(m),
			ChosenAt:              cache.ParseTimeOrZero(m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime]),
		},
		Updating:       phase == v1alpha1.MachineInPlaceUpdating,
		MovedForUpdate: m.Labels[v1alpha1.LabelUpdateResult] == v1alpha1.ValueUpdateSuccessful,
		Joined:         machine.HasJoined(m),
		Priority:       drain.DeletionPriority(m),
	}
	f.Ready, f.NotReadyReason, f.ReadySince, f.NodeState = nodeReadiness(m)
	if reason, message := machine.CreationBlocker(m); reason != "" {
		f.MCM.CreationProblem = scale.Problem{Reason: reason, Message: message}
	}
	_, f.DeleteFirst = m.Annotations[v1alpha1.AnnotationDeleteMachine]
	f.Healthy, f.Marked = HealthCheckResult(m)
	if _, f.Urgent = m.Annotations[v1alpha1.AnnotationRemediateMachine]; f.Urgent {
		f.Healthy, f.Marked = scale.ConditionFalse, true
	}
	return f
}

// HealthCheckResult returns the result of a machine's health check, and whether the check requests a replacement by the
// set. If the machine is healthy again, an old request is ignored; the health check will remove it.
func HealthCheckResult(m *v1alpha1.Machine) (check scale.ConditionStatus, marked bool) {
	if c := cache.FindNodeCondition(m.Status.Conditions, v1alpha1.MachineHealthCheckSucceeded); c != nil {
		check = scale.ConditionStatus(c.Status)
	}
	c := cache.FindNodeCondition(m.Status.Conditions, v1alpha1.MachineOwnerRemediated)
	return check, c != nil && c.Status == corev1.ConditionFalse && check == scale.ConditionFalse
}

// nodeReadiness returns whether the node of a machine is ready, according to the machine's status.
func nodeReadiness(
	m *v1alpha1.Machine,
) (ready scale.ConditionStatus, why string, since time.Time, node scale.NodeState) {
	phase := m.Status.CurrentStatus.Phase
	switch phase {
	case "":
		return "", "", since, scale.NoNode
	case v1alpha1.MachineRunning:
		return scale.ConditionTrue, "", machine.NodeReadyTime(m), scale.NodeHealthy
	case v1alpha1.MachinePending, v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineAvailable:
		node = scale.NoNode
	case v1alpha1.MachineInPlaceUpdating, v1alpha1.MachineInPlaceUpdateSuccessful:
		node = scale.NodeHealthy
	default:
		node = scale.NodeUnhealthy
	}
	return scale.ConditionFalse, cmp.Or(m.Status.LastOperation.Description, "phase "+string(phase)), since, node
}

// ReplicaFailureReason returns the reason of a set's condition ReplicaFailure; empty if the condition is not True.
func ReplicaFailureReason(set *v1alpha1.MachineSet) string {
	for _, c := range set.Status.Conditions {
		if c.Type == v1alpha1.MachineSetReplicaFailure && c.Status == v1alpha1.ConditionTrue {
			return c.Reason
		}
	}
	return ""
}

// reportedStatus returns the part of a set's status that scale.PlanSet computes.
func reportedStatus(s *v1alpha1.MachineSetStatus) scale.Status {
	r := scale.Status{
		Counts: &scale.MachineCounts{
			Replicas: int(s.Replicas), Labelled: int(s.FullyLabeledReplicas), Ready: int(s.ReadyReplicas),
			Available: int(s.AvailableReplicas), UpToDate: int(s.UpToDateReplicas),
			PreservedFailed: int(s.PreservedFailedReplicas), AutoPreserved: int(s.AutoPreserveFailedMachineCount),
		},
		PeakReplicas: int(s.PeakReplicas), Overshoot: int(s.Overshoot), ObservedReplicas: int(s.ObservedReplicas),
	}
	for _, m := range s.FailedMachines {
		r.FailedNames = append(r.FailedNames, m.Name)
	}
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.MachineSetBlocked { // ExplainPlan computes the condition Blocked
			continue
		}
		r.Conditions = append(
			r.Conditions,
			scale.Condition{Type: string(c.Type), Status: scale.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message},
		)
	}
	return r
}

// ApplyStatus writes the status that scale.PlanSet computed. The transition time of a condition changes only with the
// condition's status.
func ApplyStatus(s *v1alpha1.MachineSetStatus, want scale.Status, now metav1.Time) {
	if c := want.Counts; c != nil {
		s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas = int32(c.Replicas), int32(c.Labelled), int32(c.Ready)
		s.AvailableReplicas, s.UpToDateReplicas = int32(c.Available), int32(c.UpToDate)
		s.PreservedFailedReplicas, s.AutoPreserveFailedMachineCount = int32(c.PreservedFailed), int32(c.AutoPreserved)
	}
	s.PeakReplicas, s.Overshoot, s.ObservedReplicas = int32(
		want.PeakReplicas,
	), int32(
		want.Overshoot,
	), int32(
		want.ObservedReplicas,
	)
	was := s.Conditions
	s.Conditions = make([]v1alpha1.MachineSetCondition, 0, len(want.Conditions))
	for _, c := range want.Conditions {
		next := v1alpha1.MachineSetCondition{
			Type:               v1alpha1.MachineSetConditionType(c.Type),
			Status:             v1alpha1.ConditionStatus(c.Status),
			Reason:             c.Reason,
			Message:            c.Message,
			LastTransitionTime: now,
		}
		same := func(o v1alpha1.MachineSetCondition) bool { return o.Type == next.Type && o.Status == next.Status }
		if i := slices.IndexFunc(was, same); i >= 0 {
			next.LastTransitionTime = was[i].LastTransitionTime
		}
		s.Conditions = append(s.Conditions, next)
	}
}
