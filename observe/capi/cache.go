package capi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	observecache "millwright/observe/cache"
)

// A decision waits for the caches of these resources. A set that names a template or a control plane adds the resource
// of that object.
const (
	SetsResource        observecache.Resource = "machinesets.cluster.x-k8s.io"
	MachinesResource    observecache.Resource = "machines.cluster.x-k8s.io"
	DeploymentsResource observecache.Resource = "machinedeployments.cluster.x-k8s.io"
	ClustersResource    observecache.Resource = "clusters.cluster.x-k8s.io"
	DrainRulesResource  observecache.Resource = "machinedrainrules.cluster.x-k8s.io"
)

// The field managers of Millwright
const (
	// MachineSetFieldManager is the field manager for the objects that Millwright applies for a MachineSet of Cluster API.
	MachineSetFieldManager = "millwright-machineset"
	// DeploymentFieldManager is the field manager for the MachineSets that Millwright writes for a MachineDeployment of
	// Cluster API.
	DeploymentFieldManager = "millwright-machinedeployment"
	// InPlaceFieldManager is the field manager for the annotations of an in-place update on a Machine.
	// InPlaceFieldManager differs from MachineSetFieldManager, because Cluster API's core removes these annotations. With
	// the same field manager, Millwright's next apply would already remove the annotations.
	InPlaceFieldManager = "millwright-in-place"
)

// The field managers of Cluster API's controllers. Source: Cluster API v1.14.2, core/reconcilers.
const (
	upstreamSetFieldManager        = "capi-machineset"          // Machines, and clones without labels and annotations
	upstreamMetadataFieldManager   = "capi-machineset-metadata" // labels and annotations of clones
	upstreamDeploymentFieldManager = "capi-machinedeployment"   // MachineSets
)

// Finalizer is Millwright's finalizer on a MachineSet or MachineDeployment of Cluster API. Finalizer differs from
// Cluster API's own finalizer, which Cluster API's controller adds to an object before any other change. An admission
// policy that rejects Cluster API's finalizer therefore stops that controller. If an object has Cluster API's
// finalizer, no such admission policy is active.
const Finalizer = "machine.sapcloud.io/cluster-api"

// Settings defines which objects of Cluster API belong to Millwright.
type Settings struct {
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter on the MachineSets and MachineDeployments
	// that Millwright reconciles. WatchFilter must not be empty.
	WatchFilter string
	// UpstreamWatchFilter is the value of the label cluster.x-k8s.io/watch-filter on new Machines and their clones,
	// which Cluster API's own controllers reconcile. If UpstreamWatchFilter is empty, Millwright sets no such label.
	UpstreamWatchFilter string
}

// Cache contains the objects of Cluster API in the caches of a cluster. All methods are safe for concurrent use. The
// returned objects belong to the caches; callers must not change them.
type Cache struct {
	Settings
	Cluster *observecache.Cluster
	client  *Client
	kinds   kindCache

	ctx               context.Context // caches that are added later stop when ctx ends
	mu                sync.Mutex
	providerInformers map[schema.GroupResource]providerInformer
	informerHandlers  []func(observecache.Resource, cache.SharedIndexInformer)
}

// providerInformer is the running cache of a provider's resource, in one version.
type providerInformer struct {
	cache.SharedIndexInformer
	version string
	stop    context.CancelFunc
}

// WatchObjects adds the objects of Cluster API to the caches of a cluster. Call WatchObjects before the caches start.
// The end of ctx stops caches that are added later.
func WatchObjects(
	ctx context.Context,
	cluster *observecache.Cluster,
	client *Client,
	settings Settings,
) (*Cache, error) {
	c := &Cache{
		Settings:          settings,
		Cluster:           cluster,
		client:            client,
		ctx:               ctx,
		providerInformers: map[schema.GroupResource]providerInformer{},
	}
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	for resource, informer := range map[observecache.Resource]cache.SharedIndexInformer{
		SetsResource:        newInformer(client.MachineSets(metav1.NamespaceAll), &clusterv1.MachineSet{}, observecache.OwnerIndexers()),
		MachinesResource:    newInformer(client.Machines(metav1.NamespaceAll), &clusterv1.Machine{}, observecache.OwnerIndexers()),
		DeploymentsResource: newInformer(client.Deployments(metav1.NamespaceAll), &clusterv1.MachineDeployment{}, byNamespace),
		ClustersResource:    newInformer(client.Clusters(metav1.NamespaceAll), &clusterv1.Cluster{}, byNamespace),
	} {
		if err := informer.SetTransform(stripUnusedFields); err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource, err)
		}
		cluster.AddInformer(resource, informer)
	}
	return c, nil
}

