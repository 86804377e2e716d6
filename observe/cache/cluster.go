// Package cache reads a control cluster and its target for the bridge and the activities: informers with indexes, and
// reads from the API server. Package cache writes nothing.
package cache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/generated/informers/externalversions"
	"millwright/api/v1alpha1"
	"millwright/decide/ownership"
)

// ObjectRef identifies one object. A later object with the same name has another UID.
type ObjectRef struct {
	Namespace string
	Name      string
	UID       string
}

// Key returns namespace/name.
func (r ObjectRef) Key() string { return r.Namespace + "/" + r.Name }

// Resource is the name of a resource in a MinVersions.
type Resource string

// A decision waits for the caches of these resources
const (
	MachinesResource        Resource = "machines"
	SetsResource            Resource = "machinesets"
	DeploymentsResource     Resource = "machinedeployments"
	ClassesResource         Resource = "machineclasses"
	RolloutPoliciesResource Resource = "rolloutpolicies"
	NodesResource           Resource = "nodes"
	SecretsResource         Resource = "secrets" // the cache contains only the metadata of Secrets

	ControlPlanesResource Resource = "controlplanes" // the control plane that machines join, of any kind
)

// The indexes of the caches
const (
	OwnerUIDIndex  = "owner"     // key: UID of the controller
	ownerNameIndex = "ownerName" // key: kind, namespace and name of the controller
	classIndex     = "class"     // key: namespace/name of the class of a machine, or of a set's template
	nodeIndex      = "node"      // key: name of a machine's node
	instanceIndex  = "instance"  // key: normalized provider ID of a node or of a machine
	uidIndex       = "uid"
	cloudCallIndex = "call" // key: kind of a machine's cloud call, and UID of its set; see MachinesCallingCloud
)

// Cluster reads one control cluster, which contains the machine objects, and its target cluster, which contains the
// nodes. All methods are safe for concurrent use. The returned objects belong to the caches; callers must not change
// them.
type Cluster struct {
	client versioned.Interface
	// if targets is nil, the target of all namespaces; nil: machines join no cluster
	target              *Target
	targetSource        TargetSource       // the targets by namespace; nil: all namespaces have the same target
	metadataClient      metadata.Interface // nil client: Secrets are not watched
	informerFactories   []interface{ Start(<-chan struct{}) }
	Informers           map[Resource]cache.SharedIndexInformer
	informersAddedLater sync.Map // informers added after Start: Resource → cache.SharedIndexInformer

	Preflight      PreflightConfig
	workerAbsences atomic.Pointer[WorkerAbsences]

	Scope            NamespaceScope // Millwright's namespaces. Set NamespaceScope before Start.
	otherControllers otherControllers
	holds            namespaceHolds

	// WithoutSecretFinalizers means that Secrets of classes get no finalizers, and that no decision uses Secrets. Set
	// WithoutSecretFinalizers before Start.
	WithoutSecretFinalizers bool
	// WithoutAutoscalerGuard means that rollouts do not stop the cluster autoscaler from scaling down nodes. Set
	// WithoutAutoscalerGuard before Start.
	WithoutAutoscalerGuard bool
	// BehavesAsMCM selects machine-controller-manager's behavior where Millwright differs (docs/migration.md). Set
	// BehavesAsMCM before Start.
	BehavesAsMCM bool
}

