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

// Activities are the activities of this package. Workflows call the methods of Activities by name.
type Activities struct{ Kube *kube.Kube }

// Decision is what a MachineSet needs next.
type Decision struct {
	Gone    bool               // the object no longer exists, so only Gone and the reason in Pending are set
	Pending attention.Decision // pending work; the zero value means no work
	Version string             // resourceVersion of the set that was read
	Scale   scale.Decision
	Prepare bool             // Millwright's finalizer is missing
	Free    bool             // the set is being deleted and has no machine, so Millwright's finalizer may be removed
	Report  bool             // the status is out of date
	Blocked explain.Summary  `json:",omitzero"` // blockers of the set and its machines
	Seen    kube.MinVersions // resource versions that were read; a later decision must not read older versions
	// Extra lists the writes that are not part of Scale; only a MachineSet of Cluster API has extra writes. The
	// workflow makes these writes in this order, after all writes of Scale are done.
	Extra []ExtraWrites `json:",omitempty"`
}

// Input specifies how fresh the facts of a set's decision must be, and contains the failure of the last batch.
type Input struct {
	kube.ReadInput
	Failure scale.WriteFailure // failure of the last batch; zero: the batch succeeded
}

// DecideSet reads a set and its related objects, and returns the next step.
func (a *Activities) DecideSet(ctx context.Context, in Input) (Decision, error) {
	set, related, err := a.readSet(ctx, in.ReadInput)
	if err != nil {
		return Decision{}, err
	}
	if set == nil {
		return Decision{Gone: true, Pending: kube.ObjectGoneDecision}, nil
	}
	observed := observeset.ScaleFacts(set, related, in.DecisionTime(), rand.Uint64())
	observed.LastWriteFailure = in.Failure
	plan := observeset.ExplainPlan(set, related, observed, scale.PlanSet(observed))
	d := NewCommonDecision(set, plan)
	d.Prepare = !plan.Facts.Deleting && !plan.Facts.HasFinalizer
	d.Report = d.Report || plan.PendingWork.NeedsNothing() && !d.Blocked.IsBlocked() && set.Status.CurrentOperation != nil
	d.Seen.RaiseVersion(cache.SetsResource, set.ResourceVersion)
	d.Seen.RaiseVersion(cache.ClassesResource, related.ClassVersion)
	for _, m := range slices.Concat(related.Members, related.Orphans) {
		d.Seen.RaiseVersion(cache.MachinesResource, m.ResourceVersion)
		if node := related.PreservationNode(m); node != nil {
			d.Seen.RaiseVersion(cache.NodesResource, node.ResourceVersion)
		}
	}
	return d, nil
}

// NewCommonDecision returns the part of a decision that is the same for sets of MCM and of Cluster API.
func NewCommonDecision(set metav1.Object, plan observeset.ExplainedPlan) Decision {
	return Decision{
		Pending: plan.PendingWork,
		Version: set.GetResourceVersion(),
		Scale:   plan.Decision,
		Free:    plan.Facts.Deleting && plan.Facts.HasFinalizer && plan.Decision.Done,
		Report:  plan.NeedsStatusWrite || !plan.IsShownInStatus,
		Blocked: plan.BlockedSummary,
		Seen:    kube.MinVersions{},
	}
}

// readSet returns a set and its related objects, from the caches, or live if the input requires a live read. The set is
// nil if it is gone.
func (a *Activities) readSet(
	ctx context.Context,
	in kube.ReadInput,
) (*v1alpha1.MachineSet, observeset.RelatedObjects, error) {
	if !a.Kube.IsManaged(in) {
		return nil, observeset.RelatedObjects{}, nil
	}
	live, err := a.Kube.NeedsLiveRead(ctx, in)
	if err != nil {
		return nil, observeset.RelatedObjects{}, err
	}
	if !live {
		set, found := a.Kube.Cluster.MachineSet(in.Ref.Key())
		if !found || string(set.UID) != in.Ref.UID {
			return nil, observeset.RelatedObjects{}, nil
		}
		return set, observeset.ReadRelatedObjectsForWrite(ctx, a.Kube.Cluster, set), nil
	}
	set, err := kube.ReadLive(ctx, a.Kube.Sets(in.Ref.Namespace), "set", in.Ref)
	if err != nil || set == nil {
		return nil, observeset.RelatedObjects{}, err
	}
	related, err := observeset.ReadLiveRelatedObjects(ctx, a.Kube.Cluster, set)
	return set, related, err
}

