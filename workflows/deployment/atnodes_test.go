package deployment_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/rollout"
	workflows "millwright/workflows/deployment"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

// withNodeMarks returns the decision with 40 node marks. 40 is more than MaxWritesOnOwnQueue, so a regular activity
// writes the marks and does not delay signals.
func withNodeMarks(d deployment.Decision) deployment.Decision {
	d.Rollout.Taint, d.Rollout.ProtectFromAutoscaler = slices.Repeat(testTargets, 20), slices.Repeat(testTargets, 20)
	return d
}

// Marks do not delay other writes, and at most one activity at a time writes marks. A rollout ends only after all its
// marks are written.
func TestNodeMarksDoNotDelayLaterDecisions(t *testing.T) {
	w := newDeploymentTestEnv(t, withNodeMarks(waitDecision(rollout.HeldByMachines)))
	w.mockWrites(10 * time.Second)
	w.changeAfterDelay(3*time.Second, withNodeMarks(waitDecision(rollout.HeldByMachines)))
	w.changeAfterDelay(5*time.Second, completedRolloutDecision())
	require.Equal(t, "10s", w.runRollout(t).Took)
	require.Equal(t, []string{"ChangeNodes"}, w.activityLog)
	require.Equal(t, []time.Duration{0, 3 * time.Second, 5 * time.Second, 10 * time.Second}, w.decisionTimes)
	require.Empty(t, w.decisionInputs[2].Versions[kube.NodesResource])
	require.Equal(t, "33", w.decisionInputs[3].Versions[kube.NodesResource], "what was set is seen by the next decision")
}

func TestRolloutAwaitsTheSelectionOfNodes(t *testing.T) {
	w := newDeploymentTestEnv(
		t,
		withChange(
			withNodeMarks(waitDecision(rollout.HeldByMachines)),
			func(d *deployment.Decision) { d.Rollout.Select = testTargets },
		),
		completedRolloutDecision(),
	)
	w.mockWrites(10 * time.Second)
	w.changeAfterDelay(3*time.Second, completedRolloutDecision())
	w.runRollout(t)
	require.Equal(t, []time.Duration{0, 10 * time.Second}, w.decisionTimes)
}

// Only one workflow at a time may write nodes, so a rollout waits for its last marks before it ends.
func TestRolloutEndsAfterItsNodeMarksAreWritten(t *testing.T) {
	for name, ends := range map[string]func(*deploymentTestEnv){
		workflows.OutcomeSuperseded: func(w *deploymentTestEnv) {
			w.changeAfterDelay(3*time.Second, withChange(completedRolloutDecision(), func(d *deployment.Decision) { d.Rollout.Revision = 8 }))
		},
		run.OutcomeGone: func(w *deploymentTestEnv) { w.changeAfterDelay(3*time.Second, goneDeploymentDecision()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentTestEnv(t, withNodeMarks(waitDecision(rollout.HeldByMachines)))
			w.mockWrites(10 * time.Second)
			ends(w)
			result := w.runRollout(t)
			require.Equal(t, []string{name, "10s"}, []string{result.Outcome, result.Took})
			require.Equal(t, "33", result.Versions[kube.NodesResource])
		})
	}
}

// A deployment starts a rollout only after the deployment's own marks are written.
func TestRolloutStartsAfterItsDeploymentsNodeMarksAreWritten(t *testing.T) {
	w := newDeploymentTestEnv(
		t,
		withNodeMarks(withChange(waitDecision(""), func(d *deployment.Decision) { d.Rollout.Rolling = false })),
	)
	w.rolloutScript = []deployment.Decision{completedRolloutDecision()}
	w.mockWrites(10 * time.Second)
	w.changeAfterDelay(3*time.Second, resizeDecision("roll"), goneDeploymentDecision())
	w.env.RegisterWorkflow(workflows.Rollout)
	w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef})
	require.NoError(t, w.env.GetWorkflowError())
	require.Len(t, w.rolloutInputs, 1)
	require.False(t, w.rolloutInputs[0].At.Before(w.startTime.Add(10*time.Second)), w.rolloutInputs[0].At)
}
