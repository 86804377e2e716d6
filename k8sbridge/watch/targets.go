package watch

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	observecache "millwright/observe/cache"
	"millwright/observe/target"
	"millwright/workflows/run"
)

// nodeWatch is the watch of the nodes of one target. The fingerprints of nodes are kept by watch, because the API
// server of a target chooses the UIDs of its nodes: it may use UIDs of nodes of other targets.
type nodeWatch struct {
	target        *observecache.Target
	fingerprints  map[string]fingerprints // like Bridge.storedFingerprints
	removeHandler func()                  // removes the event handler
}

// nodeWatches has the watch of each namespace's target; the namespace of a target of all namespaces is empty.
type nodeWatches struct {
	mu          sync.Mutex
	byNamespace map[string]*nodeWatch
}

// watchesByNamespace returns the present watches.
func (w *nodeWatches) watchesByNamespace() map[string]*nodeWatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.byNamespace)
}

// endWatch ends a watch, unless another watch has replaced it.
func (w *nodeWatches) endWatch(namespace string, watch *nodeWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if watch != nil && w.byNamespace[namespace] == watch {
		watch.removeHandler()
		delete(w.byNamespace, namespace)
	}
}

// watchNodes watches the nodes of all targets until stop is called.
func (b *Bridge) watchNodes() (stop func()) {
	end := b.cluster.OnTarget(b.watchTargetNodes)
	return func() {
		end()
		for namespace, watch := range b.nodeWatches.watchesByNamespace() {
			b.nodeWatches.endWatch(namespace, watch)
		}
	}
}

// watchTargetNodes watches the nodes of a namespace's target, and forgets the nodes of the target that it replaces. A
// target may have no nodes to watch.
func (b *Bridge) watchTargetNodes(namespace string, target *observecache.Target) {
	b.nodeWatches.endWatch(namespace, b.nodeWatches.watchesByNamespace()[namespace])
	informer := target.Informer(observecache.NodesResource)
	if informer == nil {
		return
	}
	watch := &nodeWatch{target: target, fingerprints: map[string]fingerprints{}}
	registration, err := informer.AddEventHandler(b.eventHandler(observecache.NodesResource, informer, watch))
	if err != nil { // the informer has stopped, because another target replaces this target
		b.log.Warn("nodes are not watched", "namespace", namespace, "error", err)
		return
	}
	watch.removeHandler = func() { _ = informer.RemoveEventHandler(registration) }
	b.nodeWatches.mu.Lock()
	defer b.nodeWatches.mu.Unlock()
	b.nodeWatches.byNamespace[namespace] = watch
}

// forgetEndedTargets forgets the nodes of each target whose connection has ended without another target, because the
// bridge no longer serves its namespace.
func (b *Bridge) forgetEndedTargets() {
	for namespace, watch := range b.nodeWatches.watchesByNamespace() {
		if b.cluster.Target(namespace) != watch.target {
			b.nodeWatches.endWatch(namespace, watch)
		}
	}
}

// WatchTargetReports makes the bridge wake the machines of a namespace when a worker reports that the namespace's
// target is ready. Call WatchTargetReports before Run.
func (b *Bridge) WatchTargetReports(client kubernetes.Interface, namespace string) {
	b.targetReports = informers.NewSharedInformerFactoryWithOptions(
		client, 0,
		informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, target.ReportsConfigMapName).String()
		}),
	).Core().V1().ConfigMaps().Informer()
}

// runTargetReportWatch watches the reports until ctx ends.
func (b *Bridge) runTargetReportWatch(ctx context.Context, group *sync.WaitGroup) error {
	if b.targetReports == nil {
		return nil
	}
	wake := func(before, after any) {
		ready := map[string]time.Time{} // the time at which each target became ready
		if before, is := before.(*corev1.ConfigMap); is {
			for _, r := range target.ReadReports(before, time.Now()) {
				if r.State == observecache.TargetReady {
					ready[r.Key()] = r.Since
				}
			}
		}
		now, is := after.(*corev1.ConfigMap)
		if !is {
			return
		}
		for _, r := range target.ReadReports(now, time.Now()) {
			if since, known := ready[r.Key()]; r.State == observecache.TargetReady && (!known || !since.Equal(r.Since)) {
				b.EvaluateMachines(r.Namespace)
			}
		}
	}
	if _, err := b.targetReports.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { wake(nil, o) },
		UpdateFunc: wake,
	}); err != nil {
		return err
	}
	group.Go(func() { b.targetReports.RunWithContext(ctx) })
	return nil
}

// EvaluateMachines evaluates the machines of a namespace, because its target became ready. Machines without pending
// work get no signal. EvaluateMachines is safe for concurrent use.
func (b *Bridge) EvaluateMachines(namespace string) {
	for _, m := range observecache.AllObjects[*v1alpha1.Machine](b.cluster.Informer(observecache.MachinesResource)) {
		if m.Namespace == namespace {
			b.enqueue(objectKey{run.KindMachine, m.Namespace, m.Name}, signalRequest{}, debounceDelay)
		}
	}
}
