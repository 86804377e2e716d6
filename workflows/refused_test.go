package workflows_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/temporal"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/decide/steer"
	"millwright/workflows"
)

// refusing is how a write ends that the API server refused.
func refusing() error {
	return temporal.NewNonRetryableApplicationError("quota exceeded", activities.TypeRefused, nil)
}

// sizing is a step whose write may be refused, for a deployment's workflow as for its rollout.
func sizing() activities.DeploymentDecision {
	return with(moving("grow"), func(d *activities.DeploymentDecision) { d.Rolling = false })
}

// writers are the workflows that write the sets of a deployment. Each runs until the world says gone.
func writers(t *testing.T, test func(t *testing.T, w *deploymentWorld, run func())) {
	for name, run := range map[string]func(*deploymentWorld){
		"deployment": func(w *deploymentWorld) {
			w.env.ExecuteWorkflow(workflows.MachineDeployment, workflows.Input{Ref: ref, Continued: true})
		},
		"rollout": func(w *deploymentWorld) {
			w.env.ExecuteWorkflow(workflows.Rollout, workflows.RolloutInput{Input: workflows.Input{Ref: ref, Continued: true}, Revision: 7})
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
		require.Equal(t, []bool{false, true, false}, []bool{w.reads[0].Live, w.reads[1].Live, w.reads[2].Live}, "what was refused may look otherwise by now")
	})
}

func TestAWriteThatIsRefusedAgainIsWaitedForAgain(t *testing.T) {
	writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
		w.env.RegisterDelayedCallback(func() {
			defer w.lock()()
			w.fails["ChangeSets"] = refusing()
		}, 5*time.Second)
		run()
		require.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second}, w.looks)
	})
}

func TestAChangeWakesWhoWaitsAfterARefusedWrite(t *testing.T) {
	writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
		w.env.RegisterDelayedCallback(func() { changed(w.env) }, 3*time.Second)
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
			during = []any{w.shown["Stage"], w.shown["BlockedBy"], w.shown["Stuck"]}
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

// Sizes stand when nodes cannot be marked: what is decided meanwhile is done, and nodes are marked again after a while.
func TestNodesThatCannotBeMarkedAreMarkedLater(t *testing.T) {
	for name, failure := range map[string]error{"it took too long": temporal.NewTimeoutError(3, nil), "refused": refusing()} {
		t.Run(name, func(t *testing.T) {
			writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
				tainting := func(d *activities.DeploymentDecision) { d.Taint = aTarget }
				mark := with(with(sizing(), tainting), func(d *activities.DeploymentDecision) { d.Resize = nil })
				w.script = []activities.DeploymentDecision{mark}
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

// Nodes that have to be awaited are waited out likewise, and not written again at once.
func TestNodesThatCannotBeWrittenAreWaitedFor(t *testing.T) {
	writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
		w.script = []activities.DeploymentDecision{with(sizing(), func(d *activities.DeploymentDecision) { d.Resize, d.Strip = nil, aTarget }), gone()}
		w.fails, w.both = map[string]error{"ChangeNodes": temporal.NewTimeoutError(3, nil)}, true
		run()
		require.Equal(t, []string{"ChangeNodes", "ChangeNodes", "ReportDeployment"}, w.log, "once as a local activity")
		require.Equal(t, []time.Duration{0, 10 * time.Second}, w.looks)
	})
}

// Which nodes are updated next is not decided twice: what selects them is no local activity.
func TestNodesAreSelectedByARegularActivity(t *testing.T) {
	writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
		w.script = []activities.DeploymentDecision{with(sizing(), func(d *activities.DeploymentDecision) { d.Resize, d.Select = nil, aTarget }), gone()}
		w.fails = map[string]error{"ChangeNodes": temporal.NewTimeoutError(3, nil)}
		run()
		require.Equal(t, []string{"ChangeNodes", "ReportDeployment"}, w.log, "a local activity would have been followed by another one")
	})
}

func TestARolloutThatIsCancelledDoesNotWaitForARefusedWrite(t *testing.T) {
	w := newDeploymentWorld(t, sizing())
	w.answer(0)
	w.fails["ChangeSets"] = refusing()
	s := newWheel(w)
	w.env.RegisterDelayedCallback(w.env.CancelWorkflow, 3*time.Second)
	result := w.rollOut(t)
	require.Equal(t, []string{workflows.OutcomeCancelled, "3s"}, []string{result.Outcome, result.Took})
	require.Equal(t, steer.Cancel, s.orders[0].Order.Verb)
	require.Equal(t, []string{"ChangeSets", "ReportDeployment"}, w.log)
}

// Whoever looks at the deployment reads why there is no set of its template, until there is one.
func TestASetThatIsRefusedIsReported(t *testing.T) {
	making := with(sizing(), func(d *activities.DeploymentDecision) { d.Create, d.Resize = &rollout.Creation{Revision: 7}, nil })
	counted := with(sizing(), func(d *activities.DeploymentDecision) { d.Resize, d.Report = nil, true })
	w := newDeploymentWorld(t, making, making, counted, gone())
	w.answer(0)
	w.fails["CreateSet"] = refusing()
	w.env.ExecuteWorkflow(workflows.MachineDeployment, workflows.Input{Ref: ref, Continued: true})
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, []string{"CreateSet", "ReportDeployment", "CreateSet", "ReportDeployment"}, w.log)
	require.Equal(t, "quota exceeded", w.orders[1].(activities.DeploymentReport).NoSet)
	require.Empty(t, w.orders[3].(activities.DeploymentReport).NoSet)
}

// One that is deleted after that has no such set to make: what its status says of it is over.
func TestADeploymentThatIsDeletedAfterItsSetWasRefused(t *testing.T) {
	making := with(sizing(), func(d *activities.DeploymentDecision) { d.Create, d.Resize = &rollout.Creation{Revision: 7}, nil })
	going := with(sizing(), func(d *activities.DeploymentDecision) { d.Need, d.Resize, d.Report = attention.Deletion, nil, true })
	calm := with(going, func(d *activities.DeploymentDecision) { d.Report = false })
	w := newDeploymentWorld(t, making, going, calm)
	w.answer(0)
	w.fails["CreateSet"] = refusing()
	w.after(time.Minute, gone())
	w.env.ExecuteWorkflow(workflows.MachineDeployment, workflows.Input{Ref: ref, Continued: true})
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, []string{"CreateSet", "ReportDeployment", "ReportDeployment"}, w.log)
	require.Empty(t, w.orders[2].(activities.DeploymentReport).NoSet)
}

// Since when it has been refused is told as it is, however often it is tried again.
func TestSinceWhenAWriteIsRefused(t *testing.T) {
	writers(t, func(t *testing.T, w *deploymentWorld, run func()) {
		w.script = []activities.DeploymentDecision{sizing()}
		w.env.RegisterDelayedCallback(func() {
			defer w.lock()()
			w.fails["ChangeSets"] = refusing()
		}, 5*time.Second)
		w.after(15*time.Second, gone())
		run()
		var since []time.Duration
		for _, order := range w.orders {
			if report, is := order.(activities.DeploymentReport); is {
				since = append(since, report.Step.Since.Sub(w.begun).Round(time.Second))
			}
		}
		require.Equal(t, []time.Duration{0, 0}, since)
	})
}
