package capi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/capi"
	capiset "millwright/observe/capi/set"
)

// templateClone describes a machine's copy of a template.
type templateClone struct {
	resource       schema.GroupVersionResource
	ref            clusterv1.ContractVersionedObjectReference
	uid            types.UID
	ownedByMachine bool // a machine already owns the clone
}

// createClone creates a machine's copy of a template, named after the machine. An existing copy that the set or a
// machine owns counts as created. The set owns the copy until Cluster API's Machine controller makes the machine its
// owner.
func (a *Activities) createClone(
	ctx context.Context,
	s *clusterv1.MachineSet,
	template capi.ProviderObject,
	name string,
) (c templateClone, err error) {
	kind := capi.CloneKind(template.Ref)
	if c.resource, err = a.Cache.ResourceOfKind(ctx, kind); err != nil {
		return c, err
	}
	c.ref = clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: name}
	spec, _, _ := unstructured.NestedMap(template.Object.Object, "spec", "template", "spec")
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	if spec == nil {
		o.Object = map[string]any{}
	}
	o.SetGroupVersionKind(c.resource.GroupVersion().WithKind(kind.Kind))
	o.SetName(name)
	o.SetNamespace(s.Namespace)
	labels, annotations := a.metadataOfClones(s, template)
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	o.SetOwnerReferences(
		[]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: s.Name, UID: s.UID}},
	)
	objects := a.Cache.Client().ProviderObjects.Resource(c.resource).Namespace(s.Namespace)
	made, err := objects.Create(ctx, o, metav1.CreateOptions{FieldManager: capi.MachineSetFieldManager})
	if apierrors.IsAlreadyExists(err) {
		made, err = objects.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && !capi.HasOwner(made, string(s.UID)) && !capi.IsOwnedByMachine(made) {
			// the clone was deleted, or another set owns the clone
			return c, kube.ConflictError(kube.Ref{Namespace: s.Namespace, Name: name})
		}
	}
	if err != nil {
		return c, fmt.Errorf("create %s %s: %w", kind.Kind, name, err)
	}
	c.uid, c.ownedByMachine = made.GetUID(), capi.IsOwnedByMachine(made)
	return c, nil
}

// metadataOfClones returns the labels and annotations of the clones of a template. The clones lack the annotation with
// the replacing revision: only core's controller of Machines reads it, and a write of a clone would wake the controllers
// of the providers.
func (a *Activities) metadataOfClones(
	s *clusterv1.MachineSet,
	template capi.ProviderObject,
) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	if template.Object != nil {
		own, _, _ := unstructured.NestedStringMap(template.Object.Object, "spec", "template", "metadata", "labels")
		maps.Copy(labels, own)
		own, _, _ = unstructured.NestedStringMap(template.Object.Object, "spec", "template", "metadata", "annotations")
		maps.Copy(annotations, own)
	}
	maps.Copy(labels, capiset.MachineLabels(a.Cache, s))
	maps.Copy(annotations, s.Spec.Template.Annotations)
	delete(annotations, v1alpha1.AnnotationReplacedByRevision)
	annotations[clusterv1.TemplateClonedFromNameAnnotation] = template.Ref.Name
	annotations[clusterv1.TemplateClonedFromGroupKindAnnotation] = schema.GroupKind{
		Group: template.Ref.APIGroup,
		Kind:  template.Ref.Kind,
	}.String()
	return labels, annotations
}

// deleteUnownedClones deletes the clones that no machine owns. A clone that is gone counts as deleted.
func (a *Activities) deleteUnownedClones(
	ctx context.Context,
	s *clusterv1.MachineSet,
	clones []templateClone,
) (err error) {
	for _, c := range clones {
		if c.ownedByMachine {
			continue
		}
		objects := a.Cache.Client().ProviderObjects.Resource(c.resource).Namespace(s.Namespace)
		gone := objects.Delete(ctx, c.ref.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(c.uid)}})
		if gone != nil && !apierrors.IsNotFound(gone) {
			err = errors.Join(err, fmt.Errorf("delete %s %s of a machine that was rejected: %w", c.ref.Kind, c.ref.Name, gone))
		}
	}
	return err
}

