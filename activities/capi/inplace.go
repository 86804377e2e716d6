package capi

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/observe/capi"
	capiset "millwright/observe/capi/set"
)

// MoveClusterAPIMachines moves machines to the set that an annotation of their current set names. The new set updates
// the machines in place. The activity first reads both sets live. If the new set no longer accepts machines, the
// activity fails with a Conflict. A machine that changed since the decision causes a Conflict. The activity is
// idempotent.
func (a *Activities) MoveClusterAPIMachines(ctx context.Context, in set.MachineBatch) (kube.MinVersions, error) {
	s, err := a.readSetAtVersion(ctx, in.Set, "")
	if err != nil {
		return nil, err
	}
	to, err := capi.ReadLiveObject(
		ctx,
		a.Cache.Client().MachineSets(s.Namespace),
		s.Annotations[clusterv1.MachineSetMoveMachinesToMachineSetAnnotation],
	)
	if err != nil {
		return nil, err
	}
	if capiset.MoveRejectionReason(s, to) != "" {
		return nil, kube.ConflictError(in.Set)
	}
	return kube.WriteInParallel(capi.MachinesResource, len(in.Machines), func(i int) (string, error) {
		m, err := a.readMachineAtVersion(ctx, in.Set, in.Machines[i])
		if err != nil || m == nil || m.DeletionTimestamp != nil || !metav1.IsControlledBy(m, s) {
			return "", err
		}
		owners := slices.DeleteFunc(m.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == s.UID })
		return a.patchMachineMetadata(ctx, in.Set, m, map[string]any{
			"ownerReferences": append(owners, *metav1.NewControllerRef(to, clusterv1.GroupVersion.WithKind("MachineSet"))),
			"labels": map[string]any{
				clusterv1.MachineDeploymentUniqueLabel: to.Labels[clusterv1.MachineDeploymentUniqueLabel],
			},
			"annotations": map[string]any{
				clusterv1.UpdateInProgressAnnotation:       "",
				clusterv1.PendingAcknowledgeMoveAnnotation: "",
			},
		})
	})
}

// patchMachineMetadata patches a machine's metadata for an in-place update. patchMachineMetadata returns the version of
// the machine; empty if the machine is gone.
func (a *Activities) patchMachineMetadata(
	ctx context.Context,
	of kube.Ref,
	m *clusterv1.Machine,
	metadata map[string]any,
) (string, error) {
	written, err := kube.PatchObject(
		ctx,
		kube.WithFieldManager(a.Cache.Client().Machines(m.Namespace), capi.InPlaceFieldManager),
		m,
		map[string]any{"metadata": metadata},
	)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", kube.ClassifyWriteError(ctx, of, err)
	}
	return written.ResourceVersion, nil
}

// UpdateClusterAPIMachines starts the in-place update of machines that did not change since the decision. For each
// machine, the activity applies the set's templates to the clones and the machine, and then writes the hook. The hook
// makes Cluster API call a runtime extension. A machine with a missing clone is Refused and stays unchanged; the other
// machines are updated. The activity is idempotent.
func (a *Activities) UpdateClusterAPIMachines(ctx context.Context, in set.MachineBatch) (kube.MinVersions, error) {
	s, err := a.readSetAtVersion(ctx, in.Set, "")
	if err != nil {
		return nil, err
	}
	related, err := a.Cache.ReadRelatedObjectsForWrite(ctx, s)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(related.Templates, capi.ProviderObject.IsMissing) {
		return nil, kube.ConflictError(in.Set) // a template was deleted since the decision
	}
	return kube.WriteInParallel(capi.MachinesResource, len(in.Machines), func(i int) (string, error) {
		m, err := a.readMachineAtVersion(ctx, in.Set, in.Machines[i])
		if err != nil || m == nil || m.DeletionTimestamp != nil || !capiset.IsInPlaceUpdateDue(m, s) {
			return "", err
		}
		return a.beginInPlaceUpdate(ctx, s, related, m)
	})
}

// beginInPlaceUpdate writes the clones, then the machine, then the hook. The hook is last because Cluster API starts
// the update when it sees the hook.
func (a *Activities) beginInPlaceUpdate(
	ctx context.Context,
	s *clusterv1.MachineSet,
	related capi.RelatedObjects,
	m *clusterv1.Machine,
) (string, error) {
	for _, template := range related.Templates {
		if ref := cloneRefOf(s, m, template); ref.IsDefined() {
			if err := a.applyClone(ctx, s, template, ref); err != nil {
				return "", err
			}
		}
	}
	ref := kube.Ref{Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)}
	desired := capiset.SyncedMachine(a.Cache, s, m)
	desired.Spec.Version, desired.Spec.FailureDomain = s.Spec.Template.Spec.Version, s.Spec.Template.Spec.FailureDomain
	written, err := kube.PatchChanges(ctx, a.syncPatcher(s), m, desired)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", kube.ClassifyWriteError(ctx, ref, err)
	}
	hooks := append(
		capiset.ParseAnnotationList(written.Annotations[runtimev1.PendingHooksAnnotation]),
		capiset.UpdateMachineHook,
	)
	version, err := a.patchMachineMetadata(
		ctx,
		ref,
		written,
		map[string]any{"annotations": map[string]any{
			runtimev1.PendingHooksAnnotation: strings.Join(hooks, ","), clusterv1.PendingAcknowledgeMoveAnnotation: nil,
		}},
	)
	if err == nil && version != "" {
		a.Kube.Recorder.Event(
			written,
			corev1.EventTypeNormal,
			"SuccessfulStartInPlaceUpdate",
			"Machine starting in-place update",
		)
	}
	return version, err
}

