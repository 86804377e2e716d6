package set_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/cache"
	observeset "millwright/observe/set"
)

func newSurplusBatch(s *v1alpha1.MachineSet, machines ...*v1alpha1.Machine) set.MachineBatch {
	d := set.MachineBatch{Set: activitiestest.NewRef(s)}
	for _, m := range machines {
		d.Machines = append(
			d.Machines,
			scale.MachineTarget{Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, Why: "surplus"},
		)
	}
	return d
}

func isBeingDeleted(m *v1alpha1.Machine) bool { return m != nil && m.DeletionTimestamp != nil }

func TestDeleteMachines(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 0)
	t.Run("deletes what was seen, if it still is what was seen", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithOwner[*v1alpha1.Machine](s))
		w := activitiestest.NewWorld(t, s, m)
		_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteMachines, newSurplusBatch(s, m))
		require.NoError(t, err)
		assert.True(t, isBeingDeleted(w.Machine("m")), "its own workflow does the rest")
		assert.Equal(t, []string{"Normal SuccessfulDelete Deleted Machine: m: surplus"}, w.TakeNewEvents())

		sent := w.MachineClient.Actions()[0].(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
		require.NotNil(t, sent)
		assert.Equal(t, []string{"uid-m", "900"}, []string{string(*sent.UID), *sent.ResourceVersion})
	})
	t.Run("run again it meets the version that it made itself, and deletes nothing else", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithOwner[*v1alpha1.Machine](s))
		w := activitiestest.NewWorld(t, s, m, activitiestest.NewMachine("other"))
		_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteMachines, newSurplusBatch(s, m))
		require.NoError(t, err)
		before := w.Snapshot()
		_, err = activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteMachines, newSurplusBatch(s, m))
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Equal(t, before, w.Snapshot())
	})
	t.Run("a machine without our finalizer gets it first: its instance must not be left", func(t *testing.T) {
		m := activitiestest.NewMachine(
			"m",
			activitiestest.WithOwner[*v1alpha1.Machine](s),
			func(m *v1alpha1.Machine) { m.Finalizers = nil },
		)
		w := activitiestest.NewWorld(t, s, m)
		_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteMachines, newSurplusBatch(s, m))
		require.NoError(t, err)
		assert.True(t, isBeingDeleted(w.Machine("m")))
		assert.Equal(t, []string{v1alpha1.FinalizerMachine}, w.Machine("m").Finalizers)
	})
	t.Run("a machine that is gone is deleted", func(t *testing.T) {
		w := activitiestest.NewWorld(t, s)
		activitiestest.RunActivityTwice[any](
			w,
			newActivities(w.Kube).DeleteMachines,
			newSurplusBatch(s, activitiestest.NewMachine("m")),
		)
	})
	t.Run("a machine that changed is left alone, and said so when the others are done", func(t *testing.T) {
		changed := activitiestest.NewMachine("changed")
		replaced := activitiestest.NewMachine("replaced")
		a := activitiestest.NewMachine("a")
		b := activitiestest.NewMachine("b")
		w := activitiestest.NewWorld(t, s, changed, replaced, a, b)
		w.EditObject(
			cache.MachinesResource,
			"changed",
			activitiestest.NewAnnotationPatch(v1alpha1.AnnotationMachinePriority, "100"),
		)
		batch := newSurplusBatch(s, changed, replaced, a, b)
		batch.Machines[1].UID = "uid-of-a-former-one"
		_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteMachines, batch)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.False(t, isBeingDeleted(w.Machine("changed")))
		assert.False(t, isBeingDeleted(w.Machine("replaced")))
		assert.True(t, isBeingDeleted(w.Machine("a")))
		assert.True(t, isBeingDeleted(w.Machine("b")))
		assert.Len(t, w.TakeNewEvents(), 2, "people hear of those that were deleted")
	})
	t.Run("an API server that is away is tried again", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, s, m)
		activitiestest.FailRequests(w.MachineClient, "delete", "machines", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteMachines, newSurplusBatch(s, m))
		_, retryable := activitiestest.FailureTypeOf(t, err)
		assert.True(t, retryable)
		_, err = activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteMachines, newSurplusBatch(s, m))
		require.NoError(t, err)
		assert.True(t, isBeingDeleted(w.Machine("m")))
	})
}

