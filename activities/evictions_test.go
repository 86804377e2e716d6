package activities_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
)

// asked is one request for a pod.
type asked struct {
	Verb  string // evict or delete
	Pod   string
	UID   string // the precondition; empty when there was none
	Grace string // the grace period in the request; empty: the pod's own
}

// evict and kill are the requests that the tests expect for a pod of one name.
func evicted(name string) asked { return asked{"evict", name, "uid-" + name, ""} }
func deleted(name string) asked { return asked{"delete", name, "uid-" + name, ""} }
func killed(name string) asked  { return asked{"delete", name, "uid-" + name, "0s"} }

// desk takes requests for pods in the place of the API server: a pod that may go terminates, and is there until the test
// says that it is gone.
type desk struct {
	*world
	mu       sync.Mutex
	requests []asked
	answers  map[string]error // by pod: what is answered instead
}

var podsResource = corev1.SchemeGroupVersion.WithResource("pods")

// takeRequests opens the desk of a world.
func (w *world) takeRequests() *desk {
	d := &desk{world: w, answers: map[string]error{}}
	w.target.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a := action.(clienttesting.CreateActionImpl)
		if a.Subresource != "eviction" {
			return false, nil, nil
		}
		e := a.Object.(*policyv1.Eviction)
		return true, nil, d.take("evict", a.Namespace, e.Name, e.DeleteOptions)
	})
	w.target.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a := action.(clienttesting.DeleteActionImpl)
		return true, nil, d.take("delete", a.Namespace, a.Name, &a.DeleteOptions)
	})
	return d
}

func (d *desk) take(verb, namespace, name string, options *metav1.DeleteOptions) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := asked{Verb: verb, Pod: name}
	if options != nil && options.Preconditions != nil && options.Preconditions.UID != nil {
		r.UID = string(*options.Preconditions.UID)
	}
	if options != nil && options.GracePeriodSeconds != nil {
		r.Grace = (time.Duration(*options.GracePeriodSeconds) * time.Second).String()
	}
	d.requests = append(d.requests, r)
	if err := d.answers[name]; err != nil {
		return err
	}
	object, err := d.target.Tracker().Get(podsResource, namespace, name)
	if err != nil {
		return err
	}
	if p := object.(*corev1.Pod); r.UID != "" && r.UID != string(p.UID) {
		return apierrors.NewConflict(podsResource.GroupResource(), name, nil)
	}
	d.rewritePod(name, func(p *corev1.Pod) {
		grace := 30 * time.Second
		if options != nil && options.GracePeriodSeconds != nil {
			grace = time.Duration(*options.GracePeriodSeconds) * time.Second
		}
		p.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(grace)).Rfc3339Copy())
	})
	return nil
}

// answer makes the API server answer something else than that a pod may go; nil takes that back.
func (d *desk) answer(err error, pods ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range pods {
		d.answers[name] = err
	}
}

// since returns what was asked since the last call, sorted by pod.
func (d *desk) since() []asked {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.Clone(d.requests)
	slices.SortStableFunc(list, func(a, b asked) int { return compareText(a.Pod, b.Pod) })
	d.requests = nil
	return list
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// rewritePod writes a pod, as a kubelet or the API server does.
func (w *world) rewritePod(name string, change func(*corev1.Pod)) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	object, err := w.target.Tracker().Get(podsResource, "web", name)
	if !assert.NoError(w.t, err) {
		return
	}
	p := object.DeepCopyObject().(*corev1.Pod)
	change(p)
	p.ResourceVersion = w.server.next(w.target.Tracker(), podsResource)
	assert.NoError(w.t, w.target.Tracker().Update(podsResource, p, "web"))
}

// end makes pods be gone, as a kubelet does.
func (w *world) end(names ...string) {
	for _, name := range names {
		assert.NoError(w.t, w.target.Tracker().Delete(podsResource, "web", name))
	}
}

// emptier is EvictPods while it runs.
type emptier struct {
	*attempt[activities.Evicted]
	beats chan activities.DrainProgress
}

// empty runs EvictPods. What the attempt before said by its heartbeats may be given.
func (w *world) empty(in activities.Eviction, before ...any) *emptier {
	e := &emptier{beats: make(chan activities.DrainProgress, 1000)}
	e.attempt = attemptTo[activities.Evicted](w, w.EvictPods, in, func(env *testsuite.TestActivityEnvironment) {
		env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
			var b activities.DrainProgress
			if err := details.Get(&b); err != nil {
				b.Picture.Why = err.Error()
			}
			e.beats <- b
		})
		for _, details := range before {
			env.SetHeartbeatDetails(details)
		}
	})
	return e
}

// abandoned is a watch that may be stopped although not all of its events were read: a filter would wait for that for ever.
type abandoned struct{ watch.Interface }

func (a abandoned) Stop() {
	a.Interface.Stop()
	for range a.ResultChan() { // of no interest any more
	}
}

// emptying runs a test with a machine that is to go, on the node n, and with these objects of its target. Its times are those
// of a bubble.
func emptying(t *testing.T, objects []runtime.Object, test func(*testing.T, *desk, activities.Eviction)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := machine("m", onNode, phase(v1alpha1.MachineTerminating), going[*v1alpha1.Machine])
		w := newWorld(t, append([]runtime.Object{m, node()}, objects...)...)
		w.Draining = drain.Settings{Attach: activities.DefaultAttachTimeout, Detach: activities.DefaultDetachTimeout}
		w.servePods()
		served := w.target.WatchReactionChain[0]
		w.target.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
			handled, pods, err := served.React(action)
			return handled, abandoned{pods}, err
		})
		test(t, w.takeRequests(), activities.Eviction{Machine: ref(m), NodeName: "n", Means: drain.Evict})
	})
}

// pods are some that have to go.
func pods(names ...string) []runtime.Object {
	var list []runtime.Object
	for _, name := range names {
		list = append(list, pod(name))
	}
	return list
}
