package activities_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

// joined makes a machine one that is Running since 90 seconds after its creation.
func joined(m *v1alpha1.Machine) {
	m.CreationTimestamp = longAgo
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning, LastUpdateTime: metav1.NewTime(longAgo.Add(90 * time.Second))}
}

func TestD9_FinishJoin(t *testing.T) {
	t.Parallel()
	t.Run("D9: how long the join took is stored, and the tokens go", func(t *testing.T) {
		m := machine("m", joined)
		w := newWorld(t, m)
		w.issue(m, "1", soon())
		w.issue(m, "2", soon())
		other := w.issue(machine("other"), "1", soon())
		w.forget()
		version := twice[string](w, w.FinishJoin, read(m))
		assert.Equal(t, map[string]string{v1alpha1.AnnotationMachineJoinDuration: "1m30s"}, w.machine("m").Annotations)
		assert.Equal(t, w.machine("m").ResourceVersion, version, "the version to wait for")
		assert.Equal(t, []string{other.Name}, w.tokens())
		assert.Equal(t, []string{"patch machines", "delete secrets", "delete secrets"}, w.writes())
	})
	t.Run("what was stored stays", func(t *testing.T) {
		m := machine("m", joined)
		m.Annotations = map[string]string{v1alpha1.AnnotationMachineJoinDuration: "7s"}
		w := newWorld(t, m)
		twice[string](w, w.FinishJoin, read(m))
		assert.Empty(t, w.writes(), "a node that joins again has not joined for the first time")
	})
	t.Run("a machine that failed has not joined: its tokens go all the same", func(t *testing.T) {
		m := machine("m", phase(v1alpha1.MachineFailed))
		w := newWorld(t, m)
		w.issue(m, "1", soon())
		twice[string](w, w.FinishJoin, read(m))
		assert.Empty(t, w.tokens())
		assert.Empty(t, w.machine("m").Annotations)
	})
	t.Run("D9: by another writer's version too", func(t *testing.T) {
		m := machine("m", joined)
		w := newWorld(t, m)
		w.hold()
		w.edit(observe.Machines, "m", annotated("note", "new"))
		_, err := run[string](w, w.FinishJoin, read(m))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"note": "new", v1alpha1.AnnotationMachineJoinDuration: "1m30s"}, w.machine("m").Annotations)
	})
	t.Run("no token is forgotten", func(t *testing.T) {
		m := machine("m", joined)
		w := newWorld(t, m)
		w.issue(m, "1", soon())
		failing(w.target, "list", "secrets", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := run[string](w, w.FinishJoin, read(m))
		require.Error(t, err)
		_, retryable := failure(t, err)
		assert.True(t, retryable)
		assert.Empty(t, w.machine("m").Annotations, "with the annotation nobody would look again")
		twice[string](w, w.FinishJoin, read(m))
		assert.Empty(t, w.tokens())
	})
	t.Run("another machine of that name has not joined", func(t *testing.T) {
		w := newWorld(t, machine("m", joined))
		_, err := run[string](w, w.FinishJoin, activities.Read{Ref: stranger(machine("m"))})
		machinesGone(t, err)
		assert.Empty(t, w.machine("m").Annotations)
	})
}

func TestReleaseMachine(t *testing.T) {
	t.Parallel()
	t.Run("takes off our finalizer, and ours alone", func(t *testing.T) {
		m := machine("m", going[*v1alpha1.Machine])
		m.Finalizers = append(m.Finalizers, backup)
		w := newWorld(t, m)
		twice[string](w, w.ReleaseMachine, activities.Releasing{Read: read(m)})
		assert.Equal(t, []string{backup}, w.machine("m").Finalizers)
	})
	t.Run("is the end of a machine that nobody else holds", func(t *testing.T) {
		m := machine("m", going[*v1alpha1.Machine])
		w := newWorld(t, m)
		_, err := run[string](w, w.ReleaseMachine, activities.Releasing{Read: read(m)})
		require.NoError(t, err)
		assert.Nil(t, w.machine("m"))
		w.settle()
		_, err = run[string](w, w.ReleaseMachine, activities.Releasing{Read: read(m)})
		machinesGone(t, err)
	})
	t.Run("never releases a machine that is to live, nor takes its tokens", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, m)
		token := w.issue(m, "1", soon())
		w.forget()
		twice[string](w, w.ReleaseMachine, activities.Releasing{Read: read(m)})
		assert.Equal(t, []string{v1alpha1.FinalizerMachine}, w.machine("m").Finalizers)
		assert.NotNil(t, w.token(token), "its instance may be booting with it")
		assert.Empty(t, w.writes())
	})
	t.Run("takes the tokens of a machine that never joined, before it goes", func(t *testing.T) {
		m := machine("m", going[*v1alpha1.Machine])
		w := newWorld(t, m)
		w.issue(m, "1", soon())
		w.issue(m, "2", soon())
		failing(w.target, "delete", "secrets", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := run[string](w, w.ReleaseMachine, activities.Releasing{Read: read(m)})
		require.Error(t, err)
		assert.NotNil(t, w.machine("m"), "nobody would take them afterwards")
		_, err = run[string](w, w.ReleaseMachine, activities.Releasing{Read: read(m)})
		require.NoError(t, err)
		assert.Empty(t, w.tokens())
		assert.Nil(t, w.machine("m"))
	})
	t.Run("does not look for those of a machine that joined", func(t *testing.T) {
		m := machine("m", going[*v1alpha1.Machine])
		m.Annotations = map[string]string{v1alpha1.AnnotationMachineJoinDuration: "7s"}
		w := newWorld(t, m)
		_, err := run[string](w, w.ReleaseMachine, activities.Releasing{Read: read(m)})
		require.NoError(t, err)
		assert.Equal(t, []string{"patch machines"}, w.requests())
	})
	t.Run("in a hurry it leaves tokens to expire that it cannot take", func(t *testing.T) {
		m := machine("m", going[*v1alpha1.Machine])
		w := newWorld(t, m)
		w.issue(m, "1", soon())
		failing(w.target, "delete", "secrets", 1, errors.New("no answer"), nil)
		_, err := run[string](w, w.ReleaseMachine, activities.Releasing{Read: read(m), Hurry: true})
		require.NoError(t, err)
		assert.Nil(t, w.machine("m"))
	})
}
