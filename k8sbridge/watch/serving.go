package watch

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/class"
	"millwright/workflows/run"
)

// EnablePollerChecks makes the bridge check regularly whether each provider of a class has a worker. The bridge wakes
// each class whose status does not report the result of the check. Call EnablePollerChecks before Run. ask returns the
// number of a provider's workers.
func (b *Bridge) EnablePollerChecks(ask func(ctx context.Context, provider string) (int, error)) {
	b.countPollers = ask
}

// watchPollers calls checkPollers at each interval, until ctx ends.
func (b *Bridge) watchPollers(ctx context.Context) {
	for b.countPollers != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollerCheckInterval + rand.N(pollerCheckInterval/10)):
			b.checkPollers(ctx)
		}
	}
}

// checkPollers counts the workers of each provider once, and wakes each class whose status does not report the result.
func (b *Bridge) checkPollers(ctx context.Context) {
	answers := map[string]int{}
	classes := slices.DeleteFunc(
		cache.AllObjects[*v1alpha1.MachineClass](b.cluster.Informer(cache.ClassesResource)),
		func(c *v1alpha1.MachineClass) bool { return !b.servesNamespace(c.Namespace) },
	)
	for _, of := range classes {
		name := of.ProviderName()
		if _, asked := answers[name]; !asked {
			n, err := b.countPollers(ctx, name)
			if err != nil {
				b.log.Warn("the workers of a provider are not known, will ask again", "provider", name, "error", err)
				return
			}
			answers[name] = n
		}
	}
	b.mu.Lock()
	b.workerCountByProvider = answers
	b.mu.Unlock()
	for _, of := range classes {
		silent := of.DeletionTimestamp == nil && !class.HasServedCondition(of) // a class that is being deleted has other work
		if unserved := answers[of.ProviderName()] == 0; silent || unserved != (class.NoWorkerMessage(of) != "") {
			b.enqueue(objectKey{run.KindMachineClass, of.Namespace, of.Name}, signalRequest{}, 0)
		}
	}
}

// hasWorker returns whether a worker serves a provider. asked is false if the bridge has no count of the provider's
// workers.
func (b *Bridge) hasWorker(provider string) (served, asked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, asked := b.workerCountByProvider[provider]
	return n > 0, asked
}
