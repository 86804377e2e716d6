package deployment_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/attention"
	"millwright/decide/request"
	"millwright/decide/rollout"
	workflows "millwright/workflows/deployment"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

var deploymentID = run.Installation("").ID(run.KindMachineDeployment, workflowstest.ObjectRef)

// withRollout sets the rollout to revision 7 in the status of a decision.
func withRollout(d deployment.Decision) deployment.Decision {
	d.Operation = rolloutID
	return d
}

// newFollowTestEnv returns a test environment with a rollout that an earlier run of the deployment's workflow started,
// and with a new run of this workflow. The rollout waits for machines.
func newFollowTestEnv(t *testing.T, script ...deployment.Decision) *deploymentTestEnv {
	w := newDeploymentTestEnv(t, script...)
	w.mockWrites(0)
	w.rolloutScript = []deployment.Decision{waitDecision(rollout.HeldByMachines)}
	w.env.RegisterWorkflow(workflows.Rollout)
	w.env.RegisterWorkflow(workflows.MachineDeployment)
	return w
}

// workflowResults contains the results of the two workflows of a test environment from newFollowTestEnv.
type workflowResults struct {
	rolloutResult   workflows.RolloutResult
	deploymentError error
}

// runBothWorkflows runs the rollout and the deployment's workflow until the rollout ends.
func (w *deploymentTestEnv) runBothWorkflows(t *testing.T) (o workflowResults) {
	w.env.ExecuteWorkflow(func(ctx workflow.Context) error {
		start := func(id string, run, in any) workflow.ChildWorkflowFuture {
			child := workflow.ExecuteChildWorkflow(
				workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: id, WaitForCancellation: true}),
				run,
				in,
			)
			_ = child.GetChildWorkflowExecution().Get(ctx, nil)
			return child
		}
		open := start(
			rolloutID,
			workflows.Rollout,
			workflows.RolloutInput{Input: run.Input{Ref: workflowstest.ObjectRef}, Revision: 7},
		)
		o.deploymentError = start(
			deploymentID,
			workflows.MachineDeployment,
			run.Input{Ref: workflowstest.ObjectRef},
		).Get(ctx, nil)
		if ended, err := workflow.AwaitWithTimeout(ctx, time.Second, open.IsReady); !ended {
			return err
		}
		return open.Get(ctx, &o.rolloutResult)
	})
	require.NoError(t, w.env.GetWorkflowError())
	return o
}

// signalDeployment signals the deployment's workflow although the deployment's status names a rollout.
func (w *deploymentTestEnv) signalDeployment(t *testing.T, after time.Duration, machines string, then ...func()) {
	w.env.RegisterDelayedCallback(func() {
		for _, do := range then {
			do()
		}
		c := run.ChangeSignal{UID: workflowstest.ObjectRef.UID, Versions: kube.MinVersions{kube.MachinesResource: machines}}
		require.NoError(t, w.env.SignalWorkflowByID(deploymentID, run.SignalChanged, c))
	}, after)
}

// newScriptReplacer replaces the scripts of the rollout and of the deployment's workflow.
func (w *deploymentTestEnv) newScriptReplacer(beside deployment.Decision, script ...deployment.Decision) func() {
	return func() {
		defer w.lock()()
		w.rolloutScript, w.decisionScript = []deployment.Decision{beside}, script
	}
}

