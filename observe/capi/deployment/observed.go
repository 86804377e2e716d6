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
	defaultHistoryLimit = 10
	defaultDeadline     = 10 * time.Minute
)

// Observed returns the facts from which a rollout is planned.
func Observed(f Tree, now time.Time) rollout.Observed {
	d := f.Deployment
	o := rollout.Observed{
		Now:      now,
		Settings: rollout.Settings{Replicas: int(capi.Value(d.Spec.Replicas))},
		Deletion: scale.Deletion{
			Deleting:  d.DeletionTimestamp != nil,
			Orphaning: cache.IsOrphaning(d),
			Finalizer: slices.Contains(d.Finalizers, capi.Finalizer),
		},
		Invalid:  cmp.Or(invalidReason(d), deployment.InvalidSteps(f.Policy)),
		NoCreate: f.noCreateReason(),
		ClusterAPI: rollout.ClusterAPIDeployment{
			Suspended: strings.Join(f.pausedBy(), ", "),
			Wake:      wakeTime(d, now),
		},
		Requests: rollout.Requests{
			Paused:     capi.Value(d.Spec.Paused),
			PausedBy:   strings.TrimSpace(d.Annotations[v1alpha1.AnnotationRolloutPausedBy]),
			RollbackTo: rollbackTo(d),
		},
		Generation: d.Generation,

		ObservedGeneration: d.Status.ObservedGeneration,
		Reported:           reportedStatus(&d.Status),
		Progress:           deployment.Progress(Recorded(d)),
	}
	for _, c := range o.Reported.Conditions {
		if c.Type == vocabulary.ConditionProgressing {
			o.Absent = f.Absences.Between(c.Updated, now)
		}
	}
	o.Strategy, o.Surge, o.Unavailable = strategyOf(&d.Spec.Rollout.Strategy)
	o.ClusterAPI.Extension = d.Annotations[v1alpha1.AnnotationInPlaceUpdates] == v1alpha1.ValueLowerTrue
	o.HistoryLimit = new(intAnnotation(d, v1alpha1.AnnotationRevisionHistoryLimit, defaultHistoryLimit))
	if deadline := time.Duration(
		intAnnotation(d, v1alpha1.AnnotationProgressDeadline, int(defaultDeadline/time.Second)),
	) * time.Second; deadline > 0 {
		o.Deadline = &deadline
	}
	deployment.ApplyPolicy(&o, f.Policy)
	f.observeSets(&o, now)
	current := deployment.CurrentRevision(o.Sets)
	deployment.ApplyRequests(&o, d, current)
	deployment.ApplyRecord(&o, Recorded(d), current)
	return o
}

// observeSets adds the facts about the sets and machines.
func (f Tree) observeSets(o *rollout.Observed, now time.Time) {
	d := f.Deployment
	members := map[types.UID][]*clusterv1.Machine{}
	for _, m := range f.Members {
		if owner := metav1.GetControllerOf(m); owner != nil {
			members[owner.UID] = append(members[owner.UID], m)
		}
	}
	o.ClusterAPI.Machines = &scale.DeploymentMachines{
		Missing: capi.Missing(f.Templates),
		Pauses:  f.pausedBy(),
		Unsized: d.Spec.Replicas == nil,
	}
	current := f.Current(now)
	for _, set := range f.Sets {
		s, machines := f.observeSet(set, members[set.UID], current, now)
		o.Sets = append(o.Sets, s)
		o.ClusterAPI.Machines.Members = append(o.ClusterAPI.Machines.Members, machines...)
	}
	for _, set := range f.Orphans {
		o.Orphans = append(o.Orphans, rollout.Orphan{
			Name:     set.Name,
			UID:      string(set.UID),
			Version:  set.ResourceVersion,
			Matches:  Selects(d, set),
			Deleting: set.DeletionTimestamp != nil,
		})
	}
}

