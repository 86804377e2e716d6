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

// rolloutOfClusterAPI is the ID of the rollout of a deployment of Cluster API.
var rolloutOfClusterAPI = run.Installation("").ID(run.KindClusterAPIRollout, workflowstest.Ref, 7)

func newClusterAPIWorld(t *testing.T, script ...deployment.Decision) *deploymentWorld {
	return newWorldOf(t, map[string]string{
		"DecideDeployment":   "DecideClusterAPIDeployment",
		"ReportDeployment":   "ReportClusterAPIDeployment",
		"FinalizeDeployment": "FinalizeClusterAPIDeployment",
		"CreateSet":          "CreateClusterAPISet",
		"ChangeSets":         "ChangeClusterAPISets",
		"RollBackDeployment": "RollBackClusterAPIDeployment",
	}, script...)
}

// The same procedure, with the activities of the other API: the first set, a rollout of its own kind, a rollback.
func TestADeploymentOfClusterAPIHasItsOwnActivities(t *testing.T) {
	create := with(moving("the first set"), func(d *deployment.Decision) {
		d.Rollout.Create, d.Rollout.Resize, d.Report = &rollout.Creation{Revision: 7}, nil, true
	})
	prepare := with(create, func(d *deployment.Decision) { d.Prepare = true })
	w := newClusterAPIWorld(
		t,
		prepare,
		create,
		moving("grow"),
		moving("grow"),
		backTo(false),
		with(complete(), func(d *deployment.Decision) {
			d.Pending.Need, d.Report = attention.Scale, true
		}),
		gone(),
	)
	w.answer(0)
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
	}, w.log)
	require.Equal(t, []string{"", "", "", rolloutOfClusterAPI, rolloutOfClusterAPI, "", ""}, namesIn(w.reads))
	require.Equal(t, rolloutOfClusterAPI, w.reads[5].Over, "the status may still name it")
	require.Equal(t, "21", w.reads[6].Versions[capi.DeploymentsResource], "it sees the status that it wrote")
}

// namesIn returns the rollouts that the status had to name.
func namesIn(reads []deployment.Input) (names []string) {
	for _, in := range reads {
		names = append(names, in.WorkflowID)
	}
	return names
}

func TestADeploymentOfClusterAPIContinuesAsItsOwnKind(t *testing.T) {
	w := newClusterAPIWorld(
		t,
		with(complete(), func(d *deployment.Decision) { d.Pending.Need, d.Report = attention.Scale, true }),
		complete(),
	)
	w.env.ExecuteWorkflow(workflows.ClusterAPIDeployment, run.Input{Ref: workflowstest.Ref})
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, w.env.GetWorkflowError(), &again)
	require.Equal(t, "ClusterAPIDeployment", again.WorkflowType.Name)
}

// A deployment that has lost Millwright's label loses its finalizer, too, also in the middle of a rollout. Then nothing
// is left to do.
func TestADeploymentOfClusterAPIThatIsHandedOver(t *testing.T) {
	lost := deployment.Decision{
		Pending: attention.Decision{Need: attention.Scale, Why: "it was handed over"},
		Release: true,
	}
	t.Run("while it is calm", func(t *testing.T) {
		w := newClusterAPIWorld(t, lost, gone())
		w.runUntilGone(t, workflows.ClusterAPIDeployment)
		require.Equal(t, []string{"FinalizeClusterAPIDeployment"}, w.log)
	})
	t.Run("in a rollout", func(t *testing.T) {
		w := newClusterAPIWorld(t, awaiting(rollout.HeldByMachines))
		w.after(time.Minute, lost, gone())
		w.env.ExecuteWorkflow(
			workflows.ClusterAPIRollout,
			workflows.RolloutInput{Input: run.Input{Ref: workflowstest.Ref}, Revision: 7},
		)
		var result workflows.RolloutResult
		require.NoError(t, w.env.GetWorkflowResult(&result))
		require.Equal(t, run.OutcomeGone, result.Outcome)
		require.Equal(t, []string{"FinalizeClusterAPIDeployment"}, w.log)
	})
}

// Requests are written on the deployment of Cluster API by an activity of its own, and a rollout that is cancelled in
// Temporal holds it.
func TestRequestsForADeploymentOfClusterAPI(t *testing.T) {
	for name, start := range map[string]func(w *deploymentWorld){
		"deployment": func(w *deploymentWorld) {
			w.env.ExecuteWorkflow(workflows.ClusterAPIDeployment, run.Input{Ref: workflowstest.Ref})
		},
		"rollout": func(w *deploymentWorld) {
			w.env.ExecuteWorkflow(workflows.ClusterAPIRollout, workflows.RolloutInput{Input: run.Input{Ref: workflowstest.Ref}, Revision: 7})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newClusterAPIWorld(t, awaiting(rollout.HeldBy))
			if name == "rollout" {
				w.script = []deployment.Decision{awaiting(rollout.HeldByMachines)}
			}
			s := workflowstest.NewOperatorBy("ApplyClusterAPIRequest", w.env, w.lock)
			s.After(time.Minute, func() { s.Ask(pause) })
			w.after(10*time.Minute, gone())
			start(w)
			require.NoError(t, w.env.GetWorkflowError())
			require.Equal(t, []any{"written"}, s.Answered)
			require.Equal(t, request.MachineDeployment, s.Orders[0].Kind)
			require.Equal(
				t,
				"12",
				w.reads[len(w.reads)-1].Versions[capi.DeploymentsResource],
				"the next decision sees what was written",
			)
		})
	}
	t.Run("a rollout that is cancelled in Temporal", func(t *testing.T) {
		w := newClusterAPIWorld(t, awaiting(rollout.HeldByMachines))
		s := workflowstest.NewOperatorBy("ApplyClusterAPIRequest", w.env, w.lock)
		w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
		w.env.ExecuteWorkflow(
			workflows.ClusterAPIRollout,
			workflows.RolloutInput{Input: run.Input{Ref: workflowstest.Ref}, Revision: 7},
		)
		require.NoError(t, w.env.GetWorkflowError())
		require.Equal(t, request.Cancel, s.Orders[0].Order.Command)
	})
}
