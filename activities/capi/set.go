// Package capi has the activities on one MachineSet of Cluster API, its machines and their clones of templates.
package capi

import (
	"context"
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/decide/attention"
	"millwright/decide/scale"
	"millwright/observe/capi"
	capidrain "millwright/observe/capi/drain"
	capiset "millwright/observe/capi/set"
	observeset "millwright/observe/set"
)

// SetsResource is the resource of the versions that writes of sets return.
const SetsResource = capi.SetsResource

// Activities are the activities of this package. Workflows call its methods by name.
type Activities struct {
	Kube *kube.Kube
	API  *capi.Cache
	// the clusters whose nodes are drained
	Workloads *capidrain.Workloads
}

// handedOver is the pending work of a set that has lost the label of Millwright.
func handedOver() attention.Decision {
	return attention.Decision{Need: attention.Scale, Why: capi.HandedOver}
}

// DecideClusterAPISet reads a set and what is around it, and returns what to do next. A set that has lost the label of
// Millwright loses its finalizer, too, and then counts as gone.
func (a *Activities) DecideClusterAPISet(ctx context.Context, in set.Input) (set.Decision, error) {
	s, related, err := a.set(ctx, in.Read)
	if err != nil {
		return set.Decision{}, err
	}
	switch {
	case s == nil:
		return set.Decision{Gone: true, Pending: kube.ObjectIsGone}, nil
	case !a.API.Ours(s):
		return set.Decision{Free: true, Version: s.ResourceVersion, Pending: handedOver()}, nil
	}
	var strays []set.Object
	if in.Live { // the first decision of a run, and the one after a failure: only then clones can have been left behind
		if strays, err = a.strays(ctx, s, related); err != nil {
			return set.Decision{}, err
		}
	}
	observed := capiset.Observed(a.API, s, related, in.Time(), rand.Uint64())
	observed.LastFailure = in.Failure
	plan := capiset.Explain(s, related, observed, scale.Plan(observed))
	d := set.Planned(s, plan)
	d.Prepare = capiset.Unprepared(s, related, plan.Observed)
	d.Extra = extraWrites(s, related, plan, strays)
	d.Seen = related.Versions()
	d.Seen.Raise(capi.SetsResource, s.ResourceVersion)
	return d, nil
}

// extraWrites returns the writes that are not part of the plan. A paused set and an invalid set have none.
func extraWrites(
	s *clusterv1.MachineSet,
	related capi.Related,
	plan observeset.Planned,
	strays []set.Object,
) (all []set.ExtraWrites) {
	if !capiset.MayWriteExtra(s, plan.Observed) {
		return nil
	}
	if s.DeletionTimestamp == nil {
		add(&all, "OwnTemplates", "templates: owner reference to the Cluster, and its label", unowned(related))
		add(&all, "PostponeRemediation", "machines: why they are not replaced yet", postponed(related, plan.Planned))
	}
	add(&all, "CollectClones", "clones of templates that no machine uses", strays)
	return all
}

func add(all *[]set.ExtraWrites, activity, why string, objects []set.Object) {
	if len(objects) > 0 {
		*all = append(
			*all,
			set.ExtraWrites{Activity: activity, Why: why, Objects: objects[:min(len(objects), scale.MaxBatch)]},
		)
	}
}

// set returns a set and what is around it, as fresh as asked for; nil when the set is gone or is not Millwright's. For
// a set that was handed over, only the set is read.
func (a *Activities) set(ctx context.Context, in kube.Read) (*clusterv1.MachineSet, capi.Related, error) {
	if !a.Kube.Cluster.Acts(in.Ref.Namespace) {
		return nil, capi.Related{}, nil
	}
	live, err := a.Kube.Fresh(ctx, in)
	if err != nil {
		return nil, capi.Related{}, err
	}
	if !live {
		s, found := a.API.Set(in.Ref.Key())
		switch {
		case !found || string(s.UID) != in.Ref.UID:
			return nil, capi.Related{}, nil
		case !a.API.Ours(s):
			return s, capi.Related{}, nil
		}
		related, err := a.API.ReadToAct(ctx, s)
		return s, related, err
	}
	s, err := kube.Live(ctx, a.API.Client().Sets(in.Ref.Namespace), "machineset", in.Ref)
	switch {
	case err != nil || s == nil || !a.API.Ours(s) && !capi.Lost(s):
		return nil, capi.Related{}, err
	case !a.API.Ours(s):
		return s, capi.Related{}, nil
	}
	related, err := a.API.ReadLive(ctx, s)
	return s, related, err
}

