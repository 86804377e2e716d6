// Package capi has the activities on one MachineSet of Cluster API, its machines, and the machines' clones of
// templates.
package capi

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/scale"
	"millwright/observe/capi"
	capidrain "millwright/observe/capi/drain"
	capiset "millwright/observe/capi/set"
	observeset "millwright/observe/set"
)

// SetsResource is the key of MachineSets in the resource versions that activities return.
const SetsResource = capi.SetsResource

// Activities are the activities of this package. Workflows call the methods of Activities by name.
type Activities struct {
	Kube  *kube.Kube
	Cache *capi.Cache
	// WorkloadClusters are the workload clusters whose nodes are drained.
	WorkloadClusters *capidrain.WorkloadClusters
}

// handedOverDecision returns the pending work of a set that has lost Millwright's label.
func handedOverDecision() attention.Decision {
	return attention.Decision{Need: attention.NeedScaling, Why: capi.HandedOverMessage}
}

// handOverDecision returns the decision for a set that Cluster API's controller may still change. A set that is being
// deleted cannot be taken over, because the API server accepts no new finalizer: Cluster API's controller gets the set
// back, and deletes it.
func handOverDecision(s *clusterv1.MachineSet, now time.Time) set.Decision {
	blocked := capiset.HandOverSummary(s, now)
	return set.Decision{
		Pending: attention.Decision{Need: attention.NeedScaling, Why: capi.UpstreamMessage},
		Version: s.ResourceVersion,
		Free:    s.DeletionTimestamp != nil,
		Report:  !capi.ShowsBlocked(s, blocked),
		Blocked: blocked,
		Seen:    kube.MinVersions{capi.SetsResource: s.ResourceVersion},
	}
}

// DecideClusterAPISet reads a set and its related objects, and returns the next step. If a set has lost Millwright's
// label, the workflow removes Millwright's finalizer from the set; then the set counts as gone.
func (a *Activities) DecideClusterAPISet(ctx context.Context, in set.Input) (d set.Decision, err error) {
	began := time.Now()
	defer func() { a.Kube.Metrics.CountReconcile("machineset", time.Since(began), err) }()
	s, related, err := a.readSet(ctx, in.ReadInput)
	if err != nil {
		return set.Decision{}, err
	}
	switch {
	case s == nil:
		return set.Decision{Gone: true, Pending: kube.ObjectGoneDecision}, nil
	case !a.Cache.IsReconciledByMillwright(s):
		return set.Decision{Free: true, Version: s.ResourceVersion, Pending: handedOverDecision()}, nil
	case capiset.MayBeChangedByUpstream(s):
		return handOverDecision(s, in.DecisionTime()), nil
	}
	var strays []set.ExtraObject
	if in.Live { // only the first decision of a run and a decision after a failure can find unused clones
		if strays, err = a.findUnusedClones(ctx, s, related); err != nil {
			return set.Decision{}, err
		}
	}
	observed := capiset.ScaleFacts(a.Cache, s, related, in.DecisionTime(), rand.Uint64())
	observed.LastWriteFailure = in.Failure
	plan := capiset.ExplainPlan(s, related, observed, scale.PlanSet(observed))
	d = set.NewCommonDecision(s, plan)
	if d.Scale.Generations != nil {
		// The record changes the version of the set, and a deletion compares this version: the next decision deletes.
		d.Scale = d.Scale.RecordOnly()
	}
	d.Prepare = capiset.NeedsPreparation(s, related)
	d.Extra = extraWrites(s, related, plan, strays)
	d.Seen = related.ResourceVersions()
	d.Seen.RaiseVersion(capi.SetsResource, s.ResourceVersion)
	return d, nil
}

// extraWrites returns the writes that are not part of the plan. A paused set and an invalid set have no extra writes.
func extraWrites(
	s *clusterv1.MachineSet,
	related capi.RelatedObjects,
	plan observeset.ExplainedPlan,
	strays []set.ExtraObject,
) (all []set.ExtraWrites) {
	if !capiset.MayWriteRelatedObjects(s, plan.Facts) {
		return nil
	}
	if s.DeletionTimestamp == nil {
		appendExtraWrites(
			&all,
			"OwnTemplates",
			"templates: owner reference to the Cluster, and its label",
			templatesWithoutClusterMetadata(related),
		)
		appendExtraWrites(
			&all,
			"PostponeRemediation",
			"machines: why they are not replaced yet",
			machinesWithoutPostponementReason(related, plan.PlanResult),
		)
	}
	appendExtraWrites(&all, "CollectClones", "clones of templates that no machine uses", strays)
	return all
}

