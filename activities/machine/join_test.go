package machine_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities/activitiestest"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
)

func TestTheJoinIsRecorded(t *testing.T) {
	t.Parallel()
	running := func(m *v1alpha1.Machine) machine.Report {
		return machine.Report{Read: activitiestest.NewReadInput(m), Phase: "Running", Joined: true}
	}
	t.Run("from the write that says Running", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithPhase(v1alpha1.MachinePending))
		w := activitiestest.NewWorld(t, m)
		status := reportMachine(w, running(m))
		require.NotNil(t, status.JoinedAt)
		assert.Equal(t, status.CurrentStatus.LastUpdateTime, *status.JoinedAt)
		assert.Equal(t, []string{"update machines/status"}, w.Requests())
	})
	t.Run("and stays", func(t *testing.T) {
		m := activitiestest.NewMachine(
			"m",
			activitiestest.WithPhase(v1alpha1.MachinePending),
			func(m *v1alpha1.Machine) { m.Status.JoinedAt = new(activitiestest.OldTime) },
		)
		w := activitiestest.NewWorld(t, m)
		assert.Equal(
			t,
			activitiestest.OldTime.Unix(),
			reportMachine(w, running(m)).JoinedAt.Unix(),
			"a node that joins again has not joined for the first time",
		)
	})
	t.Run("also where an annotation says so", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithPhase(v1alpha1.MachinePending))
		m.Annotations = map[string]string{v1alpha1.AnnotationMachineJoinDuration: "7s"}
		w := activitiestest.NewWorld(t, m)
		assert.Nil(t, reportMachine(w, running(m)).JoinedAt, "when is not known")
	})
	t.Run("and not before the node has joined", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m)
		assert.Nil(t, reportMachine(w, machine.Report{Read: activitiestest.NewReadInput(m), Phase: "Failed"}).JoinedAt)
	})
}

func TestFinishJoin(t *testing.T) {
	t.Parallel()
	for name, phase := range map[string]v1alpha1.MachinePhase{"the node has joined": v1alpha1.MachineRunning, "the creation has failed": v1alpha1.MachineFailed} {
		t.Run("the tokens go: "+name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithPhase(phase))
			w := activitiestest.NewWorld(t, m)
			issueToken(w, m, "1", activitiestest.TokenExpiration())
			issueToken(w, m, "2", activitiestest.TokenExpiration())
			other := issueToken(w, activitiestest.NewMachine("other"), "1", activitiestest.TokenExpiration())
			w.ForgetRequests()
			version := activitiestest.RunActivityTwice[string](
				w,
				newActivities(w.Kube).FinishJoin,
				activitiestest.NewReadInput(m),
			)
			assert.Equal(t, w.Machine("m").ResourceVersion, version)
			assert.Equal(t, []string{other.Name}, w.TokenSecretNames())
			assert.Equal(
				t,
				[]string{"delete-collection secrets", "delete-collection secrets"},
				w.MutatingRequests(),
				"one for each run",
			)
		})
	}
	t.Run("no token is forgotten", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithPhase(v1alpha1.MachineRunning))
		w := activitiestest.NewWorld(t, m)
		issueToken(w, m, "1", activitiestest.TokenExpiration())
		activitiestest.FailRequests(
			w.TargetClient,
			"delete-collection",
			"secrets",
			1,
			apierrors.NewServiceUnavailable("away"),
			nil,
		)
		_, err := activitiestest.RunActivity[string](w, newActivities(w.Kube).FinishJoin, activitiestest.NewReadInput(m))
		require.Error(t, err)
		_, retryable := activitiestest.FailureTypeOf(t, err)
		assert.True(t, retryable)
		activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).FinishJoin, activitiestest.NewReadInput(m))
		assert.Empty(t, w.TokenSecretNames())
	})
	t.Run("those of a machine that is gone go, too", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, activitiestest.NewMachine("other"))
		issueToken(w, m, "1", activitiestest.TokenExpiration())
		_, err := activitiestest.RunActivity[string](w, newActivities(w.Kube).FinishJoin, activitiestest.NewReadInput(m))
		assertObjectGoneError(t, err)
		assert.Empty(t, w.TokenSecretNames())
	})
}

