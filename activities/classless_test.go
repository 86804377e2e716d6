package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
)

// tried makes a machine one for which a create call was begun.
func tried(m *v1alpha1.Machine) { m.Status.LastOperation.Type = v1alpha1.MachineOperationCreate }

func TestD17_DeletionWithoutAUsableClass(t *testing.T) {
	t.Parallel()
	m := machine("m", going[*v1alpha1.Machine])
	unusable := class(func(c *v1alpha1.MachineClass) { c.Provider = "" })
	decide := func(t *testing.T, w *world, in activities.Read) activities.MachineDecision {
		t.Helper()
		d, err := run[activities.MachineDecision](w, w.DecideMachine, in)
		require.NoError(t, err)
		return d
	}
	t.Run("D17: that nothing was ever tried is asked of the API server", func(t *testing.T) {
		for _, w := range []*world{newWorld(t, m), newWorld(t, m, unusable)} {
			d := decide(t, w, read(m))
			assert.Equal(t, attention.Deletion, d.Need)
			assert.NotNil(t, d.Problem)
			assert.True(t, d.NeverTried)
			assert.Equal(t, []string{"get machines"}, w.requests())
		}
	})
	t.Run("D17: which may know of a creation that the cache does not", func(t *testing.T) {
		w := newWorld(t, m)
		w.hold()
		w.begun("m")
		d := decide(t, w, read(m))
		assert.Equal(t, attention.Deletion, d.Need)
		assert.False(t, d.NeverTried, "there may be an instance, and only its provider can tell")
		assert.NotNil(t, d.Problem)
	})
	t.Run("D17: or that the machine is gone", func(t *testing.T) {
		w := newWorld(t, m)
		failing(w.machines, "get", "machines", 1, apierrors.NewNotFound(v1alpha1.Resource("machines"), "m"), nil)
		assert.True(t, decide(t, w, read(m)).Gone)
	})
	t.Run("D17: or that another machine has its name", func(t *testing.T) {
		w := newWorld(t, m)
		w.hold()
		w.impostor("m")
		assert.Equal(t, activities.MachineDecision{Gone: true, Why: "the object is gone"}, decide(t, w, read(m)))
	})
	t.Run("D17: an API server that is away is tried again", func(t *testing.T) {
		w := newWorld(t, m)
		failing(w.machines, "get", "machines", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := run[activities.MachineDecision](w, w.DecideMachine, read(m))
		require.ErrorContains(t, err, "get machine shop/m: away")
		_, retryable := failure(t, err)
		assert.True(t, retryable)
	})
	t.Run("D17: it is not asked twice, nor where the answer changes nothing", func(t *testing.T) {
		w := newWorld(t, m)
		assert.True(t, decide(t, w, live(m)).NeverTried)
		assert.Equal(t, []string{"get machines", "get machineclasses"}, w.requests())
		used := machine("m", going[*v1alpha1.Machine], tried)
		for _, w := range []*world{newWorld(t, used), newWorld(t, used, class())} {
			decide(t, w, read(m))
			assert.Empty(t, w.requests())
		}
	})
}

// begun records behind the back of the caches that a creation began.
func (w *world) begun(name string) {
	w.t.Helper()
	m := w.machine(name).DeepCopy()
	tried(m)
	_, err := w.machines.MachineV1alpha1().Machines(shop).UpdateStatus(w.t.Context(), m, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	w.forget()
}

// impostor puts another machine of the same name in the place of one.
func (w *world) impostor(name string) {
	w.t.Helper()
	tracker, gvr := w.machines.Tracker(), v1alpha1.SchemeGroupVersion.WithResource("machines")
	require.NoError(w.t, tracker.Delete(gvr, shop, name))
	other := machine(name)
	other.UID = "uid-of-another"
	require.NoError(w.t, tracker.Create(gvr, other, shop))
}