func appendExtraWrites(all *[]set.ExtraWrites, activity, why string, objects []set.ExtraObject) {
	if len(objects) > 0 {
		*all = append(
			*all,
			set.ExtraWrites{Activity: activity, Why: why, Objects: objects[:min(len(objects), scale.MaxBatchSize)]},
		)
	}
}

// readSet returns a set and its related objects, from the caches, or live if the input requires a live read. The set is
// nil if it is gone or Millwright does not reconcile it. If the set was handed over, readSet reads only the set,
// without its related objects.
func (a *Activities) readSet(
	ctx context.Context,
	in kube.ReadInput,
) (*clusterv1.MachineSet, capi.RelatedObjects, error) {
	if !a.Kube.Cluster.ActsInNamespace(in.Ref.Namespace) {
		return nil, capi.RelatedObjects{}, nil
	}
	live, err := a.Kube.NeedsLiveRead(ctx, in)
	if err != nil {
		return nil, capi.RelatedObjects{}, err
	}
	if !live {
		s, found := a.Cache.MachineSet(in.Ref.Key())
		switch {
		case !found || string(s.UID) != in.Ref.UID:
			return nil, capi.RelatedObjects{}, nil
		case !a.Cache.IsReconciledByMillwright(s):
			return s, capi.RelatedObjects{}, nil
		}
		related, err := a.Cache.ReadRelatedObjectsForWrite(ctx, s)
		return s, related, err
	}
	s, err := kube.ReadLive(ctx, a.Cache.Client().MachineSets(in.Ref.Namespace), "machineset", in.Ref)
	switch {
	case err != nil || s == nil || !a.Cache.IsReconciledByMillwright(s) && !capi.IsMarkedByMillwright(s):
		return nil, capi.RelatedObjects{}, err
	case !a.Cache.IsReconciledByMillwright(s):
		return s, capi.RelatedObjects{}, nil
	}
	related, err := a.Cache.ReadLiveRelatedObjects(ctx, s)
	return s, related, err
}

// readSetAtVersion reads the set of a batch live. A set that Millwright no longer reconciles causes a Conflict. A set
// whose resource version differs from the given version also causes a Conflict, unless the given version is empty.
func (a *Activities) readSetAtVersion(
	ctx context.Context,
	ref kube.Ref,
	version string,
) (*clusterv1.MachineSet, error) {
	s, err := kube.ReadLiveAtVersion(ctx, a.Cache.Client().MachineSets(ref.Namespace), "machineset", ref, version)
	if err == nil && !a.Cache.IsReconciledByMillwright(s) {
		return nil, kube.ConflictError(ref)
	}
	return s, err
}

// FinalizeClusterAPISet prepares a set for its first machine, or removes the finalizer from the set. The finalizer is
// removed if the set was handed over, or is being deleted and has no machine. The result is the resource version of the
// set.
func (a *Activities) FinalizeClusterAPISet(ctx context.Context, in kube.ReadInput) (string, error) {
	s, related, err := a.readSet(ctx, in)
	if err != nil {
		return "", err
	}
	switch {
	case s == nil:
		return "", kube.ObjectGoneError(in.Ref)
	case !a.Cache.IsReconciledByMillwright(s):
		return a.releaseSet(ctx, s)
	case capiset.MayBeChangedByUpstream(s):
		if s.DeletionTimestamp == nil {
			return s.ResourceVersion, nil
		}
		next := s.DeepCopy()
		capi.SetWatchFilter(next, a.Cache.UpstreamWatchFilter)
		return a.patchSet(ctx, s, next)
	}
	next := capiset.PreparedSet(s, related.Cluster)
	if s.DeletionTimestamp != nil {
		if len(related.Members) > 0 {
			return s.ResourceVersion, nil
		}
		return a.removeFinalizer(ctx, s, s.DeepCopy())
	}
	if next == nil {
		return s.ResourceVersion, nil
	}
	return a.patchSet(ctx, s, next)
}

