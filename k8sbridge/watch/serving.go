package watch

import (
	"context"
	"math/rand/v2"
	"time"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/class"
	"millwright/workflows/run"
)

// AskPollers makes the bridge ask regularly whether each provider that a class names has a worker, and wake the classes
// whose status does not say so or says otherwise. Call it before Run. ask returns how many workers serve a provider.
func (b *Bridge) AskPollers(ask func(ctx context.Context, provider string) (int, error)) {
	b.pollers = ask
}

// watchPollers asks until ctx ends.
func (b *Bridge) watchPollers(ctx context.Context) {
	for b.pollers != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollersEach + rand.N(pollersEach/10)):
			b.askPollers(ctx)
		}
	}
}

// askPollers asks once for each provider, and wakes the classes whose status does not say the answer.
func (b *Bridge) askPollers(ctx context.Context) {
	answers := map[string]int{}
	classes := cache.All[*v1alpha1.MachineClass](b.cluster.Informer(cache.Classes))
	for _, of := range classes {
		name := of.ProviderName()
		if _, asked := answers[name]; !asked {
			n, err := b.pollers(ctx, name)
			if err != nil {
				b.log.Warn("the workers of a provider are not known, will ask again", "provider", name, "error", err)
				return
			}
			answers[name] = n
		}
	}
	b.mu.Lock()
	b.served = answers
	b.mu.Unlock()
	for _, of := range classes {
		silent := of.DeletionTimestamp == nil && !class.SaysServed(of) // one that is being deleted has other work
		if unserved := answers[of.ProviderName()] == 0; silent || unserved != (class.Unserved(of) != "") {
			b.enqueue(key{run.KindMachineClass, of.Namespace, of.Name}, wake{}, 0)
		}
	}
}

// isServed returns whether a worker serves a provider; asked is false if that is not known.
func (b *Bridge) isServed(provider string) (served, asked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, asked := b.served[provider]
	return n > 0, asked
}
