package cache

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	"millwright/decide/ownership"
)

// Target is a cluster that machines join: the client, and the caches of nodes and of what drains read. The methods of
// a nil Target answer as those of a cluster without nodes. All methods are safe for concurrent use.
type Target struct {
	client            kubernetes.Interface
	factory           informers.SharedInformerFactory
	informers         map[Resource]cache.SharedIndexInformer
	attachmentWatches *watchState // watches of volume attachments; nil if volume attachments are not watched
	evictionSupport   evictionSupport
}

// NewTarget returns a target without caches.
func NewTarget(client kubernetes.Interface) *Target {
	return &Target{
		client:          client,
		factory:         informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(stripUnusedFields)),
		informers:       map[Resource]cache.SharedIndexInformer{},
		evictionSupport: evictionSupport{discoverySlot: make(chan struct{}, 1)},
	}
}

// WatchNodes adds the cache of the nodes. Call WatchNodes before Start.
func (t *Target) WatchNodes() error {
	t.informers[Nodes] = t.factory.Core().V1().Nodes().Informer()
	err := t.informers[Nodes].AddIndexers(cache.Indexers{
		byInstance: indexByKey(func(n *corev1.Node) string { return ownership.ProviderIDKey(n.Spec.ProviderID) }),
	})
	if err != nil {
		return fmt.Errorf("index nodes: %w", err)
	}
	return nil
}

// WatchDrains adds the caches of disruption budgets and volume attachments, which only drains read. Call WatchDrains
// before Start.
func (t *Target) WatchDrains() error {
	t.informers[Budgets] = t.factory.Policy().V1().PodDisruptionBudgets().Informer()
	t.attachmentWatches = &watchState{}
	t.informers[Attachments] = t.factory.InformerFor(
		&storagev1.VolumeAttachment{},
		t.attachmentWatches.newAttachmentInformer,
	)
	err := t.informers[Attachments].AddIndexers(cache.Indexers{
		byNode:      indexByKey(func(a *storagev1.VolumeAttachment) string { return a.Spec.NodeName }),
		volumeIndex: indexByKey(VolumeOfAttachment),
	})
	if err != nil {
		return fmt.Errorf("index volume attachments: %w", err)
	}
	return nil
}

// Start keeps the caches current until ctx ends. Start does not wait until the caches are filled. Call Start once.
func (t *Target) Start(ctx context.Context) {
	if t != nil {
		t.factory.Start(ctx.Done())
	}
}

// AwaitFilledCaches waits until the caches are filled. AwaitFilledCaches does not wait for disruption budgets if the
// target does not serve policy/v1. It returns an error if ctx ends first.
func (t *Target) AwaitFilledCaches(ctx context.Context) error {
	if t == nil {
		return nil
	}
	for resource, informer := range t.informers {
		var filled bool
		if resource == Budgets {
			filled = t.awaitBudgetCache(ctx, informer)
		} else {
			filled = cache.WaitFor(ctx, "", informer.HasSyncedChecker())
		}
		if !filled {
			return fmt.Errorf("fill cache of %s: %w", resource, context.Cause(ctx))
		}
	}
	return nil
}

// awaitBudgetCache waits until the cache of disruption budgets is filled, or until the target has answered that it
// cannot evict: without policy/v1 there are no budgets, and the cache stays empty. awaitBudgetCache returns false if
// ctx ends first.
func (t *Target) awaitBudgetCache(ctx context.Context, informer cache.SharedIndexInformer) bool {
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, budgetCacheTimeout)
		filled := cache.WaitFor(bounded, "", informer.HasSyncedChecker())
		cancel()
		if filled {
			return true
		}
		bounded, cancel = context.WithTimeout(ctx, budgetCacheTimeout)
		why, err := t.NoEvictionReason(bounded)
		cancel()
		if err == nil && why != "" {
			return true
		}
	}
	return false
}

// Client returns the client of the target; nil for a nil Target.
func (t *Target) Client() kubernetes.Interface {
	if t == nil {
		return nil
	}
	return t.client
}

// Informer returns the cache of a resource of the target; nil if the resource is not watched.
func (t *Target) Informer(resource Resource) cache.SharedIndexInformer {
	if t == nil {
		return nil
	}
	return t.informers[resource]
}

// Node returns a node from the cache.
func (t *Target) Node(name string) (*corev1.Node, bool) {
	return getByKey[*corev1.Node](t.Informer(Nodes), name)
}

// AllNodes returns the nodes of the cache, unsorted.
func (t *Target) AllNodes() []*corev1.Node {
	if t.Informer(Nodes) == nil {
		return nil
	}
	return AllObjects[*corev1.Node](t.Informer(Nodes))
}

// NodesOfInstance returns the nodes of an instance, sorted by name; none for an empty provider ID.
func (t *Target) NodesOfInstance(providerID string) []*corev1.Node {
	nodes := IndexedObjects[*corev1.Node](t.Informer(Nodes), byInstance, ownership.ProviderIDKey(providerID))
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

// NodeOfMachine returns the node that a machine names, from the cache; nil if the cache has no such node.
func (t *Target) NodeOfMachine(m *v1alpha1.Machine) *corev1.Node {
	node, _ := t.Node(NodeNameOfMachine(m))
	return node
}
