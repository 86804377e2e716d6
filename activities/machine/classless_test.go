package machine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
)

func TestDeletionDecisionWithoutUsableClass(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	unusable := activitiestest.NewClass(func(c *v1alpha1.MachineClass) { c.Provider = "" })
	decide := func(t *testing.T, w *activitiestest.World, in kube.ReadInput) machine.Decision {
		t.Helper()
		d, err := activitiestest.RunActivity[machine.Decision](w, newActivities(w.Kube).DecideMachine, in)
		require.NoError(t, err)
		return d
	}
	t.Run("that nothing was ever tried is asked of the API server", func(t *testing.T) {
		for _, w := range []*activitiestest.World{activitiestest.NewWorld(t, m), activitiestest.NewWorld(t, m, unusable)} {
			d := decide(t, w, activitiestest.NewReadInput(m))
			assert.Equal(t, attention.NeedDeletion, d.Need)
			assert.NotNil(t, d.Problem)
			assert.True(t, d.NeverTried)
			assert.Equal(t, []string{"get machines"}, w.Requests())
		}
	})
	t.Run("which may know of a creation that the cache does not", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m)
		w.HoldEvents()
		w.RecordCreateAttempt("m")
		d := decide(t, w, activitiestest.NewReadInput(m))
		assert.Equal(t, attention.NeedDeletion, d.Need)
		assert.False(t, d.NeverTried, "there may be an instance, and only its provider can tell")
		assert.NotNil(t, d.Problem)
	})
	t.Run("or that the machine is gone", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m)
		activitiestest.FailRequests(
			w.MachineClient,
			"get",
			"machines",
			1,
			apierrors.NewNotFound(v1alpha1.Resource("machines"), "m"),
			nil,
		)
		assert.True(t, decide(t, w, activitiestest.NewReadInput(m)).Gone)
	})
	t.Run("or that another machine has its name", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m)
		w.HoldEvents()
		w.ReplaceWithOtherMachine("m")
		assert.Equal(
			t,
			machine.Decision{
				Gone:        true,
				MachinePlan: attention.MachinePlan{Decision: attention.Decision{Why: "the object is gone"}},
			},
			decide(t, w, activitiestest.NewReadInput(m)),
		)
	})
	t.Run("an API server that is away is tried again", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m)
		activitiestest.FailRequests(w.MachineClient, "get", "machines", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := activitiestest.RunActivity[machine.Decision](
			w,
			newActivities(w.Kube).DecideMachine,
			activitiestest.NewReadInput(m),
		)
		require.ErrorContains(t, err, "get machine shop/m: away")
		_, retryable := activitiestest.FailureTypeOf(t, err)
		assert.True(t, retryable)
	})
	t.Run("it is not asked twice, nor where the answer changes nothing", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m)
		assert.True(t, decide(t, w, activitiestest.NewLiveReadInput(m)).NeverTried)
		assert.Equal(t, []string{"get machines", "get machineclasses"}, w.Requests())
		used := activitiestest.NewMachine(
			"m",
			activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
			activitiestest.WithCreateAttempt,
		)
		for _, w := range []*activitiestest.World{activitiestest.NewWorld(t, used), activitiestest.NewWorld(t, used, activitiestest.NewClass())} {
			decide(t, w, activitiestest.NewReadInput(m))
			assert.Empty(t, w.Requests())
		}
	})
}
