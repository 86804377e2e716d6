package deployment_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/temporal"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/attention"
	"millwright/decide/request"
	"millwright/decide/rollout"
	workflows "millwright/workflows/deployment"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

// refusedError returns the error of a write that the API server refused.
func refusedError() error {
	return temporal.NewNonRetryableApplicationError("quota exceeded", kube.FailureTypeRefused, nil)
}

// resizeOnlyDecision returns a decision for a deployment or its rollout that only resizes one set.
func resizeOnlyDecision() deployment.Decision {
	return withChange(resizeDecision("grow"), func(d *deployment.Decision) { d.Rollout.Rolling = false })
}

// forEachSetWriter runs a test with each workflow that writes the sets of a deployment. Each workflow runs until the
// deployment is gone.
func forEachSetWriter(t *testing.T, test func(t *testing.T, w *deploymentTestEnv, run func())) {
	for name, run := range map[string]func(*deploymentTestEnv){
		"deployment": func(w *deploymentTestEnv) {
			w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef, Continued: true})
		},
		"rollout": func(w *deploymentTestEnv) {
			w.env.ExecuteWorkflow(workflows.Rollout, workflows.RolloutInput{Input: run.Input{Ref: workflowstest.ObjectRef, Continued: true}, Revision: 7})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentTestEnv(t, resizeOnlyDecision(), resizeOnlyDecision(), goneDeploymentDecision())
			w.mockWrites(0)
			w.nextErrors["ChangeSets"] = refusedError()
			test(t, w, func() {
				run(w)
				require.NoError(t, w.env.GetWorkflowError())
			})
		})
	}
}

func TestRefusedWriteIsRetriedAfterTenSeconds(t *testing.T) {
	forEachSetWriter(t, func(t *testing.T, w *deploymentTestEnv, run func()) {
		run()
		require.Equal(t, []string{"ChangeSets", "ReportDeployment", "ChangeSets"}, w.activityLog, "the second one is taken")
		require.Equal(t, []time.Duration{0, 10 * time.Second, 10 * time.Second}, w.decisionTimes)
		require.Equal(
			t,
			[]bool{false, true, false},
			[]bool{w.decisionInputs[0].Live, w.decisionInputs[1].Live, w.decisionInputs[2].Live},
			"what was refused may look otherwise by now",
		)
	})
}

func TestWaitAfterRepeatedRefusalsGrows(t *testing.T) {
	forEachSetWriter(t, func(t *testing.T, w *deploymentTestEnv, run func()) {
		w.env.RegisterDelayedCallback(func() {
			defer w.lock()()
			w.nextErrors["ChangeSets"] = refusedError()
		}, 5*time.Second)
		run()
		require.Equal(t, []time.Duration{0, 10 * time.Second, 30 * time.Second}, w.decisionTimes, "the wait grows")
	})
}

func TestSignalEndsTheWaitAfterARefusedWrite(t *testing.T) {
	forEachSetWriter(t, func(t *testing.T, w *deploymentTestEnv, run func()) {
		w.env.RegisterDelayedCallback(func() { workflowstest.SignalChange(w.env) }, 3*time.Second)
		run()
		require.Equal(t, []string{"ChangeSets", "ReportDeployment", "ChangeSets"}, w.activityLog)
		require.Equal(t, []time.Duration{0, 3 * time.Second, 3 * time.Second}, w.decisionTimes)
	})
}

func TestRefusedWriteIsShownInTheSearchAttributes(t *testing.T) {
	forEachSetWriter(t, func(t *testing.T, w *deploymentTestEnv, run func()) {
		w.recordSearchAttributes()
		var during, details any
		w.env.RegisterDelayedCallback(func() {
			during = []any{w.searchAttributes["Step"], w.searchAttributes["BlockedBy"], w.searchAttributes["Stuck"]}
			answer, err := w.env.QueryWorkflow("__temporal_workflow_metadata")
			require.NoError(t, err)
			var metadata sdkpb.WorkflowMetadata
			require.NoError(t, answer.Get(&metadata))
			details = metadata.GetCurrentDetails()
		}, 5*time.Second)
		run()
		require.Equal(t, []any{"refused", []string{"Refused"}, true}, during)
		require.Contains(t, details, "quota exceeded")
		require.Empty(t, w.searchAttributes["BlockedBy"], "what is over is shown no more")
		require.Equal(t, false, w.searchAttributes["Stuck"])
	})
}

// If nodes cannot be marked, the sets are still resized. The workflow still carries out later decisions, and writes the
// marks later.
func TestNodesThatCannotBeMarkedAreMarkedLater(t *testing.T) {
	for name, failure := range map[string]error{"it took too long": temporal.NewTimeoutError(3, nil), "refused": refusedError()} {
		t.Run(name, func(t *testing.T) {
			forEachSetWriter(t, func(t *testing.T, w *deploymentTestEnv, run func()) {
				tainting := func(d *deployment.Decision) { d.Rollout.Taint = testTargets }
				mark := withChange(
					withChange(resizeOnlyDecision(), tainting),
					func(d *deployment.Decision) { d.Rollout.Resize = nil },
				)
				w.decisionScript = []deployment.Decision{mark}
				w.nextErrors, w.failsBothActivities = map[string]error{"ChangeNodes": failure}, true
				w.changeAfterDelay(3*time.Second, withChange(resizeOnlyDecision(), tainting), mark)
				w.changeAfterDelay(9*time.Second, mark, mark, goneDeploymentDecision())
				run()
				sized := slices.Index(w.activityLog, "ChangeSets")
				require.Positive(t, sized)
				require.Equal(t, []string{"ChangeSets", "ChangeNodes"}, w.activityLog[sized:], "what is decided meanwhile is done")
				require.Equal(t, 10*time.Second, w.decisionTimes[len(w.decisionTimes)-1])
			})
		})
	}
}

