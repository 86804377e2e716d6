// Package watch decides which workflow must decide again when an object in a cluster changes. The bridge's main uses
// package watch while the process is the leader. Package watch signals and starts workflows and manages the schedules
// of orphan sweeps. Package watch changes nothing else: the workflows decide what to do.
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/shard"
	"millwright/workflows/run"
)

// WorkflowClient contains the methods of a Temporal client that the bridge uses.
type WorkflowClient interface {
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

// objectKey identifies an object whose workflow may have to decide again.
type objectKey struct {
	kind      run.Kind
	namespace string
	name      string
}

// signalRequest contains the changes of an object since the last signal to its workflow.
type signalRequest struct {
	versions       cache.MinVersions
	deletedObjects []deletedObject // deleted objects with the name of this key
	// earliest time of a signal to the workflows of deletedObjects; ignored if an object with this name exists again
	earliestSignalTime time.Time
}

// deletedObject is an object that no longer exists.
type deletedObject struct {
	uid         string
	workflowIDs []string // IDs of the object's own workflow and, for a deployment, of the rollout in its last status
}

// mergeSignalRequest adds a later wake to w.
func (w *signalRequest) mergeSignalRequest(other signalRequest) {
	if w.versions == nil {
		w.versions = cache.MinVersions{}
	}
	for resource, version := range other.versions {
		w.versions.RaiseVersion(resource, version)
	}
	w.deletedObjects = append(w.deletedObjects, other.deletedObjects...)
	if other.earliestSignalTime.After(w.earliestSignalTime) {
		w.earliestSignalTime = other.earliestSignalTime
	}
}

// Bridge turns events into signals. Use New to create a Bridge.
type Bridge struct {
	shard           run.Shard
	shards          *shard.Map // record of the shards; nil: the shard has all namespaces
	shardChanges    chan struct{}
	cluster         *cache.Cluster
	workflowClient  WorkflowClient
	log             *slog.Logger
	metrics         *Metrics
	evaluationQueue workqueue.TypedDelayingInterface[objectKey]
	backoff         workqueue.TypedRateLimiter[objectKey]
	signalLimiter   flowcontrol.RateLimiter
	sweepScheduler  *sweepScheduler
	// the cache of the Cluster API objects; nil: Cluster API is not watched
	clusterAPICache *capi.Cache
	nodeWatches     nodeWatches
	// nil: the bridge does not count the pollers of providers
	countPollers func(ctx context.Context, provider string) (int, error)

	mu                    sync.Mutex
	storedFingerprints    map[string]fingerprints        // of all objects but nodes; the key is resource and UID
	pendingSignals        map[objectKey]signalRequest    // content of the next signal
	nextSignalTimes       map[objectKey]time.Time        // earliest time of the object's next signal
	workerCountByProvider map[string]int                 // number of workers by provider; nil: unknown
	targetReports         toolscache.SharedIndexInformer // ConfigMap of the workers' reports about targets; nil: not watched
	temporalUnreachable   bool                           // Temporal did not answer the last request
}

// New returns a bridge of a shard. The caches of cluster must be running.
func New(
	of run.Shard,
	cluster *cache.Cluster,
	starter WorkflowClient,
	metrics *Metrics,
	log *slog.Logger,
) *Bridge {
	b := &Bridge{
		shard:           of,
		shardChanges:    make(chan struct{}, 1),
		cluster:         cluster,
		workflowClient:  starter,
		log:             log,
		metrics:         metrics,
		evaluationQueue: workqueue.NewTypedDelayingQueue[objectKey](),
		backoff:         workqueue.NewTypedItemExponentialFailureRateLimiter[objectKey](firstRetryDelay, maxRetryDelay),
		signalLimiter:   flowcontrol.NewTokenBucketRateLimiter(maxSignalsPerSecond, maxSignalsPerSecond),
		sweepScheduler: &sweepScheduler{
			shard:            of,
			cluster:          cluster,
			metrics:          metrics,
			log:              log,
			queue:            workqueue.NewTypedDelayingQueue[sweepTask](),
			lastTriggerTimes: map[cache.ObjectRef]time.Time{},
		},
		storedFingerprints: map[string]fingerprints{},
		nodeWatches:        nodeWatches{byNamespace: map[string]*nodeWatch{}},
		pendingSignals:     map[objectKey]signalRequest{},
		nextSignalTimes:    map[objectKey]time.Time{},
	}
	b.sweepScheduler.servesNamespace = b.servesNamespace
	return b
}

// Run watches and signals until ctx ends. When Run starts, it treats every object in the caches as new, so a new leader
// evaluates each object once. Signals that are not sent before ctx ends are lost; the next leader's first evaluation
// replaces them. Call Run once.
func (b *Bridge) Run(ctx context.Context) error {
	defer b.evaluationQueue.ShutDown()
	for _, resource := range []cache.Resource{
		cache.MachinesResource, cache.SetsResource, cache.DeploymentsResource, cache.ClassesResource, cache.RolloutPoliciesResource, cache.SecretsResource, cache.ControlPlanesResource,
		capi.ClustersResource, capi.DeploymentsResource, capi.SetsResource, capi.MachinesResource,
	} {
		informer := b.cluster.Informer(resource)
		if informer == nil {
			continue
		}
		registration, err := informer.AddEventHandler(b.eventHandler(resource, informer, nil))
		if err != nil {
			return fmt.Errorf("watch %s: %w", resource, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }()
	}
	defer b.watchNodes()()
	if b.clusterAPICache != nil {
		b.watchTemplatesAndControlPlanes(ctx)
	}
	var group sync.WaitGroup
	if err := b.runTargetReportWatch(ctx, &group); err != nil {
		return fmt.Errorf("watch the reports about targets: %w", err)
	}
	defer b.watchShards()()
	for range senderCount {
		group.Go(func() { b.sendSignals(ctx) })
	}
	group.Go(func() { b.resync(ctx) })
	group.Go(func() { b.watchPollers(ctx) })
	group.Go(func() { b.signalMachinesWithLongCalls(ctx) })
	b.sweepScheduler.run(ctx, &group)
	<-ctx.Done()
	b.evaluationQueue.ShutDown()
	group.Wait()
	return nil
}

// enqueue schedules the evaluation of an object after the delay, or at the earliest time of the object's next signal
// if that is later. If an earlier evaluation is already scheduled, its signal also contains this wake. enqueue ignores
// objects of other shards.
func (b *Bridge) enqueue(k objectKey, w signalRequest, delay time.Duration) {
	if b.servesNamespace(k.namespace) {
		b.enqueueInAnyShard(k, w, delay)
	}
}

// enqueueInAnyShard is enqueue for an object of any shard.
func (b *Bridge) enqueueInAnyShard(k objectKey, w signalRequest, delay time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	merged := b.pendingSignals[k]
	merged.mergeSignalRequest(w)
	b.pendingSignals[k] = merged
	// without a positive delay, AddAfter adds the object at once
	b.evaluationQueue.AddAfter(k, max(delay, time.Until(b.nextSignalTimes[k])))
}

// takeSignalRequest removes and returns the pending wake of an object. claimed is false if there is no pending wake.
// Before the earliest time of the next signal, takeSignalRequest returns no wake and reschedules the evaluation: all
// wakes until then are merged.
func (b *Bridge) takeSignalRequest(k objectKey) (w signalRequest, claimed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, claimed = b.pendingSignals[k]
	if wait := time.Until(b.nextSignalTimes[k]); claimed && wait > 0 {
		b.evaluationQueue.AddAfter(k, wait)
		return signalRequest{}, false
	}
	delete(b.pendingSignals, k)
	return w, claimed
}

// delayNextSignal sets the earliest time of the object's next signal, counted from now.
func (b *Bridge) delayNextSignal(k objectKey, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nextSignalTimes[k] = time.Now().Add(wait)
}
