package activities

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/observe"
)

// AdoptMachines makes a set the controller of machines that nothing controls, each if it still is as the decision saw
// it. The set is read live first, so that a set that is being deleted adopts nothing. A set that was paused after the
// decision still adopts. Running it twice adopts once.
func (a *Activities) AdoptMachines(ctx context.Context, in Batch) (Gate, error) {
	set, err := a.liveSet(ctx, in.Set)
	switch {
	case err != nil:
		return nil, err
	case set == nil:
		return nil, objectGone(in.Set)
	case set.DeletionTimestamp != nil:
		return nil, conflict(in.Set)
	}
	return a.changeMembers(ctx, in, func(m *v1alpha1.Machine) bool {
		if metav1.GetControllerOf(m) != nil || m.DeletionTimestamp != nil {
			return false
		}
		ref := *metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))
		m.OwnerReferences = append(m.OwnerReferences, ref)
		delete(m.Annotations, v1alpha1.AnnotationReleasedBy)
		return true
	}, "SuccessfulAdopt", "Adopted Machine: ")
}

// ReleaseMachines takes a set's controller reference off machines, each if it still is as the decision saw it, and leaves a
// note of it: a set from which all that it makes is taken has to notice. Running it twice releases once.
func (a *Activities) ReleaseMachines(ctx context.Context, in Batch) (Gate, error) {
	return a.changeMembers(ctx, in, func(m *v1alpha1.Machine) bool {
		ours := func(ref metav1.OwnerReference) bool { return string(ref.UID) == in.Set.UID }
		if !slices.ContainsFunc(m.OwnerReferences, ours) {
			return false
		}
		m.OwnerReferences = slices.DeleteFunc(m.OwnerReferences, ours)
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReleasedBy, in.Set.UID)
		return true
	}, "SuccessfulRelease", "Released Machine: ")
}

// KeepMachines marks failed machines of a set for preservation, each if it still is as the decision saw it; their own
// workflows do the rest. One that changed is a Conflict. It returns the versions to wait for.
func (a *Activities) KeepMachines(ctx context.Context, in Batch) (Gate, error) {
	return a.changeMembers(ctx, in, func(m *v1alpha1.Machine) bool {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveAuto)
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationAutoPreserved, time.Now().UTC().Format(time.RFC3339))
		return true
	}, "", "")
}

// UnmarkMachines takes off the wish that a set replaces a machine which is healthy again.
func (a *Activities) UnmarkMachines(ctx context.Context, in Batch) (Gate, error) {
	return a.changeMembers(ctx, in, func(m *v1alpha1.Machine) bool {
		_, marked := m.Annotations[v1alpha1.AnnotationRemediateMachine]
		delete(m.Annotations, v1alpha1.AnnotationRemediateMachine)
		return marked
	}, "", "")
}

// SyncMachines copies to machines what may change of their set's template without a new machine, each if it still is as the
// decision saw it.
func (a *Activities) SyncMachines(ctx context.Context, in Batch) (Gate, error) {
	set, err := a.liveSet(ctx, in.Set)
	switch {
	case err != nil:
		return nil, err
	case set == nil:
		return nil, objectGone(in.Set)
	}
	return a.changeMembers(ctx, in, func(m *v1alpha1.Machine) bool { return len(observe.FollowTemplate(m, set)) > 0 }, "", "")
}

// changeMembers writes each machine of a batch as change leaves it; where change reports false nothing is written. One that is
// gone is passed over, one that is not as the decision saw it is a Conflict. It returns the versions to wait for. An event
// of this reason tells of each write; with an empty one nothing is told.
func (a *Activities) changeMembers(ctx context.Context, in Batch, change func(*v1alpha1.Machine) bool, reason, words string) (Gate, error) {
	versions := make([]string, len(in.Machines))
	set, found := a.Cluster.Set(in.Set.Key())
	err := inParallel(len(in.Machines), func(i int) error {
		target := in.Machines[i]
		ref := Ref{Namespace: in.Set.Namespace, Name: target.Name, UID: target.UID}
		version, changed, err := a.changeMember(ctx, ref, target.Version, change)
		if err != nil {
			return err
		}
		versions[i] = version
		if changed && found && reason != "" {
			a.Recorder.Event(set, corev1.EventTypeNormal, reason, words+target.Name+": "+target.Why)
		}
		return nil
	})
	gate := Gate{}
	for _, version := range versions {
		if version != "" {
			gate.Raise(observe.Machines, version)
		}
	}
	return gate, err
}

// changeMember writes one machine that still has the version that a decision saw, and returns the version that it has now; empty for
// one that is gone.
func (a *Activities) changeMember(ctx context.Context, ref Ref, seen string, change func(*v1alpha1.Machine) bool) (version string, changed bool, err error) {
	machines := a.Cluster.Client().MachineV1alpha1().Machines(ref.Namespace)
	m, err := machines.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("get machine %s: %w", ref.Key(), err)
	case string(m.UID) != ref.UID:
		return "", false, nil
	case m.ResourceVersion != seen:
		return "", false, conflict(ref)
	case !change(m):
		return m.ResourceVersion, false, nil
	}
	m, err = machines.Update(ctx, m, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, writeError(ref, err)
	}
	return m.ResourceVersion, true, nil
}
