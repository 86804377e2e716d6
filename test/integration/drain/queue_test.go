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

// queuedMessagePattern matches the message of a machine that waits in the queue of drains. The place and the queue
// length in the message may be outdated.
var queuedMessagePattern = regexp.MustCompile(
	fmt.Sprintf(`^queued: place \d+ of \d+; %d nodes are drained at a time$`, maxDrains),
)

// 50 machines are deleted at once, and each machine has a pod that a budget blocks. Then a deployment is scaled up by
// ten machines. The ten machines are created although no drain makes progress. Then 35 more machines are deleted and
// wait in the queue of drains, and ten more machines are still created.
func TestCreationsDoNotWaitForDrains(t *testing.T) {
	const further, wanted = 35, 10
	grows := newPool(t, "grows", 1, "")
	crowd := newPool(t, "crowd", maxDrains+further, "")
	crowd.DeployPods(t, "web", maxDrains+further, func(pod *corev1.PodTemplateSpec) {
		// the host port limits each node to one pod
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	})
	crowd.CreateBudget(t, "web", maxDrains+further)
	hanging := func(blocked, queued int) func() (bool, any) {
		return func() (bool, any) {
			b, q := 0, 0
			for _, m := range crowd.Machines(t) {
				if m.DeletionTimestamp != nil && drainedCondition(&m).Reason == "Blocked" {
					b++
				}
				if queuedMessagePattern.MatchString(m.Status.LastOperation.Description) {
					q++
				}
			}
			return b == blocked && q == queued, []int{b, q}
		}
	}
	grow := func(to int) {
		t.Helper()
		grows.Scale(t, to)
		grows.AwaitRunningMachines(t, to)
	}

	begun := time.Now()
	crowd.Scale(t, further)
	grow(1 + wanted)
	rig.Eventually(t, "all drains are blocked", hanging(maxDrains, 0))
	crowd.Scale(t, 0)
	rig.Eventually(t, "the others wait for their turn", hanging(maxDrains, further))
	grow(1 + 2*wanted)
	all, saw := hanging(maxDrains, further)()
	require.True(t, all, "no drain has got on: %v", saw)
	// each drain sends one more eviction after each pause
	perhaps := maxDrains * (1 + int(time.Since(begun)/drain.MisconfiguredProbePause))
	require.Less(
		t,
		len(listPodRequests(t, crowd.Namespace)),
		perhaps,
		"a budget that allows none is not hammered, by many drains neither",
	)

	requireQueueOrder(t, crowd, hanging)

	crowd.RelaxBudget(t, "web", 0)
	crowd.AwaitRunningMachines(t, 0)
	require.Equal(
		t,
		maxDrains+further-endedDrainCount,
		requireOneEvictionPerPod(t, crowd.Namespace),
		"the queued had their turn",
	)
	_, err := testRig.Stack.RunKubectl(t.Context(), "delete", "deployment", "-n", crowd.Namespace, "web", "--wait=false")
	require.NoError(t, err)
	crowd.Delete(t)
	grows.Delete(t)
	crowd.AwaitPoolGone(t)
	grows.AwaitPoolGone(t)
}

// endedDrainCount is the number of drains that end at the same time. The queue has more machines than endedDrainCount,
// so that the test sees the order of the queue.
const endedDrainCount = 25

// requireQueueOrder ends 25 drains of the pool crowd at once by deleting their pods. requireQueueOrder requires that
// exactly the first 25 machines of the queue start their drains. TestEndOfADrainSignalsTheNextMachine of
// k8sbridge/watch proves that each end of a drain wakes the next machine of the queue.
func requireQueueOrder(t *testing.T, crowd *rig.Pool, hanging func(blocked, queued int) func() (bool, any)) {
	t.Helper()
	var begun []string // nodes that are being drained
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
	require.Greater(t, len(queue), endedDrainCount)
	ends := begun[:endedDrainCount]
	var deletions sync.WaitGroup
	for _, pod := range crowd.Pods(t, "web") {
		if slices.Contains(ends, pod.Spec.NodeName) {
			deletions.Go(func() {
				assert.NoError(
					t,
					testRig.Kube.CoreV1().
						Pods(pod.Namespace).
						Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}),
				)
			})
		}
	}
	deletions.Wait()
	rig.Eventually(t, "all places are taken again", hanging(maxDrains, len(queue)-endedDrainCount))

	now := map[types.UID]v1alpha1.Machine{}
	for _, m := range crowd.Machines(t) {
		now[m.UID] = m
	}
	for i, m := range queue {
		began := now[m.UID].Status.Deletion.Drain
		if i >= endedDrainCount {
			require.Nil(t, began, "%s is number %d of the queue", m.Name, i+1)
			continue
		}
		require.NotNil(t, began, "%s is number %d of the queue", m.Name, i+1)
	}
}
