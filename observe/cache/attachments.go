package cache

import (
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

// The resources of the target that only drains read.
const (
	Budgets     Resource = "poddisruptionbudgets"
	Attachments Resource = "volumeattachments"
	Rules       Resource = "machinedrainrules" // of the control cluster
)

// byVolume is the index of attachments by the name of their persistent volume.
const byVolume = "volume"

// WatchDrains makes the target's disruption budgets and volume attachments known, too, and the drain rules: only who drains
// needs them. Call it once, before Start. Without a target it does nothing.
func (c *Cluster) WatchDrains() error {
	if c.target == nil {
		return nil
	}
	factory := informers.NewSharedInformerFactoryWithOptions(c.target, 0, informers.WithTransform(strip))
	rules := externalversions.NewSharedInformerFactoryWithOptions(c.client, 0, externalversions.WithTransform(strip))
	c.factories = append(c.factories, factory, rules)
	c.Informers[Rules] = rules.Machine().V1alpha1().MachineDrainRules().Informer()
	c.Informers[Budgets] = factory.Policy().V1().PodDisruptionBudgets().Informer()
	c.attaching = &link{}
	c.Informers[Attachments] = factory.InformerFor(&storagev1.VolumeAttachment{}, c.attaching.attachments)
	err := c.Informers[Attachments].AddIndexers(cache.Indexers{
		byNode: func(object any) ([]string, error) {
			return []string{object.(*storagev1.VolumeAttachment).Spec.NodeName}, nil
		},
		byVolume: func(object any) ([]string, error) {
			if name := object.(*storagev1.VolumeAttachment).Spec.Source.PersistentVolumeName; name != nil {
				return []string{*name}, nil
			}
			return nil, nil
		},
	})
	if err != nil {
		return fmt.Errorf("index volume attachments: %w", err)
	}
	return nil
}

// AttachmentsOf returns the volume attachments of a node, in no order.
func (c *Cluster) AttachmentsOf(node string) []*storagev1.VolumeAttachment {
	return Indexed[*storagev1.VolumeAttachment](c.Informer(Attachments), byNode, node)
}

// AttachmentsOfVolume returns the volume attachments of a persistent volume, in no order.
func (c *Cluster) AttachmentsOfVolume(name string) []*storagev1.VolumeAttachment {
	return Indexed[*storagev1.VolumeAttachment](c.Informers[Attachments], byVolume, name)
}

// Attached returns how many volumes are attached to a node, or about to be. While nobody knows, because the watch of
// them is cut off, it is one at least: who takes none for an answer does not wait.
func (c *Cluster) Attached(node string) int {
	n := len(c.AttachmentsOf(node))
	if n == 0 && !c.KnowsAttachments() {
		return 1
	}
	return n
}

// KnowsAttachments reports whether the cache hears of changes of volume attachments. It is true when they are not watched.
func (c *Cluster) KnowsAttachments() bool { return c.attaching == nil || c.attaching.up() }

// AttachedTo returns what is attached to a node, or about to be, sorted: the names of persistent volumes, and those of
// attachments that have none.
func (c *Cluster) AttachedTo(node string) []string {
	var names []string
	for _, attachment := range c.AttachmentsOf(node) {
		name := attachment.Name
		if volume := attachment.Spec.Source.PersistentVolumeName; volume != nil {
			name = *volume
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// LinkSettles is how long a watch that was taken up again is not believed to have told all that it missed. Source: the API
// server sends what it holds at once; a second is much for it, and little for a wait for volumes.
const LinkSettles = time.Second

// linkRenewed is the longest pause between two watches after which nothing can have been missed that is not told at once: the API
// server ends each watch after some minutes, and the next one begins where it ended. Source: more than a request takes, less than
// client-go's first pause after a failure, 800 ms.
const linkRenewed = 500 * time.Millisecond

// link knows whether a cache hears of changes. After an API server was away a cache can be deaf for up to a minute, the
// longest pause of client-go between two tries, and no version that we wrote would tell: others write what it holds.
type link struct {
	mu    sync.Mutex
	open  int       // watches that run: never more than one for long
	since time.Time // when the newest of them began; zero for the first, which begins with the whole list, and for one that took over from another
	ended time.Time // when the last one ended; zero when none did
}

// up reports whether the cache hears of changes, and has had the time to hear of those that it missed.
func (l *link) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open > 0 && time.Since(l.since) >= LinkSettles
}

// watched is a watch that tells its link when it ends.
type watched struct {
	watch.Interface

	ended func()
}

// Stop ends the watch. A Reflector calls it whenever it turns away from a watch, also from one that has broken off.
func (w *watched) Stop() {
	w.ended()
	w.Interface.Stop()
}

// follow notes that a watch runs.
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

// attachments returns an informer of volume attachments that notes when its watch is cut off.
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
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lister, client), &storagev1.VolumeAttachment{}, resync, cache.Indexers{})
}
