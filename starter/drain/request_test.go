package drain

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/starter/kubecli"
)

// failWritesWithConflicts makes the first writes of machines fail with a conflict.
func (w *fakeBackend) failWritesWithConflicts(times int) {
	w.MachineClient.PrependReactor("patch", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
		if times--; times < 0 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, "m-1", errors.New("changed"))
	})
}

func TestRequestIsWrittenAgainAfterAConflict(t *testing.T) {
	w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")))
	w.failWritesWithConflicts(kubecli.MaxWriteRetries)
	newer := func(version string) *v1alpha1.Machine {
		return newDeletedMachine(withRemovalMeans("Evict"), func(m *v1alpha1.Machine) { m.ResourceVersion = version })
	}
	w.returnMachinesInTurn(newer("7"), newer("8"), newer("9"), newer("10"))
	out, err := w.run(t.Context(), "force", "--yes", "shop/m-1", "--reason=x")
	require.NoError(t, err)
	sent := w.Patches()
	require.Len(t, sent, 1+kubecli.MaxWriteRetries)
	for i, version := range []string{"7", "8", "9", "10"} {
		assert.Contains(t, sent[i], `"resourceVersion":"`+version+`","uid":"u-1"`, "each carries what was read before it")
	}
	assert.Equal(t, 1, strings.Count(out, "Next:"))
}

func TestRequestFailsAfterTooManyConflicts(t *testing.T) {
	w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")))
	w.failWritesWithConflicts(100)
	_, err := w.run(t.Context(), "force", "--yes", "shop/m-1", "--reason=x")
	require.EqualError(
		t,
		err,
		"force machine shop/m-1: others wrote it 4 times meanwhile, and nothing was written: try again",
	)
	assert.Len(t, w.Patches(), 4)
}

func TestRequestIsCheckedAgainAfterAConflict(t *testing.T) {
	for want, second := range map[string]any{
		"the drain of machine shop/m-1 is over":                                                    newDeletedMachine(withDrainResult(v1alpha1.MachineDeletionInstance, "Drained")),
		"machine shop/m-1 was replaced by another one of that name meanwhile: nothing was written": newDeletedMachine(withRemovalMeans("Evict"), func(m *v1alpha1.Machine) { m.UID = types.UID("u-2") }),
		"there is no machine shop/m-1":                                                             errMachineMissing,
	} {
		w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")))
		w.failWritesWithConflicts(1)
		w.returnMachinesInTurn(newDeletedMachine(withRemovalMeans("Evict")), second)
		_, err := w.run(t.Context(), "force", "--yes", "shop/m-1", "--reason=x")
		require.ErrorContains(t, err, want)
		assert.Len(t, w.Patches(), 1)
	}
}

func TestRequestReturnsTheErrorOfTheAPIServer(t *testing.T) {
	w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")))
	w.MachineClient.PrependReactor("patch", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	_, err := w.run(t.Context(), "skip", "shop/m-1", "--reason=x")
	require.EqualError(t, err, "skip machine shop/m-1: forbidden")
}

func TestAbandonInstanceAsksForConfirmation(t *testing.T) {
	for answer, done := range map[string]bool{"yes\n": true, "yes": true, "y\n": false, "no\n": false, "": false} {
		w := newFakeBackend(newDeletedMachine(withStage(v1alpha1.MachineDeletionInstance)))
		w.Input = answer
		w.failWritesWithConflicts(1)
		out, err := w.run(t.Context(), "abandon-instance", "shop/m-1", "--reason=x")
		assert.Equal(
			t,
			1,
			strings.Count(out, "Abandon the instance of machine shop/m-1? Type yes: "),
			"it asks once, conflict or not",
		)
		assert.Contains(
			t,
			out,
			"Instance virtual:///i-1 at the provider is left running: only a sweep for orphans of its MachineClass deletes it later\n",
		)
		if done {
			require.NoError(t, err)
			assert.Len(t, w.Patches(), 2)
		} else {
			require.ErrorIs(t, err, kubecli.ErrNotConfirmed)
			assert.Empty(t, w.Patches())
		}
	}
}

func TestForceAsksForConfirmation(t *testing.T) {
	for answer, patches := range map[string]int{"yes\n": 1, "no\n": 0} {
		w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")))
		w.Input = answer
		out, err := w.run(t.Context(), "force", "shop/m-1", "--reason=x")
		assert.Contains(
			t,
			out,
			"The pods of machine shop/m-1 get no time to end, whatever their budgets say.\nDelete them? Type yes: ",
		)
		assert.Equal(t, patches == 0, errors.Is(err, kubecli.ErrNotConfirmed))
		assert.Len(t, w.Patches(), patches)
	}
}
