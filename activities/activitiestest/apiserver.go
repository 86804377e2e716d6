package activitiestest

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/testing"
)

// apiServer adds the behaviour of an API server to fake clientsets: resourceVersions, UIDs, preconditions, finalizers,
// a separate status subresource, times in whole seconds, and no event for a write without changes. For objects of Cluster
// API, see newField. A test can delay the events of apiServer's watches, as a slow network does.
type apiServer struct {
	mu                    sync.Mutex
	lastVersion           int                    // resourceVersion of the last write
	lastVersionByResource map[resourceKey]string // last resourceVersion of each resource
	watchedByCache        map[resourceKey]bool   // resources that a cache watches
	deletionVersionByUID  map[types.UID]string   // resourceVersion of each deletion
	eventsHeld            bool                   // true while the events of all watches are held back
	releasedCond          *sync.Cond             // signalled when eventsHeld becomes false; uses the lock mu
	WatchStarts           chan struct{}          // the channel receives one value for each watch that has started
	// fake watchers that send the events of the watches, as keys of type *watch.RaceFreeFakeWatcher
	fakeWatchers sync.Map
}

// resourceKey names a resource and the fake clientset that stores it, because the control cluster and the target
// cluster both have Secrets.
type resourceKey struct {
	tracker testing.ObjectTracker
	gvr     schema.GroupVersionResource
}

// FakeClient is the common interface of all fake clientsets.
type FakeClient interface {
	PrependReactor(verb, resource string, reaction testing.ReactionFunc)
	PrependWatchReactor(resource string, reaction testing.WatchReactionFunc)
	Tracker() testing.ObjectTracker
}

func newAPIServer() *apiServer {
	s := &apiServer{
		lastVersion: 1000, WatchStarts: make(chan struct{}, 100),
		lastVersionByResource: map[resourceKey]string{}, watchedByCache: map[resourceKey]bool{},
		deletionVersionByUID: map[types.UID]string{},
	}
	s.releasedCond = sync.NewCond(&s.mu)
	return s
}

// interceptRequests intercepts the requests of a fake clientset.
func (s *apiServer) interceptRequests(c FakeClient) {
	tracker := c.Tracker()
	c.PrependReactor("*", "*", func(action testing.Action) (bool, runtime.Object, error) {
		s.waitForWatchBufferSpace()
		s.mu.Lock()
		defer s.mu.Unlock()
		switch a := action.(type) {
		case testing.CreateActionImpl:
			object, err := s.create(tracker, a)
			return true, object, err
		case testing.UpdateActionImpl:
			object, err := s.update(tracker, a, EncodeObject(a.GetObject()), a.GetSubresource())
			return true, object, err
		case testing.PatchActionImpl:
			object, err := s.patch(tracker, a)
			return true, object, err
		case testing.DeleteActionImpl:
			return true, nil, s.delete(tracker, a)
		case testing.DeleteCollectionActionImpl:
			return true, nil, s.deleteSecretCollection(tracker, a)
		case testing.ListActionImpl:
			// a cache starts its watch at the resourceVersion of a list, but the tracker returns lists without a
			// resourceVersion
			if a.ListOptions.Limit != 1 {
				return false, nil, nil
			}
			list, err := tracker.List(a.GetResource(), a.GetKind(), a.GetNamespace())
			if err == nil {
				list.(metav1.ListInterface).SetResourceVersion(strconv.Itoa(s.lastVersion)) // resourceVersion of the whole store
			}
			return true, list, err
		default:
			return false, nil, nil
		}
	})
	c.PrependWatchReactor("*", func(action testing.Action) (bool, watch.Interface, error) {
		options := action.(testing.WatchActionImpl).ListOptions
		// the tracker sends no initial events, so this watch is refused and the cache lists the objects
		if options.SendInitialEvents != nil {
			return true, nil, apierrors.NewBadRequest("sendInitialEvents is not supported")
		}
		w, err := tracker.Watch(action.GetResource(), action.GetNamespace(), options)
		if err != nil {
			return true, nil, err
		}
		s.mu.Lock()
		s.watchedByCache[resourceKey{tracker, action.GetResource()}] = true
		s.mu.Unlock()
		s.fakeWatchers.Store(w, true)
		s.WatchStarts <- struct{}{}
		return true, filterWatch(w, s.awaitEventRelease), nil
	})
}

// maxBufferedEvents is the maximum number of events in the buffer of a watch when a write begins. Source: the buffer of
// a fake watch has room for 100 events, and one more event causes a panic. At most 16 writes of a batch begin at the
// same time.
const maxBufferedEvents = 100 - 2*16

// waitForWatchBufferSpace waits up to one minute until each watch buffers at most maxBufferedEvents events. On a busy
// machine, writes are faster than the readers of the events.
func (s *apiServer) waitForWatchBufferSpace() {
	full := func() (full bool) {
		s.fakeWatchers.Range(func(feed, _ any) bool {
			w, is := feed.(*watch.RaceFreeFakeWatcher)
			full = is && !w.IsStopped() && len(w.ResultChan()) > maxBufferedEvents
			return !full
		})
		return full
	}
	for waited := time.Duration(0); waited < time.Minute && full(); waited += time.Millisecond {
		time.Sleep(time.Millisecond)
	}
}