// If a run finds an open rollout of an earlier run, the run forwards signals to the rollout. The rollout signals the
// run at its end.
func TestMachineDeploymentFollowsARolloutThatIsOpenAlready(t *testing.T) {
	for name, found := range map[string]deployment.Decision{
		"as it would start it":       resizeDecision("grow"),
		"as the status names it":     withRollout(resizeDecision("grow")),
		"while only the size counts": withRollout(withChange(resizeDecision("grow"), func(d *deployment.Decision) { d.Rollout.Rolling = false })),
		"where marks come first":     withRollout(deployment.Decision{Pending: attention.Decision{Need: attention.NeedScaling}, Rollout: rollout.Decision{MachineChanges: rollout.MachineChanges{Unmark: testTargets}}}),
		"where the set is to be made": withRollout(deployment.Decision{Pending: attention.Decision{Need: attention.NeedScaling}, Rollout: rollout.Decision{
			SetChanges: rollout.SetChanges{Create: &rollout.SetCreation{Revision: 8}},
		}}),
		"where a finalizer is missing":   withRollout(deployment.Decision{Pending: attention.Decision{Need: attention.NeedScaling}, Prepare: true}),
		"where only a report is to come": withRollout(deployment.Decision{Pending: attention.Decision{Need: attention.NeedScaling}, Report: true}),
		"where machines are replaced":    withRollout(deployment.Decision{Pending: attention.Decision{Need: attention.NeedReplacement}, Replace: true}),
		"where it is being deleted":      withRollout(deployment.Decision{Pending: attention.Decision{Need: attention.NeedDeletion}, Rollout: rollout.Decision{SetChanges: rollout.SetChanges{Delete: testTargets}}}),
	} {
		t.Run(name, func(t *testing.T) {
			w := newFollowTestEnv(t, found)
			w.signalDeployment(t, time.Minute, "9")
			w.signalDeployment(t, 5*time.Minute, "10", w.newScriptReplacer(completedRolloutDecision(), goneDeploymentDecision()))
			o := w.runBothWorkflows(t)
			require.NoError(t, o.deploymentError)
			require.Equal(t, workflows.OutcomeCompleted, o.rolloutResult.Outcome)
			require.Empty(t, w.activityLog, "nothing is done beside the rollout")
			require.Equal(
				t,
				[]time.Duration{0, 5 * time.Minute},
				w.decisionTimes,
				"nor is anything decided, until it says that it has ended",
			)
			require.Equal(t, "10", w.decisionInputs[1].Versions[kube.MachinesResource])
			require.True(t, w.decisionInputs[1].Live, "the rollout wrote")
			require.Equal(t, rolloutID, w.decisionInputs[1].Over, "the status may still name it")
			seen := []string{}
			for _, read := range w.rolloutInputs {
				seen = append(seen, read.Versions[kube.MachinesResource])
			}
			require.Equal(t, []string{"", "", "9", "10"}, seen, "it gets the follower's ID, and the follower's signals")
		})
	}
}

func TestMachineDeploymentActsWhenARolloutThatItFollowedHasEnded(t *testing.T) {
	w := newFollowTestEnv(t, withRollout(resizeDecision("grow")))
	then := withRollout(
		withChange(resizeDecision("grow"), func(d *deployment.Decision) { d.Rollout.Rolling, d.Report = false, true }),
	)
	w.signalDeployment(
		t,
		time.Minute,
		"9",
		w.newScriptReplacer(
			withChange(completedRolloutDecision(), func(d *deployment.Decision) { d.Rollout.Revision = 8 }),
			then,
			goneDeploymentDecision(),
		),
	)
	o := w.runBothWorkflows(t)
	require.Equal(t, workflows.OutcomeSuperseded, o.rolloutResult.Outcome)
	require.Equal(t, []string{"ChangeSets", "ReportDeployment"}, w.activityLog)
	require.Equal(t, rolloutID, w.activityInputs[1].(deployment.Report).Over)
	require.Equal(t, []time.Duration{0, time.Minute, time.Minute}, w.decisionTimes)
}

// Both the deployment's workflow and the rollout can write a request to the deployment. After the deployment's workflow
// has written a request, it signals the rollout as after any other change.
func TestMachineDeploymentThatFollowsARolloutAcceptsRequests(t *testing.T) {
	w := newFollowTestEnv(t, withRollout(resizeDecision("grow")))
	s := workflowstest.NewOperator(w.env, w.lock)
	w.env.RegisterDelayedCallback(func() {
		require.NoError(t, w.env.SignalWorkflowByID(deploymentID, run.RequestMessageName, pauseInput))
	}, time.Minute)
	w.signalDeployment(t, 2*time.Minute, "9", w.newScriptReplacer(completedRolloutDecision(), goneDeploymentDecision()))
	require.NoError(t, w.runBothWorkflows(t).deploymentError)
	require.Len(t, s.AppliedRequests, 1)
	require.Equal(t, pauseOrder, s.AppliedRequests[0].Order)
	require.Equal(
		t,
		"12",
		w.rolloutInputs[len(w.rolloutInputs)-1].Versions[kube.DeploymentsResource],
		"the rollout sees what was written",
	)
}