// removeFinalizer removes Millwright's finalizer from a set, and writes the other changes of next. The result is the
// resource version of the set.
func (a *Activities) removeFinalizer(ctx context.Context, s, next *clusterv1.MachineSet) (string, error) {
	if !slices.Contains(s.Finalizers, capi.Finalizer) {
		return s.ResourceVersion, nil
	}
	next.Finalizers = kube.WithoutItem(s.Finalizers, capi.Finalizer)
	capi.ReturnForTopology(next, clusterv1.MachineSetTopologyFinalizer, a.Cache.UpstreamWatchFilter)
	return a.patchSet(ctx, s, next)
}

// patchSet writes the difference between two states of a set. The result is the resource version of the set.
func (a *Activities) patchSet(ctx context.Context, s, next *clusterv1.MachineSet) (string, error) {
	written, err := kube.PatchChanges(ctx, a.Cache.Client().MachineSets(s.Namespace), s, next)
	if err != nil {
		return "", kube.ClassifyWriteError(ctx, kube.Ref{Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)}, err)
	}
	return written.ResourceVersion, nil
}

// recordGenerations writes the record of failed generations of a report. The report then reads the set live.
func (a *Activities) recordGenerations(ctx context.Context, in *set.Report) error {
	if in.Generations == nil {
		return nil
	}
	_, err := kube.PatchAfterRead(ctx, in.Ref, a.Cache.Client().MachineSets(in.Ref.Namespace),
		func() (*clusterv1.MachineSet, map[string]any, error) {
			s, _, err := a.readSet(ctx, in.ReadInput)
			if err != nil || s == nil {
				return nil, nil, err
			}
			in.Live = true // after a write, or after a conflict, the cache has an older set
			annotation := capiset.GenerationAnnotation(*in.Generations)
			if !a.Cache.IsReconciledByMillwright(s) || capiset.MayBeChangedByUpstream(s) ||
				s.Annotations[v1alpha1.AnnotationFailedGenerations] == annotation {
				return s, nil, nil
			}
			value := any(annotation)
			if annotation == "" {
				value = nil // a merge patch removes the annotation
			}
			return s, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
				v1alpha1.AnnotationFailedGenerations: value,
			}}}, nil
		})
	return err
}

// ReportClusterAPISet writes the status of a set. If the report has a record of failed generations, the record is written
// first, as an annotation, because Cluster API's status has no field for it. The result is the resource version of the
// set.
func (a *Activities) ReportClusterAPISet(ctx context.Context, in set.Report) (string, error) {
	if err := a.recordGenerations(ctx, &in); err != nil {
		return "", err
	}
	_, after, err := kube.PatchStatus(
		ctx,
		in.ReadInput,
		a.Cache.Client().MachineSets(in.Ref.Namespace),
		func(read kube.ReadInput) (before, after *clusterv1.MachineSet, err error) {
			before, related, err := a.readSet(ctx, read)
			if err != nil || before == nil || !a.Cache.IsReconciledByMillwright(before) {
				return nil, nil, err
			}
			if capiset.MayBeChangedByUpstream(before) {
				after = before.DeepCopy()
				now := metav1.NewTime(read.DecisionTime()).Rfc3339Copy()
				after.Status.Conditions = capi.HandOverConditions(before, capiset.HandOverSummary(before, now.Time), now)
				return before, after, nil
			}
			observed := capiset.ScaleFacts(a.Cache, before, related, read.DecisionTime(), 0)
			observed.LastWriteFailure = in.Failure
			plan := capiset.ExplainPlan(before, related, observed, scale.PlanSet(observed))
			after = before.DeepCopy()
			now := metav1.NewTime(observed.Now).Rfc3339Copy()
			capiset.ApplyStatus(after, related, plan.Status, plan.BlockedSummary, now)
			if capi.AreEqualSets(before, after) {
				after = before
			}
			return before, after, nil
		},
	)
	if err != nil {
		return "", err
	}
	return after.ResourceVersion, nil
}
