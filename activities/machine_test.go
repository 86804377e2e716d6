package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

const backup = "example.com/backup" // somebody else's finalizer

func machinesGone(t *testing.T, err error) {
	t.Helper()
	assertFailure(t, err, activities.TypeObjectGone, false)
}

func TestPrepareMachine(t *testing.T) {
	t.Parallel()
	t.Run("puts our finalizer behind those of others", func(t *testing.T) {
		m := machine("m")
		m.Finalizers = []string{backup}
		w := newWorld(t, m)
		version := twice[string](w, w.PrepareMachine, read(m))
		assert.Equal(t, []string{backup, v1alpha1.FinalizerMachine}, w.machine("m").Finalizers)
		assert.Equal(t, w.machine("m").ResourceVersion, version, "the version to wait for")
		assert.Equal(t, []string{"patch machines"}, w.writes())
	})
	t.Run("leaves a machine alone that is being deleted", func(t *testing.T) {
		m := machine("m", going[*v1alpha1.Machine])
		m.Finalizers = []string{backup}
		w := newWorld(t, m)
		assert.Equal(t, "900", twice[string](w, w.PrepareMachine, read(m)))
		assert.Empty(t, w.writes())
	})
	t.Run("an object of the same name is not the machine", func(t *testing.T) {
		w := newWorld(t, machine("m", bare))
		_, err := run[string](w, w.PrepareMachine, activities.Read{Ref: stranger(machine("m"))})
		machinesGone(t, err)
		assert.Empty(t, w.machine("m").Finalizers)
	})
}

func TestWritersThatAlwaysMeetAnother(t *testing.T) {
	t.Parallel()
	m := machine("m", going[*v1alpha1.Machine])
	s, d := set("s", 1, bare), deployment("d", 1, bare)
	for name, row := range map[string]struct {
		resource string
		activity func(w *world) error
	}{
		"D20: the finalizer": {"machines", func(w *world) error {
			_, err := run[string](w, w.ReleaseMachine, activities.Releasing{Read: read(m)})
			return err
		}},
		"D20: the status of a machine": {"machines", func(w *world) error {
			_, err := run[string](w, w.ReportMachine, activities.MachineReport{Read: read(m), Phase: "Terminating"})
			return err
		}},
		"D20: the beginning of a creation": {"machines", func(w *world) error {
			_, err := run[activities.Begun](w, w.BeginCreation, activities.MachineReport{Read: read(m)})
			return err
		}},
		"D20: the status of a set": {"machinesets", func(w *world) error {
			_, err := run[string](w, w.ReportSet, activities.SetReport{SetRead: setRead(s)})
			return err
		}},
		"D20: the status of a deployment": {"machinedeployments", func(w *world) error {
			_, err := run[string](w, w.ReportDeployment, activities.DeploymentReport{DeploymentRead: deploymentRead(d)})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, m, s, d, class())
			busy := apierrors.NewConflict(schema.GroupResource{Resource: row.resource}, "x", nil)
			failing(w.machines, "patch", row.resource, -1, busy, nil)
			failing(w.machines, "update", row.resource, -1, busy, nil)
			assertFailure(t, row.activity(w), activities.TypeConflict, true)
			assert.Len(t, w.writes(), 3, "a few tries, then its retry policy waits")
		})
	}
}

func begin(m *v1alpha1.Machine) activities.MachineReport {
	return activities.MachineReport{Read: read(m), Operation: &activities.LastOperation{Type: "Create", State: "Processing", Description: "Creating"}}
}

func TestBeginCreation(t *testing.T) {
	t.Parallel()
	t.Run("is true for the first caller, and for no other", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, m)
		first, err := run[activities.Begun](w, w.BeginCreation, begin(m))
		require.NoError(t, err)
		assert.Equal(t, activities.Begun{Version: w.machine("m").ResourceVersion, NeverTried: true}, first)
		assert.Equal(t, v1alpha1.MachineOperationCreate, w.machine("m").Status.LastOperation.Type)
		w.settle()
		assert.False(t, twice[activities.Begun](w, w.BeginCreation, begin(m)).NeverTried)
	})
	t.Run("is false when somebody else began and the cache has not heard of it", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, m)
		w.hold()
		for _, never := range []bool{true, false} {
			begun, err := run[activities.Begun](w, w.BeginCreation, begin(m))
			require.NoError(t, err)
			assert.Equal(t, never, begun.NeverTried)
			assert.Equal(t, w.machine("m").ResourceVersion, begun.Version)
		}
	})
	t.Run("is true when all that happened is somebody's note", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, m)
		w.hold()
		w.edit(observe.Machines, "m", annotated("note", "new"))
		begun, err := run[activities.Begun](w, w.BeginCreation, begin(m))
		require.NoError(t, err)
		assert.True(t, begun.NeverTried)
		assert.Equal(t, "new", w.machine("m").Annotations["note"])
	})
	t.Run("leaves its mark whatever it is told to report", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, m)
		for _, never := range []bool{true, false} {
			begun, err := run[activities.Begun](w, w.BeginCreation, activities.MachineReport{Read: live(m)})
			require.NoError(t, err)
			assert.Equal(t, never, begun.NeverTried)
		}
	})
	t.Run("knows when the machine is gone", func(t *testing.T) {
		w := newWorld(t)
		_, err := run[activities.Begun](w, w.BeginCreation, begin(machine("m")))
		machinesGone(t, err)
	})
}