// stoppableWatch is a watch that can be stopped before all its events are read. The watch that watch.Filter returns
// would block forever in this case.
type stoppableWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    func()
}

func (f *stoppableWatch) ResultChan() <-chan watch.Event { return f.events }

func (f *stoppableWatch) Stop() { f.stop() }

func filterWatch(from watch.Interface, each watch.FilterFunc) *stoppableWatch {
	f := &stoppableWatch{Interface: from, events: make(chan watch.Event), stopped: make(chan struct{})}
	f.stop = sync.OnceFunc(func() {
		close(f.stopped)
		from.Stop()
	})
	go func() {
		defer close(f.events)
		for e := range from.ResultChan() {
			e, keep := each(e)
			if !keep {
				continue
			}
			select {
			case f.events <- e:
			case <-f.stopped:
				return
			}
		}
	}()
	return f
}

// awaitEventRelease blocks while events are held back, and then returns the event. A deletion event gets the
// resourceVersion of the deletion.
func (s *apiServer) awaitEventRelease(e watch.Event) (watch.Event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.eventsHeld {
		s.releasedCond.Wait()
	}
	if e.Type == watch.Deleted {
		object := MetadataOf(e.Object)
		object.SetResourceVersion(s.deletionVersionByUID[object.GetUID()])
	}
	return e, true
}

// setEventsHeld sets whether events of all watches are held back.
func (s *apiServer) setEventsHeld(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eventsHeld = held
	s.releasedCond.Broadcast()
}

func (s *apiServer) nextVersion(tracker testing.ObjectTracker, gvr schema.GroupVersionResource) string {
	s.lastVersion++
	s.lastVersionByResource[resourceKey{tracker, gvr}] = strconv.Itoa(s.lastVersion)
	return strconv.Itoa(s.lastVersion)
}

func (s *apiServer) create(tracker testing.ObjectTracker, a testing.CreateActionImpl) (runtime.Object, error) {
	object := decodeAsType(EncodeObject(a.GetObject()), a.GetObject())
	m := MetadataOf(object)
	if _, err := tracker.Get(a.GetResource(), a.GetNamespace(), m.GetName()); err == nil {
		return nil, apierrors.NewAlreadyExists(a.GetResource().GroupResource(), m.GetName())
	}
	m.SetResourceVersion(s.nextVersion(tracker, a.GetResource()))
	m.SetUID(types.UID("uid-" + m.GetName() + "-" + m.GetResourceVersion()))
	m.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	m.SetGeneration(1)
	recordCreator(a, m)
	return object, tracker.Create(a.GetResource(), object, a.GetNamespace())
}

// update replaces an object by the object in the request. For the subresource status, update replaces only the status.
func (s *apiServer) update(
	tracker testing.ObjectTracker,
	a testing.Action,
	wanted map[string]any,
	subresource string,
) (runtime.Object, error) {
	gvr, metadata := a.GetResource(), wanted["metadata"].(map[string]any)
	name := metadata["name"].(string)
	old, err := tracker.Get(gvr, a.GetNamespace(), name)
	if err != nil {
		return nil, err
	}
	m := MetadataOf(old)
	if version, given := metadata["resourceVersion"]; given && version != m.GetResourceVersion() {
		return nil, apierrors.NewConflict(gvr.GroupResource(), name, nil)
	}
	if uid, given := metadata["uid"]; given && uid != string(m.GetUID()) {
		return nil, apierrors.NewConflict(gvr.GroupResource(), name, nil)
	}
	before := EncodeObject(old)
	after := maps.Clone(wanted)
	if subresource == "status" {
		after = maps.Clone(before)
		after["status"] = wanted["status"]
	} else {
		delete(after, "status")
		if status, has := before["status"]; has {
			after["status"] = status
		}
	}
	object := decodeAsType(after, old)
	if reflect.DeepEqual(EncodeObject(object), before) {
		return old, nil
	}
	changed := MetadataOf(object)
	if m.GetDeletionTimestamp() != nil &&
		slices.ContainsFunc(changed.GetFinalizers(), func(f string) bool { return !slices.Contains(m.GetFinalizers(), f) }) {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: gvr.Resource}, name, nil)
	}
	if !reflect.DeepEqual(EncodeObject(object)["spec"], before["spec"]) {
		changed.SetGeneration(m.GetGeneration() + 1)
	}
	changed.SetResourceVersion(s.nextVersion(tracker, gvr))
	if changed.GetDeletionTimestamp() != nil && len(changed.GetFinalizers()) == 0 {
		s.deletionVersionByUID[changed.GetUID()] = changed.GetResourceVersion()
		return object, tracker.Delete(gvr, a.GetNamespace(), name)
	}
	return object, tracker.Update(gvr, object, a.GetNamespace())
}

