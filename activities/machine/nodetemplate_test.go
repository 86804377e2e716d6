package machine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
)

// A machine without a node template passes through its whole life cycle.
func TestLifecycleOfMachineWithoutNodeTemplate(t *testing.T) {
	t.Parallel()
	c := activitiestest.NewClass()
	require.Nil(t, c.NodeTemplate)
	m := activitiestest.NewMachine("m", activitiestest.WithoutFinalizers)
	w := activitiestest.NewWorld(t, m, c)
	o := activitiestest.NewCloudWorld(t, c)
	cloud := func(step any) cloud.InstanceAnswer {
		d := activitiestest.DecideMachine(w, activitiestest.NewReadInput(m))
		answer, err := o.RunActivity(
			step,
			cloud.InstanceCall{
				Machine:    activitiestest.NewRef(m),
				Class:      d.Class,
				ProviderID: d.ProviderID,
				NodeName:   d.NodeName,
				NeverTried: d.NeverTried,
			},
		)
		require.NoError(t, err)
		require.Nil(t, answer.Problem)
		return answer
	}

	assert.Equal(t, attention.NeedInstance, activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Need)
	activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).AddFinalizer, activitiestest.NewReadInput(m))
	w.AwaitCaches()
	_, err := activitiestest.RunActivity[machine.CreateIntentResult](
		w,
		newActivities(w.Kube).RecordCreateIntent,
		newCreationReport(m),
	)
	require.NoError(t, err)
	w.AwaitCaches()
	made := cloud(o.CreateInstance)
	activitiestest.RunActivityTwice[machine.RecordResult](
		w,
		newActivities(w.Kube).RecordInstance,
		machine.InstanceRecord{Read: activitiestest.NewReadInput(m), ProviderID: made.ProviderID, NodeName: made.NodeName},
	)
	reportMachine(w, machine.Report{Read: activitiestest.NewReadInput(m), Phase: "Pending", NodeName: made.NodeName})
	assert.Equal(t, attention.NeedNodeJoin, activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Need)

	w.CreateObjects(activitiestest.NewNode(func(n *corev1.Node) { n.Name = made.NodeName }))
	w.AwaitCaches()
	change := activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Health.Change
	require.NotNil(t, change)
	assert.True(t, change.Joined)
	reportMachine(w, machine.Report{Read: activitiestest.NewReadInput(m), Phase: change.Phase})
	activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).FinishJoin, activitiestest.NewReadInput(m))
	activitiestest.RunActivityTwice[kube.MinVersions](w, newActivities(w.Kube).SyncNode, activitiestest.NewReadInput(m))
	assert.Equal(t, attention.NeedNothing, activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Need)
	assert.Empty(
		t,
		activitiestest.ReadStoredObject[corev1.Node](w.TargetClient.Tracker(), "nodes", "", "m").Status.Capacity,
	)

	require.NoError(
		t,
		w.MachineClient.MachineV1alpha1().
			Machines(activitiestest.TestNamespace).
			Delete(t.Context(), "m", metav1.DeleteOptions{}),
	)
	w.AwaitCaches()
	assert.Equal(t, attention.NeedDeletion, activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Need)
	cloud(o.DeleteInstance)
	assert.Empty(t, o.Cloud.Instances())
	activitiestest.RunActivityTwice[any](
		w,
		newActivities(w.Kube).DeleteNode,
		machine.NodeRemoval{Machine: activitiestest.NewRef(m), NodeName: made.NodeName, ProviderID: made.ProviderID},
	)
	_, err = activitiestest.RunActivity[string](
		w,
		newActivities(w.Kube).ReleaseMachine,
		machine.ReleaseInput{ReadInput: activitiestest.NewReadInput(m)},
	)
	require.NoError(t, err)
	assert.Nil(t, w.Machine("m"))
}

func TestDecideMachineReportsUnusableClass(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m")
	for name, row := range map[string]struct {
		w      *activitiestest.World
		reason string
	}{
		"missing":                   {activitiestest.NewWorld(t, m), "ClassNotFound"},
		"no provider":               {activitiestest.NewWorld(t, m, activitiestest.NewClass(func(c *v1alpha1.MachineClass) { c.Provider = "" })), "ClassInvalid"},
		"a provider of no queue":    {activitiestest.NewWorld(t, m, activitiestest.NewClass(func(c *v1alpha1.MachineClass) { c.Provider = "A b" })), "ClassInvalid"},
		"no Secret":                 {activitiestest.NewWorld(t, m, activitiestest.NewClass()), ""},
		"a Secret":                  {activitiestest.NewWorld(t, m, activitiestest.NewClassWithSecrets("a", "b")), ""},
		"no finalizer":              {activitiestest.NewWorld(t, m, activitiestest.NewClass(activitiestest.WithoutFinalizers[*v1alpha1.MachineClass])), ""},
		"a node template":           {activitiestest.NewWorld(t, m, activitiestest.NewClass(activitiestest.WithVirtualCapacity)), ""},
		"one that is being deleted": {activitiestest.NewWorld(t, m, activitiestest.NewClass(activitiestest.WithDeletionTimestamp[*v1alpha1.MachineClass])), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := activitiestest.DecideMachine(row.w, activitiestest.NewReadInput(m))
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
