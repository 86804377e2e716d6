//go:build integration

package drain

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// All nodes become unreachable while two of four nodes are drained. If only one node of a cluster is unreachable, a
// drain kills the node's pods after five minutes. In this test only the kubelets are cut off, and their containers run
// on: no pod is killed, and evictions continue when the kubelets are back. The breaker counts every node of the
// cluster, so this test runs alone.
func TestDrainKillsNoPodWhileMostNodesAreUnreachable(t *testing.T) {
	const size, drains = 4, 2
	p := newPool(t, "dark", size, "")
	p.DeployPods(t, "web", 2*size, func(pod *corev1.PodTemplateSpec) {
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		}}
	})
	p.CreateBudget(t, "web", 2*size)
	p.Scale(t, size-drains)
	leaving := func(what string, is func(*v1alpha1.Machine) bool) {
		t.Helper()
		rig.Eventually(t, what, func() (bool, any) {
			var saw []any
			n := 0
			for _, m := range p.Machines(t) {
				if m.DeletionTimestamp == nil {
					continue
				}
				saw = append(saw, drainedCondition(&m), testRig.WorkflowDetails(t, drainWorkflowID(m)))
				if is(&m) {
					n++
				}
			}
			return n == drains, saw
		})
	}
	leaving("the drains are blocked", func(m *v1alpha1.Machine) bool { return drainedCondition(m).Reason == "Blocked" })

	require.NoError(t, testRig.Stack.SignalComponent(t.Context(), component.Kwok, syscall.SIGSTOP))
	thaw := func() error { return testRig.Stack.SignalComponent(t.Context(), component.Kwok, syscall.SIGCONT) }
	thawed := false
	t.Cleanup(func() {
		if !thawed {
			_ = thaw()
		}
	})
	nodes := p.Nodes(t)
	require.Len(t, nodes, size)
	for _, n := range nodes {
		const unknown = `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`
		_, err := testRig.Kube.CoreV1().
			Nodes().
			Patch(t.Context(), n.Name, types.StrategicMergePatchType, []byte(unknown), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	// change the times only after all nodes are Unknown, because a drain kills the pods of a node if only this node is
	// Unknown
	for _, n := range nodes {
		backdateNodeNotReady(t, n.Name, nil)
	}
	leaving("the drains say why they do not kill", func(m *v1alpha1.Machine) bool {
		require.NotEqual(t, string(drain.MeansKill), m.Status.Deletion.Drain.Means)
		return strings.Contains(testRig.WorkflowDetails(t, drainWorkflowID(*m)), "kills no pod although")
	})
	for _, q := range listPodRequests(t, p.Namespace) {
		require.Equal(t, "evict", q.Verb, "%v", q)
		require.Equal(t, 429, q.Code, "%v", q)
	}
	pods := p.Pods(t, "web")
	require.Len(t, pods, 2*size)
	leavingNodes := map[string]bool{}
	for _, m := range p.Machines(t) {
		leavingNodes[m.Labels[v1alpha1.LabelNode]] = m.DeletionTimestamp != nil
	}
	evictions := 0 // a busy scheduler may place three pods on one node and one pod on another node
	for _, pod := range pods {
		require.Nil(t, pod.DeletionTimestamp, "%s", pod.Name)
		if leavingNodes[pod.Spec.NodeName] {
			evictions++
		}
	}

	require.NoError(t, thaw())
	thawed = true
	p.RelaxBudget(t, "web", 0)
	p.AwaitRunningMachines(t, size-drains)
	for _, q := range listPodRequests(t, p.Namespace) {
		require.Equal(t, "evict", q.Verb, "%v", q)
	}
	require.Equal(t, evictions, requireOneEvictionPerPod(t, p.Namespace))
	_, err := testRig.Stack.RunKubectl(t.Context(), "delete", "deployment", "-n", p.Namespace, "web", "--wait=false")
	require.NoError(t, err)
	p.Delete(t)
	p.AwaitPoolGone(t)
}