// NewCluster prepares caches that read with these clients; Start fills the caches. A nil target means that machines
// join no cluster. meta is a client of the control cluster for a cache of the metadata of Secrets. If meta is nil,
// Secrets are not watched.
func NewCluster(client versioned.Interface, target kubernetes.Interface, meta metadata.Interface) (*Cluster, error) {
	machines := externalversions.NewSharedInformerFactoryWithOptions(client, 0,
		externalversions.WithTransform(stripUnusedFields))
	v1 := machines.Machine().V1alpha1()
	c := &Cluster{
		client:            client,
		metadataClient:    meta,
		informerFactories: []interface{ Start(<-chan struct{}) }{machines},
		Informers: map[Resource]cache.SharedIndexInformer{
			MachinesResource:        v1.Machines().Informer(),
			SetsResource:            v1.MachineSets().Informer(),
			DeploymentsResource:     v1.MachineDeployments().Informer(),
			ClassesResource:         v1.MachineClasses().Informer(),
			RolloutPoliciesResource: v1.RolloutPolicies().Informer(),
		},
	}
	if target != nil {
		c.target = NewTarget(target, "")
		if err := c.target.WatchNodes(); err != nil {
			return nil, err
		}
	}
	if meta != nil {
		secrets := metadatainformer.NewSharedInformerFactoryWithOptions(
			meta,
			0,
			metadatainformer.WithTransform(stripSecretData),
		)
		c.Informers[SecretsResource] = secrets.ForResource(secretsGVR).Informer()
		c.informerFactories = append(c.informerFactories, secrets)
	}
	err := c.Informers[MachinesResource].AddIndexers(cache.Indexers{
		OwnerUIDIndex: indexByKey(ownerKeyOfObject), ownerNameIndex: indexByKey(ownerNameKeyOfObject),
		classIndex: indexByKey(func(m *v1alpha1.Machine) string { return m.Namespace + "/" + m.Spec.Class.Name }),
		nodeIndex:  indexByKey(NodeNameOfMachine), cloudCallIndex: indexByKey(cloudCallKeyOfMachine),
		instanceIndex: indexByKey(func(m *v1alpha1.Machine) string { return ownership.ProviderIDKey(m.Spec.ProviderID) }),
		uidIndex:      indexByKey(func(m *v1alpha1.Machine) string { return string(m.UID) }),
	})
	if err != nil {
		return nil, fmt.Errorf("index machines: %w", err)
	}
	if err := c.Informers[SetsResource].AddIndexers(
		cache.Indexers{
			OwnerUIDIndex:  indexByKey(ownerKeyOfObject),
			ownerNameIndex: indexByKey(ownerNameKeyOfObject),
			classIndex:     indexByKey(ClassKeyOfSet),
		},
	); err != nil {
		return nil, fmt.Errorf("index sets: %w", err)
	}
	return c, nil
}

// Start fills the caches and keeps them current until ctx ends. Start returns when the caches are filled, or returns an
// error if ctx ends first. Start does not wait for the control plane, whose kind may not be installed yet, nor for
// disruption budgets if the target does not serve policy/v1. Call Start once.
func (c *Cluster) Start(ctx context.Context) error {
	c.StartWithoutWaiting(ctx)
	return c.AwaitFilledCaches(ctx)
}

// StartWithoutWaiting keeps the caches current until ctx ends, and does not wait until the caches are filled. Call
// StartWithoutWaiting once, instead of Start.
func (c *Cluster) StartWithoutWaiting(ctx context.Context) {
	for _, f := range c.informerFactories {
		f.Start(ctx.Done())
	}
	if informer := c.Informers[ControlPlanesResource]; informer != nil {
		go informer.RunWithContext(ctx)
	}
	c.target.Start(ctx)
}

// AwaitFilledCaches waits until the caches that Start waits for are filled. AwaitFilledCaches returns an error if ctx
// ends first.
func (c *Cluster) AwaitFilledCaches(ctx context.Context) error {
	for _, informer := range c.otherControllers.informers {
		if !cache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
			return fmt.Errorf("fill the caches of Leases and namespaces: %w", context.Cause(ctx))
		}
	}
	for resource, informer := range c.Informers {
		filled := true
		if resource != ControlPlanesResource {
			filled = cache.WaitFor(ctx, "", informer.HasSyncedChecker())
		}
		if !filled {
			return fmt.Errorf("fill cache of %s: %w", resource, context.Cause(ctx))
		}
	}
	return c.target.AwaitFilledCaches(ctx)
}

// Informer returns the cache of a resource; nil if the resource is not watched.
func (c *Cluster) Informer(resource Resource) cache.SharedIndexInformer {
	if informer := c.Informers[resource]; informer != nil {
		return informer
	}
	if informer, found := c.informersAddedLater.Load(resource); found {
		return informer.(cache.SharedIndexInformer)
	}
	return nil
}

// AddInformer adds the cache of another resource; Start fills the cache. Call AddInformer before Start.
func (c *Cluster) AddInformer(resource Resource, informer cache.SharedIndexInformer) {
	c.Informers[resource] = informer
	c.informerFactories = append(c.informerFactories, informerRunner{informer})
}

