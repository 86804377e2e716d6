package cache

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/phrase"
)

// otherControllers records in which namespaces another controller of the machine objects is active:
// machine-controller-manager, or an older installation of Millwright. The zero value records no controller.
type otherControllers struct {
	namespaceInformer cache.SharedIndexInformer
	informers         []cache.SharedIndexInformer // informers of Leases and namespaces

	mu                 sync.Mutex
	mcmLeases          mcmLeases
	installations      installations
	onActiveController func(reason, why string, in func(namespace string) bool)
	ownershipSignals   chan struct{} // has an element if the controller of a namespace may have changed
}

// activeController describes a controller that has become active, or a namespace that is held: reason and message of an
// event, and the namespaces.
type activeController struct {
	reason          string
	message         string
	actsInNamespace func(namespace string) bool
}

// LeaseOfWorkers returns the Lease that the workers renew in a namespace; nil if there is none. Call
// WatchOtherControllers before Start.
func (c *Cluster) LeaseOfWorkers(namespace string) *coordinationv1.Lease {
	for _, informer := range c.otherControllers.informers {
		if lease, found := getByKey[*coordinationv1.Lease](informer, namespace+"/"+v1alpha1.LeaseWorkers); found {
			return lease
		}
	}
	return nil
}

// WatchOtherControllers watches the Leases of machine-controller-manager and of other installations, and the labels of
// namespaces. Cluster needs them to report which controller is active in a namespace. The parameter ours is the name of
// this installation. Call WatchOtherControllers before Start.
func (c *Cluster) WatchOtherControllers(control kubernetes.Interface, ours string) error {
	f := &c.otherControllers
	f.mcmLeases = mcmLeases{}
	f.installations = installations{
		ownName:           ours,
		byLeaseNamespace:  map[string]installation{},
		labelsOfNamespace: f.labelsOfNamespace,
	}
	f.ownershipSignals = make(chan struct{}, 1)
	for _, name := range append(MCMLeaseNames(), v1alpha1.LeaseWorkers) {
		factory := informers.NewSharedInformerFactoryWithOptions(
			control,
			0,
			informers.WithTransform(stripUnusedFields),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + name }),
		)
		informer := factory.Coordination().V1().Leases().Informer()
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { f.recordLease(o.(*coordinationv1.Lease)) },
			UpdateFunc: func(_, o any) { f.recordLease(o.(*coordinationv1.Lease)) },
			DeleteFunc: func(o any) {
				if unknown, is := o.(cache.DeletedFinalStateUnknown); is {
					o = unknown.Obj
				}
				if lease, is := o.(*coordinationv1.Lease); is {
					f.forgetLease(lease)
				}
			},
		})
		if err != nil {
			return fmt.Errorf("watch Leases %s: %w", name, err)
		}
		f.informers = append(f.informers, informer)
		c.informerFactories = append(c.informerFactories, factory)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(control, 0, informers.WithTransform(stripUnusedFields))
	f.namespaceInformer = factory.Core().V1().Namespaces().Informer()
	_, err := f.namespaceInformer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { f.notifyLabelChange(c.Scope) },
		UpdateFunc: func(before, after any) {
			if !maps.Equal(before.(*corev1.Namespace).Labels, after.(*corev1.Namespace).Labels) {
				f.notifyLabelChange(c.Scope)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	f.informers = append(f.informers, f.namespaceInformer)
	c.informerFactories = append(c.informerFactories, factory)
	return nil
}

// After a change of a namespace's labels, notifyLabelChange calls notifyOwnershipChange if any installation uses a
// label selector.
func (f *otherControllers) notifyLabelChange(ours NamespaceScope) {
	f.mu.Lock()
	selects := ours.Selector != nil || f.installations.usesSelectors()
	f.mu.Unlock()
	if selects {
		f.notifyOwnershipChange()
	}
}

// labelsOfNamespace returns the labels of a namespace; nil means unknown.
func (f *otherControllers) labelsOfNamespace(namespace string) labels.Labels {
	if o, found := getByKey[*corev1.Namespace](f.namespaceInformer, namespace); found {
		return labels.Set(o.Labels)
	}
	return nil
}

// notifyOwnershipChange signals that the controller of a namespace may have changed. notifyOwnershipChange never
// blocks.
func (f *otherControllers) notifyOwnershipChange() {
	select {
	case f.ownershipSignals <- struct{}{}:
	default: // the channel still has an unread signal
	}
}

// OwnershipChanges returns a channel that gets an element when the controller of a namespace may have changed since the
// last receive. Two changes send no element: the expiry of a Lease of machine-controller-manager, and the appearance of
// this installation's own Lease. The channel is for one receiver. The channel is nil if WatchOtherControllers was not
// called.
func (c *Cluster) OwnershipChanges() <-chan struct{} { return c.otherControllers.ownershipSignals }

// OnActiveController calls begins for each other controller that is active, and for each controller that becomes active
// later, and for each hold of a namespace. begins receives the reason and the message of an event, and a function that
// reports whether the event applies to a namespace. Call OnActiveController once.
func (c *Cluster) OnActiveController(begins func(reason, why string, in func(namespace string) bool)) {
	f := &c.otherControllers
	now := time.Now()
	f.mu.Lock()
	f.onActiveController = begins
	already := slices.Concat(
		f.mcmLeases.activeControllers(now), f.installations.activeControllers(now), c.holds.describeHolds(),
	)
	f.mu.Unlock()
	f.reportActiveControllers(already)
}

// reportActiveControllers reports controllers that have become active to the callback of OnActiveController.
func (f *otherControllers) reportActiveControllers(all []activeController) {
	f.mu.Lock()
	begins := f.onActiveController
	f.mu.Unlock()
	for _, b := range all {
		f.notifyOwnershipChange()
		if begins != nil {
			begins(b.reason, b.message, b.actsInNamespace)
		}
	}
}

// recordLease stores a Lease. A Lease without a holder counts as released.
func (f *otherControllers) recordLease(lease *coordinationv1.Lease) {
	s := lease.Spec
	if s.RenewTime == nil || s.HolderIdentity == nil || *s.HolderIdentity == "" {
		f.forgetLease(lease)
		return
	}
	f.mu.Lock()
	var began []activeController
	if now := time.Now(); lease.Name == v1alpha1.LeaseWorkers {
		began = f.installations.recordLease(lease, now)
	} else {
		began = f.mcmLeases.recordLease(lease, now)
	}
	f.mu.Unlock()
	f.reportActiveControllers(began)
}

func (f *otherControllers) forgetLease(lease *coordinationv1.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := false
	if lease.Name == v1alpha1.LeaseWorkers {
		known = f.installations.forgetLease(lease)
	} else {
		known = f.mcmLeases.forgetLease(lease)
	}
	if known {
		f.notifyOwnershipChange()
	}
}

// IsInScope reports whether the worker's flags assign a namespace to Millwright.
func (c *Cluster) IsInScope(namespace string) bool {
	return c.Scope.ContainsNamespace(namespace, c.otherControllers.labelsOfNamespace(namespace))
}

// ActsInNamespace reports whether this installation acts in a namespace of the control cluster: the NamespaceScope
// contains the namespace, the namespace is not held, and no older installation claims it. ActsInNamespace is sufficient
// for objects of Cluster API; for machine-controller-manager's kinds, use ActsOnMachines.
func (c *Cluster) ActsInNamespace(namespace string) bool {
	if !c.IsInScope(namespace) || c.IsHeld(namespace) {
		return false
	}
	c.otherControllers.mu.Lock()
	defer c.otherControllers.mu.Unlock()
	return !c.otherControllers.installations.isClaimedByOther(namespace)
}

// ActsOnMachines reports whether Millwright acts on the machine objects of a namespace of the control cluster: this
// installation acts in the namespace, and machine-controller-manager is not active in it.
func (c *Cluster) ActsOnMachines(namespace string) bool {
	if !c.ActsInNamespace(namespace) {
		return false
	}
	c.otherControllers.mu.Lock()
	defer c.otherControllers.mu.Unlock()
	return !c.otherControllers.mcmLeases.isActiveInNamespace(namespace, time.Now())
}

// maxClockSkew is the largest expected difference between the clock of a Lease's holder and this worker's clock.
// maxClockSkew counts only when the worker sees a Lease for the first time: later the worker observes changes of the
// Lease and compares no clocks.
const maxClockSkew = time.Minute

// MCMLeaseNames returns the names of the Leases of machine-controller-manager's leader elections.
// Machine-controller-manager keeps these Leases in the namespace of its machine objects.
func MCMLeaseNames() []string { return []string{"machine-controller-manager", "machine-controller"} }

// mcmLeases maps the key of each Lease of machine-controller-manager (MCM) to its last state. An active Lease means
// that MCM is active in the Lease's namespace.
type mcmLeases map[types.NamespacedName]mcmLease

// mcmLease is the last observed state of a Lease of MCM.
type mcmLease struct {
	holder      string
	renewedAt   time.Time // last renewal of the Lease, by the holder's clock
	activeUntil time.Time // expiry of the Lease, by this worker's clock
}

// MCMLeaseHolder returns the present holder of a Lease of MCM, by this worker's clock, and the time of the last
// renewal; an empty name if the Lease is not held.
func MCMLeaseHolder(lease *coordinationv1.Lease, now time.Time) (by string, renewed time.Time) {
	s := lease.Spec
	if s.RenewTime == nil || s.HolderIdentity == nil || s.RenewTime.Add(mcmLeaseDuration(lease)).Before(now) {
		return "", time.Time{}
	}
	return *s.HolderIdentity, s.RenewTime.Time
}

// mcmLeaseDuration returns how long a Lease of MCM is valid after a renewal.
func mcmLeaseDuration(lease *coordinationv1.Lease) time.Duration {
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 0
}

func leaseKey(lease *coordinationv1.Lease) types.NamespacedName {
	return types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
}

// recordLease stores a Lease, and returns its holder if the holder has become active. A renewal since the last
// observation proves that the holder is active.
func (c mcmLeases) recordLease(lease *coordinationv1.Lease, now time.Time) []activeController {
	key, s := leaseKey(lease), lease.Spec
	h := mcmLease{holder: *s.HolderIdentity, renewedAt: s.RenewTime.Time, activeUntil: now.Add(mcmLeaseDuration(lease))}
	last, known := c[key]
	switch {
	case known && last.holder == h.holder && last.renewedAt.Equal(h.renewedAt):
		h.activeUntil = last.activeUntil
	case !known && h.renewedAt.Add(mcmLeaseDuration(lease)+maxClockSkew).Before(now): // the Lease expired long ago
		h.activeUntil = now
	}
	c[key] = h
	if last.activeUntil.After(now) || !h.activeUntil.After(now) {
		return nil
	}
	return []activeController{h.describeController(key, now)}
}

// forgetLease removes a Lease, and reports whether the Lease was stored.
func (c mcmLeases) forgetLease(lease *coordinationv1.Lease) bool {
	key := leaseKey(lease)
	_, known := c[key]
	delete(c, key)
	return known
}

// isActiveInNamespace reports whether MCM is active in a namespace.
func (c mcmLeases) isActiveInNamespace(namespace string, now time.Time) bool {
	for _, name := range MCMLeaseNames() {
		if c[types.NamespacedName{Namespace: namespace, Name: name}].activeUntil.After(now) {
			return true
		}
	}
	return false
}

// activeControllers returns each active MCM.
func (c mcmLeases) activeControllers(now time.Time) (all []activeController) {
	for key, h := range c {
		if h.activeUntil.After(now) {
			all = append(all, h.describeController(key, now))
		}
	}
	return all
}

func (h mcmLease) describeController(key types.NamespacedName, now time.Time) activeController {
	return activeController{
		reason: vocabulary.ReasonAnotherController,
		message: fmt.Sprintf(
			"machine-controller-manager is at work in namespace %s: %s renewed Lease %s at %s; "+
				"this installation leaves the objects there alone until it stops",
			key.Namespace, h.holder, key.Name, phrase.ClockText(h.renewedAt, now),
		),
		actsInNamespace: func(namespace string) bool { return namespace == key.Namespace },
	}
}