// WatchDrainRules also caches Cluster API's drain rules. Call WatchDrainRules once, before the caches start.
func (c *Cache) WatchDrainRules() error {
	rules := newInformer(
		c.client.DrainRules(metav1.NamespaceAll),
		&clusterv1.MachineDrainRule{},
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	)
	if err := rules.SetTransform(stripUnusedFields); err != nil {
		return fmt.Errorf("watch %s: %w", DrainRulesResource, err)
	}
	c.Cluster.AddInformer(DrainRulesResource, rules)
	return nil
}

// NewCacheWithoutInformers returns a Cache without caches, for a process that reads the API server only occasionally.
// Callers may use only the methods that read from the API server.
func NewCacheWithoutInformers(client *Client, settings Settings) *Cache {
	return &Cache{Settings: settings, Cluster: &observecache.Cluster{}, client: client}
}

// newInformer returns a cache of the objects of one kind.
func newInformer[T, L runtime.Object](
	client TypedClient[T, L],
	example T,
	indexers cache.Indexers,
) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: client.Watch,
	}, example, 0, indexers)
}

// stripUnusedFields drops fields that no decision needs: all managed fields except those of the controllers of
// MachineSets and MachineDeployments, which show what Millwright must remove later.
func stripUnusedFields(object any) (any, error) {
	o, err := meta.Accessor(object)
	if err != nil {
		return object, nil //nolint:nilerr // the object is a tombstone
	}
	managers := append(MachineFieldManagers(), SetFieldManagers()...)
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range o.GetManagedFields() {
		if slices.Contains(managers, entry.Manager) {
			kept = append(kept, entry)
		}
	}
	o.SetManagedFields(kept)
	return object, nil
}

// Client returns the client of the management cluster.
func (c *Cache) Client() *Client { return c.client }

// MachineSet returns a MachineSet that Millwright reconciles, or that Millwright no longer reconciles but must still
// release.
func (c *Cache) MachineSet(key string) (*clusterv1.MachineSet, bool) {
	set, found := getByKey[*clusterv1.MachineSet](c, SetsResource, key)
	return set, found && (c.IsReconciledByMillwright(set) || IsMarkedByMillwright(set))
}

// IsReconciledByMillwright reports whether Millwright reconciles a set or a deployment.
func (c *Cache) IsReconciledByMillwright(o metav1.Object) bool {
	return o.GetLabels()[clusterv1.WatchLabel] == c.WatchFilter
}

// HasFinalizer reports whether a set or a deployment has Millwright's finalizer.
func HasFinalizer(o metav1.Object) bool { return slices.Contains(o.GetFinalizers(), Finalizer) }

// Machine returns a Machine of Cluster API.
func (c *Cache) Machine(key string) (*clusterv1.Machine, bool) {
	return getByKey[*clusterv1.Machine](c, MachinesResource, key)
}

// Deployment returns a MachineDeployment of Cluster API.
func (c *Cache) Deployment(key string) (*clusterv1.MachineDeployment, bool) {
	return getByKey[*clusterv1.MachineDeployment](c, DeploymentsResource, key)
}

// ReconciledDeployment returns a MachineDeployment that Millwright reconciles, or that Millwright no longer reconciles
// but must still release.
func (c *Cache) ReconciledDeployment(key string) (*clusterv1.MachineDeployment, bool) {
	d, found := c.Deployment(key)
	return d, found && (c.IsReconciledByMillwright(d) || IsMarkedByMillwright(d))
}

// ClusterByKey returns the Cluster with this key.
func (c *Cache) ClusterByKey(key string) (*clusterv1.Cluster, bool) {
	return getByKey[*clusterv1.Cluster](c, ClustersResource, key)
}

// ClusterOfSet returns the Cluster of a set.
func (c *Cache) ClusterOfSet(set *clusterv1.MachineSet) (*clusterv1.Cluster, bool) {
	return c.ClusterByKey(set.Namespace + "/" + set.Spec.ClusterName)
}