// findUnusedClones lists the clones that the set owns and that no machine owns or references. If a worker dies after it
// created a clone and before it created the machine, the clone is unused.
func (a *Activities) findUnusedClones(
	ctx context.Context,
	s *clusterv1.MachineSet,
	related capi.RelatedObjects,
) (strays []set.ExtraObject, err error) {
	used := sets.New[string]()
	for _, m := range slices.Concat(related.Members, related.Orphans) { // a released machine keeps its clones
		used.Insert(m.Spec.InfrastructureRef.Name, m.Spec.Bootstrap.ConfigRef.Name)
	}
	for _, template := range related.Templates {
		resource, list, err := a.listClones(ctx, s, capi.CloneKind(template.Ref))
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			if capi.HasOwner(&o, string(s.UID)) && !capi.IsOwnedByMachine(&o) && o.GetDeletionTimestamp() == nil &&
				!used.Has(o.GetName()) {
				strays = append(strays, newExtraObject(resource, &o, "no machine uses it"))
			}
		}
	}
	return strays, nil
}

// listClones lists the clones of a kind that have the label of a set. If the kind is not installed, the list is empty.
func (a *Activities) listClones(
	ctx context.Context,
	s *clusterv1.MachineSet,
	kind schema.GroupKind,
) (schema.GroupVersionResource, []unstructured.Unstructured, error) {
	resource, err := a.Cache.ResourceOfKind(ctx, kind)
	if errors.Is(err, capi.ErrKindNotInstalled) {
		return resource, nil, nil
	}
	if err != nil {
		return resource, nil, err
	}
	selector := clusterv1.MachineSetNameLabel + "=" + capiset.MachineLabels(a.Cache, s)[clusterv1.MachineSetNameLabel]
	list, err := a.Cache.Client().
		ProviderObjects.Resource(resource).
		Namespace(s.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return resource, nil, fmt.Errorf("list %s of set %s: %w", resource.Resource, s.Name, err)
	}
	return resource, list.Items, nil
}

func newExtraObject(resource schema.GroupVersionResource, o metav1.Object, why string) set.ExtraObject {
	return set.ExtraObject{
		Group: resource.Group, APIVersion: resource.Version, Resource: resource.Resource,
		Name: o.GetName(), UID: string(o.GetUID()), Version: o.GetResourceVersion(), Why: why,
	}
}

// CollectClones deletes unused clones. A clone that changed since the decision causes a Conflict. The activity is
// idempotent.
func (a *Activities) CollectClones(ctx context.Context, in set.ExtraWritesInput) (kube.MinVersions, error) {
	return kube.WriteInParallel("", len(in.Objects), func(i int) (string, error) {
		o := in.Objects[i]
		err := a.Cache.Client().
			ProviderObjects.Resource(o.GVR()).
			Namespace(in.Set.Namespace).
			Delete(ctx, o.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: new(types.UID(o.UID)), ResourceVersion: new(o.Version)},
			})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return "", kube.ClassifyWriteError(ctx, in.Set, err)
	})
}

// templatesWithoutClusterMetadata returns the templates of a set that lack the owner reference to the set's Cluster, or
// the Cluster's label.
func templatesWithoutClusterMetadata(related capi.RelatedObjects) (objects []set.ExtraObject) {
	for _, f := range capi.UnownedTemplates(related.Cluster, related.Templates) {
		objects = append(objects, newExtraObject(f.Resource, f.Object, "the Cluster owns it"))
	}
	return objects
}

