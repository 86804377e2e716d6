// Package claims shares the shards of an installation between the processes of one role, by Leases. Each process renews
// one Lease of its own. The Lease of a shard names the process that serves the shard, and counts as long as the Lease
// of this process is renewed. Two processes may serve a shard for a short time: that is harmless, because all decisions
// are made in workflows, which exist once.
package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
)

// Timing of the claims. Another process serves the shards of a dead process at most deadAfter + planInterval after the
// last renewal of the dead process, which is less than 15 s.
const (
	// renewInterval is the interval between two renewals of a process's Lease. Source: a third of deadAfter.
	renewInterval = 4 * time.Second
	// deadAfter is how long the Lease of a process may stay unchanged until the process counts as dead.
	deadAfter = 12 * time.Second
	// planInterval is the interval between two plans. A plan sends no request unless it changes a claim.
	planInterval = time.Second
	// overdueAfter is how long a shard waits for a process of the group that should claim it.
	overdueAfter = 5 * time.Second
	// maxClockSkew is the difference between the clocks of two processes that does no harm.
	maxClockSkew = time.Minute
	// requestTimeout is the timeout of one request.
	requestTimeout = 5 * time.Second
	// maxWatchLag is how old the last own renewal may be that the watch showed; otherwise the watch is behind. Source: the
	// last renewal of a live process may be a renewal and a check older than that, and must still be younger than
	// deadAfter.
	maxWatchLag = deadAfter - renewInterval - planInterval
	// giveUpAfter is how long a process serves its shards without a renewal of its Lease. Source: the other processes have
	// the shards after 15 s; a restart of an API server often takes longer than that, but seldom a minute, and stops no
	// service.
	giveUpAfter = time.Minute
	// leftoverAfter is the age of the last renewal after which the Lease of a killed process is deleted. Source: far above
	// the difference between two clocks and the duration of an outage, and a Deployment leaves few Leases in this time.
	leftoverAfter = time.Hour
	// cleanupInterval is the interval between two searches for Leases of killed processes. Source: a search reads only the
	// cache; a minute is short compared with leftoverAfter.
	cleanupInterval = time.Minute
)

// The labels and annotations of the Leases.
const (
	labelRole               = "machine.sapcloud.io/claims-of" // the role: worker or bridge
	labelShard              = "machine.sapcloud.io/shard"     // the number of the shard; missing on the Lease of a process
	annotationAllowedShards = "machine.sapcloud.io/serves-only"
	annotationShardCount    = v1alpha1.AnnotationShards // the number of shards that the process knows
	processLeasePrefix      = "millwright-process-"
)

// Options describe the processes that share shards.
type Options struct {
	Client        kubernetes.Interface
	Namespace     string // namespace of the Leases
	Role          string // Worker or Bridge
	Identity      string // identity of this process
	ShardCount    int    // number of shards that this process knows; during an upgrade, other processes may know more or fewer
	AllowedShards []int  // shards that this process may serve; empty: all shards
	Log           *slog.Logger
	// Serve serves a shard until its context is done, and returns when the work that it has begun is complete. Another
	// process may serve the shard before Serve returns. Run calls Serve for the same shard again only after Serve has
	// returned. If Serve returns an error, Run ends.
	Serve func(ctx context.Context, shard int) error
	// OnClaims is called with the claimed shards, sorted, when they have changed. OnClaims must not wait.
	OnClaims func(shards []int)
}

// claimer claims shards for one process. Only the goroutine of Run uses its fields, except those below mu.
type claimer struct {
	Options
	informer       cache.SharedIndexInformer
	cancelFuncs    map[int]context.CancelFunc // by shard
	freeSince      map[int]time.Time          // since when a shard has had no live holder
	serveDone      map[int]chan struct{}      // by shard: closed when the last Serve has returned
	lastRenewal    time.Time                  // last renewal of the Lease of this process
	lastCleanup    time.Time                  // last search for Leases of killed processes
	ownLease       *coordinationv1.Lease      // the Lease of this process after the last renewal; nil: it must be read
	serveWaitGroup sync.WaitGroup
	serveErrors    chan error

	mu                sync.Mutex
	changeTimes       map[string]time.Time // by name of a Lease: the local time of its last change
	watchCurrentSince time.Time            // when the watch became current again after an outage; zero: no outage
}

