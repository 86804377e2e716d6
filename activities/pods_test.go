package activities_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// pod returns a pod of the namespace web on the node n.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "900"}}
	p.Spec.NodeName, p.Status.Phase = "n", corev1.PodRunning
	return with(p, change)
}

// ofDaemonSet makes a pod one of a DaemonSet.
func ofDaemonSet(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "x", UID: "uid-x", Controller: new(true)}}
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

// watchBy makes the next watches of pods tell what the test says, and nothing else.
func (w *world) watchBy() *watch.FakeWatcher {
	pods := watch.NewFake()
	w.target.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		w.server.watched <- struct{}{}
		return true, pods, nil
	})
	return pods
}
