package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	// drainCachesIdleTime is how long the caches on demand run after the last drain of a target. Source: longer than the
	// time between two drains of a rollout.
	drainCachesIdleTime = 10 * time.Minute
	// drainCachesTimeout is how long a drain waits for the caches on demand. Source: half of the activity's heartbeat
	// timeout, and enough for a distant cluster. After the timeout, Temporal retries the activity.
	drainCachesTimeout = 5 * time.Second
)

// errTargetNotConnected means that a target has no connection to its API server.
var errTargetNotConnected = errors.New("the target cluster is not connected")

// drainCaches are the caches of a target that only drains read: disruption budgets and volume attachments. These caches
// run always, or only while a drain uses them.
type drainCaches struct {
	client kubernetes.Interface
	mode   drainCachesMode // set before begin

	mu            sync.Mutex
	ctx           context.Context // ends when the target's context ends; nil before begin is called
	runningCaches *runningDrainCaches
	userCount     int
	idleTimer     *time.Timer // stops the caches when it fires; nil while a drain uses the caches
}

// drainCachesMode determines when the caches of drains run.
type drainCachesMode int

const (
	drainCachesNever drainCachesMode = iota
	drainCachesAlways
	drainCachesOnDemand
)

// runningDrainCaches are informers that run until stop is called.
type runningDrainCaches struct {
	informers            map[Resource]cache.SharedIndexInformer
	attachmentWatchState *watchState
	stop                 context.CancelFunc
}

// WatchDrainResources makes the caches of disruption budgets and volume attachments run always. Call
// WatchDrainResources before Start.
func (t *Target) WatchDrainResources() error {
	running, err := newRunningDrainCaches(t.client)
	t.drainCaches.mode, t.drainCaches.runningCaches = drainCachesAlways, running
	return err
}

// WatchDrainResourcesOnDemand makes the caches of disruption budgets and volume attachments run while a drain uses
// them; see UseDrainCaches. Call WatchDrainResourcesOnDemand before Start.
func (t *Target) WatchDrainResourcesOnDemand() { t.drainCaches.mode = drainCachesOnDemand }

// UseDrainCaches starts the caches of disruption budgets and volume attachments if they do not run, and waits until
// they are filled. If these caches run always, or never, UseDrainCaches does nothing. The caller must call release when
// the drain no longer reads the caches. UseDrainCaches returns an error if the target has no connection, or if the
// caches are not filled after drainCachesTimeout.
func (t *Target) UseDrainCaches(ctx context.Context) (release func(), err error) {
	if t == nil || t.drainCaches.mode != drainCachesOnDemand {
		return func() {}, nil
	}
	if status := t.Status(); status.State != TargetReady {
		return nil, fmt.Errorf("%w: %s", errTargetNotConnected, status.Message)
	}
	if err := t.drainCaches.acquire(); err != nil {
		return nil, err
	}
	release = sync.OnceFunc(t.drainCaches.release)
	ctx, cancel := context.WithTimeout(ctx, drainCachesTimeout)
	defer cancel()
	if err := t.awaitDrainCaches(ctx); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// HasActiveDrain reports whether a drain uses the caches that run on demand; see UseDrainCaches.
func (t *Target) HasActiveDrain() bool {
	if t == nil {
		return false
	}
	t.drainCaches.mu.Lock()
	defer t.drainCaches.mu.Unlock()
	return t.drainCaches.userCount > 0
}

func newRunningDrainCaches(client kubernetes.Interface) (*runningDrainCaches, error) {
	attachments := &watchState{}
	informers := map[Resource]cache.SharedIndexInformer{
		DisruptionBudgetsResource: newInformerFactory(client).Policy().V1().PodDisruptionBudgets().Informer(),
		VolumeAttachmentsResource: newInformerFactory(
			client,
		).InformerFor(&storagev1.VolumeAttachment{}, attachments.newAttachmentInformer),
	}
	err := informers[VolumeAttachmentsResource].AddIndexers(cache.Indexers{
		nodeIndex:   indexByKey(func(a *storagev1.VolumeAttachment) string { return a.Spec.NodeName }),
		volumeIndex: indexByKey(VolumeNameOfAttachment),
	})
	if err != nil {
		return nil, fmt.Errorf("index volume attachments: %w", err)
	}
	return &runningDrainCaches{informers: informers, attachmentWatchState: attachments}, nil
}

// enable makes the caches ready to run until ctx ends, and starts them if they run always.
func (d *drainCaches) enable(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx = ctx
	if d.runningCaches != nil {
		d.runningCaches.start(ctx)
	}
}

func (r *runningDrainCaches) start(ctx context.Context) {
	ctx, r.stop = context.WithCancel(ctx)
	for _, informer := range r.informers {
		go informer.RunWithContext(ctx)
	}
}

// acquire increments the number of users, and starts the caches for the first user.
func (d *drainCaches) acquire() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == nil {
		return errTargetNotConnected
	}
	if d.runningCaches == nil {
		running, err := newRunningDrainCaches(d.client)
		if err != nil {
			return err
		}
		running.start(d.ctx)
		d.runningCaches = running
	}
	d.userCount++
	if d.idleTimer != nil {
		d.idleTimer.Stop()
		d.idleTimer = nil
	}
	return nil
}

