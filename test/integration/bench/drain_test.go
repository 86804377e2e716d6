//go:build integration && bench

package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/test/integration/rig"
)

func TestDrainOf50NodesWith10PodsEach(t *testing.T) {
	const nodes, pods = 50, 500
	r.Namespace(t, "drained", "")
	pool := r.Pool(t, "drained", "drained", nodes, rig.Hosting)
	pool.AwaitRunning(t, nodes, 3*time.Minute)
	pool.AwaitHosts(t, nodes, time.Minute)
	pool.Deploy(t, "web", pods, func(pod *corev1.PodTemplateSpec) {
		pod.Annotations["pod-delete.stage.kwok.x-k8s.io/delay"] = "1s"
	})
	mark := auditSize(t)
	start := time.Now()
	pool.Scale(t, 0)
	pool.AwaitRunning(t, 0, 3*time.Minute)
	took := time.Since(start)
	counts := requests(t, mark)
	total, evictions := 0, 0
	for what, n := range counts {
		total += n
		if strings.HasSuffix(what, "create pods/eviction") {
			evictions = n
		}
	}
	// A request has 20 s, its wait for the client's own rate limiter included, and is sent again after them. docs/benchmarks.md has 1.00.
	require.LessOrEqual(t, float64(evictions), 1.5*pods, "nothing blocks: an eviction is sent again only where its time was over")
	t.Logf("%d nodes with %d pods in all, deleted at once: %.1f s", nodes, pods, took.Seconds())
	t.Logf("requests to the API server by worker and bridge: %.1f a node (%d in all), %.2f evictions a pod", float64(total)/nodes, total, float64(evictions)/pods)
	for _, what := range sorted(counts) {
		t.Logf("  %5d %s", counts[what], what)
	}
	pool.Delete(t)
	pool.AwaitGone(t, time.Minute)
}