// patchAsOtherClient writes an object as another client would, while a test runs.
func (s *apiServer) patchAsOtherClient(
	tracker testing.ObjectTracker,
	gvr schema.GroupVersionResource,
	namespace, name string,
	patch map[string]any,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := tracker.Get(gvr, namespace, name)
	if err != nil {
		panic(err)
	}
	action := testing.NewUpdateAction(gvr, namespace, old)
	if _, err := s.update(tracker, action, applyMergePatch(EncodeObject(old), patch), ""); err != nil {
		panic(err)
	}
}

func (s *apiServer) patch(tracker testing.ObjectTracker, a testing.PatchActionImpl) (runtime.Object, error) {
	old, err := tracker.Get(a.GetResource(), a.GetNamespace(), a.GetName())
	if err != nil {
		return nil, err
	}
	var change map[string]any
	if err := json.Unmarshal(a.GetPatch(), &change); err != nil {
		return nil, err
	}
	if err := rejectLossyPatch(a.GetResource(), EncodeObject(old), change); err != nil {
		return nil, err
	}
	wanted := applyMergePatch(EncodeObject(old), change)
	if a.GetPatchType() == types.StrategicMergePatchType {
		if wanted, err = strategicpatch.StrategicMergeMapPatch(EncodeObject(old), change, old); err != nil {
			return nil, err
		}
		if m := MetadataOf(old); wanted["metadata"].(map[string]any)["uid"] != string(m.GetUID()) {
			// Like any patch, a strategic merge patch must not change the UID, because the field is immutable.
			return nil, apierrors.NewInvalid(schema.GroupKind{Kind: a.GetResource().Resource}, m.GetName(), nil)
		}
	}
	return s.update(tracker, a, wanted, a.GetSubresource())
}

func (s *apiServer) delete(tracker testing.ObjectTracker, a testing.DeleteActionImpl) error {
	gvr := a.GetResource()
	object, err := tracker.Get(gvr, a.GetNamespace(), a.GetName())
	if err != nil {
		return err
	}
	m := MetadataOf(object)
	if p := a.DeleteOptions.Preconditions; p != nil {
		if (p.UID != nil && *p.UID != m.GetUID()) ||
			(p.ResourceVersion != nil && *p.ResourceVersion != m.GetResourceVersion()) {
			return apierrors.NewConflict(gvr.GroupResource(), a.GetName(), nil)
		}
	}
	if len(m.GetFinalizers()) == 0 {
		s.deletionVersionByUID[m.GetUID()] = s.nextVersion(tracker, gvr)
		return tracker.Delete(gvr, a.GetNamespace(), a.GetName())
	}
	if m.GetDeletionTimestamp() != nil {
		return nil
	}
	now := metav1.NewTime(time.Now()).Rfc3339Copy()
	m.SetDeletionTimestamp(&now)
	m.SetResourceVersion(s.nextVersion(tracker, gvr))
	return tracker.Update(gvr, object, a.GetNamespace())
}

// deleteSecretCollection deletes the Secrets that match the label selector and the type.
func (s *apiServer) deleteSecretCollection(tracker testing.ObjectTracker, a testing.DeleteCollectionActionImpl) error {
	list, err := tracker.List(a.GetResource(), corev1.SchemeGroupVersion.WithKind("Secret"), a.GetNamespace())
	if err != nil {
		return err
	}
	for _, secret := range list.(*corev1.SecretList).Items {
		if !a.ListRestrictions.Labels.Matches(labels.Set(secret.Labels)) ||
			!a.ListRestrictions.Fields.Matches(fields.Set{"type": string(secret.Type)}) {
			continue
		}
		if err := s.delete(tracker, testing.NewDeleteAction(a.GetResource(), secret.Namespace, secret.Name)); err != nil {
			return err
		}
	}
	return nil
}

// applyMergePatch applies a JSON merge patch (RFC 7396).
func applyMergePatch(object, change map[string]any) map[string]any {
	result := maps.Clone(object)
	if result == nil {
		result = map[string]any{}
	}
	for key, value := range change {
		inner, isObject := value.(map[string]any)
		switch {
		case value == nil:
			delete(result, key)
		case isObject:
			old, _ := result[key].(map[string]any)
			result[key] = applyMergePatch(old, inner)
		default:
			result[key] = value
		}
	}
	return result
}

func EncodeObject(object runtime.Object) map[string]any {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	var result map[string]any
	if err := json.Unmarshal(data, &result); err != nil {
		panic(err)
	}
	return result
}

// decodeAsType returns a new object of the same type as like.
func decodeAsType(from map[string]any, like runtime.Object) runtime.Object {
	data, err := json.Marshal(from)
	if err != nil {
		panic(err)
	}
	object := reflect.New(reflect.TypeOf(like).Elem()).Interface().(runtime.Object)
	if err := json.Unmarshal(data, object); err != nil {
		panic(err)
	}
	return object
}

func MetadataOf(object runtime.Object) metav1.Object {
	m, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}
	return m
}