// MachinesOfSet returns the machines that a set controls, unsorted.
func (c *Cache) MachinesOfSet(set *clusterv1.MachineSet) []*clusterv1.Machine {
	return observecache.IndexedObjects[*clusterv1.Machine](
		c.Cluster.Informer(MachinesResource),
		observecache.OwnerUIDIndex,
		string(set.UID),
	)
}

// MachinesWithoutController returns the machines of a namespace that have no controller, unsorted.
func (c *Cache) MachinesWithoutController(namespace string) []*clusterv1.Machine {
	return observecache.IndexedObjects[*clusterv1.Machine](
		c.Cluster.Informer(MachinesResource),
		observecache.OwnerUIDIndex,
		observecache.OrphanKey(namespace),
	)
}

// SetsOfDeployment returns the sets that a deployment controls, whichever controller reconciles these sets, unsorted.
func (c *Cache) SetsOfDeployment(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
	return observecache.IndexedObjects[*clusterv1.MachineSet](
		c.Cluster.Informer(SetsResource),
		observecache.OwnerUIDIndex,
		string(d.UID),
	)
}

// SetsWithoutController returns the sets of a namespace that have no controller, unsorted.
func (c *Cache) SetsWithoutController(namespace string) []*clusterv1.MachineSet {
	return observecache.IndexedObjects[*clusterv1.MachineSet](
		c.Cluster.Informer(SetsResource),
		observecache.OwnerUIDIndex,
		observecache.OrphanKey(namespace),
	)
}

// actsOnObject reports whether Millwright reconciles a set or a deployment, and acts in its namespace.
func (c *Cache) actsOnObject(o metav1.Object) bool {
	return c.IsReconciledByMillwright(o) && c.Cluster.ActsInNamespace(o.GetNamespace())
}

// Deployments returns all deployments on which Millwright acts, unsorted.
func (c *Cache) Deployments() []*clusterv1.MachineDeployment {
	return slices.DeleteFunc(
		observecache.AllObjects[*clusterv1.MachineDeployment](c.Cluster.Informer(DeploymentsResource)),
		func(d *clusterv1.MachineDeployment) bool { return !c.actsOnObject(d) },
	)
}

// DeploymentsOfNamespace returns all deployments of a namespace, unsorted.
func (c *Cache) DeploymentsOfNamespace(namespace string) []*clusterv1.MachineDeployment {
	return observecache.IndexedObjects[*clusterv1.MachineDeployment](
		c.Cluster.Informer(DeploymentsResource), cache.NamespaceIndex, namespace,
	)
}

// MachineSets returns all sets on which Millwright acts, unsorted.
func (c *Cache) MachineSets() []*clusterv1.MachineSet {
	return slices.DeleteFunc(
		observecache.AllObjects[*clusterv1.MachineSet](c.Cluster.Informer(SetsResource)),
		func(s *clusterv1.MachineSet) bool { return !c.actsOnObject(s) },
	)
}

// SetRefersToObject reports whether a set or its Cluster names this object of a provider: a template or a control
// plane.
func (c *Cache) SetRefersToObject(set *clusterv1.MachineSet, o *unstructured.Unstructured) bool {
	cluster, found := c.ClusterOfSet(set)
	return set.Namespace == o.GetNamespace() &&
		(found && referenceMatcher(o)(cluster.Spec.ControlPlaneRef) || SpecNamesTemplate(&set.Spec.Template.Spec, o))
}

// SpecNamesTemplate reports whether the spec of a machine names this template. SpecNamesTemplate does not compare
// namespaces.
func SpecNamesTemplate(spec *clusterv1.MachineSpec, o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(templateReferencesOfSpec(spec), referenceMatcher(o))
}

func referenceMatcher(o *unstructured.Unstructured) func(clusterv1.ContractVersionedObjectReference) bool {
	return func(ref clusterv1.ContractVersionedObjectReference) bool {
		kind := o.GroupVersionKind()
		return ref.Name == o.GetName() && ref.Kind == kind.Kind && ref.APIGroup == kind.Group
	}
}

// SelectsMachine reports whether the selector of a set matches a machine. An empty selector, or a selector that does
// not parse, matches no machine.
func SelectsMachine(set *clusterv1.MachineSet, m *clusterv1.Machine) bool {
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(m.Labels))
}

