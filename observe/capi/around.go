package capi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	observecache "millwright/observe/cache"
)

// ProviderObject is an object of a provider to which a set refers.
type ProviderObject struct {
	Ref              clusterv1.ContractVersionedObjectReference
	Resource         schema.GroupVersionResource // zero: the kind is not installed
	Object           *unstructured.Unstructured  // nil: the object does not exist, or was not read
	WasRead          bool                        // the object was looked up; a nil Object does not exist
	CloneKindMissing bool                        // the object is a template, and the kind of its clones is not installed
}

// IsMissing reports whether the object cannot be used: it was looked up and does not exist, or it is a template and the
// kind of its clones is not installed.
func (f ProviderObject) IsMissing() bool { return f.WasRead && f.Object == nil || f.CloneKindMissing }

// RelatedObjects contains the objects that the facts about a set need in addition to the set.
type RelatedObjects struct {
	Members    []*clusterv1.Machine // machines that the set controls, unsorted
	Orphans    []*clusterv1.Machine // machines of the set's namespace without a controller, unsorted
	Cluster    *clusterv1.Cluster   // nil: the Cluster does not exist
	Deployment *clusterv1.MachineDeployment
	// policy of the deployment, or of the set if it has no deployment; nil without a policy
	Policy       *v1alpha1.RolloutPolicy
	Templates    []ProviderObject // the bootstrap template, if any, then the infrastructure template
	ControlPlane *ProviderObject  // nil: the Cluster names no control plane
	// Receiver is the set that an annotation names to take over this set's surplus machines; nil if no such set exists.
	Receiver *clusterv1.MachineSet
}

// ResourceVersions returns the resource versions of all objects related to a set.
func (a RelatedObjects) ResourceVersions() observecache.MinVersions {
	v := observecache.MinVersions{}
	for _, m := range slices.Concat(a.Members, a.Orphans) {
		v.RaiseVersion(MachinesResource, m.ResourceVersion)
	}
	if a.Cluster != nil {
		v.RaiseVersion(ClustersResource, a.Cluster.ResourceVersion)
	}
	if a.Deployment != nil {
		v.RaiseVersion(DeploymentsResource, a.Deployment.ResourceVersion)
	}
	if a.Policy != nil {
		v.RaiseVersion(observecache.RolloutPoliciesResource, a.Policy.ResourceVersion)
	}
	if a.Receiver != nil {
		v.RaiseVersion(SetsResource, a.Receiver.ResourceVersion)
	}
	for _, f := range a.providerObjects() {
		if f.Object != nil {
			v.RaiseVersion(ResourceName(f.Resource), f.Object.GetResourceVersion())
		}
	}
	return v
}

func (a RelatedObjects) providerObjects() []ProviderObject {
	all := slices.Clone(a.Templates)
	if a.ControlPlane != nil {
		all = append(all, *a.ControlPlane)
	}
	return all
}

// relatedObjectReader reads the objects related to a set, from the caches or from the API server.
type relatedObjectReader struct {
	readMachines       func() (members, orphans []*clusterv1.Machine, err error)
	readCluster        func() (*clusterv1.Cluster, error)
	readDeployment     func(name string) (*clusterv1.MachineDeployment, error)
	readPolicy         func(metav1.Object) (*v1alpha1.RolloutPolicy, error)
	readReceivingSet   func(name string) (*clusterv1.MachineSet, error)
	readProviderObject func(clusterv1.ContractVersionedObjectReference) (ProviderObject, error)
	isKindNotInstalled func(schema.GroupKind) (bool, error) // reports whether a kind is not installed
}

