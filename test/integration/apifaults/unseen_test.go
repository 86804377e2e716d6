//go:build integration

package apifaults

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// A node joins and gets pods while neither worker nor bridge receives watch events of nodes. The machine of the node is
// deleted while the watch events are missing. Before the worker decides that there is no node to drain, it reads the
// nodes from the API server.
func TestNodeMissingInAllCachesIsDrained(t *testing.T) {
	const name = "unseen"
	testRig.CreateNamespace(t, name, "")
	verify := startNamespaceChecker(t, name)
	testRig.Proxies.SetFaults(rig.APIFaults{WatchDelay: time.Hour, DelayedResource: "nodes"})
	t.Cleanup(func() { // an open watch never gets the blocked events; a new watch first lists the objects
		testRig.Proxies.SetFaults(rig.APIFaults{})
		testRig.Proxies.CutWatches(0)
	})
	pool := testRig.CreatePool(t, name, name, 1)
	var m v1alpha1.Machine
	var node *corev1.Node
	rig.Eventually(t, "the node of the machine is ready", func() (bool, any) {
		machines := pool.Machines(t)
		if len(machines) != 1 || machines[0].Labels[v1alpha1.LabelNode] == "" {
			return false, machines
		}
		m = machines[0]
		var err error
		node, err = testRig.Kube.CoreV1().Nodes().Get(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}), err
	})
	pool.DeployPods(t, "web", 2, func(pod *corev1.PodTemplateSpec) {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Labels[corev1.LabelHostname]}
	})
	pods := pool.Pods(t, "web")
	require.NotContains(
		t,
		node.Finalizers,
		v1alpha1.FinalizerNode,
		"the worker has seen the node: this test shows nothing",
	)
	require.Equal(t, v1alpha1.MachinePending, pool.Machines(t)[0].Status.CurrentStatus.Phase)

	pool.Delete(t)
	pool.AwaitPoolGone(t)
	want := map[string]int{}
	for _, pod := range pods {
		want[pod.Name] = 201
	}
	rig.Eventually(t, "the audit log has an eviction of each pod, and nothing else", func() (bool, any) {
		saw, other := map[string]int{}, 0
		for _, line := range testRig.AuditedRequests(t, func(line rig.AuditedRequest) bool {
			o := line.ObjectRef
			return o.Resource == "pods" && o.Namespace == name && line.User.Username == component.WorkerIdentity && slices.Contains([]string{"create", "delete"}, line.Verb)
		}) {
			if line.ObjectRef.Subresource == "eviction" {
				saw[line.ObjectRef.Name] = line.ResponseStatus.Code
			} else {
				other++
			}
		}
		return other == 0 && maps.Equal(want, saw), saw
	})
	_, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	_, err = testRig.Stack.RunKubectl(t.Context(), "delete", "deployment", "-n", name, "web", "--wait=false")
	require.NoError(t, err)
	verify()
}
