// Tier: test-all. The worker and the bridge of this package have flags that the other packages do not use.

//go:build integration

// Package shards tests an installation with two shards. Workers and bridges run with --shards=2.
package shards

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/vocabulary"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/observe/shard"
	"millwright/process/claims"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

const shardCount = 2

var testRig *rig.Rig

func TestMain(m *testing.M) {
	options := stack.Options{
		Components: append(component.Names(), component.SecondWorker, component.SecondBridge),
		Args:       map[string][]string{},
		CompletePlan: func(_ context.Context, plan *component.Plan) ([]*os.File, error) {
			plan.ManifestFolders = append(plan.ManifestFolders, filepath.Join(plan.Repo, "test/integration/shards/rights"))
			return nil, nil
		},
	}
	for _, name := range []string{component.Worker, component.SecondWorker, component.Bridge, component.SecondBridge} {
		options.Args[name] = []string{fmt.Sprintf("--shards=%d", shardCount)}
	}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { testRig = up }))
}

// readShardHolders returns the live process that serves each shard.
func readShardHolders(t *testing.T, role string) map[int]string {
	t.Helper()
	holders, err := claims.ReadHolders(t.Context(), testRig.Kube.CoordinationV1().Leases("default"), role, time.Now())
	require.NoError(t, err)
	return holders
}

// awaitShardHolders waits until each shard has a holder, and the number of different holders is processes.
func awaitShardHolders(t *testing.T, role string, processes int) {
	t.Helper()
	what := fmt.Sprintf("%d processes of role %s serve %d shards", processes, role, shardCount)
	rig.Eventually(t, what, func() (bool, any) {
		now := readShardHolders(t, role)
		different := map[string]bool{}
		for _, holder := range now {
			different[holder] = true
		}
		return len(now) == shardCount && len(different) == processes, now
	})
}

func readShardTable(t *testing.T) shard.Table {
	t.Helper()
	record, err := testRig.Kube.CoreV1().ConfigMaps("default").Get(t.Context(), shard.RecordName, metav1.GetOptions{})
	require.NoError(t, err)
	table, err := shard.ParseTable(record)
	require.NoError(t, err)
	return table
}

// taskQueuesOfNamespace returns the task queues of all runs about objects of a namespace, sorted.
func taskQueuesOfNamespace(t *testing.T, namespace string) (queues []string) {
	t.Helper()
	answer, err := testRig.Temporal.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("MachineNamespace = '%s'", namespace),
	})
	require.NoError(t, err)
	for _, execution := range answer.GetExecutions() {
		queues = append(queues, execution.GetTaskQueue())
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

func TestNamespacesAreDistributedOverShards(t *testing.T) {
	pools := map[string]*rig.Pool{}
	for _, namespace := range []string{"one", "two"} {
		testRig.CreateNamespace(t, namespace, "")
		pools[namespace] = testRig.CreatePool(t, namespace, namespace, 2)
	}
	for _, p := range pools {
		p.AwaitRunningMachines(t, 2)
	}
	table := readShardTable(t)
	assert.Equal(t, shardCount, table.Count)
	first, _ := table.ShardOfNamespace("one")
	second, _ := table.ShardOfNamespace("two")
	assert.NotEqual(t, first, second, "each shard has one of the two namespaces")
	for namespace := range pools {
		number, _ := table.ShardOfNamespace(namespace)
		assert.Equal(
			t,
			[]string{rig.Installation.Shard(number).TaskQueue(run.QueueMachines)},
			taskQueuesOfNamespace(t, namespace),
		)
	}

	t.Run("two workers share the shards, and one takes over from the other", func(t *testing.T) {
		awaitShardHolders(t, claims.RoleWorker, 2)
		require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Worker))
		killed := time.Now()
		for _, p := range pools {
			p.Scale(t, 3)
		}
		awaitShardHolders(t, claims.RoleWorker, 1)
		t.Logf("the second worker had both shards %s after the first was killed", time.Since(killed).Round(time.Millisecond))
		for _, p := range pools {
			p.AwaitRunningMachines(t, 3)
		}
	})

	t.Run("a bridge takes over from another", func(t *testing.T) {
		awaitShardHolders(t, claims.RoleBridge, 2)
		require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Bridge))
		for _, p := range pools {
			p.Scale(t, 4)
		}
		awaitShardHolders(t, claims.RoleBridge, 1)
		for _, p := range pools {
			p.AwaitRunningMachines(t, 4)
		}
	})

	t.Run("a namespace that is moved uses the queues of its new shard", func(t *testing.T) {
		to := 1 - first
		moveNamespace(t, "one", to)
		pools["one"].Scale(t, 5)
		pools["one"].AwaitRunningMachines(t, 5)
		queue := rig.Installation.Shard(to).TaskQueue(run.QueueMachines)
		rig.Eventually(t, "runs are in queue "+queue, func() (bool, any) {
			queues := taskQueuesOfNamespace(t, "one")
			return slices.Contains(queues, queue), strings.Join(queues, ", ")
		})
		pools["one"].Delete(t)
		pools["one"].AwaitPoolGone(t)
	})

	t.Run("the bridge counts the namespaces that no worker serves", func(t *testing.T) {
		require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.SecondWorker))
		rig.Eventually(t, "namespace two is counted", func() (bool, any) {
			unserved := testRig.ReadMetric(t, component.SecondBridge, "millwright_unserved_namespaces")
			return unserved > 0, unserved
		})
	})
}

