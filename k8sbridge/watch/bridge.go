// Package watch answers which workflow has to look again when something in a cluster changes. The bridge's main runs it
// while it is the leader. It signals and starts workflows, and changes nothing else: what there is to do, they find out.
package watch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"millwright/api/v1alpha1"
	"millwright/observe"
	"millwright/workflows"
)

// Rates of the bridge. Source: design §5, and spec/temporal.md 12.3.
const (
	perObject  = time.Second // least time between two signals to one object
	signalRate = 300         // signals a second in all: above what one small Temporal takes
	senders    = 32          // signals under way at once, each to another object
	retryFirst = 500 * time.Millisecond
	retryMost  = time.Minute
	resyncEach = time.Minute
	goneAfter  = 3 * time.Second // a workflow that removed its own object ends by itself meanwhile
)

// Starter is what the bridge needs of a Temporal client.
type Starter interface {
	SignalWithStartWorkflow(ctx context.Context, workflowID, signalName string, signalArg any, options client.StartWorkflowOptions, workflow any, workflowArgs ...any) (client.WorkflowRun, error)
	SignalWorkflow(ctx context.Context, workflowID, runID, signalName string, arg any) error
	ExecuteWorkflow(ctx context.Context, options client.StartWorkflowOptions, workflow any, args ...any) (client.WorkflowRun, error)
}

// key names an object whose workflow may have to look again.
type key struct {
	kind      workflows.Kind
	namespace string
	name      string
}

// wake is what happened to an object since its workflow was last told.
type wake struct {
	versions observe.Gate
	gone     *observe.Ref // the object was deleted; its workflow, if open, must learn of it
	cause    cause        // the strongest of what happened
}

// cause says how much a change by itself deserves a signal.
type cause int

const (
	byPlace  cause = iota // our own write: worth a signal only where a node was faster than it
	byNode                // the machine's node changed: worth a signal only if it changes what the machine waits for
	byObject              // the object, or one that it owns or refers to, changed
)

// Bridge turns events into signals. Make it with New.
type Bridge struct {
	cluster *observe.Cluster
	secrets cache.SharedIndexInformer // metadata of Secrets; nil watches none
	starter Starter
	log     *slog.Logger
	metrics *Metrics
	queue   workqueue.TypedRateLimitingInterface[key]
	limiter flowcontrol.RateLimiter
	now     func() time.Time

	mu       sync.Mutex
	seen     map[string]prints // by resource and UID
	pending  map[key]wake      // what the next signal will carry
	signaled map[key]time.Time // when the last signal went out
	told     map[key]string    // what attention said when the last signal went out
	away     bool              // Temporal did not answer lately
}

// New prepares a bridge over caches that run already. Secrets, an informer of their metadata, may be nil.
func New(cluster *observe.Cluster, secrets cache.SharedIndexInformer, starter Starter, metrics *Metrics, log *slog.Logger) *Bridge {
	return &Bridge{
		cluster:  cluster,
		secrets:  secrets,
		starter:  starter,
		log:      log,
		metrics:  metrics,
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](retryFirst, retryMost)),
		limiter:  flowcontrol.NewTokenBucketRateLimiter(signalRate, signalRate),
		now:      time.Now,
		seen:     map[string]prints{},
		pending:  map[key]wake{},
		signaled: map[key]time.Time{},
		told:     map[key]string{},
	}
}

// Run watches and signals until ctx ends. Every object in the caches counts as new at first, so that a new leader looks at
// everything once. Call it once.
func (b *Bridge) Run(ctx context.Context) error {
	handlers := map[observe.Resource]cache.ResourceEventHandler{
		observe.Machines:    b.handler(observe.Machines, b.machineEvent),
		observe.Sets:        b.handler(observe.Sets, b.setEvent),
		observe.Deployments: b.handler(observe.Deployments, b.deploymentEvent),
		observe.Classes:     b.handler(observe.Classes, b.classEvent),
		observe.Nodes:       b.handler(observe.Nodes, b.nodeEvent),
	}
	for resource, handler := range handlers {
		informer := b.cluster.Informer(resource)
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return err
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }()
	}
	if b.secrets != nil {
		registration, err := b.secrets.AddEventHandler(b.handler("secrets", b.secretEvent))
		if err != nil {
			return err
		}
		defer func() { _ = b.secrets.RemoveEventHandler(registration) }()
	}
	var group sync.WaitGroup
	for range senders {
		group.Go(func() { b.send(ctx) })
	}
	group.Go(func() { b.resync(ctx) })
	<-ctx.Done()
	b.queue.ShutDown()
	group.Wait()
	return nil
}