// Run claims shards and serves them until ctx ends or Serve fails. Then Run releases the claims, and returns when each
// Serve has returned.
func Run(ctx context.Context, o Options) error {
	c := &claimer{
		Options: o, cancelFuncs: map[int]context.CancelFunc{}, freeSince: map[int]time.Time{},
		serveDone: map[int]chan struct{}{}, serveErrors: make(chan error, 1), changeTimes: map[string]time.Time{},
	}
	slices.Sort(c.AllowedShards)
	c.AllowedShards = slices.Compact(c.AllowedShards)
	if err := c.watchLeases(ctx); err != nil {
		return err
	}
	ticker := time.NewTicker(planInterval)
	defer ticker.Stop()
	var failed error
	for ctx.Err() == nil && failed == nil {
		if err := c.updateClaims(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("the claims of shards are not renewed, will try again", "role", c.Role, "error", err)
		}
		select {
		case <-ctx.Done():
		case failed = <-c.serveErrors:
		case <-ticker.C:
		}
	}
	c.releaseAllShards(context.WithoutCancel(ctx))
	return failed
}

// watchLeases watches the Leases of the role until ctx ends.
func (c *claimer) watchLeases(ctx context.Context) error {
	c.informer = informers.NewSharedInformerFactoryWithOptions(
		c.Client, 0,
		informers.WithNamespace(c.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selectRole(c.Role) }),
	).Coordination().V1().Leases().Informer()
	registration, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(item any) {
			lease, now := item.(*coordinationv1.Lease), time.Now()
			if r := lease.Spec.RenewTime; r != nil && now.Sub(r.Time) > maxClockSkew+deadAfter {
				now = r.Time // the process died before this process began to watch
			}
			c.recordLeaseChange(lease.Name, now)
		},
		UpdateFunc: func(before, after any) {
			lease := after.(*coordinationv1.Lease)
			if !equality.Semantic.DeepEqual(before.(*coordinationv1.Lease).Spec, lease.Spec) {
				c.recordLeaseChange(lease.Name, time.Now())
			}
		},
		DeleteFunc: func(item any) {
			if name, err := cache.DeletionHandlingObjectToName(item); err == nil {
				c.forgetLease(name.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch Leases: %w", err)
	}
	go c.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return fmt.Errorf("read Leases: %w", context.Cause(ctx))
	}
	c.forgetLease(c.processLeaseName(c.Identity)) // an earlier process with the same identity wrote this Lease
	return nil
}

// recordLeaseChange stores the time at which the watch showed a change of a Lease. If the watch has shown no renewal of
// this process for longer than maxWatchLag before, there was an outage: the Leases of the other processes were not
// renewed, or their renewals were not shown.
func (c *claimer) recordLeaseChange(lease string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, known := c.changeTimes[lease]
	if known && lease == c.processLeaseName(c.Identity) && at.Sub(before) >= maxWatchLag {
		c.watchCurrentSince = at
	}
	c.changeTimes[lease] = at
}

func (c *claimer) forgetLease(lease string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.changeTimes, lease)
}

// updateClaims renews the Lease of this process if that is due, and changes the claims. If the Lease could not be
// renewed for giveUpAfter, check stops the service of all shards: without the API server this process cannot do the
// work, and the processes that have taken the shards can.
func (c *claimer) updateClaims(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if time.Since(c.lastRenewal) >= renewInterval {
		if err := c.renewLease(ctx); err != nil {
			if time.Since(c.lastRenewal) >= giveUpAfter {
				c.stopServingAll()
			}
			return err
		}
	}
	if !c.isWatchCurrent() {
		return nil // what the watch shows of other processes is old
	}
	v, leases := c.readView(time.Now())
	for shard := range c.cancelFuncs {
		if holder := v.holders[shard]; holder != "" && holder != c.Identity {
			c.stopServing(shard) // another process took this process for dead
		}
	}
	claim, release := v.plan()
	var failed error
	for _, shard := range release {
		failed = errors.Join(failed, c.releaseShard(ctx, shard, leases[shard]))
	}
	for _, shard := range claim {
		failed = errors.Join(failed, c.claimShard(ctx, shard, leases[shard]))
	}
	for shard, holder := range v.holders { // claims of an earlier check whose answer was lost
		if _, serves := c.cancelFuncs[shard]; holder == c.Identity && !serves && !slices.Contains(release, shard) {
			c.startServing(shard)
		}
	}
	c.deleteLeftoverLeases(ctx)
	return failed
}

// isWatchCurrent reports whether the watch has shown a renewal of this process within maxWatchLag.
func (c *claimer) isWatchCurrent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.changeTimes[c.processLeaseName(c.Identity)]) < maxWatchLag
}

