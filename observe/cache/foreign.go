package cache

import (
	"fmt"
	"maps"
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
	"millwright/decide/phrase"
)

// foreign knows in which namespaces another controller of the machine objects is at work: machine-controller-manager, or
// an older installation of Millwright. The zero value knows of none.
type foreign struct {
	namespaces cache.SharedIndexInformer
	informers  []cache.SharedIndexInformer // all of them

	mu            sync.Mutex
	controllers   controllers
	installations installations
	begins        func(why string, in func(namespace string) bool)
	moved         chan struct{} // has an element when a namespace may have become Millwright's, or another's
}

// beginning is a controller that has begun to work: what is said of it, and where it works.
type beginning struct {
	why string
	in  func(namespace string) bool
}

// WatchForeign makes the cluster know in which namespaces machine-controller-manager or another installation than ours is
// at work, and the labels of namespaces. Call it before Start.
func (c *Cluster) WatchForeign(control kubernetes.Interface, ours string) error {
	f := &c.foreign
	f.controllers = controllers{}
	f.installations = installations{ours: ours, leases: map[string]installation{}, labels: f.labels}
	f.moved = make(chan struct{}, 1)
	for _, name := range append(MCMLeases(), v1alpha1.LeaseWorkers) {
		factory := informers.NewSharedInformerFactoryWithOptions(
			control,
			0,
			informers.WithTransform(strip),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + name }),
		)
		informer := factory.Coordination().V1().Leases().Informer()
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { f.seen(o.(*coordinationv1.Lease)) },
			UpdateFunc: func(_, o any) { f.seen(o.(*coordinationv1.Lease)) },
			DeleteFunc: func(o any) {
				if unknown, is := o.(cache.DeletedFinalStateUnknown); is {
					o = unknown.Obj
				}
				if lease, is := o.(*coordinationv1.Lease); is {
					f.gone(lease)
				}
			},
		})
		if err != nil {
			return fmt.Errorf("watch Leases %s: %w", name, err)
		}
		f.informers = append(f.informers, informer)
		c.factories = append(c.factories, factory)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(control, 0, informers.WithTransform(strip))
	f.namespaces = factory.Core().V1().Namespaces().Informer()
	_, err := f.namespaces.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { f.labelled(c.Scope) },
		UpdateFunc: func(before, after any) {
			if !maps.Equal(before.(*corev1.Namespace).Labels, after.(*corev1.Namespace).Labels) {
				f.labelled(c.Scope)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	f.informers = append(f.informers, f.namespaces)
	c.factories = append(c.factories, factory)
	return nil
}

// labelled says that a namespace has other labels than before, if a selector asks for labels.
func (f *foreign) labelled(ours Scope) {
	f.mu.Lock()
	selects := ours.Selector != nil || f.installations.selects()
	f.mu.Unlock()
	if selects {
		f.move()
	}
}

// labels returns the labels of a namespace; nil: they are not known.
func (f *foreign) labels(namespace string) labels.Labels {
	if o, found := get[*corev1.Namespace](f.namespaces, namespace); found {
		return labels.Set(o.Labels)
	}
	return nil
}

// move says that a namespace may have become Millwright's, or another's. It never blocks.
func (f *foreign) move() {
	select {
	case f.moved <- struct{}{}:
	default: // nobody has looked since the last time
	}
}

// Moved returns a channel with an element when a namespace may have become Millwright's, or another's, since the last one
// was taken. Two things are not told: that the Lease of machine-controller-manager has ended without a word, and that the
// Lease of our workers is there. It has one receiver; nil without WatchForeign.
func (c *Cluster) Moved() <-chan struct{} { return c.foreign.moved }

// OnForeign calls begins for each other controller that is at work, and later for each that begins to work, with what it
// is and a function that says in which namespaces. Call it once.
func (c *Cluster) OnForeign(begins func(why string, in func(namespace string) bool)) {
	f := &c.foreign
	now := time.Now()
	f.mu.Lock()
	f.begins = begins
	already := append(f.controllers.atWork(now), f.installations.atWork(now)...)
	f.mu.Unlock()
	f.tell(already)
}

// tell says that controllers have begun to work.
func (f *foreign) tell(all []beginning) {
	f.mu.Lock()
	begins := f.begins
	f.mu.Unlock()
	for _, b := range all {
		f.move()
		if begins != nil {
			begins(b.why, b.in)
		}
	}
}

// seen takes up a Lease. One without a holder was released.
func (f *foreign) seen(lease *coordinationv1.Lease) {
	s := lease.Spec
	if s.RenewTime == nil || s.HolderIdentity == nil || *s.HolderIdentity == "" {
		f.gone(lease)
		return
	}
	f.mu.Lock()
	var began []beginning
	if now := time.Now(); lease.Name == v1alpha1.LeaseWorkers {
		began = f.installations.seen(lease, now)
	} else {
		began = f.controllers.seen(lease, now)
	}
	f.mu.Unlock()
	f.tell(began)
}

func (f *foreign) gone(lease *coordinationv1.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := false
	if lease.Name == v1alpha1.LeaseWorkers {
		known = f.installations.gone(lease)
	} else {
		known = f.controllers.gone(lease)
	}
	if known {
		f.move()
	}
}

// InScope reports whether the flags make a namespace Millwright's.
func (c *Cluster) InScope(namespace string) bool {
	return c.Scope.Has(namespace, c.foreign.labels(namespace))
}

// Acts reports whether this installation acts in a namespace of the control cluster: the Scope has it, and no older
// installation does. For objects of Cluster API that is all; for those of machine-controller-manager's kinds, see Ours.
func (c *Cluster) Acts(namespace string) bool {
	if !c.InScope(namespace) {
		return false
	}
	c.foreign.mu.Lock()
	defer c.foreign.mu.Unlock()
	return !c.foreign.installations.has(namespace)
}

// Ours reports whether Millwright acts on the machine objects of a namespace of the control cluster: this installation acts
// there, and machine-controller-manager does not.
func (c *Cluster) Ours(namespace string) bool {
	if !c.Acts(namespace) {
		return false
	}
	c.foreign.mu.Lock()
	defer c.foreign.mu.Unlock()
	return !c.foreign.controllers.has(namespace, time.Now())
}

// clockError is by how much the clock of a holder of a Lease may differ from ours, when we see the Lease for the first
// time. Later its changes are observed, and no clock is compared.
const clockError = time.Minute

// MCMLeases returns the names of the Leases of machine-controller-manager's leader elections. It keeps them in the
// namespace of its machine objects.
func MCMLeases() []string { return []string{"machine-controller-manager", "machine-controller"} }

// controllers are the Leases of machine-controller-manager (MCM). Each says that MCM is at work in its namespace.
type controllers map[types.NamespacedName]holding

// holding is a Lease of MCM as it was seen last.
type holding struct {
	by      string
	renewed time.Time // by the holder's clock
	until   time.Time // by our clock: the holder is at work until then, or renews it before
}

// Holder returns who holds a Lease of MCM now, by our clock, and when it was renewed; an empty name: nobody does.
func Holder(lease *coordinationv1.Lease, now time.Time) (by string, renewed time.Time) {
	s := lease.Spec
	if s.RenewTime == nil || s.HolderIdentity == nil || s.RenewTime.Add(lasts(lease)).Before(now) {
		return "", time.Time{}
	}
	return *s.HolderIdentity, s.RenewTime.Time
}

// lasts returns how long a Lease of MCM counts after a renewal.
func lasts(lease *coordinationv1.Lease) time.Duration {
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 0
}

func keyOf(lease *coordinationv1.Lease) types.NamespacedName {
	return types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
}

// seen takes up a Lease, and returns its holder if it begins to work. A Lease that its holder has renewed since it was
// seen last says that the holder is at work.
func (c controllers) seen(lease *coordinationv1.Lease, now time.Time) []beginning {
	key, s := keyOf(lease), lease.Spec
	h := holding{by: *s.HolderIdentity, renewed: s.RenewTime.Time, until: now.Add(lasts(lease))}
	last, known := c[key]
	switch {
	case known && last.by == h.by && last.renewed.Equal(h.renewed):
		h.until = last.until
	case !known && h.renewed.Add(lasts(lease)+clockError).Before(now): // it was left behind long ago
		h.until = now
	}
	c[key] = h
	if last.until.After(now) || !h.until.After(now) {
		return nil
	}
	return []beginning{h.begins(key, now)}
}

// gone forgets a Lease, and reports whether it was known.
func (c controllers) gone(lease *coordinationv1.Lease) bool {
	key := keyOf(lease)
	_, known := c[key]
	delete(c, key)
	return known
}

// has reports whether MCM is at work in a namespace.
func (c controllers) has(namespace string, now time.Time) bool {
	for _, name := range MCMLeases() {
		if c[types.NamespacedName{Namespace: namespace, Name: name}].until.After(now) {
			return true
		}
	}
	return false
}

// atWork returns each MCM that is at work.
func (c controllers) atWork(now time.Time) (all []beginning) {
	for key, h := range c {
		if h.until.After(now) {
			all = append(all, h.begins(key, now))
		}
	}
	return all
}

func (h holding) begins(key types.NamespacedName, now time.Time) beginning {
	return beginning{
		why: fmt.Sprintf(
			"machine-controller-manager is at work in namespace %s: %s renewed Lease %s at %s; "+
				"this installation leaves the objects there alone until it stops",
			key.Namespace, h.by, key.Name, phrase.Clock(h.renewed, now),
		),
		in: func(namespace string) bool { return namespace == key.Namespace },
	}
}
