package deployment_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	workflows "millwright/workflows/deployment"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

var rolloutID = run.Installation("").ID(run.KindRollout, workflowstest.ObjectRef, 7)

// mockRollout mocks the child workflow of the rollout. The function run gets the rollout's input and the number of
// starts so far.
func (w *deploymentTestEnv) mockRollout(
	run func(ctx workflow.Context, in workflows.RolloutInput, start int) (workflows.RolloutResult, error),
) {
	starts := 0
	w.env.RegisterWorkflowWithOptions(
		func(ctx workflow.Context, in workflows.RolloutInput) (workflows.RolloutResult, error) {
			w.logActivity("start " + workflow.GetInfo(ctx).WorkflowExecution.ID)
			starts++
			return run(ctx, in, starts)
		},
		workflow.RegisterOptions{Name: "Rollout"},
	)
}

// runDeployment runs the workflow until its object is gone.
func (w *deploymentTestEnv) runDeployment(t *testing.T) {
	w.runUntilGone(t, workflows.MachineDeployment)
}

func (w *deploymentTestEnv) runUntilGone(t *testing.T, workflow any) {
	w.env.ExecuteWorkflow(workflow, run.Input{Ref: workflowstest.ObjectRef})
	var result run.Result
	require.NoError(t, w.env.GetWorkflowError())
	require.NoError(t, w.env.GetWorkflowResult(&result))
	require.Equal(t, run.OutcomeGone, result.Outcome)
}

func TestMachineDeploymentLeavesTheSetsToItsRollout(t *testing.T) {
	w := newDeploymentTestEnv(t, resizeDecision("grow"), goneDeploymentDecision())
	w.mockWrites(0)
	var got workflows.RolloutInput
	var told []run.ChangeSignal
	w.mockRollout(func(ctx workflow.Context, in workflows.RolloutInput, _ int) (workflows.RolloutResult, error) {
		got = in
		signals, over := workflow.GetSignalChannel(ctx, run.SignalChanged), workflow.NewTimer(ctx, time.Hour)
		for !over.IsReady() {
			_ = workflow.Await(ctx, func() bool { return over.IsReady() || signals.Len() > 0 })
			var c run.ChangeSignal
			for signals.ReceiveAsync(&c) {
				told = append(told, c)
			}
		}
		return workflows.RolloutResult{
			Outcome:  workflows.OutcomeCompleted,
			Versions: kube.MinVersions{kube.SetsResource: "77"},
		}, nil
	})
	var page string
	w.env.RegisterDelayedCallback(func() {
		page = workflowstest.CurrentDetails(t, w.env)
		w.env.SignalWorkflow(
			run.SignalChanged,
			run.ChangeSignal{UID: workflowstest.ObjectRef.UID, Versions: kube.MinVersions{kube.MachinesResource: "9"}},
		)
	}, time.Minute)
	w.runDeployment(t)
	require.Contains(
		t,
		page,
		"the workflow "+rolloutID+" rolls the template out",
		"it shows nothing that would become untrue meanwhile",
	)

	require.Equal(t, []string{"start " + rolloutID}, w.activityLog, "it writes nothing while the rollout is open")
	require.Equal(t, []time.Duration{0, time.Hour}, w.decisionTimes, "nor does it decide anything")
	require.Equal(
		t,
		workflows.RolloutInput{Input: run.Input{Ref: workflowstest.ObjectRef, Versions: kube.MinVersions{}}, Revision: 7},
		got,
	)
	require.Equal(
		t,
		[]run.ChangeSignal{{UID: workflowstest.ObjectRef.UID, Versions: kube.MinVersions{kube.MachinesResource: "9"}}},
		told,
		"what still reaches it is passed on",
	)
	require.True(t, w.decisionInputs[1].Live, "the rollout wrote")
	require.Equal(t, kube.MinVersions{kube.SetsResource: "77", kube.MachinesResource: "9"}, w.decisionInputs[1].Versions)
	require.Empty(t, w.decisionInputs[0].WorkflowID, "the status may name the rollout")
}

func TestMachineDeploymentContinuesWhenItsRolloutHasEnded(t *testing.T) {
	w := newDeploymentTestEnv(
		t,
		waitDecision(rollout.HeldByMachines),
		withChange(completedRolloutDecision(), func(d *deployment.Decision) {
			d.Pending.Need, d.Report = attention.NeedScaling, true
		}),
		completedRolloutDecision(),
	)
	w.mockRollout(func(workflow.Context, workflows.RolloutInput, int) (workflows.RolloutResult, error) {
		return workflows.RolloutResult{Outcome: workflows.OutcomeCompleted}, nil
	})
	w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef})
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, w.env.GetWorkflowError(), &again, "settled: the next run has an empty history")
	require.Equal(t, []string{"start " + rolloutID, "ReportDeployment"}, w.activityLog)
}

