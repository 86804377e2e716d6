package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/capi"
	capiset "millwright/observe/capi/set"
	"millwright/observe/deployment"
)

// Defaults of annotations. Sources: revisionHistoryLimit of a Deployment; progressDeadlineSeconds of Cluster API's
// v1beta1.
const (
	defaultRevisionHistoryLimit = 10
	defaultProgressDeadline     = 10 * time.Minute
)

// RolloutFacts returns the facts from which a rollout is planned.
func RolloutFacts(f ObjectTree, now time.Time) rollout.Facts {
	d := f.Deployment
	o := rollout.Facts{
		Now:      now,
		Settings: rollout.Settings{Replicas: int(capi.ValueOrZero(d.Spec.Replicas))},
		Deletion: scale.Deletion{
			Deleting:     d.DeletionTimestamp != nil,
			Orphaning:    cache.IsOrphaning(d),
			HasFinalizer: slices.Contains(d.Finalizers, capi.Finalizer),
		},
		InvalidReason:   cmp.Or(invalidReason(d), deployment.InvalidStepReason(f.Policy)),
		CreationProblem: f.creationProblem(),
		ClusterAPI: rollout.ClusterAPIDeployment{
			SuspensionReason: strings.Join(f.pauseReasons(), ", "),
			RecheckTime:      futureRolloutAfterTime(d, now),
		},
		OperatorRequests: rollout.OperatorRequests{
			Paused:     capi.ValueOrZero(d.Spec.Paused),
			PausedBy:   strings.TrimSpace(d.Annotations[v1alpha1.AnnotationRolloutPausedBy]),
			RollbackTo: rollbackRevision(d),
		},
		Generation: d.Generation,

		ObservedGeneration: d.Status.ObservedGeneration,
		ReportedStatus:     reportedStatus(&d.Status),
		Progress:           deployment.RecordedProgress(RecordedRollout(d)),
	}
	for _, c := range o.ReportedStatus.Conditions {
		if c.Type == vocabulary.ConditionProgressing {
			o.WorkerDowntime = f.Absences.DurationBetween(c.LastUpdateTime, now)
		}
	}
	o.Strategy, o.MaxSurge, o.MaxUnavailable = strategyOfSpec(&d.Spec.Rollout.Strategy)
	if _, isOwned := d.Labels[clusterv1.ClusterTopologyOwnedLabel]; isOwned {
		o.ClusterAPI.TemplateOwner = "the topology of Cluster " + d.Namespace + "/" + d.Spec.ClusterName
	}
	inPlace := d.Annotations[v1alpha1.AnnotationInPlaceUpdates]
	o.ClusterAPI.RequiresExtension = inPlace == v1alpha1.ValueRequired
	o.ClusterAPI.UsesExtension = inPlace == v1alpha1.ValueLowerTrue || o.ClusterAPI.RequiresExtension
	o.HistoryLimit = new(intAnnotation(d, v1alpha1.AnnotationRevisionHistoryLimit, defaultRevisionHistoryLimit))
	if deadline := time.Duration(
		intAnnotation(d, v1alpha1.AnnotationProgressDeadline, int(defaultProgressDeadline/time.Second)),
	) * time.Second; deadline > 0 {
		o.ProgressDeadline = &deadline
	}
	deployment.ApplyPolicy(&o, f.Policy)
	o.Turns = f.turns(now)
	f.addSetFacts(&o, now)
	current := deployment.CurrentRevision(o.Sets)
	deployment.ApplyRequests(&o, d, current)
	deployment.ApplyRecordedPolicy(&o, RecordedRollout(d), current)
	return o
}