// machinesWithoutPostponementReason returns the machines whose replacement is postponed and whose condition
// OwnerRemediated does not yet say why.
func machinesWithoutPostponementReason(related capi.RelatedObjects, plan scale.PlanResult) (objects []set.ExtraObject) {
	machines, reason := capiset.MachinesWithoutRemediationReason(related, plan)
	for _, m := range machines {
		objects = append(objects, set.ExtraObject{Name: m.Name, UID: m.UID, Version: m.Version, Reason: reason, Why: m.Why})
	}
	return objects
}

// OwnTemplates adds the owner reference to the Cluster and the Cluster's label to the templates of a set. A template that
// changed since the decision causes a Conflict.
func (a *Activities) OwnTemplates(ctx context.Context, in set.ExtraWritesInput) (kube.MinVersions, error) {
	s, err := a.readSetAtVersion(ctx, in.Set, "")
	if err != nil {
		return nil, err
	}
	cluster, err := a.Cache.Client().Clusters(s.Namespace).Get(ctx, s.Spec.ClusterName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, kube.ConflictError(in.Set) // the Cluster was deleted since the decision
	}
	if err != nil {
		return nil, fmt.Errorf("get cluster %s: %w", s.Spec.ClusterName, err)
	}
	versions := kube.MinVersions{}
	for _, o := range in.Objects {
		objects := a.Cache.Client().ProviderObjects.Resource(o.GVR()).Namespace(s.Namespace)
		template, err := kube.ReadLiveAtVersion(
			ctx,
			objectGetter{objects},
			"template",
			kube.Ref{Namespace: s.Namespace, Name: o.Name, UID: o.UID},
			o.Version,
		)
		if err != nil {
			return nil, err
		}
		written, err := kube.PatchChanges(ctx, objects, template, capi.WithClusterOwner(template, cluster))
		if err != nil {
			return nil, kube.ClassifyWriteError(ctx, in.Set, err)
		}
		versions.RaiseVersion(capi.ResourceName(o.GVR()), written.GetResourceVersion())
	}
	return versions, nil
}

// objectGetter reads objects of a Cluster API provider.
type objectGetter struct{ client dynamic.ResourceInterface }

// Get returns an object.
func (g objectGetter) Get(ctx context.Context, name string, o metav1.GetOptions) (*unstructured.Unstructured, error) {
	return g.client.Get(ctx, name, o)
}

// syncClones writes the labels and annotations of a machine's clones. A clone that does not exist is skipped, because
// the Machine controller reports the missing clone in the machine's conditions.
func (a *Activities) syncClones(ctx context.Context, s *clusterv1.MachineSet, m *clusterv1.Machine) error {
	related, err := a.Cache.ReadRelatedObjectsForWrite(ctx, s)
	if err != nil {
		return err
	}
	for _, template := range related.Templates {
		if ref := cloneRefOf(s, m, template); ref.IsDefined() {
			if err := a.syncClone(ctx, s, template, ref); err != nil {
				return err
			}
		}
	}
	return nil
}

// cloneRefOf returns a machine's reference to its clone of a template. The reference is empty if the machine has no
// clone of the template.
func cloneRefOf(
	s *clusterv1.MachineSet,
	m *clusterv1.Machine,
	template capi.ProviderObject,
) clusterv1.ContractVersionedObjectReference {
	if template.Ref == s.Spec.Template.Spec.InfrastructureRef {
		return m.Spec.InfrastructureRef
	}
	return m.Spec.Bootstrap.ConfigRef
}

func (a *Activities) syncClone(
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
	if apierrors.IsNotFound(err) || err == nil && o.GetDeletionTimestamp() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s %s: %w", ref.Kind, ref.Name, err)
	}
	labels, annotations := a.metadataOfClones(s, template)
	annotations[clusterv1.TemplateClonedFromNameAnnotation] = o.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]
	client := kube.WithFieldManager(objects, capi.MachineSetFieldManager)
	_, err = kube.PatchChanges(ctx, client, o, capi.WithMetadata(o, labels, annotations))
	return kube.ClassifyWriteError(ctx, kube.Ref{Namespace: s.Namespace, Name: ref.Name, UID: string(o.GetUID())}, err)
}
