package machine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// joined makes a machine one that is Running since 90 seconds after its creation.
func joined(m *v1alpha1.Machine) {
	m.CreationTimestamp = activitiestest.LongAgo
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning, LastUpdateTime: metav1.NewTime(activitiestest.LongAgo.Add(90 * time.Second))}
}

func TestD9_FinishJoin(t *testing.T) {
	t.Parallel()
	t.Run("D9: how long the join took is stored, and the tokens go", func(t *testing.T) {
		m := activitiestest.Machine("m", joined)
		w := activitiestest.NewWorld(t, m)
		issue(w, m, "1", activitiestest.Soon())
		issue(w, m, "2", activitiestest.Soon())
		other := issue(w, activitiestest.Machine("other"), "1", activitiestest.Soon())
		w.Forget()
		version := activitiestest.Twice[string](w, acts(w.Kube).FinishJoin, activitiestest.Read(m))
		assert.Equal(t, map[string]string{v1alpha1.AnnotationMachineJoinDuration: "1m30s"}, w.Machine("m").Annotations)
		assert.Equal(t, w.Machine("m").ResourceVersion, version, "the version to wait for")
		assert.Equal(t, []string{other.Name}, w.Tokens())
		assert.Equal(t, []string{"patch machines", "delete secrets", "delete secrets"}, w.Writes())
	})
	t.Run("what was stored stays", func(t *testing.T) {
		m := activitiestest.Machine("m", joined)
		m.Annotations = map[string]string{v1alpha1.AnnotationMachineJoinDuration: "7s"}
		w := activitiestest.NewWorld(t, m)
		activitiestest.Twice[string](w, acts(w.Kube).FinishJoin, activitiestest.Read(m))
		assert.Empty(t, w.Writes(), "a node that joins again has not joined for the first time")
	})
	t.Run("a machine that failed has not joined: its tokens go all the same", func(t *testing.T) {
		m := activitiestest.Machine("m", activitiestest.Phase(v1alpha1.MachineFailed))
		w := activitiestest.NewWorld(t, m)
		issue(w, m, "1", activitiestest.Soon())
		activitiestest.Twice[string](w, acts(w.Kube).FinishJoin, activitiestest.Read(m))
		assert.Empty(t, w.Tokens())
		assert.Empty(t, w.Machine("m").Annotations)
	})
	t.Run("D9: by another writer's version too", func(t *testing.T) {
		m := activitiestest.Machine("m", joined)
		w := activitiestest.NewWorld(t, m)
		w.Hold()
		w.Edit(cache.Machines, "m", activitiestest.Annotated("note", "new"))
		_, err := activitiestest.Run[string](w, acts(w.Kube).FinishJoin, activitiestest.Read(m))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"note": "new", v1alpha1.AnnotationMachineJoinDuration: "1m30s"}, w.Machine("m").Annotations)
	})
	t.Run("no token is forgotten", func(t *testing.T) {
		m := activitiestest.Machine("m", joined)
		w := activitiestest.NewWorld(t, m)
		issue(w, m, "1", activitiestest.Soon())
		activitiestest.Failing(w.Target, "list", "secrets", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := activitiestest.Run[string](w, acts(w.Kube).FinishJoin, activitiestest.Read(m))
		require.Error(t, err)
		_, retryable := activitiestest.Failure(t, err)
		assert.True(t, retryable)
		assert.Empty(t, w.Machine("m").Annotations, "with the annotation nobody would look again")
		activitiestest.Twice[string](w, acts(w.Kube).FinishJoin, activitiestest.Read(m))
		assert.Empty(t, w.Tokens())
	})
	t.Run("another machine of that name has not joined", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.Machine("m", joined))
		_, err := activitiestest.Run[string](w, acts(w.Kube).FinishJoin, kube.Read{Ref: activitiestest.Stranger(activitiestest.Machine("m"))})
		machinesGone(t, err)
		assert.Empty(t, w.Machine("m").Annotations)
	})
}