func TestReleaseMachine(t *testing.T) {
	t.Parallel()
	t.Run("takes off our finalizer, and ours alone", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
		m.Finalizers = append(m.Finalizers, activitiestest.BackupFinalizer)
		w := activitiestest.NewWorld(t, m)
		activitiestest.RunActivityTwice[string](
			w,
			newActivities(w.Kube).ReleaseMachine,
			machine.ReleaseInput{ReadInput: activitiestest.NewReadInput(m)},
		)
		assert.Equal(t, []string{activitiestest.BackupFinalizer}, w.Machine("m").Finalizers)
	})
	t.Run("is the end of a machine that nobody else holds", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
		w := activitiestest.NewWorld(t, m)
		_, err := activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).ReleaseMachine,
			machine.ReleaseInput{ReadInput: activitiestest.NewReadInput(m)},
		)
		require.NoError(t, err)
		assert.Nil(t, w.Machine("m"))
		w.AwaitCaches()
		_, err = activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).ReleaseMachine,
			machine.ReleaseInput{ReadInput: activitiestest.NewReadInput(m)},
		)
		assertObjectGoneError(t, err)
	})
	t.Run("never releases a machine that is to live, nor takes its tokens", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m)
		token := issueToken(w, m, "1", activitiestest.TokenExpiration())
		w.ForgetRequests()
		activitiestest.RunActivityTwice[string](
			w,
			newActivities(w.Kube).ReleaseMachine,
			machine.ReleaseInput{ReadInput: activitiestest.NewReadInput(m)},
		)
		assert.Equal(t, []string{v1alpha1.FinalizerMachine}, w.Machine("m").Finalizers)
		assert.NotNil(t, w.TokenSecret(token), "its instance may be booting with it")
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("takes the tokens of a machine that never joined, before it goes", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
		w := activitiestest.NewWorld(t, m)
		issueToken(w, m, "1", activitiestest.TokenExpiration())
		issueToken(w, m, "2", activitiestest.TokenExpiration())
		activitiestest.FailRequests(
			w.TargetClient,
			"delete-collection",
			"secrets",
			1,
			apierrors.NewServiceUnavailable("away"),
			nil,
		)
		_, err := activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).ReleaseMachine,
			machine.ReleaseInput{ReadInput: activitiestest.NewReadInput(m)},
		)
		require.Error(t, err)
		assert.NotNil(t, w.Machine("m"), "nobody would take them afterwards")
		_, err = activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).ReleaseMachine,
			machine.ReleaseInput{ReadInput: activitiestest.NewReadInput(m)},
		)
		require.NoError(t, err)
		assert.Empty(t, w.TokenSecretNames())
		assert.Nil(t, w.Machine("m"))
	})
	t.Run("does not look for those of a machine that joined", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
		m.Status.JoinedAt = new(activitiestest.OldTime)
		w := activitiestest.NewWorld(t, m)
		_, err := activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).ReleaseMachine,
			machine.ReleaseInput{ReadInput: activitiestest.NewReadInput(m)},
		)
		require.NoError(t, err)
		assert.Equal(t, []string{"patch machines"}, w.Requests())
	})
	t.Run("in a hurry it leaves tokens to expire that it cannot take", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
		w := activitiestest.NewWorld(t, m)
		issueToken(w, m, "1", activitiestest.TokenExpiration())
		activitiestest.FailRequests(w.TargetClient, "delete-collection", "secrets", 1, errors.New("no answer"), nil)
		_, err := activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).ReleaseMachine,
			machine.ReleaseInput{ReadInput: activitiestest.NewReadInput(m), Hurry: true},
		)
		require.NoError(t, err)
		assert.Nil(t, w.Machine("m"))
	})
}