// A cancellation of the deployment's workflow cancels its rollout, even if an earlier run started the rollout.
func TestCancelledDeploymentCancelsTheRolloutThatItFollows(t *testing.T) {
	w := newFollowTestEnv(t, withRollout(resizeDecision("grow")))
	s := workflowstest.NewOperator(w.env, w.lock)
	w.env.RegisterDelayedCallback(func() { w.env.CancelWorkflowByID(deploymentID, "") }, time.Minute)
	o := w.runBothWorkflows(t)
	require.True(t, temporal.IsCanceledError(o.deploymentError))
	require.Equal(t, workflows.OutcomeCancelled, o.rolloutResult.Outcome)
	require.Len(t, s.AppliedRequests, 1)
	require.Equal(t, request.Cancel, s.AppliedRequests[0].Order.Command)
	require.Equal(t, time.Minute, w.env.Now().Sub(w.startTime).Round(time.Second))
	require.Empty(t, w.activityLog)
}

// mockSignals mocks signals to workflows that do not run in the test. mockSignals uses each answer once, and then
// repeats the last answer.
func (w *deploymentTestEnv) mockSignals(answers ...error) *[]run.ChangeSignal {
	var told []run.ChangeSignal
	w.env.OnSignalExternalWorkflow(mock.Anything, rolloutID, "", run.SignalChanged, mock.Anything).Return(
		func(_, _, _, _ string, arg any) error {
			defer w.lock()()
			c := arg.(run.ChangeSignal)
			c.Versions = maps.Clone(c.Versions)
			told = append(told, c)
			answer := answers[0]
			answers = answers[min(1, len(answers)-1):]
			return answer
		})
	return &told
}

func rolloutNotOpenError() error { return new(temporal.UnknownExternalWorkflowExecutionError) }

// A status may name a rollout that was terminated.
func TestMachineDeploymentActsWhenTheRolloutInItsStatusIsNotOpen(t *testing.T) {
	scales := withRollout(
		withChange(resizeDecision("grow"), func(d *deployment.Decision) { d.Rollout.Rolling, d.Report = false, true }),
	)
	w := newDeploymentTestEnv(t, scales, scales, goneDeploymentDecision())
	w.mockWrites(0)
	told := w.mockSignals(rolloutNotOpenError())
	w.runDeployment(t)
	require.Equal(t, []string{"ChangeSets", "ReportDeployment"}, w.activityLog)
	require.Equal(
		t,
		[]run.ChangeSignal{{UID: workflowstest.ObjectRef.UID, Versions: kube.MinVersions{}, Tell: deploymentID}},
		*told,
		"it is asked once",
	)
	require.Equal(t, []time.Duration{0, 0, 0}, w.decisionTimes)
	require.True(t, w.decisionInputs[1].Live)
	require.Equal(t, rolloutID, w.decisionInputs[1].Over)
}

// The deployment's own rollout has ended when its future is ready, even if the status still names the rollout.
func TestMachineDeploymentSignalsNoRolloutThatItStartedItself(t *testing.T) {
	w := newDeploymentTestEnv(
		t,
		resizeDecision("grow"),
		withRollout(withChange(resizeDecision("grow"), func(d *deployment.Decision) { d.Rollout.Rolling = false })),
		goneDeploymentDecision(),
	)
	w.mockWrites(0)
	w.mockRollout(func(workflow.Context, workflows.RolloutInput, int) (workflows.RolloutResult, error) {
		return workflows.RolloutResult{Outcome: workflows.OutcomeStopped}, nil
	})
	w.runDeployment(t)
	require.Equal(t, []string{"start " + rolloutID, "ChangeSets"}, w.activityLog)
}