func TestMachineDeploymentRestartsAFailedOrTerminatedRollout(t *testing.T) {
	for name, end := range map[string]error{
		"failed":     temporal.NewNonRetryableApplicationError("bad", "Bad", nil),
		"cancelled":  temporal.NewCanceledError(), // the deployment has no hold
		"terminated": errors.New("terminated"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentTestEnv(t, resizeDecision("grow"), resizeDecision("grow"), goneDeploymentDecision())
			w.mockWrites(0)
			w.mockRollout(func(_ workflow.Context, _ workflows.RolloutInput, start int) (workflows.RolloutResult, error) {
				if start == 1 {
					return workflows.RolloutResult{}, end
				}
				return workflows.RolloutResult{Outcome: workflows.OutcomeCompleted}, nil
			})
			w.runDeployment(t)
			require.Equal(t, []string{"start " + rolloutID, "start " + rolloutID}, w.activityLog)
			require.Equal(t, []time.Duration{0, 5 * time.Second, 5 * time.Second}, w.decisionTimes)
			require.True(t, w.decisionInputs[1].Live)
		})
	}
}

func TestCancellingAMachineDeploymentCancelsItsRollout(t *testing.T) {
	w := newDeploymentTestEnv(t, resizeDecision("grow"))
	w.mockWrites(0)
	w.mockRollout(func(ctx workflow.Context, _ workflows.RolloutInput, _ int) (workflows.RolloutResult, error) {
		_ = workflow.Sleep(ctx, time.Hour)
		if ctx.Err() == nil {
			return workflows.RolloutResult{}, errors.New("nobody cancelled it")
		}
		disconnected, done := workflow.NewDisconnectedContext(ctx)
		defer done()
		err := workflow.Sleep(disconnected, 3*time.Second)
		w.logActivity("held")
		return workflows.RolloutResult{Outcome: workflows.OutcomeCancelled}, err
	})
	w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
	w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef})
	require.True(t, temporal.IsCanceledError(w.env.GetWorkflowError()))
	require.Equal(t, []string{"start " + rolloutID, "held"}, w.activityLog)
	require.Equal(t, 63*time.Second, w.env.Now().Sub(w.startTime).Round(time.Second), "it ends when the hold is written")
}

func TestMachineDeploymentStartsNoRolloutIfNoneIsDue(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*deployment.Decision)
		want   string
	}{
		{"somebody cancelled this revision", func(d *deployment.Decision) { d.Rollout.HoldBy = rollout.HeldByCancel }, "ChangeSets"},
		{"it is not its turn", func(d *deployment.Decision) { d.Rollout.HoldBy = rollout.HeldByTurn }, "ChangeSets"},
		{"the set of the template is yet to be made", func(d *deployment.Decision) {
			d.Rollout.Create, d.Rollout.Resize = &rollout.SetCreation{Revision: 7}, nil
		}, "CreateSet"},
		{"our finalizer is missing", func(d *deployment.Decision) { d.Prepare = true }, "FinalizeDeployment"},
		{"there are no machines of another template", func(d *deployment.Decision) { d.Rollout.Rolling = false }, "ChangeSets"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newDeploymentTestEnv(t, withChange(resizeDecision("grow"), row.change), goneDeploymentDecision())
			w.mockWrites(0)
			w.mockRollout(func(workflow.Context, workflows.RolloutInput, int) (workflows.RolloutResult, error) {
				return workflows.RolloutResult{}, nil
			})
			w.runDeployment(t)
			require.Equal(t, []string{row.want}, w.activityLog)
		})
	}
}

func TestMachineDeploymentReadsLiveAfterAConflict(t *testing.T) {
	w := newDeploymentTestEnv(
		t,
		withChange(resizeDecision("grow"), func(d *deployment.Decision) { d.Rollout.Rolling = false }),
		goneDeploymentDecision(),
	)
	w.mockWrites(0)
	w.nextErrors["ChangeSets"] = conflictError()
	w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef, Continued: true})
	require.NoError(t, w.env.GetWorkflowError())
	require.False(t, w.decisionInputs[0].Live)
	require.True(t, w.decisionInputs[1].Live)
}

// No signal reports that a due time, for example the progress deadline, has passed.
func TestMachineDeploymentDecidesAgainAtTheRecheckTime(t *testing.T) {
	w := newDeploymentTestEnv(t)
	w.decisionScript = []deployment.Decision{withChange(completedRolloutDecision(), func(d *deployment.Decision) {
		d.Pending.Need, d.Rollout.Recheck = attention.NeedScaling, w.startTime.Add(time.Minute)
	}), goneDeploymentDecision()}
	w.runDeployment(t)
	require.Equal(t, []time.Duration{0, time.Minute}, w.decisionTimes)
}