// MachineBatch names the machines of a set that an activity changes.
type MachineBatch struct {
	Set kube.Ref
	// Version is the resource version of the set at the decision; empty: the version is not compared. Only deletions of
	// machines of Cluster API compare it.
	Version  string `json:",omitzero"`
	Machines []scale.MachineTarget
}

// DeleteMachines deletes the machines of a batch. A machine that is gone counts as deleted. If a machine changed since
// the decision, DeleteMachines deletes the other machines and then returns a Conflict.
func (a *Activities) DeleteMachines(ctx context.Context, in MachineBatch) (WriteResult, error) {
	set, found := a.Kube.Cluster.MachineSet(in.Set.Key())
	var unseen atomic.Bool
	versions, err := kube.WriteInParallel(cache.MachinesResource, len(in.Machines), func(i int) (string, error) {
		target := in.Machines[i]
		version, err := a.deleteMachine(ctx, in.Set.Namespace, target)
		if version == "" {
			unseen.Store(true)
		}
		if err == nil && found {
			a.Kube.Recorder.Event(
				set,
				corev1.EventTypeNormal,
				vocabulary.ReasonSuccessfulDelete,
				fmt.Sprintf("Deleted Machine: %s: %s", target.Name, target.Why),
			)
		}
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return version, err
	})
	if refused := kube.RefusalMessage(ctx, err); refused != "" {
		if found {
			a.Kube.Recorder.Event(set, corev1.EventTypeWarning, v1alpha1.ReasonFailedDelete, "Error deleting: "+refused)
		}
		return WriteResult{Failure: scale.WriteFailure{Deleting: true, Message: refused}, Unseen: true}, nil
	}
	return WriteResult{Versions: versions, Unseen: unseen.Load()}, kube.ClassifyWriteError(ctx, in.Set, err)
}

// deleteMachine deletes a machine, and returns the machine's resource version after the deletion. The version is empty
// if the machine is already gone, or if the client does not return the version. A machine that changed since the
// decision causes a conflict.
func (a *Activities) deleteMachine(
	ctx context.Context,
	namespace string,
	target scale.MachineTarget,
) (version string, err error) {
	guarded, err := a.restoreMachineFinalizer(ctx, namespace, target)
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
		// the machine had no finalizers, so the API server returned a Status instead of the machine
		return "", nil //nolint:nilerr // it was deleted
	}
	return m.ResourceVersion, nil
}

// restoreMachineFinalizer restores Millwright's finalizer on a machine from which a person removed it. The result is
// the machine's resource version, or "" if the machine is gone. Without the finalizer, the object would vanish at once,
// and its instance would stay.
func (a *Activities) restoreMachineFinalizer(
	ctx context.Context,
	namespace string,
	target scale.MachineTarget,
) (version string, err error) {
	ref := kube.Ref{Namespace: namespace, Name: target.Name, UID: target.UID}
	m, found := a.Kube.Cluster.Machine(ref.Key())
	if found && m.ResourceVersion == target.Version && cache.HasFinalizer(m.Finalizers) {
		return target.Version, nil
	}
	version, _, err = a.Kube.ChangeMachineAtVersion(ctx, ref, target.Version, func(m *v1alpha1.Machine) bool {
		if m.DeletionTimestamp != nil || cache.HasFinalizer(m.Finalizers) {
			return false
		}
		m.Finalizers = append(m.Finalizers, v1alpha1.FinalizerMachine)
		return true
	})
	return version, err
}

