//go:build integration

package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// The API server refuses every write of the worker for half a minute: machines are late, and no run fails.
func TestTheWorkerLosesItsRoleWhileMachinesAreMadeAndDeleted(t *testing.T) {
	const made, deleted = 10, 5
	bindings := r.Kube.RbacV1().ClusterRoleBindings()
	binding, err := bindings.Get(t.Context(), "devstack-"+component.WorkerIdentity, metav1.GetOptions{})
	require.NoError(t, err)
	binding.ResourceVersion, binding.UID = "", ""
	restore := func() error {
		_, err := bindings.Create(context.WithoutCancel(t.Context()), binding, metav1.CreateOptions{})
		return err
	}

	r.Namespace(t, "no-role", slowly)
	leaving := r.Pool(t, "no-role", "leaving", deleted)
	leaving.AwaitRunning(t, deleted)
	before := stats(t, r)
	arriving := r.Pool(t, "no-role", "arriving", made)
	leaving.Delete(t)
	rig.Eventually(t, "creations are in flight", func() (bool, any) {
		now := stats(t, r)
		return now.Creates > before.Creates, now
	})
	require.NoError(t, bindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}))
	time.Sleep(30 * time.Second) // the fault lasts this long
	require.NoError(t, restore())

	arriving.AwaitRunning(t, made)
	leaving.AwaitGone(t)
	require.Equal(t, made, stats(t, r).Creates-before.Creates, "instances made")
	require.Empty(t, r.Workflows(t, `ExecutionStatus = "Failed" AND MachineNamespace = "no-role"`))
	arriving.Delete(t)
	arriving.AwaitGone(t)
}
