package cache

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Only drains read these resources
const (
	DisruptionBudgetsResource Resource = "poddisruptionbudgets"
	VolumeAttachmentsResource Resource = "volumeattachments"
	DrainRulesResource        Resource = "machinedrainrules" // drain rules of the control cluster
)

// volumeIndex names the index of volume attachments by the name of the persistent volume.
const volumeIndex = "volume"

// VolumeNameOfAttachment returns the name of the persistent volume of an attachment; empty if the attachment names no
// volume.
func VolumeNameOfAttachment(a *storagev1.VolumeAttachment) string {
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		return *name
	}
	return ""
}

// AttachmentsOfNode returns the volume attachments of a node, unsorted.
func (t *Target) AttachmentsOfNode(node string) []*storagev1.VolumeAttachment {
	return IndexedObjects[*storagev1.VolumeAttachment](t.Informer(VolumeAttachmentsResource), nodeIndex, node)
}

// AttachmentsOfVolume returns the volume attachments of a persistent volume, unsorted.
func (t *Target) AttachmentsOfVolume(name string) []*storagev1.VolumeAttachment {
	return IndexedObjects[*storagev1.VolumeAttachment](t.Informer(VolumeAttachmentsResource), volumeIndex, name)
}

// AttachedVolumeCount returns the number of volumes that are attached to a node or are being attached. While the watch
// is interrupted, the cache may be out of date, and AttachedVolumeCount returns at least 1: a deletion does not wait
// for volumes if AttachedVolumeCount returns 0.
func (t *Target) AttachedVolumeCount(node string) int {
	n := len(t.AttachmentsOfNode(node))
	if n == 0 && !t.IsAttachmentCacheCurrent() {
		return 1
	}
	return n
}

// IsAttachmentCacheCurrent reports whether the cache of volume attachments is current: its watch is open, or this
// process never watches the volume attachments of this target, which is connected.
func (t *Target) IsAttachmentCacheCurrent() bool {
	if t == nil || t.drainCaches.mode == drainCachesNever {
		return t.Status().State == TargetReady
	}
	running := t.drainCaches.loadRunningCaches()
	return running != nil && running.attachmentWatchState.isCurrent()
}

// AttachedVolumeNames returns the sorted names of the volumes that are attached to a node or are being attached. The
// name is the name of the persistent volume. If an attachment has no persistent volume, the name is the name of the
// attachment.
func (t *Target) AttachedVolumeNames(node string) []string {
	var names []string
	for _, attachment := range t.AttachmentsOfNode(node) {
		names = append(names, cmp.Or(VolumeNameOfAttachment(attachment), attachment.Name))
	}
	slices.Sort(names)
	return names
}

// watchState records whether the watch of a cache is open. After an API server was unavailable, a cache can miss
// changes for up to a minute, the longest back-off of client-go between two attempts. The resource versions that
// activities wait for do not reveal these missed changes, because other controllers write the attachments.
type watchState struct {
	mu             sync.Mutex
	openWatchCount int       // number of open watches; more than one only for a moment
	resumedAt      time.Time // start of the newest watch after an interruption; zero before the first interruption
	lastEndedAt    time.Time // end of the last watch; zero before the first end
}

// isCurrent reports whether a watch is open and has had WatchCatchUpTime to deliver the events of an interruption.
func (l *watchState) isCurrent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openWatchCount > 0 && time.Since(l.resumedAt) >= WatchCatchUpTime
}

// trackedWatch is a watch that calls onStop when it stops.
type trackedWatch struct {
	watch.Interface

	onStop func()
}

// Stop ends the watch. A Reflector calls Stop for every watch, including a watch that broke off.
func (w *trackedWatch) Stop() {
	w.onStop()
	w.Interface.Stop()
}

// trackWatch records the start of a watch, and its end.
func (l *watchState) trackWatch(w watch.Interface) watch.Interface {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.openWatchCount++; !l.lastEndedAt.IsZero() && time.Since(l.lastEndedAt) > maxRenewalGap {
		l.resumedAt = time.Now()
	}
	return &trackedWatch{w, sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.openWatchCount--
		l.lastEndedAt = time.Now()
	})}
}

// newAttachmentInformer returns an informer of volume attachments. The receiver tracks the informer's watches.
func (l *watchState) newAttachmentInformer(
	client kubernetes.Interface,
	resync time.Duration,
) cache.SharedIndexInformer {
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
			return l.trackWatch(w), nil
		},
	}
	return cache.NewSharedIndexInformer(
		cache.ToListWatcherWithWatchListSemantics(lister, client),
		&storagev1.VolumeAttachment{},
		resync,
		cache.Indexers{},
	)
}
