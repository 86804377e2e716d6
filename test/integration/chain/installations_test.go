//go:build integration

package chain

import (
	"context"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/process"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// Two installations share one Temporal namespace and have objects of the same names. Each installation creates its own
// machines and keeps its own schedules.
func TestTwoInstallationsShareOneTemporal(t *testing.T) {
	const name, size = "shared-temporal", 3
	shared := []string{"--temporal-address", testRig.Stack.TemporalAddress(), "--cluster-name", "second"}
	second, err := rig.StartRig(
		t.Context(),
		t.TempDir(),
		stack.Options{Args: map[string][]string{component.Worker: shared, component.Bridge: shared}},
	)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, second.Stack.Down(context.Background())) })

	var pools []*rig.Pool
	for _, each := range []*rig.Rig{testRig, second} {
		each.CreateNamespace(t, name, "")
		pools = append(pools, each.CreatePool(t, name, name, size))
	}
	for _, pool := range pools {
		pool.AwaitRunningMachines(t, size)
		require.Len(t, pool.ProviderIDs(t), size)
	}
	sweeps := func() (prefixes []string) {
		list, err := testRig.Temporal.ScheduleClient().List(t.Context(), client.ScheduleListOptions{})
		require.NoError(t, err)
		for list.HasNext() {
			schedule, err := list.Next()
			require.NoError(t, err)
			if before, _, found := strings.Cut(schedule.ID, name); found {
				prefixes = append(prefixes, before)
			}
		}
		slices.Sort(prefixes)
		return prefixes
	}
	both := []string{rig.Installation.OrphanCollectionIDPrefix(), run.Installation("second").OrphanCollectionIDPrefix()}
	rig.Eventually(
		t,
		"each installation sweeps its class",
		func() (bool, any) { now := sweeps(); return slices.Equal(now, both), now },
	)
	require.NoError(t, testRig.Stack.RestartComponent(t.Context(), component.Bridge))
	pools[1].Delete(t)
	pools[1].AwaitPoolGone(t)
	require.Len(t, pools[0].ProviderIDs(t), size)
	require.Equal(t, both, sweeps(), "a bridge that starts deletes the schedules of classes that are gone, but no others'")
	require.Empty(t, testRig.WorkflowRuns(t, `ExecutionStatus = "Failed" AND MachineNamespace = "`+name+`"`))
	for _, who := range []struct{ binary, identity string }{{build.WorkerFolder, component.WorkerIdentity}, {build.BridgeFolder, component.BridgeIdentity}} {
		requireInstallationNameRefused(t, second, who.binary, who.identity)
	}
}

// requireInstallationNameRefused starts a process of the second control cluster with the name of the first control
// cluster, which has machines in this Temporal namespace. requireInstallationNameRefused requires that the process ends
// and names both control clusters.
func requireInstallationNameRefused(t *testing.T, second *rig.Rig, binary, identity string) {
	t.Helper()
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	built, err := build.Products(ctx, repo, io.Discard, binary)
	require.NoError(t, err)
	start := exec.CommandContext(
		ctx,
		built[binary],
		"--kubeconfig",
		second.Stack.KubeconfigPath(identity),
		"--cluster-name",
		component.ClusterName,
		"--temporal-address",
		testRig.Stack.TemporalAddress(),
		"--metrics-address",
		"127.0.0.1:0",
	)
	if binary == build.WorkerFolder {
		start.Args = append(start.Args, "--virtualcloud-address", second.Stack.VirtualCloudURL())
		// without this flag, the process would exit because of its own Lease
		start.Args = append(start.Args, "--accept-new-cluster-name", "second")
	}
	said, err := start.CombinedOutput()
	failed := new(exec.ExitError)
	require.ErrorAs(t, err, &failed, "%s", said)
	require.Equal(t, 1, failed.ExitCode(), "it ends by itself: %s", said)
	require.Contains(t, string(said), "--cluster-name "+component.ClusterName+" is taken")
	require.NotContains(t, string(said), "serving")
	for _, each := range []*rig.Rig{testRig, second} {
		system, err := each.Kube.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		require.NoError(t, err)
		require.Contains(t, string(said), string(system.UID), "it names both control clusters")
	}
}

// An installation name belongs to the first control cluster that claims the name.
func TestInstallationNameBelongsToOneCluster(t *testing.T) {
	t.Parallel()
	cluster := func(uid string) *fake.Clientset {
		return fake.NewClientset(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(uid)}},
		)
	}
	claim := func(name run.Installation, uid string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		return process.ClaimInstallation(
			ctx,
			name,
			testRig.Temporal,
			cluster(uid),
			slog.New(slog.NewTextHandler(io.Discard, nil)),
		)
	}
	require.NoError(t, claim("claimed", "a"))
	require.NoError(t, claim("claimed", "a"), "a second process of the same cluster")
	clash := new(process.NameClashError)
	require.ErrorAs(t, claim("claimed", "b"), &clash)
	require.ErrorAs(t, claim(rig.Installation, "b"), &clash)
	require.NoError(t, claim("another", "b"))
}
