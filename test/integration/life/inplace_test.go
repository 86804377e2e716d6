//go:build integration

package life

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// createBarePod creates a pod without a controller, with the app label bare, on a node.
func createBarePod(t *testing.T, p *rig.Pool, node string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bare", Labels: map[string]string{"app": "bare"}},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			Containers:                    []corev1.Container{{Name: "c", Image: "none"}},
			TerminationGracePeriodSeconds: new(int64),
		},
	}
	rig.Eventually(t, "a pod on the node", func() (bool, any) { // the namespace's service account may not exist yet
		_, err := testRig.Kube.CoreV1().Pods(p.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		return err == nil, err
	})
}

func TestNodeIsUpdatedInPlace(t *testing.T) {
	t.Parallel()
	p := newPool(t, "inplace", smallProviderSpec, 1, "")
	p.AwaitRunningMachines(t, 1)
	before := p.Machines(t)[0]
	node := before.Labels[v1alpha1.LabelNode]
	createBarePod(t, p, node)
	p.CreateBudget(t, "bare", 1)
	label := func(changes ...string) {
		t.Helper()
		_, err := testRig.Stack.RunKubectl(t.Context(), append([]string{"label", "node", node, "--overwrite"}, changes...)...)
		require.NoError(t, err)
	}
	shows := func(reason string, phase v1alpha1.MachinePhase, cordoned bool, labels ...string) {
		// The function sets the labels again at each attempt.
		t.Helper()
		rig.Eventually(t, reason+", "+string(phase), func() (bool, any) {
			if len(labels) > 0 {
				label(labels...)
			}
			n, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
			require.NoError(t, err)
			m := readMachine(t, p, before.Name)
			for _, c := range n.Status.Conditions {
				if c.Type == v1alpha1.NodeInPlaceUpdate && c.Reason == reason {
					return m.Status.CurrentStatus.Phase == phase && n.Spec.Unschedulable == cordoned, m.Status.CurrentStatus
				}
			}
			return false, n.Status.Conditions
		})
	}
	// The deployment's strategy is not InPlaceUpdate, so the deployment removes these labels at each reconcile, perhaps
	// before the machine has seen them. The node's condition InPlaceUpdate stays.
	shows(v1alpha1.ReasonCandidateForUpdate, v1alpha1.MachineRunning, false, v1alpha1.LabelCandidateForUpdate+"=true")
	shows(
		v1alpha1.ReasonSelectedForUpdate,
		v1alpha1.MachineRunning,
		true,
		v1alpha1.LabelCandidateForUpdate+"=true",
		v1alpha1.LabelSelectedForUpdate+"=true",
	)
	rig.Eventually(t, "its budget keeps the pod", func() (bool, any) {
		conditions := readMachine(t, p, before.Name).Status.Conditions
		return slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool {
			return c.Type == v1alpha1.MachineDrained && c.Reason == v1alpha1.ReasonBlocked
		}), conditions
	})
	shows(v1alpha1.ReasonSelectedForUpdate, v1alpha1.MachineRunning, true)
	require.Len(t, p.Pods(t, "bare"), 1)
	p.RelaxBudget(t, "bare", 0)
	shows(v1alpha1.ReasonReadyForUpdate, v1alpha1.MachineInPlaceUpdating, true)
	label(v1alpha1.LabelUpdateResult + "=successful")                      // the agent on the node sets this label
	shows(v1alpha1.ReasonUpdateSuccessful, v1alpha1.MachineRunning, false) // the deployment uncordons the node
	after := readMachine(t, p, before.Name)
	require.Equal(t, before.UID, after.UID)
	require.Equal(t, "Drained", after.Status.Drain.Result)
	require.Empty(t, p.Pods(t, "bare"))
}
