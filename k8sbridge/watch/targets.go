package watch

import (
	"context"
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

// watchNodes watches the nodes of all targets until stop is called.
func (b *Bridge) watchNodes() (stop func()) {
	var removals []func()
	forget := b.cluster.OnTarget(func(_ string, target *observecache.Target) {
		informer := target.Informer(observecache.Nodes)
		if informer == nil {
			return
		}
		registration, err := informer.AddEventHandler(b.eventHandler(observecache.Nodes, informer, target))
		if err != nil { // the informer has stopped, because another target replaces this target
			b.log.Warn("nodes are not watched", "error", err)
			return
		}
		removals = append(removals, func() { _ = informer.RemoveEventHandler(registration) })
	})
	return func() {
		forget()
		for _, remove := range removals {
			remove()
		}
	}
}

// WatchTargetReports makes the bridge wake the machines of a namespace when a worker reports that the namespace's target
// is ready. Call WatchTargetReports before Run.
func (b *Bridge) WatchTargetReports(client kubernetes.Interface, namespace string) {
	b.targetReports = informers.NewSharedInformerFactoryWithOptions(
		client, 0,
		informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, target.ReportsName).String()
		}),
	).Core().V1().ConfigMaps().Informer()
}

// runTargetReports watches the reports until ctx ends.
func (b *Bridge) runTargetReports(ctx context.Context, group *sync.WaitGroup) error {
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
				b.WakeMachines(r.Namespace)
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

// WakeMachines evaluates the machines of a namespace, because its target became ready. Machines without pending work
// get no signal. WakeMachines is safe for concurrent use.
func (b *Bridge) WakeMachines(namespace string) {
	for _, m := range observecache.AllObjects[*v1alpha1.Machine](b.cluster.Informer(observecache.Machines)) {
		if m.Namespace == namespace {
			b.enqueue(objectKey{run.KindMachine, m.Namespace, m.Name}, wakeRequest{}, debounce)
		}
	}
}
