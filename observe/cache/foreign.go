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
	"millwright/decide/phrase"
)

// clockError is by how much the clock of a holder of a Lease may differ from ours, when we see the Lease for the first
// time. Later its changes are observed, and no clock is compared.
const clockError = time.Minute

// MCMLeases returns the names of the Leases of machine-controller-manager's leader elections. It keeps them in the
// namespace of its machine objects.
func MCMLeases() []string { return []string{"machine-controller-manager", "machine-controller"} }

// foreign knows in which namespaces another controller of the machine objects is at work, by its Leases:
// machine-controller-manager (MCM) in the namespace of its Lease, another installation of Millwright where its Lease says.
// The zero value knows of none.
type foreign struct {
	own        string // name of our installation, which is on the Lease of our workers
	namespaces cache.SharedIndexInformer
	informers  []cache.SharedIndexInformer // all of them

	mu            sync.Mutex
	controllers   map[types.NamespacedName]holding // of machine-controller-manager
	installations map[types.NamespacedName]holding
	begins        func(why string, in func(namespace string) bool)
	moved         chan struct{} // has an element when a namespace may have become Millwright's, or another's
}

// holding is a Lease as it was seen last.
type holding struct {
	by      string
	renewed time.Time // by the holder's clock
	until   time.Time // of MCM, by our clock: the holder is at work until then, or renews it before
	told    bool      // that the holder has begun to work was told

	// of an installation only
	installation string
	claims       string // its Scope, as the Lease has it
	scope        Scope
	created      time.Time
}