// readTemplates reads the templates that a spec names.
func (r relatedObjectReader) readTemplates(spec *clusterv1.MachineSpec) (all []ProviderObject, err error) {
	for _, ref := range templateReferencesOfSpec(spec) {
		f, err := r.readProviderObject(ref)
		if err != nil {
			return nil, err
		}
		if f.CloneKindMissing, err = r.isKindNotInstalled(CloneKind(ref)); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// readPolicyOfSet reads the policy of a set's deployment. A set without a deployment has a policy of its own; a set whose
// deployment does not exist yet has no policy.
func (r relatedObjectReader) readPolicyOfSet(
	set *clusterv1.MachineSet,
	d *clusterv1.MachineDeployment,
) (*v1alpha1.RolloutPolicy, error) {
	switch {
	case d != nil:
		return r.readPolicy(d)
	case set.Labels[clusterv1.MachineDeploymentNameLabel] == "":
		return r.readPolicy(set)
	default:
		return nil, nil
	}
}

// readRelatedObjects reads the objects related to a set. A kind that is not installed counts as missing.
func readRelatedObjects(set *clusterv1.MachineSet, r relatedObjectReader) (a RelatedObjects, err error) {
	if a.Members, a.Orphans, err = r.readMachines(); err != nil {
		return a, err
	}
	if a.Cluster, err = r.readCluster(); err != nil {
		return a, err
	}
	if name := set.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		if a.Deployment, err = r.readDeployment(name); err != nil {
			return a, err
		}
	}
	if a.Policy, err = r.readPolicyOfSet(set, a.Deployment); err != nil {
		return a, err
	}
	if name := set.Annotations[clusterv1.MachineSetMoveMachinesToMachineSetAnnotation]; name != "" {
		if a.Receiver, err = r.readReceivingSet(name); err != nil {
			return a, err
		}
	}
	if a.Templates, err = r.readTemplates(&set.Spec.Template.Spec); err != nil {
		return a, err
	}
	if a.Cluster != nil && a.Cluster.Spec.ControlPlaneRef.IsDefined() {
		f, err := r.readProviderObject(a.Cluster.Spec.ControlPlaneRef)
		if err != nil {
			return a, err
		}
		a.ControlPlane = &f
	}
	return a, nil
}

// kindNotInstalledFunc reports whether a kind is not installed, or follows no known contract.
func (c *Cache) kindNotInstalledFunc(ctx context.Context) func(schema.GroupKind) (bool, error) {
	return func(kind schema.GroupKind) (bool, error) {
		_, err := c.ResourceOfKind(ctx, kind)
		if errors.Is(err, ErrKindNotInstalled) {
			return true, nil
		}
		return false, err
	}
}

// ReadRelatedObjects returns the objects related to a set from the caches. A template or control plane whose cache is
// not yet filled has WasRead false. ReadRelatedObjects returns an error if a kind is unknown because the API server
// does not answer.
func (c *Cache) ReadRelatedObjects(ctx context.Context, set *clusterv1.MachineSet) (RelatedObjects, error) {
	return readRelatedObjects(set, relatedObjectReader{
		isKindNotInstalled: c.kindNotInstalledFunc(ctx),
		readMachines: func() (members, orphans []*clusterv1.Machine, err error) {
			return c.MachinesOfSet(set), c.MachinesWithoutController(set.Namespace), nil
		},
		readCluster: func() (*clusterv1.Cluster, error) {
			cluster, _ := c.ClusterOfSet(set)
			return cluster, nil
		},
		readDeployment: func(name string) (*clusterv1.MachineDeployment, error) {
			d, _ := c.Deployment(set.Namespace + "/" + name)
			return d, nil
		},
		readPolicy: func(o metav1.Object) (*v1alpha1.RolloutPolicy, error) { return c.Cluster.PolicyOfObject(o), nil },
		readReceivingSet: func(name string) (*clusterv1.MachineSet, error) {
			s, _ := c.MachineSet(set.Namespace + "/" + name)
			return s, nil
		},
		readProviderObject: c.cachedProviderObjectReader(ctx, set.Namespace),
	})
}

// cachedProviderObjectReader returns a function that reads the objects of providers in a namespace from their caches.
func (c *Cache) cachedProviderObjectReader(
	ctx context.Context,
	namespace string,
) func(clusterv1.ContractVersionedObjectReference) (ProviderObject, error) {
	return func(ref clusterv1.ContractVersionedObjectReference) (ProviderObject, error) {
		o, resource, read, err := c.ProviderObject(ctx, namespace, ref)
		if errors.Is(err, ErrKindNotInstalled) {
			return ProviderObject{Ref: ref, WasRead: true}, nil
		}
		return ProviderObject{Ref: ref, Resource: resource, Object: o, WasRead: read}, err
	}
}

// Templates returns the templates in the spec of a machine from the caches, the bootstrap template first. A template
// whose cache is not yet filled has WasRead false. Templates returns an error if a kind is unknown because the API
// server does not answer.
func (c *Cache) Templates(
	ctx context.Context,
	namespace string,
	spec *clusterv1.MachineSpec,
) ([]ProviderObject, error) {
	return relatedObjectReader{
		isKindNotInstalled: c.kindNotInstalledFunc(ctx),
		readProviderObject: c.cachedProviderObjectReader(ctx, namespace),
	}.readTemplates(
		spec,
	)
}

// TemplatesForWrite does the same as Templates, for a decision that writes. TemplatesForWrite reads a template from the
// API server if the cache of the template is not filled yet.
func (c *Cache) TemplatesForWrite(
	ctx context.Context,
	namespace string,
	spec *clusterv1.MachineSpec,
) ([]ProviderObject, error) {
	all, err := c.Templates(ctx, namespace, spec)
	for i := range all {
		if err := c.readLiveProviderObject(ctx, namespace, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, err
}

// LiveTemplates does the same as Templates, but reads from the API server.
func (c *Cache) LiveTemplates(
	ctx context.Context,
	namespace string,
	spec *clusterv1.MachineSpec,
) ([]ProviderObject, error) {
	return relatedObjectReader{
		isKindNotInstalled: c.kindNotInstalledFunc(ctx),
		readProviderObject: c.liveProviderObjectReader(ctx, namespace),
	}.readTemplates(
		spec,
	)
}

// ReadRelatedObjectsForWrite does the same as ReadRelatedObjects, for a decision that writes.
// ReadRelatedObjectsForWrite reads an object from the API server if the cache of the object is not filled yet.
func (c *Cache) ReadRelatedObjectsForWrite(ctx context.Context, set *clusterv1.MachineSet) (RelatedObjects, error) {
	a, err := c.ReadRelatedObjects(ctx, set)
	if err != nil {
		return a, err
	}
	for i := range a.Templates {
		if err := c.readLiveProviderObject(ctx, set.Namespace, &a.Templates[i]); err != nil {
			return a, err
		}
	}
	if a.ControlPlane != nil {
		err = c.readLiveProviderObject(ctx, set.Namespace, a.ControlPlane)
	}
	return a, err
}

// readLiveProviderObject reads an object of a provider from the API server, unless the object was read before.
func (c *Cache) readLiveProviderObject(ctx context.Context, namespace string, f *ProviderObject) (err error) {
	if f.WasRead {
		return nil
	}
	f.Object, err = c.client.ProviderObjects.Resource(f.Resource).
		Namespace(namespace).
		Get(ctx, f.Ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		f.Object, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("get %s %s/%s: %w", f.Ref.Kind, namespace, f.Ref.Name, err)
	}
	f.WasRead = true
	return nil
}

// ReadLiveRelatedObjects returns the objects related to a set from the API server.
func (c *Cache) ReadLiveRelatedObjects(ctx context.Context, set *clusterv1.MachineSet) (RelatedObjects, error) {
	return readRelatedObjects(set, relatedObjectReader{
		isKindNotInstalled: c.kindNotInstalledFunc(ctx),
		readMachines: func() (members, orphans []*clusterv1.Machine, err error) {
			cached := slices.Concat(c.MachinesOfSet(set), c.MachinesWithoutController(set.Namespace))
			list, err := c.ListLiveMachines(ctx, set.Namespace, &set.Spec.Selector, cached)
			if err != nil {
				return nil, nil, fmt.Errorf("list machines of set %s: %w", set.Name, err)
			}
			for _, m := range list {
				switch {
				case metav1.IsControlledBy(m, set):
					members = append(members, m)
				case metav1.GetControllerOf(m) == nil:
					orphans = append(orphans, m)
				}
			}
			return members, orphans, nil
		},
		readCluster: func() (*clusterv1.Cluster, error) {
			return ReadLiveObject(ctx, c.client.Clusters(set.Namespace), set.Spec.ClusterName)
		},
		readDeployment: func(name string) (*clusterv1.MachineDeployment, error) {
			return ReadLiveObject(ctx, c.client.Deployments(set.Namespace), name)
		},
		readPolicy: func(o metav1.Object) (*v1alpha1.RolloutPolicy, error) { return c.Cluster.LivePolicyOfObject(ctx, o) },
		readReceivingSet: func(name string) (*clusterv1.MachineSet, error) {
			return ReadLiveObject(ctx, c.client.MachineSets(set.Namespace), name)
		},
		readProviderObject: c.liveProviderObjectReader(ctx, set.Namespace),
	})
}

// ListLiveMachines returns the machines of a namespace that a selector matches from the API server, and the cached
// machines that the selector does not match. Without these cached machines, a live decision and a decision from the
// caches would count different members of a set whose selector no longer matches a member. If the selector is empty or
// does not parse, ListLiveMachines lists all machines of the namespace.
func (c *Cache) ListLiveMachines(
	ctx context.Context,
	namespace string,
	labelSelector *metav1.LabelSelector,
	cached []*clusterv1.Machine,
) ([]*clusterv1.Machine, error) {
	selector, err := metav1.LabelSelectorAsSelector(labelSelector)
	if err != nil || selector.Empty() {
		selector = labels.Everything()
	}
	list, err := c.client.Machines(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	listed := map[types.UID]bool{}
	for i := range list.Items {
		listed[list.Items[i].UID] = true
	}
	unmatched := slices.DeleteFunc(slices.Clone(cached), func(m *clusterv1.Machine) bool {
		return listed[m.UID] || selector.Matches(labels.Set(m.Labels))
	})
	return append(observecache.PointersToItems(list.Items), unmatched...), nil
}

// liveProviderObjectReader returns a function that reads the objects of providers in a namespace from the API server.
func (c *Cache) liveProviderObjectReader(
	ctx context.Context,
	namespace string,
) func(clusterv1.ContractVersionedObjectReference) (ProviderObject, error) {
	return func(ref clusterv1.ContractVersionedObjectReference) (ProviderObject, error) {
		f := ProviderObject{Ref: ref}
		resource, err := c.ResourceOfKind(ctx, schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
		if errors.Is(err, ErrKindNotInstalled) {
			f.WasRead = true
			return f, nil
		}
		if err != nil {
			return f, err
		}
		f.Resource = resource
		return f, c.readLiveProviderObject(ctx, namespace, &f)
	}
}

// ReadLiveObject reads an object from the API server; nil if the object does not exist.
func ReadLiveObject[T metav1.Object, L any](ctx context.Context, client TypedClient[T, L], name string) (T, error) {
	o, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return *new(T), nil
	case err != nil:
		return *new(T), fmt.Errorf("get %s: %w", name, err)
	}
	return o, nil
}

// HasUnreadObjects reports whether any provider object to which the set refers has not been read yet.
func (a RelatedObjects) HasUnreadObjects() bool {
	return slices.ContainsFunc(a.providerObjects(), func(f ProviderObject) bool { return !f.WasRead })
}

// MissingKinds returns the kinds of missing templates, and the kinds of clones that are not installed.
func MissingKinds(templates []ProviderObject) (kinds []string) {
	for _, f := range templates {
		switch {
		case f.CloneKindMissing:
			kinds = append(kinds, CloneKind(f.Ref).Kind)
		case f.IsMissing():
			kinds = append(kinds, f.Ref.Kind)
		}
	}
	return kinds
}
