//go:build integration

package drain

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/test/integration/rig"
)

// inQueue matches the message of a machine that waits for its turn. Its numbers may be older than the queue.
var inQueue = regexp.MustCompile(fmt.Sprintf(`^queued: place \d+ of \d+; %d nodes are drained at a time$`, most))

// 50 machines are deleted at once, each with a pod that a budget keeps, while a deployment wants ten more: these come
// although no drain gets on. Further ones that are deleted wait for their turn, and creations do not wait for them
// either.
func TestCreationsDoNotWaitForDrains(t *testing.T) {
	const further, wanted = 35, 10
	grows := pool(t, "grows", 1, "")
	crowd := pool(t, "crowd", most+further, "")
	crowd.Deploy(t, "web", most+further, func(pod *corev1.PodTemplateSpec) {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}} // one a node
	})
	crowd.Budget(t, "web", most+further)
	hanging := func(blocked, queued int) func() (bool, any) {
		return func() (bool, any) {
			b, q := 0, 0
			for _, m := range crowd.Machines(t) {
				if m.DeletionTimestamp != nil && drained(&m).Reason == "Blocked" {
					b++
				}
				if inQueue.MatchString(m.Status.LastOperation.Description) {
					q++
				}
			}
			return b == blocked && q == queued, []int{b, q}
		}
	}
	grow := func(to int) {
		t.Helper()
		grows.Scale(t, to)
		grows.AwaitRunning(t, to)
	}

	begun := time.Now()
	crowd.Scale(t, further)
	grow(1 + wanted)
	rig.Eventually(t, "all drains are blocked", hanging(most, 0))
	crowd.Scale(t, 0)
	rig.Eventually(t, "the others wait for their turn", hanging(most, further))
	grow(1 + 2*wanted)
	all, saw := hanging(most, further)()
	require.True(t, all, "no drain has got on: %v", saw)
	perhaps := most * (1 + int(time.Since(begun)/drain.BadProbePause)) // each asks once more then
	require.Less(
		t,
		len(asked(t, crowd.Namespace)),
		perhaps,
		"a budget that allows none is not hammered, by many drains neither",
	)

	takesAllPlaces(t, crowd, hanging)

	crowd.RelaxBudget(t, "web", 0)
	crowd.AwaitRunning(t, 0)
	require.Equal(t, most+further-freed, evictedOnce(t, crowd.Namespace), "the queued had their turn")
	_, err := r.Stack.Kubectl(t.Context(), "delete", "deployment", "-n", crowd.Namespace, "web", "--wait=false")
	require.NoError(t, err)
	crowd.Delete(t)
	grows.Delete(t)
	crowd.AwaitGone(t)
	grows.AwaitGone(t)
}

// freed is how many places become free at the same time. More machines wait than that: so the test sees the order.
const freed = 25

// takesAllPlaces ends drains of the crowd together, by deleting their pods, and checks that the first of the queue take
// all their places. The others wait. That each end of a drain wakes the next of the queue,
// TestAFreePlaceInTheQueueOfDrainsWakesTheNextMachine of k8sbridge/watch proves.
func takesAllPlaces(t *testing.T, crowd *rig.Pool, hanging func(blocked, queued int) func() (bool, any)) {
	t.Helper()
	var begun []string // the nodes whose drains are under way
	var queue []v1alpha1.Machine
	for _, m := range crowd.Machines(t) {
		if m.Status.Deletion.Queued {
			queue = append(queue, m)
		} else {
			begun = append(begun, m.Labels[v1alpha1.LabelNode])
		}
	}
	slices.SortFunc(queue, func(a, b v1alpha1.Machine) int {
		return cmp.Or(a.DeletionTimestamp.Compare(b.DeletionTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	require.Greater(t, len(queue), freed)
	ends := begun[:freed]
	var deletions sync.WaitGroup
	for _, pod := range crowd.Pods(t, "web") {
		if slices.Contains(ends, pod.Spec.NodeName) {
			deletions.Go(func() {
				assert.NoError(
					t,
					r.Kube.CoreV1().
						Pods(pod.Namespace).
						Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}),
				)
			})
		}
	}
	deletions.Wait()
	rig.Eventually(t, "all places are taken again", hanging(most, len(queue)-freed))

	now := map[types.UID]v1alpha1.Machine{}
	for _, m := range crowd.Machines(t) {
		now[m.UID] = m
	}
	for i, m := range queue {
		began := now[m.UID].Status.Deletion.Drain
		if i >= freed {
			require.Nil(t, began, "%s is number %d of the queue", m.Name, i+1)
			continue
		}
		require.NotNil(t, began, "%s is number %d of the queue", m.Name, i+1)
	}
}