// handler feeds events of a resource into one function; deleted says that the object is gone for good.
func (b *Bridge) handler(resource observe.Resource, event func(object metav1.Object, deleted bool)) cache.ResourceEventHandler {
	take := func(item any, deleted bool) {
		if tombstone, ok := item.(cache.DeletedFinalStateUnknown); ok {
			item = tombstone.Obj
		}
		if object, ok := item.(metav1.Object); ok {
			b.metrics.events.WithLabelValues(string(resource)).Inc()
			event(object, deleted)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(item any) { take(item, false) },
		UpdateFunc: func(_, item any) { take(item, false) },
		DeleteFunc: func(item any) { take(item, true) },
	}
}

// difference says which fingerprints of an object changed.
type difference struct{ self, owner, place bool }

// changes compares an object's fingerprints with those seen last, and keeps them.
func (b *Bridge) changes(resource observe.Resource, object metav1.Object, now prints, deleted bool) (changed difference) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := string(resource) + "/" + string(object.GetUID())
	before, known := b.seen[id]
	if deleted {
		delete(b.seen, id)
		return difference{self: true, owner: true}
	}
	b.seen[id] = now
	return difference{
		self:  !known || before.self != now.self,
		owner: !known || before.owner != now.owner,
		place: !known || before.place != now.place,
	}
}

// enqueue notes that an object's workflow must look again, and when: at once, or a second after the last signal.
func (b *Bridge) enqueue(k key, w wake) {
	b.mu.Lock()
	merged := b.pending[k]
	if merged.versions == nil {
		merged.versions = observe.Gate{}
	}
	for resource, version := range w.versions {
		merged.versions.Raise(resource, version)
	}
	if w.gone != nil {
		merged.gone = w.gone
	}
	merged.cause = max(merged.cause, w.cause)
	b.pending[k] = merged
	wait := perObject - b.now().Sub(b.signaled[k])
	if merged.gone != nil && w.gone != nil {
		wait = goneAfter
	}
	b.mu.Unlock()
	if wait <= 0 {
		b.queue.Add(k)
		return
	}
	b.queue.AddAfter(k, wait)
}

// version is a gate with one entry.
func version(resource observe.Resource, object metav1.Object) observe.Gate {
	return observe.Gate{resource: object.GetResourceVersion()}
}

func refOf(o metav1.Object) *observe.Ref {
	return &observe.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())}
}

func (b *Bridge) machineEvent(object metav1.Object, deleted bool) {
	m := object.(*v1alpha1.Machine)
	changed := b.changes(observe.Machines, m, machinePrints(m), deleted)
	w := wake{versions: version(observe.Machines, m), cause: byObject}
	if parent := metav1.GetControllerOf(m); changed.owner && parent != nil {
		b.enqueue(key{workflows.KindMachineSet, m.Namespace, parent.Name}, w)
	}
	if deleted {
		w.gone = refOf(m)
	}
	if !changed.self {
		w.cause = byPlace
	}
	if changed.self || changed.place {
		b.enqueue(key{workflows.KindMachine, m.Namespace, m.Name}, w)
	}
}

func (b *Bridge) setEvent(object metav1.Object, deleted bool) {
	s := object.(*v1alpha1.MachineSet)
	changed := b.changes(observe.Sets, s, setPrints(s), deleted)
	w := wake{versions: version(observe.Sets, s), cause: byObject}
	if parent := metav1.GetControllerOf(s); changed.owner && parent != nil {
		b.enqueue(key{workflows.KindMachineDeployment, s.Namespace, parent.Name}, w)
	}
	if deleted {
		w.gone = refOf(s)
	}
	if changed.self {
		b.enqueue(key{workflows.KindMachineSet, s.Namespace, s.Name}, w)
	}
}

func (b *Bridge) deploymentEvent(object metav1.Object, deleted bool) {
	d := object.(*v1alpha1.MachineDeployment)
	if !b.changes(observe.Deployments, d, deploymentPrints(d), deleted).self {
		return
	}
	w := wake{versions: version(observe.Deployments, d), cause: byObject}
	if deleted {
		w.gone = refOf(d)
	}
	b.enqueue(key{workflows.KindMachineDeployment, d.Namespace, d.Name}, w)
}

func (b *Bridge) classEvent(object metav1.Object, deleted bool) {
	c := object.(*v1alpha1.MachineClass)
	if b.changes(observe.Classes, c, classPrints(c), deleted).self {
		b.wakeClass(c.Namespace+"/"+c.Name, version(observe.Classes, c))
	}
}

// secretEvent wakes the machines of the classes that name a Secret: they may wait for it.
func (b *Bridge) secretEvent(object metav1.Object, deleted bool) {
	if !b.changes("secrets", object, prints{self: hash(object.GetUID(), object.GetResourceVersion())}, deleted).self {
		return
	}
	for _, class := range b.cluster.ClassesOfSecret(object.GetNamespace(), object.GetName()) {
		b.wakeClass(class.Namespace+"/"+class.Name, nil)
	}
}

func (b *Bridge) wakeClass(class string, versions observe.Gate) {
	for _, m := range b.cluster.MachinesOfClass(class) {
		b.enqueue(key{workflows.KindMachine, m.Namespace, m.Name}, wake{versions: versions, cause: byObject})
	}
}

func (b *Bridge) nodeEvent(object metav1.Object, deleted bool) {
	node := object.(*corev1.Node)
	if !b.changes(observe.Nodes, node, nodePrints(node), deleted).self {
		return
	}
	for _, m := range b.cluster.MachinesOfNode(node.Name) {
		b.enqueue(key{workflows.KindMachine, m.Namespace, m.Name}, wake{versions: version(observe.Nodes, node), cause: byNode})
	}
}
