//go:build integration

package takeover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/provider/virtual"
	"millwright/test/integration/rig"
)

// neighbour is the namespace of a second shoot, with an MCM of its own, whose nodes are in a cluster of their own.
const neighbour = "neighbour"

// Two shoots have their objects in one control cluster, as on a seed of Gardener. One is taken over. The MCM of the other
// one goes on, and Millwright writes nothing there: neither in its namespace nor in its cluster.
func TestOneOfTwoShootsIsTakenOver(t *testing.T) {
	kill(t, component.Bridge, component.Worker, component.MCMMachines, component.MCMManager)
	mcm := append(flagsOfMCM(neighbour), "--control-kubeconfig", r.Stack.Kubeconfig(component.MCMIdentity))
	parts := slices.DeleteFunc(component.Names(), func(name string) bool {
		return name == component.Worker || name == component.Bridge
	})
	other, err := rig.Up(t.Context(), t.TempDir(), stack.Options{
		Components: append(parts, component.MCMManager, component.MCMMachines),
		Args:       map[string][]string{component.MCMManager: mcm, component.MCMMachines: mcm},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, other.Stack.Down(context.Background())) })
	for n := range 50 { // the two clouds must not give the same IDs: an ID says whose an instance is
		_, err := other.Cloud.CreateByHand(t.Context(), virtual.CreateRequest{
			Name: fmt.Sprintf("former-%d", n), Spec: virtual.Spec{Region: "eu", Zone: "eu-1", InstanceType: "small"},
			Tags: virtual.Tags{Cluster: "former", Class: "a/b", Machine: "m", MachineUID: fmt.Sprintf("uid-%d", n)},
		})
		require.NoError(t, err)
	}
	require.NoError(t, other.Cloud.Reset(t.Context()))
	r.Namespace(t, neighbour, "")
	theirs := r.Pool(t, neighbour, neighbour, 3)
	theirs.AwaitRunning(t, 3)
	require.Empty(t, theirs.Nodes(t))
	for _, m := range theirs.Machines(t) {
		_, err := other.Kube.CoreV1().Nodes().Get(t.Context(), m.Name, metav1.GetOptions{})
		require.NoError(t, err, "it is in the cluster of the neighbour")
	}

	if _, err := r.Kube.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		newNamespace(t)
	}
	start(t, component.MCMManager, component.MCMMachines)
	p := pool(t, "taken", classSmall, 2)
	p.AwaitRunning(t, 2)
	kill(t, component.MCMMachines, component.MCMManager)
	all, err := r.TryMillwright(t, "migrate", "check", "--namespace", namespace, "--as-mcm")
	require.Error(t, err)
	require.Contains(t, all, neighbour)
	rig.Eventually(t, "nothing has to be done first in this namespace", func() (bool, any) {
		out, err := r.TryMillwright(t, check...)
		return err == nil, out
	})

	start(t, component.Worker, component.Bridge)
	p.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	rig.Eventually(t, "the rollout is complete", func() (bool, any) {
		machines := p.Machines(t)
		old := slices.ContainsFunc(machines, func(m v1alpha1.Machine) bool { return m.Labels["version"] != "2" })
		return len(machines) == 2 && !old, machines
	})
	p.AwaitRunning(t, 2)
	theirs.Scale(t, 4)
	theirs.AwaitRunning(t, 4)
	m := theirs.Machines(t)[0]
	require.NoError(
		t,
		r.Machines.MachineV1alpha1().Machines(neighbour).Delete(t.Context(), m.Name, metav1.DeleteOptions{}),
	)
	theirs.AwaitDeleted(t, m)
	theirs.AwaitRunning(t, 4)
	time.Sleep(settles)

	assert.Empty(t, r.OpenWorkflows(t, neighbour))
	ours := func(a rig.Audited) bool { return strings.HasPrefix(a.User.Username, "millwright") }
	assert.Empty(t, r.Audit(t, func(a rig.Audited) bool {
		return ours(a) && a.ObjectRef.Namespace == neighbour && !slices.Contains([]string{"get", "list", "watch"}, a.Verb)
	}))
	assert.NotEmpty(t, r.Audit(t, func(a rig.Audited) bool {
		return ours(a) && a.ObjectRef.Namespace == namespace && a.Verb == "patch"
	}), "the log has what was written in the namespace that was taken over")
	assert.Empty(t, other.Audit(t, ours))
}
