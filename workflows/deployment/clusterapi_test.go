package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	capi "millwright/activities/capi/deployment"
	"millwright/activities/deployment"
	"millwright/decide/attention"
	"millwright/decide/request"
	"millwright/decide/rollout"
	workflows "millwright/workflows/deployment"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

// clusterAPIRolloutID is the workflow ID of the rollout of a Cluster API deployment.
var clusterAPIRolloutID = run.Installation("").ID(run.KindClusterAPIRollout, workflowstest.ObjectRef, 7)

func newClusterAPITestEnv(t *testing.T, script ...deployment.Decision) *deploymentTestEnv {
	return newTestEnvWithActivityNames(t, map[string]string{
		"DecideDeployment":   "DecideClusterAPIDeployment",
		"ReportDeployment":   "ReportClusterAPIDeployment",
		"FinalizeDeployment": "FinalizeClusterAPIDeployment",
		"CreateSet":          "CreateClusterAPISet",
		"ChangeSets":         "ChangeClusterAPISets",
		"RollBackDeployment": "RollBackClusterAPIDeployment",
	}, script...)
}

// A deployment of Cluster API goes through the same steps, but with the activities of its own API. The deployment
// creates its first set, starts a rollout of its own workflow type, and rolls back.
func TestADeploymentOfClusterAPIHasItsOwnActivities(t *testing.T) {
	create := withChange(resizeDecision("the first set"), func(d *deployment.Decision) {
		d.Rollout.Create, d.Rollout.Resize, d.Report = &rollout.SetCreation{Revision: 7}, nil, true
	})
	prepare := withChange(create, func(d *deployment.Decision) { d.Prepare = true })
	w := newClusterAPITestEnv(
		t,
		prepare,
		create,
		resizeDecision("grow"),
		resizeDecision("grow"),
		rollbackDecision(),
		withChange(completedRolloutDecision(), func(d *deployment.Decision) {
			d.Pending.Need, d.Report = attention.NeedScaling, true
		}),
		goneDeploymentDecision(),
	)
	w.mockWrites(0)
	w.env.RegisterWorkflowWithOptions(
		workflows.ClusterAPIRollout,
		workflow.RegisterOptions{Name: string(run.KindClusterAPIRollout)},
	)
	w.runUntilGone(t, workflows.ClusterAPIDeployment)
	require.Equal(t, []string{
		"FinalizeClusterAPIDeployment",
		"CreateClusterAPISet",
		"ReportClusterAPIDeployment",
		"ChangeClusterAPISets",
		"RollBackClusterAPIDeployment",
		"ReportClusterAPIDeployment",
	}, w.activityLog)
	require.Equal(
		t,
		[]string{"", "", "", clusterAPIRolloutID, clusterAPIRolloutID, "", ""},
		requiredRolloutIDs(w.decisionInputs),
	)
	require.Equal(t, clusterAPIRolloutID, w.decisionInputs[5].Over, "the status may still name it")
	require.Equal(t, "21", w.decisionInputs[6].Versions[capi.DeploymentsResource], "it sees the status that it wrote")
}

// requiredRolloutIDs returns the rollout ID that the status had to name in each decision.
func requiredRolloutIDs(reads []deployment.Input) (names []string) {
	for _, in := range reads {
		names = append(names, in.WorkflowID)
	}
	return names
}

func TestClusterAPIDeploymentContinuesAsNewWithItsOwnKind(t *testing.T) {
	w := newClusterAPITestEnv(
		t,
		withChange(
			completedRolloutDecision(),
			func(d *deployment.Decision) { d.Pending.Need, d.Report = attention.NeedScaling, true },
		),
		completedRolloutDecision(),
	)
	w.env.ExecuteWorkflow(workflows.ClusterAPIDeployment, run.Input{Ref: workflowstest.ObjectRef})
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, w.env.GetWorkflowError(), &again)
	require.Equal(t, "ClusterAPIDeployment", again.WorkflowType.Name)
}

// A deployment that has lost Millwright's label also loses its finalizer, even during a rollout. The run then ends.
func TestHandedOverClusterAPIDeploymentLosesItsFinalizer(t *testing.T) {
	lost := deployment.Decision{
		Pending: attention.Decision{Need: attention.NeedScaling, Why: "it was handed over"},
		Release: true,
	}
	t.Run("while it is calm", func(t *testing.T) {
		w := newClusterAPITestEnv(t, lost, goneDeploymentDecision())
		w.runUntilGone(t, workflows.ClusterAPIDeployment)
		require.Equal(t, []string{"FinalizeClusterAPIDeployment"}, w.activityLog)
	})
	t.Run("in a rollout", func(t *testing.T) {
		w := newClusterAPITestEnv(t, waitDecision(rollout.HeldByMachines))
		w.changeAfterDelay(time.Minute, lost, goneDeploymentDecision())
		w.env.ExecuteWorkflow(
			workflows.ClusterAPIRollout,
			workflows.RolloutInput{Input: run.Input{Ref: workflowstest.ObjectRef}, Revision: 7},
		)
		var result workflows.RolloutResult
		require.NoError(t, w.env.GetWorkflowResult(&result))
		require.Equal(t, run.OutcomeGone, result.Outcome)
		require.Equal(t, []string{"FinalizeClusterAPIDeployment"}, w.activityLog)
	})
}

// A separate activity writes requests on a deployment of Cluster API. A rollout that is cancelled in Temporal sets the
// hold of the deployment.
func TestClusterAPIRequestsAreWrittenByTheirOwnActivity(t *testing.T) {
	for name, start := range map[string]func(w *deploymentTestEnv){
		"deployment": func(w *deploymentTestEnv) {
			w.env.ExecuteWorkflow(workflows.ClusterAPIDeployment, run.Input{Ref: workflowstest.ObjectRef})
		},
		"rollout": func(w *deploymentTestEnv) {
			w.env.ExecuteWorkflow(workflows.ClusterAPIRollout, workflows.RolloutInput{Input: run.Input{Ref: workflowstest.ObjectRef}, Revision: 7})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newClusterAPITestEnv(t, waitDecision(rollout.HeldByCancel))
			if name == "rollout" {
				w.decisionScript = []deployment.Decision{waitDecision(rollout.HeldByMachines)}
			}
			s := workflowstest.NewOperatorForActivity("ApplyClusterAPIRequest", w.env, w.lock)
			s.RunAfterDelay(time.Minute, func() { s.SendUpdate(pauseInput) })
			w.changeAfterDelay(10*time.Minute, goneDeploymentDecision())
			start(w)
			require.NoError(t, w.env.GetWorkflowError())
			require.Equal(t, []any{"written"}, s.UpdateAnswers)
			require.Equal(t, request.KindMachineDeployment, s.AppliedRequests[0].Kind)
			require.Equal(
				t,
				"12",
				w.decisionInputs[len(w.decisionInputs)-1].Versions[capi.DeploymentsResource],
				"the next decision sees what was written",
			)
		})
	}
	t.Run("a rollout that is cancelled in Temporal", func(t *testing.T) {
		w := newClusterAPITestEnv(t, waitDecision(rollout.HeldByMachines))
		s := workflowstest.NewOperatorForActivity("ApplyClusterAPIRequest", w.env, w.lock)
		w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
		w.env.ExecuteWorkflow(
			workflows.ClusterAPIRollout,
			workflows.RolloutInput{Input: run.Input{Ref: workflowstest.ObjectRef}, Revision: 7},
		)
		require.NoError(t, w.env.GetWorkflowError())
		require.Equal(t, request.Cancel, s.AppliedRequests[0].Order.Command)
	})
}
