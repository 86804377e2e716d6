package watch

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/client-go/tools/cache"

	"millwright/decide/attention"
	"millwright/observe"
	"millwright/workflows"
)

// each calls do with every object that has a workflow, until do returns false.
func (b *Bridge) each(do func(key) bool) {
	for kind, resource := range map[workflows.Kind]observe.Resource{
		workflows.KindMachine: observe.Machines, workflows.KindMachineSet: observe.Sets,
		workflows.KindMachineDeployment: observe.Deployments, workflows.KindMachineClass: observe.Classes,
	} {
		for _, id := range b.cluster.Informer(resource).GetStore().ListKeys() {
			namespace, name, err := cache.SplitMetaNamespaceKey(id)
			if err == nil && !do(key{kind, namespace, name}) {
				return
			}
		}
	}
}

// sweep queues every object, whatever its fingerprint.
func (b *Bridge) sweep() {
	b.each(func(k key) bool {
		b.enqueue(k, wake{cause: byObject})
		return true
	})
}

// resync makes sure, each minute, that every object that is not calm has an open run.
func (b *Bridge) resync(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(resyncEach + rand.N(resyncEach/10)):
			b.each(func(k key) bool { return b.ensure(ctx, k) })
		}
	}
}

// ensure gives an object that is not calm an open run: by a plain start, which leaves no event in a run that is open. What
// should have been done within a second is signaled: an open run may have missed it. It returns false when ctx has ended.
func (b *Bridge) ensure(ctx context.Context, k key) bool {
	s, found := b.subject(k)
	if !found || s.decision.Calm() {
		return ctx.Err() == nil
	}
	switch need := s.decision.Need; {
	case need.Prompt(), need == attention.Scale, need == attention.Replace, need == attention.Finalizers:
		b.enqueue(k, wake{cause: byObject})
		return ctx.Err() == nil
	default: // waits for the world
	}
	if err := b.limiter.Wait(ctx); err != nil {
		return false
	}
	_, err := b.starter.ExecuteWorkflow(ctx, s.options(k), string(k.kind), workflows.Input{Ref: s.ref, Gate: s.versions})
	switch {
	case err == nil:
		b.returned()
	case ctx.Err() == nil:
		b.failed(err)
		b.log.Warn("resync: start failed, will try again", "kind", k.kind, "namespace", k.namespace, "name", k.name, "error", err)
	}
	return ctx.Err() == nil
}