// addSetFacts adds the facts about the sets and machines.
func (f ObjectTree) addSetFacts(o *rollout.Facts, now time.Time) {
	d := f.Deployment
	members := map[types.UID][]*clusterv1.Machine{}
	for _, m := range f.Members {
		if owner := metav1.GetControllerOf(m); owner != nil {
			members[owner.UID] = append(members[owner.UID], m)
		}
	}
	o.ClusterAPI.Machines = &scale.DeploymentMachines{
		MissingObjectKinds: capi.MissingKinds(f.Templates),
		PauseSentences:     f.pauseReasons(),
		ReplicasUnset:      d.Spec.Replicas == nil,
	}
	current := f.CurrentSet(now)
	for _, set := range f.Sets {
		s, machines := f.rolloutSetFacts(set, members[set.UID], current, now)
		o.Sets = append(o.Sets, s)
		o.ClusterAPI.Machines.Members = append(o.ClusterAPI.Machines.Members, machines...)
	}
	for _, set := range f.Orphans {
		o.Orphans = append(o.Orphans, rollout.Orphan{
			Name:            set.Name,
			UID:             string(set.UID),
			Version:         set.ResourceVersion,
			MatchesSelector: SelectsSet(d, set),
			Deleting:        set.DeletionTimestamp != nil,
		})
	}
}