// WatchForeign makes the cluster know in which namespaces MCM or another installation than ours is at work, and the labels
// of namespaces. Call it before Start.
func (c *Cluster) WatchForeign(control kubernetes.Interface, ours string) error {
	f := &c.foreign
	f.own = ours
	f.controllers, f.installations = map[types.NamespacedName]holding{}, map[types.NamespacedName]holding{}
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
					f.gone(keyOf(lease))
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

func keyOf(lease *coordinationv1.Lease) types.NamespacedName {
	return types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
}

// all returns the Leases of the kind of one.
func (f *foreign) all(key types.NamespacedName) map[types.NamespacedName]holding {
	if key.Name == v1alpha1.LeaseWorkers {
		return f.installations
	}
	return f.controllers
}

// labelled says that a namespace has other labels than before, if a selector asks for labels.
func (f *foreign) labelled(ours Scope) {
	f.mu.Lock()
	selects := ours.Selector != nil
	for _, h := range f.installations {
		selects = selects || h.scope.Selector != nil
	}
	f.mu.Unlock()
	if selects {
		f.move()
	}
}

// move says that a namespace may have become Millwright's, or another's. It never blocks.
func (f *foreign) move() {
	select {
	case f.moved <- struct{}{}:
	default: // nobody has looked since the last time
	}
}

// Moved returns a channel with an element when a namespace may have become Millwright's, or another's, since the last one
// was taken. That the Lease of MCM has ended without a word is not told. It has one receiver; nil without WatchForeign.
func (c *Cluster) Moved() <-chan struct{} { return c.foreign.moved }

// OnForeign calls begins for each other controller that is at work, and later for each that begins to work, with what it
// is and a function that says in which namespaces. Call it once.
func (c *Cluster) OnForeign(begins func(why string, in func(namespace string) bool)) {
	f := &c.foreign
	now := time.Now()
	f.mu.Lock()
	f.begins = begins
	var already []types.NamespacedName
	for _, leases := range []map[types.NamespacedName]holding{f.controllers, f.installations} {
		for key, h := range leases {
			if f.works(key, h, now) {
				already = append(already, key)
			}
		}
	}
	f.mu.Unlock()
	for _, key := range already {
		f.tell(key, now)
	}
}

// tell says that a holder has begun to work.
func (f *foreign) tell(key types.NamespacedName, now time.Time) {
	f.mu.Lock()
	h, begins := f.all(key)[key], f.begins
	f.mu.Unlock()
	f.move()
	if begins != nil {
		begins(h.says(key, now), func(namespace string) bool { return f.in(key, h, namespace) })
	}
}

// Holder returns who holds a Lease now, by our clock, and when the Lease was renewed; an empty name: nobody does. That of
// an installation's workers is held until it is deleted or released: their machines are theirs also while they are down.
func Holder(lease *coordinationv1.Lease, now time.Time) (by string, renewed time.Time) {
	s := lease.Spec
	if s.RenewTime == nil || s.HolderIdentity == nil ||
		lease.Name != v1alpha1.LeaseWorkers && s.RenewTime.Add(lasts(lease)).Before(now) {
		return "", time.Time{}
	}
	return *s.HolderIdentity, s.RenewTime.Time
}

// lasts returns how long the Lease of MCM counts after a renewal.
func lasts(lease *coordinationv1.Lease) time.Duration {
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 0
}

// seen takes up a Lease. One of MCM that its holder has renewed since it was seen last says that the holder is at work.
func (f *foreign) seen(lease *coordinationv1.Lease) {
	key, s := keyOf(lease), lease.Spec
	if s.RenewTime == nil || s.HolderIdentity == nil || *s.HolderIdentity == "" {
		f.gone(key) // it was released
		return
	}
	now := time.Now()
	h := holding{
		by: *s.HolderIdentity, renewed: s.RenewTime.Time, until: now.Add(lasts(lease)),
		installation: lease.Annotations[v1alpha1.AnnotationInstallation], created: lease.CreationTimestamp.Time,
		claims: lease.Annotations[v1alpha1.AnnotationScope], scope: ScopeOf(lease),
	}
	f.mu.Lock()
	switch last, known := f.all(key)[key]; {
	case key.Name == v1alpha1.LeaseWorkers:
		h.told = last.told && last.claims == h.claims
	case known && last.by == h.by && last.renewed.Equal(h.renewed):
		h.until, h.told = last.until, last.told
	case !known && h.renewed.Add(lasts(lease)+clockError).Before(now): // it was left behind long ago
		h.until = now
	default:
		h.told = last.told && last.until.After(now)
	}
	f.all(key)[key] = h
	begin := f.beginning(key, now)
	f.mu.Unlock()
	for _, key := range begin {
		f.tell(key, now)
	}
}

// beginning returns which holders begin to work, or work elsewhere, now that a Lease has changed: its own, or, if it is that
// of our workers, other installations. The lock is held.
func (f *foreign) beginning(changed types.NamespacedName, now time.Time) (keys []types.NamespacedName) {
	for key, h := range f.all(changed) {
		ours := f.all(changed)[changed].installation == f.own
		if works := f.works(key, h, now); (key == changed || ours) && works != h.told {
			if h.told = works; works {
				keys = append(keys, key)
			}
			f.all(key)[key] = h
		}
	}
	return keys
}

func (f *foreign) gone(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.all(key)[key]; known {
		delete(f.all(key), key)
		f.move()
	}
}

// works reports whether the holder of a Lease is another controller that is at work. Of two installations, the one whose
// Lease is older counts: one that somebody tries out stops no other one. The lock is held.
func (f *foreign) works(key types.NamespacedName, h holding, now time.Time) bool {
	if key.Name != v1alpha1.LeaseWorkers {
		return h.until.After(now)
	}
	// a Lease without a name is ours, from an earlier version
	return h.installation != "" && h.installation != f.own && !f.older(key, h)
}

// older reports whether our workers have a Lease that is older than another one; of the same second, its key decides. The
// lock is held.
func (f *foreign) older(theirs types.NamespacedName, h holding) bool {
	for key, ours := range f.installations {
		if ours.installation == f.own && (ours.created.Before(h.created) ||
			ours.created.Equal(h.created) && key.Namespace < theirs.Namespace) {
			return true
		}
	}
	return false
}

// in reports whether the holder of a Lease works in a namespace. One whose labels are not known yet may be theirs.
func (f *foreign) in(key types.NamespacedName, h holding, namespace string) bool {
	if key.Name != v1alpha1.LeaseWorkers {
		return key.Namespace == namespace
	}
	of, scope := f.labels(namespace), h.scope
	if of == nil {
		scope.Selector = nil
	}
	return scope.Has(namespace, of)
}

// labels returns the labels of a namespace; nil: they are not known.
func (f *foreign) labels(namespace string) labels.Labels {
	if o, found := get[*corev1.Namespace](f.namespaces, namespace); found {
		return labels.Set(o.Labels)
	}
	return nil
}

// says says who is at work, and where.
func (h holding) says(key types.NamespacedName, now time.Time) string {
	who := "machine-controller-manager is at work in namespace " + key.Namespace
	if key.Name == v1alpha1.LeaseWorkers {
		who = fmt.Sprintf(
			"installation %s of Millwright, in namespace %s, is at work in %s",
			h.installation,
			key.Namespace,
			h.scope,
		)
	}
	until := "it stops"
	if key.Name == v1alpha1.LeaseWorkers {
		until = "the Lease is deleted"
	}
	return fmt.Sprintf(
		"%s: %s renewed Lease %s at %s; this installation leaves the objects there alone until %s",
		who, h.by, key.Name, phrase.Clock(h.renewed, now), until,
	)
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
	f := &c.foreign
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, h := range f.installations {
		if f.works(key, h, now) && f.in(key, h, namespace) {
			return false
		}
	}
	return true
}

// Ours reports whether Millwright acts on the machine objects of a namespace of the control cluster: this installation acts
// there, and machine-controller-manager does not.
func (c *Cluster) Ours(namespace string) bool {
	if !c.Acts(namespace) {
		return false
	}
	f := &c.foreign
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	return !slices.ContainsFunc(MCMLeases(), func(name string) bool {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		return f.works(key, f.controllers[key], now)
	})
}
