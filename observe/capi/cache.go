package capi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

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

// The resources whose caches decisions wait for. Those of templates and control planes are added when a set names them.
const (
	SetsResource        observecache.Resource = "machinesets.cluster.x-k8s.io"
	MachinesResource    observecache.Resource = "machines.cluster.x-k8s.io"
	DeploymentsResource observecache.Resource = "machinedeployments.cluster.x-k8s.io"
	ClustersResource    observecache.Resource = "clusters.cluster.x-k8s.io"
	RulesResource       observecache.Resource = "machinedrainrules.cluster.x-k8s.io"
)

// Field managers of what Millwright writes.
const (
	// FieldManager is that of the objects that it applies for a MachineSet of Cluster API.
	FieldManager = "millwright-machineset"
	// DeploymentFieldManager is that of the MachineSets that it writes for a MachineDeployment of Cluster API.
	DeploymentFieldManager = "millwright-machinedeployment"
	// InPlaceFieldManager is that of the annotations of an update in place on a Machine. It differs from FieldManager,
	// because Cluster API's core removes these annotations: what a field manager has applied goes when it applies the
	// object without it.
	InPlaceFieldManager = "millwright-in-place"
)

// Finalizer is Millwright's finalizer on a MachineSet or MachineDeployment. It is another one than Cluster API's, which
// Cluster API's controller of the kind writes before it does anything else. So an admission policy that refuses Cluster
// API's finalizer stops that controller, and an object with that finalizer shows that no policy does.
const Finalizer = "machine.sapcloud.io/cluster-api"

// HandedOver says what is pending for a set or a deployment that has lost the label of Millwright.
const HandedOver = "it was handed over: Millwright's finalizer is left"

// Settings say which objects are Millwright's.
type Settings struct {
	// Filter is the value of the label cluster.x-k8s.io/watch-filter of the MachineSets and MachineDeployments that
	// Millwright reconciles. It must not be empty.
	Filter string
	// Upstream is the value of that label on new Machines and their clones, which Cluster API's own controllers reconcile.
	// Empty: they get no such label from Millwright.
	Upstream string
}

// Cache holds the objects of Cluster API in the caches of a cluster. All methods are safe for concurrent use. The
// objects that they return belong to the caches and must not be changed.
type Cache struct {
	Settings
	Cluster *observecache.Cluster
	client  *Client
	kinds   kinds

	ctx     context.Context // ends the caches that are added later
	mu      sync.Mutex
	foreign map[schema.GroupVersionResource]cache.SharedIndexInformer
	added   []func(observecache.Resource, cache.SharedIndexInformer)
}

// Watch adds the objects of Cluster API to the caches of a cluster. Call it before the caches start. ctx ends the
// caches that are added later.
func Watch(ctx context.Context, cluster *observecache.Cluster, client *Client, settings Settings) (*Cache, error) {
	c := &Cache{
		Settings: settings,
		Cluster:  cluster,
		client:   client,
		ctx:      ctx,
		foreign:  map[schema.GroupVersionResource]cache.SharedIndexInformer{},
	}
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	for resource, informer := range map[observecache.Resource]cache.SharedIndexInformer{
		SetsResource:        informer(client.Sets(metav1.NamespaceAll), &clusterv1.MachineSet{}, observecache.OwnerIndex()),
		MachinesResource:    informer(client.Machines(metav1.NamespaceAll), &clusterv1.Machine{}, observecache.OwnerIndex()),
		DeploymentsResource: informer(client.Deployments(metav1.NamespaceAll), &clusterv1.MachineDeployment{}, byNamespace),
		ClustersResource:    informer(client.Clusters(metav1.NamespaceAll), &clusterv1.Cluster{}, byNamespace),
	} {
		if err := informer.SetTransform(strip); err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource, err)
		}
		cluster.Watch(resource, informer)
	}
	return c, nil
}

// WatchRules also caches Cluster API's drain rules. Call it once, before the caches start.
func (c *Cache) WatchRules() error {
	rules := informer(
		c.client.Rules(metav1.NamespaceAll),
		&clusterv1.MachineDrainRule{},
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	)
	if err := rules.SetTransform(strip); err != nil {
		return fmt.Errorf("watch %s: %w", RulesResource, err)
	}
	c.Cluster.Watch(RulesResource, rules)
	return nil
}

// NewReader returns a Cache without caches, for a process that reads the API server now and then. Only the methods that
// read live may be called.
func NewReader(client *Client, settings Settings) *Cache {
	return &Cache{Settings: settings, Cluster: &observecache.Cluster{}, client: client}
}

