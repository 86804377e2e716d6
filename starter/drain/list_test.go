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
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
)

// machinesForEachCase returns one machine for each case that the command list distinguishes.
func machinesForEachCase() []runtime.Object {
	return []runtime.Object{
		newDeletedMachine(
			withRemovalMeans("Evict"),
			withStep(vocabulary.StepEvictPods, "PodDisruptionBudget shop/web", "Volume pv-1"),
		),
		newDeletedMachine(
			withName("shop", "m-2"),
			withRemovalMeans("Evict"),
			withStep(vocabulary.StepEvictPods, "Volume pv-1"),
		),
		newDeletedMachine(withName("shop", "m-0"), withStage(v1alpha1.MachineDeletionDrain), withStep("queued")),
		newDeletedMachine(withName("shop", "m-3"), withoutDeletion(v1alpha1.MachineRunning)),
		newDeletedMachine(
			withName("base", "m-9"),
			withStage(v1alpha1.MachineDeletionInstance),
			withStep("delete-instance", "PermissionDenied"),
		),
	}
}

func TestListShowsDeletingMachines(t *testing.T) {
	out, err := newFakeBackend(machinesForEachCase()...).run(t.Context(), "list", "-A")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(`
NAMESPACE   NAME   NODE   STAGE            SINCE   MEANS   DEADLINE       BLOCKED BY
base        m-9    n-1    Instance         15m     -       -              PermissionDenied
shop        m-0    n-1    Drain (queued)   15m     -       -              -
shop        m-1    n-1    Drain            15m     Evict   15:51:07 UTC   PodDisruptionBudget shop/web, Volume pv-1
shop        m-2    n-1    Drain            15m     Evict   15:51:07 UTC   Volume pv-1
`, "\n"), out)
}

// Each name that `drain list -o name` prints is a valid argument of the other commands without --namespace.
func TestExplainAcceptsTheNamesOfTheList(t *testing.T) {
	w := newFakeBackend(machinesForEachCase()...)
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

func TestListShowsDrainsWithoutDeletion(t *testing.T) {
	w := newFakeBackend(
		newDeletedMachine(
			withDrainWithoutDeletion(v1alpha1.DrainForUpdate),
			withStep(vocabulary.StepEvictPods, "PodDisruptionBudget shop/web"),
		),
		newDeletedMachine(withName("shop", "m-2"), withDrainWithoutDeletion(v1alpha1.DrainForPreservation)),
		newDeletedMachine(
			withName("shop", "m-3"),
			withDrainWithoutDeletion(v1alpha1.DrainForUpdate),
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
	out, err = w.run(t.Context(), "list", "-A", "--blocked")
	require.NoError(t, err)
	assert.Contains(t, out, "m-1")
	assert.NotContains(t, out, "m-2")
}

func TestListShowsOnlyTheGivenNamespace(t *testing.T) {
	out, err := newFakeBackend(machinesForEachCase()...).run(t.Context(), "list", "-n", "base")
	require.NoError(t, err)
	assert.Contains(t, out, "m-9")
	assert.NotContains(t, out, "shop")
	out, err = newFakeBackend(machinesForEachCase()...).run(t.Context(), "list")
	require.NoError(t, err)
	assert.Equal(
		t,
		"no machine is being deleted or drained in namespace default; 4 elsewhere: -A\n",
		out,
		"machines at rest do not count",
	)
	out, err = newFakeBackend(machinesForEachCase()...).run(t.Context(), "list", "--blocked")
	require.NoError(t, err)
	assert.Equal(
		t,
		"no machine that is being deleted or drained needs a person in namespace default; 2 elsewhere: -A\n",
		out,
	)
	w := newFakeBackend(machinesForEachCase()...)
	w.ClusterClient = kubefake.NewClientset()
	out, err = w.run(t.Context(), "list", "-n", "nope")
	require.NoError(t, err)
	assert.Equal(t, "there is no namespace nope; 4 elsewhere: -A\n", out)
}

func TestListShowsOnlyBlockedMachines(t *testing.T) {
	out, err := newFakeBackend(machinesForEachCase()...).run(t.Context(), "list", "-A", "--blocked")
	require.NoError(t, err)
	var names []string
	for line := range strings.Lines(out) {
		names = append(names, strings.Fields(line)[1])
	}
	assert.Equal(t, []string{"NAME", "m-9", "m-1"}, names, "volumes and turns come by themselves")
	out, err = newFakeBackend().run(t.Context(), "list", "-A", "--blocked")
	require.NoError(t, err)
	assert.Equal(t, "no machine that is being deleted or drained needs a person\n", out)
}

func TestTheFormerFlagStuckSaysItsNewName(t *testing.T) {
	out, err := newFakeBackend(machinesForEachCase()...).run(t.Context(), "list", "-A", "--stuck", "-o", "name")
	require.NoError(t, err)
	assert.Contains(t, out, "Flag --stuck has been deprecated, use --blocked\n")
	assert.Contains(t, out, "m-9\n")
	assert.NotContains(t, out, "m-2", "it has the same effect")
	help, err := newFakeBackend().run(t.Context(), "list", "--help")
	require.NoError(t, err)
	assert.NotContains(t, help, "--stuck")
}

func TestNeedsManualAction(t *testing.T) {
	patient := func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineDrainTimeout: &metav1.Duration{Duration: 10 * time.Minute},
		}
	}
	for name, c := range map[string]struct {
		machine *v1alpha1.Machine
		stuck   bool
	}{
		"moves":                             {newDeletedMachine(withRemovalMeans("Evict"), withStep(vocabulary.StepEvictPods)), false},
		"held":                              {newDeletedMachine(withRemovalMeans("Evict"), withStep(vocabulary.StepEvictPods), withAnnotation(v1alpha1.AnnotationHold, "")), true},
		"nobody has begun for long":         {newDeletedMachine(), true},
		"nobody has begun yet":              {newDeletedMachine(func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(now.Add(-drain.StepOverdueAfter))) }), false},
		"its deadline has passed long ago":  {newDeletedMachine(withRemovalMeans("Evict"), patient), true},
		"its deadline was extended":         {newDeletedMachine(withRemovalMeans("Evict"), patient, withAnnotation(v1alpha1.AnnotationExtend, now.Add(time.Minute).Format(time.RFC3339)+" ann")), false},
		"its target is away at once":        {newDeletedMachine(withStep("announce", "TargetUnavailable"), func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(now)) }), true},
		"hooks":                             {newDeletedMachine(withStage(v1alpha1.MachineDeletionPreDrainHooks), withStep("await-hooks", "pre-drain.delete.hook.machine.cluster.x-k8s.io/a")), true},
		"what blocked before its deletion":  {newDeletedMachine(withStep("create-instance", "ResourceExhausted"), func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(now)) }), false},
		"deleting, and has a while to go":   {newDeletedMachine(withRemovalMeans("Delete"), withStep("delete"), withDeadline(time.Minute)), false},
		"deleting, and it should have been": {newDeletedMachine(withRemovalMeans("Delete"), withStep("delete"), withDeadline(-2*time.Minute)), true},
	} {
		assert.Equal(t, c.stuck, needsManualAction(c.machine, now), name)
	}
}

func TestListReturnsTheErrorOfTheAPIServer(t *testing.T) {
	w := newFakeBackend()
	w.MachineClient.PrependReactor("list", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	_, err := w.run(t.Context(), "list")
	assert.ErrorContains(t, err, "list machines: forbidden")
}
