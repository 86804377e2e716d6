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
	observedrain "millwright/observe/drain"
	"millwright/observe/machine"
	"millwright/workflows/run"
)

// informersByKind returns the caches of the objects that have a workflow, by workflow kind. The kinds of Cluster API
// are missing if Millwright does not watch Cluster API.
func (b *Bridge) informersByKind() map[run.Kind]cache.SharedIndexInformer {
	informers := map[run.Kind]cache.SharedIndexInformer{}
	for kind, resource := range map[run.Kind]observecache.Resource{
		run.KindMachine: observecache.MachinesResource, run.KindMachineSet: observecache.SetsResource,
		run.KindMachineDeployment: observecache.DeploymentsResource, run.KindMachineClass: observecache.ClassesResource,
		run.KindClusterAPISet: capi.SetsResource, run.KindClusterAPIDeployment: capi.DeploymentsResource, run.KindClusterAPIDrain: capi.MachinesResource,
	} {
		if informer := b.cluster.Informer(resource); informer != nil {
			informers[kind] = informer
		}
	}
	return informers
}

// forEachObject calls do with every object of the shard that has a workflow, until do returns false.
func (b *Bridge) forEachObject(do func(objectKey) bool) {
	for kind, informer := range b.informersByKind() {
		for _, id := range informer.GetStore().ListKeys() {
			namespace, name, err := cache.SplitMetaNamespaceKey(id)
			if err == nil && b.servesNamespace(namespace) && !do(objectKey{kind, namespace, name}) {
				return
			}
		}
	}
}

// evaluateAllObjects evaluates every object, even if its fingerprints are unchanged.
func (b *Bridge) evaluateAllObjects() {
	b.forEachObject(func(k objectKey) bool {
		b.enqueue(k, signalRequest{}, 0)
		return true
	})
}

// resync ensures every minute that each object with pending work has an open run, and wakes the next machines in each
// drain queue. At its start resync also wakes the runs whose objects are gone or outside Millwright's namespaces, and
// repeats this search every minute until the search succeeds. When a namespace is added to Millwright's namespaces, or
// leaves them, resync does both at once.
func (b *Bridge) resync(ctx context.Context) {
	strays := 1 // number of remaining searches for runs whose objects are gone
	namespaces := b.evaluateNewNamespaces(nil)
	for begun := false; ; begun = true {
		if strays > 0 {
			if err := b.signalRunsWithoutObject(ctx); err == nil {
				strays--
			} else if ctx.Err() == nil {
				b.log.Warn("runs whose objects are gone are not known yet, will try again", "error", err)
			}
		}
		if begun {
			b.forEachObject(func(k objectKey) bool { return b.ensureOpenRun(ctx, k) })
			b.forgetEndedTargets()
			b.enqueueNextDrainsOfAllClusters()
			for _, turns := range observedrain.AllQueues(b.cluster) {
				b.enqueueNextDrains(turns, signalRequest{}) // restarted workers may drain more nodes in parallel than before
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-b.cluster.OwnershipChanges():
			strays = 2 // repeat after a minute: a worker may see the change later than the bridge
		case <-b.shardChanges:
			namespaces, strays = b.evaluateNewNamespaces(namespaces), 1
		case <-time.After(resyncInterval + rand.N(resyncInterval/10)):
		}
	}
}

// ensureOpenRun ensures that an object with pending work has an open run. ensureOpenRun uses a plain start, which adds
// no event to an open run. If the pending work should finish within a second, or the status does not name the blocker,
// ensureOpenRun enqueues a signal instead, because an open run may have missed a signal. ensureOpenRun returns false
// when ctx has ended.
func (b *Bridge) ensureOpenRun(ctx context.Context, k objectKey) bool {
	s, found := b.readSubject(ctx, k)
	if !found || s.decision.NeedsNothing() {
		return ctx.Err() == nil
	}
	prompt := []attention.Need{attention.NeedScaling, attention.NeedReplacement, attention.NeedFinalizers}
	if need := s.decision.Need; s.hasUnreportedBlocker || need.IsDoneInOneStep() || slices.Contains(prompt, need) {
		// any other pending work waits for a change from outside
		b.enqueue(k, signalRequest{}, 0)
		return ctx.Err() == nil
	}
	if err := b.signalLimiter.Wait(ctx); err != nil {
		return false
	}
	_, err := b.workflowClient.ExecuteWorkflow(
		ctx,
		b.startOptions(k, s),
		string(k.kind),
		run.Input{Ref: s.ref, Versions: s.versions},
	)
	switch {
	case err == nil:
		b.recordTemporalAnswer()
	case ctx.Err() == nil:
		b.recordTemporalFailure(err)
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

// signalMachinesWithLongCalls runs until ctx ends. signalMachinesWithLongCalls signals each machine whose provider call
// has been open for long but is missing in the status. No event reports that a provider call takes long, and a timer in
// each creation would cost more.
func (b *Bridge) signalMachinesWithLongCalls(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(longCallCheckInterval + rand.N(longCallCheckInterval/10)):
			for _, m := range observecache.AllObjects[*v1alpha1.Machine](b.cluster.Informer(observecache.MachinesResource)) {
				o := m.Status.CurrentOperation
				if o == nil || len(o.BlockedBy) > 0 {
					continue
				}
				if waits := machine.ExplanationFacts(m, b.cluster.ClassOfMachine(m), time.Now()).
					CurrentWait(); slices.Contains(
					waits.Blockers,
					vocabulary.BlockedByProviderCall,
				) {
					b.enqueue(objectKey{run.KindMachine, m.Namespace, m.Name}, signalRequest{}, 0)
				}
			}
		}
	}
}
