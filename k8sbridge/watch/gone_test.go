package watch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	observecache "millwright/observe/cache"
)

func TestWorkflowOfADeletedMachineIsSignaledAfterTheGracePeriod(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		w.putObject(changedCopy(testMachine(), setDeleting[*v1alpha1.Machine]))
		w.runDueWork()
		assert.Contains(t, w.takeRequests(), signalWithStartLine(testMachine()), "when it is being deleted")
		w.advanceClock(2 * time.Second)
		w.takeCalls()
		w.setCallResult(serviceerror.NewNotFound("closed"), 0) // the workflow has ended with its object
		w.deleteObject(testMachine())
		w.runDueWork()
		for _, c := range w.takeCalls() {
			assert.NotEqual(t, workflowIDOf(testMachine()), c.workflowID, "its workflow may be about to end by itself")
		}
		w.advanceClock(deletionGracePeriod)
		calls := w.takeCalls()
		require.NotEmpty(t, calls)
		c := calls[len(calls)-1]
		assert.Equal(
			t,
			"signal "+workflowIDOf(testMachine()),
			c.verb+" "+c.workflowID,
			"a signal does not start a run for an object that is gone",
		)
		assert.True(t, c.signalContent.Deleting)
		assert.Equal(t, "uid-m", c.signalContent.UID)
		w.advanceClock(20 * time.Second)
		for _, c := range w.takeCalls() {
			assert.NotEqual(t, workflowIDOf(testMachine()), c.workflowID, "that there was no run is fine")
		}
	})
}

// The node is deleted shortly before its machine. The bridge must not signal a run that is about to end by itself.
func TestNodeDeletedJustBeforeItsMachineSignalsNoEndingRun(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		going := changedCopy(testMachine(), setDeleting[*v1alpha1.Machine])
		w.putObject(going)
		w.advanceClock(2 * time.Second)
		w.takeCalls()
		w.deleteObject(testNode())
		w.advanceClock(50 * time.Millisecond)
		w.deleteObject(going)
		w.advanceClock(deletionGracePeriod - time.Millisecond)
		for _, c := range w.takeCalls() {
			assert.NotEqual(t, workflowIDOf(going), c.workflowID)
		}
		w.advanceClock(time.Millisecond)
		assert.Contains(t, w.takeRequests(), "signal "+workflowIDOf(going))
	})
}

// An event that arrives while a signal is in flight is not lost if the signal fails.
func TestDeletionDuringAFailedSignalIsNotLost(t *testing.T) {
	runBridgeTest(t, nil, func(w *bridgeTestEnv) {
		w.setCallResult(serviceerror.NewInternal("odd"), 2*time.Second)
		w.putObject(recreatedMachine("m", "uid-1"))
		w.runDueWork()
		w.deleteObject(recreatedMachine("m", "uid-1"))
		w.advanceClock(2 * time.Second)
		w.setCallResult(nil, 0)
		w.takeCalls()
		w.advanceClock(deletionGracePeriod)
		assert.Contains(t, w.takeRequests(), "signal "+workflowIDOf(recreatedMachine("m", "uid-1")))
	})
}

func recreatedMachine(name, uid string) *v1alpha1.Machine {
	return changedCopy(machineWithName(name), setNotCreated, func(m *v1alpha1.Machine) { m.UID = types.UID(uid) })
}

func TestObjectRecreatedUnderItsNameSignalsBothWorkflows(t *testing.T) {
	first, second, third := recreatedMachine("m", "uid-1"), recreatedMachine("m", "uid-2"), recreatedMachine("m", "uid-3")
	runBridgeTest(t, []runtime.Object{first}, func(w *bridgeTestEnv) {
		w.takeCalls()
		w.deleteObject(first)
		w.putObject(second)
		w.runDueWork()
		assert.Subset(
			t,
			w.takeRequests(),
			[]string{"signal " + workflowIDOf(first), signalWithStartLine(second)},
			"the new object does not wait for the old one",
		)
	})
	runBridgeTest(t, []runtime.Object{first}, func(w *bridgeTestEnv) {
		w.takeCalls()
		w.setCallResult(serviceerror.NewUnavailable("away"), 0)
		w.deleteObject(first)
		w.putObject(second)
		w.advanceClock(time.Second)
		w.deleteObject(second)
		w.putObject(third)
		w.advanceClock(time.Second)
		w.setCallResult(nil, 0)
		w.takeCalls()
		w.advanceClock(10 * time.Second)
		assert.Subset(
			t,
			w.takeRequests(),
			[]string{"signal " + workflowIDOf(first), "signal " + workflowIDOf(second), signalWithStartLine(third)},
			"no workflow waits for a deleted object",
		)
	})
}

// If an object was deleted and created again while the watch was broken, the informer reports an update.
func TestObjectRecreatedDuringABrokenWatchSignalsBothWorkflows(t *testing.T) {
	first, second := recreatedMachine("m", "uid-1"), recreatedMachine("m", "uid-2")
	runBridgeTest(t, []runtime.Object{first}, func(w *bridgeTestEnv) {
		w.takeCalls()
		version := w.putObject(second)
		w.advanceClock(deletionGracePeriod)
		calls := map[string]temporalCall{}
		for _, c := range w.takeCalls() {
			calls[c.verb+" "+c.workflowID] = c
		}
		require.Contains(t, calls, "signal "+workflowIDOf(first))
		assert.Equal(
			t,
			version,
			calls["signal "+workflowIDOf(first)].signalContent.Versions[observecache.MachinesResource],
			"a cache that old still has the first",
		)
		assert.Contains(t, calls, signalWithStartLine(second))
		assert.Equal(t, 1, w.countFingerprints(), "the first is forgotten")
	})
}

