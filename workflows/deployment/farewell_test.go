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

// newFollowSignal returns the signal of a workflow that follows a rollout.
func newFollowSignal(by string) run.ChangeSignal {
	return run.ChangeSignal{UID: workflowstest.ObjectRef.UID, Tell: by}
}

// recordEndSignals records the workflows that a rollout signals at its end. Each signal takes 10 seconds.
func (w *deploymentTestEnv) recordEndSignals(answer error) *[]string {
	var told []string
	w.env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, "", run.SignalChanged, mock.Anything).
		After(10 * time.Second).
		Return(
			func(_, id, _, _ string, arg any) error {
				defer w.lock()()
				c := arg.(run.ChangeSignal)
				told = append(told, id+" "+c.Ended+" "+c.Versions[kube.SetsResource])
				return answer
			})
	return &told
}

func TestRolloutSignalsItsEndToItsFollower(t *testing.T) {
	end := deploymentID + " " + rolloutID + " "
	t.Run("when it is complete", func(t *testing.T) {
		w := newDeploymentTestEnv(t, resizeDecision("grow"), waitDecision(rollout.HeldByMachines))
		w.mockWrites(0)
		told := w.recordEndSignals(nil)
		w.env.RegisterDelayedCallback(
			func() { w.env.SignalWorkflow(run.SignalChanged, newFollowSignal(deploymentID)) },
			time.Minute,
		)
		w.changeAfterDelay(time.Hour, completedRolloutDecision())
		require.Equal(t, deployment.OutcomeCompleted, w.runRollout(t).Outcome)
		require.Equal(t, []string{end + "31"}, *told, "once, and with what it wrote")
	})
	t.Run("who asks while it says so is told as well", func(t *testing.T) {
		w := newDeploymentTestEnv(t, waitDecision(rollout.HeldByMachines))
		told := w.recordEndSignals(nil)
		w.env.RegisterDelayedCallback(
			func() { w.env.SignalWorkflow(run.SignalChanged, newFollowSignal("other")) },
			time.Minute,
		)
		w.changeAfterDelay(2*time.Minute, completedRolloutDecision())
		w.env.RegisterDelayedCallback(
			func() { w.env.SignalWorkflow(run.SignalChanged, newFollowSignal(deploymentID)) },
			2*time.Minute+5*time.Second,
		)
		w.runRollout(t)
		require.Equal(t, []string{"other " + rolloutID + " ", end}, *told)
	})
	t.Run("when it fails, and though nobody is there any more", func(t *testing.T) {
		w := newDeploymentTestEnv(t, resizeDecision("grow"))
		w.mockWrites(0)
		told := w.recordEndSignals(rolloutNotOpenError())
		w.nextErrors["ChangeSets"] = temporal.NewNonRetryableApplicationError("no", "Odd", nil)
		w.env.ExecuteWorkflow(
			deployment.Rollout,
			deployment.RolloutInput{Input: run.Input{Ref: workflowstest.ObjectRef}, Revision: 7, Tell: deploymentID},
		)
		require.ErrorContains(t, w.env.GetWorkflowError(), "Odd")
		require.Equal(t, []string{end}, *told)
	})
	t.Run("not when it continues as new: the next run knows", func(t *testing.T) {
		w := newDeploymentTestEnv(t, waitDecision(rollout.HeldByMachines))
		w.env.RegisterDelayedCallback(func() {
			w.env.SetContinueAsNewSuggested(true)
			w.env.SignalWorkflow(run.SignalChanged, newFollowSignal(deploymentID))
		}, time.Minute)
		w.env.ExecuteWorkflow(
			deployment.Rollout,
			deployment.RolloutInput{Input: run.Input{Ref: workflowstest.ObjectRef}, Revision: 7},
		)
		var next *workflow.ContinueAsNewError
		require.ErrorAs(t, w.env.GetWorkflowError(), &next)
		var in deployment.RolloutInput
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
		require.Equal(t, deploymentID, in.Tell)
	})
}
