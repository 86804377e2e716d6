package cache

import "k8s.io/client-go/tools/cache"

// WatchResource adds the cache of another resource; Start fills the cache. Call WatchResource before Start.
func (c *Cluster) WatchResource(resource Resource, informer cache.SharedIndexInformer) {
	c.Informers[resource] = informer
	c.factories = append(c.factories, informerRunner{informer})
}

// TrackResource adds the cache of another resource after Start. The caller runs the informer. Decisions wait for the
// versions of this cache as for the versions of all caches. If a resource already has an informer from TrackResource,
// that informer stays.
func (c *Cluster) TrackResource(resource Resource, informer cache.SharedIndexInformer) {
	c.trackedInformers.LoadOrStore(resource, informer)
}

// informerRunner starts one informer.
type informerRunner struct{ informer cache.SharedIndexInformer }

// Start runs the informer until stop is closed.
func (r informerRunner) Start(stop <-chan struct{}) { go r.informer.Run(stop) }
