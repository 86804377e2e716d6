package cache

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// MinVersions holds, for each resource, the resource version that a cache must have applied before a decision may read it. It
// grows by what woke the workflow and by what the workflow wrote itself. Versions compare within one resource only.
type MinVersions map[Resource]string

// Raise keeps the newer of the version already there and this one. An empty or malformed version changes nothing.
func (v MinVersions) Raise(resource Resource, version string) {
	if Newer(version, v[resource]) {
		v[resource] = version
	}
}

// Newer reports whether version a is newer than b; anything well-formed is newer than nothing. A malformed version, which a
// signal sent by hand can bring, is newer than none: kept here, it would hide every version that comes after it.
func Newer(a, b string) bool {
	if b == "" {
		_, err := resourceversion.CompareResourceVersion(a, a)
		return err == nil
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// versionsPoll is how often a waiting decision looks at the caches. They have no way to tell. Source: a tenth of the time that
// an event takes from one process to another.
const versionsPoll = 5 * time.Millisecond

// Await returns whether the caches have applied these versions, waiting for it at most for the limit.
func (c *Cluster) Await(ctx context.Context, versions MinVersions, limit time.Duration) bool {
	err := wait.PollUntilContextTimeout(ctx, versionsPoll, limit, true, func(context.Context) (bool, error) {
		return c.reached(versions), nil
	})
	return err == nil
}

func (c *Cluster) reached(versions MinVersions) bool {
	for resource, version := range versions {
		informer, known := c.Informers[resource]
		if known && Newer(version, applied(informer)) {
			return false
		}
	}
	return true
}

// Applied returns the version up to which the cache of a resource has applied events; empty when it is not watched here.
func (c *Cluster) Applied(resource Resource) string {
	informer := c.Informers[resource]
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
