package drain

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	capidrain "millwright/observe/capi/drain"
	"millwright/starter/clitest"
)

// clusterAPIBackend is a cluster with Cluster API, and without a machine of Millwright.
type clusterAPIBackend struct {
	*fakeBackend
	client *capi.Client
}

func newBackendWithClusterAPI(machines ...runtime.Object) clusterAPIBackend {
	w := newFakeBackend()
	w.ClusterAPI = capitest.NewFakeServer(machines...)
	return clusterAPIBackend{w, w.ClusterAPI.Client}
}

func (w clusterAPIBackend) run(ctx context.Context, args ...string) (string, error) {
	return w.Run(ctx, Command(w.Environment()), args...)
}

// newBlockedMachine returns a machine of Cluster API whose drain is blocked by a PodDisruptionBudget.
func newBlockedMachine(t *testing.T, change ...capitest.MachineChange) *clusterv1.Machine {
	t.Helper()
	began := metav1.NewTime(clitest.Now.Add(-600e9))
	return capitest.NewMachine("m-1", capitest.NewSet("s", 1), append([]capitest.MachineChange{func(m *clusterv1.Machine) {
		m.DeletionTimestamp = &began
		m.Annotations[capidrain.AnnotationPreDrainHook] = "millwright"
		m.Status.Deletion = &clusterv1.MachineDeletionStatus{WaitForPreDrainHookStartTime: began}
		capitest.WithConditionReason(
			clusterv1.MachineDeletingCondition,
			metav1.ConditionTrue,
			clusterv1.MachineDeletingWaitingForPreDrainHookReason,
			"",
		)(m)
		v := capidrain.ToMillwrightMachine(m)
		v.Status.Deletion.Drain = &v1alpha1.MachineDrain{StartedAt: began, Means: "Evict", MeansSince: &began}
		v.Status.CurrentOperation = &v1alpha1.Operation{
			WorkflowID: "garden/clusterapidrain/shop/m-1/uid-m-1", Step: vocabulary.StepEvictPods, Since: began,
			BlockedBy: []string{"PodDisruptionBudget web/all"}, WaitsFor: "web/all allows none",
		}
		v.Status.Conditions = []corev1.NodeCondition{
			{
				Type:    v1alpha1.MachineDrained,
				Status:  corev1.ConditionFalse,
				Reason:  "Blocked",
				Message: "web/all allows none of its pods to go",
			},
		}
		text, err := capidrain.StatusText(v)
		require.NoError(t, err)
		m.Annotations[v1alpha1.AnnotationDrainStatus] = text
		capidrain.CopyConditions(m, v)
	}}, change...)...)
}

func TestDrainsOfClusterAPIAreListedAndExplained(t *testing.T) {
	alive := capitest.NewMachine("alive", capitest.NewSet("s", 1))
	theirs := capitest.NewMachine("theirs", capitest.NewSet("s", 1), capitest.AsDeletingObject)
	w := newBackendWithClusterAPI(newBlockedMachine(t), alive, theirs)
	out, err := w.run(t.Context(), "list", "-n", "shop")
	require.NoError(t, err)
	require.Len(
		t,
		strings.Split(strings.TrimSpace(out), "\n"),
		2,
		"head and one machine: Cluster API drains the others\n%s",
		out,
	)
	for _, part := range []string{"m-1", "node-m-1", "Drain", "Evict", "PodDisruptionBudget web/all"} {
		assert.Contains(t, out, part)
	}
	out, err = w.run(t.Context(), "list", "-n", "shop", "-o", "name")
	require.NoError(t, err)
	assert.Equal(t, "machines.cluster.x-k8s.io/shop/m-1\n", out)

	out, err = w.run(t.Context(), "explain", "shop/m-1")
	require.NoError(t, err)
	for _, part := range []string{
		"machine shop/m-1: web/all allows none", "node node-m-1   stage Drain", "means Evict", "web/all allows none of its pods to go; since", "pods are evicted",
		"`kubectl describe pdb -n web all`", "`millwright drain force shop/m-1 --reason …`",
	} {
		assert.Contains(t, out, part)
	}
	assert.NotContains(t, out, "extend", "it has no end")

	_, err = w.run(t.Context(), "explain", "shop/theirs")
	require.EqualError(
		t,
		err,
		"machine shop/theirs is of Cluster API, which drains its node itself: see the condition Deleting (kubectl describe machines.cluster.x-k8s.io -n shop theirs)",
	)
	_, err = w.run(t.Context(), "explain", "shop/absent")
	require.ErrorContains(t, err, "there is no machine shop/absent")
}

