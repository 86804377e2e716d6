package set_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
)

func TestReplicaFailureOfASetSaysWhyInstancesAreMissing(t *testing.T) {
	t.Parallel()
	s := activitiestest.WithSetCounts(activitiestest.NewMachineSet("s", 3), 3, 1)
	of := activitiestest.WithOwner[*v1alpha1.Machine](s)
	w := activitiestest.NewWorld(
		t,
		s,
		activitiestest.NewMachine("b", of, activitiestest.WithInstanceNotReady("ResourceExhausted", "no room for b")),
		activitiestest.NewMachine("a", of, activitiestest.WithInstanceNotReady("ResourceExhausted", "no room for a")),
		activitiestest.NewMachine("c", of, activitiestest.WithPhase(v1alpha1.MachineRunning)),
	)
	failures := func(status v1alpha1.MachineSetStatus) []v1alpha1.MachineSetCondition {
		return slices.DeleteFunc(
			status.Conditions,
			func(c v1alpha1.MachineSetCondition) bool { return c.Type != v1alpha1.MachineSetReplicaFailure },
		)
	}
	conditions := func() []v1alpha1.MachineSetCondition {
		return failures(reportSet(w, set.Report{Input: activitiestest.NewSetInput(s)}))
	}

	assert.True(t, decideSet(w, activitiestest.NewReadInput(s)).Report)
	list := conditions()
	require.Len(t, list, 1)
	first := list[0]
	assert.Equal(
		t,
		[]string{"ReplicaFailure", "True", "ResourceExhausted", "machines get no instance; machine a: no room for a"},
		[]string{string(first.Type), string(first.Status), first.Reason, first.Message},
	)
	assert.False(t, first.LastTransitionTime.IsZero())
	assert.False(t, decideSet(w, activitiestest.NewReadInput(s)).Report)

	t.Run("another sentence is no news", func(t *testing.T) {
		w.ChangeMachineStatus("a", activitiestest.WithInstanceNotReady("ResourceExhausted", "no room, request 2"))
		assert.False(t, decideSet(w, activitiestest.NewReadInput(s)).Report)
		assert.Equal(t, list, conditions())
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("nor is it when one of them is made", func(t *testing.T) {
		w.ChangeMachineStatus("b", activitiestest.WithPhase(v1alpha1.MachinePending))
		assert.Equal(t, list, conditions())
	})
	t.Run("another reason is", func(t *testing.T) {
		w.ChangeMachineStatus("a", activitiestest.WithInstanceNotReady("Unauthenticated", strings.Repeat("x", 5000)))
		assert.True(t, decideSet(w, activitiestest.NewReadInput(s)).Report)
		list := conditions()
		require.Len(t, list, 1)
		assert.Equal(t, "Unauthenticated", list[0].Reason)
		assert.Less(t, len(list[0].Message), 1010)
	})
	t.Run("it is gone when none is blocked", func(t *testing.T) {
		w.ChangeMachineStatus("a", activitiestest.WithPhase(v1alpha1.MachinePending))
		assert.True(t, decideSet(w, activitiestest.NewReadInput(s)).Report)
		assert.Empty(t, conditions())
		assert.False(t, decideSet(w, activitiestest.NewReadInput(s)).Report)
	})
	t.Run("what is being deleted is not waited for", func(t *testing.T) {
		s := activitiestest.WithSetCounts(activitiestest.NewMachineSet("s", 1), 1, 0)
		m := activitiestest.NewMachine(
			"m",
			activitiestest.WithOwner[*v1alpha1.Machine](s),
			activitiestest.WithInstanceNotReady("ResourceExhausted", "no room"),
			activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
		)
		assert.Empty(
			t,
			failures(reportSet(activitiestest.NewWorld(t, s, m), set.Report{Input: activitiestest.NewSetInput(s)})),
		)
	})
}

func TestReplicaFailureOfASetIsCopiedToItsDeployment(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 2)
	failing := func(reason, message string) func(*v1alpha1.MachineSet) {
		return func(s *v1alpha1.MachineSet) {
			s.Status.Conditions = []v1alpha1.MachineSetCondition{
				{Type: v1alpha1.MachineSetReplicaFailure, Status: "True", Reason: reason, Message: message},
			}
		}
	}
	w := activitiestest.NewWorld(
		t,
		d,
		activitiestest.WithSetCounts(activitiestest.NewOwnedSet(d, "a", 1), 1, 1),
		activitiestest.ApplyChanges(
			activitiestest.WithSetCounts(activitiestest.NewOwnedSet(d, "b", 1), 1, 0),
			[]func(*v1alpha1.MachineSet){failing("ResourceExhausted", "no room")},
		),
	)
	failure := func() *v1alpha1.MachineDeploymentCondition {
		for _, c := range activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)}).Conditions {
			if c.Type == v1alpha1.MachineDeploymentReplicaFailure {
				return &c
			}
		}
		return nil
	}
	assert.True(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Report)
	c := failure()
	require.NotNil(t, c)
	assert.Equal(t, []string{"True", "ResourceExhausted", "no room"}, []string{string(c.Status), c.Reason, c.Message})
	assert.False(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Report)

	t.Run("of several reasons it says one", func(t *testing.T) {
		a := w.MachineSet("a")
		failing("Unauthenticated", "wrong key")(a)
		w.WriteStatus(a)
		assert.True(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Report)
		c := failure()
		require.NotNil(t, c)
		assert.Equal(t, []string{"Unauthenticated", "wrong key"}, []string{c.Reason, c.Message})
		assert.False(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Report)
	})
	t.Run("it is gone with those of the sets", func(t *testing.T) {
		for _, name := range []string{"a", "b"} {
			s := w.MachineSet(name)
			s.Status.Conditions = nil
			w.WriteStatus(s)
		}
		assert.True(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Report)
		assert.Nil(t, failure())
		assert.False(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Report)
	})
}
