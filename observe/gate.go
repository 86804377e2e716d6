package observe

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// Gate holds, for each resource, the resource version that a cache must have applied before a decision may read it. It
// grows by what woke the workflow and by what the workflow wrote itself. Versions compare within one resource only.
type Gate map[Resource]string

// Raise keeps the newer of the version already there and this one. An empty or malformed version changes nothing.
func (g Gate) Raise(resource Resource, version string) {
	if newer(version, g[resource]) {
		g[resource] = version
	}
}

// newer reports whether version a is newer than b; anything well-formed is newer than nothing. A malformed version, which a
// signal sent by hand can bring, is newer than none: kept in a gate, it would hide every version that comes after it.
func newer(a, b string) bool {
	if b == "" {
		_, err := resourceversion.CompareResourceVersion(a, a)
		return err == nil
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// gatePoll is how often a waiting decision looks at the caches. They have no way to tell. Source: a tenth of the time that
// an event takes from one process to another.
const gatePoll = 5 * time.Millisecond

// Await returns whether the caches have applied what the gate asks for, waiting for it at most for the limit.
func (c *Cluster) Await(ctx context.Context, gate Gate, limit time.Duration) bool {
	err := wait.PollUntilContextTimeout(ctx, gatePoll, limit, true, func(context.Context) (bool, error) {
		return c.reached(gate), nil
	})
	return err == nil
}

func (c *Cluster) reached(gate Gate) bool {
	for resource, version := range gate {
		informer, known := c.informers[resource]
		if known && newer(version, applied(informer)) {
			return false
		}
	}
	return true
}

// applied returns the version up to which the cache of a resource has applied events; empty when it is not watched here.
func (c *Cluster) applied(resource Resource) string {
	informer := c.informers[resource]
	if informer == nil {
		return ""
	}
	return applied(informer)
}

// applied returns the version up to which the store has applied events. The informer's own LastSyncResourceVersion says
// what the watch has received, which may still be on its way into the store.
func applied(informer cache.SharedIndexInformer) string {
	return informer.GetStore().LastStoreSyncResourceVersion()
}
