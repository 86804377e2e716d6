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

// The stages that TestKillsInEachStageOfADeletion only passes: Detach lasts as long as something is attached, Node as
// long as nobody may delete the node. Everything dies once in each of them.
func TestKillsInStagesThatWaitForOthers(t *testing.T) {
	const name, volume = "kill-late", "kill-late"
	p := pool(t, name, 2, "")
	p.Deploy(t, "web", 6, func(pod *corev1.PodTemplateSpec) {
		pod.Annotations["pod-delete.stage.kwok.x-k8s.io/delay"] = "2s"
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	})
	m, here := p.Host(t, "web")
	node := m.Labels[v1alpha1.LabelNode]
	for range 6 { // the caches of volumes are deaf for a while after this
		require.NoError(t, r.Stack.Kill(t.Context(), component.APIServer))
		require.NoError(t, r.Stack.Start(t.Context(), component.APIServer))
	}
	r.Attach(t, volume, node)
	allow := keep(t, node)
	stages := follow(t, m)
	p.Remove(t, m.Name)

	everythingDies := func(stage v1alpha1.MachineDeletionStage) {
		t.Helper()
		now := func() v1alpha1.MachineDeletionStage {
			seen := stages()
			return append([]v1alpha1.MachineDeletionStage{""}, seen...)[len(seen)]
		}
		rig.Eventually(t, "stage "+string(stage), func() (bool, any) { return now() == stage, stages() })
		for _, victim := range []string{component.Worker, component.Temporal, component.APIServer} {
			require.NoError(t, r.Stack.Kill(t.Context(), victim))
			require.NoError(t, r.Stack.Start(t.Context(), victim))
			require.Equal(t, stage, now(), "%s died; the machine stays where it is", victim)
		}
	}
	everythingDies(v1alpha1.MachineDeletionDetach)
	require.Contains(t, p.Instances(t), m.Spec.ProviderID, "the instance stays as long as volumes are attached")
	require.NoError(t, r.Kube.StorageV1().VolumeAttachments().Delete(t.Context(), volume, metav1.DeleteOptions{}))
	everythingDies(v1alpha1.MachineDeletionNode)
	require.NotContains(t, p.Instances(t), m.Spec.ProviderID)
	require.NotNil(t, machine(t, m), "the object stays as long as its node")
	allow()
	awaitGone(t, m)

	requireOrder(t, stages())
	require.Equal(t, len(here), evictedOnce(t, name))
	require.Empty(t, attachments(t, node))
	_, err := r.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	p.AwaitRunning(t, 2)
}

// keep makes the API server refuse to delete a node, whoever asks, until allow is called.
func keep(t *testing.T, node string) (allow func()) {
	t.Helper()
	admission, name := r.Kube.AdmissionregistrationV1(), metav1.ObjectMeta{Name: "keep-" + node}
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
		err := r.Kube.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
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
