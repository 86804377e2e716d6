// Package watch answers which workflow must decide again when an object in a cluster changes. The bridge's main runs it
// while the process is the leader. It signals and starts workflows and keeps the schedules of sweeps, and changes
// nothing else: the workflows find out what there is to do.
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/workflows/run"
)

// Starter is what the bridge needs of a Temporal client.
type Starter interface {
	SignalWithStartWorkflow(
		ctx context.Context,
		workflowID, signalName string,
		signalArg any,
		options client.StartWorkflowOptions,
		workflow any,
		workflowArgs ...any,
	) (client.WorkflowRun, error)
	SignalWorkflow(ctx context.Context, workflowID, runID, signalName string, arg any) error
	ListWorkflow(
		ctx context.Context,
		request *workflowservice.ListWorkflowExecutionsRequest,
	) (*workflowservice.ListWorkflowExecutionsResponse, error)
	ExecuteWorkflow(
		ctx context.Context,
		options client.StartWorkflowOptions,
		workflow any,
		args ...any,
	) (client.WorkflowRun, error)
}

// key names an object whose workflow may have to decide again.
type key struct {
	kind      run.Kind
	namespace string
	name      string
}

// wake is what happened to an object since the last signal to its workflow.
type wake struct {
	versions  cache.MinVersions
	deleted   []deleted // objects of this name that are gone
	notBefore time.Time // earliest signal to the workflows of deleted; ignored if an object has the name again
}

// deleted is an object that does not exist any more.
type deleted struct {
	uid       string
	workflows []string // workflow IDs: its own, and for a deployment also the rollout that its status named last
}

// merge adds a later wake to this one.
func (w *wake) merge(other wake) {
	if w.versions == nil {
		w.versions = cache.MinVersions{}
	}
	for resource, version := range other.versions {
		w.versions.Raise(resource, version)
	}
	w.deleted = append(w.deleted, other.deleted...)
	if other.notBefore.After(w.notBefore) {
		w.notBefore = other.notBefore
	}
}

// Bridge turns events into signals. Make it with New.
type Bridge struct {
	installation run.Installation
	cluster      *cache.Cluster
	starter      Starter
	log          *slog.Logger
	metrics      *Metrics
	queue        workqueue.TypedDelayingInterface[key]
	backoff      workqueue.TypedRateLimiter[key]
	limiter      flowcontrol.RateLimiter
	orphans      *sweeps
	// the cache of the objects of Cluster API; nil: none is watched
	api     *capi.Cache
	pollers func(ctx context.Context, provider string) (int, error) // nil: never asked

	mu          sync.Mutex
	seen        map[string]fingerprints // by resource and UID
	pending     map[key]wake            // content of the next signal
	notBefore   map[key]time.Time       // earliest time of the object's next signal
	served      map[string]int          // by provider: how many workers serve it; nil: not known
	unreachable bool                    // Temporal did not answer the last request
}

// New returns a bridge of an installation over caches that are running.
func New(
	installation run.Installation,
	cluster *cache.Cluster,
	starter Starter,
	metrics *Metrics,
	log *slog.Logger,
) *Bridge {
	return &Bridge{
		installation: installation,
		cluster:      cluster,
		starter:      starter,
		log:          log,
		metrics:      metrics,
		queue:        workqueue.NewTypedDelayingQueue[key](),
		backoff:      workqueue.NewTypedItemExponentialFailureRateLimiter[key](retryFirst, retryMost),
		limiter:      flowcontrol.NewTokenBucketRateLimiter(signalRate, signalRate),
		orphans: &sweeps{
			installation:  installation,
			cluster:       cluster,
			metrics:       metrics,
			log:           log,
			queue:         workqueue.NewTypedDelayingQueue[task](),
			lastTriggered: map[cache.Ref]time.Time{},
		},
		seen:      map[string]fingerprints{},
		pending:   map[key]wake{},
		notBefore: map[key]time.Time{},
	}
}

// Run watches and signals until ctx ends. At first every object in the caches counts as new, so that a new leader
// evaluates each of them once. Signals that are not sent when ctx ends are lost; the next leader makes up for them in
// the same way. Call it once.
func (b *Bridge) Run(ctx context.Context) error {
	defer b.queue.ShutDown()
	for _, resource := range []cache.Resource{
		cache.Machines, cache.Sets, cache.Deployments, cache.Classes, cache.Policies, cache.Nodes, cache.Secrets, cache.ControlPlanes,
		capi.ClustersResource, capi.DeploymentsResource, capi.SetsResource, capi.MachinesResource,
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
	if b.api != nil {
		b.followTemplates(ctx)
	}
	var group sync.WaitGroup
	for range senders {
		group.Go(func() { b.send(ctx) })
	}
	group.Go(func() { b.resync(ctx) })
	group.Go(func() { b.watchPollers(ctx) })
	group.Go(func() { b.watchCalls(ctx) })
	b.orphans.run(ctx, &group)
	<-ctx.Done()
	b.queue.ShutDown()
	group.Wait()
	return nil
}

// enqueue schedules the evaluation of an object after the delay, or at the earliest time of its next signal if that is
// later. If an evaluation is due earlier, its signal also carries this wake.
func (b *Bridge) enqueue(k key, w wake, delay time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	merged := b.pending[k]
	merged.merge(w)
	b.pending[k] = merged
	b.queue.AddAfter(k, max(delay, time.Until(b.notBefore[k]))) // at once if the delay is not positive
}

// take removes and returns the pending wake of an object; claimed is false if there is none. Before the earliest time
// of the next signal it returns none and reschedules the evaluation: wakes until then are merged.
func (b *Bridge) take(k key) (w wake, claimed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, claimed = b.pending[k]
	if wait := time.Until(b.notBefore[k]); claimed && wait > 0 {
		b.queue.AddAfter(k, wait)
		return wake{}, false
	}
	delete(b.pending, k)
	return w, claimed
}

// allowAfter sets the earliest time of the object's next signal, counted from now.
func (b *Bridge) allowAfter(k key, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notBefore[k] = time.Now().Add(wait)
}
