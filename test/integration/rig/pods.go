//go:build integration

package rig

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
)

// WithNodeLabel gives the nodes of a pool the label "pool" with the pool's name. Pods use this label as their node
// selector. WithNodeLabel also sets an annotation that lets the stack attach volumes to the nodes.
func WithNodeLabel(d *v1alpha1.MachineDeployment) {
	spec := &d.Spec.Template.Spec
	spec.NodeTemplateSpec.Labels = map[string]string{"pool": d.Name}
	spec.NodeTemplateSpec.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
}

// AwaitLabelledNodes waits until n nodes have the pool's label.
func (p *Pool) AwaitLabelledNodes(t *testing.T, n int) {
	t.Helper()
	Eventually(t, "nodes carry the label of their pool", func() (bool, any) {
		list, err := p.rig.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "pool=" + p.Name})
		require.NoError(t, err)
		return len(list.Items) == n, len(list.Items)
	})
}

// PodTemplate returns a template for pods on the pool's nodes, and a selector for these pods. The pods have a
// termination grace period of 2 s.
func (p *Pool) PodTemplate(
	app string,
	changes ...func(*corev1.PodTemplateSpec),
) (corev1.PodTemplateSpec, *metav1.LabelSelector) {
	labels := map[string]string{"app": app}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{"pool": p.Name},
			TerminationGracePeriodSeconds: new(int64(2)),
			Containers:                    []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	for _, change := range changes {
		change(&template)
	}
	return template, &metav1.LabelSelector{MatchLabels: labels}
}

// DeployPods creates a Deployment of pods on the pool's nodes, and waits until the pods run.
func (p *Pool) DeployPods(t *testing.T, app string, replicas int32, changes ...func(*corev1.PodTemplateSpec)) {
	t.Helper()
	template, selector := p.PodTemplate(app, changes...)
	_, err := p.rig.Kube.AppsV1().Deployments(p.Namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	p.AwaitRunningPods(t, app, int(replicas))
}

// AwaitRunningPods waits until n pods of an app run and are not being deleted.
func (p *Pool) AwaitRunningPods(t *testing.T, app string, n int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%d pods of %s run", n, app), func() (bool, any) {
		running := 0
		for _, pod := range p.Pods(t, app) {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				running++
			}
		}
		return running == n, running
	})
}

// Pods reads the pods of an app.
func (p *Pool) Pods(t *testing.T, app string) []corev1.Pod {
	t.Helper()
	list, err := p.rig.Kube.CoreV1().Pods(p.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	require.NoError(t, err)
	return list.Items
}

// CreateBudget creates a PodDisruptionBudget for the pods of an app. It sets minAvailable to keep, and then applies the
// changes to the spec. CreateBudget waits until the disruption controller has counted the pods in the budget's status.
func (p *Pool) CreateBudget(t *testing.T, app string, keep int32, changes ...func(*policyv1.PodDisruptionBudgetSpec)) {
	t.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(keep)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	for _, change := range changes {
		change(&budget.Spec)
	}
	_, err := p.rig.Kube.PolicyV1().PodDisruptionBudgets(p.Namespace).Create(t.Context(), budget, metav1.CreateOptions{})
	require.NoError(t, err)
	Eventually(t, "the budget counts its pods", func() (bool, any) {
		b, err := p.rig.Kube.PolicyV1().PodDisruptionBudgets(p.Namespace).Get(t.Context(), app, metav1.GetOptions{})
		require.NoError(t, err)
		return b.Status.ExpectedPods > 0, b.Status
	})
}

// RelaxBudget sets minAvailable of a PodDisruptionBudget, and always allows the eviction of pods that are not ready.
// With the default policy, the API server evicts no pod if minAvailable is 0 and no pod is ready.
func (p *Pool) RelaxBudget(t *testing.T, app string, keep int32) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"minAvailable":%d,"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`, keep)
	_, err := p.rig.Kube.PolicyV1().
		PodDisruptionBudgets(p.Namespace).
		Patch(t.Context(), app, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// RelaxBudgetAndAwaitEffect changes a PodDisruptionBudget as RelaxBudget does, and waits until the budget allows
// evictions. RelaxBudgetAndAwaitEffect returns the time at which the disruption controller allowed evictions. The time
// is by the controller's clock.
func (p *Pool) RelaxBudgetAndAwaitEffect(t *testing.T, app string, keep int32) time.Time {
	t.Helper()
	budgets := p.rig.Kube.PolicyV1().PodDisruptionBudgets(p.Namespace)
	w, err := budgets.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + app})
	require.NoError(t, err)
	defer w.Stop()
	p.RelaxBudget(t, app, keep)
	for late := time.After(maxConditionWait); ; {
		select {
		case event, open := <-w.ResultChan():
			require.True(t, open, "the watch of budget %s has ended", app)
			b, isBudget := event.Object.(*policyv1.PodDisruptionBudget)
			if !isBudget || b.Status.ObservedGeneration != b.Generation || b.Status.DisruptionsAllowed == 0 {
				continue
			}
			for _, c := range b.Status.Conditions {
				if c.Type == policyv1.DisruptionAllowedCondition && c.Status == metav1.ConditionTrue {
					return c.LastTransitionTime.Time
				}
			}
		case <-late:
			require.Fail(t, "the budget allows no eviction")
		}
	}
}

// MachineWithPods returns a machine of the pool whose node has pods of the app, and the pods on this node.
func (p *Pool) MachineWithPods(t *testing.T, app string) (v1alpha1.Machine, []corev1.Pod) {
	t.Helper()
	for _, m := range p.Machines(t) {
		var here []corev1.Pod
		for _, pod := range p.Pods(t, app) {
			if pod.Spec.NodeName == m.Labels[v1alpha1.LabelNode] {
				here = append(here, pod)
			}
		}
		if len(here) > 0 {
			return m, here
		}
	}
	require.Fail(t, "no machine hosts pods of "+app)
	return v1alpha1.Machine{}, nil
}

// DeleteMachine deletes a machine of the pool, and does not wait until it is gone.
func (p *Pool) DeleteMachine(t *testing.T, name string) {
	t.Helper()
	require.NoError(
		t,
		p.rig.MachineClient.MachineV1alpha1().Machines(p.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}),
	)
}
