// Package cache reads a control cluster and its target for the bridge and the activities: informers with indexes, and
// reads from the API server. It changes nothing.
package cache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/generated/informers/externalversions"
	"millwright/api/v1alpha1"
	"millwright/decide/ownership"
)

// Ref identifies one object. A new object of the same name has another UID.
type Ref struct {
	Namespace string
	Name      string
	UID       string
}

// Key returns namespace/name.
func (r Ref) Key() string { return r.Namespace + "/" + r.Name }

// Resource names a kind of object in a MinVersions.
type Resource string

// The resources whose caches decisions wait for.
const (
	Machines    Resource = "machines"
	Sets        Resource = "machinesets"
	Deployments Resource = "machinedeployments"
	Classes     Resource = "machineclasses"
	Policies    Resource = "rolloutpolicies"
	Nodes       Resource = "nodes"
	Secrets     Resource = "secrets" // their metadata only

	ControlPlanes Resource = "controlplanes" // the control plane that machines join, of any kind
)

// The indexes of the caches.
const (
	ByOwner     = "owner"     // UID of the controller
	byOwnerName = "ownerName" // kind, namespace and name of the controller
	byClass     = "class"     // namespace/name of the class of a machine, or of a set's template
	byNode      = "node"      // name of a machine's node
	byInstance  = "instance"  // key of the provider ID of a node or of a machine
	byUID       = "uid"
	byCall      = "call" // why a machine calls the cloud, and the UID of its set; see MachinesCalling
)

// Cluster reads one control cluster, which holds the machine objects, and its target, which holds the nodes. All
// methods are safe for concurrent use. The objects that they return belong to the caches and must not be changed.
type Cluster struct {
	client    versioned.Interface
	target    kubernetes.Interface
	metadata  metadata.Interface // nil: Secrets are not watched
	factories []interface{ Start(<-chan struct{}) }
	Informers map[Resource]cache.SharedIndexInformer
	tracked   sync.Map // Resource → cache.SharedIndexInformer, added after Start

	Preflight Preflight
	attaching *link // watches of volume attachments; nil when they are not watched
	absences  atomic.Pointer[Absences]
	evictions evictions // of the target

	Scope   Scope // namespaces that are Millwright's. Set it before Start.
	foreign foreign

	// Unguarded: the Secrets of classes get no finalizers, and are no facts. Set it before Start.
	Unguarded bool
	// Unguided: rollouts do not keep the cluster autoscaler from scaling down nodes. Set it before Start.
	Unguided bool
	// AsMCM: behave as machine-controller-manager where Millwright differs (docs/migration.md). Set it before Start.
	AsMCM bool
}

// NewCluster prepares caches that read with these clients; Start fills them. A nil target means that machines join no
// cluster. With meta, a client of the control cluster, the metadata of Secrets is cached too; with nil, Secrets are not
// watched.
func NewCluster(client versioned.Interface, target kubernetes.Interface, meta metadata.Interface) (*Cluster, error) {
	machines := externalversions.NewSharedInformerFactoryWithOptions(client, 0,
		externalversions.WithTransform(strip))
	v1 := machines.Machine().V1alpha1()
	c := &Cluster{
		client:    client,
		target:    target,
		metadata:  meta,
		factories: []interface{ Start(<-chan struct{}) }{machines},
		Informers: map[Resource]cache.SharedIndexInformer{
			Machines:    v1.Machines().Informer(),
			Sets:        v1.MachineSets().Informer(),
			Deployments: v1.MachineDeployments().Informer(),
			Classes:     v1.MachineClasses().Informer(),
			Policies:    v1.RolloutPolicies().Informer(),
		},
		evictions: evictions{asking: make(chan struct{}, 1)},
	}
	if target != nil {
		nodes := informers.NewSharedInformerFactoryWithOptions(target, 0, informers.WithTransform(strip))
		c.Informers[Nodes] = nodes.Core().V1().Nodes().Informer()
		err := c.Informers[Nodes].AddIndexers(
			cache.Indexers{byInstance: index(func(n *corev1.Node) string { return ownership.Key(n.Spec.ProviderID) })},
		)
		if err != nil {
			return nil, fmt.Errorf("index nodes: %w", err)
		}
		c.factories = append(c.factories, nodes)
	}
	if meta != nil {
		secrets := metadatainformer.NewSharedInformerFactoryWithOptions(meta, 0, metadatainformer.WithTransform(stripSecret))
		c.Informers[Secrets] = secrets.ForResource(secretsResource).Informer()
		c.factories = append(c.factories, secrets)
	}
	err := c.Informers[Machines].AddIndexers(cache.Indexers{
		ByOwner: index(ownerOf), byOwnerName: index(ownerNameOf),
		byClass: index(func(m *v1alpha1.Machine) string { return m.Namespace + "/" + m.Spec.Class.Name }),
		byNode:  index(NodeNameOf), byCall: index(callOf),
		byInstance: index(func(m *v1alpha1.Machine) string { return ownership.Key(m.Spec.ProviderID) }),
		byUID:      index(func(m *v1alpha1.Machine) string { return string(m.UID) }),
	})
	if err != nil {
		return nil, fmt.Errorf("index machines: %w", err)
	}
	if err := c.Informers[Sets].AddIndexers(
		cache.Indexers{ByOwner: index(ownerOf), byOwnerName: index(ownerNameOf), byClass: index(ClassOfSet)},
	); err != nil {
		return nil, fmt.Errorf("index sets: %w", err)
	}
	return c, nil
}

