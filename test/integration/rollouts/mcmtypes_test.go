//go:build integration

package rollouts

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// mcmSpecFields are the fields of a MachineDeployment's spec in MCM's types. A client with MCM's types drops all other
// fields.
var mcmSpecFields = []string{
	"replicas", "selector", "template", "strategy", "minReadySeconds", "revisionHistoryLimit", "paused", "rollbackTo",
	"progressDeadlineSeconds", "autoPreserveFailedMachineMax",
}

// scaleAsMCMClient sets the replicas as a client with MCM's types does: the client writes the whole object without the
// fields that MCM's types lack.
func scaleAsMCMClient(t *testing.T, f fleet, replicas int) {
	t.Helper()
	text, err := json.Marshal(f.Deployment(t))
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, json.Unmarshal(text, &object))
	spec := object["spec"].(map[string]any)
	maps.DeleteFunc(spec, func(field string, _ any) bool { return !slices.Contains(mcmSpecFields, field) })
	spec["replicas"] = replicas
	delete(object, "status")
	text, err = json.Marshal(object)
	require.NoError(t, err)
	var known v1alpha1.MachineDeployment
	require.NoError(t, json.Unmarshal(text, &known))
	_, err = testRig.MachineClient.MachineV1alpha1().
		MachineDeployments(f.Namespace).
		Update(t.Context(), &known, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// The autoscaler updates the deployment with MCM's types while a rollout waits for approval. The rollout still waits
// after the RolloutPolicy is deleted.
func TestRolloutWaitsForApprovalDespiteAClientWithMCMsTypes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "put", 4, withRollingUpdate(1, 0))
	testRig.CreatePolicy(
		t,
		f.Namespace,
		f.Name,
		v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}},
	)
	f.changeTemplate(t, "2")
	f.awaitProgressingReason(t, v1alpha1.ReasonRolloutWaiting)
	for _, size := range []int{6, 5} {
		scaleAsMCMClient(t, f, size)
		rig.Eventually(t, "the pool has its size", func() (bool, any) {
			d := f.Deployment(t)
			return int(d.Status.AvailableReplicas) == size && int(d.Status.Replicas) == size &&
				d.Status.ObservedGeneration == d.Generation, d.Status
		})
		f.ForceReconcile(t)
		require.Equal(t, 1, f.countMachinesOfEdition(t, "2"), "machines of the new template, approved by nobody")
		require.Equal(t, v1alpha1.ReasonRolloutWaiting, f.readCondition(t, v1alpha1.MachineDeploymentProgressing).Reason)
		if size == 6 {
			require.NoError(
				t,
				testRig.MachineClient.MachineV1alpha1().
					RolloutPolicies(f.Namespace).
					Delete(t.Context(), f.Name, metav1.DeleteOptions{}),
			)
		}
	}
	_, err := testRig.Stack.RunKubectl(
		t.Context(),
		"-n",
		f.Namespace,
		"annotate",
		"machinedeployment",
		f.Name,
		v1alpha1.AnnotationRolloutApprove+"=2/1 ann: looks well",
	)
	require.NoError(t, err)
	f.awaitMachinesOfEdition(t, "2", 5)
	f.Delete(t)
	f.AwaitPoolGone(t)
}