// SetRunningInformer sets the cache of another resource after Start. The caller runs the informer. Decisions also wait
// until this cache has reached their minimum version. The informer replaces a former informer of the resource.
func (c *Cluster) SetRunningInformer(resource Resource, informer cache.SharedIndexInformer) {
	c.informersAddedLater.Store(resource, informer)
}

// informerRunner starts one informer.
type informerRunner struct{ informer cache.SharedIndexInformer }

// Start runs the informer until stop is closed.
func (r informerRunner) Start(stop <-chan struct{}) { go r.informer.Run(stop) }

// WatchDrainResources also caches the resources that only drains need: drain rules, and disruption budgets and volume
// attachments of the target of all namespaces. Call WatchDrainResources once, after SetTargetSource and before Start.
// Without any target, WatchDrainResources does nothing.
func (c *Cluster) WatchDrainResources() error {
	if c.target == nil && c.targetSource == nil {
		return nil
	}
	rules := externalversions.NewSharedInformerFactoryWithOptions(
		c.client,
		0,
		externalversions.WithTransform(stripUnusedFields),
	)
	c.informerFactories = append(c.informerFactories, rules)
	c.Informers[DrainRulesResource] = rules.Machine().V1alpha1().MachineDrainRules().Informer()
	if c.target == nil {
		return nil
	}
	return c.target.WatchDrainResources()
}

// Client returns the client of the control cluster.
func (c *Cluster) Client() versioned.Interface { return c.client }

// TargetSource finds the target of a namespace. All methods must be safe for concurrent use, and must not block.
type TargetSource interface {
	// Target returns the cluster that the machines of a namespace join; nil if these machines join no cluster.
	Target(namespace string) *Target
	// OnTarget calls handle for each present target, and for each later target before the target's caches start. A nil
	// target means that the namespace has no target any more. The calls end when stop is called.
	OnTarget(handle func(namespace string, target *Target)) (stop func())
	// KeepConnected keeps the target of a namespace connected for some time, even if this process does not serve the
	// namespace.
	KeepConnected(namespace string)
}

// SetTargetSource sets the source of each namespace's target. Call SetTargetSource before Start.
func (c *Cluster) SetTargetSource(targets TargetSource) { c.targetSource = targets }

// HasTargetPerNamespace reports whether each namespace has its own target.
func (c *Cluster) HasTargetPerNamespace() bool { return c.targetSource != nil }

// Target returns the cluster that the machines of a namespace join; nil if these machines join no cluster.
func (c *Cluster) Target(namespace string) *Target {
	if c.targetSource != nil {
		return c.targetSource.Target(namespace)
	}
	return c.target
}

// ClusterNameOfNamespace returns the name of the cluster that the machines of a namespace join, for people: the name of
// the namespace. ClusterNameOfNamespace returns an empty name if all namespaces have one target.
func (c *Cluster) ClusterNameOfNamespace(namespace string) string {
	if c.targetSource == nil {
		return ""
	}
	return namespace
}

// KeepTargetConnected keeps the target of a namespace connected for some time. Activities call KeepTargetConnected,
// because a run keeps its task queue after its namespace has been moved to a shard that this process does not serve.
func (c *Cluster) KeepTargetConnected(namespace string) {
	if c.targetSource != nil {
		c.targetSource.KeepConnected(namespace)
	}
}

// OnTarget calls handle for each present target, and for each later target. The calls end when stop is called. For a
// target of all namespaces, handle gets an empty namespace.
func (c *Cluster) OnTarget(handle func(namespace string, target *Target)) (stop func()) {
	if c.targetSource != nil {
		return c.targetSource.OnTarget(handle)
	}
	handle(metav1.NamespaceAll, c.target)
	return func() {}
}

// TargetClient returns the client of a namespace's target; nil if the namespace has no target.
func (c *Cluster) TargetClient(namespace string) kubernetes.Interface {
	return c.Target(namespace).Client()
}

