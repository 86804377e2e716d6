// Package cloud simulates the cloud of the devstack: it keeps instances on disk, creates their Nodes, and fails on
// demand. The virtualcloud command serves the cloud, and tests serve the cloud in process. Package provider/virtual is
// the client and has the API's types; package admin has the admin API's types. The cloud gets its information about
// machines only from the tags of its instances.
//
// An instance is first pending, then it runs. A class may require a call of initialize before the Node registers. The
// Node registers after the boot latency. After an accepted delete call, the instance is terminating, and after the
// delete latency it is gone. The instance's record has the time of each step. The cloud writes every change to disk
// before it responds, so a kill of the process neither loses nor duplicates an instance.
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
	Dir        string       // data folder; Open creates the folder if absent
	NodeClient NodeClient   // cluster in which instances register Nodes; nil: no Nodes
	Logger     *slog.Logger // nil: no log
}

// Cloud is a running cloud. A Cloud is safe for concurrent use.
type Cloud struct {
	logger         *slog.Logger
	ctx            context.Context // cancelled by Stop and Close
	cancelWaits    context.CancelFunc
	pendingCreates sync.WaitGroup // goroutines of pending create requests
	registry       *nodeRegistry  // nil: the cloud registers no Nodes

	mu               sync.Mutex
	store            *store
	state            *cloudState
	behaviour        admin.Behaviour
	behaviourChanged chan struct{} // each change of the behaviour closes and replaces this channel
	callGate         callGate
	resetCount       int // number of resets; the cloud drops a pending create that began before the last reset
	stats            admin.Stats
}

// Open opens the data folder and resumes the work on the Nodes of its instances.
func Open(options Options) (*Cloud, error) {
	st, w, err := openStore(options.Dir, time.Now())
	if err != nil {
		return nil, err
	}
	c := &Cloud{
		logger: options.Logger, store: st, state: w,
		behaviour: admin.DefaultBehaviour(), behaviourChanged: make(chan struct{}),
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	if err := c.loadBehaviour(); err != nil {
		_ = st.close()
		return nil, err
	}
	c.ctx, c.cancelWaits = context.WithCancel(context.Background())
	if options.NodeClient != nil {
		c.registry = newNodeRegistry(c, options.NodeClient)
		for _, number := range w.recordNumbers {
			c.registry.scheduleSync(number, 0)
		}
		c.registry.startWorkers()
	}
	return c, nil
}

// Stop ends all waiting calls. Waiting calls fail with Unavailable, and create requests that are not recorded yet have
// no effect.
func (c *Cloud) Stop() { c.cancelWaits() }

// Close stops the cloud and closes the data folder.
func (c *Cloud) Close() error {
	c.Stop()
	c.pendingCreates.Wait()
	if c.registry != nil {
		c.registry.awaitWorkers()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.store.close()
}

// commitRecord writes a change to disk, and then applies the change in memory. The caller holds c.mu.
func (c *Cloud) commitRecord(what entryKind, r instanceRecord, userData []byte) error {
	e := logEntry{Kind: what, Record: &r, UserData: userData}
	if err := c.store.appendEntry(e); err != nil {
		c.logger.Error("write instance", "instance", r.id(), "error", err)
		return provider.Errorf(provider.Internal, "the cloud could not write its records")
	}
	c.state.applyEntry(e)
	if c.store.logSizeBytes > c.store.compactionThresholdBytes {
		if err := c.store.compactLog(c.state, time.Now()); err != nil {
			c.logger.Error("compact log", "error", err) // if compactLog fails, the old log is still complete and open
		}
	}
	return nil
}

func (c *Cloud) loadBehaviour() error {
	content, err := c.store.readFile(behaviourFileName)
	if err != nil || content == nil {
		return err
	}
	if err := json.Unmarshal(content, &c.behaviour); err != nil {
		return fmt.Errorf("read behaviour: %w", err)
	}
	return nil
}

// Behaviour returns a copy of the cloud's behaviour.
func (c *Cloud) Behaviour() admin.Behaviour {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cloneBehaviour(c.behaviour)
}

// cloneBehaviour copies a behaviour with its lists and maps: later changes of the original do not change the copy.
func cloneBehaviour(b admin.Behaviour) admin.Behaviour {
	b.AcceptedTokens = slices.Clone(b.AcceptedTokens)
	b.Quotas, b.RateLimits, b.HangPoints = maps.Clone(b.Quotas), maps.Clone(b.RateLimits), maps.Clone(b.HangPoints)
	return b
}

// SetBehaviour replaces the cloud's behaviour in memory and on disk. Hanging calls then check the behaviour again.
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
	if err := c.store.replaceFile(behaviourFileName, content); err != nil {
		return err
	}
	c.behaviour = b
	c.callGate.buckets = nil
	close(c.behaviourChanged)
	c.behaviourChanged = make(chan struct{})
	return nil
}

// Limits returns the limits that the cloud documents to its clients.
func (c *Cloud) Limits() virtual.Limits {
	c.mu.Lock()
	defer c.mu.Unlock()
	return virtual.Limits{
		HonorsClientTokens: c.behaviour.HonorClientTokens,
		ConsistencyWindow:  c.behaviour.AcceptLatency + c.behaviour.ReadStaleness,
	}
}

// sleepUntil waits until a time. The error means that the cloud has stopped.
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
