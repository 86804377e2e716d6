package activities_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/activities"
	"millwright/api/v1alpha1"
)

// blocked makes a machine one whose instance its provider does not make.
func blocked(reason, message string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
		m.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.MachineInstanceReady, Status: "False", Reason: reason, Message: message}}
	}
}

// change writes the status of a machine as change leaves it.
func (w *world) change(name string, change func(*v1alpha1.Machine)) {
	w.t.Helper()
	m := w.machine(name).DeepCopy()
	change(m)
	w.rewrite(m)
	w.forget()
}

func TestASetSaysWhyItsMachinesGetNoInstance(t *testing.T) {
	t.Parallel()
	s := counted(set("s", 3), 3, 1)
	of := ownedBy[*v1alpha1.Machine](s)
	w := newWorld(t, s, machine("b", of, blocked("ResourceExhausted", "no room for b")), machine("a", of, blocked("ResourceExhausted", "no room for a")),
		machine("c", of, phase(v1alpha1.MachineRunning)))
	failures := func(status v1alpha1.MachineSetStatus) []v1alpha1.MachineSetCondition {
		return slices.DeleteFunc(status.Conditions, func(c v1alpha1.MachineSetCondition) bool { return c.Type != v1alpha1.MachineSetReplicaFailure })
	}
	conditions := func() []v1alpha1.MachineSetCondition {
		return failures(reportSet(w, activities.SetReport{SetRead: setRead(s)}))
	}

	assert.True(t, decideScale(w, read(s)).Report)
	list := conditions()
	require.Len(t, list, 1)
	first := list[0]
	assert.Equal(t, []string{"ReplicaFailure", "True", "ResourceExhausted", "machines get no instance; machine a: no room for a"},
		[]string{string(first.Type), string(first.Status), first.Reason, first.Message})
	assert.False(t, first.LastTransitionTime.IsZero())
	assert.False(t, decideScale(w, read(s)).Report)

	t.Run("another sentence is no news", func(t *testing.T) {
		w.change("a", blocked("ResourceExhausted", "no room, request 2"))
		assert.False(t, decideScale(w, read(s)).Report)
		assert.Equal(t, list, conditions())
		assert.Empty(t, w.writes())
	})
	t.Run("nor is it when one of them is made", func(t *testing.T) {
		w.change("b", phase(v1alpha1.MachinePending))
		assert.Equal(t, list, conditions())
	})
	t.Run("another reason is", func(t *testing.T) {
		w.change("a", blocked("Unauthenticated", strings.Repeat("x", 5000)))
		assert.True(t, decideScale(w, read(s)).Report)
		list := conditions()
		require.Len(t, list, 1)
		assert.Equal(t, "Unauthenticated", list[0].Reason)
		assert.Less(t, len(list[0].Message), 1010)
	})
	t.Run("it is gone when none is blocked", func(t *testing.T) {
		w.change("a", phase(v1alpha1.MachinePending))
		assert.True(t, decideScale(w, read(s)).Report)
		assert.Empty(t, conditions())
		assert.False(t, decideScale(w, read(s)).Report)
	})
	t.Run("what is to go is not waited for", func(t *testing.T) {
		s := counted(set("s", 1), 1, 0)
		m := machine("m", ownedBy[*v1alpha1.Machine](s), blocked("ResourceExhausted", "no room"), going[*v1alpha1.Machine])
		assert.Empty(t, failures(reportSet(newWorld(t, s, m), activities.SetReport{SetRead: setRead(s)})))
	})
}

func TestADeploymentSaysWhyItsMachinesGetNoInstance(t *testing.T) {
	t.Parallel()
	d := deployment("d", 2)
	failing := func(reason, message string) func(*v1alpha1.MachineSet) {
		return func(s *v1alpha1.MachineSet) {
			s.Status.Conditions = []v1alpha1.MachineSetCondition{{Type: v1alpha1.MachineSetReplicaFailure, Status: "True", Reason: reason, Message: message}}
		}
	}
	w := newWorld(t, d, counted(owned(d, "a", 1), 1, 1), with(counted(owned(d, "b", 1), 1, 0), []func(*v1alpha1.MachineSet){failing("ResourceExhausted", "no room")}))
	failure := func() *v1alpha1.MachineDeploymentCondition {
		for _, c := range reportDeployment(w, activities.DeploymentReport{DeploymentRead: deploymentRead(d)}).Conditions {
			if c.Type == v1alpha1.MachineDeploymentReplicaFailure {
				return &c
			}
		}
		return nil
	}
	assert.True(t, decideDeployment(w, read(d)).Report)
	c := failure()
	require.NotNil(t, c)
	assert.Equal(t, []string{"True", "ResourceExhausted", "no room"}, []string{string(c.Status), c.Reason, c.Message})
	assert.False(t, decideDeployment(w, read(d)).Report)

	t.Run("of several reasons it says one", func(t *testing.T) {
		a := w.set("a")
		failing("Unauthenticated", "wrong key")(a)
		w.rewrite(a)
		assert.True(t, decideDeployment(w, read(d)).Report)
		c := failure()
		require.NotNil(t, c)
		assert.Equal(t, []string{"Unauthenticated", "wrong key"}, []string{c.Reason, c.Message})
		assert.False(t, decideDeployment(w, read(d)).Report)
	})
	t.Run("it is gone with those of the sets", func(t *testing.T) {
		for _, name := range []string{"a", "b"} {
			s := w.set(name)
			s.Status.Conditions = nil
			w.rewrite(s)
		}
		assert.True(t, decideDeployment(w, read(d)).Report)
		assert.Nil(t, failure())
		assert.False(t, decideDeployment(w, read(d)).Report)
	})
}
