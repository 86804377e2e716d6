//go:build integration

package chain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The check before a takeover from MCM reads a real API server. The check fails while a machine-controller-manager is
// active. After MCM has stopped, the check passes. Package takeover tests the takeover.
func TestTakeoverCheckReportsAnActiveMCM(t *testing.T) {
	t.Parallel()
	const name = "check"
	testRig.CreateNamespace(t, name, "")
	p := testRig.CreatePool(t, name, name, 2)
	p.AwaitRunningMachines(t, 2)
	p.AwaitSyncedNodes(t)
	// other tests have Machines in other namespaces; the flag --namespaces excludes these Machines
	check := []string{"migrate", "check", "--namespace", name, "--namespaces", name}

	leases := testRig.Kube.CoordinationV1().Leases(name)
	_, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new("pod-1"),
			LeaseDurationSeconds: new(int32(3600)),
			RenewTime:            new(metav1.NewMicroTime(time.Now())),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	out, err := testRig.TryRunMillwright(t, check...)
	require.Error(t, err)
	require.Contains(
		t,
		out,
		"first   machine-controller-manager: it is at work: pod-1 renewed Lease machine-controller-manager at ",
	)

	require.NoError(t, leases.Delete(t.Context(), "machine-controller-manager", metav1.DeleteOptions{}))
	out, err = testRig.TryRunMillwright(t, check...)
	require.NoError(t, err)
	require.NotContains(t, out, "\nfirst ")
	require.Contains(t, out, "ok      machine-controller-manager: it is not at work in namespace "+name+"\n")
	require.Contains(t, out, "ok      machines: 2 machines are as wanted")
}