// applyClone applies the set's template to a clone, and adds the annotation of an in-place update, for which Cluster
// API waits.
func (a *Activities) applyClone(
	ctx context.Context,
	s *clusterv1.MachineSet,
	template capi.ProviderObject,
	ref clusterv1.ContractVersionedObjectReference,
) error {
	resource, err := a.Cache.ResourceOfKind(ctx, schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
	if err != nil {
		return err
	}
	objects := a.Cache.Client().ProviderObjects.Resource(resource).Namespace(s.Namespace)
	o, err := objects.Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return kube.RefusedError(
			fmt.Sprintf("%s %s/%s does not exist: its machine cannot be updated in place", ref.Kind, s.Namespace, ref.Name),
		)
	}
	if err != nil {
		return fmt.Errorf("get %s %s: %w", ref.Kind, ref.Name, err)
	}
	at := kube.Ref{Namespace: s.Namespace, Name: ref.Name, UID: string(o.GetUID())}
	entries, err := managedFieldsForApply(o)
	if err != nil {
		return fmt.Errorf("convert managed fields of %s %s: %w", ref.Kind, ref.Name, err)
	}
	if entries != nil {
		patch := map[string]any{"metadata": map[string]any{"managedFields": entries}}
		if _, err := kube.PatchObject(ctx, objects, o, patch); err != nil {
			return kube.ClassifyWriteError(ctx, at, err)
		}
	}
	spec, _, _ := unstructured.NestedMap(template.Object.Object, "spec", "template", "spec")
	labels, annotations := a.metadataOfClones(s, template)
	annotations[clusterv1.UpdateInProgressAnnotation] = ""
	desired := &unstructured.Unstructured{Object: map[string]any{}}
	if spec != nil {
		desired.Object["spec"] = spec
	}
	desired.SetGroupVersionKind(o.GroupVersionKind())
	desired.SetName(ref.Name)
	desired.SetNamespace(s.Namespace)
	desired.SetUID(o.GetUID()) // server-side apply with a UID does not re-create a deleted clone
	desired.SetLabels(labels)
	desired.SetAnnotations(annotations)
	_, err = objects.Apply(
		ctx,
		ref.Name,
		desired,
		metav1.ApplyOptions{FieldManager: capi.MachineSetFieldManager, Force: true},
	)
	return kube.ClassifyWriteError(ctx, at, err)
}

// beforeFirstApplyFieldManager is the manager that the API server makes when a client applies an object without managed
// fields. It owns all fields that the object had then, so an apply of another client removes none of them.
const beforeFirstApplyFieldManager = "before-first-apply"

// managedFieldsForApply returns the managed fields with which an apply of Millwright removes from a clone what the
// template no longer has: one entry of Millwright also has the fields that Millwright created the clone with, and the
// fields that Cluster API's controller of MachineSets applied. The API server can lose the managed fields of an object;
// then the entry has only the name of the clone, so that the API server makes no entry for all fields. The result is
// nil if the managed fields stay as they are.
func managedFieldsForApply(o *unstructured.Unstructured) ([]metav1.ManagedFieldsEntry, error) {
	before := o.GetManagedFields()
	upgraded := &metav1.PartialObjectMetadata{}
	for _, entry := range before {
		if slices.Contains(capi.MachineFieldManagers()[1:], entry.Manager) {
			entry.Operation = metav1.ManagedFieldsOperationUpdate // csaupgrade merges only these entries
		}
		if entry.Manager != beforeFirstApplyFieldManager {
			upgraded.ManagedFields = append(upgraded.ManagedFields, entry)
		}
	}
	err := csaupgrade.UpgradeManagedFields(upgraded, sets.New(capi.MachineFieldManagers()...), capi.MachineSetFieldManager)
	switch {
	case err != nil || reflect.DeepEqual(before, upgraded.ManagedFields) && len(before) > 0:
		return nil, err
	case len(upgraded.ManagedFields) == 0:
		return []metav1.ManagedFieldsEntry{{
			Manager: capi.MachineSetFieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: o.GetAPIVersion(),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:name":{}}}`),
		}}, nil
	default:
		return upgraded.ManagedFields, nil
	}
}
