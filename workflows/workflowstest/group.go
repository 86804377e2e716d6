// Package workflowstest has the fixtures that tests of several workflows share.
package workflowstest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"millwright/activities"
	"millwright/workflows/run"
)

func NewEnvironment(t *testing.T) *testsuite.TestWorkflowEnvironment {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(10 * time.Second)
	for _, a := range append(activities.OnClusters(nil), activities.OnClusterAPI(nil, nil)...) {
		env.RegisterActivity(a)
	}
	t.Cleanup(func() { require.True(t, env.IsWorkflowCompleted()) })
	return env
}

func Changed(env *testsuite.TestWorkflowEnvironment) {
	env.SignalWorkflow(run.SignalChanged, run.Changed{UID: Ref.UID})
}
