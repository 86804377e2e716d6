package cloud

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"millwright/provider/virtual"
)

func TestRegisteredNodeHasKubeletAndCloudFields(t *testing.T) {
	client := fake.NewClientset()
	nodes := kubeNodeClient{client}
	r := instanceRecord{Number: 300, Name: "m", Spec: newCreateRequest("m").Spec}
	r.Spec.Capacity = virtual.Capacity{"cpu": "8", "memory": "32Gi"}
	require.NoError(t, nodes.Register(t.Context(), r.instanceAtTime(r.RunningAt), r.Spec, false))
	require.NoError(t, nodes.Register(t.Context(), r.instanceAtTime(r.RunningAt), r.Spec, false), "again")

	node, err := client.CoreV1().Nodes().Get(t.Context(), "m", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "virtual:///eu/i-300", node.Spec.ProviderID)
	assert.Equal(t, map[string]string{
		"type":                             "kwok",
		"kubernetes.io/hostname":           "m",
		"kubernetes.io/os":                 "linux",
		"kubernetes.io/arch":               "amd64",
		"topology.kubernetes.io/region":    "eu",
		"topology.kubernetes.io/zone":      "eu-1",
		"node.kubernetes.io/instance-type": "small",
	}, node.Labels)
	assert.Equal(t, "fake", node.Annotations["kwok.x-k8s.io/node"])
	assert.Equal(t, "8", node.Status.Capacity.Cpu().String())
	assert.Equal(t, "32Gi", node.Status.Allocatable.Memory().String())
	assert.Equal(t, "10.0.1.44", node.Status.Addresses[0].Address)

	assert.Equal(
		t,
		"110",
		newNode(r.instanceAtTime(r.RunningAt), newCreateRequest("m").Spec).Status.Capacity.Pods().String(),
		"the default",
	)
}

func TestOnlyTheInstancesOwnNodeIsChanged(t *testing.T) {
	for name, providerID := range map[string]string{"own": "virtual:///eu/i-1", "another": "virtual:///eu/i-2"} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "u", Labels: map[string]string{"type": "kwok", "keep": "me"}},
				Spec:       corev1.NodeSpec{ProviderID: providerID},
			})
			nodes := kubeNodeClient{client}
			r := instanceRecord{Number: 1, Name: "m", Spec: newCreateRequest("m").Spec}
			require.NoError(t, nodes.StopKubelet(t.Context(), r.instanceAtTime(r.RunningAt)))
			node, err := client.CoreV1().Nodes().Get(t.Context(), "m", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, name == "another", node.Labels["type"] == "kwok")
			assert.Equal(t, "me", node.Labels["keep"])

			removed, err := nodes.Remove(t.Context(), r.instanceAtTime(r.RunningAt))
			require.NoError(t, err)
			assert.Equal(t, name == "own", removed)
			_, err = client.CoreV1().Nodes().Get(t.Context(), "m", metav1.GetOptions{})
			assert.Equal(t, name == "own", apierrors.IsNotFound(err))
			removed, err = nodes.Remove(t.Context(), virtual.Instance{NodeName: "absent"})
			require.NoError(t, err)
			assert.False(t, removed)
		})
	}
}

// A kubelet that expects a cloud-controller-manager registers its Node without a provider ID.
func TestAnUninitializedNodeIsInitializedLater(t *testing.T) {
	client := fake.NewClientset()
	nodes := kubeNodeClient{client}
	r := instanceRecord{Number: 1, Name: "m", NodeName: "ip-10-0-0-1", Spec: newCreateRequest("m").Spec}
	r.BootedAt = r.RunningAt.Add(time.Second)
	booted := r.instanceAtTime(r.BootedAt)
	require.NoError(t, nodes.Register(t.Context(), booted, r.Spec, true))
	read := func() *corev1.Node {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "ip-10-0-0-1", metav1.GetOptions{})
		require.NoError(t, err)
		return node
	}
	assert.Empty(t, read().Spec.ProviderID)
	assert.Equal(
		t,
		[]corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: "NoSchedule"}},
		read().Spec.Taints,
	)
	for range 2 {
		require.NoError(t, nodes.Initialize(t.Context(), booted))
		assert.Equal(t, "virtual:///eu/i-1", read().Spec.ProviderID)
		assert.Empty(t, read().Spec.Taints)
	}
	removed, err := nodes.Remove(t.Context(), booted)
	require.NoError(t, err)
	assert.True(t, removed)
	require.NoError(t, nodes.Initialize(t.Context(), booted), "a Node that is gone")
}
