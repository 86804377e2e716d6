package drain

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/starter/clitest"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

var errMachineMissing = apierrors.NewNotFound(schema.GroupResource{Resource: "machines"}, "m-1")

// returnMachinesInTurn makes each read of the machine return the next of these machines or errors. Later reads return
// the last one again.
func (w *fakeBackend) returnMachinesInTurn(found ...any) {
	w.MachineClient.PrependReactor("get", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
		next := found[0]
		if len(found) > 1 {
			found = found[1:]
		}
		if err, failed := next.(error); failed {
			return true, nil, err
		}
		return true, next.(*v1alpha1.Machine), nil
	})
}

const shortIntervalFlag = "--interval=1ns"

func TestWatchPrintsALineForEachChange(t *testing.T) {
	w := newFakeBackend()
	blocked := newDeletedMachine(
		withRemovalMeans("Evict"),
		withStep(vocabulary.StepEvictPods, "PodDisruptionBudget shop/web"),
	)
	refused := newDeletedMachine(
		withStage(v1alpha1.MachineDeletionInstance),
		withStep("delete-instance", "Internal"),
		withCondition(v1alpha1.MachineInstanceReady, "Internal", "boom"),
	)
	w.returnMachinesInTurn(
		blocked,
		blocked,
		errors.New("away"),
		errors.New("away"),
		blocked,
		newDeletedMachine(withRemovalMeans("Evict"), withAnnotation(v1alpha1.AnnotationHold, "ann")),
		refused,
		refused,
		errMachineMissing,
	)
	w.Temporal = newTemporalWithOpenDrain()
	w.Temporal.QueryAnswer = newBlockedOverview()
	out, err := w.run(t.Context(), "watch", "shop/m-1", shortIntervalFlag)
	require.NoError(t, err)
	const seen = "shop/m-1  Drain Evict  3 gone, 1 terminating, 1 blocked, 0 waiting for their turn, 2 stay  "
	why := newBlockedOverview().Why
	assert.Equal(t, []string{
		"14:06:07 UTC  " + seen + why,
		"14:06:07 UTC  get machine shop/m-1: away",
		"14:06:07 UTC  " + seen + why,
		"14:06:07 UTC  " + seen + "held",
		"14:06:07 UTC  shop/m-1  Instance  Internal: boom",
		"14:06:07 UTC  shop/m-1 is gone",
	}, strings.Split(strings.TrimSpace(out), "\n"))
	assert.True(t, w.Temporal.IsClosed)
}

func TestWatchEndsIfTheMachineIsReplaced(t *testing.T) {
	w := newFakeBackend()
	w.returnMachinesInTurn(
		newDeletedMachine(),
		newDeletedMachine(withoutDeletion(v1alpha1.MachinePending), func(m *v1alpha1.Machine) { m.UID = "u-2" }),
	)
	out, err := w.run(t.Context(), "watch", "shop/m-1", shortIntervalFlag)
	require.NoError(t, err)
	assert.Contains(t, out, "shop/m-1 is gone\n")
}

func TestWatchEndsAfterADrainWithoutDeletion(t *testing.T) {
	drained := func(m *v1alpha1.Machine) { m.Status.Drain.Result = "Drained" }
	for want, then := range map[string]*v1alpha1.Machine{
		"the drain of shop/m-1 is over: Drained\n":                   newDeletedMachine(withDrainWithoutDeletion(v1alpha1.DrainForUpdate), drained),
		"the drain of shop/m-1 is over: it is not wanted any more\n": newDeletedMachine(withoutDeletion(v1alpha1.MachineRunning)),
	} {
		w := newFakeBackend()
		w.returnMachinesInTurn(newDeletedMachine(withDrainWithoutDeletion(v1alpha1.DrainForUpdate)), then)
		out, err := w.run(t.Context(), "watch", "shop/m-1", shortIntervalFlag)
		require.NoError(t, err)
		assert.Contains(t, out, "shop/m-1  Drain (in-place update) Evict  node n-1 is being emptied\n")
		assert.Contains(t, out, want)
	}
}

func TestWatchFailsAfterASignal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newFakeBackend()
	w.MachineClient.PrependReactor("get", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel() // the watch ends during a read
		return true, nil, errors.New("interrupted")
	})
	_, err := w.run(ctx, "watch", "shop/m-1")
	require.EqualError(t, err, "the drain of shop/m-1 is not known to be over: context canceled")

	ctx, cancel = context.WithCancel(t.Context())
	w = newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")))
	w.Temporal = newTemporalWithOpenDrain()
	w.Temporal.QueryAnswer = newBlockedOverview()
	out := &clitest.CancellingWriter{Cancel: cancel} // the watch ends between two reads
	require.ErrorIs(
		t,
		machineReader{
			newMachineKey("shop", "m-1"),
			kubecli.Clients{MachineClient: w.MachineClient},
			w.Temporal,
			"",
			w.Environment().Now,
		}.watchDrain(
			ctx,
			out,
			time.Hour,
		),
		context.Canceled,
	)
	assert.Contains(t, out.String(), "Drain Evict")
}

func TestWatchFailsOnlyAtTheFirstRead(t *testing.T) {
	for want, first := range map[string]any{
		"there is no machine shop/m-1":                                errMachineMissing,
		"get machine shop/m-1: forbidden":                             errors.New("forbidden"),
		"machine shop/m-1 is not being deleted: its phase is Unknown": newDeletedMachine(withoutDeletion(v1alpha1.MachineUnknown)),
	} {
		w := newFakeBackend()
		w.returnMachinesInTurn(first)
		_, err := w.run(t.Context(), "watch", "shop/m-1", shortIntervalFlag)
		assert.ErrorContains(t, err, want)
	}
}

func TestWatchRedrawsOnATerminal(t *testing.T) {
	var out bytes.Buffer
	w := printers.WatchPrinter{Out: &out, IsTerminal: true}
	s := snapshot{machine: newDeletedMachine(withRemovalMeans("Evict")), now: now}
	w.DrawFrame(s.now, s.explanation(), s.summaryLine())
	w.DrawFrame(s.now, s.explanation(), s.summaryLine())
	assert.Equal(t, strings.Repeat(printers.ClearScreenSequence+s.explanation(), 2), out.String())
}
