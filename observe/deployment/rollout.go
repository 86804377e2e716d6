// Package deployment derives facts for decide from a MachineDeployment with its sets and machines.
package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/drain"
	"millwright/observe/machine"
	observeset "millwright/observe/set"
)

// ObjectTree is a deployment with its sets and machines, all read at the same time.
type ObjectTree struct {
	Deployment *v1alpha1.MachineDeployment
	Sets       []*v1alpha1.MachineSet // sets that the deployment controls, unsorted
	Orphans    []*v1alpha1.MachineSet // sets of the deployment's namespace without an existing controller, unsorted
	Members    []*v1alpha1.Machine    // machines that these sets control, unsorted
	// the machines are at least as new as this resource version; empty means unknown
	MachinesVersion string
	// NodeOfMachine returns the node that provably belongs to a machine; nil if the machine has no such node. A nil
	// function means that nodes are unknown.
	NodeOfMachine func(*v1alpha1.Machine) *corev1.Node
	// ClassOfMachine returns the class of a machine; nil if the class does not exist. A nil function means that classes
	// are unknown.
	ClassOfMachine func(*v1alpha1.Machine) *v1alpha1.MachineClass
	// GuardsNodes means that rollouts stop the cluster autoscaler from scaling down nodes.
	GuardsNodes  bool
	BehavesAsMCM bool                    // the flag --as-mcm; see cache.Cluster
	Policy       *v1alpha1.RolloutPolicy // policy of the deployment; nil without a policy
	Siblings     []ObjectTree            // the deployments that take turns with the deployment, without machines
	// Absences are the times during which no worker was running.
	Absences cache.WorkerAbsences
}

// ReadTree returns a deployment with its sets and machines from the caches.
func ReadTree(c *cache.Cluster, d *v1alpha1.MachineDeployment) ObjectTree {
	// The version is read before the machines, so that the machines are at least as new.
	sets, read := c.SetsOfOwner(string(d.UID)), c.ReachedVersion(cache.MachinesResource)
	f := ObjectTree{
		Deployment:      d,
		Sets:            sets,
		Orphans:         c.SetsWithoutController(d),
		Members:         c.MachinesOfSets(sets),
		MachinesVersion: read,
		NodeOfMachine:   c.OwnNodeOfMachine,
		ClassOfMachine:  c.ClassOfMachine,
		GuardsNodes:     !c.WithoutAutoscalerGuard,
		BehavesAsMCM:    c.BehavesAsMCM,
		Policy:          c.PolicyOfObject(d),
		Absences:        c.AbsencesOfNamespace(d.Namespace),
	}
	return f.withCachedSiblings(c)
}

// RolloutFacts returns the facts from which the plan for a rollout is made.
func RolloutFacts(f ObjectTree, now time.Time) rollout.Facts {
	d := f.Deployment
	o := rollout.Facts{
		Now:      now,
		Settings: rollout.Settings{Replicas: int(d.Spec.Replicas)},
		Deletion: scale.Deletion{
			Deleting:     d.DeletionTimestamp != nil,
			Orphaning:    cache.IsOrphaning(d),
			HasFinalizer: cache.HasFinalizer(d.Finalizers),
		},
		InvalidReason: cmp.Or(invalidReason(d), InvalidStepReason(f.Policy)),
		MCM: rollout.MCMDeployment{
			Frozen:                      cache.IsFrozen(d),
			FreezeEndsWithSets:          f.BehavesAsMCM,
			ProtectsNodesFromAutoscaler: f.GuardsNodes,
			TriggerAnnotation:           d.Annotations[v1alpha1.AnnotationTriggerDeletion],
			AutoscaledAt:                d.Annotations[v1alpha1.AnnotationLastScalerChange],
			PendingGrantCount:           len(d.Status.Replacements),
		},
		OperatorRequests: rollout.OperatorRequests{
			Paused:   d.Spec.Paused,
			PausedBy: strings.TrimSpace(d.Annotations[v1alpha1.AnnotationRolloutPausedBy]),
		},
		Generation:         d.Generation,
		ObservedGeneration: d.Status.ObservedGeneration,
		ReportedStatus:     reportedStatus(&d.Status),
	}
	_, o.MCM.UnfreezeRequested = d.Annotations[v1alpha1.AnnotationUnfreeze]
	o.Progress = RecordedProgress(d.Status.Rollout)
	for _, c := range o.ReportedStatus.Conditions {
		if c.Type == string(v1alpha1.MachineDeploymentProgressing) {
			o.WorkerDowntime = f.Absences.DurationBetween(c.LastUpdateTime, now)
		}
	}
	o.Strategy, o.MaxSurge, o.MaxUnavailable = strategyOfSpec(&d.Spec.Strategy)
	addSpecFacts(&o, &d.Spec)
	ApplyPolicy(&o, f.Policy)
	o.Turns = f.turns(now)
	members := map[types.UID][]*v1alpha1.Machine{}
	for _, m := range f.Members {
		if machine.WaitsForReplacementGrant(m) {
			o.MCM.DueMachineCount++
		}
		if owner := metav1.GetControllerOf(m); owner != nil {
			members[owner.UID] = append(members[owner.UID], m)
		}
	}
	for _, s := range f.Sets {
		o.Sets = append(o.Sets, rolloutSetFacts(f, s, members[s.UID], now))
	}
	for _, s := range f.Orphans {
		o.Orphans = append(o.Orphans, rollout.Orphan{
			Name:            s.Name,
			UID:             string(s.UID),
			Version:         s.ResourceVersion,
			MatchesSelector: SelectsSet(d, s),
			Deleting:        s.DeletionTimestamp != nil,
			Released:        s.Annotations[v1alpha1.AnnotationReleasedBy] == string(d.UID),
		})
	}
	current := CurrentRevision(o.Sets)
	ApplyRequests(&o, d, current)
	ApplyRecordedPolicy(&o, d.Status.Rollout, current)
	return o
}

