package workflows_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/activities"
	"millwright/decide/rollout"
	"millwright/workflows"
)

// marking is a decision that marks so many nodes that no local activity does it: such a one lets nothing in while it runs.
func marking(d activities.DeploymentDecision) activities.DeploymentDecision {
	d.Taint, d.Guard = slices.Repeat(aTarget, 20), slices.Repeat(aTarget, 20)
	return d
}

// Taints and the like hold up nobody, and are not set a second time meanwhile; but a rollout is over only when they are set.
func TestMarksAtNodesAreSetBesideWhatFollows(t *testing.T) {
	w := newDeploymentWorld(t, marking(awaiting(rollout.HeldByMachines)))
	w.answer(10 * time.Second)
	w.after(3*time.Second, marking(awaiting(rollout.HeldByMachines)))
	w.after(5*time.Second, complete())
	require.Equal(t, "10s", w.rollOut(t).Took)
	require.Equal(t, []string{"ChangeNodes"}, w.log)
	require.Equal(t, []time.Duration{0, 3 * time.Second, 5 * time.Second, 10 * time.Second}, w.looks)
	require.Empty(t, w.reads[2].Gate[activities.NodesResource])
	require.Equal(t, "33", w.reads[3].Gate[activities.NodesResource], "what was set is seen by the next decision")
}

func TestNodesThatAreSelectedAreAwaited(t *testing.T) {
	w := newDeploymentWorld(t, with(marking(awaiting(rollout.HeldByMachines)), func(d *activities.DeploymentDecision) { d.Select = aTarget }), complete())
	w.answer(10 * time.Second)
	w.after(3*time.Second, complete())
	w.rollOut(t)
	require.Equal(t, []time.Duration{0, 10 * time.Second}, w.looks)
}

// Only one workflow writes at a time: whoever ends waits for its last marks.
func TestARolloutEndsWhenItsMarksAreSet(t *testing.T) {
	for name, ends := range map[string]func(*deploymentWorld){
		workflows.OutcomeSuperseded: func(w *deploymentWorld) {
			w.after(3*time.Second, with(complete(), func(d *activities.DeploymentDecision) { d.Revision = 8 }))
		},
		workflows.OutcomeGone: func(w *deploymentWorld) { w.after(3*time.Second, gone()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentWorld(t, marking(awaiting(rollout.HeldByMachines)))
			w.answer(10 * time.Second)
			ends(w)
			result := w.rollOut(t)
			require.Equal(t, []string{name, "10s"}, []string{result.Outcome, result.Took})
			require.Equal(t, "33", result.Versions[activities.NodesResource])
		})
	}
}

// A deployment leaves the sets to a rollout when its own marks are set.
func TestARolloutStartsWhenTheMarksOfItsDeploymentAreSet(t *testing.T) {
	w := newDeploymentWorld(t, marking(with(awaiting(""), func(d *activities.DeploymentDecision) { d.Rolling = false })))
	w.beside = []activities.DeploymentDecision{complete()}
	w.answer(10 * time.Second)
	w.after(3*time.Second, moving("roll"), gone())
	w.env.RegisterWorkflow(workflows.Rollout)
	w.env.ExecuteWorkflow(workflows.MachineDeployment, workflows.Input{Ref: ref})
	require.NoError(t, w.env.GetWorkflowError())
	require.Len(t, w.besides, 1)
	require.False(t, w.besides[0].At.Before(w.begun.Add(10*time.Second)), w.besides[0].At)
}
