package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"millwright/api/generated/informers/externalversions"
)

// The resources that only drains read.
const (
	Budgets     Resource = "poddisruptionbudgets"
	Attachments Resource = "volumeattachments"
	Rules       Resource = "machinedrainrules" // of the control cluster
)

// byVolume is the index of attachments by the name of their persistent volume.
const byVolume = "volume"

// WatchDrains also caches the resources that only drains need: the target's disruption budgets and volume attachments,
// and the drain rules. Call it once, before Start. Without a target it does nothing.
func (c *Cluster) WatchDrains() error {
	if c.target == nil {
		return nil
	}
	rules := externalversions.NewSharedInformerFactoryWithOptions(c.client, 0, externalversions.WithTransform(strip))
	c.factories = append(c.factories, rules)
	c.Informers[Rules] = rules.Machine().V1alpha1().MachineDrainRules().Informer()
	return c.watchTarget()
}

// NewTarget prepares the caches of a cluster that has nodes, and no machine objects: its disruption budgets and volume
// attachments. Start fills them.
func NewTarget(target kubernetes.Interface) (*Cluster, error) {
	c := &Cluster{
		target:    target,
		Informers: map[Resource]cache.SharedIndexInformer{},
		evictions: evictions{asking: make(chan struct{}, 1)},
	}
	return c, c.watchTarget()
}

// watchTarget also caches the disruption budgets and volume attachments of the target.
func (c *Cluster) watchTarget() error {
	factory := informers.NewSharedInformerFactoryWithOptions(c.target, 0, informers.WithTransform(strip))
	c.factories = append(c.factories, factory)
	c.Informers[Budgets] = factory.Policy().V1().PodDisruptionBudgets().Informer()
	c.attaching = &link{}
	c.Informers[Attachments] = factory.InformerFor(&storagev1.VolumeAttachment{}, c.attaching.attachments)
	err := c.Informers[Attachments].AddIndexers(cache.Indexers{
		byNode:   index(func(a *storagev1.VolumeAttachment) string { return a.Spec.NodeName }),
		byVolume: index(VolumeOf),
	})
	if err != nil {
		return fmt.Errorf("index volume attachments: %w", err)
	}
	return nil
}

// VolumeOf returns the name of the persistent volume of an attachment; empty when it names none.
func VolumeOf(a *storagev1.VolumeAttachment) string {
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		return *name
	}
	return ""
}

// AttachmentsOf returns the volume attachments of a node, in no order.
func (c *Cluster) AttachmentsOf(node string) []*storagev1.VolumeAttachment {
	return Indexed[*storagev1.VolumeAttachment](c.Informers[Attachments], byNode, node)
}

// AttachmentsOfVolume returns the volume attachments of a persistent volume, in no order.
func (c *Cluster) AttachmentsOfVolume(name string) []*storagev1.VolumeAttachment {
	return Indexed[*storagev1.VolumeAttachment](c.Informers[Attachments], byVolume, name)
}

// Attached returns how many volumes are attached to a node, or are being attached. While the cache may be out of date,
// because its watch is interrupted, it returns at least 1: a deletion that sees 0 does not wait.
func (c *Cluster) Attached(node string) int {
	n := len(c.AttachmentsOf(node))
	if n == 0 && !c.KnowsAttachments() {
		return 1
	}
	return n
}

// KnowsAttachments reports whether the cache of volume attachments is current: its watch runs, or they are not watched
// at all.
func (c *Cluster) KnowsAttachments() bool { return c.attaching == nil || c.attaching.up() }

// AttachedTo returns the volumes that are attached to a node, or are being attached, sorted: the name of the persistent
// volume, or of the attachment when it has none.
func (c *Cluster) AttachedTo(node string) []string {
	var names []string
	for _, attachment := range c.AttachmentsOf(node) {
		names = append(names, cmp.Or(VolumeOf(attachment), attachment.Name))
	}
	slices.Sort(names)
	return names
}

// link records whether the watch of a cache runs. After an API server was unavailable, a cache can miss changes for up
// to a minute, the longest pause of client-go between two attempts. The resource versions that activities wait for do
// not reveal that, because the attachments are written by others.
type link struct {
	mu    sync.Mutex
	open  int       // watches that run: more than one only for a moment
	since time.Time // when the newest of them began; zero for the first, and for one that followed its predecessor at once
	ended time.Time // when the last one ended; zero while none has
}

// up reports whether a watch runs, and has had WatchCatchUp to deliver the events of an interruption.
func (l *link) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open > 0 && time.Since(l.since) >= WatchCatchUp
}

// watched is a watch that calls ended when it stops.
type watched struct {
	watch.Interface

	ended func()
}

// Stop ends the watch. A Reflector calls it for every watch, also for one that broke off.
func (w *watched) Stop() {
	w.ended()
	w.Interface.Stop()
}

// follow records that a watch runs, and when it ends.
func (l *link) follow(w watch.Interface) watch.Interface {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open++; !l.ended.IsZero() && time.Since(l.ended) > linkRenewed {
		l.since = time.Now()
	}
	return &watched{w, sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
		l.ended = time.Now()
	})}
}

// attachments returns an informer of volume attachments whose watches l follows.
func (l *link) attachments(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	source := client.StorageV1().VolumeAttachments()
	lister := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return source.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := source.Watch(ctx, options)
			if err != nil {
				return nil, err
			}
			return l.follow(w), nil
		},
	}
	return cache.NewSharedIndexInformer(
		cache.ToListWatcherWithWatchListSemantics(lister, client),
		&storagev1.VolumeAttachment{},
		resync,
		cache.Indexers{},
	)
}