// addSpecFacts reads the fields of the spec that control a rollout, without the strategy.
func addSpecFacts(o *rollout.Facts, spec *v1alpha1.MachineDeploymentSpec) {
	if limit := spec.RevisionHistoryLimit; limit != nil {
		o.HistoryLimit = new(int(*limit))
	}
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil {
		o.ProgressDeadline = new(time.Duration(*deadline) * time.Second)
	}
	if spec.RollbackTo != nil {
		o.RollbackTo = new(spec.RollbackTo.Revision)
	}
}

// ApplyPolicy adds the rollout settings of a policy to the facts. A nil policy means the defaults. If the policy rolls
// back at the progress deadline but the deployment has no deadline, no set is created for a new template.
func ApplyPolicy(o *rollout.Facts, policy *v1alpha1.RolloutPolicy) {
	spec := policy.PolicySpec()
	o.IgnoresDeletingMachines = spec.MachineReplacementPolicy == v1alpha1.MachineTerminationStarted
	o.Steps = ConvertSteps(spec.Steps)
	o.NextRolloutStepCount = len(spec.Steps)
	o.RollbackPolicy = convertAutomaticRollback(spec.AutomaticRollback)
	if o.RollbackPolicy.RollsBackOnDeadline && o.ProgressDeadline == nil && o.CreationProblem.Reason == "" {
		o.CreationProblem = rollout.Problem{Reason: vocabulary.ReasonPolicyInvalid, Message: "RolloutPolicy " + policy.Name +
			" rolls back at the progress deadline, and the deployment has none: no set is created for the template"}
	}
}

// convertAutomaticRollback converts the settings for automatic rollbacks.
func convertAutomaticRollback(of *v1alpha1.AutomaticRollback) (a rollout.AutoRollback) {
	if of == nil {
		return a
	}
	a.RollsBackOnDeadline = of.OnProgressDeadline
	if of.MaxFailedMachines != nil {
		a.HasMaxFailed, a.MaxFailed = true, int(*of.MaxFailedMachines)
	}
	if of.BakeTime != nil {
		a.BakeTime = of.BakeTime.Duration
	}
	return a
}

// ConvertSteps converts the steps of a rollout.
func ConvertSteps(of []v1alpha1.RolloutStep) (steps []rollout.Step) {
	for _, s := range of {
		step := rollout.Step{Size: ParseIntOrPercent(s.Replicas), NeedsApproval: s.Approve}
		if s.Wait != nil {
			step.Wait = s.Wait.Duration
		}
		steps = append(steps, step)
	}
	return steps
}

// strategyOfSpec reads how new machines replace old machines.
func strategyOfSpec(
	s *v1alpha1.MachineDeploymentStrategy,
) (kind rollout.Strategy, surge, unavailable rollout.IntOrPercent) {
	maxSurge, maxUnavailable := s.EffectiveRollingUpdate()
	switch s.EffectiveType() {
	case v1alpha1.RecreateMachineDeploymentStrategyType:
		return rollout.Recreate, surge, unavailable
	case v1alpha1.OnDeleteMachineDeploymentStrategyType:
		return rollout.OnDelete, surge, unavailable
	case v1alpha1.InPlaceUpdateMachineDeploymentStrategyType:
		kind = rollout.InPlaceAuto
		if s.InPlaceUpdate != nil && s.InPlaceUpdate.OrchestrationType == v1alpha1.OrchestrationTypeManual {
			kind = rollout.InPlaceManual
		}
		maxSurge, maxUnavailable = s.EffectiveInPlaceUpdate()
	default:
		kind = rollout.RollingUpdate
	}
	return kind, ParseIntOrPercent(maxSurge), ParseIntOrPercent(maxUnavailable)
}