// release decrements the number of users. The caches stop when they have had no user for drainCachesIdleTime.
func (d *drainCaches) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.userCount--; d.userCount > 0 {
		return
	}
	d.idleTimer = time.AfterFunc(drainCachesIdleTime, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.userCount == 0 && d.runningCaches != nil {
			d.runningCaches.stop()
			d.runningCaches = nil
		}
	})
}

func (d *drainCaches) loadRunningCaches() *runningDrainCaches {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runningCaches
}

// informer returns the cache of a resource; nil if the cache does not run.
func (d *drainCaches) informer(resource Resource) cache.SharedIndexInformer {
	if running := d.loadRunningCaches(); running != nil && running.informers[resource] != nil {
		return running.informers[resource]
	}
	return nil
}

// awaitDrainCaches waits until the caches of drains are filled. awaitDrainCaches returns an error if ctx ends first.
func (t *Target) awaitDrainCaches(ctx context.Context) error {
	running := t.drainCaches.loadRunningCaches()
	if running == nil {
		return errTargetNotConnected
	}
	if !cache.WaitFor(ctx, "", running.informers[VolumeAttachmentsResource].HasSyncedChecker()) {
		return fmt.Errorf("fill cache of %s: %w", VolumeAttachmentsResource, context.Cause(ctx))
	}
	if !t.awaitBudgetCache(ctx, running.informers[DisruptionBudgetsResource]) {
		return fmt.Errorf("fill cache of %s: %w", DisruptionBudgetsResource, context.Cause(ctx))
	}
	return nil
}

// awaitBudgetCache waits until the cache of disruption budgets is filled, or until the target has answered that it
// cannot evict: without policy/v1 there are no budgets, and the cache stays empty. awaitBudgetCache returns false if
// ctx ends first.
func (t *Target) awaitBudgetCache(ctx context.Context, informer cache.SharedIndexInformer) bool {
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, budgetCacheTimeout)
		filled := cache.WaitFor(bounded, "", informer.HasSyncedChecker())
		cancel()
		if filled {
			return true
		}
		bounded, cancel = context.WithTimeout(ctx, budgetCacheTimeout)
		why, err := t.NoEvictionReason(bounded)
		cancel()
		if err == nil && why != "" {
			return true
		}
	}
	return false
}

// evictionSupport caches whether the target can evict pods.
type evictionSupport struct {
	discoverySlot chan struct{} // semaphore of one: full while a caller runs discovery
	missingReason atomic.Pointer[string]
}

// NoEvictionReason returns why the target cannot evict pods by policy/v1; empty if it can. The first call runs
// discovery, and NoEvictionReason caches the answer. NoEvictionReason does not cache an error: the next call runs
// discovery again. Concurrent calls wait for one discovery.
func (t *Target) NoEvictionReason(ctx context.Context) (why string, err error) {
	if known := t.evictionSupport.missingReason.Load(); known != nil {
		return *known, nil
	}
	select {
	case t.evictionSupport.discoverySlot <- struct{}{}:
		defer func() { <-t.evictionSupport.discoverySlot }()
	case <-ctx.Done():
		return "", fmt.Errorf("wait until it is known whether the cluster can evict: %w", context.Cause(ctx))
	}
	if known := t.evictionSupport.missingReason.Load(); known != nil {
		return *known, nil
	}
	if why, err = discoverEvictionSupport(ctx, t.client); err == nil {
		t.evictionSupport.missingReason.Store(&why)
	}
	return why, err
}

// discoverEvictionSupport checks the same two facts as MCM: pods have the subresource eviction, and the API server
// serves the group policy. The subresource and the group must have the version of a drain's eviction requests.
func discoverEvictionSupport(ctx context.Context, target kubernetes.Interface) (why string, err error) {
	version := policyv1.SchemeGroupVersion
	core, err := target.Discovery().ServerResourcesForGroupVersionWithContext(ctx, "v1")
	if err != nil {
		return "", fmt.Errorf("discover the resources of v1: %w", err)
	}
	names := func(name string, of ...string) bool {
		return slices.ContainsFunc(core.APIResources, func(r metav1.APIResource) bool {
			return r.Name == name && (len(of) == 0 || slices.Equal(of, []string{r.Group, r.Version, r.Kind}))
		})
	}
	switch {
	case !names("pods"):
		// The client returns an empty list after a 404. A proxy in front of the API server may have sent the 404.
		return "", fmt.Errorf("discover the resources of v1: the answer does not name pods")
	case !names("pods/eviction", version.Group, version.Version, "Eviction"):
		return fmt.Sprintf("the API server has no subresource pods/eviction of %s", version), nil
	}
	switch _, err = target.Discovery().ServerResourcesForGroupVersionWithContext(ctx, version.String()); {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the API server does not serve %s", version), nil
	case err != nil:
		return "", fmt.Errorf("discover the resources of %s: %w", version, err)
	}
	return "", nil
}
