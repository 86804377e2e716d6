//go:build integration

package life

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// annotateForPreservation sets the annotation that preserves a machine; null removes the annotation.
func annotateForPreservation(t *testing.T, p *rig.Pool, name, value string) {
	t.Helper()
	annotateMachine(t, p, name, v1alpha1.AnnotationPreserve, value)
}

// annotateMachine sets an annotation of a machine to a value in JSON; null removes the annotation.
func annotateMachine(t *testing.T, p *rig.Pool, name, key, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value)
	_, err := testRig.MachineClient.MachineV1alpha1().
		Machines(p.Namespace).
		Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func awaitPreservedMachine(t *testing.T, p *rig.Pool, name string, phase v1alpha1.MachinePhase) {
	t.Helper()
	rig.Eventually(t, "preserved in phase "+string(phase), func() (bool, any) {
		m := readMachine(t, p, name)
		if m == nil {
			return false, "it is gone"
		}
		n, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
		require.NoError(t, err)
		tainted := slices.ContainsFunc(
			n.Spec.Taints,
			func(taint corev1.Taint) bool { return taint.Key == v1alpha1.TaintPreserved },
		)
		condition := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == v1alpha1.NodePreserved && c.Status == corev1.ConditionTrue
		})
		failed := phase == v1alpha1.MachineFailed
		is := m.Status.CurrentStatus.Phase == phase && m.Status.CurrentStatus.PreserveExpiryTime != nil && condition &&
			tainted == failed && n.Annotations[v1alpha1.AnnotationScaleDownDisabled] == "true" && !n.Spec.Unschedulable
		return is, []any{m.Status, n.Spec.Taints, n.Status.Conditions}
	})
}

func TestPreservedMachineFailsAndStays(t *testing.T) {
	t.Parallel()
	p := newPool(t, "kept", smallProviderSpec, 2, `{"healthTimeout":"3s"}`)
	p.AwaitRunningMachines(t, 2)
	name := p.Machines(t)[0].Name
	annotateForPreservation(t, p, name, `"now"`)
	awaitPreservedMachine(t, p, name, v1alpha1.MachineRunning)
	until := readMachine(t, p, name).Status.CurrentStatus.PreserveExpiryTime
	node := readMachine(t, p, name).Labels[v1alpha1.LabelNode]
	createBarePod(t, p, node)
	setNodeNotReady(t, name, true)
	awaitPreservedMachine(t, p, name, v1alpha1.MachineFailed)
	rig.Eventually(t, "its node is emptied", func() (bool, any) {
		n, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		require.NoError(t, err)
		told := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == v1alpha1.NodePreserved && strings.HasPrefix(c.Message, v1alpha1.MessagePreservedNodeDrained)
		})
		return told && len(p.Pods(t, "bare")) == 0, n.Status.Conditions
	})
	require.True(
		t,
		until.Equal(readMachine(t, p, name).Status.CurrentStatus.PreserveExpiryTime),
		"failing does not move its end",
	)
	p.ForceReconcile(t)
	require.NotNil(t, readMachine(t, p, name), "no set takes it")
	p.Scale(t, 1) // the set must then delete the machine that is not preserved
	rig.Eventually(t, "the preserved one is left", func() (bool, any) {
		return len(p.Machines(t)) == 1 && p.Machines(t)[0].Name == name, machineNames(p, t)
	})
	setNodeNotReady(t, name, false)
	awaitPreservedMachine(t, p, name, v1alpha1.MachineRunning)
	annotateForPreservation(t, p, name, `"false"`)
	rig.Eventually(t, "preserved no more", func() (bool, any) {
		m := readMachine(t, p, name)
		return m.Status.CurrentStatus.PreserveExpiryTime == nil, m.Status.CurrentStatus
	})
}

func TestPreservationExpiresOnTime(t *testing.T) {
	t.Parallel()
	p := newPool(t, "over", smallProviderSpec, 1, `{"healthTimeout":"2s","machinePreserveTimeout":"20s"}`)
	p.AwaitRunningMachines(t, 1)
	name := p.Machines(t)[0].Name
	annotateForPreservation(t, p, name, `"when-failed"`)
	setNodeNotReady(t, name, true)
	awaitPreservedMachine(t, p, name, v1alpha1.MachineFailed)
	m := readMachine(t, p, name)
	until := m.Status.CurrentStatus.PreserveExpiryTime.Time
	late := p.AwaitMachineGone(t, *m).Sub(until)
	t.Logf("deleted %s after its preservation was over", late)
	// TestPreservationEndsOnTime of workflows/machine proves that the deletion is not too late
	require.GreaterOrEqual(t, late, time.Duration(0), "not before the time is over")
	p.AwaitRunningMachines(t, 1)
}

func TestSetPreservesAFailedMachineAutomatically(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "auto", smallProviderSpec)
	p := testRig.CreatePool(t, "auto", "auto", 2, func(d *v1alpha1.MachineDeployment) {
		d.Spec.AutoPreserveFailedMachineMax = 1
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineHealthTimeout: &metav1.Duration{Duration: 2 * time.Second},
		}
	})
	p.AwaitRunningMachines(t, 2)
	name := p.Machines(t)[0].Name
	setNodeNotReady(t, name, true)
	awaitPreservedMachine(t, p, name, v1alpha1.MachineFailed)
	require.Equal(t, v1alpha1.ValuePreserveAuto, readMachine(t, p, name).Annotations[v1alpha1.AnnotationPreserve])
	p.Delete(t)
	p.AwaitPoolGone(t)
}
