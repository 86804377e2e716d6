package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/api/v1alpha1"
	"millwright/observe/deployment"
	"millwright/observe/observetest"
)

// The facts about a sibling are those of its own decisions, without machines and without its siblings.
func TestSiblingsHaveFactsWithoutMachines(t *testing.T) {
	policy := policyWithTurns()
	f := deployment.ObjectTree{Deployment: observetest.NewDeployment("d"), Policy: policy}
	earlier, later := observetest.NewDeployment("a"), observetest.NewDeployment("e")
	earlier.Spec.Paused = true
	later.Status.Rollout = &v1alpha1.RolloutStatus{Turn: &v1alpha1.RolloutTurn{Since: *observetest.Now()}}
	set := newSetOfRevision("7")
	set.Status.Replicas = 3
	setsOf := func(d *v1alpha1.MachineDeployment) []*v1alpha1.MachineSet {
		if d.Name == "e" {
			return []*v1alpha1.MachineSet{set}
		}
		return nil
	}
	f = f.WithSiblings(
		[]*v1alpha1.RolloutPolicy{policy}, []*v1alpha1.MachineDeployment{later, f.Deployment, earlier}, setsOf,
	)
	turns := deployment.RolloutFacts(f, observetest.Noon).Turns
	require.Len(t, turns.Siblings, 2)
	e, a := turns.Siblings[0], turns.Siblings[1]
	assert.Equal(t, []any{"e", false, "a", true}, []any{e.Name, e.Earlier, a.Name, a.Earlier})
	assert.True(t, a.Facts.Paused)
	assert.False(t, e.Facts.Progress.Turn.Since.IsZero())
	require.Len(t, e.Facts.Sets, 1)
	assert.Equal(t, []any{7, 3}, []any{int(e.Facts.Sets[0].Revision), e.Facts.Sets[0].StatusMachineCount})
	assert.Zero(t, e.Facts.Turns, "a sibling has no siblings")
	f.Policy = nil
	assert.Zero(t, deployment.RolloutFacts(f, observetest.Noon).Turns)
}
