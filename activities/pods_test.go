package activities_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities"
	"millwright/api/v1alpha1"
)

// pod returns a pod of the namespace web on the node n.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "900"}}
	p.Spec.NodeName, p.Status.Phase = "n", corev1.PodRunning
	return with(p, change)
}

// controlledBy makes a pod one of a controller, or, where it does not control it, one that it merely owns.
func controlledBy(kind string, controls bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "x", UID: "uid-x", Controller: &controls}}
	}
}

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func mirror(p *corev1.Pod)    { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""} }
func elsewhere(p *corev1.Pod) { p.Spec.NodeName = "other" }

// listedAt is the version of lists of pods.
const listedAt = "4711"

// servePods makes a world's pods answer as an API server's do: only those of the node that was asked for, from a version on.
func (w *world) servePods() {
	tracker, pods := w.target.Tracker(), corev1.SchemeGroupVersion.WithResource("pods")
	onIt := func(selector fields.Selector, o runtime.Object) bool {
		return selector.Matches(fields.Set{"spec.nodeName": o.(*corev1.Pod).Spec.NodeName})
	}
	w.target.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		all, err := tracker.List(pods, corev1.SchemeGroupVersion.WithKind("Pod"), "")
		if err != nil {
			return true, nil, err
		}
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: listedAt}}
		for _, p := range all.(*corev1.PodList).Items {
			if onIt(action.(clienttesting.ListAction).GetListRestrictions().Fields, &p) {
				list.Items = append(list.Items, p)
			}
		}
		return true, list, nil
	})
	w.target.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
		restrictions := action.(clienttesting.WatchAction).GetWatchRestrictions()
		if restrictions.ResourceVersion != listedAt {
			return true, nil, fmt.Errorf("watch from %q, not from what was listed", restrictions.ResourceVersion)
		}
		all, err := tracker.Watch(pods, "")
		if err != nil {
			return true, nil, err
		}
		w.server.watched <- struct{}{}
		return true, watch.Filter(all, func(e watch.Event) (watch.Event, bool) { return e, onIt(restrictions.Fields, e.Object) }), nil
	})
}

// waiter is AwaitEmpty while it runs.
type waiter struct {
	*world
	cancel context.CancelFunc
	stop   chan struct{}           // closed: the worker stops
	beats  chan activities.Emptied // details of heartbeats
	ended  chan error
}

// wait runs AwaitEmpty and returns when it watches.
func (w *world) wait(in activities.Read) *waiter {
	ctx, cancel := context.WithCancel(w.t.Context())
	a := &waiter{world: w, cancel: cancel, stop: make(chan struct{}), beats: make(chan activities.Emptied, 100), ended: make(chan error, 1)}
	w.t.Cleanup(cancel)
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(w.Activities)
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	env.SetWorkerStopChannel(a.stop)
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		var table activities.Emptied
		if err := details.Get(&table); err != nil {
			table.Names = []string{err.Error()}
		}
		a.beats <- table
	})
	go func() {
		value, err := env.ExecuteActivity(w.AwaitEmpty, in)
		if err == nil {
			var emptied activities.Emptied
			if err = value.Get(&emptied); err == nil && emptied.Left+len(emptied.Names) > 0 {
				err = fmt.Errorf("it returned with %v", emptied)
			}
		}
		a.ended <- err
	}()
	<-w.server.watched
	return a
}

// remove deletes a pod.
func (w *world) remove(name string) {
	w.t.Helper()
	require.NoError(w.t, w.target.CoreV1().Pods("web").Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// holding runs a test with a machine on the node n that holds these pods. Its times are those of a bubble.
func holding(t *testing.T, pods []*corev1.Pod, test func(*testing.T, *world, activities.Read)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := machine("m", onNode, phase(v1alpha1.MachineRunning))
		objects := []runtime.Object{m, node()}
		for _, p := range pods {
			objects = append(objects, p)
		}
		w := newWorld(t, objects...)
		w.servePods()
		test(t, w, read(m))
	})
}

// one is a single pod that has to go.
func one() []*corev1.Pod { return []*corev1.Pod{pod("left")} }

// watchBy makes the next watches of pods tell what the test says, and nothing else.
func (w *world) watchBy() *watch.FakeWatcher {
	pods := watch.NewFake()
	w.target.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		w.server.watched <- struct{}{}
		return true, pods, nil
	})
	return pods
}
