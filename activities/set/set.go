// Package set has the activities on one MachineSet and its machines.
package set

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/explain"
	"millwright/decide/scale"
	"millwright/observe/cache"
	observeset "millwright/observe/set"
)

// Activities are the activities of this package. Workflows call its methods by name.
type Activities struct{ Kube *kube.Kube }

// Decision is what a MachineSet needs next.
type Decision struct {
	Gone    bool               // the object does not exist any more: only the reason in Pending is set besides
	Pending attention.Decision // the pending work; calm when there is none
	Version string             // resourceVersion of the set that was read
	Scale   scale.Decision
	Prepare bool             // our finalizer is missing
	Free    bool             // no machine is left of a set that is being deleted: our finalizer may be removed
	Report  bool             // the status does not show what was read
	Blocked explain.Summary  `json:",omitzero"` // what blocks the set and its machines
	Seen    kube.MinVersions // versions that were read; a later decision must not read older ones
	// Extra are the writes that are not part of Scale; only a MachineSet of Cluster API has any. They are done in this
	// order, once no list of Scale has entries.
	Extra []ExtraWrites `json:",omitempty"`
}

// Input says how fresh the facts of a set's decision must be, and what the last batch of the run failed with.
type Input struct {
	kube.Read
	Failure scale.Failure // of the last batch; zero when it succeeded
}

// DecideSet reads a set and what is around it, and returns what to do next.
func (a *Activities) DecideSet(ctx context.Context, in Input) (Decision, error) {
	set, related, err := a.set(ctx, in.Read)
	if err != nil {
		return Decision{}, err
	}
	if set == nil {
		return Decision{Gone: true, Pending: kube.ObjectIsGone}, nil
	}
	observed := observeset.Observed(set, related, in.Time(), rand.Uint64())
	observed.LastFailure = in.Failure
	plan := observeset.Explain(set, related, observed, scale.Plan(observed))
	d := Planned(set, plan)
	d.Prepare = !plan.Observed.Deleting && !plan.Observed.Finalizer
	d.Report = d.Report || plan.Pending.Calm() && !d.Blocked.Blocked() && set.Status.CurrentOperation != nil
	d.Seen.Raise(cache.Sets, set.ResourceVersion)
	d.Seen.Raise(cache.Classes, related.Class)
	for _, m := range slices.Concat(related.Members, related.Orphans) {
		d.Seen.Raise(cache.Machines, m.ResourceVersion)
		if node := related.NodeAsked(m); node != nil {
			d.Seen.Raise(cache.Nodes, node.ResourceVersion)
		}
	}
	return d, nil
}

// Planned returns the part of a decision that is the same for sets of all kinds.
func Planned(set metav1.Object, plan observeset.Planned) Decision {
	return Decision{
		Pending: plan.Pending,
		Version: set.GetResourceVersion(),
		Scale:   plan.Decision,
		Free:    plan.Observed.Deleting && plan.Observed.Finalizer && plan.Decision.Done,
		Report:  plan.Unreported || !plan.Said,
		Blocked: plan.Blocked,
		Seen:    kube.MinVersions{},
	}
}

// set returns a set and what is around it, as fresh as asked for; nil when the set is gone.
func (a *Activities) set(ctx context.Context, in kube.Read) (*v1alpha1.MachineSet, observeset.Related, error) {
	if !a.Kube.Ours(in) {
		return nil, observeset.Related{}, nil
	}
	live, err := a.Kube.Fresh(ctx, in)
	if err != nil {
		return nil, observeset.Related{}, err
	}
	if !live {
		set, found := a.Kube.Cluster.Set(in.Ref.Key())
		if !found || string(set.UID) != in.Ref.UID {
			return nil, observeset.Related{}, nil
		}
		return set, observeset.ReadToAct(ctx, a.Kube.Cluster, set), nil
	}
	set, err := kube.Live(ctx, a.Kube.Sets(in.Ref.Namespace), "set", in.Ref)
	if err != nil || set == nil {
		return nil, observeset.Related{}, err
	}
	related, err := observeset.ReadLive(ctx, a.Kube.Cluster, set)
	return set, related, err
}

// Batch names the machines of a set that an activity changes.
type Batch struct {
	Set      kube.Ref
	Machines []scale.Target
}

