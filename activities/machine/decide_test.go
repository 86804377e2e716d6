package machine_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

func assertObjectGoneError(t *testing.T, err error) {
	t.Helper()
	activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
}

func TestAddFinalizer(t *testing.T) {
	t.Parallel()
	t.Run("puts our finalizer behind those of others", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		m.Finalizers = []string{activitiestest.BackupFinalizer}
		w := activitiestest.NewWorld(t, m)
		version := activitiestest.RunActivityTwice[string](
			w,
			newActivities(w.Kube).AddFinalizer,
			activitiestest.NewReadInput(m),
		)
		assert.Equal(t, []string{activitiestest.BackupFinalizer, v1alpha1.FinalizerMachine}, w.Machine("m").Finalizers)
		assert.Equal(t, w.Machine("m").ResourceVersion, version, "the version to wait for")
		assert.Equal(t, []string{"patch machines"}, w.MutatingRequests())
	})
	t.Run("leaves a machine alone that is being deleted", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
		m.Finalizers = []string{activitiestest.BackupFinalizer}
		w := activitiestest.NewWorld(t, m)
		assert.Equal(
			t,
			"900",
			activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).AddFinalizer, activitiestest.NewReadInput(m)),
		)
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("an object of the same name is not the machine", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.NewMachine("m", activitiestest.WithoutFinalizers))
		_, err := activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).AddFinalizer,
			kube.ReadInput{Ref: activitiestest.NewFormerObjectRef(activitiestest.NewMachine("m"))},
		)
		assertObjectGoneError(t, err)
		assert.Empty(t, w.Machine("m").Finalizers)
	})
}

func TestWritesFailAfterRepeatedConflicts(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	s, d := activitiestest.NewMachineSet(
		"s",
		1,
		activitiestest.WithoutFinalizers,
	), activitiestest.NewDeployment(
		"d",
		1,
		activitiestest.WithoutFinalizers,
	)
	for name, row := range map[string]struct {
		resource string
		activity func(w *activitiestest.World) error
	}{
		"the finalizer": {"machines", func(w *activitiestest.World) error {
			_, err := activitiestest.RunActivity[string](w, newActivities(w.Kube).ReleaseMachine, machine.ReleaseInput{ReadInput: activitiestest.NewReadInput(m)})
			return err
		}},
		"the status of a machine": {"machines", func(w *activitiestest.World) error {
			_, err := activitiestest.RunActivity[kube.ReportResult](w, newActivities(w.Kube).ReportMachine, machine.Report{Read: activitiestest.NewReadInput(m), Phase: "Terminating"})
			return err
		}},
		"the beginning of a creation": {"machines", func(w *activitiestest.World) error {
			_, err := activitiestest.RunActivity[machine.CreateIntentResult](w, newActivities(w.Kube).RecordCreateIntent, machine.Report{Read: activitiestest.NewReadInput(m)})
			return err
		}},
		"the status of a set": {"machinesets", func(w *activitiestest.World) error {
			_, err := activitiestest.RunActivity[string](w, (&set.Activities{Kube: w.Kube}).ReportSet, set.Report{Input: activitiestest.NewSetInput(s)})
			return err
		}},
		"the status of a deployment": {"machinedeployments", func(w *activitiestest.World) error {
			_, err := activitiestest.RunActivity[string](w, (&deployment.Activities{Kube: w.Kube}).ReportDeployment, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, s, d, activitiestest.NewClass())
			busy := apierrors.NewConflict(schema.GroupResource{Resource: row.resource}, "x", nil)
			activitiestest.FailRequests(w.MachineClient, "patch", row.resource, -1, busy, nil)
			activitiestest.FailRequests(w.MachineClient, "update", row.resource, -1, busy, nil)
			activitiestest.AssertFailure(t, row.activity(w), kube.FailureTypeConflict, true)
			writes := slices.DeleteFunc(
				w.MutatingRequests(),
				func(what string) bool { return what == "delete-collection secrets" },
			)
			assert.Len(t, writes, 3, "a few tries, then its retry policy waits")
		})
	}
}

func newCreationReport(m *v1alpha1.Machine) machine.Report {
	return machine.Report{
		Read:      activitiestest.NewReadInput(m),
		Operation: &machine.LastOperation{Type: "Create", State: "Processing", Description: "Creating"},
	}
}

func TestRecordCreateIntent(t *testing.T) {
	t.Parallel()
	t.Run("is true for the first caller, and for no other", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m)
		first, err := activitiestest.RunActivity[machine.CreateIntentResult](
			w,
			newActivities(w.Kube).RecordCreateIntent,
			newCreationReport(m),
		)
		require.NoError(t, err)
		version := w.Machine("m").ResourceVersion
		assert.Equal(
			t,
			machine.CreateIntentResult{
				Version:    version,
				NeverTried: true,
				RunID:      "default-test-run-id",
				Reported:   kube.ReportResult{Version: version},
			},
			first,
		)
		assert.Equal(t, v1alpha1.MachineOperationCreate, w.Machine("m").Status.LastOperation.Type)
		assert.Equal(t, "default-test-run-id", w.Machine("m").Status.CreationIntent.RunID)
		assert.NotNil(t, w.Machine("m").Status.CreationIntent.Time)
		w.AwaitCaches()
		assert.False(
			t,
			activitiestest.RunActivityTwice[machine.CreateIntentResult](
				w,
				newActivities(w.Kube).RecordCreateIntent,
				newCreationReport(m),
			).NeverTried,
		)
	})
	t.Run("is false when somebody else began and the cache has not heard of it", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m)
		w.HoldEvents()
		for _, never := range []bool{true, false} {
			begun, err := activitiestest.RunActivity[machine.CreateIntentResult](
				w,
				newActivities(w.Kube).RecordCreateIntent,
				newCreationReport(m),
			)
			require.NoError(t, err)
			assert.Equal(t, never, begun.NeverTried)
			assert.Equal(t, w.Machine("m").ResourceVersion, begun.Version)
		}
	})
	t.Run("is true when all that happened is somebody's note", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m)
		w.HoldEvents()
		w.EditObject(cache.MachinesResource, "m", activitiestest.NewAnnotationPatch("note", "new"))
		begun, err := activitiestest.RunActivity[machine.CreateIntentResult](
			w,
			newActivities(w.Kube).RecordCreateIntent,
			newCreationReport(m),
		)
		require.NoError(t, err)
		assert.True(t, begun.NeverTried)
		assert.Equal(t, "new", w.Machine("m").Annotations["note"])
	})
	t.Run("leaves its mark whatever it is told to report", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m)
		for _, never := range []bool{true, false} {
			begun, err := activitiestest.RunActivity[machine.CreateIntentResult](
				w,
				newActivities(w.Kube).RecordCreateIntent,
				machine.Report{Read: activitiestest.NewLiveReadInput(m)},
			)
			require.NoError(t, err)
			assert.Equal(t, never, begun.NeverTried)
		}
	})
	t.Run("knows when the machine is gone", func(t *testing.T) {
		w := activitiestest.NewWorld(t)
		_, err := activitiestest.RunActivity[machine.CreateIntentResult](
			w,
			newActivities(w.Kube).RecordCreateIntent,
			newCreationReport(activitiestest.NewMachine("m")),
		)
		assertObjectGoneError(t, err)
	})
}
