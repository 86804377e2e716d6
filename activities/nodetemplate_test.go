package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
)

// A whole life, from the object to its end, without a word on what nodes look like.
func TestN9_ClassWithoutANodeTemplate(t *testing.T) {
	t.Parallel()
	c := class()
	require.Nil(t, c.NodeTemplate, "D6")
	m := machine("m", bare)
	w := newWorld(t, m, c)
	o := newOffice(t, c)
	cloud := func(step any) activities.InstanceAnswer {
		d := decideMachine(w, read(m))
		answer, err := o.ask(step, activities.InstanceCall{Machine: ref(m), Class: d.Class, ProviderID: d.ProviderID, NodeName: d.NodeName, NeverTried: d.NeverTried})
		require.NoError(t, err)
		require.Nil(t, answer.Problem)
		return answer
	}

	assert.Equal(t, attention.Instance, decideMachine(w, read(m)).Need)
	twice[string](w, w.PrepareMachine, read(m))
	w.settle()
	_, err := run[activities.Begun](w, w.BeginCreation, begin(m))
	require.NoError(t, err)
	w.settle()
	made := cloud(o.CreateInstance)
	twice[activities.Record](w, w.RecordInstance, activities.Recorded{Read: read(m), ProviderID: made.ProviderID, NodeName: made.NodeName})
	reportMachine(w, activities.MachineReport{Read: read(m), Phase: "Pending"})
	assert.Equal(t, attention.Node, decideMachine(w, read(m)).Need)

	w.create(node(func(n *corev1.Node) { n.Name = made.NodeName }))
	w.settle()
	change := decideMachine(w, read(m)).Health.Change
	require.NotNil(t, change)
	assert.True(t, change.Joined)
	reportMachine(w, activities.MachineReport{Read: read(m), Phase: change.Phase})
	twice[string](w, w.FinishJoin, read(m))
	twice[activities.Gate](w, w.SyncNode, read(m))
	assert.Equal(t, attention.Nothing, decideMachine(w, read(m)).Need)
	assert.Empty(t, stored[corev1.Node](w.target.Tracker(), "nodes", "", "m").Status.Capacity)

	require.NoError(t, w.machines.MachineV1alpha1().Machines(shop).Delete(t.Context(), "m", metav1.DeleteOptions{}))
	w.settle()
	assert.Equal(t, attention.Deletion, decideMachine(w, read(m)).Need)
	cloud(o.DeleteInstance)
	assert.Empty(t, o.cloud.Instances())
	twice[any](w, w.DeleteNode, activities.NodeRemoval{Machine: ref(m), NodeName: made.NodeName, ProviderID: made.ProviderID})
	_, err = run[string](w, w.ReleaseMachine, activities.Releasing{Read: read(m)})
	require.NoError(t, err)
	assert.Nil(t, w.machine("m"))
}

func TestU171_ClassValidation(t *testing.T) {
	t.Parallel()
	m := machine("m")
	for name, row := range map[string]struct {
		w      *world
		reason string
	}{
		"U171: missing":                   {newWorld(t, m), "ClassNotFound"},
		"U171: no provider":               {newWorld(t, m, class(func(c *v1alpha1.MachineClass) { c.Provider = "" })), "ClassInvalid"},
		"U171: a provider of no queue":    {newWorld(t, m, class(func(c *v1alpha1.MachineClass) { c.Provider = "A b" })), "ClassInvalid"},
		"U171: no Secret":                 {newWorld(t, m, class()), ""},
		"U171: a Secret":                  {newWorld(t, m, withSecrets("a", "b")), ""},
		"U171: no finalizer":              {newWorld(t, m, class(bare[*v1alpha1.MachineClass])), ""},
		"U171: a node template":           {newWorld(t, m, class(rich)), ""},
		"U171: one that is being deleted": {newWorld(t, m, class(going[*v1alpha1.MachineClass])), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := decideMachine(row.w, read(m))
			if row.reason == "" {
				assert.Nil(t, d.Problem)
				assert.Equal(t, "fake", d.Provider)
				return
			}
			require.NotNil(t, d.Problem)
			assert.Equal(t, row.reason, d.Problem.Reason)
			assert.Empty(t, d.Provider)
		})
	}
}
