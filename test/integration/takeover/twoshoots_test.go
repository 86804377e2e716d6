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

// secondShootNamespace is the namespace of a second shoot. The second shoot has its own MCM, and its nodes are in its
// own cluster.
const secondShootNamespace = "neighbour"

// Two shoots have their objects in one control cluster, as on a seed of Gardener. Millwright takes over one of the
// shoots. The MCM of the other shoot continues. Millwright writes nothing in the namespace or in the cluster of the
// other shoot.
func TestOneOfTwoShootsIsTakenOver(t *testing.T) {
	killComponents(t, component.Bridge, component.Worker, component.MCMMachineController, component.MCMManager)
	mcm := append(
		mcmFlags(secondShootNamespace),
		"--control-kubeconfig",
		testRig.Stack.KubeconfigPath(component.MCMIdentity),
	)
	parts := slices.DeleteFunc(component.Names(), func(name string) bool {
		return name == component.Worker || name == component.Bridge
	})
	other, err := rig.StartRig(t.Context(), t.TempDir(), stack.Options{
		Components: append(parts, component.MCMManager, component.MCMMachineController),
		Args:       map[string][]string{component.MCMManager: mcm, component.MCMMachineController: mcm},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, other.Stack.Down(context.Background())) })
	// the two clouds must assign different provider IDs, because Millwright finds the machine of an instance by the
	// provider ID
	for n := range 50 {
		_, err := other.Cloud.CreateByHand(t.Context(), virtual.CreateRequest{
			Name: fmt.Sprintf("former-%d", n), Spec: virtual.Spec{Region: "eu", Zone: "eu-1", InstanceType: "small"},
			Tags: virtual.Tags{Cluster: "former", Class: "a/b", MachineName: "m", MachineUID: fmt.Sprintf("uid-%d", n)},
		})
		require.NoError(t, err)
	}
	require.NoError(t, other.Cloud.ResetCloud(t.Context()))
	testRig.CreateNamespace(t, secondShootNamespace, "")
	theirs := testRig.CreatePool(t, secondShootNamespace, secondShootNamespace, 3)
	theirs.AwaitRunningMachines(t, 3)
	require.Empty(t, theirs.Nodes(t))
	for _, m := range theirs.Machines(t) {
		_, err := other.Kube.CoreV1().Nodes().Get(t.Context(), m.Name, metav1.GetOptions{})
		require.NoError(t, err, "it is in the cluster of the neighbour")
	}

	if _, err := testRig.Kube.CoreV1().
		Namespaces().
		Get(t.Context(), shootNamespace, metav1.GetOptions{}); apierrors.IsNotFound(
		err,
	) {
		createNamespaceAndClasses(t)
	}
	startComponents(t, component.MCMManager, component.MCMMachineController)
	p := createPool(t, "taken", classSmall, 2)
	p.AwaitRunningMachines(t, 2)
	killComponents(t, component.MCMMachineController, component.MCMManager)
	all, err := testRig.TryRunMillwright(t, "migrate", "check", "--namespace", shootNamespace, "--as-mcm")
	require.Error(t, err)
	require.Contains(t, all, secondShootNamespace)
	rig.Eventually(t, "nothing has to be done first in this namespace", func() (bool, any) {
		out, err := testRig.TryRunMillwright(t, migrateCheckArguments...)
		return err == nil, out
	})

	startComponents(t, component.Worker, component.Bridge)
	p.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	rig.Eventually(t, "the rollout is complete", func() (bool, any) {
		machines := p.Machines(t)
		old := slices.ContainsFunc(machines, func(m v1alpha1.Machine) bool { return m.Labels["version"] != "2" })
		return len(machines) == 2 && !old, machines
	})
	p.AwaitRunningMachines(t, 2)
	theirs.Scale(t, 4)
	theirs.AwaitRunningMachines(t, 4)
	m := theirs.Machines(t)[0]
	require.NoError(
		t,
		testRig.MachineClient.MachineV1alpha1().
			Machines(secondShootNamespace).
			Delete(t.Context(), m.Name, metav1.DeleteOptions{}),
	)
	theirs.AwaitMachineGone(t, m)
	theirs.AwaitRunningMachines(t, 4)
	time.Sleep(settleTime)

	assert.Empty(t, testRig.CountOpenRuns(t, secondShootNamespace))
	ours := func(a rig.AuditedRequest) bool { return strings.HasPrefix(a.User.Username, "millwright") }
	assert.Empty(t, testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
		return ours(a) && a.ObjectRef.Namespace == secondShootNamespace &&
			!slices.Contains([]string{"get", "list", "watch"}, a.Verb)
	}))
	assert.NotEmpty(t, testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
		return ours(a) && a.ObjectRef.Namespace == shootNamespace && a.Verb == "patch"
	}), "the log has what was written in the namespace that was taken over")
	assert.Empty(t, other.AuditedRequests(t, ours))
}
