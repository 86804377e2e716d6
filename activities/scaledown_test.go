package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe"
)

func remove(s *v1alpha1.MachineSet, machines ...*v1alpha1.Machine) activities.Batch {
	d := activities.Batch{Set: ref(s)}
	for _, m := range machines {
		d.Machines = append(d.Machines, scale.Target{Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, Why: "surplus"})
	}
	return d
}

func isGoing(m *v1alpha1.Machine) bool { return m != nil && m.DeletionTimestamp != nil }

func TestDeleteMachines(t *testing.T) {
	t.Parallel()
	s := set("s", 0)
	t.Run("deletes what was seen, if it still is what was seen", func(t *testing.T) {
		m := machine("m", ownedBy[*v1alpha1.Machine](s))
		w := newWorld(t, s, m)
		_, err := run[any](w, w.DeleteMachines, remove(s, m))
		require.NoError(t, err)
		assert.True(t, isGoing(w.machine("m")), "its own workflow does the rest")
		assert.Equal(t, []string{"Normal SuccessfulDelete Deleted Machine: m: surplus"}, w.told())

		sent := w.machines.Actions()[0].(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
		require.NotNil(t, sent)
		assert.Equal(t, []string{"uid-m", "900"}, []string{string(*sent.UID), *sent.ResourceVersion})
	})
	t.Run("run again it meets the version that it made itself, and deletes nothing else", func(t *testing.T) {
		m := machine("m", ownedBy[*v1alpha1.Machine](s))
		w := newWorld(t, s, m, machine("other"))
		_, err := run[any](w, w.DeleteMachines, remove(s, m))
		require.NoError(t, err)
		before := w.snapshot()
		_, err = run[any](w, w.DeleteMachines, remove(s, m))
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Equal(t, before, w.snapshot())
	})
	t.Run("a machine that is gone is deleted", func(t *testing.T) {
		w := newWorld(t, s)
		twice[any](w, w.DeleteMachines, remove(s, machine("m")))
	})
	t.Run("U57: a machine that changed is left alone, and said so when the others are done", func(t *testing.T) {
		changed, replaced, a, b := machine("changed"), machine("replaced"), machine("a"), machine("b")
		w := newWorld(t, s, changed, replaced, a, b)
		w.edit(observe.Machines, "changed", annotated(v1alpha1.AnnotationMachinePriority, "100"))
		batch := remove(s, changed, replaced, a, b)
		batch.Machines[1].UID = "uid-of-a-former-one"
		_, err := run[any](w, w.DeleteMachines, batch)
		assertFailure(t, err, activities.TypeConflict, false)
		assert.False(t, isGoing(w.machine("changed")))
		assert.False(t, isGoing(w.machine("replaced")))
		assert.True(t, isGoing(w.machine("a")))
		assert.True(t, isGoing(w.machine("b")))
		assert.Len(t, w.told(), 2, "people hear of those that were deleted")
	})
	t.Run("an API server that is away is tried again", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, s, m)
		failing(w.machines, "delete", "machines", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := run[any](w, w.DeleteMachines, remove(s, m))
		_, retryable := failure(t, err)
		assert.True(t, retryable)
		_, err = run[any](w, w.DeleteMachines, remove(s, m))
		require.NoError(t, err)
		assert.True(t, isGoing(w.machine("m")))
	})
}

func reportSet(w *world, in activities.SetReport) v1alpha1.MachineSetStatus {
	w.t.Helper()
	version := twice[string](w, w.ReportSet, in)
	s := w.set(in.Ref.Name)
	assert.Equal(w.t, s.ResourceVersion, version, "the version to wait for")
	return s.Status
}

func TestReportSet(t *testing.T) {
	t.Parallel()
	s := set("s", 4)
	s.Generation = 7
	failed := func(m *v1alpha1.Machine) {
		m.Status.LastOperation = v1alpha1.LastOperation{Type: "Create", State: "Failed", Description: "no capacity"}
		m.Spec.ProviderID = "fake:///i-1"
	}
	of := ownedBy[*v1alpha1.Machine](s)
	w := newWorld(t, s, machine("z", of, failed), machine("a", of, failed, phase(v1alpha1.MachineFailed)),
		machine("running", of, phase(v1alpha1.MachineRunning)), machine("going", of, going[*v1alpha1.Machine], phase(v1alpha1.MachineTerminating)), machine("foreign"))
	status := reportSet(w, activities.SetReport{SetRead: activities.SetRead{Read: read(s)}, Step: &activities.Step{WorkflowID: "machineset/shop/s", Name: "create-machines"}})
	assert.Equal(t, []int32{4, 4, 1, 1}, []int32{status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas})
	assert.Equal(t, int64(7), status.ObservedGeneration)
	assert.Equal(t, "app=web", status.Selector)
	assert.Equal(t, "create-machines", status.CurrentOperation.Step)
	assert.Equal(t, w.Cluster.AroundSet(s).Read, status.ObservedMachines)
	assert.NotEmpty(t, status.ObservedMachines, "who knows machines up to there knows those that were counted")
	require.Len(t, status.FailedMachines, 2, "by name, so that the list does not change by itself")
	assert.Equal(t, []string{"a", "fake:///i-1", "s", "no capacity"}, []string{
		status.FailedMachines[0].Name, status.FailedMachines[0].ProviderID, status.FailedMachines[0].OwnerRef, status.FailedMachines[0].LastOperation.Description,
	})
	assert.Equal(t, "z", status.FailedMachines[1].Name)
	assert.Equal(t, []string{"update machinesets/status"}, w.writes())
}

