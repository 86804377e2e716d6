package cloud

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"millwright/provider/virtual"
)

// Nodes is the cluster in which instances register. Each method may be called again.
type Nodes interface {
	// Register creates the Node of an instance. Like a kubelet, it does not change an existing Node of that name. A
	// bare Node has no provider ID. It has the taint with which a kubelet asks a cloud-controller-manager for the
	// provider ID.
	Register(ctx context.Context, instance virtual.Instance, spec virtual.Spec, bare bool) error

	// Initialize gives a bare Node its provider ID and removes the taint.
	Initialize(ctx context.Context, instance virtual.Instance) error

	// Remove deletes the Node if it still belongs to that instance, and reports whether it did.
	Remove(ctx context.Context, instance virtual.Instance) (bool, error)

	// Silence stops the simulated kubelet of the Node, if it still belongs to that instance; the Node stays.
	Silence(ctx context.Context, instance virtual.Instance) error
}

// The numbers of the Node side.
const (
	// nodeWorkers is how many Nodes are processed at the same time. Source: 40 workers created 1,000 Nodes in 3.3 s.
	nodeWorkers = 40

	// nodeRetryFirst and nodeRetryLast bound the back-off while the API server does not answer.
	nodeRetryFirst = 100 * time.Millisecond
	nodeRetryLast  = 5 * time.Second

	// nodeTimeout bounds one request to the API server.
	nodeTimeout = 10 * time.Second
)

// nodeRegistry creates the Nodes of running instances, and removes them after the instances have ended. It decides from
// the instance's record alone what is to be done; one worker at a time processes an instance. The nil registry does
// nothing.
type nodeRegistry struct {
	cloud *Cloud
	nodes Nodes
	queue workqueue.TypedRateLimitingInterface[int] // numbers of the instances to process
	work  sync.WaitGroup
}

func newNodeRegistry(c *Cloud, nodes Nodes) *nodeRegistry {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[int](nodeRetryFirst, nodeRetryLast)
	return &nodeRegistry{cloud: c, nodes: nodes, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
}

// scheduleLook makes the registry process an instance after this time, at once if it is not above zero.
func (n *nodeRegistry) scheduleLook(number int, after time.Duration) {
	if n != nil {
		n.queue.AddAfter(number, after)
	}
}

func (n *nodeRegistry) start() {
	for range nodeWorkers {
		n.work.Go(func() {
			for n.processNext() {
			}
		})
	}
	n.work.Go(func() {
		<-n.cloud.ctx.Done()
		n.queue.ShutDown()
	})
}

func (n *nodeRegistry) awaitWorkers() { n.work.Wait() }

func (n *nodeRegistry) processNext() bool {
	number, shutdown := n.queue.Get()
	if shutdown {
		return false
	}
	defer n.queue.Done(number)
	ctx, cancel := context.WithTimeout(n.cloud.ctx, nodeTimeout)
	defer cancel()
	again, err := n.syncNode(ctx, number)
	if err != nil {
		if n.cloud.ctx.Err() == nil {
			n.cloud.log.Warn("sync node", "instance", number, "retries", n.queue.NumRequeues(number), "error", err)
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

// syncNode does what an instance's record requires, and returns the time until the next call; zero means none.
func (n *nodeRegistry) syncNode(ctx context.Context, number int) (time.Duration, error) {
	r, cleanup, ok := n.cloud.recordOf(number)
	now := time.Now()
	switch {
	case !ok || r.NodeEnded:
		return 0, nil
	case isPast(r.Gone, now):
		return n.endNode(ctx, r, now, cleanup)
	case !r.Registered.IsZero() && !r.NodeInited && r.NodeInit > 0:
		return n.initialize(ctx, r, now)
	case !r.Registered.IsZero():
		return timeUntilEnd(r, now), nil
	case r.Spec.NeverBoots, isPast(r.Deleted, now), r.Spec.Initialize && r.Initialized.IsZero():
		return timeUntilEnd(r, now), nil
	case r.Boots.After(now):
		return r.Boots.Sub(now), nil
	}
	if err := n.nodes.Register(ctx, r.instanceAt(now), r.Spec, r.NodeInit > 0); err != nil {
		return 0, err
	}
	// Process the instance again at once: it may have ended while its Node was created.
	return time.Nanosecond, n.cloud.updateRecord(number, registered, func(r *record) { r.Registered = now })
}

// initialize does what a cloud-controller-manager does with a Node, when it is due.
func (n *nodeRegistry) initialize(ctx context.Context, r record, now time.Time) (time.Duration, error) {
	if due := r.Registered.Add(r.NodeInit); due.After(now) {
		return due.Sub(now), nil
	}
	if err := n.nodes.Initialize(ctx, r.instanceAt(now)); err != nil {
		return 0, err
	}
	return time.Nanosecond, n.cloud.updateRecord(r.Number, nodeInited, func(r *record) { r.NodeInited = true })
}

// timeUntilEnd returns the time until a terminating instance is gone; zero for one that is not terminating.
func timeUntilEnd(r record, now time.Time) time.Duration {
	if r.Gone.IsZero() {
		return 0
	}
	return r.Gone.Sub(now)
}

// endNode removes the Node of an instance that is gone. If the instance has vanished, it first ends the heartbeats of
// the Node.
func (n *nodeRegistry) endNode(
	ctx context.Context,
	r record,
	now time.Time,
	cleanup time.Duration,
) (time.Duration, error) {
	if !r.Registered.IsZero() {
		if r.Vanished {
			if err := n.nodes.Silence(ctx, r.instanceAt(now)); err != nil {
				return 0, err
			}
		}
		if !r.KeepNode {
			if due := r.Gone.Add(cleanup); due.After(now) {
				return due.Sub(now), nil
			}
			removed, err := n.nodes.Remove(ctx, r.instanceAt(now))
			if err != nil {
				return 0, err
			}
			n.cloud.countCleanup(removed)
		}
	}
	return 0, n.cloud.updateRecord(r.Number, nodeEnded, func(r *record) { r.NodeEnded = true })
}

// recordOf returns a record and the delay of Node clean-ups.
func (c *Cloud) recordOf(number int) (record, time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.world.records[number]
	if r == nil {
		return record{}, 0, false
	}
	return *r, time.Duration(c.behaviour.NodeCleanup), true
}

// updateRecord writes a result of the registry into the present record of an instance.
func (c *Cloud) updateRecord(number int, what entryKind, change func(*record)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.world.records[number]
	if current == nil {
		return nil
	}
	r := *current
	change(&r)
	if what == registered {
		c.stats.Nodes++
	}
	return c.commit(what, r, nil)
}

// Rejoin processes the Node of each instance from the start: it is registered again, or ended again if the instance is
// gone.
func (c *Cloud) Rejoin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, number := range c.world.order {
		r := *c.world.records[number]
		r.NodeEnded = false
		if r.existsAt(now) {
			r.Registered, r.NodeInited = time.Time{}, false
		}
		if err := c.commit(rejoined, r, nil); err != nil {
			return err
		}
		c.registry.scheduleLook(number, 0)
	}
	return nil
}

func (c *Cloud) countCleanup(removed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if removed {
		c.stats.NodesCleaned++
	}
}
