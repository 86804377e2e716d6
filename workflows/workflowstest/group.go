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
	env := activitiestest.NewWorkflowEnvironment()
	for _, a := range append(activities.ClusterActivities(nil), activities.ClusterAPIActivities(nil, nil, nil)...) {
		env.RegisterActivity(a)
	}
	t.Cleanup(func() { require.True(t, env.IsWorkflowCompleted()) })
	return env
}

func SignalChange(env *testsuite.TestWorkflowEnvironment) {
	env.SignalWorkflow(run.SignalChanged, run.ChangeSignal{UID: ObjectRef.UID})
}
