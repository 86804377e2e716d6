package workflowstest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/testsuite"
)

// CurrentDetails returns the current details of the workflow without their time.
func CurrentDetails(t *testing.T, env *testsuite.TestWorkflowEnvironment) string {
	t.Helper()
	value, err := env.QueryWorkflow("__temporal_workflow_metadata")
	require.NoError(t, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(t, value.Get(&metadata))
	why, rest, _ := strings.Cut(metadata.CurrentDetails, "\n\n")
	line, more, _ := strings.Cut(rest, "\n\n")
	step, _, _ := strings.Cut(line, " since")
	return strings.TrimSuffix(step+": "+why+"\n\n"+more, "\n\n")
}