// DeleteMachines deletes each machine of a batch that still is as the decision saw it. A machine that is gone counts as
// deleted. A machine that changed is a Conflict, reported when the others are done.
func (a *Activities) DeleteMachines(ctx context.Context, in Batch) (Written, error) {
	set, found := a.Kube.Cluster.Set(in.Set.Key())
	var unseen atomic.Bool
	versions, err := kube.InParallel(cache.Machines, len(in.Machines), func(i int) (string, error) {
		target := in.Machines[i]
		version, err := a.deleteMachine(ctx, in.Set.Namespace, target)
		if version == "" {
			unseen.Store(true)
		}
		if err == nil && found {
			a.Kube.Recorder.Event(
				set,
				corev1.EventTypeNormal,
				"SuccessfulDelete",
				fmt.Sprintf("Deleted Machine: %s: %s", target.Name, target.Why),
			)
		}
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return version, err
	})
	if refused := kube.RefusedWrite(ctx, err); refused != "" {
		if found {
			a.Kube.Recorder.Event(set, corev1.EventTypeWarning, v1alpha1.ReasonFailedDelete, "Error deleting: "+refused)
		}
		return Written{Failure: scale.Failure{Deleting: true, Message: refused}, Unseen: true}, nil
	}
	return Written{Versions: versions, Unseen: unseen.Load()}, kube.WriteError(ctx, in.Set, err)
}

// deleteMachine deletes a machine that still is as the decision saw it. It returns the version that the machine has
// then; empty when it is not known, because the machine is gone already or the client does not return it.
func (a *Activities) deleteMachine(
	ctx context.Context,
	namespace string,
	target scale.Target,
) (version string, err error) {
	guarded, err := a.guardMachine(ctx, namespace, target)
	switch {
	case err != nil:
		return "", err
	case guarded == "":
		return "", apierrors.NewNotFound(v1alpha1.SchemeGroupVersion.WithResource("machines").GroupResource(), target.Name)
	}
	api := a.Kube.Cluster.Client().MachineV1alpha1()
	options := metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: new(types.UID(target.UID)), ResourceVersion: new(guarded)},
	}
	client, _ := api.RESTClient().(*rest.RESTClient)
	if client == nil {
		return "", api.Machines(namespace).Delete(ctx, target.Name, options)
	}
	answer := client.Delete().Namespace(namespace).Resource("machines").Name(target.Name).Body(&options).Do(ctx)
	var m v1alpha1.Machine
	if err := answer.Error(); err != nil {
		return "", err
	}
	if err := answer.Into(&m); err != nil || string(m.UID) != target.UID {
		// a status, not the object: it had no finalizers
		return "", nil //nolint:nilerr // it was deleted
	}
	return m.ResourceVersion, nil
}

// guardMachine puts our finalizer back on a machine from which a person removed it: without the finalizer the object
// would be gone at once, and its instance would stay. It returns the version that the machine has then; empty when it
// is gone.
func (a *Activities) guardMachine(
	ctx context.Context,
	namespace string,
	target scale.Target,
) (version string, err error) {
	ref := kube.Ref{Namespace: namespace, Name: target.Name, UID: target.UID}
	m, found := a.Kube.Cluster.Machine(ref.Key())
	if found && m.ResourceVersion == target.Version && cache.HasFinalizer(m.Finalizers) {
		return target.Version, nil
	}
	version, _, err = a.Kube.ChangeMember(ctx, ref, target.Version, func(m *v1alpha1.Machine) bool {
		if m.DeletionTimestamp != nil || cache.HasFinalizer(m.Finalizers) {
			return false
		}
		m.Finalizers = append(m.Finalizers, v1alpha1.FinalizerMachine)
		return true
	})
	return version, err
}