// drainCount is the number of drains that are open when the worker of their shard dies.
const drainCount = 60

// A worker dies while drains run on both shards. The other worker continues all of them, and nothing is done twice.
func TestDrainsContinueWhenTheWorkerOfTheirShardDies(t *testing.T) {
	const perPool = 10
	startComponents(t, component.Worker, component.SecondWorker, component.Bridge, component.SecondBridge)
	awaitShardHolders(t, claims.RoleWorker, 2)
	var pools []*rig.Pool
	for n := range drainCount / perPool {
		namespace := fmt.Sprintf("drained-%d", n)
		testRig.CreateNamespace(t, namespace, "")
		pools = append(pools, testRig.CreatePool(t, namespace, namespace, perPool, rig.WithNodeLabel))
	}
	instances := map[string]bool{}
	for _, p := range pools {
		p.AwaitRunningMachines(t, perPool)
		p.AwaitLabelledNodes(t, perPool)
		p.DeployPods(t, "web", 2*perPool)
		p.CreateBudget(t, "web", 2*perPool)
		for _, id := range p.ProviderIDs(t) {
			instances[id] = true
		}
	}
	require.Len(t, instances, drainCount)
	since := time.Now()
	for _, p := range pools {
		p.Scale(t, 0)
	}
	for _, p := range pools {
		rig.Eventually(t, "drains are blocked in "+p.Namespace, func() (bool, any) {
			blocked := 0
			for _, m := range p.Machines(t) {
				if o := m.Status.CurrentOperation; o != nil && o.Step == vocabulary.StepEvictPods && len(o.BlockedBy) > 0 {
					blocked++
				}
			}
			return blocked > perPool/2, blocked // a node may have no pods
		})
	}
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Worker))
	killed := time.Now()
	for _, p := range pools {
		p.RelaxBudget(t, "web", 0)
	}
	for _, p := range pools {
		p.AwaitRunningMachines(t, 0)
	}
	t.Logf(
		"%d drains had ended %s after a worker of two was killed",
		drainCount,
		time.Since(killed).Round(time.Millisecond),
	)
	testRig.RequireOneEviction(t, since)
	for _, p := range pools {
		assert.Empty(t, p.ProviderIDs(t))
	}
}

// moveNamespace records another shard for a namespace.
func moveNamespace(t *testing.T, namespace string, number int) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"data":{%q:"%d"}}`, namespace, number)
	_, err := testRig.Kube.CoreV1().ConfigMaps("default").
		Patch(t.Context(), shard.RecordName, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// A namespace moves to the other shard and back while the nodes of one pool are drained, and while the machines of
// another pool are created. Each worker has one of the shards.
func TestANamespaceIsMovedUnderLoad(t *testing.T) {
	const drained, grown = 10, 20
	startComponents(t, component.Worker, component.SecondWorker, component.Bridge, component.SecondBridge)
	awaitShardHolders(t, claims.RoleWorker, 2)
	awaitShardHolders(t, claims.RoleBridge, 2)
	testRig.CreateNamespace(t, "moved", "")
	shrinking := testRig.CreatePool(t, "moved", "shrinking", drained, rig.WithNodeLabel)
	growing := testRig.CreatePool(t, "moved", "growing", 0)
	shrinking.AwaitRunningMachines(t, drained)
	shrinking.AwaitLabelledNodes(t, drained)
	shrinking.DeployPods(t, "web", 2*drained)
	shrinking.CreateBudget(t, "web", 2*drained)
	before, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	since := time.Now()
	shrinking.Scale(t, 0)
	rig.Eventually(t, "a drain is blocked", func() (bool, any) {
		for _, m := range shrinking.Machines(t) {
			if o := m.Status.CurrentOperation; o != nil && o.Step == vocabulary.StepEvictPods && len(o.BlockedBy) > 0 {
				return true, nil
			}
		}
		return false, shrinking.Machines(t)
	})
	home, _ := readShardTable(t).ShardOfNamespace("moved")
	growMostly := func(wanted int) {
		growing.Scale(t, wanted)
		rig.Eventually(t, "half of the new machines exist", func() (bool, any) {
			machines := len(growing.Machines(t))
			return machines > wanted-grown/4, machines
		})
	}
	growMostly(grown / 2)
	moveNamespace(t, "moved", 1-home)
	growing.AwaitRunningMachines(t, grown/2)
	growMostly(grown)
	moveNamespace(t, "moved", home)
	shrinking.RelaxBudget(t, "web", 0)
	growing.AwaitRunningMachines(t, grown)
	shrinking.AwaitRunningMachines(t, 0)

	after, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, grown, after.CreatedInstances-before.CreatedInstances)
	assert.Equal(t, drained, after.DeletedInstances-before.DeletedInstances)
	assert.Equal(t, before.DuplicateInstances, after.DuplicateInstances)
	assert.Len(t, growing.ProviderIDs(t), grown)
	testRig.RequireOneEviction(t, since)
	queues := taskQueuesOfNamespace(t, "moved")
	for number := range shardCount {
		assert.Contains(t, queues, rig.Installation.Shard(number).TaskQueue(run.QueueMachines))
	}
}

func startComponents(t *testing.T, components ...string) {
	t.Helper()
	for _, name := range components {
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), name))
	}
}
