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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/checker"
	"millwright/test/integration/rig"
)

// restartExitedProcesses restarts each process that exits after the restore of the API server, until the test ends.
// Some processes do not exit: if the API server breaks all watches of a process, the process may list all objects again
// and continue.
func restartExitedProcesses(t *testing.T, names ...string) {
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	over := make(chan struct{})
	t.Cleanup(func() { stop(); <-over })
	go func() {
		defer close(over)
		for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
			status, err := testRig.Stack.Status(ctx)
			assert.NoError(t, err)
			for _, s := range status {
				if s.State != stack.StateExited || !slices.Contains(names, s.Name) {
					continue
				}
				text, err := os.ReadFile(testRig.Stack.LogPath(s.Name))
				assert.NoError(t, err)
				assert.Contains(t, string(text), "restored to a former state")
				assert.NoError(t, testRig.Stack.StartComponent(context.WithoutCancel(ctx), s.Name))
			}
		}
	}()
}

// The API server is restored to a backup from before two machines were created and one machine was replaced. Millwright
// follows the restored objects: it creates no instance twice, and replaces a machine if its instance is gone. Instances
// without a Machine are orphans.
func TestARestoredAPIServerCausesNoSecondInstance(t *testing.T) {
	const name, made, more = "restored", 3, 2
	testRig.CreateNamespace(t, name, "")
	pool := testRig.CreatePool(t, name, name, made)
	pool.AwaitRunningMachines(t, made)
	copied := filepath.Join(t.TempDir(), "etcd")
	require.NoError(t, testRig.SaveEtcdData(t.Context(), copied))

	rig.Eventually(t, "a machine is deleted", func() (bool, any) {
		machines := pool.Machines(t)
		if len(machines) == 0 {
			return false, "the API server is away"
		}
		err := testRig.MachineClient.MachineV1alpha1().
			Machines(name).
			Delete(t.Context(), machines[0].Name, metav1.DeleteOptions{})
		return err == nil, err
	})
	pool.Scale(t, made+more)
	pool.AwaitRunningMachines(t, made+more)
	require.Len(t, pool.ProviderIDs(t), made+more)

	require.NoError(t, testRig.RestoreEtcdData(t.Context(), copied))
	require.NoError(t, testRig.Cloud.ResyncNodes(t.Context()))
	restartExitedProcesses(t, component.Worker, component.Bridge, component.SecondBridge)
	watcher := checker.NewWatcher(
		checker.Clients{
			MachineClient: testRig.MachineClient,
			Kube:          testRig.Kube,
			Cloud:         testRig.Cloud,
			Temporal:      testRig.Temporal,
		},
		name,
		checker.SizeBounds{},
	)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	expectOrphanedInstances(t, watcher, more+1)
	go watcher.Run(ctx)
	restless, err := watcher.AwaitNoFindings(
		ctx,
		10*time.Minute,
		func(s checker.Snapshot, d checker.WorkflowState) []checker.Finding {
			return checker.FindUnsettledObjects(s, d, watcher.ExpectedOrphanUIDs())
		},
	)
	require.NoError(t, err)
	require.Empty(t, restless)
	pool.AwaitRunningMachines(t, made)
	require.Len(t, pool.ProviderIDs(t), made+more+1, "an instance for each machine, and the orphans")

	collect := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"5 until %s"}}}`,
		v1alpha1.AnnotationCollectOrphans, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	_, err = testRig.MachineClient.MachineV1alpha1().
		MachineClasses(name).
		Patch(t.Context(), "small", types.MergePatchType, collect, metav1.PatchOptions{})
	require.NoError(t, err)
	sweeps := testRig.CreateSweepSchedule(t, name, time.Second)
	rig.Eventually(t, "the orphans are gone", func() (bool, any) {
		require.NoError(t, sweeps.Trigger(t.Context(), sdk.ScheduleTriggerOptions{}))
		time.Sleep(3 * time.Second)
		instances, nodes := pool.ProviderIDs(t), pool.Nodes(t)
		return len(instances) == made && len(nodes) == made, fmt.Sprint(instances, len(nodes))
	})
	waited := countDecisionsAwaitingLostVersions(t, name)
	for _, size := range []int{made + 1, made} {
		pool.Scale(t, size)
		pool.AwaitRunningMachines(t, size)
	}
	require.Equal(
		t,
		waited,
		countDecisionsAwaitingLostVersions(t, name),
		"no decision waits for versions that will not come",
	)

	violations, snapshots := watcher.Violations()
	require.NotZero(t, snapshots)
	require.Empty(t, violations)
	stop()
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}

// expectOrphanedInstances waits until exactly wanted instances have no Machine. The restore has orphaned these
// instances, so the watcher must not report them.
func expectOrphanedInstances(t *testing.T, watcher *checker.Watcher, wanted int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d instances have no Machine", wanted), func() (bool, any) {
		s, err := watcher.TakeSnapshot(t.Context())
		if err != nil {
			return false, err
		}
		found := checker.FindOrphanedInstances(s, nil)
		for _, i := range s.Instances {
			if s.MachineByUID(i.Tags.MachineUID) == nil {
				watcher.ExpectOrphanedInstance(i.Tags.MachineUID)
			}
		}
		return len(found) == wanted, found
	})
}

// countDecisionsAwaitingLostVersions counts the failed decisions about a namespace that waited for a resource version
// from before the restore of the API server.
func countDecisionsAwaitingLostVersions(t *testing.T, namespace string) (count int) {
	t.Helper()
	for _, w := range testRig.WorkflowRuns(t, fmt.Sprintf("MachineNamespace = %q", namespace)) {
		for _, event := range testRig.History(t, w.Execution.WorkflowId, w.Execution.RunId).Events {
			if event.GetActivityTaskFailedEventAttributes().
				GetFailure().
				GetApplicationFailureInfo().
				GetType() ==
				kube.FailureTypeRewound {
				count++
			}
		}
	}
	return count
}
