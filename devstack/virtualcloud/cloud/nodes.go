package cloud

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"millwright/provider/virtual"
)

// NodeClient is the cluster in which instances register their Nodes. Each method is idempotent.
type NodeClient interface {
	// Register creates an instance's Node. Like a kubelet, Register does not change an existing Node of the same name.
	// A bare Node has no provider ID, and has the taint with which a kubelet requests the provider ID from a
	// cloud-controller-manager.
	Register(ctx context.Context, instance virtual.Instance, spec virtual.Spec, bare bool) error

	// Initialize gives a bare Node its provider ID and removes the taint.
	Initialize(ctx context.Context, instance virtual.Instance) error

	// Remove deletes the instance's Node, unless the Node belongs to another instance. The result is true if Remove has
	// deleted the Node.
	Remove(ctx context.Context, instance virtual.Instance) (bool, error)

	// StopKubelet stops the simulated kubelet of the instance's Node, unless the Node belongs to another instance. The
	// Node stays.
	StopKubelet(ctx context.Context, instance virtual.Instance) error
}

// The limits of the node registry.
const (
	// nodeWorkerCount is the number of parallel workers. In a measurement, 40 workers created 1,000 Nodes in 3.3 s.
	nodeWorkerCount = 40

	// minNodeRetryDelay and maxNodeRetryDelay are the shortest and the longest back-off while the API server does not
	// answer.
	minNodeRetryDelay = 100 * time.Millisecond
	maxNodeRetryDelay = 5 * time.Second

	// nodeSyncTimeout is the timeout of one call of syncNode.
	nodeSyncTimeout = 10 * time.Second
)

// nodeRegistry creates the Nodes of running instances, and removes the Nodes of instances that are gone. The registry
// bases its decisions only on the instance's record. At most one worker at a time processes an instance. A nil registry
// does nothing.
type nodeRegistry struct {
	cloud      *Cloud
	nodeClient NodeClient
	queue      workqueue.TypedRateLimitingInterface[int] // numbers of the instances to process
	workers    sync.WaitGroup
}

