package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
	"millwright/decide/rollout"
	"millwright/workflows/deployment"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

// attending is the signal of a workflow that follows a rollout.
func attending(by string) run.Changed { return run.Changed{UID: workflowstest.Ref.UID, Tell: by} }

// farewells records the workflows that a rollout signals at its end. Each signal takes a while.
func (w *deploymentWorld) farewells(answer error) *[]string {
	var told []string
	w.env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, "", run.SignalChanged, mock.Anything).
		After(10 * time.Second).
		Return(
			func(_, id, _, _ string, arg any) error {
				defer w.lock()()
				c := arg.(run.Changed)
				told = append(told, id+" "+c.Ended+" "+c.Versions[kube.SetsResource])
				return answer
			})
	return &told
}

func TestRolloutTellsItsEndToWhoeverFollowsIt(t *testing.T) {
	end := deploymentID + " " + rolloutID + " "
	t.Run("when it is complete", func(t *testing.T) {
		w := newDeploymentWorld(t, moving("grow"), awaiting(rollout.HeldByMachines))
		w.answer(0)
		told := w.farewells(nil)
		w.env.RegisterDelayedCallback(
			func() { w.env.SignalWorkflow(run.SignalChanged, attending(deploymentID)) },
			time.Minute,
		)
		w.after(time.Hour, complete())
		require.Equal(t, deployment.OutcomeCompleted, w.rollOut(t).Outcome)
		require.Equal(t, []string{end + "31"}, *told, "once, and with what it wrote")
	})
	t.Run("who asks while it says so is told as well", func(t *testing.T) {
		w := newDeploymentWorld(t, awaiting(rollout.HeldByMachines))
		told := w.farewells(nil)
		w.env.RegisterDelayedCallback(func() { w.env.SignalWorkflow(run.SignalChanged, attending("other")) }, time.Minute)
		w.after(2*time.Minute, complete())
		w.env.RegisterDelayedCallback(
			func() { w.env.SignalWorkflow(run.SignalChanged, attending(deploymentID)) },
			2*time.Minute+5*time.Second,
		)
		w.rollOut(t)
		require.Equal(t, []string{"other " + rolloutID + " ", end}, *told)
	})
	t.Run("when it fails, and though nobody is there any more", func(t *testing.T) {
		w := newDeploymentWorld(t, moving("grow"))
		w.answer(0)
		told := w.farewells(notOpen())
		w.fails["ChangeSets"] = temporal.NewNonRetryableApplicationError("no", "Odd", nil)
		w.env.ExecuteWorkflow(
			deployment.Rollout,
			deployment.RolloutInput{Input: run.Input{Ref: workflowstest.Ref}, Revision: 7, Tell: deploymentID},
		)
		require.ErrorContains(t, w.env.GetWorkflowError(), "Odd")
		require.Equal(t, []string{end}, *told)
	})
	t.Run("not when it continues as new: the next run knows", func(t *testing.T) {
		w := newDeploymentWorld(t, awaiting(rollout.HeldByMachines))
		w.env.RegisterDelayedCallback(func() {
			w.env.SetContinueAsNewSuggested(true)
			w.env.SignalWorkflow(run.SignalChanged, attending(deploymentID))
		}, time.Minute)
		w.env.ExecuteWorkflow(
			deployment.Rollout,
			deployment.RolloutInput{Input: run.Input{Ref: workflowstest.Ref}, Revision: 7},
		)
		var next *workflow.ContinueAsNewError
		require.ErrorAs(t, w.env.GetWorkflowError(), &next)
		var in deployment.RolloutInput
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
		require.Equal(t, deploymentID, in.Tell)
	})
}