// Start fills the caches and keeps them current until ctx ends. It returns when they are filled, or with an error when
// ctx ends first. It does not wait for the control plane, whose kind may not be installed yet, nor for the disruption
// budgets of a target that serves none. Call it once.
func (c *Cluster) Start(ctx context.Context) error {
	c.Begin(ctx)
	return c.AwaitFilled(ctx)
}

// Begin keeps the caches current until ctx ends, without waiting until they are filled. Call it once, instead of Start.
func (c *Cluster) Begin(ctx context.Context) {
	for _, f := range c.factories {
		f.Start(ctx.Done())
	}
	if informer := c.Informers[ControlPlanes]; informer != nil {
		go informer.RunWithContext(ctx)
	}
}

// AwaitFilled waits until the caches that Start waits for are filled, and returns an error if ctx ends first.
func (c *Cluster) AwaitFilled(ctx context.Context) error {
	for _, informer := range c.foreign.informers {
		if !cache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
			return fmt.Errorf("fill the caches of Leases and namespaces: %w", context.Cause(ctx))
		}
	}
	for resource, informer := range c.Informers {
		filled := true
		switch resource {
		case ControlPlanes:
		case Budgets:
			filled = c.awaitBudgets(ctx, informer)
		default:
			filled = cache.WaitFor(ctx, "", informer.HasSyncedChecker())
		}
		if !filled {
			return fmt.Errorf("fill cache of %s: %w", resource, context.Cause(ctx))
		}
	}
	return nil
}

// awaitBudgets waits until the cache of disruption budgets is filled, or the target has said that it cannot evict:
// without policy/v1 there are no budgets, and the cache stays empty. It returns false when ctx ends first.
func (c *Cluster) awaitBudgets(ctx context.Context, informer cache.SharedIndexInformer) bool {
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, budgetsWithin)
		filled := cache.WaitFor(bounded, "", informer.HasSyncedChecker())
		cancel()
		if filled {
			return true
		}
		bounded, cancel = context.WithTimeout(ctx, budgetsWithin)
		why, err := c.NoEviction(bounded, metav1.NamespaceAll)
		cancel()
		if err == nil && why != "" {
			return true
		}
	}
	return false
}

// Informer returns the cache of a resource; nil when the resource is not watched.
func (c *Cluster) Informer(resource Resource) cache.SharedIndexInformer {
	if informer := c.Informers[resource]; informer != nil {
		return informer
	}
	if informer, found := c.tracked.Load(resource); found {
		return informer.(cache.SharedIndexInformer)
	}
	return nil
}

// Client returns the client of the control cluster.
func (c *Cluster) Client() versioned.Interface { return c.client }

// Target returns the client of the cluster that the machines of a namespace join; nil when they join none. There is one
// target for all namespaces.
func (c *Cluster) Target(namespace string) kubernetes.Interface {
	_ = namespace // for several targets, later
	return c.target
}

