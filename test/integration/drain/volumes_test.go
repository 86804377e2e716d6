//go:build integration

package drain

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/test/integration/rig"
)

func TestPodsWithVolumesMoveOneAfterTheOther(t *testing.T) {
	t.Parallel()
	p := newPool(t, "volumes", 2, "")
	p.RunStatefulSet(t, "db", 6)
	m, here := p.MachineWithPods(t, "db")
	require.GreaterOrEqual(t, len(here), 2, "the scheduler spreads six pods over two nodes")
	p.DeleteMachine(t, m.Name)

	moved := map[string]time.Time{} // creation time of the VolumeAttachment to the other node, by volume
	rig.Eventually(t, "all volumes have moved", func() (bool, any) {
		on := p.AttachmentsByVolume(t)
		for _, pod := range here {
			volume := p.Name + "-data-" + pod.Name
			if a, found := on[volume]; found && a.Spec.NodeName != m.Name {
				moved[volume] = a.CreationTimestamp.Time
			}
		}
		return len(moved) == len(here), moved
	})
	awaitMachineGone(t, m)

	var evicted []podRequest
	for _, q := range listPodRequests(t, p.Namespace) {
		require.Equal(t, "evict", q.Verb)
		require.Equal(t, 201, q.Code)
		evicted = append(evicted, q)
	}
	require.Len(t, evicted, len(here), "each pod is evicted once, and none of the pods that took their names")
	slices.SortFunc(evicted, func(x, y podRequest) int { return x.Time.Compare(y.Time) })
	for i, q := range evicted[1:] {
		before := moved[p.Name+"-data-"+evicted[i].Pod]
		t.Logf(
			"%s evicted at %s; the volume of %s came to another node after %s",
			q.Pod,
			q.Time.Format("15:04:05.000"),
			evicted[i].Pod,
			before.Format("15:04:05"),
		)
		require.True(t, q.Time.After(before), "%s was evicted before the volume of %s had moved", q.Pod, evicted[i].Pod)
	}
}
