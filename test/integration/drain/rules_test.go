//go:build integration

package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// Drain rules: pods with the behavior Skip stay, and pods with a higher order wait for pods with a lower order. The
// drain waits until pods with WaitCompleted are complete.
func TestDrainRulesDecideWhichPodsAreDrainedAndWhen(t *testing.T) {
	t.Parallel()
	p := newPool(t, "rules", 1, "")
	slowly := func(pod *corev1.PodTemplateSpec) { pod.Annotations["pod-delete.stage.kwok.x-k8s.io/delay"] = "4s" }
	p.DeployPods(t, "first", 1, slowly)
	p.DeployPods(t, "last", 1)
	p.DeployPods(t, "kept", 1)
	p.DeployPods(t, "batch", 1)
	rule := func(app string, behaviour v1alpha1.MachineDrainRuleBehavior, order *int32) {
		r1 := &v1alpha1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Name: app}}
		r1.Spec.Drain = v1alpha1.MachineDrainRuleDrain{Behavior: behaviour, Order: order}
		r1.Spec.Pods = []v1alpha1.MachineDrainRulePods{{
			Selector:          &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": p.Namespace}},
		}}
		_, err := testRig.MachineClient.MachineV1alpha1().
			MachineDrainRules(p.Namespace).
			Create(t.Context(), r1, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	rule("last", v1alpha1.MachineDrainRuleBehaviorDrain, new(int32(10)))
	rule("kept", v1alpha1.MachineDrainRuleBehaviorSkip, nil)
	rule("batch", v1alpha1.MachineDrainRuleBehaviorWaitCompleted, nil)
	m := p.Machines(t)[0]
	p.Scale(t, 0)
	rig.Eventually(t, "it waits for what must complete", func() (bool, any) {
		c := drainedCondition(readMachine(t, m))
		return c.Reason == "Blocked" && len(listPodRequests(t, p.Namespace)) == 1, []any{c, listPodRequests(t, p.Namespace)}
	})
	require.Contains(t, listPodRequests(t, p.Namespace)[0].Pod, "first-")
	_, err := testRig.Stack.RunKubectl(t.Context(), "delete", "deployment", "-n", p.Namespace, "batch", "--wait=false")
	require.NoError(t, err)
	awaitMachineGone(t, m)
	requests := listPodRequests(t, p.Namespace)
	require.Len(t, requests, 2, "neither the pod that is kept nor the one that is waited for is asked: %v", requests)
	require.Contains(t, requests[1].Pod, "last-")
	require.True(
		t,
		requests[1].Time.After(requests[0].Time.Add(3*time.Second)),
		"the last one waits until the first one is gone",
	)
}

func TestDrainRuleWithAnInvalidOrderIsRefused(t *testing.T) {
	t.Parallel()
	r1 := &v1alpha1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Name: "wrong"}}
	r1.Spec.Drain = v1alpha1.MachineDrainRuleDrain{Behavior: v1alpha1.MachineDrainRuleBehaviorSkip, Order: new(int32(1))}
	_, err := testRig.MachineClient.MachineV1alpha1().
		MachineDrainRules("default").
		Create(t.Context(), r1, metav1.CreateOptions{})
	require.ErrorContains(t, err, "drain.order goes with behavior Drain only")
	r1.Spec.Drain.Order = nil
	r1.Spec.Machines = []v1alpha1.MachineDrainRuleMachines{{Selector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is", Values: []string{"web"}}},
	}}}
	_, err = testRig.MachineClient.MachineV1alpha1().
		MachineDrainRules("default").
		Create(t.Context(), r1, metav1.CreateOptions{})
	require.ErrorContains(t, err, "allowed are In and NotIn with values")
}
