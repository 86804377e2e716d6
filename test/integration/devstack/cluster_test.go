//go:build integration

package devstack

import (
	"strings"
	"testing"
	"time"

	"millwright/devstack/component"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// The local cluster must behave like a real cluster, because the tests of drains, health checks and volumes depend on
// it.
func TestLocalClusterBehavesLikeARealCluster(t *testing.T) {
	s := startStack(t, component.ControllerManager, component.Scheduler, component.Kwok)
	clients := newClient(t, s, component.TestIdentity)
	addNode(t, clients, "node-1")

	t.Run("a disruption budget refuses an eviction", func(t *testing.T) { testBudgetRefusesEviction(t, clients) })
	t.Run("a volume is attached and detached", func(t *testing.T) { testVolumeIsAttached(t, clients) })
	t.Run("a pod is deleted late", func(t *testing.T) { testPodDeletionIsDelayed(t, clients) })
	t.Run("a node fails and heals", func(t *testing.T) { testNodeFailsAndRecovers(t, clients) })
}

func addNode(t *testing.T, clients *kubernetes.Clientset, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{"type": "kwok", "kubernetes.io/hostname": name},
	}}
	_, err := clients.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(
		t,
		func() bool { return readyCondition(t, clients, name).Status == corev1.ConditionTrue },
		awaitTimeout,
		pollInterval,
	)
}

func readyCondition(t *testing.T, clients *kubernetes.Clientset, name string) corev1.NodeCondition {
	t.Helper()
	node, err := clients.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func newPodSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}
}

func testBudgetRefusesEviction(t *testing.T, clients *kubernetes.Clientset) {
	labels := map[string]string{"app": "web"}
	replicas, needed := int32(2), intstr.FromInt32(2)
	_, err := clients.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPodSpec()},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = clients.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &needed,
			Selector:     &metav1.LabelSelector{MatchLabels: labels},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		budget, err := clients.PolicyV1().PodDisruptionBudgets("default").Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && budget.Status.CurrentHealthy == 2
	}, awaitTimeout, pollInterval)

	pods, err := clients.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	require.NoError(t, err)
	err = clients.PolicyV1().Evictions("default").Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pods.Items[0].Name, Namespace: "default"},
	})
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	assert.True(t, apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause))
}

func testVolumeIsAttached(t *testing.T, clients *kubernetes.Clientset) {
	volume, attachments := "volume-1", clients.StorageV1().VolumeAttachments()
	_, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "attachment-1"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "csi-fake", NodeName: "node-1",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		attachment, err := attachments.Get(t.Context(), "attachment-1", metav1.GetOptions{})
		return err == nil && attachment.Status.Attached
	}, awaitTimeout, pollInterval)

	attachment, err := attachments.Get(t.Context(), "attachment-1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotEmpty(t, attachment.Finalizers, "detaching takes a while")
	require.NoError(t, attachments.Delete(t.Context(), "attachment-1", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := attachments.Get(t.Context(), "attachment-1", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, awaitTimeout, pollInterval)
}

func testPodDeletionIsDelayed(t *testing.T, clients *kubernetes.Clientset) {
	pods := clients.CoreV1().Pods("default")
	run := func(name, delay string) {
		_, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name:        name,
				Annotations: map[string]string{"pod-delete.stage.kwok.x-k8s.io/delay": delay},
			},
			Spec: newPodSpec(),
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && pod.Status.Phase == corev1.PodRunning
		}, awaitTimeout, pollInterval)
	}
	run("slow", "1h")
	run("fast", "0s")
	for _, name := range []string{"slow", "fast"} {
		require.NoError(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	require.Eventually(t, func() bool {
		_, err := pods.Get(t.Context(), "fast", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, awaitTimeout, pollInterval)
	slow, err := pods.Get(t.Context(), "slow", metav1.GetOptions{})
	require.NoError(t, err, "it was deleted before, and terminates still")
	assert.NotNil(t, slow.DeletionTimestamp)
}

func testNodeFailsAndRecovers(t *testing.T, clients *kubernetes.Clientset) {
	label := func(value string) {
		patch := `{"metadata":{"labels":{"node-not-ready.stage.kwok.x-k8s.io":` + value + `}}}`
		_, err := clients.CoreV1().
			Nodes().
			Patch(t.Context(), "node-1", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	for _, step := range []struct {
		label string
		want  corev1.ConditionStatus
	}{{`"true"`, corev1.ConditionFalse}, {"null", corev1.ConditionTrue}} {
		before := time.Now().Truncate(time.Second) // timestamps of the API have whole seconds
		label(step.label)
		require.Eventually(
			t,
			func() bool { return readyCondition(t, clients, "node-1").Status == step.want },
			awaitTimeout,
			pollInterval,
		)
		ready := readyCondition(t, clients, "node-1")
		assert.False(t, ready.LastTransitionTime.Time.Before(before), "ready=%s since %s, label set at %s",
			strings.ToLower(string(step.want)), ready.LastTransitionTime, before)
	}
}
