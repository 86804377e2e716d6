package watch

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	observecache "millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/machine"
	"millwright/workflows/run"
)

// watched returns the caches of the objects that have a workflow, by the kind of the workflow. The kinds of Cluster API
// are missing if Millwright does not watch it.
func (b *Bridge) watched() map[run.Kind]cache.SharedIndexInformer {
	informers := map[run.Kind]cache.SharedIndexInformer{}
	for kind, resource := range map[run.Kind]observecache.Resource{
		run.KindMachine: observecache.Machines, run.KindMachineSet: observecache.Sets,
		run.KindMachineDeployment: observecache.Deployments, run.KindMachineClass: observecache.Classes,
		run.KindClusterAPISet: capi.SetsResource, run.KindClusterAPIDeployment: capi.DeploymentsResource, run.KindClusterAPIDrain: capi.MachinesResource,
	} {
		if informer := b.cluster.Informer(resource); informer != nil {
			informers[kind] = informer
		}
	}
	return informers
}

// each calls do with every object that has a workflow, until do returns false.
func (b *Bridge) each(do func(key) bool) {
	for kind, informer := range b.watched() {
		for _, id := range informer.GetStore().ListKeys() {
			namespace, name, err := cache.SplitMetaNamespaceKey(id)
			if err == nil && !do(key{kind, namespace, name}) {
				return
			}
		}
	}
}

// sweep evaluates every object, whether or not its fingerprints changed.
func (b *Bridge) sweep() {
	b.each(func(k key) bool {
		b.enqueue(k, wake{}, 0)
		return true
	})
}

// resync makes sure, each minute, that every object that is not calm has an open run. At first it also wakes the runs
// whose objects are gone or not Millwright's, and repeats that each minute until it succeeds. It does both at once when
// a namespace has become Millwright's, or another controller's. Each minute it also wakes the machines whose turn to be
// drained comes next.
func (b *Bridge) resync(ctx context.Context) {
	strays := 1 // how often runs whose objects are gone are still to be woken
	for begun := false; ; begun = true {
		if strays > 0 {
			if err := b.wakeStrays(ctx); err == nil {
				strays--
			} else if ctx.Err() == nil {
				b.log.Warn("runs whose objects are gone are not known yet, will try again", "error", err)
			}
		}
		if begun {
			b.each(func(k key) bool { return b.ensure(ctx, k) })
			b.wakeClusterAPIQueues()
			b.wakeQueue(wake{}) // workers that were restarted may drain more nodes at a time than before
		}
		select {
		case <-ctx.Done():
			return
		case <-b.cluster.Moved():
			strays = 2 // and once more after a minute: a worker may have seen the change later than the bridge
		case <-time.After(resyncEach + rand.N(resyncEach/10)):
		}
	}
}

// ensure gives an object that is not calm an open run by a plain start, which adds no event to a run that is open
// already. If the pending work should have been done within a second, or the status does not name what blocks the
// object, the object is signaled instead: an open run may have missed a signal. It returns false when ctx has ended.
func (b *Bridge) ensure(ctx context.Context, k key) bool {
	s, found := b.subject(ctx, k)
	if !found || s.decision.Calm() {
		return ctx.Err() == nil
	}
	prompt := []attention.Need{attention.Scale, attention.Replace, attention.Finalizers}
	if need := s.decision.Need; s.unexplained || need.OneStep() || slices.Contains(prompt, need) {
		// work of other needs waits for a change from outside
		b.enqueue(k, wake{}, 0)
		return ctx.Err() == nil
	}
	if err := b.limiter.Wait(ctx); err != nil {
		return false
	}
	_, err := b.starter.ExecuteWorkflow(ctx, b.options(k, s), string(k.kind), run.Input{Ref: s.ref, Versions: s.versions})
	switch {
	case err == nil:
		b.answered()
	case ctx.Err() == nil:
		b.failed(err)
		b.log.Warn(
			"resync: start failed, will try again",
			"kind",
			k.kind,
			"namespace",
			k.namespace,
			"name",
			k.name,
			"error",
			err,
		)
	}
	return ctx.Err() == nil
}

// watchCalls signals, until ctx ends, each machine whose call of a provider has been open for long and whose status
// does not say so yet. No event reports such a call, and a timer in each creation would cost more.
func (b *Bridge) watchCalls(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(callsEach + rand.N(callsEach/10)):
			for _, m := range observecache.All[*v1alpha1.Machine](b.cluster.Informer(observecache.Machines)) {
				o := m.Status.CurrentOperation
				if o == nil || len(o.BlockedBy) > 0 {
					continue
				}
				if waits := machine.Explained(m, b.cluster.ClassOf(m), time.Now()).
					WaitsFor(); slices.Contains(
					waits.Blockers,
					vocabulary.BlockedCall,
				) {
					b.enqueue(key{run.KindMachine, m.Namespace, m.Name}, wake{}, 0)
				}
			}
		}
	}
}