func TestReportSetLeavesNoOperationInACalmSet(t *testing.T) {
	t.Parallel()
	s := set("s", 2)
	w := newWorld(t, members(s, 2, phase(v1alpha1.MachineRunning))...)
	step := &activities.Step{WorkflowID: "machineset/shop/s"} // the report itself was all that there was to do
	assert.Nil(t, reportSet(w, activities.SetReport{SetRead: activities.SetRead{Read: read(s)}, Step: step}).CurrentOperation)
	w.forget()
	reportSet(w, activities.SetReport{SetRead: setRead(s)})
	assert.Empty(t, w.writes())
}

func TestReportSetOfAnotherObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t, set("s", 2))
	_, err := run[string](w, w.ReportSet, activities.SetReport{SetRead: activities.SetRead{Read: activities.Read{Ref: stranger(set("s", 2))}}})
	assertFailure(t, err, activities.TypeObjectGone, false)
	assert.Empty(t, w.writes())
}

func TestReportSetAfterAnotherWriter(t *testing.T) {
	t.Parallel()
	s := set("s", 2)
	w := newWorld(t, s)
	w.hold()
	w.edit(observe.Sets, "s", map[string]any{"spec": map[string]any{"replicas": 5}})
	_, err := run[string](w, w.ReportSet, activities.SetReport{SetRead: setRead(s)})
	require.NoError(t, err)
	assert.Equal(t, int64(2), w.set("s").Status.ObservedGeneration, "it speaks of the spec as it is now")
	assert.Equal(t, int32(5), w.set("s").Spec.Replicas)
}

func TestFinalizeSet(t *testing.T) {
	t.Parallel()
	t.Run("puts our finalizer on", func(t *testing.T) {
		s := set("s", 2)
		s.Finalizers = []string{backup}
		w := newWorld(t, s)
		assert.Equal(t, "1001", twice[string](w, w.FinalizeSet, read(s)))
		assert.Equal(t, []string{backup, v1alpha1.FinalizerMachine}, w.set("s").Finalizers)
	})
	t.Run("keeps it while a machine is left", func(t *testing.T) {
		s := set("s", 2, going[*v1alpha1.MachineSet])
		w := newWorld(t, members(s, 1, going[*v1alpha1.Machine])...)
		twice[string](w, w.FinalizeSet, read(s))
		assert.Empty(t, w.writes())
	})
	t.Run("takes it off when none is left", func(t *testing.T) {
		s := set("s", 2, going[*v1alpha1.MachineSet])
		s.Finalizers = append(s.Finalizers, backup)
		w := newWorld(t, s, machine("foreign"))
		twice[string](w, w.FinalizeSet, read(s))
		assert.Equal(t, []string{backup}, w.set("s").Finalizers)
	})
	t.Run("puts none on a set that is going", func(t *testing.T) {
		s := set("s", 2, going[*v1alpha1.MachineSet])
		s.Finalizers = []string{backup}
		w := newWorld(t, s)
		twice[string](w, w.FinalizeSet, read(s))
		assert.Empty(t, w.writes())
	})
	t.Run("leaves the decision to be made again when somebody was faster", func(t *testing.T) {
		s := set("s", 2, bare)
		w := newWorld(t, s)
		w.hold()
		w.edit(observe.Sets, "s", annotated("note", "new"))
		_, err := run[string](w, w.FinalizeSet, read(s))
		assertFailure(t, err, activities.TypeConflict, false)
	})
	t.Run("knows when the set is gone", func(t *testing.T) {
		w := newWorld(t)
		_, err := run[string](w, w.FinalizeSet, read(set("s", 2)))
		assertFailure(t, err, activities.TypeObjectGone, false)
	})
}