func TestReleaseMachine(t *testing.T) {
	t.Parallel()
	t.Run("takes off our finalizer, and ours alone", func(t *testing.T) {
		m := activitiestest.Machine("m", activitiestest.Going[*v1alpha1.Machine])
		m.Finalizers = append(m.Finalizers, activitiestest.Backup)
		w := activitiestest.NewWorld(t, m)
		activitiestest.Twice[string](w, acts(w.Kube).ReleaseMachine, machine.Releasing{Read: activitiestest.Read(m)})
		assert.Equal(t, []string{activitiestest.Backup}, w.Machine("m").Finalizers)
	})
	t.Run("is the end of a machine that nobody else holds", func(t *testing.T) {
		m := activitiestest.Machine("m", activitiestest.Going[*v1alpha1.Machine])
		w := activitiestest.NewWorld(t, m)
		_, err := activitiestest.Run[string](w, acts(w.Kube).ReleaseMachine, machine.Releasing{Read: activitiestest.Read(m)})
		require.NoError(t, err)
		assert.Nil(t, w.Machine("m"))
		w.Settle()
		_, err = activitiestest.Run[string](w, acts(w.Kube).ReleaseMachine, machine.Releasing{Read: activitiestest.Read(m)})
		machinesGone(t, err)
	})
	t.Run("never releases a machine that is to live, nor takes its tokens", func(t *testing.T) {
		m := activitiestest.Machine("m")
		w := activitiestest.NewWorld(t, m)
		token := issue(w, m, "1", activitiestest.Soon())
		w.Forget()
		activitiestest.Twice[string](w, acts(w.Kube).ReleaseMachine, machine.Releasing{Read: activitiestest.Read(m)})
		assert.Equal(t, []string{v1alpha1.FinalizerMachine}, w.Machine("m").Finalizers)
		assert.NotNil(t, w.Token(token), "its instance may be booting with it")
		assert.Empty(t, w.Writes())
	})
	t.Run("takes the tokens of a machine that never joined, before it goes", func(t *testing.T) {
		m := activitiestest.Machine("m", activitiestest.Going[*v1alpha1.Machine])
		w := activitiestest.NewWorld(t, m)
		issue(w, m, "1", activitiestest.Soon())
		issue(w, m, "2", activitiestest.Soon())
		activitiestest.Failing(w.Target, "delete", "secrets", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := activitiestest.Run[string](w, acts(w.Kube).ReleaseMachine, machine.Releasing{Read: activitiestest.Read(m)})
		require.Error(t, err)
		assert.NotNil(t, w.Machine("m"), "nobody would take them afterwards")
		_, err = activitiestest.Run[string](w, acts(w.Kube).ReleaseMachine, machine.Releasing{Read: activitiestest.Read(m)})
		require.NoError(t, err)
		assert.Empty(t, w.Tokens())
		assert.Nil(t, w.Machine("m"))
	})
	t.Run("does not look for those of a machine that joined", func(t *testing.T) {
		m := activitiestest.Machine("m", activitiestest.Going[*v1alpha1.Machine])
		m.Annotations = map[string]string{v1alpha1.AnnotationMachineJoinDuration: "7s"}
		w := activitiestest.NewWorld(t, m)
		_, err := activitiestest.Run[string](w, acts(w.Kube).ReleaseMachine, machine.Releasing{Read: activitiestest.Read(m)})
		require.NoError(t, err)
		assert.Equal(t, []string{"patch machines"}, w.Requests())
	})
	t.Run("in a hurry it leaves tokens to expire that it cannot take", func(t *testing.T) {
		m := activitiestest.Machine("m", activitiestest.Going[*v1alpha1.Machine])
		w := activitiestest.NewWorld(t, m)
		issue(w, m, "1", activitiestest.Soon())
		activitiestest.Failing(w.Target, "delete", "secrets", 1, errors.New("no answer"), nil)
		_, err := activitiestest.Run[string](w, acts(w.Kube).ReleaseMachine, machine.Releasing{Read: activitiestest.Read(m), Hurry: true})
		require.NoError(t, err)
		assert.Nil(t, w.Machine("m"))
	})
}