// AdoptMachines makes a set the controller of machines that still are as the decision saw them and whose controller, if
// they name one, does not exist. It reads the set live first, so that a set that is being deleted adopts nothing. A set
// that was paused after the decision still adopts. Running it twice adopts once.
func (a *Activities) AdoptMachines(ctx context.Context, in Batch) (kube.MinVersions, error) {
	set, err := kube.LiveAt(ctx, a.Kube.Sets(in.Set.Namespace), "set", in.Set, "")
	if err != nil {
		return nil, err
	}
	if set.DeletionTimestamp != nil {
		return nil, kube.Conflict(in.Set)
	}
	return a.changeMembers(ctx, in, func(m *v1alpha1.Machine) bool {
		if !cache.IsFree(m, set, cache.KindSet) || m.DeletionTimestamp != nil {
			return false
		}
		kube.SetController(m, set, cache.KindSet)
		delete(m.Annotations, v1alpha1.AnnotationReleasedBy)
		return true
	}, vocabulary.ReasonSuccessfulAdopt, "Adopted Machine: ")
}

// ReleaseMachines removes a set's controller reference from machines that still are as the decision saw them, and
// records that in an annotation. The annotation lets a set notice that it loses every machine that it creates. Running
// it twice releases once.
func (a *Activities) ReleaseMachines(ctx context.Context, in Batch) (kube.MinVersions, error) {
	return a.changeMembers(ctx, in, func(m *v1alpha1.Machine) bool {
		ours := func(ref metav1.OwnerReference) bool { return string(ref.UID) == in.Set.UID }
		if !slices.ContainsFunc(m.OwnerReferences, ours) {
			return false
		}
		kube.Disown(m, types.UID(in.Set.UID))
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReleasedBy, in.Set.UID)
		return true
	}, "SuccessfulRelease", "Released Machine: ")
}

// RequestPreservation marks failed machines of a set for preservation if they still are as the decision saw them. Their
// own workflows do the rest. A machine that changed is a Conflict. It returns the versions to wait for.
func (a *Activities) RequestPreservation(ctx context.Context, in Batch) (kube.MinVersions, error) {
	return a.changeMembers(ctx, in, func(m *v1alpha1.Machine) bool {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveAuto)
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationAutoPreserved, time.Now().UTC().Format(time.RFC3339))
		return true
	}, "", "")
}

// UnmarkMachines removes the annotation that asks a set to replace a machine, because the machine is healthy again.
func (a *Activities) UnmarkMachines(ctx context.Context, in Batch) (kube.MinVersions, error) {
	return a.changeMembers(ctx, in, func(m *v1alpha1.Machine) bool {
		_, marked := m.Annotations[v1alpha1.AnnotationRemediateMachine]
		delete(m.Annotations, v1alpha1.AnnotationRemediateMachine)
		return marked
	}, "", "")
}

// SyncMachines copies the fields that change in place from their set's template to machines that still are as the
// decision saw them.
func (a *Activities) SyncMachines(ctx context.Context, in Batch) (kube.MinVersions, error) {
	set, err := kube.LiveAt(ctx, a.Kube.Sets(in.Set.Namespace), "set", in.Set, "")
	if err != nil {
		return nil, err
	}
	return a.changeMembers(
		ctx,
		in,
		func(m *v1alpha1.Machine) bool { return len(observeset.FollowTemplate(m, set)) > 0 },
		"",
		"",
	)
}

// changeMembers writes each machine of a batch as change leaves it; nothing if change returns false. A machine that is
// gone is skipped, and one that changed is a Conflict. It returns the versions to wait for. Each write is recorded by
// an event with this reason; an empty reason records none.
func (a *Activities) changeMembers(
	ctx context.Context,
	in Batch,
	change func(*v1alpha1.Machine) bool,
	reason, words string,
) (kube.MinVersions, error) {
	set, found := a.Kube.Cluster.Set(in.Set.Key())
	return kube.InParallel(cache.Machines, len(in.Machines), func(i int) (string, error) {
		target := in.Machines[i]
		ref := kube.Ref{Namespace: in.Set.Namespace, Name: target.Name, UID: target.UID}
		version, changed, err := a.Kube.ChangeMember(ctx, ref, target.Version, change)
		if changed && found && reason != "" {
			a.Kube.Recorder.Event(set, corev1.EventTypeNormal, reason, words+target.Name+": "+target.Why)
		}
		return version, err
	})
}

// Report is what the status of a MachineSet should say besides the counts.
type Report struct {
	Input
	Step        *kube.Step         // nil clears it: the set is calm
	Generations *scale.Generations // to record; nil keeps the recorded ones
}