// AdoptMachines makes a set the controller of machines that have no existing controller. AdoptMachines first reads the
// set live. A set that is being deleted adopts no machine, but a set that was paused after the decision still adopts
// machines. A machine that changed since the decision causes a Conflict. The activity is idempotent.
func (a *Activities) AdoptMachines(ctx context.Context, in MachineBatch) (kube.MinVersions, error) {
	set, err := kube.ReadLiveAtVersion(ctx, a.Kube.Sets(in.Set.Namespace), "set", in.Set, "")
	if err != nil {
		return nil, err
	}
	if set.DeletionTimestamp != nil {
		return nil, kube.ConflictError(in.Set)
	}
	return a.changeMachines(ctx, in, func(m *v1alpha1.Machine) bool {
		if !cache.CanBeAdopted(m, set, cache.KindSet) || m.DeletionTimestamp != nil {
			return false
		}
		kube.SetController(m, set, cache.KindSet)
		delete(m.Annotations, v1alpha1.AnnotationReleasedBy)
		return true
	}, vocabulary.ReasonSuccessfulAdopt, "Adopted Machine: ")
}

// ReleaseMachines removes the set's controller reference from machines, and annotates each machine with the set's UID.
// With this annotation, a set can detect that it releases every machine that it creates. A machine that changed since
// the decision causes a Conflict. The activity is idempotent.
func (a *Activities) ReleaseMachines(ctx context.Context, in MachineBatch) (kube.MinVersions, error) {
	return a.changeMachines(ctx, in, func(m *v1alpha1.Machine) bool {
		ours := func(ref metav1.OwnerReference) bool { return string(ref.UID) == in.Set.UID }
		if !slices.ContainsFunc(m.OwnerReferences, ours) {
			return false
		}
		kube.RemoveOwner(m, types.UID(in.Set.UID))
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReleasedBy, in.Set.UID)
		return true
	}, vocabulary.ReasonSuccessfulRelease, "Released Machine: ")
}

// RequestPreservation annotates failed machines of a set for preservation. The workflow of each machine then preserves
// the machine. A machine that changed since the decision causes a Conflict. The result holds the resource versions of
// the machines.
func (a *Activities) RequestPreservation(ctx context.Context, in MachineBatch) (kube.MinVersions, error) {
	return a.changeMachines(ctx, in, func(m *v1alpha1.Machine) bool {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveAuto)
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationAutoPreserved, time.Now().UTC().Format(time.RFC3339))
		return true
	}, "", "")
}

// UnmarkMachines removes the annotation that requests a machine's replacement, because the machine is healthy again.
func (a *Activities) UnmarkMachines(ctx context.Context, in MachineBatch) (kube.MinVersions, error) {
	return a.changeMachines(ctx, in, func(m *v1alpha1.Machine) bool {
		_, marked := m.Annotations[v1alpha1.AnnotationRemediateMachine]
		delete(m.Annotations, v1alpha1.AnnotationRemediateMachine)
		return marked
	}, "", "")
}

// SyncMachines copies the fields that change in place from the set's template to machines. A machine that changed since
// the decision causes a Conflict.
func (a *Activities) SyncMachines(ctx context.Context, in MachineBatch) (kube.MinVersions, error) {
	set, err := kube.ReadLiveAtVersion(ctx, a.Kube.Sets(in.Set.Namespace), "set", in.Set, "")
	if err != nil {
		return nil, err
	}
	return a.changeMachines(
		ctx,
		in,
		func(m *v1alpha1.Machine) bool { return len(observeset.CopyTemplateFields(m, set)) > 0 },
		"",
		"",
	)
}

