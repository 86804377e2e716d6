package activitiestest

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

// NewPod returns a pod of the namespace web on the node n.
func NewPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "900"},
	}
	p.Spec.NodeName, p.Status.Phase = "n", corev1.PodRunning
	return ApplyChanges(p, change)
}

// WithDaemonSetOwner makes a DaemonSet the controller of a pod.
func WithDaemonSetOwner(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "x", UID: "uid-x", Controller: new(true)},
	}
}

func WithPodPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func WithMirrorAnnotation(p *corev1.Pod) {
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
}

func WithOtherNode(p *corev1.Pod) { p.Spec.NodeName = "other" }

// podListVersion is the resourceVersion of lists of pods.
const podListVersion = "4711"

// ServePods makes a world list and watch pods as an API server does: by node, and from a resourceVersion.
func (w *World) ServePods() {
	tracker, pods := w.TargetClient.Tracker(), corev1.SchemeGroupVersion.WithResource("pods")
	onIt := func(selector fields.Selector, o runtime.Object) bool {
		return selector.Matches(fields.Set{"spec.nodeName": o.(*corev1.Pod).Spec.NodeName})
	}
	w.TargetClient.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		all, err := tracker.List(pods, corev1.SchemeGroupVersion.WithKind("Pod"), "")
		if err != nil {
			return true, nil, err
		}
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: podListVersion}}
		for _, p := range all.(*corev1.PodList).Items {
			if onIt(action.(clienttesting.ListAction).GetListRestrictions().Fields, &p) {
				list.Items = append(list.Items, p)
			}
		}
		return true, list, nil
	})
	w.TargetClient.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
		restrictions := action.(clienttesting.WatchAction).GetWatchRestrictions()
		if restrictions.ResourceVersion != podListVersion {
			return true, nil, fmt.Errorf("watch from %q, not from what was listed", restrictions.ResourceVersion)
		}
		all, err := tracker.Watch(pods, "")
		if err != nil {
			return true, nil, err
		}
		w.APIServer.WatchStarts <- struct{}{}
		return true, filterWatch(
			all,
			func(e watch.Event) (watch.Event, bool) { return e, onIt(restrictions.Fields, e.Object) },
		), nil
	})
}

// UseFakePodWatch gives later watches of pods only the events that the test sends.
func (w *World) UseFakePodWatch() *watch.FakeWatcher {
	pods := watch.NewFake()
	w.TargetClient.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		w.APIServer.WatchStarts <- struct{}{}
		return true, pods, nil
	})
	return pods
}