// readView returns what the watch shows, and the Lease of each shard.
func (c *claimer) readView(now time.Time) (v view, leases map[int]*coordinationv1.Lease) {
	self := peer{shardCount: c.ShardCount, allowedShards: c.AllowedShards}
	v = view{
		ownIdentity: c.Identity, peers: map[string]peer{c.Identity: self},
		holders: map[int]string{}, overdueShards: map[int]bool{},
	}
	leases = map[int]*coordinationv1.Lease{}
	for _, item := range c.informer.GetStore().List() {
		lease := item.(*coordinationv1.Lease)
		if number, isShard := lease.Labels[labelShard]; isShard {
			if shard, err := strconv.Atoi(number); err == nil {
				leases[shard] = lease
			}
		} else if holder := holderOf(lease); holder != c.Identity && c.isAlive(lease.Name) {
			v.peers[holder] = c.readPeer(lease)
		}
	}
	for shard := range v.shardCount() {
		holder := ""
		if lease := leases[shard]; lease != nil {
			holder = holderOf(lease)
		}
		if _, alive := v.peers[holder]; alive {
			v.holders[shard] = holder
			delete(c.freeSince, shard)
			continue
		}
		if c.freeSince[shard].IsZero() {
			c.freeSince[shard] = now
		}
		v.overdueShards[shard] = now.Sub(c.freeSince[shard]) > overdueAfter
	}
	return v, leases
}

// readPeer reads the Lease of a process. A process that does not say how many shards it knows counts as one that knows
// the same shards as this process.
func (c *claimer) readPeer(lease *coordinationv1.Lease) peer {
	p := peer{shardCount: c.ShardCount, allowedShards: parseShards(lease.Annotations[annotationAllowedShards])}
	if count, err := strconv.Atoi(lease.Annotations[annotationShardCount]); err == nil {
		p.shardCount = count
	}
	return p
}

// isAlive reports whether a Lease has changed within deadAfter, by the clock of this process. After an outage of the
// watch, each known Lease counts as alive for deadAfter.
func (c *claimer) isAlive(lease string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, known := c.changeTimes[lease]
	return known && (time.Since(changed) < deadAfter || time.Since(c.watchCurrentSince) < deadAfter)
}

// startServing serves a shard in a goroutine, after the last service of the shard by this process has ended.
// startServing does nothing if this process serves the shard already.
func (c *claimer) startServing(shard int) {
	if _, serves := c.cancelFuncs[shard]; serves {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancelFuncs[shard] = cancel
	c.Log.Info("serves shard", "role", c.Role, "shard", shard)
	c.reportClaims()
	before, ended := c.serveDone[shard], make(chan struct{})
	c.serveDone[shard] = ended
	c.serveWaitGroup.Go(func() {
		defer close(ended)
		if before != nil {
			<-before
		}
		if ctx.Err() != nil {
			return
		}
		if err := c.Serve(ctx, shard); err != nil {
			select {
			case c.serveErrors <- fmt.Errorf("serve shard %d: %w", shard, err):
			default:
			}
		}
	})
}

// stopServing ends the service of a shard. stopServing does not wait.
func (c *claimer) stopServing(shard int) {
	cancel, serves := c.cancelFuncs[shard]
	if !serves {
		return
	}
	cancel()
	delete(c.cancelFuncs, shard)
	c.Log.Info("leaves shard", "role", c.Role, "shard", shard)
	c.reportClaims()
}

// stopServingAll ends the service of all shards. The claims stay: this process serves again the shards that no other
// process has claimed when it can renew its Lease again.
func (c *claimer) stopServingAll() {
	for _, shard := range slices.Sorted(maps.Keys(c.cancelFuncs)) {
		c.stopServing(shard)
	}
}

func (c *claimer) reportClaims() {
	if c.OnClaims != nil {
		c.OnClaims(slices.Sorted(maps.Keys(c.cancelFuncs)))
	}
}

// releaseAllShards releases all claims, so that other processes take over at once, and waits until each Serve has
// returned. An error is only logged, because the claims expire.
func (c *claimer) releaseAllShards(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, leases := c.readView(time.Now())
	for _, shard := range slices.Sorted(maps.Keys(c.cancelFuncs)) {
		if err := c.releaseShard(ctx, shard, leases[shard]); err != nil {
			c.Log.Warn("a claim is not released, it expires", "role", c.Role, "error", err)
		}
	}
	err := c.Client.CoordinationV1().Leases(c.Namespace).
		Delete(ctx, c.processLeaseName(c.Identity), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		c.Log.Warn("the Lease of this process is not deleted, it expires", "role", c.Role, "error", err)
	}
	c.serveWaitGroup.Wait()
}
