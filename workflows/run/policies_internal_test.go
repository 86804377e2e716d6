package run

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
)

// A provider's message may have any length. Temporal fails the workflow task if a summary has more than 400 bytes.
func TestSummariesAreCutToTemporalsLimit(t *testing.T) {
	assert.Equal(t, "short", ShortenSummary("short"))
	for extra := range 5 {
		cut := ShortenSummary(strings.Repeat("x", extra) + strings.Repeat("ü", 1000))
		assert.LessOrEqual(t, len(cut), 400)
		assert.True(t, utf8.ValidString(cut))
		assert.True(t, strings.HasSuffix(cut, "…"))
	}
}

func TestFewWritesUseTheTaskQueueOfTheWorkflow(t *testing.T) {
	assert.Equal(
		t,
		[]string{QueueMachines, QueueKubernetes},
		[]string{queueForWrites(MaxWritesOnOwnQueue), queueForWrites(MaxWritesOnOwnQueue + 1)},
	)
}

// If an operator terminates a deployment's workflow, the rollout must continue, because the operator only wants a new
// run of the workflow (ADR 0015). A rollout that ended may be started again.
func TestRolloutOutlivesItsParent(t *testing.T) {
	env := activitiestest.NewWorkflowEnvironment()
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		deployment := kube.Ref{Namespace: "shop", Name: "d", UID: "uid-d"}
		options := workflow.GetChildWorkflowOptions(RolloutOptions(ctx, KindRollout, deployment, 7, "the template changed"))
		assert.Equal(t, "rollout/shop/d/uid-d/7", options.WorkflowID)
		assert.Equal(t, enumspb.PARENT_CLOSE_POLICY_ABANDON, options.ParentClosePolicy)
		assert.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, options.WorkflowIDReusePolicy)
		assert.True(t, options.WaitForCancellation)
		return nil
	})
	assert.NoError(t, env.GetWorkflowError())
}

func TestDeploymentsAndSetsHavePriorityOverMachines(t *testing.T) {
	deployment := TaskPriority(KindMachineDeployment, "shop", ParentNames{MachineDeployment: "web"})
	machine := TaskPriority(KindMachine, "shop", ParentNames{MachineDeployment: "web", MachineSet: "web-1", Machine: "m"})
	require.Less(t, deployment.PriorityKey, machine.PriorityKey)
	require.Equal(t, deployment.FairnessKey, machine.FairnessKey, "they take turns together")
	require.NotEqual(
		t,
		machine.FairnessKey,
		TaskPriority(KindMachine, "shop", ParentNames{MachineDeployment: "api", Machine: "m"}).FairnessKey,
	)
	require.NotEqual(
		t,
		machine.FairnessKey,
		TaskPriority(KindMachine, "other", ParentNames{MachineDeployment: "web", Machine: "m"}).FairnessKey,
	)
	require.LessOrEqual(t, len(machine.FairnessKey), 64)
	for _, kind := range []Kind{KindMachineSet, KindClusterAPISet, KindClusterAPIDeployment} {
		require.Equal(t, deployment, TaskPriority(kind, "shop", ParentNames{MachineDeployment: "web"}), kind)
	}
}

// WithLowerPriority lowers only the priority of an activity. The activity keeps the fairness key of the workflow.
func TestWithLowerPriorityChangesOnlyThePriority(t *testing.T) {
	env := activitiestest.NewWorkflowEnvironment()
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		usual := workflow.GetActivityOptions(CloudCallOptions(ctx, "fake", "1", "makes it"))
		options := workflow.GetActivityOptions(WithLowerPriority(CloudCallOptions(ctx, "fake", "1", "makes it")))
		assert.Greater(
			t,
			options.Priority.PriorityKey,
			TaskPriority(KindMachine, "shop", ParentNames{Machine: "m"}).PriorityKey,
		)
		assert.Empty(t, options.Priority.FairnessKey)
		usual.Priority = options.Priority
		assert.Equal(t, usual, options)
		return nil
	})
	assert.NoError(t, env.GetWorkflowError())
}

// The test lists all functions that make activity options for provider calls.
func TestEveryCallOfAProviderHasADeadline(t *testing.T) {
	env := activitiestest.NewWorkflowEnvironment()
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		for _, call := range []workflow.Context{
			CloudCallOptions(ctx, "fake", "1", "makes it"), WithLowerPriority(CloudCallOptions(ctx, "fake", "1", "makes it")),
			OptionalCloudCallOptions(ctx, "fake", "1", "looks"), OrphanSweepOptions(ctx, "fake", "1", "sweeps"),
		} {
			options := workflow.GetActivityOptions(call)
			assert.Equal(t, Installation("").Shard(0).ProviderTaskQueue("fake"), options.TaskQueue)
			assert.Equal(t, 10*time.Minute, options.StartToCloseTimeout)
			assert.Equal(t, 10*time.Second, options.HeartbeatTimeout, "a worker that died is noticed before the deadline")
		}
		return nil
	})
	assert.NoError(t, env.GetWorkflowError())
}