func reportSet(w *activitiestest.World, in set.Report) v1alpha1.MachineSetStatus {
	w.T.Helper()
	version := activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).ReportSet, in)
	s := w.MachineSet(in.Ref.Name)
	assert.Equal(w.T, s.ResourceVersion, version, "the version to wait for")
	return s.Status
}

func TestReportSet(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 4)
	s.Generation = 7
	failed := func(m *v1alpha1.Machine) {
		m.Status.LastOperation = v1alpha1.LastOperation{Type: "Create", State: "Failed", Description: "no capacity"}
		m.Spec.ProviderID = "fake:///i-1"
	}
	of := activitiestest.WithOwner[*v1alpha1.Machine](s)
	w := activitiestest.NewWorld(
		t,
		s,
		activitiestest.NewMachine("z", of, failed),
		activitiestest.NewMachine("a", of, failed, activitiestest.WithPhase(v1alpha1.MachineFailed)),
		activitiestest.NewMachine(
			"running",
			of,
			activitiestest.WithPhase(v1alpha1.MachineRunning),
		),
		activitiestest.NewMachine(
			"going",
			of,
			activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
			activitiestest.WithPhase(v1alpha1.MachineTerminating),
		),
		activitiestest.NewMachine("foreign"),
	)
	status := reportSet(
		w,
		set.Report{
			Input: set.Input{ReadInput: activitiestest.NewReadInput(s)},
			Step:  &kube.Step{WorkflowID: "machineset/shop/s", Name: "create-machines"},
		},
	)
	assert.Equal(
		t,
		[]int32{4, 4, 1, 1},
		[]int32{status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas},
	)
	assert.Equal(t, int64(7), status.ObservedGeneration)
	assert.Equal(t, "app=web", status.Selector)
	assert.Equal(t, "create-machines", status.CurrentOperation.Step)
	assert.Equal(t, observeset.ReadRelatedObjects(w.Cluster, s).MachinesVersion, status.ObservedMachines)
	assert.NotEmpty(t, status.ObservedMachines, "who knows machines up to there knows those that were counted")
	require.Len(t, status.FailedMachines, 2, "by name, so that the list does not change by itself")
	assert.Equal(t, []string{"a", "fake:///i-1", "s", "no capacity"}, []string{
		status.FailedMachines[0].Name,
		status.FailedMachines[0].ProviderID,
		status.FailedMachines[0].OwnerRef,
		status.FailedMachines[0].LastOperation.Description,
	})
	assert.Equal(t, "z", status.FailedMachines[1].Name)
	assert.Equal(t, []string{"update machinesets/status"}, w.MutatingRequests())
}

func TestReportSetClearsOperationOfIdleSet(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 2)
	w := activitiestest.NewWorld(t, machineSetWithMachines(s, 2, activitiestest.WithPhase(v1alpha1.MachineRunning))...)
	step := &kube.Step{WorkflowID: "machineset/shop/s"} // the report was the last pending work
	assert.Nil(
		t,
		reportSet(w, set.Report{Input: set.Input{ReadInput: activitiestest.NewReadInput(s)}, Step: step}).CurrentOperation,
	)
	w.ForgetRequests()
	reportSet(w, set.Report{Input: activitiestest.NewSetInput(s)})
	assert.Empty(t, w.MutatingRequests())
}

func TestReportSetRejectsReplacedSet(t *testing.T) {
	t.Parallel()
	w := activitiestest.NewWorld(t, activitiestest.NewMachineSet("s", 2))
	_, err := activitiestest.RunActivity[string](
		w,
		newActivities(w.Kube).ReportSet,
		set.Report{
			Input: set.Input{
				ReadInput: kube.ReadInput{Ref: activitiestest.NewFormerObjectRef(activitiestest.NewMachineSet("s", 2))},
			},
		},
	)
	activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
	assert.Empty(t, w.MutatingRequests())
}

func TestReportSetReadsChangedSpec(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 2)
	w := activitiestest.NewWorld(t, s)
	w.HoldEvents()
	w.EditObject(cache.SetsResource, "s", map[string]any{"spec": map[string]any{"replicas": 5}})
	_, err := activitiestest.RunActivity[string](
		w,
		newActivities(w.Kube).ReportSet,
		set.Report{Input: activitiestest.NewSetInput(s)},
	)
	require.NoError(t, err)
	assert.Equal(t, int64(2), w.MachineSet("s").Status.ObservedGeneration, "it speaks of the spec as it is now")
	assert.Equal(t, int32(5), w.MachineSet("s").Spec.Replicas)
}

