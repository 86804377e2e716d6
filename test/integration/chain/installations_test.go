//go:build integration

package chain

import (
	"context"
	"io"
	"log/slog"
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

	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/process"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// Two installations in one Temporal namespace, with objects of the same names, make their own machines and keep their own
// schedules.
func TestTwoInstallationsShareOneTemporal(t *testing.T) {
	const name, size = "shared-temporal", 3
	shared := []string{"--temporal-address", r.Stack.TemporalAddress(), "--cluster-name", "second"}
	second, err := rig.Up(t.Context(), t.TempDir(), stack.Options{Args: map[string][]string{component.Worker: shared, component.Bridge: shared}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, second.Stack.Down(context.Background())) })

	var pools []*rig.Pool
	for _, each := range []*rig.Rig{r, second} {
		each.Namespace(t, name, "")
		pools = append(pools, each.Pool(t, name, name, size))
	}
	for _, pool := range pools {
		pool.AwaitRunning(t, size, time.Minute)
		require.Len(t, pool.Instances(t), size)
	}
	sweeps := func() (prefixes []string) {
		list, err := r.Temporal.ScheduleClient().List(t.Context(), client.ScheduleListOptions{})
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
	both := []string{rig.Installation.OrphanIDs(), run.Installation("second").OrphanIDs()}
	rig.Eventually(t, 20*time.Second, "each installation sweeps its class", func() (bool, any) { now := sweeps(); return slices.Equal(now, both), now })
	require.NoError(t, r.Stack.Restart(t.Context(), component.Bridge))
	pools[1].Delete(t)
	pools[1].AwaitGone(t, time.Minute)
	require.Len(t, pools[0].Instances(t), size)
	require.Equal(t, both, sweeps(), "a bridge that starts deletes the schedules of classes that are gone, but no others'")
	require.Empty(t, r.Workflows(t, `ExecutionStatus = "Failed" AND MachineNamespace = "`+name+`"`))
}

// The first control cluster that claims a name has it.
func TestTheNameOfAnInstallationBelongsToOneCluster(t *testing.T) {
	t.Parallel()
	cluster := func(uid string) *fake.Clientset {
		return fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(uid)}})
	}
	claim := func(name run.Installation, uid string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return process.Claim(ctx, name, r.Temporal, cluster(uid), slog.New(slog.NewTextHandler(io.Discard, nil)))
	}
	require.NoError(t, claim("claimed", "a"))
	require.NoError(t, claim("claimed", "a"), "a second process of the same cluster")
	clash := new(process.ErrClash)
	require.ErrorAs(t, claim("claimed", "b"), &clash)
	require.ErrorAs(t, claim(rig.Installation, "b"), &clash)
	require.NoError(t, claim("another", "b"))
}