// Current returns the set with the current template; nil if there is none. Among several such sets, Current prefers the
// set with the most replicas, then the oldest, then the first by name. Once the time of spec.rollout.after has passed,
// a set that is older than this time does not count, unless it was created for this time. Source: Cluster API.
func (f Tree) Current(now time.Time) *clusterv1.MachineSet {
	after := DueAfter(f.Deployment, now)
	sets := slices.DeleteFunc(slices.Clone(f.Sets), func(set *clusterv1.MachineSet) bool {
		early := set.CreationTimestamp.Time.Before(after) &&
			set.Annotations[v1alpha1.AnnotationCreatedFor] != after.UTC().Format(time.RFC3339)
		return set.DeletionTimestamp != nil || early || !SameTemplate(&set.Spec.Template, &f.Deployment.Spec.Template)
	})
	if len(sets) == 0 {
		return nil
	}
	return slices.MinFunc(sets, func(a, b *clusterv1.MachineSet) int {
		return cmp.Or(
			cmp.Compare(
				capi.Value(b.Spec.Replicas),
				capi.Value(a.Spec.Replicas),
			),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// DueAfter returns the time of spec.rollout.after if that time has passed; otherwise zero.
func DueAfter(d *clusterv1.MachineDeployment, now time.Time) time.Time {
	if after := d.Spec.Rollout.After; !now.Before(after.Time) {
		return after.Time
	}
	return time.Time{}
}

// wakeTime returns the time of spec.rollout.after if that time is in the future; otherwise zero.
func wakeTime(d *clusterv1.MachineDeployment, now time.Time) time.Time {
	if after := d.Spec.Rollout.After; after.After(now) {
		return after.Time
	}
	return time.Time{}
}

// observeSet returns the facts about one of the deployment's sets and its machines.
func (f Tree) observeSet(
	set *clusterv1.MachineSet,
	members []*clusterv1.Machine,
	current *clusterv1.MachineSet,
	now time.Time,
) (rollout.Set, []scale.Member) {
	same := SameTemplate(&set.Spec.Template, &f.Deployment.Spec.Template)
	s := rollout.Set{
		Name:    set.Name,
		UID:     string(set.UID),
		Version: set.ResourceVersion,
		Created: set.CreationTimestamp.Time,
		Current: set == current,
		ClusterAPI: rollout.ClusterAPISet{
			Twin:  same && set != current,
			Lacks: f.Lacks[set.UID],
		},
		Deletion: scale.Deletion{
			Deleting:  set.DeletionTimestamp != nil,
			Orphaning: cache.IsOrphaning(set),
			Finalizer: slices.Contains(set.Finalizers, capi.Finalizer),
		},
		Replicas: int(capi.Value(set.Spec.Replicas)),
		ActedOn:  ActedOn(set),
		Revision: Revision(set),
		History:  set.Annotations[AnnotationRevisionHistory],
		Desired:  deployment.NumberIn(set.Annotations[clusterv1.DesiredReplicasAnnotation]),
		Max:      deployment.NumberIn(set.Annotations[clusterv1.MaxReplicasAnnotation]),

		NoScaleUp: set.Annotations[clusterv1.DisableMachineCreateAnnotation] == "true",
		Drift: f.Follow(set.DeepCopy(), set == current) ||
			set == current && Revision(set) > 0 && Revision(f.Deployment) != Revision(set),
	}
	s.Source = sourceOf(set)
	s.ClusterAPI.Answer, s.ClusterAPI.Transfer = AnswerOf(set), TransferOf(set)
	if !f.Live {
		s.Counted = int(capi.Value(set.Status.Replicas))
	}
	if c := capi.ConditionOf(set.Status.Conditions, vocabulary.ConditionReplicaFailure); c.Status == metav1.ConditionTrue {
		s.Failure = rollout.Problem{Reason: c.Reason, Message: c.Message}
	}
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	minReady := time.Duration(capi.Value(set.Spec.Template.Spec.MinReadySeconds)) * time.Second
	var machines []scale.Member
	for _, m := range members {
		seen := capiset.Member(f.API, m, set, selector)
		machines = append(machines, seen)
		r := rolloutMember(seen, set, minReady, now)
		r.Joined, r.Requested, r.Denied = wasHealthy(m), isReplacedByPerson(m), denialOf(m)
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

// ActedOn returns the size on which a set has acted. The status of the set contains only the observed generation, so an
// annotation keeps the previous size on which the set acted. A set without the annotation, which another controller
// made, counts as having acted on its size.
func ActedOn(set *clusterv1.MachineSet) int {
	replicas := int(capi.Value(set.Spec.Replicas))
	former := deployment.NumberIn(set.Annotations[v1alpha1.AnnotationFormerReplicas])
	if former < 0 || set.Status.ObservedGeneration >= set.Generation {
		return replicas
	}
	return former
}

// rolloutMember returns the facts about a machine. The machine's availability and deletion order come from
// decide/scale, so that a deployment and its sets agree. A machine counts as failed if its health check failed, because
// a Machine of Cluster API has no phase for this failure.
func rolloutMember(seen scale.Member, set *clusterv1.MachineSet, minReady time.Duration, now time.Time) rollout.Member {
	return rollout.Member{
		Name: seen.Name, UID: seen.UID, Version: seen.Version, Created: seen.Created,
		Deleting:  seen.Deleting,
		Ready:     seen.Ready == scale.True,
		Available: !seen.Deleting && !seen.Updating && seen.Available(now, minReady),
		Unhealthy: seen.Unhealthy(),
		Failed:    seen.Healthy == scale.False,
		Priority:  seen.Priority,
		First:     seen.DeleteFirst,
		Updating:  seen.Updating,

		ClusterAPI: rollout.ClusterAPIMember{
			Moved:          seen.Updated,
			Unacknowledged: seen.Updated && !capiset.Acknowledges(set, seen.Name),
		},
	}
}

// pausedBy returns who has paused the deployment, in the wording of Cluster API. Millwright does not change a paused
// deployment.
func (f Tree) pausedBy() (who []string) {
	if f.Cluster != nil && capi.Value(f.Cluster.Spec.Paused) {
		who = append(who, capi.ClusterPaused)
	}
	if _, paused := f.Deployment.Annotations[clusterv1.PausedAnnotation]; paused {
		who = append(who, phrase.PausedBy("MachineDeployment"))
	}
	return who
}

// noCreateReason returns why no set is created for the template; zero if a set may be created.
func (f Tree) noCreateReason() rollout.Problem {
	name := f.Deployment.Spec.ClusterName
	stopped := func(why string) rollout.Problem {
		return rollout.Problem{Reason: vocabulary.ReasonScaleUpStopped, Message: why + ": no set is created for the template"}
	}
	switch lack := Lacking(f.Deployment.Namespace, f.Templates); {
	case f.Cluster == nil:
		return stopped("Cluster " + name + " does not exist")
	case f.Cluster.DeletionTimestamp != nil:
		return stopped("Cluster " + name + " is being deleted")
	case lack != "":
		return rollout.Problem{
			Reason:  vocabulary.ReasonTemplateNotFound,
			Message: lack + " does not exist: no set is created for the template",
		}
	case slices.ContainsFunc(f.Templates, func(t capi.ProviderObject) bool { return !t.Read }):
		return stopped("the templates were not read yet")
	default:
		return rollout.Problem{}
	}
}

// contestedMessage tells a user why Millwright does not touch a deployment with both finalizers. Source of the remedy:
// docs/clusterapi.md.
const contestedMessage = "another controller reconciles this MachineDeployment: it has added the finalizer " + clusterv1.MachineDeploymentFinalizer +
	"; install the admission policy of Millwright, then remove this finalizer"

// invalidReason returns why a deployment cannot be rolled out; empty for a valid deployment. Admission rejects most
// invalid deployments.
func invalidReason(d *clusterv1.MachineDeployment) string {
	selector, err := metav1.LabelSelectorAsSelector(&d.Spec.Selector)
	kind := d.Spec.Rollout.Strategy.Type
	switch {
	case capi.Contested(d, clusterv1.MachineDeploymentFinalizer):
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

// strategyOf reads how new machines replace old machines. Source of the defaults: Cluster API.
func strategyOf(
	s *clusterv1.MachineDeploymentRolloutStrategy,
) (kind rollout.Strategy, surge, unavailable rollout.Bound) {
	if s.Type == clusterv1.OnDeleteMachineDeploymentStrategyType {
		return rollout.OnDelete, surge, unavailable
	}
	number := func(v *intstr.IntOrString, byDefault int) rollout.Bound {
		if v == nil {
			return rollout.Bound{Value: byDefault}
		}
		return deployment.Number(*v)
	}
	return rollout.RollingUpdate, number(s.RollingUpdate.MaxSurge, 1), number(s.RollingUpdate.MaxUnavailable, 0)
}

// intAnnotation returns the number in an annotation; the default if the annotation is missing or does not parse.
func intAnnotation(d *clusterv1.MachineDeployment, key string, byDefault int) int {
	if n := deployment.NumberIn(d.Annotations[key]); n >= 0 {
		return n
	}
	return byDefault
}

// rollbackTo returns the revision that a person requests; nil without a request. A text that is not a number gives -1,
// a revision that does not exist.
func rollbackTo(d *clusterv1.MachineDeployment) *int64 {
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
