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

// refusing returns the error of a write that the API server refused.
func refusing() error {
	return temporal.NewNonRetryableApplicationError("quota exceeded", kube.TypeRefused, nil)
}

// sizing is a decision with one resize, for the workflow of a deployment or of its rollout.
func sizing() deployment.Decision {
	return with(moving("grow"), func(d *deployment.Decision) { d.Rollout.Rolling = false })
}

// writers are the workflows that write the sets of a deployment. Each runs until the world is gone.
func writers(t *testing.T, test func(t *testing.T, w *deploymentWorld, run func())) {
	for name, run := range map[string]func(*deploymentWorld){
		"deployment": func(w *deploymentWorld) {
			w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.Ref, Continued: true})
		},
		"rollout": func(w *deploymentWorld) {
			w.env.ExecuteWorkflow(workflows.Rollout, workflows.RolloutInput{Input: run.Input{Ref: workflowstest.Ref, Continued: true}, Revision: 7})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentWorld(t, sizing(), sizing(), gone())
			w.answer(0)
			w.fails["ChangeSets"] = refusing()
			test(t, w, func() {
				run(w)
				require.NoError(t, w.env.GetWorkflowError())
			})
		})
	}
}

func TestARefusedWriteIsTriedAgainAfterAWhile(t *testing.T) {
	writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
		run()
		require.Equal(t, []string{"ChangeSets", "ReportDeployment", "ChangeSets"}, w.log, "the second one is taken")
		require.Equal(t, []time.Duration{0, 10 * time.Second, 10 * time.Second}, w.looks)
		require.Equal(
			t,
			[]bool{false, true, false},
			[]bool{w.reads[0].Live, w.reads[1].Live, w.reads[2].Live},
			"what was refused may look otherwise by now",
		)
	})
}

func TestAWriteThatIsRefusedAgainIsWaitedForAgain(t *testing.T) {
	writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
		w.env.RegisterDelayedCallback(func() {
			defer w.lock()()
			w.fails["ChangeSets"] = refusing()
		}, 5*time.Second)
		run()
		require.Equal(t, []time.Duration{0, 10 * time.Second, 30 * time.Second}, w.looks, "the wait grows")
	})
}

func TestAChangeWakesWhoWaitsAfterARefusedWrite(t *testing.T) {
	writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
		w.env.RegisterDelayedCallback(func() { workflowstest.Changed(w.env) }, 3*time.Second)
		run()
		require.Equal(t, []string{"ChangeSets", "ReportDeployment", "ChangeSets"}, w.log)
		require.Equal(t, []time.Duration{0, 3 * time.Second, 3 * time.Second}, w.looks)
	})
}

func TestARefusedWriteIsShown(t *testing.T) {
	writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
		w.show()
		var during, details any
		w.env.RegisterDelayedCallback(func() {
			during = []any{w.shown["Step"], w.shown["BlockedBy"], w.shown["Stuck"]}
			answer, err := w.env.QueryWorkflow("__temporal_workflow_metadata")
			require.NoError(t, err)
			var metadata sdkpb.WorkflowMetadata
			require.NoError(t, answer.Get(&metadata))
			details = metadata.GetCurrentDetails()
		}, 5*time.Second)
		run()
		require.Equal(t, []any{"refused", []string{"Refused"}, true}, during)
		require.Contains(t, details, "quota exceeded")
		require.Empty(t, w.shown["BlockedBy"], "what is over is shown no more")
		require.Equal(t, false, w.shown["Stuck"])
	})
}

// Sizes are kept when nodes cannot be marked: later decisions are carried out, and the nodes are marked after a while.
func TestNodesThatCannotBeMarkedAreMarkedLater(t *testing.T) {
	for name, failure := range map[string]error{"it took too long": temporal.NewTimeoutError(3, nil), "refused": refusing()} {
		t.Run(name, func(t *testing.T) {
			writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
				tainting := func(d *deployment.Decision) { d.Rollout.Taint = aTarget }
				mark := with(with(sizing(), tainting), func(d *deployment.Decision) { d.Rollout.Resize = nil })
				w.script = []deployment.Decision{mark}
				w.fails, w.both = map[string]error{"ChangeNodes": failure}, true
				w.after(3*time.Second, with(sizing(), tainting), mark)
				w.after(9*time.Second, mark, mark, gone())
				run()
				sized := slices.Index(w.log, "ChangeSets")
				require.Positive(t, sized)
				require.Equal(t, []string{"ChangeSets", "ChangeNodes"}, w.log[sized:], "what is decided meanwhile is done")
				require.Equal(t, 10*time.Second, w.looks[len(w.looks)-1])
			})
		})
	}
}