// ReportSet counts a set's machines and writes its status, unless it says so already. If a freeze of the set is over,
// it removes the label freeze and the annotation unfreeze. It returns the version to wait for, or ObjectGone.
func (a *Activities) ReportSet(ctx context.Context, in Report) (string, error) {
	thaw, stamp := false, in.Stamp(ctx)
	look := func(read kube.Read) (set, changed *v1alpha1.MachineSet, err error) {
		set, related, err := a.set(ctx, read)
		if err != nil || set == nil {
			return nil, nil, err
		}
		changed = set.DeepCopy()
		thaw = applyReport(changed, related, in, stamp)
		if equality.Semantic.DeepEqual(changed.Status, set.Status) {
			return set, set, nil
		}
		changed.Status.ObservedMachines = related.Read // not compared: by itself it is not worth a write
		return set, changed, nil
	}
	before, after, err := kube.WriteStatus(ctx, in.Read, a.Kube.Sets(in.Ref.Namespace), look)
	if err != nil {
		return "", err
	}
	a.recordEvents(before, after)
	if thaw {
		return kube.Thaw(ctx, a.Kube.Sets(in.Ref.Namespace), in.Ref, after)
	}
	return after.ResourceVersion, nil
}

// recordEvents records the changes of a report that people should know.
func (a *Activities) recordEvents(before, after *v1alpha1.MachineSet) {
	frozen := func(s *v1alpha1.MachineSet) bool {
		return slices.ContainsFunc(s.Status.Conditions, func(c v1alpha1.MachineSetCondition) bool {
			return c.Type == v1alpha1.MachineSetFrozen && c.Status == v1alpha1.ConditionTrue
		})
	}
	switch was, is := frozen(before), frozen(after); {
	case is && !was:
		a.Kube.Recorder.Event(
			after,
			corev1.EventTypeNormal,
			"FrozeMachineSet",
			"Froze MachineSet "+after.Name+": no machine is created",
		)
	case was && !is:
		a.Kube.Recorder.Event(after, corev1.EventTypeNormal, "UnfrozeMachineSet", "Unfroze MachineSet "+after.Name)
	}
	if after.Status.Overshoot > before.Status.Overshoot {
		a.Kube.Recorder.Eventf(after, corev1.EventTypeWarning, v1alpha1.ReasonOverShootingReplicaCount,
			"%d more machines than were ever wanted; the surplus is deleted", after.Status.Overshoot)
	}
}

// applyReport changes the status of a set as a report says, and reports whether a freeze of the set is over.
func applyReport(set *v1alpha1.MachineSet, related observeset.Related, in Report, stamp time.Time) (thaw bool) {
	s := &set.Status
	if g := in.Generations; g != nil {
		s.FailedGenerations = nil
		if g.Failed > 0 {
			s.FailedGenerations = &v1alpha1.FailedGenerations{
				Count:        int32(g.Failed),
				LastFailedAt: metav1.NewTime(g.Last).Rfc3339Copy(),
			}
		}
	}
	observed := observeset.Observed(set, related, stamp, 0)
	observed.LastFailure = in.Failure
	plan := observeset.Explain(set, related, observed, scale.Plan(observed))
	observeset.ApplyStatus(s, plan.Status, metav1.NewTime(stamp).Rfc3339Copy())
	s.ObservedGeneration = set.Generation
	s.FailedMachines = kube.Summary(related.Members, plan.Status.Failed)
	s.Selector = kube.SelectorText(set.Spec.Selector)
	observeset.ApplyBlocked(s, plan.Blocked)
	s.CurrentOperation = kube.Operation(in.Step)
	if plan.Calm { // often this report was the last work
		s.CurrentOperation = nil
	}
	s.CurrentOperation = kube.Explained(s.CurrentOperation, plan.Blocked)
	return plan.Thaw
}

// FinalizeSet adds our finalizer to a set, or removes it from a set that is being deleted and has no machine left. It
// returns the version to wait for.
func (a *Activities) FinalizeSet(ctx context.Context, in kube.Read) (string, error) {
	set, related, err := a.set(ctx, in)
	if err != nil {
		return "", err
	}
	return kube.Finalize(ctx, a.Kube.Sets(in.Ref.Namespace), in.Ref, set, len(related.Members) == 0)
}
