package capi

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/kube"
	"millwright/observe/capi"
	capidrain "millwright/observe/capi/drain"
)

// releaseSet gives a set that was handed over, with its machines and clones, to Cluster API's controllers. Millwright's
// finalizer leaves the set last, so that a second run continues where an interrupted run stopped. The result is the
// resource version of the set.
func (a *Activities) releaseSet(ctx context.Context, s *clusterv1.MachineSet) (string, error) {
	if err := a.releaseMachines(ctx, s); err != nil {
		return "", err
	}
	if theirs := capi.UpstreamConditions(s.Status.Conditions); len(theirs) < len(s.Status.Conditions) {
		next := s.DeepCopy()
		next.Status.Conditions = theirs
		written, err := kube.PatchChanges(ctx, a.Cache.Client().MachineSets(s.Namespace), s, next, "status")
		if err != nil {
			return "", kube.ClassifyWriteError(ctx, kube.Ref{Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)}, err)
		}
		s = written
	}
	next := s.DeepCopy()
	if err := capi.ReturnFieldsOfSet(next); err != nil {
		return "", fmt.Errorf("return managed fields of set %s: %w", s.Name, err)
	}
	return a.removeFinalizer(ctx, s, next)
}

// releaseMachines gives Cluster API's controllers what Millwright owns on the machines of a set and on their clones, and
// removes the hook of drains. Machines that are being deleted stay as they are: Cluster API applies no template to them,
// and a drain in progress continues to its end.
func (a *Activities) releaseMachines(ctx context.Context, s *clusterv1.MachineSet) error {
	list, err := a.Cache.ListLiveMachines(ctx, s.Namespace, &s.Spec.Selector, a.Cache.MachinesOfSet(s))
	if err != nil {
		return fmt.Errorf("list machines of set %s: %w", s.Name, err)
	}
	list = slices.DeleteFunc(list, func(m *clusterv1.Machine) bool {
		return !metav1.IsControlledBy(m, s) || m.DeletionTimestamp != nil
	})
	clones := map[schema.GroupKind]sets.Set[string]{}
	for _, m := range list {
		for _, ref := range []clusterv1.ContractVersionedObjectReference{m.Spec.InfrastructureRef, m.Spec.Bootstrap.ConfigRef} {
			if ref.IsDefined() {
				kind := schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind}
				clones[kind] = clones[kind].Union(sets.New(ref.Name))
			}
		}
	}
	for kind, names := range clones {
		if err := a.releaseClones(ctx, s, kind, names); err != nil {
			return err
		}
	}
	_, err = kube.WriteInParallel("", len(list), func(i int) (string, error) {
		return "", a.releaseMachine(ctx, list[i])
	})
	return err
}

func (a *Activities) releaseMachine(ctx context.Context, m *clusterv1.Machine) error {
	machines := a.Cache.Client().Machines(m.Namespace)
	var err error
	if patch := capidrain.HookRemovalPatch(m, false); patch != nil {
		m, err = kube.PatchObject(ctx, machines, m, patch)
	}
	if err == nil {
		next := m.DeepCopy()
		if err = capi.ReturnFieldsOfMachine(next); err == nil {
			_, err = kube.PatchChanges(ctx, machines, m, next)
		}
	}
	return releaseError(ctx, m, err)
}

// releaseClones gives Cluster API's controllers what Millwright owns on the clones with these names.
func (a *Activities) releaseClones(
	ctx context.Context,
	s *clusterv1.MachineSet,
	kind schema.GroupKind,
	names sets.Set[string],
) error {
	resource, list, err := a.listClones(ctx, s, kind)
	if err != nil {
		return err
	}
	objects := a.Cache.Client().ProviderObjects.Resource(resource).Namespace(s.Namespace)
	list = slices.DeleteFunc(list, func(o unstructured.Unstructured) bool { return !names.Has(o.GetName()) })
	_, err = kube.WriteInParallel("", len(list), func(i int) (string, error) {
		next := list[i].DeepCopy()
		err := capi.ReturnFieldsOfClone(next)
		if err == nil {
			_, err = kube.PatchChanges(ctx, objects, &list[i], next)
		}
		return "", releaseError(ctx, next, err)
	})
	return err
}

// releaseError classifies the error of a write on a released object. An object that is gone is no error.
func releaseError(ctx context.Context, o metav1.Object, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return kube.ClassifyWriteError(
		ctx,
		kube.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())},
		err,
	)
}
