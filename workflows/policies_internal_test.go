package workflows

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
)

// A provider's message may be of any length; Temporal fails the workflow task for a summary of more than 400 bytes.
func TestBriefFitsWhatTemporalTakes(t *testing.T) {
	assert.Equal(t, "short", brief("short"))
	for extra := range 5 {
		cut := brief(strings.Repeat("x", extra) + strings.Repeat("ü", 1000))
		assert.LessOrEqual(t, len(cut), 400)
		assert.True(t, utf8.ValidString(cut))
		assert.True(t, strings.HasSuffix(cut, "…"))
	}
}

func TestAFewWritesAreDoneWhereTheWorkflowIs(t *testing.T) {
	assert.Equal(t, []string{QueueMachines, QueueKubernetes}, []string{queueOf(fewWrites), queueOf(fewWrites + 1)})
}

// Who terminates the workflow of a deployment wants another one, and not its rollout cancelled (ADR 0015). A rollout that ended may
// be started again.
func TestRolloutOutlivesItsParent(t *testing.T) {
	suite := &testsuite.WorkflowTestSuite{}
	env := suite.NewTestWorkflowEnvironment()
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		deployment := activities.Ref{Namespace: "shop", Name: "d", UID: "uid-d"}
		options := workflow.GetChildWorkflowOptions(rolloutOptions(ctx, deployment, 7, "the template changed"))
		assert.Equal(t, "rollout/shop/d/uid-d/7", options.WorkflowID)
		assert.Equal(t, enumspb.PARENT_CLOSE_POLICY_ABANDON, options.ParentClosePolicy)
		assert.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, options.WorkflowIDReusePolicy)
		assert.True(t, options.WaitForCancellation)
		return nil
	})
	assert.NoError(t, env.GetWorkflowError())
}

func TestPriorityOfThoseThatDecideForMany(t *testing.T) {
	deployment := Priority(KindMachineDeployment, "shop", Owner{MachineDeployment: "web"})
	machine := Priority(KindMachine, "shop", Owner{MachineDeployment: "web", MachineSet: "web-1", Machine: "m"})
	require.Less(t, deployment.PriorityKey, machine.PriorityKey)
	require.Equal(t, deployment.FairnessKey, machine.FairnessKey, "they take turns together")
	require.NotEqual(t, machine.FairnessKey, Priority(KindMachine, "shop", Owner{MachineDeployment: "api", Machine: "m"}).FairnessKey)
	require.NotEqual(t, machine.FairnessKey, Priority(KindMachine, "other", Owner{MachineDeployment: "web", Machine: "m"}).FairnessKey)
	require.LessOrEqual(t, len(machine.FairnessKey), 64)
}

// Whoever yields comes after those of other sets that do not; what it shares with those of its own stays the workflow's.
func TestPriorityOfThoseThatYield(t *testing.T) {
	suite := &testsuite.WorkflowTestSuite{}
	env := suite.NewTestWorkflowEnvironment()
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		usual := workflow.GetActivityOptions(cloud(ctx, "fake", "1", "makes it"))
		options := workflow.GetActivityOptions(yielding(cloud(ctx, "fake", "1", "makes it")))
		assert.Greater(t, options.Priority.PriorityKey, Priority(KindMachine, "shop", Owner{Machine: "m"}).PriorityKey)
		assert.Empty(t, options.Priority.FairnessKey)
		usual.Priority = options.Priority
		assert.Equal(t, usual, options)
		return nil
	})
	assert.NoError(t, env.GetWorkflowError())
}

// The calls of a provider get their options from these functions alone.
func TestD30_EveryCallOfAProviderHasADeadline(t *testing.T) {
	suite := &testsuite.WorkflowTestSuite{}
	env := suite.NewTestWorkflowEnvironment()
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		for _, call := range []workflow.Context{
			cloud(ctx, "fake", "1", "makes it"), yielding(cloud(ctx, "fake", "1", "makes it")),
			glance(ctx, "fake", "1", "looks"), sweeping(ctx, "fake", "1", "sweeps"),
		} {
			options := workflow.GetActivityOptions(call)
			assert.Equal(t, ProviderQueue("fake"), options.TaskQueue)
			assert.Equal(t, 10*time.Minute, options.StartToCloseTimeout)
			assert.Equal(t, 10*time.Second, options.HeartbeatTimeout, "a worker that died is noticed before the deadline")
		}
		return nil
	})
	assert.NoError(t, env.GetWorkflowError())
}
