//go:build integration

package drain

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// The deadline of a drain passes while a budget blocks all pods with volumes. The drain deletes these pods with their
// own grace period, and waits until each pod is gone. The instance is deleted only after the pods have ended and their
// volumes are detached.
func TestDrainDeadlinePassesWhilePodsWithVolumesAreBlocked(t *testing.T) {
	t.Parallel()
	const timeout = 40 * time.Second
	p := newPool(t, "deadline", 2, `{"drainTimeout":"40s"}`)
	p.RunStatefulSet(t, "db", 6)
	p.CreateBudget(t, "db", 6)
	m, here := p.MachineWithPods(t, "db")
	require.GreaterOrEqual(t, len(here), 2, "the scheduler spreads six pods over two nodes")
	node := m.Labels[v1alpha1.LabelNode]
	p.DeleteMachine(t, m.Name)

	var last *v1alpha1.MachineDeletion
	blocked := ""
	rig.Eventually(t, "machine "+m.Name+" is gone", func() (bool, any) {
		// Read the instances first: a pod or volume that the test reads afterwards still existed when the instance was
		// gone.
		instances := p.ProviderIDs(t)
		now := readMachine(t, m)
		if now != nil && now.Status.Deletion != nil {
			last = now.Status.Deletion
			if c := drainedCondition(now); c.Status == corev1.ConditionFalse && c.Reason == "Blocked" {
				blocked = c.Message
			}
		}
		if slices.Contains(instances, m.Spec.ProviderID) {
			return false, last
		}
		require.Empty(t, remainingPods(t, p, here), "pods whose instance is gone")
		require.Empty(t, listAttachments(t, node), "volumes whose instance is gone")
		return now == nil, last
	})
	require.Contains(t, blocked, "PodDisruptionBudget deadline/db allows none of its 6 healthy pods to go")
	require.NotNil(t, last)
	require.NotNil(t, last.Drain)
	require.Empty(t, last.Drain.LeftBehind)

	began, deleted := last.Drain.StartedAt.Time, map[string]int{} // number of deletions by pod name
	requests := listPodRequests(t, p.Namespace)
	slices.SortFunc(requests, func(x, y podRequest) int { return x.Time.Compare(y.Time) })
	for _, q := range requests {
		t.Logf("%s %s %s %d", q.Time.Format("15:04:05.000"), q.Verb, q.Pod, q.Code)
		if q.Verb == "evict" {
			require.Equal(t, 429, q.Code, "the budget allows no eviction")
			require.Empty(t, deleted, "no eviction after the first deletion")
			continue
		}
		require.Equal(t, 200, q.Code)
		require.False(t, q.Time.Before(began.Add(timeout)), "no deletion before the deadline")
		deleted[q.Pod]++
	}
	for _, pod := range here {
		require.Equal(t, 1, deleted[pod.Name], "pod %s is deleted once: it ends within its grace period", pod.Name)
	}
	require.Len(t, deleted, len(here), "and no other pod")
	p.AwaitRunningPods(t, "db", 6)
}

// remainingPods returns the names of those given pods that still exist. remainingPods compares UIDs, because a new pod
// may have the name of an old pod.
func remainingPods(t *testing.T, p *rig.Pool, pods []corev1.Pod) (names []string) {
	t.Helper()
	list, err := testRig.Kube.CoreV1().Pods(p.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	there := map[types.UID]bool{}
	for _, pod := range list.Items {
		there[pod.UID] = true
	}
	for _, pod := range pods {
		if there[pod.UID] {
			names = append(names, pod.Name)
		}
	}
	return names
}