// informer returns a cache of the objects of one kind.
func informer[T, L runtime.Object](client Typed[T, L], example T, indexers cache.Indexers) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: client.Watch,
	}, example, 0, indexers)
}

// strip drops what no fact needs: the managed fields, except those of Millwright, which say what it has to remove
// again.
func strip(object any) (any, error) {
	o, err := meta.Accessor(object)
	if err != nil {
		return object, nil //nolint:nilerr // a tombstone
	}
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == FieldManager || entry.Manager == DeploymentFieldManager {
			kept = append(kept, entry)
		}
	}
	o.SetManagedFields(kept)
	return object, nil
}

// Client returns the client of the management cluster.
func (c *Cache) Client() *Client { return c.client }

// Set returns a MachineSet that is Millwright's, or that was and still has its finalizer.
func (c *Cache) Set(key string) (*clusterv1.MachineSet, bool) {
	set, found := get[*clusterv1.MachineSet](c, SetsResource, key)
	return set, found && (c.Ours(set) || Lost(set))
}

// Ours reports whether Millwright reconciles a set or a deployment.
func (c *Cache) Ours(o metav1.Object) bool {
	return o.GetLabels()[clusterv1.WatchLabel] == c.Filter
}

// Lost reports whether a set or a deployment has Millwright's finalizer. If it is not Millwright's any more, it was
// handed over, and the finalizer has to be removed.
func Lost(o metav1.Object) bool { return slices.Contains(o.GetFinalizers(), Finalizer) }

// Machine returns a Machine of Cluster API.
func (c *Cache) Machine(key string) (*clusterv1.Machine, bool) {
	return get[*clusterv1.Machine](c, MachinesResource, key)
}

// Deployment returns a MachineDeployment of Cluster API.
func (c *Cache) Deployment(key string) (*clusterv1.MachineDeployment, bool) {
	return get[*clusterv1.MachineDeployment](c, DeploymentsResource, key)
}

// OwnDeployment returns a MachineDeployment that is Millwright's, or that was and still has its finalizer.
func (c *Cache) OwnDeployment(key string) (*clusterv1.MachineDeployment, bool) {
	d, found := c.Deployment(key)
	return d, found && (c.Ours(d) || Lost(d))
}

// ClusterNamed returns the Cluster of a key.
func (c *Cache) ClusterNamed(key string) (*clusterv1.Cluster, bool) {
	return get[*clusterv1.Cluster](c, ClustersResource, key)
}

// ClusterOf returns the Cluster that a set belongs to.
func (c *Cache) ClusterOf(set *clusterv1.MachineSet) (*clusterv1.Cluster, bool) {
	return c.ClusterNamed(set.Namespace + "/" + set.Spec.ClusterName)
}

// MachinesOf returns the machines that a set controls, in no order.
func (c *Cache) MachinesOf(set *clusterv1.MachineSet) []*clusterv1.Machine {
	return observecache.Indexed[*clusterv1.Machine](
		c.Cluster.Informer(MachinesResource),
		observecache.ByOwner,
		string(set.UID),
	)
}

// FreeMachines returns the machines of a namespace that have no controller, in no order.
func (c *Cache) FreeMachines(namespace string) []*clusterv1.Machine {
	return observecache.Indexed[*clusterv1.Machine](
		c.Cluster.Informer(MachinesResource),
		observecache.ByOwner,
		observecache.OrphansOf(namespace),
	)
}

// SetsOf returns the sets that a deployment controls, whosoever reconciles them, in no order.
func (c *Cache) SetsOf(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
	return observecache.Indexed[*clusterv1.MachineSet](
		c.Cluster.Informer(SetsResource),
		observecache.ByOwner,
		string(d.UID),
	)
}

// FreeSets returns the sets of a namespace that have no controller, in no order.
func (c *Cache) FreeSets(namespace string) []*clusterv1.MachineSet {
	return observecache.Indexed[*clusterv1.MachineSet](
		c.Cluster.Informer(SetsResource),
		observecache.ByOwner,
		observecache.OrphansOf(namespace),
	)
}

// acts reports whether Millwright reconciles a set or a deployment, and its namespace is Millwright's.
func (c *Cache) acts(o metav1.Object) bool { return c.Ours(o) && c.Cluster.Acts(o.GetNamespace()) }

// Deployments returns all deployments that Millwright acts on, in no order.
func (c *Cache) Deployments() []*clusterv1.MachineDeployment {
	return slices.DeleteFunc(
		observecache.All[*clusterv1.MachineDeployment](c.Cluster.Informer(DeploymentsResource)),
		func(d *clusterv1.MachineDeployment) bool { return !c.acts(d) },
	)
}