// CurrentSet returns the set with the current template; nil if there is none. If several sets have the current
// template, CurrentSet prefers the set with the most replicas, then the oldest, then the first by name. Once the time
// of spec.rollout.after has passed, a set that is older than this time does not count, unless it was created for this
// time. Source: Cluster API.
func (f ObjectTree) CurrentSet(now time.Time) *clusterv1.MachineSet {
	after := ReachedRolloutAfterTime(f.Deployment, now)
	sets := slices.DeleteFunc(slices.Clone(f.Sets), func(set *clusterv1.MachineSet) bool {
		early := set.CreationTimestamp.Time.Before(after) &&
			set.Annotations[v1alpha1.AnnotationCreatedFor] != after.UTC().Format(time.RFC3339)
		return set.DeletionTimestamp != nil || early || !IsSameTemplate(&set.Spec.Template, &f.Deployment.Spec.Template)
	})
	if len(sets) == 0 {
		return nil
	}
	return slices.MinFunc(sets, func(a, b *clusterv1.MachineSet) int {
		return cmp.Or(
			cmp.Compare(
				capi.ValueOrZero(b.Spec.Replicas),
				capi.ValueOrZero(a.Spec.Replicas),
			),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// ReachedRolloutAfterTime returns the time of spec.rollout.after if that time has passed; otherwise zero.
func ReachedRolloutAfterTime(d *clusterv1.MachineDeployment, now time.Time) time.Time {
	if after := d.Spec.Rollout.After; !now.Before(after.Time) {
		return after.Time
	}
	return time.Time{}
}

// futureRolloutAfterTime returns the time of spec.rollout.after if that time is in the future; otherwise zero.
func futureRolloutAfterTime(d *clusterv1.MachineDeployment, now time.Time) time.Time {
	if after := d.Spec.Rollout.After; after.After(now) {
		return after.Time
	}
	return time.Time{}
}

// rolloutSetFacts returns the facts about one of the deployment's sets and its machines.
func (f ObjectTree) rolloutSetFacts(
	set *clusterv1.MachineSet,
	members []*clusterv1.Machine,
	current *clusterv1.MachineSet,
	now time.Time,
) (rollout.MachineSet, []scale.Member) {
	same := IsSameTemplate(&set.Spec.Template, &f.Deployment.Spec.Template)
	s := rollout.MachineSet{
		Name:      set.Name,
		UID:       string(set.UID),
		Version:   set.ResourceVersion,
		CreatedAt: set.CreationTimestamp.Time,
		Current:   set == current,
		ClusterAPI: rollout.ClusterAPISet{
			DuplicatesTemplate: same && set != current,
			MissingObject:      f.MissingBySet[set.UID],
		},
		Deletion: scale.Deletion{
			Deleting:     set.DeletionTimestamp != nil,
			Orphaning:    cache.IsOrphaning(set),
			HasFinalizer: slices.Contains(set.Finalizers, capi.Finalizer),
		},
		Replicas:         int(capi.ValueOrZero(set.Spec.Replicas)),
		ObservedReplicas: LastHandledReplicas(set),
		Revision:         Revision(set),
		History:          set.Annotations[AnnotationRevisionHistory],
		DesiredReplicas:  deployment.ParseCount(set.Annotations[clusterv1.DesiredReplicasAnnotation]),
		MaxReplicas:      deployment.ParseCount(set.Annotations[clusterv1.MaxReplicasAnnotation]),

		ScaleUpDisabled: set.Annotations[clusterv1.DisableMachineCreateAnnotation] == "true",
		Drifted: f.CopyDeploymentFields(set.DeepCopy(), set == current) ||
			set == current && Revision(set) > 0 && Revision(f.Deployment) != Revision(set),
	}
	s.Source = sourceOfSet(set)
	s.ClusterAPI.ExtensionAnswer, s.ClusterAPI.Transfer = ExtensionAnswer(set), MachineTransfer(set)
	if !f.IsLive {
		s.StatusMachineCount = int(capi.ValueOrZero(set.Status.Replicas))
	}
	if c := capi.ConditionOfType(
		set.Status.Conditions,
		vocabulary.ConditionReplicaFailure,
	); c.Status == metav1.ConditionTrue {
		s.Failure = rollout.Problem{Reason: c.Reason, Message: c.Message}
	}
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	minReady := time.Duration(capi.ValueOrZero(set.Spec.Template.Spec.MinReadySeconds)) * time.Second
	var machines []scale.Member
	for _, m := range members {
		seen := capiset.MemberFacts(f.Cache, m, set, selector, now)
		machines = append(machines, seen)
		r := rolloutMemberFacts(seen, set, minReady, now)
		r.Failed, r.Joined, r.RemovalRequested, r.DenialReason = hasFailedHealthCheck(
			seen,
			m,
		), wasHealthy(
			m,
		), isReplacementRequested(
			m,
		), creationDenial(
			m,
		)
		s.Machines = append(s.Machines, r)
	}
	if active := slices.DeleteFunc(
		slices.Clone(s.Machines),
		func(m rollout.Member) bool { return m.Deleting },
	); len(active) > s.Replicas {
		for i := range s.Machines { // the set may have chosen the surplus while other machines were unhealthy
			s.Machines[i].Unhealthy = false
		}
	}
	return s, machines
}

// LastHandledReplicas returns the size on which a set has acted. The status of the set contains only the observed
// generation, so an annotation keeps the previous size on which the set acted. A set without the annotation, which
// another controller made, counts as having acted on its size.
func LastHandledReplicas(set *clusterv1.MachineSet) int {
	replicas := int(capi.ValueOrZero(set.Spec.Replicas))
	former := deployment.ParseCount(set.Annotations[v1alpha1.AnnotationFormerReplicas])
	if former < 0 || set.Status.ObservedGeneration >= set.Generation {
		return replicas
	}
	return former
}

// rolloutMemberFacts returns the facts about a machine. The machine's availability and deletion order come from
// decide/scale, so that a deployment and its sets agree.
func rolloutMemberFacts(
	seen scale.Member,
	set *clusterv1.MachineSet,
	minReady time.Duration,
	now time.Time,
) rollout.Member {
	return rollout.Member{
		Name: seen.Name, UID: seen.UID, Version: seen.Version, CreatedAt: seen.CreatedAt,
		Deleting:    seen.Deleting,
		Ready:       seen.Ready == scale.ConditionTrue,
		Available:   !seen.Deleting && !seen.Updating && seen.IsAvailable(now, minReady),
		Unhealthy:   seen.IsUnhealthy(),
		Priority:    seen.Priority,
		DeleteFirst: seen.DeleteFirst,
		Updating:    seen.Updating,

		ClusterAPI: rollout.ClusterAPIMember{
			Moved:          seen.MovedForUpdate,
			Unacknowledged: seen.MovedForUpdate && !capiset.AcknowledgesMove(set, seen.Name),
		},
	}
}

// pauseReasons returns who has paused the deployment, in the wording of Cluster API. Millwright does not change a
// paused deployment.
func (f ObjectTree) pauseReasons() (who []string) {
	if f.Cluster != nil && capi.ValueOrZero(f.Cluster.Spec.Paused) {
		who = append(who, capi.ClusterPausedMessage)
	}
	if _, paused := f.Deployment.Annotations[clusterv1.PausedAnnotation]; paused {
		who = append(who, phrase.PausedSentence("MachineDeployment"))
	}
	return who
}

// creationProblem returns why no set is created for the template; zero if a set may be created.
func (f ObjectTree) creationProblem() rollout.Problem {
	name := f.Deployment.Spec.ClusterName
	stopped := func(why string) rollout.Problem {
		return rollout.Problem{Reason: vocabulary.ReasonScaleUpStopped, Message: why + ": no set is created for the template"}
	}
	switch lack := MissingTemplateText(f.Deployment.Namespace, f.Templates); {
	case f.Cluster == nil:
		return stopped("Cluster " + name + " does not exist")
	case f.Cluster.DeletionTimestamp != nil:
		return stopped("Cluster " + name + " is being deleted")
	case lack != "":
		return rollout.Problem{
			Reason:  vocabulary.ReasonTemplateNotFound,
			Message: lack + " does not exist: no set is created for the template",
		}
	case slices.ContainsFunc(f.Templates, func(t capi.ProviderObject) bool { return !t.WasRead }):
		return stopped("the templates were not read yet")
	default:
		return rollout.Problem{}
	}
}

// contestedMessage is the message for users that explains why Millwright does not touch a deployment with both
// finalizers. Source of the remedy: docs/clusterapi.md.
const contestedMessage = "another controller reconciles this MachineDeployment: it has added the finalizer " + clusterv1.MachineDeploymentFinalizer +
	"; install the admission policy of Millwright, then remove this finalizer"

// invalidReason returns why a deployment cannot be rolled out; empty for a valid deployment. Admission rejects most
// invalid deployments.
func invalidReason(d *clusterv1.MachineDeployment) string {
	selector, err := metav1.LabelSelectorAsSelector(&d.Spec.Selector)
	kind := d.Spec.Rollout.Strategy.Type
	switch {
	case capi.IsReconciledByOtherController(d, clusterv1.MachineDeploymentFinalizer):
		return contestedMessage
	case d.Spec.Replicas == nil:
		return "Waiting for spec.replicas set"
	case err != nil:
		return fmt.Sprintf("the selector cannot be read: %v", err)
	case selector.Empty():
		return "the selector is empty: it would match every machine"
	case !selector.Matches(labels.Set(d.Spec.Template.Labels)):
		return "the selector does not match the labels of the template"
	case kind != "" && kind != clusterv1.RollingUpdateMachineDeploymentStrategyType && kind != clusterv1.OnDeleteMachineDeploymentStrategyType:
		return fmt.Sprintf("the strategy %q does not exist", kind)
	default:
		return ""
	}
}

// strategyOfSpec reads how new machines replace old machines. Source of the defaults: Cluster API.
func strategyOfSpec(
	s *clusterv1.MachineDeploymentRolloutStrategy,
) (kind rollout.Strategy, surge, unavailable rollout.IntOrPercent) {
	if s.Type == clusterv1.OnDeleteMachineDeploymentStrategyType {
		return rollout.OnDelete, surge, unavailable
	}
	number := func(v *intstr.IntOrString, byDefault int) rollout.IntOrPercent {
		if v == nil {
			return rollout.IntOrPercent{Value: byDefault}
		}
		return deployment.ParseIntOrPercent(*v)
	}
	return rollout.RollingUpdate, number(s.RollingUpdate.MaxSurge, 1), number(s.RollingUpdate.MaxUnavailable, 0)
}

// intAnnotation returns the number in an annotation; the default if the annotation is missing or does not parse.
func intAnnotation(d *clusterv1.MachineDeployment, key string, byDefault int) int {
	if n := deployment.ParseCount(d.Annotations[key]); n >= 0 {
		return n
	}
	return byDefault
}

// rollbackRevision returns the revision that a person requests; nil without a request. A text that is not a number
// gives -1, a revision that does not exist.
func rollbackRevision(d *clusterv1.MachineDeployment) *int64 {
	text, asked := d.Annotations[v1alpha1.AnnotationRollbackTo]
	if !asked {
		return nil
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		n = -1
	}
	return &n
}

// Revision returns the revision of a deployment or set; 0 if the annotation is missing or not a number.
func Revision(o metav1.Object) int64 {
	n, err := strconv.ParseInt(o.GetAnnotations()[clusterv1.RevisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}
