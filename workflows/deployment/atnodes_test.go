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

// marking is a decision that marks more nodes than FewWrites, so that no local activity does it: a local one delays
// signals.
func marking(d deployment.Decision) deployment.Decision {
	d.Rollout.Taint, d.Rollout.ProtectFromAutoscaler = slices.Repeat(aTarget, 20), slices.Repeat(aTarget, 20)
	return d
}

// Marks delay no other write, and are not written twice at the same time; but a rollout ends only after they are
// written.
func TestMarksAtNodesAreSetBesideWhatFollows(t *testing.T) {
	w := newDeploymentWorld(t, marking(awaiting(rollout.HeldByMachines)))
	w.answer(10 * time.Second)
	w.after(3*time.Second, marking(awaiting(rollout.HeldByMachines)))
	w.after(5*time.Second, complete())
	require.Equal(t, "10s", w.rollOut(t).Took)
	require.Equal(t, []string{"ChangeNodes"}, w.log)
	require.Equal(t, []time.Duration{0, 3 * time.Second, 5 * time.Second, 10 * time.Second}, w.looks)
	require.Empty(t, w.reads[2].Versions[kube.NodesResource])
	require.Equal(t, "33", w.reads[3].Versions[kube.NodesResource], "what was set is seen by the next decision")
}

func TestNodesThatAreSelectedAreAwaited(t *testing.T) {
	w := newDeploymentWorld(
		t,
		with(marking(awaiting(rollout.HeldByMachines)), func(d *deployment.Decision) { d.Rollout.Select = aTarget }),
		complete(),
	)
	w.answer(10 * time.Second)
	w.after(3*time.Second, complete())
	w.rollOut(t)
	require.Equal(t, []time.Duration{0, 10 * time.Second}, w.looks)
}

// Only one workflow writes at a time: a rollout that ends waits for its last marks.
func TestARolloutEndsWhenItsMarksAreSet(t *testing.T) {
	for name, ends := range map[string]func(*deploymentWorld){
		workflows.OutcomeSuperseded: func(w *deploymentWorld) {
			w.after(3*time.Second, with(complete(), func(d *deployment.Decision) { d.Rollout.Revision = 8 }))
		},
		run.OutcomeGone: func(w *deploymentWorld) { w.after(3*time.Second, gone()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentWorld(t, marking(awaiting(rollout.HeldByMachines)))
			w.answer(10 * time.Second)
			ends(w)
			result := w.rollOut(t)
			require.Equal(t, []string{name, "10s"}, []string{result.Outcome, result.Took})
			require.Equal(t, "33", result.Versions[kube.NodesResource])
		})
	}
}

// A deployment starts its rollout after its own marks are written.
func TestARolloutStartsWhenTheMarksOfItsDeploymentAreSet(t *testing.T) {
	w := newDeploymentWorld(t, marking(with(awaiting(""), func(d *deployment.Decision) { d.Rollout.Rolling = false })))
	w.beside = []deployment.Decision{complete()}
	w.answer(10 * time.Second)
	w.after(3*time.Second, moving("roll"), gone())
	w.env.RegisterWorkflow(workflows.Rollout)
	w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.Ref})
	require.NoError(t, w.env.GetWorkflowError())
	require.Len(t, w.besides, 1)
	require.False(t, w.besides[0].At.Before(w.begun.Add(10*time.Second)), w.besides[0].At)
}
