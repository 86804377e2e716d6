// Package workflowstest contains the fixtures that tests of several workflows share.
package workflowstest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"millwright/activities"
	"millwright/activities/activitiestest"
	"millwright/workflows/run"
)

func NewEnvironment(t *testing.T) *testsuite.TestWorkflowEnvironment {
	env := activitiestest.WorkflowEnvironment()
	for _, a := range append(activities.OnClusters(nil), activities.OnClusterAPI(nil, nil, nil)...) {
		env.RegisterActivity(a)
	}
	t.Cleanup(func() { require.True(t, env.IsWorkflowCompleted()) })
	return env
}

func Changed(env *testsuite.TestWorkflowEnvironment) {
	env.SignalWorkflow(run.SignalChanged, run.Changed{UID: Ref.UID})
}