// Node writes that have to be awaited also wait after a refusal, instead of being repeated at once.
func TestNodesThatCannotBeWrittenAreWaitedFor(t *testing.T) {
	writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
		w.script = []deployment.Decision{
			with(sizing(), func(d *deployment.Decision) { d.Rollout.Resize, d.Rollout.ClearUpdateLabels = nil, aTarget }),
			gone(),
		}
		w.fails, w.both = map[string]error{"ChangeNodes": temporal.NewTimeoutError(3, nil)}, true
		run()
		require.Equal(t, []string{"ChangeNodes", "ChangeNodes", "ReportDeployment"}, w.log, "once as a local activity")
		require.Equal(t, []time.Duration{0, 10 * time.Second}, w.looks)
	})
}

// The nodes for the next update are not selected twice: the activity that selects them is not a local one.
func TestNodesAreSelectedByARegularActivity(t *testing.T) {
	writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
		w.script = []deployment.Decision{
			with(sizing(), func(d *deployment.Decision) { d.Rollout.Resize, d.Rollout.Select = nil, aTarget }),
			gone(),
		}
		w.fails = map[string]error{"ChangeNodes": temporal.NewTimeoutError(3, nil)}
		run()
		require.Equal(
			t,
			[]string{"ChangeNodes", "ReportDeployment"},
			w.log,
			"a local activity would have been followed by another one",
		)
	})
}

func TestARolloutThatIsCancelledDoesNotWaitForARefusedWrite(t *testing.T) {
	w := newDeploymentWorld(t, sizing())
	w.answer(0)
	w.fails["ChangeSets"] = refusing()
	s := workflowstest.NewOperator(w.env, w.lock)
	w.env.RegisterDelayedCallback(w.env.CancelWorkflow, 3*time.Second)
	result := w.rollOut(t)
	require.Equal(t, []string{workflows.OutcomeCancelled, "3s"}, []string{result.Outcome, result.Took})
	require.Equal(t, request.Cancel, s.Orders[0].Order.Command)
	require.Equal(t, []string{"ChangeSets", "ReportDeployment"}, w.log)
}

// The deployment's status says why there is no set of its template, until there is one.
func TestASetThatIsRefusedIsReported(t *testing.T) {
	making := with(sizing(), func(d *deployment.Decision) {
		d.Rollout.Create, d.Rollout.Resize = &rollout.Creation{Revision: 7}, nil
	})
	counted := with(sizing(), func(d *deployment.Decision) { d.Rollout.Resize, d.Report = nil, true })
	w := newDeploymentWorld(t, making, making, counted, gone())
	w.answer(0)
	w.fails["CreateSet"] = refusing()
	w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.Ref, Continued: true})
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, []string{"CreateSet", "ReportDeployment", "CreateSet", "ReportDeployment"}, w.log)
	require.Equal(t, "quota exceeded", w.orders[1].(deployment.Report).NoSet)
	require.Empty(t, w.orders[3].(deployment.Report).NoSet)
}

// A deployment that is deleted needs no set any more: its status drops the refusal.
func TestADeploymentThatIsDeletedAfterItsSetWasRefused(t *testing.T) {
	making := with(sizing(), func(d *deployment.Decision) {
		d.Rollout.Create, d.Rollout.Resize = &rollout.Creation{Revision: 7}, nil
	})
	going := with(sizing(), func(d *deployment.Decision) {
		d.Pending.Need, d.Rollout.Resize, d.Report = attention.Deletion, nil, true
	})
	calm := with(going, func(d *deployment.Decision) { d.Report = false })
	w := newDeploymentWorld(t, making, going, calm)
	w.answer(0)
	w.fails["CreateSet"] = refusing()
	w.after(time.Minute, gone())
	w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.Ref, Continued: true})
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, []string{"CreateSet", "ReportDeployment", "ReportDeployment"}, w.log)
	require.Empty(t, w.orders[2].(deployment.Report).NoSet)
}

// The time since when a write has been refused does not change with each attempt.
func TestSinceWhenAWriteIsRefused(t *testing.T) {
	writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
		w.script = []deployment.Decision{sizing()}
		w.env.RegisterDelayedCallback(func() {
			defer w.lock()()
			w.fails["ChangeSets"] = refusing()
		}, 5*time.Second)
		w.after(15*time.Second, gone())
		run()
		var since []time.Duration
		for _, order := range w.orders {
			if report, is := order.(deployment.Report); is {
				since = append(since, report.Step.Since.Sub(w.begun).Round(time.Second))
			}
		}
		require.Equal(t, []time.Duration{0, 0}, since)
	})
}
