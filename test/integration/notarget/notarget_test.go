// Tier: test-all. The package tests another value of the flag --target-kubeconfig.

//go:build integration

// Package notarget tests machines without nodes, with the flag --target-kubeconfig=none. The value none is for clusters
// in which Millwright creates the machines of the control plane.
package notarget

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

var testRig *rig.Rig

func TestMain(m *testing.M) {
	none := []string{"--target-kubeconfig=none"}
	options := stack.Options{Args: map[string][]string{component.Worker: none, component.Bridge: none}}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { testRig = up }))
}

func TestMachinesWithoutATargetAreAvailable(t *testing.T) {
	const namespace = "notarget"
	testRig.CreateNamespace(
		t,
		namespace,
		`{"region":"eu","zone":"eu-1","instanceType":"small","initialize":true,"neverBoots":true}`,
	)
	p := testRig.CreatePool(t, namespace, namespace, 3)
	rig.Eventually(t, "three machines are Available", func() (bool, any) {
		available := 0
		for _, m := range p.Machines(t) {
			if m.Status.CurrentStatus.Phase == v1alpha1.MachineAvailable {
				available++
			}
		}
		d := p.Deployment(t).Status
		return available == 3 && d.AvailableReplicas == 3 && d.ReadyReplicas == 0, d
	})
	for _, m := range p.Machines(t) {
		require.Empty(t, m.Labels[v1alpha1.LabelNode])
		require.NotEmpty(t, m.Spec.ProviderID)
		require.Equal(t, v1alpha1.MachineStateSuccessful, m.Status.LastOperation.State)
		require.Equal(t, "Created machine on cloud provider", m.Status.LastOperation.Description)
		types := map[corev1.NodeAddressType]string{}
		for _, a := range m.Status.Addresses {
			types[a.Type] = a.Address
		}
		require.Equal(t, m.Name, types[corev1.NodeHostName])
		require.NotEmpty(t, types[corev1.NodeInternalIP])
		require.Nil(t, m.Status.CurrentOperation, "it stays as it is")
	}
	tokens, err := testRig.Kube.CoreV1().
		Secrets(metav1.NamespaceSystem).
		List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelMachineUID})
	require.NoError(t, err)
	require.Empty(t, tokens.Items, "no target, no token")

	p.Scale(t, 1)
	rig.Eventually(t, "one is left, with its instance", func() (bool, any) {
		return len(p.Machines(t)) == 1 && len(p.ProviderIDs(t)) == 1, len(p.Machines(t))
	})
	p.Delete(t)
	p.AwaitPoolGone(t)
}