// IsReleasedBySet reports whether a set released a machine because the set's selector no longer matched the machine.
func IsReleasedBySet(m *clusterv1.Machine, set *clusterv1.MachineSet) bool {
	return m.Annotations[v1alpha1.AnnotationReleasedBy] == string(set.UID)
}

// IsSetReference reports whether an owner reference names a MachineSet of Cluster API.
func IsSetReference(ref metav1.OwnerReference) bool { return isOwnerOfKind(ref, "MachineSet") }

// IsDeploymentReference reports whether an owner reference names a MachineDeployment of Cluster API.
func IsDeploymentReference(ref metav1.OwnerReference) bool {
	return isOwnerOfKind(ref, "MachineDeployment")
}

func isOwnerOfKind(ref metav1.OwnerReference, kind string) bool {
	return ref.Kind == kind && strings.HasPrefix(ref.APIVersion, clusterv1.GroupVersion.Group+"/")
}

func getByKey[T any](c *Cache, resource observecache.Resource, key string) (T, bool) {
	informer := c.Cluster.Informer(resource)
	if informer == nil {
		return *new(T), false
	}
	item, found, err := informer.GetStore().GetByKey(key)
	if err != nil || !found {
		return *new(T), false
	}
	return item.(T), true
}

// cacheFillTimeout limits the wait for the first fill of a cache that is added at run time. Source: the timeout of a
// local activity is 2 s, and two templates and a control plane share it.
const cacheFillTimeout = 500 * time.Millisecond

// ProviderObject returns an object of a provider: a template or a control plane. If object is nil and read is true, the
// object does not exist. If object is nil and read is false, the object is unknown, because its cache is not filled
// yet. The first call for a kind adds the cache.
func (c *Cache) ProviderObject(
	ctx context.Context,
	namespace string,
	ref clusterv1.ContractVersionedObjectReference,
) (o *unstructured.Unstructured, resource schema.GroupVersionResource, read bool, err error) {
	resource, err = c.ResourceOfKind(ctx, schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
	if err != nil {
		return nil, resource, false, err
	}
	informer := c.ensureInformer(resource)
	bounded, cancel := context.WithTimeout(ctx, cacheFillTimeout)
	defer cancel()
	if !cache.WaitFor(bounded, "", informer.HasSyncedChecker()) {
		return nil, resource, false, nil
	}
	item, found, err := informer.GetStore().GetByKey(namespace + "/" + ref.Name)
	if err != nil || !found {
		return nil, resource, true, err
	}
	return item.(*unstructured.Unstructured), resource, true, nil
}

// ResourceName returns the name of a provider's resource in MinVersions.
func ResourceName(resource schema.GroupVersionResource) observecache.Resource {
	return observecache.Resource(resource.GroupResource().String())
}

// ensureInformer returns the cache of a provider's resource. If the resource has another version than before, for
// example after an upgrade of its provider, a new cache replaces the former cache.
func (c *Cache) ensureInformer(resource schema.GroupVersionResource) cache.SharedIndexInformer {
	c.mu.Lock()
	defer c.mu.Unlock()
	former, found := c.providerInformers[resource.GroupResource()]
	if found && former.version == resource.Version {
		return former.SharedIndexInformer
	}
	if found {
		former.stop()
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(c.client.ProviderObjects, resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).
		Informer()
	// SetTransform and SetWatchErrorHandlerWithContext fail only after the informer has started.
	_ = informer.SetTransform(stripUnusedFields)
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsNotFound(err) { // the API server does not serve this version any more
			c.kinds.forget(resource.GroupResource())
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	ctx, stop := context.WithCancel(c.ctx)
	c.providerInformers[resource.GroupResource()] = providerInformer{informer, resource.Version, stop}
	c.Cluster.SetRunningInformer(ResourceName(resource), informer)
	for _, tell := range c.informerHandlers {
		tell(ResourceName(resource), informer)
	}
	go informer.RunWithContext(ctx)
	return informer
}

// OnProviderInformer calls do for each existing cache of a provider's resource, and later for each added cache.
// OnProviderInformer calls do while it holds the lock of c, so do must not call ProviderObject.
func (c *Cache) OnProviderInformer(do func(observecache.Resource, cache.SharedIndexInformer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for resource, informer := range c.providerInformers {
		do(observecache.Resource(resource.String()), informer.SharedIndexInformer)
	}
	c.informerHandlers = append(c.informerHandlers, do)
}
