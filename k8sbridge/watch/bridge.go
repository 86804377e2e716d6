// Package watch answers which workflow has to look again when something in a cluster changes. The bridge's main runs it
// while it is the leader. It signals and starts workflows, keeps the schedules of those that run by the clock, and changes nothing
// else: what there is to do, they find out.
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"millwright/observe"
	"millwright/workflows"
)

// Rates of the bridge. Source: docs/architecture.md, what wakes a workflow.
const (
	perObject  = 250 * time.Millisecond // least time between two signals to one object: what a rollout waits for passes through its sets several times
	perRollout = 125 * time.Millisecond // the same for a deployment whose rollout is open: each of its steps passes through it twice
	flurry     = 500 * time.Millisecond // what comes in flurries, and for which half a second is nothing, is looked at so much later: once instead of each time
	signalRate = 300                    // signals a second in all: above what one small Temporal takes
	senders    = 32                     // signals under way at once, each to another object
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
	gone     []departed // objects of this name that were deleted; their workflows, if open, must learn of it
	cause    cause      // the strongest of what happened
}

// departed is an object that does not exist any more.
type departed struct {
	ref     observe.Ref
	rollout string    // workflow ID of the rollout that a deployment's status named last; empty: none
	tell    time.Time // not before, unless another object has the name by then
}

// merge adds what happened besides.
func (w *wake) merge(other wake) {
	if w.versions == nil {
		w.versions = observe.Gate{}
	}
	for resource, version := range other.versions {
		w.versions.Raise(resource, version)
	}
	w.gone = append(w.gone, other.gone...)
	w.cause = max(w.cause, other.cause)
}

// cause says how much a change by itself deserves a signal.
type cause int

const (
	byOwn    cause = iota // one of our own writes: the workflow knows, unless something else was faster than the write
	byNode                // the machine's node changed: worth a signal only if it changes what the machine waits for
	byMember              // something became of what the object owns that is no more than news to it
	byObject              // the object, or one that it refers to, changed, or one that it owns is gone
)

// Bridge turns events into signals. Make it with New.
type Bridge struct {
	cluster *observe.Cluster
	starter Starter
	log     *slog.Logger
	metrics *Metrics
	queue   workqueue.TypedDelayingInterface[key]
	backoff workqueue.TypedRateLimiter[key]
	limiter flowcontrol.RateLimiter
	now     func() time.Time
	orphans *sweeps

	mu      sync.Mutex
	seen    map[string]prints // by resource and UID
	pending map[key]wake      // what the next signal will carry
	quiet   map[key]time.Time // until when an object gets no signal: it had one a moment ago, or Temporal did not take it
	told    map[key]string    // what attention said when the last signal went out; absent when it said calm since
	away    bool              // Temporal did not answer lately
}

// New prepares a bridge over caches that run already.
func New(cluster *observe.Cluster, starter Starter, metrics *Metrics, log *slog.Logger) *Bridge {
	return &Bridge{
		cluster: cluster,
		starter: starter,
		log:     log,
		metrics: metrics,
		queue:   workqueue.NewTypedDelayingQueue[key](),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[key](retryFirst, retryMost),
		limiter: flowcontrol.NewTokenBucketRateLimiter(signalRate, signalRate),
		now:     time.Now,
		orphans: &sweeps{cluster: cluster, metrics: metrics, log: log, queue: workqueue.NewTypedDelayingQueue[task](), hurried: map[observe.Ref]time.Time{}},
		seen:    map[string]prints{},
		pending: map[key]wake{},
		quiet:   map[key]time.Time{},
		told:    map[key]string{},
	}
}

// Run watches and signals until ctx ends. Every object in the caches counts as new at first, so that a new leader looks at
// everything once. What it has not sent when ctx ends is lost with it: the next leader finds it by looking at everything.
// Call it once.
func (b *Bridge) Run(ctx context.Context) error {
	defer b.queue.ShutDown()
	for _, resource := range []observe.Resource{
		observe.Machines, observe.Sets, observe.Deployments, observe.Classes, observe.Nodes, observe.Secrets, observe.ControlPlanes,
	} {
		informer := b.cluster.Informer(resource)
		if informer == nil {
			continue
		}
		registration, err := informer.AddEventHandler(b.handler(resource, informer))
		if err != nil {
			return fmt.Errorf("watch %s: %w", resource, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }()
	}
	var group sync.WaitGroup
	for range senders {
		group.Go(func() { b.send(ctx) })
	}
	group.Go(func() { b.resync(ctx) })
	b.orphans.run(ctx, &group)
	<-ctx.Done()
	b.queue.ShutDown()
	group.Wait()
	return nil
}

// enqueue notes that an object's workflow must look again: at once, or in a moment, or when the object may have another signal.
func (b *Bridge) enqueue(k key, w wake) {
	b.mu.Lock()
	merged := b.pending[k]
	merged.merge(w)
	b.pending[k] = merged
	wait := b.quiet[k].Sub(b.now())
	b.mu.Unlock()
	if w.cause < byObject {
		wait = max(wait, flurry)
	}
	if len(w.gone) > 0 {
		wait = max(wait, goneAfter) // unless it is looked at before for another reason: then it is put back
	}
	b.queue.AddAfter(k, wait) // at once, if that is not after now
}

// take claims what is pending for an object; nothing may be. While the object may not have a signal it claims nothing, and
// says how long to wait: what happens until then joins in.
func (b *Bridge) take(k key) (w wake, claimed bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, pending := b.pending[k]
	if !pending {
		return w, false, 0
	}
	if wait := b.quiet[k].Sub(b.now()); wait > 0 {
		return wake{}, false, wait
	}
	delete(b.pending, k)
	return w, true, 0
}

// hush lets an object have no signal for a while.
func (b *Bridge) hush(k key, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quiet[k] = b.now().Add(wait)
}

// remember notes what attention said when a workflow was told; with nothing said, that the object was calm.
func (b *Bridge) remember(k key, said string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if said == "" {
		delete(b.told, k)
		return
	}
	b.told[k] = said
}

// lastTold returns what attention said at the last signal; false when the object was calm since.
func (b *Bridge) lastTold(k key) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	said, told := b.told[k]
	return said, told
}

// forget drops what is remembered of an object that is gone.
func (b *Bridge) forget(k key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.quiet, k)
	delete(b.told, k)
}
