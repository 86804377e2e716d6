package cache

import (
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"millwright/decide/phrase"
)

// clockError is by how much the clock of a holder of a Lease may differ from ours, when we see the Lease for the first
// time. Later its changes are observed, and no clock is compared.
const clockError = time.Minute

// MCMLeases returns the names of the Leases of machine-controller-manager's leader elections. It keeps them in the
// namespace of its machine objects.
func MCMLeases() []string { return []string{"machine-controller-manager", "machine-controller"} }

// foreign knows in which namespaces another controller of the machine objects is at work, by its Leases. The zero value
// knows of none.
type foreign struct {
	mu        sync.Mutex
	leases    map[string]map[string]holding // by namespace, and by name of the Lease
	informers []cache.SharedIndexInformer
	begins    func(namespace, why string)
}

// holding is a Lease as it was seen last.
type holding struct {
	by      string
	renewed time.Time // by the holder's clock
	until   time.Time // by our clock: the holder is at work until then, or renews it before
}

// WatchForeign makes the cluster know in which namespaces machine-controller-manager is at work. Call it before Start.
func (c *Cluster) WatchForeign(control kubernetes.Interface) error {
	for _, name := range MCMLeases() {
		factory := informers.NewSharedInformerFactoryWithOptions(
			control,
			0,
			informers.WithTransform(strip),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + name }),
		)
		informer := factory.Coordination().V1().Leases().Informer()
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { c.foreign.seen(o.(*coordinationv1.Lease)) },
			UpdateFunc: func(_, o any) { c.foreign.seen(o.(*coordinationv1.Lease)) },
			DeleteFunc: func(o any) {
				if unknown, is := o.(cache.DeletedFinalStateUnknown); is {
					o = unknown.Obj
				}
				if lease, is := o.(*coordinationv1.Lease); is {
					c.foreign.gone(lease)
				}
			},
		})
		if err != nil {
			return fmt.Errorf("watch Leases %s: %w", name, err)
		}
		c.foreign.informers = append(c.foreign.informers, informer)
		c.factories = append(c.factories, factory)
	}
	return nil
}

// OnForeign calls begins for each namespace in which another controller is at work, and later for each in which one
// begins to work. Call it once.
func (c *Cluster) OnForeign(begins func(namespace, why string)) {
	now, already := time.Now(), map[string]string{}
	c.foreign.mu.Lock()
	c.foreign.begins = begins
	for namespace := range c.foreign.leases {
		if why := c.foreign.why(namespace, now); why != "" {
			already[namespace] = why
		}
	}
	c.foreign.mu.Unlock()
	for namespace, why := range already {
		begins(namespace, why)
	}
}

// Holder returns who holds a Lease now, by our clock, and when the Lease was renewed; an empty name: nobody does.
func Holder(lease *coordinationv1.Lease, now time.Time) (by string, renewed time.Time) {
	s := lease.Spec
	if s.RenewTime == nil || s.HolderIdentity == nil || s.LeaseDurationSeconds == nil ||
		s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second).Before(now) {
		return "", time.Time{}
	}
	return *s.HolderIdentity, s.RenewTime.Time
}

// seen takes up a Lease. One that its holder has renewed since it was seen last says that the holder is at work.
func (f *foreign) seen(lease *coordinationv1.Lease) {
	s := lease.Spec
	if s.RenewTime == nil || s.HolderIdentity == nil || s.LeaseDurationSeconds == nil || *s.HolderIdentity == "" {
		f.gone(lease) // it was released
		return
	}
	now, lasts := time.Now(), time.Duration(*s.LeaseDurationSeconds)*time.Second
	h := holding{by: *s.HolderIdentity, renewed: s.RenewTime.Time, until: now.Add(lasts)}
	f.mu.Lock()
	before, _ := f.holder(lease.Namespace, now)
	switch last, known := f.leases[lease.Namespace][lease.Name]; {
	case known && last.by == h.by && last.renewed.Equal(h.renewed):
		h.until = last.until
	case !known && h.renewed.Add(lasts+clockError).Before(now): // it was left behind long ago
		h.until = now
	}
	if f.leases == nil {
		f.leases = map[string]map[string]holding{}
	}
	if f.leases[lease.Namespace] == nil {
		f.leases[lease.Namespace] = map[string]holding{}
	}
	f.leases[lease.Namespace][lease.Name] = h
	why, begins := f.why(lease.Namespace, now), f.begins
	f.mu.Unlock()
	if begins != nil && before == "" && why != "" {
		begins(lease.Namespace, why)
	}
}

func (f *foreign) gone(lease *coordinationv1.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.leases[lease.Namespace], lease.Name)
}

// holder returns the name and the content of a Lease of a controller that is at work in a namespace; an empty name: none
// is.
func (f *foreign) holder(namespace string, now time.Time) (name string, h holding) {
	for _, name := range MCMLeases() {
		if h := f.leases[namespace][name]; h.until.After(now) {
			return name, h
		}
	}
	return "", holding{}
}

// why says which controller is at work in a namespace; empty: none is.
func (f *foreign) why(namespace string, now time.Time) string {
	name, h := f.holder(namespace, now)
	return phrase.If(
		name != "",
		"machine-controller-manager is at work in namespace %s: %s renewed Lease %s at %s; Millwright leaves its objects alone until it stops",
		namespace,
		h.by,
		name,
		phrase.Clock(h.renewed, now),
	)
}

// Ours reports whether Millwright acts on the machine objects of a namespace of the control cluster. Objects of Cluster
// API are not those of machine-controller-manager: the Scope alone decides about them.
func (c *Cluster) Ours(namespace string) bool {
	if !c.Scope.Has(namespace) {
		return false
	}
	c.foreign.mu.Lock()
	defer c.foreign.mu.Unlock()
	name, _ := c.foreign.holder(namespace, time.Now())
	return name == ""
}
