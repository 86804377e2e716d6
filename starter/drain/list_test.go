package drain

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
)

// crowd is one machine of each kind that a list distinguishes.
func crowd() []runtime.Object {
	return []runtime.Object{
		going(by("Evict"), doing(vocabulary.StepEvictPods, "PodDisruptionBudget shop/web", "Volume pv-1")),
		going(named("shop", "m-2"), by("Evict"), doing(vocabulary.StepEvictPods, "Volume pv-1")),
		going(named("shop", "m-0"), at(v1alpha1.MachineDeletionDrain), doing("queued")),
		going(named("shop", "m-3"), alive(v1alpha1.MachineRunning)),
		going(named("base", "m-9"), at(v1alpha1.MachineDeletionInstance), doing("delete-instance", "PermissionDenied")),
	}
}

func TestListOfMachinesThatAreDeleted(t *testing.T) {
	out, err := newWorld(crowd()...).run(t.Context(), "list", "-A")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(`
NAMESPACE   NAME   NODE   STAGE            SINCE   MEANS   DEADLINE       BLOCKED BY
base        m-9    n-1    Instance         15m     -       -              PermissionDenied
shop        m-0    n-1    Drain (queued)   15m     -       -              -
shop        m-1    n-1    Drain            15m     Evict   15:51:07 UTC   PodDisruptionBudget shop/web, Volume pv-1
shop        m-2    n-1    Drain            15m     Evict   15:51:07 UTC   Volume pv-1
`, "\n"), out)
}

// A name of the list is an argument of the other commands, without a flag for the namespace.
func TestNamesOfTheListCanBeExplained(t *testing.T) {
	w := newWorld(crowd()...)
	out, err := w.run(t.Context(), "list", "-A", "-o", "name")
	require.NoError(t, err)
	names := strings.Fields(out)
	require.Equal(t, []string{"machine/base/m-9", "machine/shop/m-0", "machine/shop/m-1", "machine/shop/m-2"}, names)
	for _, name := range names {
		out, err := w.run(t.Context(), "explain", name)
		require.NoError(t, err)
		assert.Contains(t, out, strings.TrimPrefix(name, "machine/"))
	}
}

func TestListOfMachinesWhoseNodesAreEmptied(t *testing.T) {
	w := newWorld(
		going(emptied(v1alpha1.DrainForUpdate), doing(vocabulary.StepEvictPods, "PodDisruptionBudget shop/web")),
		going(named("shop", "m-2"), emptied(v1alpha1.DrainForPreservation)),
		going(
			named("shop", "m-3"),
			emptied(v1alpha1.DrainForUpdate),
			func(m *v1alpha1.Machine) { m.Status.Drain.Result = "Drained" },
		),
	)
	out, err := w.run(t.Context(), "list", "-A")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(`
NAMESPACE   NAME   NODE   STAGE                     SINCE   MEANS   DEADLINE       BLOCKED BY
shop        m-1    n-1    Drain (in-place update)   15m     Evict   15:51:07 UTC   PodDisruptionBudget shop/web
shop        m-2    n-1    Drain (preservation)      15m     Evict   15:51:07 UTC   -
`, "\n"), out)
	out, err = w.run(t.Context(), "list", "-A", "--stuck")
	require.NoError(t, err)
	assert.Contains(t, out, "m-1")
	assert.NotContains(t, out, "m-2")
}

func TestListOfOneNamespace(t *testing.T) {
	out, err := newWorld(crowd()...).run(t.Context(), "list", "-n", "base")
	require.NoError(t, err)
	assert.Contains(t, out, "m-9")
	assert.NotContains(t, out, "shop")
	out, err = newWorld(crowd()...).run(t.Context(), "list")
	require.NoError(t, err)
	assert.Equal(t, "no machine is being deleted or drained\n", out, "the namespace default")
}

func TestListOfStuckMachines(t *testing.T) {
	out, err := newWorld(crowd()...).run(t.Context(), "list", "-A", "--stuck")
	require.NoError(t, err)
	var names []string
	for line := range strings.Lines(out) {
		names = append(names, strings.Fields(line)[1])
	}
	assert.Equal(t, []string{"NAME", "m-9", "m-1"}, names, "volumes and turns come by themselves")
	out, err = newWorld().run(t.Context(), "list", "-A", "--stuck")
	require.NoError(t, err)
	assert.Equal(t, "no machine that is being deleted or drained needs a person\n", out)
}

func TestStuck(t *testing.T) {
	patient := func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineDrainTimeout: &metav1.Duration{Duration: 10 * time.Minute},
		}
	}
	for name, c := range map[string]struct {
		machine *v1alpha1.Machine
		stuck   bool
	}{
		"moves":                             {going(by("Evict"), doing(vocabulary.StepEvictPods)), false},
		"held":                              {going(by("Evict"), doing(vocabulary.StepEvictPods), wished(v1alpha1.AnnotationHold, "")), true},
		"nobody has begun for long":         {going(), true},
		"nobody has begun yet":              {going(func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(now.Add(-drain.Overdue))) }), false},
		"its deadline has passed long ago":  {going(by("Evict"), patient), true},
		"its deadline was extended":         {going(by("Evict"), patient, wished(v1alpha1.AnnotationExtend, now.Add(time.Minute).Format(time.RFC3339)+" ann")), false},
		"its target is away at once":        {going(doing("announce", "TargetUnavailable"), func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(now)) }), true},
		"hooks":                             {going(at(v1alpha1.MachineDeletionPreDrainHooks), doing("await-hooks", "pre-drain.delete.hook.machine.cluster.x-k8s.io/a")), true},
		"what blocked before its deletion":  {going(doing("create-instance", "ResourceExhausted"), func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(now)) }), false},
		"deleting, and has a while to go":   {going(by("Delete"), doing("delete"), until(time.Minute)), false},
		"deleting, and it should have been": {going(by("Delete"), doing("delete"), until(-2*time.Minute)), true},
	} {
		assert.Equal(t, c.stuck, stuck(c.machine, now), name)
	}
}

func TestListThatFails(t *testing.T) {
	w := newWorld()
	w.Machines.PrependReactor("list", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	_, err := w.run(t.Context(), "list")
	assert.ErrorContains(t, err, "list machines: forbidden")
}