// ParseIntOrPercent reads a number of machines or a percentage. As in MCM, a string without a percent sign is a
// percentage too. Admission rejects all other strings.
func ParseIntOrPercent(v intstr.IntOrString) rollout.IntOrPercent {
	if v.Type == intstr.Int {
		return rollout.IntOrPercent{Value: int(v.IntVal)}
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	if err != nil {
		return rollout.IntOrPercent{}
	}
	return rollout.IntOrPercent{Value: n, IsPercent: true}
}

// invalidReason returns why a deployment cannot be rolled out; empty for a valid deployment. Admission rejects most
// invalid deployments.
func invalidReason(d *v1alpha1.MachineDeployment) string {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	kind := d.Spec.Strategy.EffectiveType()
	switch class := d.Spec.Template.Spec.Class; {
	case err != nil:
		return fmt.Sprintf("the selector cannot be read: %v", err)
	case selector.Empty():
		return "the selector is empty: it would match every machine"
	case !selector.Matches(labels.Set(d.Spec.Template.Labels)):
		return "the selector does not match the labels of the template"
	case class.Name == "":
		return "the template names no machine class"
	case kind == v1alpha1.InPlaceUpdateMachineDeploymentStrategyType && !hasOrchestrationType(d.Spec.Strategy.InPlaceUpdate):
		return "the strategy InPlaceUpdate needs an orchestrationType, Auto or Manual"
	case !slices.Contains(knownStrategyTypes, kind):
		return fmt.Sprintf("the strategy %q does not exist", kind)
	default:
		return ""
	}
}

var knownStrategyTypes = []v1alpha1.MachineDeploymentStrategyType{
	v1alpha1.RollingUpdateMachineDeploymentStrategyType, v1alpha1.RecreateMachineDeploymentStrategyType,
	v1alpha1.InPlaceUpdateMachineDeploymentStrategyType, v1alpha1.OnDeleteMachineDeploymentStrategyType,
}

func hasOrchestrationType(u *v1alpha1.InPlaceUpdateMachineDeployment) bool {
	return u != nil &&
		(u.OrchestrationType == v1alpha1.OrchestrationTypeAuto || u.OrchestrationType == v1alpha1.OrchestrationTypeManual)
}

// InvalidStepReason returns why a rollout step does not parse; empty if all steps are valid. Admission does not check
// the steps, because the check would exceed the cost limit of admission rules.
func InvalidStepReason(policy *v1alpha1.RolloutPolicy) string {
	for i, s := range policy.PolicySpec().Steps {
		percent, err := strconv.Atoi(strings.TrimSuffix(s.Replicas.StrVal, "%"))
		if s.Replicas.Type == intstr.String && (err != nil || percent < 0) {
			return fmt.Sprintf(
				"step %d of RolloutPolicy %s: replicas is %q, which is no percentage",
				i+1,
				policy.Name,
				s.Replicas.StrVal,
			)
		}
	}
	return ""
}

// unreadMachineCount returns how many machines a set has according to its status. unreadMachineCount returns 0 if the
// tree is at least as new as the status, because the tree then contains all these machines.
func (f ObjectTree) unreadMachineCount(set *v1alpha1.MachineSet) int {
	if seen := set.Status.ObservedMachines; seen != "" &&
		(f.MachinesVersion == seen || cache.IsNewerVersion(f.MachinesVersion, seen)) {
		return 0
	}
	return int(set.Status.Replicas)
}

// rolloutSetFacts returns the facts about one set of a deployment.
func rolloutSetFacts(
	f ObjectTree,
	set *v1alpha1.MachineSet,
	members []*v1alpha1.Machine,
	now time.Time,
) rollout.MachineSet {
	s := rollout.MachineSet{
		Name:      set.Name,
		UID:       string(set.UID),
		Version:   set.ResourceVersion,
		CreatedAt: set.CreationTimestamp.Time,
		MCM: rollout.MCMSet{
			Unselected: !SelectsSet(f.Deployment, set),
			Frozen:     cache.IsFrozen(set),
		},
		Current: observeset.IsSameTemplate(&set.Spec.Template, &f.Deployment.Spec.Template),
		Deletion: scale.Deletion{
			Deleting:     set.DeletionTimestamp != nil,
			Orphaning:    cache.IsOrphaning(set),
			HasFinalizer: cache.HasFinalizer(set.Finalizers),
		},
		Replicas:           int(set.Spec.Replicas),
		StatusMachineCount: f.unreadMachineCount(set),
		ObservedReplicas:   int(set.Status.ObservedReplicas),
		Revision:           Revision(set),
		History:            set.Annotations[v1alpha1.AnnotationRevisionHistory],
		DesiredReplicas:    ParseCount(set.Annotations[v1alpha1.AnnotationDesiredReplicas]),
		MaxReplicas:        ParseCount(set.Annotations[v1alpha1.AnnotationMaxReplicas]),
	}
	_, s.ScaleUpDisabled = set.Labels[v1alpha1.LabelScaleUpDisabled]
	if !s.Current {
		s.MCM.MissingClass = f.missingClassName(set)
	} else {
		s.Drifted = CopyDeploymentFields(set.DeepCopy(), f.Deployment) ||
			s.Revision > 0 && Revision(f.Deployment) != s.Revision
	}
	s.Source = f.sourceOfSet(set)
	for _, c := range set.Status.Conditions {
		if c.Type == v1alpha1.MachineSetReplicaFailure && c.Status == v1alpha1.ConditionTrue {
			s.Failure = rollout.Problem{Reason: c.Reason, Message: c.Message}
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	for _, m := range members {
		var node *corev1.Node
		if f.NodeOfMachine != nil {
			node = f.NodeOfMachine(m)
		}
		r := rolloutMemberFacts(m, set, selector, node, observeset.MinReadyDuration(set, f.BehavesAsMCM), now)
		r.Joined, r.RemovalRequested, r.DenialReason = machine.IsJoinRecorded(
			m,
		), isReplacementRequested(
			f.Deployment,
			m,
		), f.creationDenial(
			m,
		)
		s.Machines = append(s.Machines, r)
	}
	return s
}

// ParseCount parses the value of an annotation as a number; -1 if the value is negative or not a number.
func ParseCount(text string) int {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return n
	}
	return -1
}

// rolloutMemberFacts returns the facts about a machine. decide/scale computes availability and deletion order, so that
// a deployment and its sets agree on both.
func rolloutMemberFacts(
	m *v1alpha1.Machine,
	set *v1alpha1.MachineSet,
	selector labels.Selector,
	node *corev1.Node,
	minReady time.Duration,
	now time.Time,
) rollout.Member {
	seen := observeset.MemberFacts(m, set, selector)
	r := rollout.Member{
		Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, CreatedAt: m.CreationTimestamp.Time,
		Deleting:  m.DeletionTimestamp != nil,
		Ready:     m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning,
		Unhealthy: seen.IsUnhealthy(),
		Failed:    seen.MCM.Failed,
		MCM: rollout.MCMMember{
			LastOperationFailed: m.Status.LastOperation.State == v1alpha1.MachineStateFailed,
			Preserved:           seen.MCM.Preserved,
			MarkedAt:            m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime],
			HandedOver:          seen.MovedForUpdate,
		},
		Priority:    seen.Priority,
		DeleteFirst: seen.DeleteFirst,
	}
	if node != nil {
		r.MCM.NodeName = node.Name
		r.MCM.Preserved = r.MCM.Preserved || seen.MCM.Failed && machine.IsProtectedFromReplacement(m, node)
		inPlace := drain.InPlaceFacts(node)
		done := inPlace.Result == v1alpha1.ValueUpdateSuccessful && inPlace.Reason == v1alpha1.ReasonUpdateSuccessful
		_, marked := node.Labels[v1alpha1.LabelCandidateForUpdate]
		r.MCM.IsUpdateCandidate, r.MCM.HasUpdateLabels = inPlace.Candidate, marked || inPlace.Selected || inPlace.Result != ""
		r.Updating = inPlace.Selected && !done || seen.Updating
		r.MCM.Updated = done && !seen.Updating
		r.MCM.ScaleDownDisabledValue = node.Annotations[v1alpha1.AnnotationScaleDownDisabled]
		r.MCM.ScaleDownDisabledByMillwright = r.MCM.ScaleDownDisabledValue != "" &&
			node.Annotations[v1alpha1.AnnotationScaleDownDisabledByMCM] != ""
		if r.MCM.ScaleDownDisabledValue == "" && !machine.HasJoined(m) { // the first sync of the node writes the guard
			r.MCM.ScaleDownDisabledValue = v1alpha1.ValueLowerTrue
		}
		r.MCM.NodeTainted = cache.HasTaint(node, v1alpha1.TaintPreferNoSchedule)
	}
	r.Available = !r.Deleting && !r.Updating && seen.IsAvailable(now, minReady)
	return r
}
