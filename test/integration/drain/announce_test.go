//go:build integration

package drain

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// A node's condition Terminating contains the reason for the deletion of its machine before the pods are evicted: the
// machine is unhealthy, or the set has too many machines.
func TestNodeConditionSaysWhyItsMachineIsDeleted(t *testing.T) {
	t.Parallel()
	p := newPool(t, "announces", 2, `{"healthTimeout":"5s"}`)
	machines := p.Machines(t)
	for _, m := range machines {
		annotateMachine(t, m, v1alpha1.AnnotationPreDrainHook+"/test=")
	}
	says := func(m v1alpha1.Machine, reason, message string) {
		t.Helper()
		rig.Eventually(t, "node "+m.Name+" says "+reason, func() (bool, any) {
			node, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
			require.NoError(t, err)
			for _, c := range node.Status.Conditions {
				if c.Type == v1alpha1.NodeTerminating && c.Status == corev1.ConditionTrue {
					return c.Reason == reason && c.Message == message, c
				}
			}
			return false, readMachine(t, m).Status
		})
		rig.Eventually(t, "so does the machine", func() (bool, any) {
			phase := readMachine(t, m).Status.CurrentStatus.Phase
			return phase == v1alpha1.MachineTerminating, phase
		})
	}
	ill, surplus := machines[0], machines[1]
	_, err := testRig.Stack.RunKubectl(
		t.Context(),
		"label",
		"node",
		ill.Labels[v1alpha1.LabelNode],
		"node-not-ready.stage.kwok.x-k8s.io=true",
	)
	require.NoError(t, err)
	says(ill, v1alpha1.ReasonUnhealthy, v1alpha1.MessageTerminatingUnhealthy)
	p.DeleteMachine(t, surplus.Name)
	says(surplus, v1alpha1.ReasonScaleDown, v1alpha1.MessageTerminatingScaleDown)
	for _, m := range machines {
		annotateMachine(t, m, v1alpha1.AnnotationPreDrainHook+"/test-")
		awaitMachineGone(t, m)
	}
}