// No signal reports that a rollout was terminated. Work that becomes due without a change must not wait forever for the
// terminated rollout. Any other change causes a signal, and the attempt to forward the signal shows that the rollout is
// not open.
func TestMachineDeploymentNoticesATerminatedRollout(t *testing.T) {
	t.Run("by the clock", func(t *testing.T) {
		w := newDeploymentTestEnv(t)
		due := func(d *deployment.Decision) {
			d.Rollout.Recheck, d.ReplaceHeldUntil = w.startTime.Add(2*time.Hour), w.startTime.Add(time.Hour)
		}
		w.decisionScript = []deployment.Decision{
			withRollout(withChange(waitDecision(rollout.HeldByStep), due)),
			withRollout(waitDecision(rollout.HeldByStep)),
			goneDeploymentDecision(),
		}
		told := w.mockSignals(nil, rolloutNotOpenError())
		w.runDeployment(t)
		require.Equal(t, []time.Duration{0, 61 * time.Minute, 61 * time.Minute}, w.decisionTimes)
		require.Len(t, *told, 2)
	})
	t.Run("by a signal", func(t *testing.T) {
		w := newDeploymentTestEnv(t, withRollout(waitDecision(rollout.HeldByMachines)))
		told := w.mockSignals(nil, nil, rolloutNotOpenError())
		w.env.RegisterDelayedCallback(func() { workflowstest.SignalChange(w.env) }, time.Minute)
		w.changeAfterDelay(time.Hour, goneDeploymentDecision())
		w.runDeployment(t)
		require.Equal(t, []time.Duration{0, time.Hour}, w.decisionTimes)
		require.Len(t, *told, 3)
	})
	t.Run("a signal that cannot be sent for another reason says nothing", func(t *testing.T) {
		w := newDeploymentTestEnv(t, withRollout(waitDecision(rollout.HeldByMachines)))
		w.mockSignals(errors.New("too many signals"), rolloutNotOpenError())
		w.changeAfterDelay(time.Hour, goneDeploymentDecision())
		w.runDeployment(t)
		require.Equal(t, []time.Duration{0, time.Hour}, w.decisionTimes)
	})
	t.Run("after a cancellation", func(t *testing.T) {
		w := newDeploymentTestEnv(t, withRollout(waitDecision(rollout.HeldByMachines)))
		w.mockSignals(nil)
		w.env.OnRequestCancelExternalWorkflow(mock.Anything, rolloutID, "").Return(nil)
		w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
		w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef})
		require.True(t, temporal.IsCanceledError(w.env.GetWorkflowError()))
		require.Equal(t, 2*time.Minute, w.env.Now().Sub(w.startTime).Round(time.Second))
	})
	t.Run("before a cancellation", func(t *testing.T) {
		w := newDeploymentTestEnv(t, withRollout(waitDecision(rollout.HeldByMachines)))
		w.mockSignals(nil)
		w.env.OnRequestCancelExternalWorkflow(mock.Anything, rolloutID, "").Return(rolloutNotOpenError())
		w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
		w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef})
		require.True(t, temporal.IsCanceledError(w.env.GetWorkflowError()))
		require.Equal(t, time.Minute, w.env.Now().Sub(w.startTime).Round(time.Second))
	})
}

func TestMachineDeploymentShowsThatARolloutIsOpen(t *testing.T) {
	w := newDeploymentTestEnv(
		t,
		withRollout(withChange(resizeDecision("grow"), func(d *deployment.Decision) { d.Rollout.Rolling = false })),
	)
	w.mockSignals(nil, rolloutNotOpenError())
	w.recordSearchAttributes()
	w.changeAfterDelay(time.Minute, goneDeploymentDecision())
	w.runDeployment(t)
	require.Equal(t, "rollout", w.searchAttributes["Step"])
}