// setAt reads the set of a batch. If Millwright does not reconcile it any more, or it does not have the version that
// the decision saw (empty: any), that is a Conflict.
func (a *Activities) setAt(ctx context.Context, ref kube.Ref, version string) (*clusterv1.MachineSet, error) {
	s, err := kube.LiveAt(ctx, a.API.Client().Sets(ref.Namespace), "machineset", ref, version)
	if err == nil && !a.API.Ours(s) {
		return nil, kube.Conflict(ref)
	}
	return s, err
}

// FinalizeClusterAPISet prepares a set for its first machine, or removes the finalizer from a set that is being deleted
// and has no machine left, or that was handed over. It returns the version to wait for.
func (a *Activities) FinalizeClusterAPISet(ctx context.Context, in kube.Read) (string, error) {
	s, related, err := a.set(ctx, in)
	if err != nil {
		return "", err
	}
	switch {
	case s == nil:
		return "", kube.ObjectGone(in.Ref)
	case !a.API.Ours(s):
		if err := a.unhook(ctx, s); err != nil {
			return "", err
		}
		return a.release(ctx, s)
	}
	next := capiset.Prepared(s, related.Cluster)
	if s.DeletionTimestamp != nil {
		if len(related.Members) > 0 {
			return s.ResourceVersion, nil
		}
		return a.free(ctx, s)
	}
	if next == nil {
		return s.ResourceVersion, nil
	}
	return a.update(ctx, next)
}

// release removes from a set that was handed over the conditions that only Millwright writes, and then Millwright's
// finalizer. It returns the version to wait for.
func (a *Activities) release(ctx context.Context, s *clusterv1.MachineSet) (string, error) {
	if theirs := capi.TheirConditions(s.Status.Conditions); len(theirs) < len(s.Status.Conditions) {
		next := s.DeepCopy()
		next.Status.Conditions, next.ManagedFields = theirs, nil
		written, err := a.API.Client().Sets(s.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
		if err != nil {
			return "", kube.WriteError(ctx, kube.Ref{Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)}, err)
		}
		s = written
	}
	return a.free(ctx, s)
}

// free removes Millwright's finalizer from a set. It returns the version to wait for.
func (a *Activities) free(ctx context.Context, s *clusterv1.MachineSet) (string, error) {
	if !slices.Contains(s.Finalizers, capi.Finalizer) {
		return s.ResourceVersion, nil
	}
	next := s.DeepCopy()
	next.Finalizers = kube.Without(s.Finalizers, capi.Finalizer)
	return a.update(ctx, next)
}

// update writes a set that was read from the caches or live. It returns the version to wait for.
func (a *Activities) update(ctx context.Context, s *clusterv1.MachineSet) (string, error) {
	s.ManagedFields = nil // the caches have only Millwright's, and the API server would take these for all
	written, err := a.API.Client().Sets(s.Namespace).Update(ctx, s, metav1.UpdateOptions{})
	if err != nil {
		return "", kube.WriteError(ctx, kube.Ref{Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)}, err)
	}
	return written.ResourceVersion, nil
}

// ReportClusterAPISet writes the status of a set. It returns the version to wait for.
func (a *Activities) ReportClusterAPISet(ctx context.Context, in set.Report) (string, error) {
	_, after, err := kube.WriteStatus(
		ctx,
		in.Read,
		a.API.Client().Sets(in.Ref.Namespace),
		func(read kube.Read) (before, after *clusterv1.MachineSet, err error) {
			before, related, err := a.set(ctx, read)
			if err != nil || before == nil || !a.API.Ours(before) {
				return nil, nil, err
			}
			observed := capiset.Observed(a.API, before, related, read.Time(), 0)
			observed.LastFailure = in.Failure
			plan := capiset.Explain(before, related, observed, scale.Plan(observed))
			after = before.DeepCopy()
			now := metav1.NewTime(observed.Now).Rfc3339Copy()
			capiset.ApplyStatus(after, related, plan.Status, plan.Blocked, now)
			if capi.SameObject(before, after) {
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
