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
)

var errMissing = apierrors.NewNotFound(schema.GroupResource{Resource: "machines"}, "m-1")

// looks makes each read of the machine find the next of these, a machine or an error; the last one repeatedly.
func (w *world) looks(found ...any) {
	w.Machines.PrependReactor("get", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
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

const watchFast = "--interval=1ns"

func TestWatchPrintsALineForEachChange(t *testing.T) {
	w := newWorld()
	blocked := going(by("Evict"), doing(vocabulary.StepEvictPods, "PodDisruptionBudget shop/web"))
	refused := going(
		at(v1alpha1.MachineDeletionInstance),
		doing("delete-instance", "Internal"),
		saying(v1alpha1.MachineInstanceReady, "Internal", "boom"),
	)
	w.looks(
		blocked,
		blocked,
		errors.New("away"),
		errors.New("away"),
		blocked,
		going(by("Evict"), wished(v1alpha1.AnnotationHold, "ann")),
		refused,
		refused,
		errMissing,
	)
	w.Temporal = openDrain()
	w.Temporal.Queried = picture()
	out, err := w.run(t.Context(), "watch", "shop/m-1", watchFast)
	require.NoError(t, err)
	const seen = "shop/m-1  Drain Evict  3 gone, 1 terminating, 1 blocked, 0 waiting for their turn, 2 stay  "
	why := picture().Why
	assert.Equal(t, []string{
		"14:06:07 UTC  " + seen + why,
		"14:06:07 UTC  get machine shop/m-1: away",
		"14:06:07 UTC  " + seen + why,
		"14:06:07 UTC  " + seen + "held",
		"14:06:07 UTC  shop/m-1  Instance  Internal: boom",
		"14:06:07 UTC  shop/m-1 is gone",
	}, strings.Split(strings.TrimSpace(out), "\n"))
	assert.True(t, w.Temporal.Closed)
}

func TestWatchEndsWithAnotherMachineOfThatName(t *testing.T) {
	w := newWorld()
	w.looks(going(), going(alive(v1alpha1.MachinePending), func(m *v1alpha1.Machine) { m.UID = "u-2" }))
	out, err := w.run(t.Context(), "watch", "shop/m-1", watchFast)
	require.NoError(t, err)
	assert.Contains(t, out, "shop/m-1 is gone\n")
}

func TestWatchEndsWithTheDrainOfAMachineThatStays(t *testing.T) {
	drained := func(m *v1alpha1.Machine) { m.Status.Drain.Result = "Drained" }
	for want, then := range map[string]*v1alpha1.Machine{
		"the drain of shop/m-1 is over: Drained\n":                   going(emptied(v1alpha1.DrainForUpdate), drained),
		"the drain of shop/m-1 is over: it is not wanted any more\n": going(alive(v1alpha1.MachineRunning)),
	} {
		w := newWorld()
		w.looks(going(emptied(v1alpha1.DrainForUpdate)), then)
		out, err := w.run(t.Context(), "watch", "shop/m-1", watchFast)
		require.NoError(t, err)
		assert.Contains(t, out, "shop/m-1  Drain (in-place update) Evict  node n-1 is being emptied\n")
		assert.Contains(t, out, want)
	}
}

func TestWatchEndsWellWithCtrlC(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld()
	w.Machines.PrependReactor("get", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel() // during a read
		return true, nil, errors.New("interrupted")
	})
	_, err := w.run(ctx, "watch", "shop/m-1")
	require.NoError(t, err)

	ctx, cancel = context.WithCancel(t.Context())
	w = newWorld(going(by("Evict")))
	w.Temporal = openDrain()
	w.Temporal.Queried = picture()
	out := &clitest.Pressed{Cancel: cancel} // between two reads
	require.NoError(
		t,
		reader{
			keyed("shop", "m-1"),
			kubecli.Clients{Machines: w.Machines},
			w.Temporal,
			"",
			w.Environment().Now,
		}.watch(
			ctx,
			out,
			time.Hour,
		),
	)
	assert.Contains(t, out.String(), "Drain Evict")
}

func TestWatchFailsAtTheFirstLookOnly(t *testing.T) {
	for want, first := range map[string]any{
		"there is no machine shop/m-1":                                errMissing,
		"get machine shop/m-1: forbidden":                             errors.New("forbidden"),
		"machine shop/m-1 is not being deleted: its phase is Unknown": going(alive(v1alpha1.MachineUnknown)),
	} {
		w := newWorld()
		w.looks(first)
		_, err := w.run(t.Context(), "watch", "shop/m-1", watchFast)
		assert.ErrorContains(t, err, want)
	}
}

func TestWatchDrawsAnewOnATerminal(t *testing.T) {
	var out bytes.Buffer
	w := kubecli.Watch{Out: &out, Live: true}
	s := snapshot{machine: going(by("Evict")), now: now}
	w.Frame(s.now, s.text(), s.summary())
	w.Frame(s.now, s.text(), s.summary())
	assert.Equal(t, strings.Repeat(kubecli.ClearScreen+s.text(), 2), out.String())
}
