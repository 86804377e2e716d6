package cache

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	"millwright/decide/ownership"
)

// Target is a cluster that machines join: the client, and the caches of nodes and of the objects that drains read. A
// nil Target behaves like a cluster without nodes. All methods are safe for concurrent use.
type Target struct {
	client                 kubernetes.Interface
	identity               string                    // equal for two Targets of one cluster; empty: no other Target has this cluster
	nodeInformer           cache.SharedIndexInformer // nil: nodes are not watched
	drainCaches            drainCaches
	evictionSupport        evictionSupport
	status                 atomic.Pointer[TargetStatus] // nil: Ready
	hasAcceptedCredentials atomic.Bool                  // the cluster has accepted the credentials of the client
	absences               atomic.Pointer[WorkerAbsences]
}

// TargetState describes whether a Target can be used.
type TargetState string

// The states of a Target
const (
	TargetReady       TargetState = "Ready"       // the caches are filled, and the API server answers
	TargetMissing     TargetState = "Missing"     // the namespace has no usable kubeconfig
	TargetHeld        TargetState = "Held"        // the namespace is held, so nobody connects to its target
	TargetConnecting  TargetState = "Connecting"  // the API server has not answered yet, or the caches are not filled yet
	TargetUnavailable TargetState = "Unavailable" // the API server does not answer any more; the caches may be out of date
)

// TargetStatus is the state of a Target.
type TargetStatus struct {
	State   TargetState
	Message string    // why the state is not Ready, as a sentence without a period; empty for Ready
	Since   time.Time // start of the state; zero for a target that is always Ready
}

// NewTarget returns a target without caches. Two Targets with different credentials for the same cluster have the same
// identity. The identity may be empty.
func NewTarget(client kubernetes.Interface, identity string) *Target {
	return &Target{
		client:          client,
		identity:        identity,
		drainCaches:     drainCaches{client: client},
		evictionSupport: evictionSupport{discoverySlot: make(chan struct{}, 1)},
	}
}

// Status returns the state of a target. A nil Target is Ready.
func (t *Target) Status() TargetStatus {
	if t == nil {
		return TargetStatus{State: TargetReady}
	}
	if status := t.status.Load(); status != nil {
		return *status
	}
	return TargetStatus{State: TargetReady}
}

// SetStatus replaces the state of a target.
func (t *Target) SetStatus(status TargetStatus) {
	if status.State == TargetReady {
		t.hasAcceptedCredentials.Store(true)
	}
	t.status.Store(&status)
}

// AddAbsence records a time in which the API server of a target did not answer. AddAbsence keeps the newest
// maxTargetAbsences. Only one goroutine may call AddAbsence.
func (t *Target) AddAbsence(absence WorkerAbsence) {
	known := append(slices.Clone(t.Absences()), absence)
	known = known[max(0, len(known)-maxTargetAbsences):]
	t.absences.Store(&known)
}

// Absences returns the times in which the API server of a target did not answer.
func (t *Target) Absences() WorkerAbsences {
	if t == nil || t.absences.Load() == nil {
		return nil
	}
	return *t.absences.Load()
}

// maxTargetAbsences is the maximum number of recorded absences of a target. Source: far more outages than fit into the
// longest timeout of a machine.
const maxTargetAbsences = 16

// Identity returns the identity of the cluster, as NewTarget got it; empty for a nil Target.
func (t *Target) Identity() string {
	if t == nil {
		return ""
	}
	return t.identity
}

// HasSameCluster reports whether two Targets have the same cluster, or are both nil. A Target with a status has a
// cluster only after the Target was Ready: a kubeconfig that copies the server and the CA of another cluster proves
// nothing.
func (t *Target) HasSameCluster(other *Target) bool {
	return t == other || t.hasKnownIdentity() && other.hasKnownIdentity() && t.identity == other.identity
}

func (t *Target) hasKnownIdentity() bool {
	return t != nil && t.identity != "" && (t.status.Load() == nil || t.hasAcceptedCredentials.Load())
}

// WatchNodes adds the cache of the nodes. Call WatchNodes before Start.
func (t *Target) WatchNodes() error {
	t.nodeInformer = newInformerFactory(t.client).Core().V1().Nodes().Informer()
	err := t.nodeInformer.AddIndexers(cache.Indexers{
		instanceIndex: indexByKey(func(n *corev1.Node) string { return ownership.ProviderIDKey(n.Spec.ProviderID) }),
	})
	if err != nil {
		return fmt.Errorf("index nodes: %w", err)
	}
	return nil
}

func newInformerFactory(client kubernetes.Interface) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(stripUnusedFields))
}

// Start keeps the caches current until ctx ends. Start does not wait until the caches are filled. Call Start once.
func (t *Target) Start(ctx context.Context) {
	if t == nil {
		return
	}
	if t.nodeInformer != nil {
		go t.nodeInformer.RunWithContext(ctx)
	}
	t.drainCaches.enable(ctx)
}

// AwaitFilledCaches waits until the caches are filled. AwaitFilledCaches does not wait for disruption budgets if the
// target does not serve policy/v1. AwaitFilledCaches does not wait for the caches of drains that run only on demand.
// AwaitFilledCaches returns an error if ctx ends first.
func (t *Target) AwaitFilledCaches(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if t.nodeInformer != nil && !cache.WaitFor(ctx, "", t.nodeInformer.HasSyncedChecker()) {
		return fmt.Errorf("fill cache of %s: %w", NodesResource, context.Cause(ctx))
	}
	if t.drainCaches.mode == drainCachesAlways {
		return t.awaitDrainCaches(ctx)
	}
	return nil
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
	switch {
	case t == nil:
		return nil
	case resource == NodesResource:
		if t.nodeInformer == nil {
			return nil
		}
		return t.nodeInformer
	default:
		return t.drainCaches.informer(resource)
	}
}

// Node returns a node from the cache.
func (t *Target) Node(name string) (*corev1.Node, bool) {
	return getByKey[*corev1.Node](t.Informer(NodesResource), name)
}

// AllNodes returns the nodes of the cache, unsorted.
func (t *Target) AllNodes() []*corev1.Node {
	if t.Informer(NodesResource) == nil {
		return nil
	}
	return AllObjects[*corev1.Node](t.Informer(NodesResource))
}

// NodesOfInstance returns the nodes of an instance, sorted by name; none for an empty provider ID.
func (t *Target) NodesOfInstance(providerID string) []*corev1.Node {
	nodes := IndexedObjects[*corev1.Node](t.Informer(NodesResource), instanceIndex, ownership.ProviderIDKey(providerID))
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

// NodeOfMachine returns the node that a machine names, from the cache; nil if the cache has no such node.
func (t *Target) NodeOfMachine(m *v1alpha1.Machine) *corev1.Node {
	node, _ := t.Node(NodeNameOfMachine(m))
	return node
}
