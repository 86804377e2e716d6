//go:build integration

package drain

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/decide/drain"
	"millwright/test/integration/rig"
)

// inQueue is what a machine says that waits for its turn. How many wait may have changed since it was told.
var inQueue = regexp.MustCompile(fmt.Sprintf(`^queued: place \d+ of \d+; %d nodes are drained at a time$`, most))

// 50 machines are deleted at once, each with a pod that a budget keeps, while a deployment wants ten more: these come although
// no drain gets on. Further ones that are deleted wait for their turn, and creations do not wait for them either.
func TestN13_D28_CreationsDoNotWaitForDrains(t *testing.T) {
	const further, wanted = 10, 10
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
	grow := func(to int) time.Duration {
		begun := time.Now()
		grows.Scale(t, to)
		grows.AwaitRunning(t, to, 2*time.Minute)
		return time.Since(begun).Round(100 * time.Millisecond)
	}

	begun := time.Now()
	crowd.Scale(t, further)
	meanwhile := grow(1 + wanted)
	rig.Eventually(t, 2*time.Minute, "all drains are blocked", hanging(most, 0))
	crowd.Scale(t, 0)
	rig.Eventually(t, 2*time.Minute, "the others wait for their turn", hanging(most, further))
	then := grow(1 + 2*wanted)
	all, saw := hanging(most, further)()
	require.True(t, all, "no drain has got on: %v", saw)
	t.Logf("%d machines more run %s after %d others were deleted, and %d more %s later than asked for, while all of those are blocked and %d are queued", wanted, meanwhile, most, wanted, then, further)
	perhaps := most * (1 + int(time.Since(begun)/drain.BadProbePause)) // each asks once more then
	require.Less(t, len(asked(t, crowd.Namespace)), perhaps, "P5: a budget that allows none is not hammered, by many drains neither")

	crowd.Loosen(t, "web", 0)
	loosened := time.Now()
	crowd.AwaitRunning(t, 0, time.Minute)
	t.Logf("all %d are gone %s after the budget was loosened", most+further, time.Since(loosened).Round(100*time.Millisecond))
	require.Equal(t, most+further, evictedOnce(t, crowd.Namespace), "the queued had their turn")
	_, err := r.Stack.Kubectl(t.Context(), "delete", "deployment", "-n", crowd.Namespace, "web", "--wait=false")
	require.NoError(t, err)
	crowd.Delete(t)
	grows.Delete(t)
	crowd.AwaitGone(t, 60*time.Second)
	grows.AwaitGone(t, 60*time.Second)
}