// For a deletion that the watch missed, the informer reports the object's last known state. A cache that has only
// reached the version of this state still contains the object.
func TestTombstoneSignalHasTheVersionOfTheCache(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		version := w.putObject(changedCopy(testMachine(), withPhase(v1alpha1.MachineRunning)))
		w.runDueWork()
		informer := w.cluster.Informer(observecache.MachinesResource)
		require.Equal(t, version, informer.GetStore().LastStoreSyncResourceVersion())
		old := changedCopy(machineWithName("old"), func(m *v1alpha1.Machine) { m.ResourceVersion = "1" })
		w.bridge.eventHandler(observecache.MachinesResource, informer, nil).
			OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/old", Obj: old})
		w.advanceClock(deletionGracePeriod + time.Second)
		for _, c := range w.takeCalls() {
			if c.workflowID == workflowIDOf(old) {
				assert.Equal(t, version, c.signalContent.Versions[observecache.MachinesResource])
				return
			}
		}
		assert.Fail(t, "no signal was sent")
	})
}

func TestWorkflowsOfADeletedSetAndDeploymentAreSignaled(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		w.deleteObject(testMachineSet())
		w.deleteObject(testDeployment())
		w.advanceClock(deletionGracePeriod)
		assert.Subset(
			t,
			w.takeRequests(),
			[]string{"signal " + workflowIDOf(testMachineSet()), "signal " + workflowIDOf(testDeployment())},
		)
	})
}

// If a rollout is open and its deployment's workflow is closed, only the bridge can signal to the rollout that the
// deployment is gone.
func TestOpenRolloutOfADeletedDeploymentIsSignaled(t *testing.T) {
	for name, row := range map[string]struct {
		closed string
		wanted []string
	}{
		"both are open":                         {"", []string{rolloutSignal, "signal " + workflowIDOf(testDeployment())}},
		"the deployment's workflow is not open": {workflowIDOf(testDeployment()), []string{rolloutSignal, "signal " + workflowIDOf(testDeployment())}},
		"the rollout is not open":               {testRolloutID, []string{rolloutSignal, "signal " + workflowIDOf(testDeployment())}},
	} {
		t.Run(name, func(t *testing.T) {
			runBridgeTest(t, objectsDuringRollout(withOpenRollout), func(w *bridgeTestEnv) {
				w.closeWorkflow(row.closed)
				w.takeDeploymentCalls()
				w.deleteObject(deploymentDuringRollout(withOpenRollout))
				w.advanceClock(deletionGracePeriod)
				calls := w.takeDeploymentCalls()
				require.Equal(t, row.wanted, callDescriptions(calls))
				for _, c := range calls {
					assert.Equal(t, []any{"uid-d", true}, []any{c.signalContent.UID, c.signalContent.Deleting})
					assert.NotEmpty(t, c.signalContent.Versions[observecache.DeploymentsResource], "a cache that old still has it")
				}
				w.advanceClock(20 * time.Second)
				assert.Empty(t, w.takeDeploymentCalls(), "that one is not open is no failure")
			})
		})
	}
}

func TestDeletedDeploymentIsSignaledAgainAfterAFailure(t *testing.T) {
	runBridgeTest(t, objectsDuringRollout(withOpenRollout), func(w *bridgeTestEnv) {
		w.takeDeploymentCalls()
		w.deleteObject(deploymentDuringRollout(withOpenRollout))
		w.runDueWork()
		w.setCallResult(serviceerror.NewInternal("odd"), 0)
		w.advanceClock(deletionGracePeriod)
		assert.Equal(t, []string{rolloutSignal}, callDescriptions(w.takeDeploymentCalls()))
		w.setCallResult(nil, 0)
		w.advanceClock(10 * time.Second)
		assert.Equal(
			t,
			[]string{rolloutSignal, "signal " + workflowIDOf(testDeployment())},
			callDescriptions(w.takeDeploymentCalls()),
		)
	})
}

// The bridge stores nothing about deleted objects, so only the number of existing objects determines its memory.
func TestBridgeForgetsDeletedObjects(t *testing.T) {
	runBridgeTest(t, nil, func(w *bridgeTestEnv) {
		for round := range 3 {
			var made []runtime.Object
			for i := range 20 {
				m := recreatedMachine(fmt.Sprintf("m-%d", i), fmt.Sprintf("uid-%d-%d", round, i))
				n := nodeWithName(fmt.Sprintf("n-%d", i))
				n.UID = types.UID(fmt.Sprintf("uid-n-%d-%d", round, i))
				made = append(made, m, n)
				w.putObject(m)
				w.putObject(n)
				w.advanceClock(100 * time.Millisecond)
			}
			w.putObject(testMachineSet())
			w.putObject(testDeployment())
			w.advanceClock(5 * time.Second)
			if round == 1 {
				w.setCallResult(serviceerror.NewUnavailable("away"), 0) // back-offs are stored as well
			}
			for _, o := range append(made, testMachineSet(), testDeployment()) {
				w.deleteObject(o)
			}
			w.advanceClock(10 * time.Second)
			w.setCallResult(nil, 0)
			w.advanceClock(2 * time.Minute)
			assert.Zero(t, w.countStoredEntries(), "round %d", round)
			assert.Zero(t, w.countFingerprints(), "round %d", round)
			for _, o := range made {
				if m, ok := o.(*v1alpha1.Machine); ok {
					assert.Zero(t, w.bridge.backoff.NumRequeues(objectKey{"Machine", "ns", m.Name}))
				}
			}
		}
	})
}
