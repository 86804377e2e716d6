package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/observe/capi/capitest"
	"millwright/workflows/run"
)

// A calm set has to own its templates as well: one that was created anew has no owner.
func TestATemplateWithoutItsOwnerWakesTheSet(t *testing.T) {
	inCAPIWorld(t, capiStack(), func(w *world) {
		require.Empty(t, w.asked())
		w.put(capitest.Infrastructure())
		w.flush()
		assert.Equal(t, []string{awakeCAPI("s")}, w.asked())
	})
}

// A set that is not prepared has work, whatever its size.
func TestAnUnpreparedSetIsNotCalm(t *testing.T) {
	s := capiReporting(capitest.Set("s", 0, capitest.Unowned), capitest.Related())
	inWorld(t, append([]runtime.Object{s}, capiStack()[2:]...), func(w *world) {
		w.pass(3 * time.Second)
		assert.Contains(t, w.asked(), awakeCAPI("s"))
	})
}

// Somebody removes Millwright's finalizer beside another one.
func TestASetThatLostItsFinalizerIsSignaledAtOnce(t *testing.T) {
	guarded := theSet(func(s *clusterv1.MachineSet) { s.Finalizers = append(s.Finalizers, "example.com/x") })
	inCAPIWorld(t, append([]runtime.Object{guarded}, capiStack()[1:]...), func(w *world) {
		require.Empty(t, w.asked())
		w.put(changed(guarded, func(s *clusterv1.MachineSet) { s.Finalizers = []string{"example.com/x"} }))
		w.flush()
		assert.Equal(t, []string{awakeCAPI("s")}, w.asked())
	})
}

// The kinds of Cluster API are looked for, too.
func TestRunsWhoseObjectsOfClusterAPIAreGoneAreSignaled(t *testing.T) {
	strays := []string{
		garden.ID(run.KindClusterAPISet, goneRef("s")), // a set of that name exists, with another UID
		garden.ID(run.KindClusterAPIDeployment, goneRef("d")), garden.ID(run.KindClusterAPIRollout, goneRef("d"), 3),
	}
	exist := []string{
		garden.ID(run.KindClusterAPISet, refOf(theSet())),
		garden.ID(run.KindClusterAPIRollout, refOf(capitest.Deployment()), 1),
	}
	proveStrays(t, capiStack(), strays, exist)
}

// Another controller adds its finalizer to a set that has all its machines. The status says so: that controller changes
// machines, too.
func TestAContestedSetSaysSo(t *testing.T) {
	inCAPIWorld(t, capiStack(), func(w *world) {
		w.put(theSet(func(s *clusterv1.MachineSet) { s.Finalizers = append(s.Finalizers, clusterv1.MachineSetFinalizer) }))
		w.flush()
		assert.Equal(t, []string{awakeCAPI("s")}, w.asked())
	})
}