func TestExplainClusterAPIDrainThatHasNotBegun(t *testing.T) {
	for want, seconds := range map[string]*int32{
		"no pod was evicted yet, and its nodeDrainTimeoutSeconds is not set, and it has no end":        nil,
		"no pod was evicted yet, and its nodeDrainTimeoutSeconds of 90s begin with the first eviction": new(int32(90)),
	} {
		w := newBackendWithClusterAPI(newBlockedMachine(t, func(m *clusterv1.Machine) {
			m.Spec.Deletion.NodeDrainTimeoutSeconds = seconds
			delete(m.Annotations, v1alpha1.AnnotationDrainStatus)
		}))
		out, err := w.run(t.Context(), "explain", "shop/m-1")
		require.NoError(t, err)
		assert.Contains(t, strings.ReplaceAll(out, "1m30s", "90s"), want)
	}
}

func TestExplainClusterAPIDrainWithUnreachableCluster(t *testing.T) {
	w := newBackendWithClusterAPI(newBlockedMachine(t, func(m *clusterv1.Machine) {
		v := capidrain.ToMillwrightMachine(m)
		v.Status.CurrentOperation.BlockedBy = []string{vocabulary.BlockedByUnavailableTarget}
		v.Status.Conditions[0].Message = "Cluster c does not answer"
		text, err := capidrain.StatusText(v)
		require.NoError(t, err)
		m.Annotations[v1alpha1.AnnotationDrainStatus] = text
		capidrain.CopyConditions(m, v)
	}))
	out, err := w.run(t.Context(), "explain", "shop/m-1")
	require.NoError(t, err)
	assert.Contains(t, out, "it waits: Cluster c does not answer; it continues when that cluster answers")
	assert.Contains(t, out, "to change that: `millwright drain skip shop/m-1 --reason …`.")
	assert.NotContains(t, out, "abandon-instance")
}

func TestRequestsAnnotateMachinesOfClusterAPI(t *testing.T) {
	t.Setenv("USER", "ann")
	timed := func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(3600)) }
	for _, row := range []struct {
		args, annotation, value string
	}{
		{"hold --reason lunch", v1alpha1.AnnotationHold, "ann: lunch"},
		{"force --yes --reason burns", v1alpha1.AnnotationForce, "ann: burns"},
		{"skip --reason test", v1alpha1.AnnotationSkipDrain, "ann: test"},
		{"retry", v1alpha1.AnnotationRetry, "2026"},
		{"extend --for 1h --reason backup", v1alpha1.AnnotationExtend, "ann: backup"},
	} {
		t.Run(row.args, func(t *testing.T) {
			w := newBackendWithClusterAPI(newBlockedMachine(t, timed))
			out, err := w.run(t.Context(), append(strings.Fields(row.args), "shop/m-1")...)
			require.NoError(t, err)
			assert.Contains(t, out, "Next: ")
			m, err := w.client.Machines("shop").Get(t.Context(), "m-1", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Contains(t, m.Annotations[row.annotation], row.value)
			assert.True(t, capidrain.HasDrainHook(m), "nothing else is changed")
		})
	}
	for args, why := range map[string]string{
		"extend --for 1h":                   "the drain of machine shop/m-1 has no end to extend: its nodeDrainTimeoutSeconds is not set",
		"abandon-instance --yes --reason x": "machine shop/m-1 is of Cluster API: Millwright drains its node, and nothing else of its deletion is Millwright's",
	} {
		t.Run(args, func(t *testing.T) {
			_, err := newBackendWithClusterAPI(
				newBlockedMachine(t),
			).run(t.Context(), append(strings.Fields(args), "shop/m-1")...)
			assert.EqualError(t, err, why)
		})
	}
}
