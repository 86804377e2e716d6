// Tier: test-all. The package tests other flags.

//go:build integration

// Package versioning tests the core worker with Temporal's Worker Versioning. Temporal shows which build runs, and open
// runs continue with the next build. The worker of the provider has no version, as in an installation that versions
// only the core.
package versioning

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"millwright/activities/kube"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// workerDeploymentName is the name of the workers' deployment in Temporal.
const workerDeploymentName = "millwright"

var testRig *rig.Rig

func TestMain(m *testing.M) {
	core := []string{"--queues=machines,kubernetes,drains", "--virtualcloud-address="}
	build := func(id string) []string {
		return []string{"TEMPORAL_DEPLOYMENT_NAME=" + workerDeploymentName, "TEMPORAL_WORKER_BUILD_ID=" + id}
	}
	options := stack.Options{
		Components: append(component.Names(), component.ProviderWorker, component.SecondWorker),
		Args:       map[string][]string{component.Worker: core, component.SecondWorker: core},
		Env:        map[string][]string{component.Worker: build("old"), component.SecondWorker: build("new")},
	}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { testRig = up }))
}

// makeBuildCurrent waits until a worker of a build polls. Then it makes this build Temporal's current build, to which
// Temporal sends the tasks.
func makeBuildCurrent(t *testing.T, build string) {
	t.Helper()
	handle := testRig.Temporal.WorkerDeploymentClient().GetHandle(workerDeploymentName)
	rig.Eventually(t, "build "+build+" is current", func() (bool, any) {
		_, err := handle.SetCurrentVersion(t.Context(), client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		return err == nil, err
	})
}

func TestOpenRunsContinueWithTheNextBuild(t *testing.T) {
	testRig.LimitSecretReaders(t, component.ProviderIdentity)
	testRig.CreateNamespace(t, "versioned", "")
	p := testRig.CreatePool(t, "versioned", "versioned", 2)
	id := ""
	rig.Eventually(t, "the deployment's workflow is open, and no build works on it", func() (bool, any) {
		d := p.Deployment(t)
		id = rig.Installation.ID(
			run.KindMachineDeployment,
			kube.Ref{Namespace: d.Namespace, Name: d.Name, UID: string(d.UID)},
		)
		history := testRig.Temporal.GetWorkflowHistory(
			t.Context(),
			id,
			"",
			false,
			enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT,
		)
		scheduled := false
		for history.HasNext() {
			event, err := history.Next()
			if err != nil {
				return false, err
			}
			require.NotEqual(t, enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED, event.EventType, "no build is current")
			scheduled = scheduled || event.EventType == enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
		}
		return scheduled, id
	})
	require.Empty(t, p.Machines(t))
	makeBuildCurrent(t, "old")
	p.AwaitRunningMachines(t, 2)
	before, err := testRig.Temporal.DescribeWorkflowExecution(t.Context(), id, "")
	require.NoError(t, err)
	require.Equal(t, "old", before.WorkflowExecutionInfo.VersioningInfo.GetDeploymentVersion().GetBuildId())

	makeBuildCurrent(t, "new")
	require.NoError(t, testRig.Stack.StopComponent(t.Context(), component.Worker))
	p.Scale(t, 3)
	p.AwaitRunningMachines(t, 3)
	after, err := testRig.Temporal.DescribeWorkflowExecution(t.Context(), id, before.WorkflowExecutionInfo.Execution.RunId)
	require.NoError(t, err)
	require.Equal(t, "new", after.WorkflowExecutionInfo.VersioningInfo.GetDeploymentVersion().GetBuildId(), "the same run")
	p.Delete(t)
	p.AwaitPoolGone(t)
}
