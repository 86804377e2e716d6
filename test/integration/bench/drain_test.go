//go:build integration && bench

package bench

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/test/bench"
	"millwright/test/integration/rig"
)

func TestDrain50Nodes(t *testing.T) {
	const nodes, pods = 50, 500
	testRig.CreateNamespace(t, "drained", "")
	pool := testRig.CreatePool(t, "drained", "drained", nodes, rig.WithNodeLabel)
	pool.AwaitRunningMachines(t, nodes)
	pool.AwaitLabelledNodes(t, nodes)
	pool.DeployPods(t, "web", pods, func(pod *corev1.PodTemplateSpec) {
		pod.Annotations["pod-delete.stage.kwok.x-k8s.io/delay"] = "1s"
	})
	load := measureLoad(
		t,
		bench.LoadResult{
			Name:         "50 nodes with 10 pods each, drained at once",
			MachineCount: nodes,
			Targets:      []bench.Target{{Figure: bench.FigureSeconds, Value: 8}},
		},
		func() {
			scalePoolAndAwait(t, pool, 0)
		},
	)
	evictions := 0
	for what, n := range load.RequestCounts {
		if strings.HasSuffix(what, "create pods/eviction") {
			evictions += n
		}
	}
	// An eviction has a timeout of 20 s, which includes the wait for the client's rate limiter. After the timeout, the
	// worker sends the eviction again. docs/benchmarks.md reports 1.00 evictions per pod.
	require.LessOrEqual(
		t,
		float64(evictions),
		1.5*pods,
		"nothing blocks: an eviction is sent again only where its time was over",
	)
	// the deletion keeps the scheduler from checking 500 pending pods for each node of the later loads
	background := metav1.DeletePropagationBackground
	require.NoError(
		t,
		testRig.Kube.AppsV1().
			Deployments(pool.Namespace).
			Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &background}),
	)
	pool.Delete(t)
	pool.AwaitPoolGone(t)
	rig.Eventually(t, "no pod is left", func() (bool, any) { n := len(pool.Pods(t, "web")); return n == 0, n })
}
