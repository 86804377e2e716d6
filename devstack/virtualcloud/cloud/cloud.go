// Package cloud is the simulated cloud of the devstack: it keeps instances on disk, creates their Nodes, and fails on
// demand. The virtualcloud command serves it, and tests serve it in process; package provider/virtual is its client and
// has the types of its API, package admin has those of its admin API. Of machines it knows only the tags that it gets.
//
// An instance is accepted (pending), runs, may wait to be initialized, gets its Node after the boot latency, is
// terminating once a delete call was accepted, and is gone after the delete latency. Each of these is a time in its
// record, and every change is on disk before it is answered: killing the process neither loses nor duplicates anything.
package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/virtual"
)

// Options are the settings of a cloud.
type Options struct {
	Dir    string       // data folder; created if absent
	Nodes  Nodes        // cluster in which Nodes register; nil means none
	Logger *slog.Logger // nil means no log
}

// Cloud is a running cloud. It is safe for concurrent use.
type Cloud struct {
	log      *slog.Logger
	ctx      context.Context // ends with Stop or Close
	stop     context.CancelFunc
	work     sync.WaitGroup // creations in flight
	registry *nodeRegistry  // nil if no Nodes are registered

	mu        sync.Mutex
	store     *store
	world     *world
	behaviour admin.Behaviour
	changed   chan struct{} // closed and replaced when the behaviour changes
	gate      callGate
	epoch     int // incremented by each reset, so that creations from before it are dropped
	stats     admin.Stats
}

// Open opens the data folder and continues with the Nodes of its instances.
func Open(options Options) (*Cloud, error) {
	st, w, err := openStore(options.Dir, time.Now())
	if err != nil {
		return nil, err
	}
	c := &Cloud{
		log: options.Logger, store: st, world: w,
		behaviour: admin.DefaultBehaviour(), changed: make(chan struct{}),
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if err := c.loadBehaviour(); err != nil {
		_ = st.close()
		return nil, err
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	if options.Nodes != nil {
		c.registry = newNodeRegistry(c, options.Nodes)
		for _, number := range w.order {
			c.registry.scheduleLook(number, 0)
		}
		c.registry.start()
	}
	return c, nil
}

// Stop ends every wait: waiting calls are refused as Unavailable, and create requests that have no record yet have no
// effect.
func (c *Cloud) Stop() { c.stop() }

// Close stops everything and closes the data folder.
func (c *Cloud) Close() error {
	c.Stop()
	c.work.Wait()
	if c.registry != nil {
		c.registry.awaitWorkers()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.store.close()
}

// commit makes a change: on disk first, then in memory. The lock is held.
func (c *Cloud) commit(what entryKind, r record, userData []byte) error {
	e := logEntry{Kind: what, Record: &r, UserData: userData}
	if err := c.store.append(e); err != nil {
		c.log.Error("write instance", "instance", r.id(), "error", err)
		return provider.Errorf(provider.Internal, "the cloud could not write its records")
	}
	c.world.apply(e)
	if c.store.size > c.store.next {
		if err := c.store.compact(c.world, time.Now()); err != nil {
			c.log.Error("compact log", "error", err) // the old log is still complete and open
		}
	}
	return nil
}

func (c *Cloud) loadBehaviour() error {
	content, err := c.store.read(behaviourFile)
	if err != nil || content == nil {
		return err
	}
	if err := json.Unmarshal(content, &c.behaviour); err != nil {
		return fmt.Errorf("read behaviour: %w", err)
	}
	return nil
}

// Behaviour returns how the cloud behaves.
func (c *Cloud) Behaviour() admin.Behaviour {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cloneBehaviour(c.behaviour)
}

// cloneBehaviour copies a behaviour with its lists and maps: later changes of the original do not change the copy.
func cloneBehaviour(b admin.Behaviour) admin.Behaviour {
	b.Tokens = slices.Clone(b.Tokens)
	b.Quotas, b.RateLimits, b.Hangs = maps.Clone(b.Quotas), maps.Clone(b.RateLimits), maps.Clone(b.Hangs)
	return b
}

// SetBehaviour replaces how the cloud behaves, also on disk. Hanging calls check it again.
func (c *Cloud) SetBehaviour(b admin.Behaviour) error {
	if err := validateBehaviour(b); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setBehaviour(cloneBehaviour(b))
}

func (c *Cloud) setBehaviour(b admin.Behaviour) error {
	content, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("encode behaviour: %w", err)
	}
	if err := c.store.replace(behaviourFile, content); err != nil {
		return err
	}
	c.behaviour = b
	c.gate.buckets = nil
	close(c.changed)
	c.changed = make(chan struct{})
	return nil
}

// Limits returns what the cloud documents about itself.
func (c *Cloud) Limits() virtual.Limits {
	c.mu.Lock()
	defer c.mu.Unlock()
	return virtual.Limits{
		ClientTokens:      c.behaviour.ClientTokens,
		ConsistencyWindow: c.behaviour.AcceptLatency + c.behaviour.Staleness,
	}
}

// sleepUntil waits until a time; the error says that the cloud stopped.
func (c *Cloud) sleepUntil(until time.Time) error {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ctx.Done():
		return provider.Errorf(provider.Unavailable, "the cloud is stopping")
	}
}
