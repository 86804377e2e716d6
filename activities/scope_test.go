package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities/activitiestest"
	"millwright/activities/class"
	"millwright/activities/deployment"
	"millwright/activities/request"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	decide "millwright/decide/request"
)

// In a namespace that Millwright does not manage, a run treats its object as gone, and nothing is written.
func TestUnmanagedNamespaceIsIgnored(t *testing.T) {
	d := activitiestest.NewDeployment("d", 3)
	s := activitiestest.NewOwnedSet(d, "s", 3)
	m := activitiestest.NewMachine("m", activitiestest.WithOwner[*v1alpha1.Machine](s))
	c := activitiestest.NewClass()
	w := activitiestest.NewWorld(t, d, s, m, c)
	w.Cluster.Scope.ExceptNamespaces = []string{d.Namespace}

	assert.True(t, activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Gone)
	assert.True(t, activitiestest.DecideMachine(w, activitiestest.NewLiveReadInput(m)).Gone)
	ofSet, err := activitiestest.RunActivity[set.Decision](
		w,
		(&set.Activities{Kube: w.Kube}).DecideSet,
		set.Input{ReadInput: activitiestest.NewReadInput(s)},
	)
	require.NoError(t, err)
	assert.True(t, ofSet.Gone)
	ofDeployment, err := activitiestest.RunActivity[deployment.Decision](
		w,
		(&deployment.Activities{Kube: w.Kube}).DecideDeployment,
		deployment.Input{ReadInput: activitiestest.NewReadInput(d)},
	)
	require.NoError(t, err)
	assert.True(t, ofDeployment.Gone)
	ofClass, err := activitiestest.RunActivity[class.Decision](
		w,
		(&class.Activities{Kube: w.Kube}).DecideClass,
		activitiestest.NewReadInput(c),
	)
	require.NoError(t, err)
	assert.True(t, ofClass.Gone)
	for _, in := range []request.Request{
		activitiestest.NewMachineRequest(m, decide.CommandOrder{Command: decide.Hold, Actor: "ann", Reason: "look", ValidInAdvance: true}),
		{Kind: decide.KindMachineDeployment, Object: activitiestest.NewReadInput(d).Ref, Order: decide.CommandOrder{Command: decide.Pause, Actor: "ann"}},
	} {
		answer, err := activitiestest.RunActivity[request.Answer](w, (&request.Activities{Kube: w.Kube}).ApplyRequest, in)
		require.NoError(t, err)
		assert.False(t, answer.Applied)
		assert.Contains(t, answer.Message, "Millwright does not act on namespace shop: ")
	}
	assert.Empty(t, w.MutatingRequests())
	assert.Empty(t, w.TakeNewEvents())
}
