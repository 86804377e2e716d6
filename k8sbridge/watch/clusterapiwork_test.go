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

// A set without pending work owns its templates. A template that was created again has no owner, so the set is
// signaled.
func TestTemplateThatLostItsOwnerSignalsTheSet(t *testing.T) {
	runCAPIBridgeTest(t, capiSetObjects(), func(w *bridgeTestEnv) {
		require.Empty(t, w.takeRequests())
		w.putObject(capitest.NewInfrastructureTemplate())
		w.runDueWork()
		assert.Equal(t, []string{capiSetSignal("s")}, w.takeRequests())
	})
}

// A set without its owner reference has pending work, even if it has all its machines.
func TestASetWithoutItsOwnerReferenceIsSignaled(t *testing.T) {
	s := fillCAPISetStatus(capitest.NewSet("s", 0, capitest.WithoutOwner), capitest.NewRelatedObjects())
	runBridgeTest(t, append([]runtime.Object{s}, capiSetObjects()[2:]...), func(w *bridgeTestEnv) {
		w.advanceClock(3 * time.Second)
		assert.Contains(t, w.takeRequests(), capiSetSignal("s"))
	})
}

// A user removes Millwright's finalizer, and another finalizer stays.
func TestASetThatLostItsFinalizerIsSignaledAtOnce(t *testing.T) {
	guarded := changedCAPISet(func(s *clusterv1.MachineSet) { s.Finalizers = append(s.Finalizers, "example.com/x") })
	runCAPIBridgeTest(t, append([]runtime.Object{guarded}, capiSetObjects()[1:]...), func(w *bridgeTestEnv) {
		require.Empty(t, w.takeRequests())
		w.putObject(changedCopy(guarded, func(s *clusterv1.MachineSet) { s.Finalizers = []string{"example.com/x"} }))
		w.runDueWork()
		assert.Equal(t, []string{capiSetSignal("s")}, w.takeRequests())
	})
}

// The search for runs of deleted objects includes the kinds of Cluster API.
func TestRunsOfDeletedClusterAPIDeploymentsAreSignaled(t *testing.T) {
	strays := []string{
		testInstallation.ID(run.KindClusterAPISet, refOfMissingObject("s")), // a set with this name exists, with another UID
		testInstallation.ID(
			run.KindClusterAPIDeployment,
			refOfMissingObject("d"),
		),
		testInstallation.ID(run.KindClusterAPIRollout, refOfMissingObject("d"), 3),
	}
	exist := []string{
		testInstallation.ID(run.KindClusterAPISet, objectRef(changedCAPISet())),
		testInstallation.ID(run.KindClusterAPIRollout, objectRef(capitest.NewDeployment()), 1),
	}
	assertStrayRunsSignaled(t, capiSetObjects(), strays, exist)
}

// Another controller adds its finalizer to a set that has all its machines. The set's status must report the other
// controller, because it may change machines, too.
func TestASetThatGetsAForeignFinalizerIsSignaled(t *testing.T) {
	runCAPIBridgeTest(t, capiSetObjects(), func(w *bridgeTestEnv) {
		w.putObject(
			changedCAPISet(func(s *clusterv1.MachineSet) { s.Finalizers = append(s.Finalizers, clusterv1.MachineSetFinalizer) }),
		)
		w.runDueWork()
		assert.Equal(t, []string{capiSetSignal("s")}, w.takeRequests())
	})
}

// Cluster API's controller sets the condition Paused on a set that waits for its hand-over. On a set with Millwright's
// finalizer this condition is Millwright's own, and signals nothing.
func TestASetThatClusterAPIHasPausedIsSignaled(t *testing.T) {
	paused := capitest.WithPausedCondition[*clusterv1.MachineSet]
	waiting := changedCAPISet(capitest.AsUpstreamObject[*clusterv1.MachineSet])
	for _, row := range []struct {
		set   *clusterv1.MachineSet
		wakes []string
	}{
		{waiting, []string{capiSetSignal("s")}},
		{changedCAPISet(), []string{}},
	} {
		runCAPIBridgeTest(t, capiSetObjects(), func(w *bridgeTestEnv) {
			w.putObject(row.set)
			w.advanceClock(3 * time.Second)
			w.takeRequests()
			w.putObject(changedCopy(row.set, paused))
			w.advanceClock(3 * time.Second)
			assert.Equal(t, row.wakes, w.takeRequests())
		})
	}
}