func get[T any](informer cache.SharedIndexInformer, key string) (T, bool) {
	var none T
	if informer == nil {
		return none, false
	}
	item, found, err := informer.GetStore().GetByKey(key)
	if err != nil || !found {
		return none, false
	}
	return item.(T), true
}

// Indexed returns the objects of a cache with this value in an index, in no order; none when the resource is not
// watched.
func Indexed[T any](informer cache.SharedIndexInformer, index, value string) []T {
	if informer == nil {
		return nil
	}
	items, err := informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil // the index is added in NewCluster
	}
	return as[T](items)
}

// All returns the objects of a cache, in no order.
func All[T any](informer cache.SharedIndexInformer) []T { return as[T](informer.GetStore().List()) }

func as[T any](items []any) []T {
	result := make([]T, 0, len(items))
	for _, item := range items {
		result = append(result, item.(T))
	}
	return result
}

// Pointers returns pointers to the items of a list.
func Pointers[T any](items []T) []*T {
	result := make([]*T, len(items))
	for i := range items {
		result[i] = &items[i]
	}
	return result
}

// index returns an index of the objects of type T by key. An object with an empty key is not in the index.
func index[T any](key func(T) string) cache.IndexFunc {
	return func(object any) ([]string, error) {
		if k := key(object.(T)); k != "" {
			return []string{k}, nil
		}
		return nil, nil
	}
}

// OwnerIndex returns the index ByOwner for a cache of objects of any kind.
func OwnerIndex() cache.Indexers { return cache.Indexers{ByOwner: index(ownerOf)} }

func ownerOf(o metav1.Object) string {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return string(ref.UID)
	}
	return OrphansOf(o.GetNamespace())
}

func ownerNameOf(o metav1.Object) string {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return ownerName(ref.Kind, o.GetNamespace(), ref.Name)
	}
	return ""
}

func ownerName(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// OrphansOf is the value in the index ByOwner of the objects of a namespace that have no controller. No UID looks like
// it.
func OrphansOf(namespace string) string { return "none in " + namespace }

// strip drops the fields that no fact needs, because the caches hold thousands of objects.
func strip(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	if node, ok := object.(*corev1.Node); ok && node.Status.Images != nil {
		node.Status.Images = nil
	}
	return object, nil
}

// KindClass is the only kind of class that Millwright reads. It finds a class by its name, whatever kind a reference
// says.
const KindClass = "MachineClass"

// The kinds of controllers in owner references.
const (
	KindSet        = "MachineSet"
	KindDeployment = "MachineDeployment"
)

// ClassOfSet returns the key of the MachineClass that the template of a set names.
func ClassOfSet(set *v1alpha1.MachineSet) string {
	return set.Namespace + "/" + set.Spec.Template.Spec.Class.Name
}

// SetsOfClass returns the sets whose template names a MachineClass (key namespace/name), in no order.
func (c *Cluster) SetsOfClass(key string) []*v1alpha1.MachineSet {
	return Indexed[*v1alpha1.MachineSet](c.Informer(Sets), byClass, key)
}

// SecretMetadata returns a client of the metadata of a namespace's Secrets. Do not call it for a Cluster that does not
// watch Secrets.
func (c *Cluster) SecretMetadata(namespace string) metadata.ResourceInterface {
	return c.metadata.Resource(secretsResource).Namespace(namespace)
}

var secretsResource = corev1.SchemeGroupVersion.WithResource("secrets")

// Secret returns the metadata of a Secret from the cache; found is false, too, if Secrets are not watched.
func (c *Cluster) Secret(key string) (secret *metav1.PartialObjectMetadata, found bool) {
	if c.Informers[Secrets] == nil {
		return nil, false
	}
	return get[*metav1.PartialObjectMetadata](c.Informers[Secrets], key)
}

// stripSecret keeps only the identity, version and finalizers of a Secret: kubectl apply leaves a copy of its data in
// an annotation.
func stripSecret(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.ObjectMeta = metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
			DeletionTimestamp: m.DeletionTimestamp, Finalizers: m.Finalizers,
		}
	}
	return object, nil
}
