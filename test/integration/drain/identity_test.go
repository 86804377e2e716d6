//go:build integration

package drain

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// The API server refuses to evict a pod of a StatefulSet. The pod is then deleted and recreated with the same name on
// another node. The drain of the first node is still running, because another pod is on the node. The drain does not
// evict the recreated pod, although the budget allows the eviction. The annotation retry makes the drain try all
// evictions again, but the pod is still not evicted.
func TestRecreatedPodWithTheSameNameIsNotEvicted(t *testing.T) {
	t.Parallel()
	p := newPool(t, "namesake", 2, "")
	template, selector := p.PodTemplate("db")
	_, err := testRig.Kube.AppsV1().StatefulSets(p.Namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas:    new(int32(1)),
			Selector:    selector,
			Template:    template,
			ServiceName: "db",
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	p.AwaitRunningPods(t, "db", 1)
	p.CreateBudget(t, "db", 1)
	p.DeployPods(t, "held", 6)
	p.CreateBudget(t, "held", 6)
	m, first := p.MachineWithPods(t, "db")
	p.DeleteMachine(t, m.Name)
	rig.Eventually(t, "it is blocked", func() (bool, any) {
		c := drainedCondition(readMachine(t, m))
		return c.Reason == "Blocked", c
	})
	// the annotation makes the drain try all evictions, also those that a budget blocks
	annotateMachine(t, m, v1alpha1.AnnotationRetry+"=now")
	rig.Eventually(t, "it was asked in vain", func() (bool, any) {
		return len(listPodRequestsWithPrefix(t, p.Namespace, "db-0")) > 0, listPodRequests(t, p.Namespace)
	})

	require.NoError(t, testRig.Kube.CoreV1().Pods(p.Namespace).Delete(t.Context(), "db-0", metav1.DeleteOptions{}))
	var second corev1.Pod
	rig.Eventually(t, "it runs elsewhere", func() (bool, any) {
		for _, second = range p.Pods(t, "db") {
			if second.UID != first[0].UID && second.Status.Phase == corev1.PodRunning {
				return true, nil
			}
		}
		return false, p.Pods(t, "db")
	})
	require.NotEqual(t, first[0].Spec.NodeName, second.Spec.NodeName)
	before := len(listPodRequestsWithPrefix(t, p.Namespace, "db-0"))
	p.RelaxBudget(t, "db", 0)
	others := len(listPodRequestsWithPrefix(t, p.Namespace, "held-"))
	annotateMachine(t, m, v1alpha1.AnnotationRetry+"=again")
	rig.Eventually(t, "all others are asked again", func() (bool, any) {
		return len(listPodRequestsWithPrefix(t, p.Namespace, "held-")) > others, listPodRequests(t, p.Namespace)
	})
	p.RelaxBudget(t, "held", 0)
	awaitMachineGone(t, m)
	require.Len(t, listPodRequestsWithPrefix(t, p.Namespace, "db-0"), before, "nobody asked the pod that took its name")
	now, err := testRig.Kube.CoreV1().Pods(p.Namespace).Get(t.Context(), "db-0", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, second.UID, now.UID)
	require.Nil(t, now.DeletionTimestamp)
}

// listPodRequestsWithPrefix returns the worker's requests about the pods whose names begin with prefix.
func listPodRequestsWithPrefix(t *testing.T, namespace, prefix string) []podRequest {
	t.Helper()
	return slices.DeleteFunc(
		listPodRequests(t, namespace),
		func(q podRequest) bool { return !strings.HasPrefix(q.Pod, prefix) },
	)
}