// Sets returns all sets that Millwright acts on, in no order.
func (c *Cache) Sets() []*clusterv1.MachineSet {
	return slices.DeleteFunc(
		observecache.All[*clusterv1.MachineSet](c.Cluster.Informer(SetsResource)),
		func(s *clusterv1.MachineSet) bool { return !c.acts(s) },
	)
}

// Names reports whether a set, or its Cluster, names an object of a provider: a template or a control plane.
func (c *Cache) Names(set *clusterv1.MachineSet, o *unstructured.Unstructured) bool {
	cluster, found := c.ClusterOf(set)
	return set.Namespace == o.GetNamespace() &&
		(found && refersTo(o)(cluster.Spec.ControlPlaneRef) || NamesTemplate(&set.Spec.Template.Spec, o))
}

// NamesTemplate reports whether the spec of a machine names a template of its namespace.
func NamesTemplate(spec *clusterv1.MachineSpec, o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(templates(spec), refersTo(o))
}

func refersTo(o *unstructured.Unstructured) func(clusterv1.ContractVersionedObjectReference) bool {
	return func(ref clusterv1.ContractVersionedObjectReference) bool {
		kind := o.GroupVersionKind()
		return ref.Name == o.GetName() && ref.Kind == kind.Kind && ref.APIGroup == kind.Group
	}
}

// Selects reports whether the selector of a set matches a machine. An empty or unreadable selector matches none.
func Selects(set *clusterv1.MachineSet, m *clusterv1.Machine) bool {
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(m.Labels))
}

// ReleasedBy reports whether a set let go of a machine because its selector did not match it any more.
func ReleasedBy(m *clusterv1.Machine, set *clusterv1.MachineSet) bool {
	return m.Annotations[v1alpha1.AnnotationReleasedBy] == string(set.UID)
}

// IsSet reports whether a reference names a MachineSet of Cluster API.
func IsSet(ref metav1.OwnerReference) bool { return isOf(ref, "MachineSet") }

// IsDeployment reports whether a reference names a MachineDeployment of Cluster API.
func IsDeployment(ref metav1.OwnerReference) bool { return isOf(ref, "MachineDeployment") }

func isOf(ref metav1.OwnerReference, kind string) bool {
	return ref.Kind == kind && strings.HasPrefix(ref.APIVersion, clusterv1.GroupVersion.Group+"/")
}

func get[T any](c *Cache, resource observecache.Resource, key string) (T, bool) {
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

// filledWithin bounds the wait for the first filling of a cache that is added while others run. Source: the two seconds
// of a local activity, shared by two templates and a control plane.
const filledWithin = 500 * time.Millisecond

// Foreign returns an object of a provider: a template or a control plane. It is nil if it does not exist; read is false
// if that is not known yet, because its cache is being filled. The first call for a kind adds the cache.
func (c *Cache) Foreign(
	ctx context.Context,
	namespace string,
	ref clusterv1.ContractVersionedObjectReference,
) (o *unstructured.Unstructured, resource schema.GroupVersionResource, read bool, err error) {
	resource, err = c.Resource(ctx, schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
	if err != nil {
		return nil, resource, false, err
	}
	informer := c.track(resource)
	bounded, cancel := context.WithTimeout(ctx, filledWithin)
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

// ResourceName names a resource of a provider in MinVersions.
func ResourceName(resource schema.GroupVersionResource) observecache.Resource {
	return observecache.Resource(resource.GroupResource().String())
}

// track returns the cache of a resource of a provider.
func (c *Cache) track(resource schema.GroupVersionResource) cache.SharedIndexInformer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if informer, found := c.foreign[resource]; found {
		return informer
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(c.client.Objects, resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).
		Informer()
	_ = informer.SetTransform(strip) // fails only once it runs
	c.foreign[resource] = informer
	c.Cluster.Track(ResourceName(resource), informer)
	for _, tell := range c.added {
		tell(ResourceName(resource), informer)
	}
	go informer.RunWithContext(c.ctx)
	return informer
}

// OnTrack calls do for each cache of a provider's resource that there is, and for each that is added later. It is
// called while the cache is locked, and must not call Foreign.
func (c *Cache) OnTrack(do func(observecache.Resource, cache.SharedIndexInformer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for resource, informer := range c.foreign {
		do(ResourceName(resource), informer)
	}
	c.added = append(c.added, do)
}