func TestFinalizeSet(t *testing.T) {
	t.Parallel()
	t.Run("puts our finalizer on", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 2)
		s.Finalizers = []string{activitiestest.BackupFinalizer}
		w := activitiestest.NewWorld(t, s)
		assert.Equal(
			t,
			"1001",
			activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).FinalizeSet, activitiestest.NewReadInput(s)),
		)
		assert.Equal(t, []string{activitiestest.BackupFinalizer, v1alpha1.FinalizerMachine}, w.MachineSet("s").Finalizers)
	})
	t.Run("keeps it while a machine is left", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 2, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet])
		w := activitiestest.NewWorld(
			t,
			machineSetWithMachines(s, 1, activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])...)
		activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).FinalizeSet, activitiestest.NewReadInput(s))
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("takes it off when none is left", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 2, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet])
		s.Finalizers = append(s.Finalizers, activitiestest.BackupFinalizer)
		w := activitiestest.NewWorld(t, s, activitiestest.NewMachine("foreign"))
		activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).FinalizeSet, activitiestest.NewReadInput(s))
		assert.Equal(t, []string{activitiestest.BackupFinalizer}, w.MachineSet("s").Finalizers)
	})
	t.Run("puts none on a set that is going", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 2, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet])
		s.Finalizers = []string{activitiestest.BackupFinalizer}
		w := activitiestest.NewWorld(t, s)
		activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).FinalizeSet, activitiestest.NewReadInput(s))
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("leaves the decision to be made again when somebody was faster", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 2, activitiestest.WithoutFinalizers)
		w := activitiestest.NewWorld(t, s)
		w.HoldEvents()
		w.EditObject(cache.SetsResource, "s", activitiestest.NewAnnotationPatch("note", "new"))
		_, err := activitiestest.RunActivity[string](w, newActivities(w.Kube).FinalizeSet, activitiestest.NewReadInput(s))
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	})
	t.Run("knows when the set is gone", func(t *testing.T) {
		w := activitiestest.NewWorld(t)
		_, err := activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).FinalizeSet,
			activitiestest.NewReadInput(activitiestest.NewMachineSet("s", 2)),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
	})
}

// A status must fit into etcd's 1.5 MiB together with the rest of the object, for any number of failed machines and any
// length of messages.
func TestSetStatusHasLimitedSize(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 1300)
	w := activitiestest.NewWorld(t, machineSetWithMachines(s, 1300, func(m *v1alpha1.Machine) {
		m.Status.LastOperation = v1alpha1.LastOperation{
			Type:        "Create",
			State:       "Failed",
			Description: strings.Repeat("x", 1000),
		}
		m.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
	})...)
	status := reportSet(w, set.Report{Input: activitiestest.NewSetInput(s)})
	text, err := json.Marshal(status)
	require.NoError(t, err)
	assert.Less(t, len(text), 64<<10)
	require.Len(t, status.FailedMachines, 50)
	assert.Equal(t, "s-1", status.FailedMachines[0].Name, "the first by name")
	assert.LessOrEqual(t, len(status.FailedMachines[0].LastOperation.Description), 200)
	ready := status.Conditions[slices.IndexFunc(status.Conditions, func(c v1alpha1.MachineSetCondition) bool { return c.Type == v1alpha1.MachineSetMachinesReady })]
	assert.Contains(t, ready.Message, "1300 machines whose last operation failed; failedMachines names 50")
}

func TestSetStatusDoesNotListPreservedMachinesAsFailed(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 1)
	w := activitiestest.NewWorld(
		t,
		machineSetWithMachines(s, 1, activitiestest.WithPhase(v1alpha1.MachineFailed), func(m *v1alpha1.Machine) {
			m.Status.LastOperation.State = v1alpha1.MachineStateFailed
			m.Status.CurrentStatus.PreserveExpiryTime = new(metav1.NewTime(time.Now().Add(time.Hour)))
		})...)
	assert.Empty(t, reportSet(w, set.Report{Input: activitiestest.NewSetInput(s)}).FailedMachines)
}
