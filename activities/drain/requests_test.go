package drain_test

import (
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
)

// newEvictRequest, newDeleteRequest and newKillRequest are the requests that the tests expect for the pod with this
// name.
func newEvictRequest(name string) activitiestest.PodRequest {
	return activitiestest.PodRequest{Verb: "evict", Pod: name, UID: "uid-" + name}
}

func newDeleteRequest(name string) activitiestest.PodRequest {
	return activitiestest.PodRequest{Verb: "delete", Pod: name, UID: "uid-" + name}
}

func newKillRequest(name string) activitiestest.PodRequest {
	return activitiestest.PodRequest{Verb: "delete", Pod: name, UID: "uid-" + name, GracePeriod: "0s"}
}

// runEvictionTest runs a test in a synctest bubble. The machine is being deleted, its node is n, and the target cluster
// has the given objects.
func runEvictionTest(
	t *testing.T,
	objects []runtime.Object,
	test func(*testing.T, *activitiestest.EvictionWorld, activities.Eviction),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := activitiestest.NewMachine(
			"m",
			activitiestest.WithNode,
			activitiestest.WithPhase(v1alpha1.MachineTerminating),
			activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
		)
		w := activitiestest.NewWorld(t, append([]runtime.Object{m, activitiestest.NewNode()}, objects...)...)
		w.Draining = drain.Settings{Attach: kube.DefaultAttachTimeout, Detach: kube.DefaultDetachTimeout}
		w.ServePods()
		test(
			t,
			w.InterceptPodRequests(),
			activities.Eviction{Machine: activitiestest.NewRef(m), NodeName: "n", Means: drain.MeansEvict},
		)
	})
}

// podsToRemove returns pods that must leave the node.
func podsToRemove(names ...string) []runtime.Object {
	var list []runtime.Object
	for _, name := range names {
		list = append(list, activitiestest.NewPod(name))
	}
	return list
}