// changeMachines calls change for each machine of a batch, and writes the machine if change returns true. A machine
// that is gone is skipped; a machine that changed since the decision causes a Conflict. changeMachines returns the new
// resource versions. An event with the reason records each write; with an empty reason, no event is recorded.
func (a *Activities) changeMachines(
	ctx context.Context,
	in MachineBatch,
	change func(*v1alpha1.Machine) bool,
	reason, words string,
) (kube.MinVersions, error) {
	set, found := a.Kube.Cluster.MachineSet(in.Set.Key())
	return kube.WriteInParallel(cache.MachinesResource, len(in.Machines), func(i int) (string, error) {
		target := in.Machines[i]
		ref := kube.Ref{Namespace: in.Set.Namespace, Name: target.Name, UID: target.UID}
		version, changed, err := a.Kube.ChangeMachineAtVersion(ctx, ref, target.Version, change)
		if changed && found && reason != "" {
			a.Kube.Recorder.Event(set, corev1.EventTypeNormal, reason, words+target.Name+": "+target.Why)
		}
		return version, err
	})
}

// Report contains the fields of a MachineSet's status that are not counts.
type Report struct {
	Input
	Step        *kube.Step              // nil clears the current operation: the set is idle
	Generations *scale.GenerationRecord // generations to record; nil keeps the recorded generations
}

// ReportSet counts a set's machines, and writes the set's status if the status has changed. If a freeze of the set has
// ended, ReportSet removes the label "freeze" and the annotation "unfreeze". The result is the resource version of the
// set. If the set is gone, ReportSet fails with ObjectGone.
func (a *Activities) ReportSet(ctx context.Context, in Report) (string, error) {
	thaw, stamp := false, in.TimeToRecord(ctx)
	look := func(read kube.ReadInput) (set, changed *v1alpha1.MachineSet, err error) {
		set, related, err := a.readSet(ctx, read)
		if err != nil || set == nil {
			return nil, nil, err
		}
		changed = set.DeepCopy()
		thaw = applyReport(changed, related, in, stamp)
		if equality.Semantic.DeepEqual(changed.Status, set.Status) {
			return set, set, nil
		}
		// the field is set after the comparison, because a change of this field alone causes no write
		changed.Status.ObservedMachines = related.MachinesVersion
		return set, changed, nil
	}
	before, after, err := kube.WriteStatus(ctx, in.ReadInput, a.Kube.Sets(in.Ref.Namespace), look)
	if err != nil {
		return "", err
	}
	a.recordEvents(before, after)
	if thaw {
		return kube.UnfreezeObject(ctx, a.Kube.Sets(in.Ref.Namespace), in.Ref, after)
	}
	return after.ResourceVersion, nil
}

// recordEvents records the changes of a report as events: the start and end of a freeze, and a larger overshoot.
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

// applyReport changes the status of a set according to the report. thaw is true if the freeze of the set must end.
func applyReport(set *v1alpha1.MachineSet, related observeset.RelatedObjects, in Report, stamp time.Time) (thaw bool) {
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
	observed := observeset.ScaleFacts(set, related, stamp, 0)
	observed.LastWriteFailure = in.Failure
	plan := observeset.ExplainPlan(set, related, observed, scale.PlanSet(observed))
	observeset.ApplyStatus(s, plan.Status, metav1.NewTime(stamp).Rfc3339Copy())
	s.ObservedGeneration = set.Generation
	s.FailedMachines = kube.SummarizeMachines(related.Members, plan.Status.FailedNames)
	s.Selector = kube.SelectorText(set.Spec.Selector)
	observeset.ApplyBlockedCondition(s, plan.BlockedSummary)
	s.CurrentOperation = kube.OperationOfStep(in.Step)
	if plan.SettledAfterStatusWrite { // this report may have been the last pending work
		s.CurrentOperation = nil
	}
	s.CurrentOperation = kube.AddBlockersToOperation(s.CurrentOperation, plan.BlockedSummary)
	return plan.FreezeEnded
}

// FinalizeSet adds Millwright's finalizer to a set, or removes the finalizer from a set that is being deleted and has
// no machine. The result is the resource version of the set.
func (a *Activities) FinalizeSet(ctx context.Context, in kube.ReadInput) (string, error) {
	set, related, err := a.readSet(ctx, in)
	if err != nil {
		return "", err
	}
	return kube.AddOrRemoveFinalizer(ctx, a.Kube.Sets(in.Ref.Namespace), in.Ref, set, len(related.Members) == 0)
}
