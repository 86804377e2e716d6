package workflows

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
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
