//go:build integration

package rollouts

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// Changes of a deployment that need no rollout reach its existing machines, and no machine is replaced.
func TestNodeTemplateReachesMachinesWithoutARollout(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "synced", 3, withRollingUpdate(1, 0))
	names := map[string]bool{}
	for _, m := range f.Machines(t) {
		names[m.Name] = true
	}
	f.Patch(
		t,
		`{"metadata":{"annotations":{"machine.sapcloud.io/last-deployment-replica-change-by-scaler-time":"2026-01-01T00:00:00Z"}},
		"spec":{"minReadySeconds":1,"template":{"spec":{"drainTimeout":"7m","nodeTemplate":{"metadata":{"labels":{"tier":"gold"}}}}}}}`,
	)
	rig.Eventually(t, "nodes have the label, machines the timeout", func() (bool, any) {
		gold := 0
		for _, n := range f.Nodes(t) {
			if n.Labels["tier"] == "gold" {
				gold++
			}
		}
		for _, m := range f.Machines(t) {
			if m.Spec.MachineConfiguration == nil || m.Spec.MachineDrainTimeout == nil ||
				m.Spec.MachineDrainTimeout.Duration != 7*time.Minute {
				return false, m.Name
			}
		}
		return gold == 3, gold
	})
	sets := f.Sets(t)
	require.Len(t, sets, 1)
	require.Equal(t, int32(1), sets[0].Spec.MinReadySeconds)
	require.Equal(t, "2026-01-01T00:00:00Z", sets[0].Annotations[v1alpha1.AnnotationLastScalerChange])
	for _, m := range f.Machines(t) {
		require.True(t, names[m.Name], "the same machines")
	}
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// During a rollout, a taint keeps new pods off old nodes, and an annotation keeps the cluster autoscaler off all nodes.
// If a person has set this annotation, Millwright does not remove it during or after the rollout.
func TestNodesAreTaintedAndProtectedDuringARollout(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "marked", 5, withRollingUpdate(1, 0))
	testRig.CreatePolicy(
		t,
		f.Namespace,
		f.Name,
		v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}},
	)
	former := f.machineNames(t)
	told := map[string]string{} // value of a person's annotation for the autoscaler, by node
	for i, n := range f.Nodes(t) {
		note := map[string]string{"example.com/owner": "ann"}
		if i < 4 { // the rollout replaces at most one of these four nodes
			told[n.Name] = []string{"true", "true", "false", "false"}[i]
			note[v1alpha1.AnnotationScaleDownDisabled] = told[n.Name]
		}
		annotateNode(t, n.Name, note)
	}

	f.changeTemplate(t, "2")
	f.awaitProgressingReason(t, v1alpha1.ReasonRolloutWaiting)
	f.awaitRolloutMarks(t, func(m v1alpha1.Machine) rolloutMarks {
		old, person := m.Labels["edition"] == "", told[m.Labels[v1alpha1.LabelNode]] == "true"
		return rolloutMarks{
			isTainted:              old,
			scaleDownDisabledValue: "true",
			isSetByMillwright:      !person,
			hasOwnerAnnotation:     old,
		}
	})

	f.sendRequest(t, run.RequestInput{Command: "cancel", Reason: "no", RollsBack: true})
	rig.Eventually(t, "the former template is a revision of its own", func() (bool, any) {
		revision := f.Deployment(t).Annotations[v1alpha1.AnnotationRevision]
		return revision == "3", revision
	})
	f.sendRequest(t, run.RequestInput{Command: "approve", Reason: "it was well before", ApprovedStepCount: 1})
	f.awaitMachinesOfEdition(t, "", 5)
	f.awaitRolloutMarks(t, func(m v1alpha1.Machine) rolloutMarks {
		if !slices.Contains(former, m.Name) {
			return rolloutMarks{}
		}
		if told[m.Labels[v1alpha1.LabelNode]] == "true" {
			return rolloutMarks{scaleDownDisabledValue: "true", hasOwnerAnnotation: true}
		}
		return rolloutMarks{hasOwnerAnnotation: true}
	})
	stayed := slices.DeleteFunc(f.machineNames(t), func(name string) bool { return !slices.Contains(former, name) })
	require.GreaterOrEqual(t, len(stayed), 4, "old machines that went through it")
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// rolloutMarks are the taint and the annotations of a node during a rollout.
type rolloutMarks struct {
	isTainted              bool   // the node has the taint for nodes of old sets
	scaleDownDisabledValue string // value of the annotation that disables the autoscaler's scale-down
	isSetByMillwright      bool   // an annotation records that Millwright has set the scale-down annotation
	hasOwnerAnnotation     bool   // the node has the person's annotation example.com/owner
}

// readRolloutMarks returns the rolloutMarks of the fleet's nodes, by the name of the node.
func (f fleet) readRolloutMarks(t *testing.T) map[string]rolloutMarks {
	t.Helper()
	all := map[string]rolloutMarks{}
	for _, n := range f.Nodes(t) {
		all[n.Name] = rolloutMarks{
			isTainted: slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool {
				return taint.Key == v1alpha1.TaintPreferNoSchedule && taint.Value == v1alpha1.ValueTrue &&
					taint.Effect == corev1.TaintEffectPreferNoSchedule
			}),
			scaleDownDisabledValue: n.Annotations[v1alpha1.AnnotationScaleDownDisabled],
			isSetByMillwright:      n.Annotations[v1alpha1.AnnotationScaleDownDisabledByMCM] == v1alpha1.ValueLowerTrue,
			hasOwnerAnnotation:     n.Annotations["example.com/owner"] == "ann",
		}
	}
	return all
}

// awaitRolloutMarks waits until the node of each machine has the rolloutMarks that want returns.
func (f fleet) awaitRolloutMarks(t *testing.T, want func(v1alpha1.Machine) rolloutMarks) {
	t.Helper()
	rig.Eventually(t, "the marks on all nodes", func() (bool, any) {
		have, should := f.readRolloutMarks(t), map[string]rolloutMarks{}
		for _, m := range f.Machines(t) {
			should[m.Labels[v1alpha1.LabelNode]] = want(m)
		}
		return len(should) == int(f.Deployment(t).Spec.Replicas) &&
				maps.Equal(should, have), fmt.Sprintf(
				"%+v; wanted: %+v",
				have,
				should,
			)
	})
}

func annotateNode(t *testing.T, node string, annotations map[string]string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	require.NoError(t, err)
	_, err = testRig.Kube.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}