func getByKey[T any](informer cache.SharedIndexInformer, key string) (T, bool) {
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

// IndexedObjects returns the objects of a cache that have this value in an index, unsorted; nil if the resource is not
// watched.
func IndexedObjects[T any](informer cache.SharedIndexInformer, index, value string) []T {
	if informer == nil {
		return nil
	}
	items, err := informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil // cannot happen: NewCluster adds the index
	}
	return castObjects[T](items)
}

// AllObjects returns the objects of a cache, unsorted.
func AllObjects[T any](informer cache.SharedIndexInformer) []T {
	return castObjects[T](informer.GetStore().List())
}

func castObjects[T any](items []any) []T {
	result := make([]T, 0, len(items))
	for _, item := range items {
		result = append(result, item.(T))
	}
	return result
}

// PointersToItems returns pointers to the elements of a slice.
func PointersToItems[T any](items []T) []*T {
	result := make([]*T, len(items))
	for i := range items {
		result[i] = &items[i]
	}
	return result
}

// indexByKey returns an index function by key for objects of type T. The index leaves out objects with an empty key.
func indexByKey[T any](key func(T) string) cache.IndexFunc {
	return func(object any) ([]string, error) {
		if k := key(object.(T)); k != "" {
			return []string{k}, nil
		}
		return nil, nil
	}
}

// OwnerIndexers returns the index OwnerUIDIndex for a cache of any kind of objects.
func OwnerIndexers() cache.Indexers {
	return cache.Indexers{OwnerUIDIndex: indexByKey(ownerKeyOfObject)}
}

func ownerKeyOfObject(o metav1.Object) string {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return string(ref.UID)
	}
	return OrphanKey(o.GetNamespace())
}

func ownerNameKeyOfObject(o metav1.Object) string {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return ownerNameKey(ref.Kind, o.GetNamespace(), ref.Name)
	}
	return ""
}

func ownerNameKey(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// OrphanKey returns the value, in the index OwnerUIDIndex, of a namespace's objects that have no controller. The value
// differs from every UID.
func OrphanKey(namespace string) string { return "none in " + namespace }

// stripUnusedFields drops fields that no decision needs, because the caches contain thousands of objects.
func stripUnusedFields(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	if node, ok := object.(*corev1.Node); ok && node.Status.Images != nil {
		node.Status.Images = nil
	}
	return object, nil
}

// KindClass is the only kind of class that Millwright reads. Millwright finds a class by its name and ignores the kind
// in the reference.
const KindClass = "MachineClass"

// The kinds of controllers in owner references
const (
	KindSet        = "MachineSet"
	KindDeployment = "MachineDeployment"
)

// ClassKeyOfSet returns the key of the MachineClass in a set's template.
func ClassKeyOfSet(set *v1alpha1.MachineSet) string {
	return set.Namespace + "/" + set.Spec.Template.Spec.Class.Name
}

// SetsOfClass returns the sets whose template names this MachineClass (key namespace/name), unsorted.
func (c *Cluster) SetsOfClass(key string) []*v1alpha1.MachineSet {
	return IndexedObjects[*v1alpha1.MachineSet](c.Informer(SetsResource), classIndex, key)
}

// SecretMetadataClient returns a client for the metadata of a namespace's Secrets. Do not call SecretMetadataClient on
// a Cluster that does not watch Secrets.
func (c *Cluster) SecretMetadataClient(namespace string) metadata.ResourceInterface {
	return c.metadataClient.Resource(secretsGVR).Namespace(namespace)
}

var secretsGVR = corev1.SchemeGroupVersion.WithResource("secrets")

// Secret returns the metadata of a Secret from the cache; found is also false if Secrets are not watched.
func (c *Cluster) Secret(key string) (secret *metav1.PartialObjectMetadata, found bool) {
	if c.Informers[SecretsResource] == nil {
		return nil, false
	}
	return getByKey[*metav1.PartialObjectMetadata](c.Informers[SecretsResource], key)
}

// stripSecretData keeps only the identity, version and finalizers of a Secret: an annotation of kubectl apply contains
// a copy of the Secret's data.
func stripSecretData(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.ObjectMeta = metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
			DeletionTimestamp: m.DeletionTimestamp, Finalizers: m.Finalizers,
		}
	}
	return object, nil
}
