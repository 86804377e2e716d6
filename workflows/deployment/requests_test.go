package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	activitiesrequest "millwright/activities/request"
	"millwright/decide/request"
	"millwright/decide/rollout"
	workflows "millwright/workflows/deployment"
	workflowsrun "millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

// workflowsAcceptingRequests returns the workflows that accept requests for a deployment. Each workflow runs until the
// deployment is gone.
func workflowsAcceptingRequests() map[string]func(*deploymentTestEnv) {
	return map[string]func(*deploymentTestEnv){
		"deployment": func(w *deploymentTestEnv) {
			w.decisionScript = []deployment.Decision{completedRolloutDecision()}
			w.env.ExecuteWorkflow(workflows.MachineDeployment, workflowsrun.Input{Ref: workflowstest.ObjectRef})
		},
		"rollout": func(w *deploymentTestEnv) {
			w.decisionScript = []deployment.Decision{waitDecision(rollout.HeldByMachines)}
			w.env.ExecuteWorkflow(
				workflows.Rollout,
				workflows.RolloutInput{Input: workflowsrun.Input{Ref: workflowstest.ObjectRef}, Revision: 7},
			)
		},
	}
}

// forEachWorkflowAcceptingRequests runs a test with each workflow of workflowsAcceptingRequests.
func forEachWorkflowAcceptingRequests(
	t *testing.T,
	test func(t *testing.T, w *deploymentTestEnv, s *workflowstest.Operator, run func()),
) {
	for name, run := range workflowsAcceptingRequests() {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentTestEnv(t)
			w.changeAfterDelay(10*time.Minute, goneDeploymentDecision())
			test(t, w, workflowstest.NewOperator(w.env, w.lock), func() {
				run(w)
				require.NoError(t, w.env.GetWorkflowError())
			})
		})
	}
}

var (
	pauseInput = workflowsrun.RequestInput{Command: "pause", Actor: "ann", Reason: "not now"}
	pauseOrder = request.CommandOrder{
		Command: request.Pause,
		Actor:   "somebody in Temporal who signs as ann",
		Reason:  "not now",
	}
)

func TestRolloutRequestByUpdateIsWrittenAndAnswered(t *testing.T) {
	forEachWorkflowAcceptingRequests(t, func(t *testing.T, w *deploymentTestEnv, s *workflowstest.Operator, run func()) {
		back := int64(3)
		s.RunAfterDelay(time.Minute, func() { s.SendUpdate(pauseInput) })
		s.RunAfterDelay(2*time.Minute, func() {
			require.Equal(t, []any{"written"}, s.UpdateAnswers, "it waits for nothing else")
			s.SendUpdate(
				workflowsrun.RequestInput{
					Command:   "cancel",
					Reason:    " bad\nimage ",
					RollsBack: true,
					Revision:  &back,
					UID:       workflowstest.ObjectRef.UID,
				},
			)
		})
		s.RunAfterDelay(3*time.Minute, func() {
			s.SendUpdate(workflowsrun.RequestInput{Command: "approve", Actor: "ann", ApprovedStepCount: 2})
			workflowstest.SignalChange(w.env)
		})
		run()
		require.Len(t, s.AppliedRequests, 3)
		require.Equal(
			t,
			activitiesrequest.Request{Kind: request.KindMachineDeployment, Object: workflowstest.ObjectRef, Order: pauseOrder},
			s.AppliedRequests[0],
		)
		require.WithinDuration(t, w.startTime.Add(time.Minute), s.RequestTimes[0], 0)
		require.Equal(t, request.CommandOrder{
			Command:   request.Cancel,
			Actor:     "somebody in Temporal",
			Reason:    "bad image",
			Revision:  &back,
			RollsBack: true,
			UID:       workflowstest.ObjectRef.UID,
		}, s.AppliedRequests[1].Order)
		require.Equal(
			t,
			request.CommandOrder{Command: request.Approve, Actor: "somebody in Temporal who signs as ann", ApprovedStepCount: 2},
			s.AppliedRequests[2].Order,
		)
		require.Equal(
			t,
			"12",
			w.decisionInputs[len(w.decisionInputs)-1].Versions[kube.DeploymentsResource],
			"the next decision sees what was written",
		)
		require.Empty(t, w.activityLog, "nothing else was written")
	})
}

func TestInvalidRolloutRequestIsRefusedWithoutAnActivity(t *testing.T) {
	for want, in := range map[string]any{
		// only machines accept the command force
		`there is no command "force": the commands are start, pause`:             workflowstest.NewForceRequest("ann"),
		"cancel needs a reason: reason TEXT":                                     workflowsrun.RequestInput{Command: "cancel"},
		`pause does not take "steps": it is for approve`:                         workflowsrun.RequestInput{Command: "pause", ApprovedStepCount: 1},
		"the request cannot be read: json: cannot unmarshal string":              map[string]any{"command": "undo", "revision": "three"},
		"the request is for a deployment with UID other, and this one has UID u": workflowsrun.RequestInput{Command: "pause", UID: "other"},
	} {
		forEachWorkflowAcceptingRequests(t, func(t *testing.T, _ *deploymentTestEnv, s *workflowstest.Operator, run func()) {
			s.RunAfterDelay(time.Minute, func() { s.SendUpdate(in) })
			run()
			require.Len(t, s.UpdateRefusals, 1, want)
			require.Contains(t, s.UpdateRefusals[0], "RequestRefused: "+want)
			require.Empty(t, s.UpdateAnswers)
			require.Empty(t, s.AppliedRequests)
		})
	}
}