// If a node write for which the workflow waits is refused or times out, the workflow waits before it retries the write.
func TestFailedNodeWriteIsRetriedAfterAWait(t *testing.T) {
	forEachSetWriter(t, func(t *testing.T, w *deploymentTestEnv, run func()) {
		w.decisionScript = []deployment.Decision{
			withChange(
				resizeOnlyDecision(),
				func(d *deployment.Decision) { d.Rollout.Resize, d.Rollout.ClearUpdateLabels = nil, testTargets },
			),
			goneDeploymentDecision(),
		}
		w.nextErrors, w.failsBothActivities = map[string]error{"ChangeNodes": temporal.NewTimeoutError(3, nil)}, true
		run()
		require.Equal(
			t,
			[]string{"ChangeNodes", "ChangeNodes", "ReportDeployment"},
			w.activityLog,
			"once as a local activity",
		)
		require.Equal(t, []time.Duration{0, 10 * time.Second}, w.decisionTimes)
	})
}

// A regular activity selects the nodes for the next update, because a second attempt of a local activity might select
// other nodes.
func TestNodesAreSelectedByARegularActivity(t *testing.T) {
	forEachSetWriter(t, func(t *testing.T, w *deploymentTestEnv, run func()) {
		w.decisionScript = []deployment.Decision{
			withChange(
				resizeOnlyDecision(),
				func(d *deployment.Decision) { d.Rollout.Resize, d.Rollout.Select = nil, testTargets },
			),
			goneDeploymentDecision(),
		}
		w.nextErrors = map[string]error{"ChangeNodes": temporal.NewTimeoutError(3, nil)}
		run()
		require.Equal(
			t,
			[]string{"ChangeNodes", "ReportDeployment"},
			w.activityLog,
			"a local activity would have been followed by another one",
		)
	})
}

func TestARolloutThatIsCancelledDoesNotWaitForARefusedWrite(t *testing.T) {
	w := newDeploymentTestEnv(t, resizeOnlyDecision())
	w.mockWrites(0)
	w.nextErrors["ChangeSets"] = refusedError()
	s := workflowstest.NewOperator(w.env, w.lock)
	w.env.RegisterDelayedCallback(w.env.CancelWorkflow, 3*time.Second)
	result := w.runRollout(t)
	require.Equal(t, []string{workflows.OutcomeCancelled, "3s"}, []string{result.Outcome, result.Took})
	require.Equal(t, request.Cancel, s.AppliedRequests[0].Order.Command)
	require.Equal(t, []string{"ChangeSets", "ReportDeployment"}, w.activityLog)
}

// If the API server refuses the set of the current template, the deployment's status contains the reason until the set
// exists.
func TestASetThatIsRefusedIsReported(t *testing.T) {
	making := withChange(resizeOnlyDecision(), func(d *deployment.Decision) {
		d.Rollout.Create, d.Rollout.Resize = &rollout.SetCreation{Revision: 7}, nil
	})
	counted := withChange(resizeOnlyDecision(), func(d *deployment.Decision) { d.Rollout.Resize, d.Report = nil, true })
	w := newDeploymentTestEnv(t, making, making, counted, goneDeploymentDecision())
	w.mockWrites(0)
	w.nextErrors["CreateSet"] = refusedError()
	w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef, Continued: true})
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, []string{"CreateSet", "ReportDeployment", "CreateSet", "ReportDeployment"}, w.activityLog)
	require.Equal(t, "quota exceeded", w.activityInputs[1].(deployment.Report).NoSet)
	require.Empty(t, w.activityInputs[3].(deployment.Report).NoSet)
}

// A deployment that is being deleted needs no set, so its status no longer contains the refusal.
func TestDeletedDeploymentDropsTheRefusalOfItsSet(t *testing.T) {
	making := withChange(resizeOnlyDecision(), func(d *deployment.Decision) {
		d.Rollout.Create, d.Rollout.Resize = &rollout.SetCreation{Revision: 7}, nil
	})
	going := withChange(resizeOnlyDecision(), func(d *deployment.Decision) {
		d.Pending.Need, d.Rollout.Resize, d.Report = attention.NeedDeletion, nil, true
	})
	calm := withChange(going, func(d *deployment.Decision) { d.Report = false })
	w := newDeploymentTestEnv(t, making, going, calm)
	w.mockWrites(0)
	w.nextErrors["CreateSet"] = refusedError()
	w.changeAfterDelay(time.Minute, goneDeploymentDecision())
	w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef, Continued: true})
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, []string{"CreateSet", "ReportDeployment", "ReportDeployment"}, w.activityLog)
	require.Empty(t, w.activityInputs[2].(deployment.Report).NoSet)
}

// The status keeps the time of the first refusal when further attempts fail.
func TestStartTimeOfARefusalStays(t *testing.T) {
	forEachSetWriter(t, func(t *testing.T, w *deploymentTestEnv, run func()) {
		w.decisionScript = []deployment.Decision{resizeOnlyDecision()}
		w.env.RegisterDelayedCallback(func() {
			defer w.lock()()
			w.nextErrors["ChangeSets"] = refusedError()
		}, 5*time.Second)
		w.changeAfterDelay(15*time.Second, goneDeploymentDecision())
		run()
		var since []time.Duration
		for _, order := range w.activityInputs {
			if report, is := order.(deployment.Report); is {
				since = append(since, report.Step.Since.Sub(w.startTime).Round(time.Second))
			}
		}
		require.Equal(t, []time.Duration{0, 0}, since)
	})
}
