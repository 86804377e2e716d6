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
	d := activitiestest.Deployment("d", 3)
	s := activitiestest.Owned(d, "s", 3)
	m := activitiestest.Machine("m", activitiestest.OwnedBy[*v1alpha1.Machine](s))
	c := activitiestest.Class()
	w := activitiestest.NewWorld(t, d, s, m, c)
	w.Cluster.Scope.Except = []string{d.Namespace}

	assert.True(t, activitiestest.DecideMachine(w, activitiestest.Read(m)).Gone)
	assert.True(t, activitiestest.DecideMachine(w, activitiestest.Live(m)).Gone)
	ofSet, err := activitiestest.Run[set.Decision](
		w,
		(&set.Activities{Kube: w.Kube}).DecideSet,
		set.Input{Read: activitiestest.Read(s)},
	)
	require.NoError(t, err)
	assert.True(t, ofSet.Gone)
	ofDeployment, err := activitiestest.Run[deployment.Decision](
		w, (&deployment.Activities{Kube: w.Kube}).DecideDeployment, deployment.Input{Read: activitiestest.Read(d)})
	require.NoError(t, err)
	assert.True(t, ofDeployment.Gone)
	ofClass, err := activitiestest.Run[class.Decision](
		w,
		(&class.Activities{Kube: w.Kube}).DecideClass,
		activitiestest.Read(c),
	)
	require.NoError(t, err)
	assert.True(t, ofClass.Gone)
	for _, in := range []request.Request{
		activitiestest.Ordered(m, decide.Order{Command: decide.Hold, Actor: "ann", Reason: "look", InAdvance: true}),
		{Kind: decide.MachineDeployment, Object: activitiestest.Read(d).Ref, Order: decide.Order{Command: decide.Pause, Actor: "ann"}},
	} {
		answer, err := activitiestest.Run[request.Answer](w, (&request.Activities{Kube: w.Kube}).ApplyRequest, in)
		require.NoError(t, err)
		assert.False(t, answer.Applied)
		assert.Contains(t, answer.Message, "Millwright does not act on namespace shop: ")
	}
	assert.Empty(t, w.Writes())
	assert.Empty(t, w.NewEvents())
}
