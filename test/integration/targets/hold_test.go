//go:build integration

package targets

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"millwright/api/vocabulary"
	"millwright/observe/cache"
	"millwright/observe/target"
	"millwright/test/integration/rig"
)

// targetStates returns the states of a namespace's target that the workers report.
func targetStates(t *testing.T, namespace string) (states []cache.TargetState) {
	t.Helper()
	reports, err := testRig.Kube.CoreV1().
		ConfigMaps("default").
		Get(t.Context(), target.ReportsConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	for _, report := range target.ReadReports(reports, time.Now()) {
		if report.Namespace == namespace {
			states = append(states, report.State)
		}
	}
	return states
}

// Gardener scales the Deployment of the autoscaler guard to 0 while a cluster hibernates. Millwright then does nothing
// in the namespace and sends no request to the target, and continues when the Deployment is scaled up.
func TestANamespaceWithAGuardScaledToZeroIsHeld(t *testing.T) {
	server := ""
	workerKubeconfig(t, func(c *clientcmdapi.Cluster) { server = strings.TrimPrefix(c.Server, "https://") })
	forwarder := startForwarder(t, server, 0)
	p := createPool(t, "asleep")
	writeKubeconfigSecret(t, "asleep", workerKubeconfig(t, func(c *clientcmdapi.Cluster) { c.Server = forwarder.baseURL }))
	p.AwaitRunningMachines(t, 2)

	guard := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: "machine-controller-manager", Labels: map[string]string{"app.kubernetes.io/part-of": "millwright"},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guard"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "guard"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "guard", Image: "none"}}},
			},
		},
	}
	guards := testRig.Kube.AppsV1().Deployments("asleep")
	_, err := guards.Create(t.Context(), guard, metav1.CreateOptions{})
	require.NoError(t, err)
	rig.Eventually(t, "the target is Held", func() (bool, any) {
		states := targetStates(t, "asleep")
		return len(states) == 1 && states[0] == cache.TargetHeld, states
	})
	forwarder.interrupt() // the API server of a hibernated cluster does not run
	p.Scale(t, 3)
	p.DeleteMachine(t, p.Machines(t)[0].Name)
	rig.Eventually(t, "an event says that the namespace is held", func() (bool, any) {
		events, err := testRig.Kube.CoreV1().Events("asleep").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, e := range events.Items {
			if e.Reason == vocabulary.ReasonNamespaceHeld {
				return true, nil
			}
		}
		return false, len(events.Items)
	})
	assert.Len(t, p.Machines(t), 2, "no machine is created or deleted")
	assert.Len(t, p.ProviderIDs(t), 2)
	assert.Zero(t, forwarder.refusedCount(), "no connection is made to a held target")

	forwarder.resume()
	require.NoError(t, guards.Delete(t.Context(), guard.Name, metav1.DeleteOptions{}))
	p.AwaitRunningMachines(t, 3)
}