func TestInapplicableRolloutRequestIsRefused(t *testing.T) {
	forEachWorkflowAcceptingRequests(t, func(t *testing.T, _ *deploymentTestEnv, s *workflowstest.Operator, run func()) {
		s.Answer = activitiesrequest.Answer{Message: "deployment default/m-1 is paused already"}
		s.RunAfterDelay(time.Minute, func() { s.SendUpdate(pauseInput) })
		run()
		require.Equal(t, []any{"RequestRefused: deployment default/m-1 is paused already"}, s.UpdateAnswers)
		require.False(t, s.AppliedRequests[0].Unheard, "the answer says it")
	})
}

func TestRolloutRequestBySignalIsWritten(t *testing.T) {
	forEachWorkflowAcceptingRequests(t, func(t *testing.T, w *deploymentTestEnv, s *workflowstest.Operator, run func()) {
		s.RunAfterDelay(time.Minute, func() { s.SendSignal(pauseInput) })
		s.RunAfterDelay(2*time.Minute, func() { s.SendSignal(map[string]any{"command": "approve", "steps": "all"}) })
		s.RunAfterDelay(3*time.Minute, func() { s.SendSignal(workflowstest.NewForceRequest("ann")) })
		run()
		require.Len(t, s.AppliedRequests, 3)
		require.Equal(
			t,
			activitiesrequest.Request{
				Kind:    request.KindMachineDeployment,
				Object:  workflowstest.ObjectRef,
				Order:   pauseOrder,
				Unheard: true,
			},
			s.AppliedRequests[0],
		)
		require.Contains(t, s.AppliedRequests[1].Order.ParseError, "cannot unmarshal string")
		require.Equal(t, request.Command("force"), s.AppliedRequests[2].Order.Command, "it is refused where people see it")
		require.Equal(t, "12", w.decisionInputs[len(w.decisionInputs)-1].Versions[kube.DeploymentsResource])
	})
}

// If a rollout is cancelled in Temporal, the workflow puts the deployment on hold, as after a cancel request. The hold
// records who has cancelled the rollout.
func TestRolloutThatIsCancelledInTemporalHoldsTheDeployment(t *testing.T) {
	for name, row := range map[string]struct {
		decision deployment.Decision
		log      []string
	}{
		"while it waits":            {waitDecision(rollout.HeldByMachines), nil},
		"while it changes the sets": {resizeDecision("grow"), []string{"ChangeSets"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentTestEnv(t, row.decision)
			w.mockWrites(20 * time.Second)
			s := workflowstest.NewOperator(w.env, w.lock)
			s.Answer.Message = "held revision 7"
			s.FailingAttemptCount = 3 // the cancelled run retries the request
			w.env.RegisterDelayedCallback(w.env.CancelWorkflow, 10*time.Second)
			result := w.runRollout(t)
			defer w.lock()() // a cancelled activity of the test environment may still run
			require.Equal(t, workflows.OutcomeCancelled, result.Outcome)
			require.Equal(t, "held revision 7", result.Why)
			require.Equal(t, int64(7), result.Revision)
			require.Equal(t, "12", result.Versions[kube.DeploymentsResource], "the deployment must see the hold")
			require.Len(t, s.AppliedRequests, 1)
			require.Equal(
				t,
				request.CommandOrder{
					Command:  request.Cancel,
					Actor:    "somebody in Temporal",
					Reason:   "its workflow was cancelled",
					Revision: new(int64(7)),
				},
				s.AppliedRequests[0].Order,
			)
			require.Equal(t, workflowstest.ObjectRef, s.AppliedRequests[0].Object)
			require.True(t, s.AppliedRequests[0].Unheard)
			require.Len(t, w.decisionInputs, 1, "it decides nothing more")
			require.Subset(t, row.log, w.activityLog)
		})
	}
}

func TestRolloutThatIsCancelledStopsWhenThereIsNothingToHold(t *testing.T) {
	w := newDeploymentTestEnv(t, waitDecision(rollout.HeldByMachines))
	s := workflowstest.NewOperator(w.env, w.lock)
	s.Answer = activitiesrequest.Answer{Message: "deployment default/m-1 is being deleted"}
	w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
	result := w.runRollout(t)
	require.Equal(
		t,
		[]string{workflows.OutcomeStopped, "deployment default/m-1 is being deleted"},
		[]string{result.Outcome, result.Why},
	)
}

func TestCancelledRolloutEndsAsGoneWithoutItsDeployment(t *testing.T) {
	w := newDeploymentTestEnv(t, waitDecision(rollout.HeldByMachines))
	w.env.OnActivity("ApplyRequest", mock.Anything, mock.Anything).
		Return(activitiesrequest.Answer{}, temporal.NewNonRetryableApplicationError("gone", kube.FailureTypeObjectGone, nil))
	w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
	require.Equal(t, workflowsrun.OutcomeGone, w.runRollout(t).Outcome)
}
