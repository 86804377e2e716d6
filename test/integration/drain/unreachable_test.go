//go:build integration

package drain

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// Without its kubelet, a node confirms neither that a pod has terminated nor that a volume is detached. After five
// minutes the drain kills the node's pods. The worker then deletes the instance, and after that the node's
// VolumeAttachments.
func TestUnreachableNodeIsForciblyDrained(t *testing.T) {
	t.Parallel()
	p := newPool(t, "unreachable", 2, "")
	p.RunStatefulSet(t, "db", 2)
	p.DeployPods(t, "web", 4)
	p.CreateBudget(t, "web", 4)
	// one or two pods of db, because the scheduler only tries to spread pods over the nodes
	m, db := p.MachineWithPods(t, "db")
	node := m.Labels[v1alpha1.LabelNode]
	web := slices.DeleteFunc(p.Pods(t, "web"), func(pod corev1.Pod) bool { return pod.Spec.NodeName != node })
	require.NotEmpty(t, web, "the scheduler spreads four pods over two nodes")
	here := slices.Concat(web, db)
	testRig.AttachVolume(t, "unclaimed", node)
	stopKubelet(t, node)
	// One pod of the node was deleted before. Without a kubelet, the deleted pod never ends.
	require.NoError(t, testRig.Kube.CoreV1().Pods(p.Namespace).Delete(t.Context(), web[0].Name, metav1.DeleteOptions{}))
	backdateNodeNotReady(t, node, db)
	held := listAttachments(t, node)
	require.Len(t, held, len(db)+1, "of the pods of db, and one that nobody claims")

	p.DeleteMachine(t, m.Name)
	awaitMachineGone(t, m)
	var killed, present []string
	for _, q := range listPodRequests(t, p.Namespace) {
		require.Equal(t, "delete", q.Verb, "nobody asks the budget: %v", q)
		require.Equal(t, 200, q.Code, "%v", q)
		killed = append(killed, q.Pod)
	}
	for _, pod := range here {
		present = append(present, pod.Name)
		now, err := testRig.Kube.CoreV1().Pods(p.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		require.True(
			t,
			apierrors.IsNotFound(err) || now.UID != pod.UID,
			"pod %s is gone, although no kubelet confirms it: %v",
			pod.Name,
			err,
		)
	}
	require.ElementsMatch(t, present, killed, "each is killed once, the one that was terminating too")
	require.NotContains(t, p.ProviderIDs(t), m.Spec.ProviderID)
	require.Subset(t, listDeletedObjects(t, "volumeattachments"), held)
	rig.Eventually(t, "nothing is attached to the node, and there is none", func() (bool, any) {
		_, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		left := listAttachments(t, node)
		return apierrors.IsNotFound(err) && len(left) == 0, []any{err, left}
	})
	require.Contains(t, awaitEventMessage(t, m, "DrainForced"), "node "+node+" is not ready since")
	p.AwaitRunningPods(t, "db", 2)
	rig.Eventually(t, "the volume of the pod that was there is attached where the new one is", func() (bool, any) {
		on := p.AttachmentsByVolume(t)
		for _, a := range on {
			if a.Spec.NodeName == node {
				return false, on
			}
		}
		return len(on) == 2, on
	})
}

// listAttachments returns the names of the VolumeAttachments of a node.
func listAttachments(t *testing.T, node string) []string {
	t.Helper()
	list, err := testRig.Kube.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for _, a := range list.Items {
		if a.Spec.NodeName == node {
			names = append(names, a.Name)
		}
	}
	return names
}

// stopKubelet removes the simulated kubelet from a node, and returns when the node's condition Ready is Unknown.
func stopKubelet(t *testing.T, node string) {
	t.Helper()
	_, err := testRig.Stack.RunKubectl(t.Context(), "label", "node", node, "type-")
	require.NoError(t, err)
	rig.Eventually(t, "node "+node+" is not heard of", func() (bool, any) {
		n, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		require.NoError(t, err)
		beat, err := testRig.Kube.CoordinationV1().
			Leases(corev1.NamespaceNodeLease).
			Get(t.Context(), node, metav1.GetOptions{})
		require.NoError(t, err)
		i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		// The node's condition Ready may be Unknown while the kubelet lives, if the node controller's watch was broken.
		// A live kubelet renews its Lease every 10 s.
		dead := time.Since(beat.Spec.RenewTime.Time) > 25*time.Second
		unknown := n.Status.Conditions[i].Status == corev1.ConditionUnknown
		return dead && unknown, []any{beat.Spec.RenewTime, n.Status.Conditions}
	})
}

// backdateNodeNotReady writes into the status of an unreachable node that the node has not been ready for six minutes.
// backdateNodeNotReady lists the volumes of the pods as in use, as the node's kubelet would.
func backdateNodeNotReady(t *testing.T, node string, pods []corev1.Pod) {
	t.Helper()
	mounted := make([]string, len(pods))
	for i, pod := range pods {
		mounted[i] = "kubernetes.io/csi/" + rig.CSIDriverName + "^" + pod.Namespace + "-data-" + pod.Name
	}
	inUse, err := json.Marshal(mounted)
	require.NoError(t, err)
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","lastTransitionTime":%q}],"volumesInUse":%s}}`,
		time.Now().Add(-6*time.Minute).UTC().Format(time.RFC3339), inUse)
	_, err = testRig.Kube.CoreV1().
		Nodes().
		Patch(t.Context(), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}

// awaitEventMessage waits for an event about a machine with this reason, and returns the event's message.
func awaitEventMessage(t *testing.T, m v1alpha1.Machine, reason string) (message string) {
	t.Helper()
	rig.Eventually(t, "event "+reason+" of "+m.Name, func() (bool, any) {
		events, err := testRig.Kube.CoreV1().
			Events(m.Namespace).
			List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + m.Name})
		require.NoError(t, err)
		var reasons []string
		for _, e := range events.Items {
			reasons = append(reasons, e.Reason)
			if e.Reason == reason {
				message = e.Message
				return true, nil
			}
		}
		return false, reasons
	})
	return message
}
