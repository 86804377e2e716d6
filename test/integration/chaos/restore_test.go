//go:build integration

package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/checker"
	"millwright/test/integration/rig"
)

// ends reports whether a component ends within 40 s: four times the interval at which it compares its caches with the API server.
func ends(t *testing.T, name string) bool {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < 40*time.Second; time.Sleep(200 * time.Millisecond) {
		status, err := r.Stack.Status(t.Context())
		require.NoError(t, err)
		i := slices.IndexFunc(status, func(s stack.ComponentStatus) bool { return s.Name == name })
		if status[i].State == stack.StateExited {
			return true
		}
	}
	return false
}

// The API server is restored to a state before two machines more were made and one was replaced. The restored objects count: nothing is
// made twice, a machine whose instance is gone is replaced, and the instances of machines that do not exist any more are orphans.
func TestARestoredAPIServerCostsNoSecondInstance(t *testing.T) {
	const name, made, more = "restored", 3, 2
	r.Namespace(t, name, "")
	pool := r.Pool(t, name, name, made)
	pool.AwaitRunning(t, made)
	before := quickest(t, pool)
	copied := filepath.Join(t.TempDir(), "etcd")
	require.NoError(t, r.SaveStore(t.Context(), copied))

	rig.Eventually(t, "a machine is deleted", func() (bool, any) {
		machines := pool.Machines(t)
		if len(machines) == 0 {
			return false, "the API server is away"
		}
		err := r.Machines.MachineV1alpha1().Machines(name).Delete(t.Context(), machines[0].Name, metav1.DeleteOptions{})
		return err == nil, err
	})
	pool.Scale(t, made+more)
	pool.AwaitRunning(t, made+more)
	require.Len(t, pool.Instances(t), made+more)

	require.NoError(t, r.RestoreStore(t.Context(), copied))
	require.NoError(t, r.Cloud.Rejoin(t.Context()))
	for _, name := range []string{component.Worker, component.Bridge, component.SecondBridge} {
		if !ends(t, name) {
			t.Logf("%s goes on: the API server broke all of its watches in such a way that it listed everything anew", name)
			continue
		}
		text, err := os.ReadFile(r.Stack.LogPath(name))
		require.NoError(t, err)
		require.Contains(t, string(text), "restored to a former state")
		require.NoError(t, r.Stack.Start(t.Context(), name))
	}
	watcher := checker.Watch(checker.Sources{Machines: r.Machines, Kube: r.Kube, Cloud: r.Cloud, Temporal: r.Temporal}, name, checker.Bounds{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	excuse(t, watcher, more+1)
	go watcher.Run(ctx)
	begun := time.Now()
	restless, err := watcher.Await(ctx, 4*time.Minute, func(s checker.Snapshot, d checker.Durable) []checker.Finding {
		return checker.Restless(s, d, watcher.Excused())
	})
	require.NoError(t, err)
	require.Empty(t, restless)
	t.Logf("calm %s after the restore", time.Since(begun))
	pool.AwaitRunning(t, made)
	require.Len(t, pool.Instances(t), made+more+1, "an instance for each machine, and the orphans")

	collect := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"5 until %s"}}}`,
		v1alpha1.AnnotationCollectOrphans, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	_, err = r.Machines.MachineV1alpha1().MachineClasses(name).Patch(t.Context(), "small", types.MergePatchType, collect, metav1.PatchOptions{})
	require.NoError(t, err)
	sweeps := r.Sweeps(t, name, time.Second)
	rig.Eventually(t, "the orphans are gone", func() (bool, any) {
		require.NoError(t, sweeps.Trigger(t.Context(), sdk.ScheduleTriggerOptions{}))
		time.Sleep(3 * time.Second)
		instances, nodes := pool.Instances(t), pool.Nodes(t)
		return len(instances) == made && len(nodes) == made, fmt.Sprint(instances, len(nodes))
	})
	after := quickest(t, pool)
	t.Logf("a new size is acted on after %s at first, and %s after the restore", before, after)
	require.Less(t, after, before+time.Second, "no decision waits for versions that will not come")

	violations, snapshots := watcher.Violations()
	require.NotZero(t, snapshots)
	require.Empty(t, violations)
	stop()
	pool.Delete(t)
	pool.AwaitGone(t)
}

// excuse waits for so many instances without a Machine, and takes note that a restore orphaned them.
func excuse(t *testing.T, watcher *checker.Watcher, wanted int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d instances have no Machine", wanted), func() (bool, any) {
		s, err := watcher.Snapshot(t.Context())
		if err != nil {
			return false, err
		}
		found := checker.Orphans(s, nil)
		for _, i := range s.Instances {
			if s.Machine(i.Tags.MachineUID) == nil {
				watcher.Excuse(i.Tags.MachineUID)
			}
		}
		return len(found) == wanted, found
	})
}

// quickest changes the size of a pool some times, and returns the shortest time from a change to that of its set.
func quickest(t *testing.T, pool *rig.Pool) time.Duration {
	t.Helper()
	least, size := time.Hour, int(pool.Deployment(t).Spec.Replicas)
	for _, wanted := range []int{size + 1, size, size + 1, size} {
		begun := time.Now()
		pool.Scale(t, wanted)
		rig.Eventually(t, "the set has the new size", func() (bool, any) {
			sets := pool.Sets(t)
			return len(sets) == 1 && int(sets[0].Spec.Replicas) == wanted, sets
		})
		least = min(least, time.Since(begun))
		pool.AwaitRunning(t, wanted)
	}
	return least
}
