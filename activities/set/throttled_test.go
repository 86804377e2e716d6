package set_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/activitiestest"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/decide/scale"
)

// If the API server is busy, it has not rejected the write, so Temporal retries the activity. No event and no status
// field reports that machines cannot be created.
func TestAWriteThatTheAPIServerThrottlesIsRetried(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 2)
	machines := schema.GroupResource{Resource: "machines"}
	for name, busy := range map[string]error{
		"429":                       apierrors.NewTooManyRequests("later", 1),
		"503":                       apierrors.NewServiceUnavailable("later"),
		"504":                       apierrors.NewTimeoutError("later", 1),
		"500":                       apierrors.NewInternalError(assert.AnError),
		"a server that is too slow": apierrors.NewServerTimeout(machines, "create", 1),
	} {
		t.Run("to create: "+name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, s)
			activitiestest.FailRequests(w.MachineClient, "create", "machines", 1, busy, nil)
			_, err := activitiestest.RunActivity[set.WriteResult](
				w,
				newActivities(w.Kube).CreateMachines,
				activitiestest.NewMachineCreation(s, "s-a", "s-b"),
			)
			require.Error(t, err)
			_, retryable := activitiestest.FailureTypeOf(t, err)
			assert.True(t, retryable)
			assert.Empty(t, w.TakeNewEvents())
			done, err := activitiestest.RunActivity[set.WriteResult](
				w,
				newActivities(w.Kube).CreateMachines,
				activitiestest.NewMachineCreation(s, "s-a", "s-b"),
			)
			require.NoError(t, err)
			assert.Zero(t, done.Failure)
			assert.NotNil(t, w.Machine("s-a"))
			assert.NotNil(t, w.Machine("s-b"))
		})
		t.Run("to delete: "+name, func(t *testing.T) {
			m := activitiestest.NewMachine("a", activitiestest.WithOwner[*v1alpha1.Machine](s))
			w := activitiestest.NewWorld(t, s, m)
			batch := set.MachineBatch{
				Set:      activitiestest.NewRef(s),
				Machines: []scale.MachineTarget{{Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion}},
			}
			activitiestest.FailRequests(w.MachineClient, "delete", "machines", 1, busy, nil)
			_, err := activitiestest.RunActivity[set.WriteResult](w, newActivities(w.Kube).DeleteMachines, batch)
			require.Error(t, err)
			_, retryable := activitiestest.FailureTypeOf(t, err)
			assert.True(t, retryable)
			assert.Empty(t, w.TakeNewEvents())
		})
	}
}

// If an admission webhook is down, the API server answers with 500 until somebody repairs the webhook. The event and
// the status report this failure.
func TestUnavailableWebhookIsReported(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 2)
	later := activitiestest.Worker{AttemptDelay: 5 * time.Second}
	t.Run("to create", func(t *testing.T) {
		w := activitiestest.NewWorld(t, s)
		activitiestest.FailRequests(w.MachineClient, "create", "machines", 1, apierrors.NewInternalError(assert.AnError), nil)
		done, err := activitiestest.RunActivityOnWorker[set.WriteResult](
			w,
			later,
			newActivities(w.Kube).CreateMachines,
			activitiestest.NewMachineCreation(s, "s-a"),
		)
		require.NoError(t, err)
		assert.Contains(t, done.Failure.Message, assert.AnError.Error())
		assert.True(t, done.Unseen, "the machine may have been made")
		assert.Contains(t, w.TakeNewEvents()[0], v1alpha1.ReasonFailedCreate)
	})
	t.Run("to delete", func(t *testing.T) {
		m := activitiestest.NewMachine("a", activitiestest.WithOwner[*v1alpha1.Machine](s))
		w := activitiestest.NewWorld(t, s, m)
		batch := set.MachineBatch{
			Set:      activitiestest.NewRef(s),
			Machines: []scale.MachineTarget{{Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion}},
		}
		activitiestest.FailRequests(w.MachineClient, "delete", "machines", 1, apierrors.NewInternalError(assert.AnError), nil)
		done, err := activitiestest.RunActivityOnWorker[set.WriteResult](
			w,
			later,
			newActivities(w.Kube).DeleteMachines,
			batch,
		)
		require.NoError(t, err)
		assert.True(t, done.Failure.Deleting)
		assert.Contains(t, w.TakeNewEvents()[0], v1alpha1.ReasonFailedDelete)
	})
}