func newNodeRegistry(c *Cloud, nodes NodeClient) *nodeRegistry {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[int](minNodeRetryDelay, maxNodeRetryDelay)
	return &nodeRegistry{cloud: c, nodeClient: nodes, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
}

// scheduleSync queues an instance for a call of syncNode after a delay; a delay of zero or less means at once.
func (n *nodeRegistry) scheduleSync(number int, after time.Duration) {
	if n != nil {
		n.queue.AddAfter(number, after)
	}
}

func (n *nodeRegistry) startWorkers() {
	for range nodeWorkerCount {
		n.workers.Go(func() {
			for n.processNextInstance() {
			}
		})
	}
	n.workers.Go(func() {
		<-n.cloud.ctx.Done()
		n.queue.ShutDown()
	})
}

func (n *nodeRegistry) awaitWorkers() { n.workers.Wait() }

func (n *nodeRegistry) processNextInstance() bool {
	number, shutdown := n.queue.Get()
	if shutdown {
		return false
	}
	defer n.queue.Done(number)
	ctx, cancel := context.WithTimeout(n.cloud.ctx, nodeSyncTimeout)
	defer cancel()
	again, err := n.syncNode(ctx, number)
	if err != nil {
		if n.cloud.ctx.Err() == nil {
			n.cloud.logger.Warn("sync node", "instance", number, "retries", n.queue.NumRequeues(number), "error", err)
		}
		n.queue.AddRateLimited(number)
		return true
	}
	n.queue.Forget(number)
	if again > 0 {
		n.queue.AddAfter(number, again)
	}
	return true
}

// syncNode does the next step that the instance's record requires for its Node. The result is the time until the next
// call; zero means no further call.
func (n *nodeRegistry) syncNode(ctx context.Context, number int) (time.Duration, error) {
	r, cleanup, ok := n.cloud.copyRecord(number)
	now := time.Now()
	switch {
	case !ok || r.NodeSyncFinished:
		return 0, nil
	case isPast(r.GoneAt, now):
		return n.cleanUpNode(ctx, r, now, cleanup)
	case !r.RegisteredAt.IsZero() && !r.NodeInitialized && r.NodeInitializationDelay > 0:
		return n.initializeNode(ctx, r, now)
	case !r.RegisteredAt.IsZero():
		return timeUntilEnd(r, now), nil
	case r.Spec.NeverBoots, isPast(r.DeletedAt, now), r.Spec.NeedsInitialization && r.InitializedAt.IsZero():
		return timeUntilEnd(r, now), nil
	case r.BootedAt.After(now):
		return r.BootedAt.Sub(now), nil
	}
	if err := n.nodeClient.Register(ctx, r.instanceAtTime(now), r.Spec, r.NodeInitializationDelay > 0); err != nil {
		return 0, err
	}
	// The instance may have ended during the creation of its Node, so the registry processes the instance again at
	// once.
	return time.Nanosecond, n.cloud.updateRecord(number, entryRegistered, func(r *instanceRecord) { r.RegisteredAt = now })
}

// initializeNode does the work of a cloud-controller-manager on a Node once the time NodeInitializationDelay has
// passed.
func (n *nodeRegistry) initializeNode(ctx context.Context, r instanceRecord, now time.Time) (time.Duration, error) {
	if due := r.RegisteredAt.Add(r.NodeInitializationDelay); due.After(now) {
		return due.Sub(now), nil
	}
	if err := n.nodeClient.Initialize(ctx, r.instanceAtTime(now)); err != nil {
		return 0, err
	}
	return time.Nanosecond, n.cloud.updateRecord(
		r.Number,
		entryNodeInitialized,
		func(r *instanceRecord) { r.NodeInitialized = true },
	)
}

// timeUntilEnd returns the time until a terminating instance is gone; zero if the instance is not terminating.
func timeUntilEnd(r instanceRecord, now time.Time) time.Duration {
	if r.GoneAt.IsZero() {
		return 0
	}
	return r.GoneAt.Sub(now)
}

// cleanUpNode removes the Node of an instance that is gone. If the instance has vanished, cleanUpNode first stops the
// Node's simulated kubelet.
func (n *nodeRegistry) cleanUpNode(
	ctx context.Context,
	r instanceRecord,
	now time.Time,
	cleanup time.Duration,
) (time.Duration, error) {
	if !r.RegisteredAt.IsZero() {
		if r.Vanished {
			if err := n.nodeClient.StopKubelet(ctx, r.instanceAtTime(now)); err != nil {
				return 0, err
			}
		}
		if !r.NodeRemains {
			if due := r.GoneAt.Add(cleanup); due.After(now) {
				return due.Sub(now), nil
			}
			removed, err := n.nodeClient.Remove(ctx, r.instanceAtTime(now))
			if err != nil {
				return 0, err
			}
			n.cloud.countNodeCleanup(removed)
		}
	}
	return 0, n.cloud.updateRecord(r.Number, entryNodeSyncFinished, func(r *instanceRecord) { r.NodeSyncFinished = true })
}

// copyRecord returns a copy of an instance's record, and Behaviour.NodeCleanupDelay; false if there is no record.
func (c *Cloud) copyRecord(number int) (instanceRecord, time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.state.records[number]
	if r == nil {
		return instanceRecord{}, 0, false
	}
	return *r, time.Duration(c.behaviour.NodeCleanupDelay), true
}

// updateRecord changes the current record of an instance and commits the change.
func (c *Cloud) updateRecord(number int, what entryKind, change func(*instanceRecord)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.state.records[number]
	if current == nil {
		return nil
	}
	r := *current
	change(&r)
	if what == entryRegistered {
		c.stats.CreatedNodes++
	}
	return c.commitRecord(what, r, nil)
}

// ResyncNodes makes the registry process each instance again. The registry registers the Node again, or removes it if
// the instance is gone.
func (c *Cloud) ResyncNodes() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, number := range c.state.recordNumbers {
		r := *c.state.records[number]
		r.NodeSyncFinished = false
		if r.existsAtTime(now) {
			r.RegisteredAt, r.NodeInitialized = time.Time{}, false
		}
		if err := c.commitRecord(entryNodeResynced, r, nil); err != nil {
			return err
		}
		c.registry.scheduleSync(number, 0)
	}
	return nil
}

func (c *Cloud) countNodeCleanup(removed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if removed {
		c.stats.CleanedUpNodes++
	}
}
