package cache

import "k8s.io/client-go/tools/cache"

// Watch adds the cache of one more resource, which Start fills. Call it before Start.
func (c *Cluster) Watch(resource Resource, informer cache.SharedIndexInformer) {
	c.Informers[resource] = informer
	c.factories = append(c.factories, runner{informer})
}

// Track adds the cache of one more resource while the others run. The caller runs the informer. Decisions wait for its
// versions as for those of the other caches. Of two informers of one resource the first stays.
func (c *Cluster) Track(resource Resource, informer cache.SharedIndexInformer) {
	c.tracked.LoadOrStore(resource, informer)
}

// runner starts one informer.
type runner struct{ informer cache.SharedIndexInformer }

// Start runs the informer until stop is closed.
func (r runner) Start(stop <-chan struct{}) { go r.informer.Run(stop) }
