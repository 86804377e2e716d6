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

// What a deployment changes without a rollout reaches its machines, and makes none anew.
func TestNodeTemplateReachesMachinesWithoutARollout(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "synced", 3, rolling(1, 0))
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
	f.AwaitGone(t)
}

// In the middle of a rollout, new pods are kept off old nodes, and the cluster autoscaler off all. What a person told
// the autoscaler stays, also afterwards.
func TestNodesDuringARollout(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "marked", 5, rolling(1, 0))
	r.Policy(
		t,
		f.Namespace,
		f.Name,
		v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}},
	)
	former := f.names(t)
	told := map[string]string{} // by node: what a person told the autoscaler
	for i, n := range f.Nodes(t) {
		note := map[string]string{"example.com/owner": "ann"}
		if i < 4 { // at most one of these goes
			told[n.Name] = []string{"true", "true", "false", "false"}[i]
			note[v1alpha1.AnnotationScaleDownDisabled] = told[n.Name]
		}
		annotate(t, n.Name, note)
	}

	f.change(t, "2")
	f.awaitReason(t, v1alpha1.ReasonRolloutWaiting)
	f.awaitMarks(t, func(m v1alpha1.Machine) marks {
		old, person := m.Labels["edition"] == "", told[m.Labels[v1alpha1.LabelNode]] == "true"
		return marks{tainted: old, guard: "true", ours: !person, owned: old}
	})

	f.request(t, run.RequestInput{Command: "cancel", Reason: "no", Back: true})
	rig.Eventually(t, "the former template is a revision of its own", func() (bool, any) {
		revision := f.Deployment(t).Annotations[v1alpha1.AnnotationRevision]
		return revision == "3", revision
	})
	f.request(t, run.RequestInput{Command: "approve", Reason: "it was well before", Steps: 1})
	f.awaitEdition(t, "", 5)
	f.awaitMarks(t, func(m v1alpha1.Machine) marks {
		if !slices.Contains(former, m.Name) {
			return marks{}
		}
		if told[m.Labels[v1alpha1.LabelNode]] == "true" {
			return marks{guard: "true", owned: true}
		}
		return marks{owned: true}
	})
	stayed := slices.DeleteFunc(f.names(t), func(name string) bool { return !slices.Contains(former, name) })
	require.GreaterOrEqual(t, len(stayed), 4, "old machines that went through it")
	f.Delete(t)
	f.AwaitGone(t)
}

// marks are what a node carries for the time of a rollout.
type marks struct {
	tainted bool   // as the node of an old set
	guard   string // what keeps the autoscaler off
	ours    bool   // the guard has our marker
	owned   bool   // it has the annotation of a person that is nobody else's business
}

// marks returns what the nodes of the fleet carry, by name.
func (f fleet) marks(t *testing.T) map[string]marks {
	t.Helper()
	all := map[string]marks{}
	for _, n := range f.Nodes(t) {
		all[n.Name] = marks{
			tainted: slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool {
				return taint.Key == v1alpha1.TaintPreferNoSchedule && taint.Value == v1alpha1.ValueTrue &&
					taint.Effect == corev1.TaintEffectPreferNoSchedule
			}),
			guard: n.Annotations[v1alpha1.AnnotationScaleDownDisabled],
			ours:  n.Annotations[v1alpha1.AnnotationScaleDownDisabledByMCM] == v1alpha1.ValueLowerTrue,
			owned: n.Annotations["example.com/owner"] == "ann",
		}
	}
	return all
}

// awaitMarks waits until the nodes of all machines carry what they should.
func (f fleet) awaitMarks(t *testing.T, want func(v1alpha1.Machine) marks) {
	t.Helper()
	rig.Eventually(t, "the marks on all nodes", func() (bool, any) {
		have, should := f.marks(t), map[string]marks{}
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

func annotate(t *testing.T, node string, annotations map[string]string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	require.NoError(t, err)
	_, err = r.Kube.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}
