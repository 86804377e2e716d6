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

// Defaults of the annotations. Sources: revisionHistoryLimit of a Deployment; progressDeadlineSeconds of Cluster API's
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
		Invalid: cmp.Or(invalid(d), deployment.InvalidSteps(f.Policy)),
		ClusterAPI: rollout.ClusterAPIDeployment{
			Suspended: strings.Join(f.pauses(), ", "),
			NoCreate:  f.noCreate(),
			Wake:      wake(d, now),
		},
		Requests: rollout.Requests{
			Paused:     capi.Value(d.Spec.Paused),
			PausedBy:   strings.TrimSpace(d.Annotations[v1alpha1.AnnotationRolloutPausedBy]),
			RollbackTo: rollbackTo(d),
		},
		Generation: d.Generation,

		ObservedGeneration: d.Status.ObservedGeneration,
		RolledBackTo:       d.Annotations[v1alpha1.AnnotationAutomaticRollbackTo],
		Reported:           reported(&d.Status),
		Progress:           deployment.Progress(Recorded(d)),
	}
	for _, c := range o.Reported.Conditions {
		if c.Type == vocabulary.ConditionProgressing {
			o.Absent = f.Absences.Between(c.Updated, now)
		}
	}
	o.Strategy, o.Surge, o.Unavailable = strategy(&d.Spec.Rollout.Strategy)
	o.ClusterAPI.Extension = d.Annotations[v1alpha1.AnnotationInPlaceUpdates] == v1alpha1.ValueLowerTrue
	o.HistoryLimit = new(setting(d, v1alpha1.AnnotationRevisionHistoryLimit, defaultHistoryLimit))
	if deadline := time.Duration(
		setting(d, v1alpha1.AnnotationProgressDeadline, int(defaultDeadline/time.Second)),
	) * time.Second; deadline > 0 {
		o.Deadline = &deadline
	}
	deployment.ApplyPolicy(&o, f.Policy.PolicySpec())
	f.observeSets(&o, now)
	current := deployment.CurrentRevision(o.Sets)
	if kept := deployment.RecordedSteps(Recorded(d), current); kept != nil {
		o.Steps = deployment.Steps(kept)
	}
	o.Held, o.Approved = deployment.Requests(d, current)
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
		Pauses:  f.pauses(),
		Unsized: d.Spec.Replicas == nil,
	}
	current := f.Current(now)
	for _, set := range f.Sets {
		s, machines := f.set(set, members[set.UID], current, now)
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

// Current returns the set of the present template; nil if there is none. Of several it is the one with the most
// replicas, then the oldest, then the first by name. Once spec.rollout.after is over, a set must be at least as young.
// Source: Cluster API.
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

// DueAfter returns the time of spec.rollout.after if it is over; zero: it is not, or there is none.
func DueAfter(d *clusterv1.MachineDeployment, now time.Time) time.Time {
	if after := d.Spec.Rollout.After; !now.Before(after.Time) {
		return after.Time
	}
	return time.Time{}
}

// wake returns when spec.rollout.after is over; zero if it is over, or absent.
func wake(d *clusterv1.MachineDeployment, now time.Time) time.Time {
	if after := d.Spec.Rollout.After; after.After(now) {
		return after.Time
	}
	return time.Time{}
}

// set returns the facts about one of the sets and its machines.
func (f Tree) set(
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
		s.Machines = append(s.Machines, member(seen, set, minReady, now))
	}
	if active := slices.DeleteFunc(
		slices.Clone(s.Machines),
		func(m rollout.Member) bool { return m.Deleting },
	); len(active) > s.Replicas {
		for i := range s.Machines { // the set may have chosen the surplus when other machines were unhealthy
			s.Machines[i].Unhealthy = false
		}
	}
	return s, machines
}

// ActedOn returns the size that a set has acted on. The status of the set says only which generation it has seen, so an
// annotation keeps the size that it acted on before its size was changed. A set without the annotation, which another
// controller made, is taken to have acted on its size.
func ActedOn(set *clusterv1.MachineSet) int {
	replicas := int(capi.Value(set.Spec.Replicas))
	former := deployment.NumberIn(set.Annotations[v1alpha1.AnnotationFormerReplicas])
	if former < 0 || set.Status.ObservedGeneration >= set.Generation {
		return replicas
	}
	return former
}

// member returns the facts about a machine. Its availability and deletion order come from decide/scale, so that a
// deployment and its sets agree. A machine counts as failed if its health check failed: a Machine of Cluster API has no
// phase for that.
func member(seen scale.Member, set *clusterv1.MachineSet, minReady time.Duration, now time.Time) rollout.Member {
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

// pauses says who has paused the deployment, in the words of Cluster API. Nothing is done with it then.
func (f Tree) pauses() (who []string) {
	if f.Cluster != nil && capi.Value(f.Cluster.Spec.Paused) {
		who = append(who, capi.ClusterPaused)
	}
	if _, paused := f.Deployment.Annotations[clusterv1.PausedAnnotation]; paused {
		who = append(who, phrase.PausedBy("MachineDeployment"))
	}
	return who
}

// noCreate says why no set is created for the template; zero: one may be.
func (f Tree) noCreate() rollout.Problem {
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
	case slices.ContainsFunc(f.Templates, func(t capi.Foreign) bool { return !t.Read }):
		return stopped("the templates were not read yet")
	default:
		return rollout.Problem{}
	}
}

// isContested says why a deployment with both finalizers is not touched. Source of the remedy: docs/clusterapi.md.
const isContested = "another controller reconciles this MachineDeployment: it has added the finalizer " + clusterv1.MachineDeploymentFinalizer +
	"; install the admission policy of Millwright, then remove this finalizer"

// invalid returns why a deployment cannot be rolled out; empty when it can. Admission rejects most of these.
func invalid(d *clusterv1.MachineDeployment) string {
	selector, err := metav1.LabelSelectorAsSelector(&d.Spec.Selector)
	kind := d.Spec.Rollout.Strategy.Type
	switch {
	case capi.Contested(d, clusterv1.MachineDeploymentFinalizer):
		return isContested
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

// strategy reads how old machines are replaced by new ones. Source of the defaults: Cluster API.
func strategy(s *clusterv1.MachineDeploymentRolloutStrategy) (kind rollout.Strategy, surge, unavailable rollout.Bound) {
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

// setting reads an annotation with a number; a missing or unreadable one is the default.
func setting(d *clusterv1.MachineDeployment, key string, byDefault int) int {
	if n := deployment.NumberIn(d.Annotations[key]); n >= 0 {
		return n
	}
	return byDefault
}

// rollbackTo returns the revision that a person asks for; nil: none. A text that is no number is no revision that
// exists.
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

// Revision returns the revision of a deployment or set; 0 when the annotation is missing or no number.
func Revision(o metav1.Object) int64 {
	n, err := strconv.ParseInt(o.GetAnnotations()[clusterv1.RevisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}
