//go:build integration

package drain

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// TestProcessesAreKilledInEachStageOfADeletion kills no process in the stages Detach and Node. In this test, Detach
// lasts as long as a volume is attached, and Node lasts as long as the API server refuses to delete the node. Worker,
// Temporal and API server are each killed once in both stages.
func TestProcessesAreKilledInTheStagesDetachAndNode(t *testing.T) {
	const name, volume = "kill-late", "kill-late"
	p := newPool(t, name, 2, "")
	p.DeployPods(t, "web", 6, func(pod *corev1.PodTemplateSpec) {
		pod.Annotations["pod-delete.stage.kwok.x-k8s.io/delay"] = "2s"
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	})
	m, here := p.MachineWithPods(t, "web")
	node := m.Labels[v1alpha1.LabelNode]
	for range 6 { // after six API server restarts, the watches of volumes stay broken for a while
		require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.APIServer))
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.APIServer))
	}
	// The scheduler's watch of nodes is broken for a while as well, so that the scheduler does not see the cordon.
	require.NoError(t, testRig.Stack.RestartComponent(t.Context(), component.Scheduler))
	testRig.AttachVolume(t, volume, node)
	allow := forbidNodeDeletion(t, node)
	stages := recordStages(t, m)
	p.DeleteMachine(t, m.Name)

	everythingDies := func(stage v1alpha1.MachineDeletionStage) {
		t.Helper()
		now := func() v1alpha1.MachineDeletionStage {
			seen := stages()
			return append([]v1alpha1.MachineDeletionStage{""}, seen...)[len(seen)]
		}
		rig.Eventually(t, "stage "+string(stage), func() (bool, any) { return now() == stage, stages() })
		for _, victim := range []string{component.Worker, component.Temporal, component.APIServer} {
			require.NoError(t, testRig.Stack.KillComponent(t.Context(), victim))
			require.NoError(t, testRig.Stack.StartComponent(t.Context(), victim))
			require.Equal(t, stage, now(), "%s died; the machine stays where it is", victim)
		}
	}
	everythingDies(v1alpha1.MachineDeletionDetach)
	require.Contains(t, p.ProviderIDs(t), m.Spec.ProviderID, "the instance stays as long as volumes are attached")
	require.NoError(t, testRig.Kube.StorageV1().VolumeAttachments().Delete(t.Context(), volume, metav1.DeleteOptions{}))
	everythingDies(v1alpha1.MachineDeletionNode)
	require.NotContains(t, p.ProviderIDs(t), m.Spec.ProviderID)
	require.NotNil(t, readMachine(t, m), "the object stays as long as its node")
	allow()
	awaitMachineGone(t, m)

	requireStageOrder(t, stages())
	require.Equal(t, len(here), requireOneEvictionPerPod(t, name))
	require.Empty(t, listAttachments(t, node))
	_, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	p.AwaitRunningMachines(t, 2)
}

// forbidNodeDeletion makes the API server refuse to delete a node, for all users, until allow is called.
func forbidNodeDeletion(t *testing.T, node string) (allow func()) {
	t.Helper()
	admission, name := testRig.Kube.AdmissionregistrationV1(), metav1.ObjectMeta{Name: "keep-" + node}
	deletions := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
	}}
	_, err := admission.ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: name,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{deletions}},
			Validations:      []admissionv1.Validation{{Expression: fmt.Sprintf("oldObject.metadata.name != %q", node)}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admission.ValidatingAdmissionPolicyBindings().
		Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: name,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		}, metav1.CreateOptions{})
	require.NoError(t, err)
	rig.Eventually(t, "node "+node+" cannot be deleted", func() (bool, any) {
		err := testRig.Kube.CoreV1().
			Nodes().
			Delete(t.Context(), node, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil, err
	})
	return func() {
		t.Helper()
		require.NoError(
			t,
			admission.ValidatingAdmissionPolicyBindings().Delete(t.Context(), name.Name, metav1.DeleteOptions{}),
		)
		require.NoError(t, admission.ValidatingAdmissionPolicies().Delete(t.Context(), name.Name, metav1.DeleteOptions{}))
	}
}
