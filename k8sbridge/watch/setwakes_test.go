package watch

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/set"
)

// A change of a machine with a controller signals only the set that controls the machine. A change of a machine without
// a controller signals the sets that select the machine. No other set is signaled.
func TestMachineSignalsItsSetOrTheSetsThatSelectIt(t *testing.T) {
	another := func(name, pool string) *v1alpha1.MachineSet {
		s := machineSetWithoutStatus()
		s.Name, s.UID, s.OwnerReferences, s.Spec.Replicas = name, types.UID("uid-"+name), nil, 0
		s.Spec.Template.Labels = map[string]string{"pool": pool}
		s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
		return machineSetWithDeploymentAndStatus(nil, s)
	}
	twin, apart, everything := another("twin", "a"), another("apart", "b"), another("everything", "b")
	everything.Spec.Selector = &metav1.LabelSelector{}
	for _, row := range []struct {
		name  string
		event func(w *bridgeTestEnv)
		want  []string
	}{
		{"owned: its owner", putChangedObject(machineWithName("second")), []string{signalWithStartLine(testMachineSet())}},
		{"an orphan: the sets that match it", putChangedObject(orphanMachine()), []string{signalWithStartLine(testMachineSet()), signalWithStartLine(twin)}},
		{"not the one that selects everything", putChangedObject(orphanMachine(withOtherMachinePoolLabel)), []string{signalWithStartLine(apart)}},
		{"an orphan that nobody matches", putChangedObject(orphanMachine(func(m *v1alpha1.Machine) { m.Labels["pool"] = "c" })), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			runBridgeTest(t, append(objectsWithoutPendingWork(), twin, apart, everything), func(w *bridgeTestEnv) {
				w.advanceClock(2 * time.Second)
				w.takeCalls()
				row.event(w)
				w.runDebouncedWork()
				var sets []string
				for _, line := range w.takeRequests() {
					for _, s := range []*v1alpha1.MachineSet{testMachineSet(), twin, apart, everything} {
						if line == signalWithStartLine(s) {
							sets = append(sets, line)
						}
					}
				}
				assert.Equal(t, row.want, sets)
			})
		})
	}
}

// Writes of an orphan's own workflow signal no set.
func TestOwnWritesOfAnOrphanSignalNoSet(t *testing.T) {
	runBridgeTest(
		t,
		append(objectsWithoutPendingWork(), orphanMachine(withOtherMachinePoolLabel)),
		func(w *bridgeTestEnv) {
			w.takeCalls()
			for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineUnknown, v1alpha1.MachineRunning} {
				w.putObject(orphanMachine(withOtherMachinePoolLabel, withPhase(phase)))
				w.advanceClock(2 * time.Second)
			}
			assert.NotContains(t, w.takeRequests(), signalWithStartLine(testMachineSet()))
		},
	)
}

// The signal to a set that may adopt an orphan has the orphan's version, because the set must read at least this
// version.
func TestSignalToASetHasTheVersionsOfItsOrphans(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		orphan := w.putObject(orphanMachine())
		w.advanceClock(5 * time.Second)
		w.takeCalls()
		w.advanceClock(maxResyncInterval) // the set has not adopted the orphan
		for _, c := range w.takeCalls() {
			if c.workflowID == workflowIDOf(testMachineSet()) {
				assert.Equal(t, orphan, c.signalContent.Versions[cache.MachinesResource])
				return
			}
		}
		assert.Fail(t, "no signal was sent")
	})
}

// The workflow must read at least the bridge's versions of the class and of a failed machine's node.
func TestSignalToASetHasTheVersionsOfItsClassAndNodes(t *testing.T) {
	lone := changedCopy(testMachineSet(), func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil })
	runBridgeTest(t, append(objectsWithoutPendingWork(), lone), func(w *bridgeTestEnv) {
		class := w.putObject(changedCopy(testClass(), func(c *v1alpha1.MachineClass) { c.Generation = 2 }))
		node := w.putObject(changedCopy(testNode(), updateHeartbeat))
		w.advanceClock(5 * time.Second)
		w.takeCalls()
		w.putObject(changedCopy(testMachine(), withPhase(v1alpha1.MachineFailed)))
		w.runDebouncedWork()
		for _, c := range w.takeCalls() {
			if c.workflowID == workflowIDOf(lone) {
				assert.Equal(
					t,
					[]string{class, node},
					[]string{c.signalContent.Versions[cache.ClassesResource], c.signalContent.Versions[cache.NodesResource]},
				)
				return
			}
		}
		assert.Fail(t, "no signal was sent")
	})
}

// A class signals the sets that refer to it when it is created or deleted, but not when it changes.
func TestCreatedOrDeletedClassSignalsItsSets(t *testing.T) {
	waiting := machineSetWithoutStatus()
	waiting.Name, waiting.UID, waiting.Spec.Template.Spec.Class.Name = "waiting", "uid-waiting", "large"
	withStatusForRelatedObjects(
		waiting,
		set.RelatedObjects{Deployment: testDeployment(), MissingKinds: []string{"MachineClass"}},
	)
	runBridgeTest(t, append(objectsWithoutPendingWork(), waiting), func(w *bridgeTestEnv) {
		signaled := func() []temporalCall {
			return slices.DeleteFunc(
				w.takeCalls(),
				func(c temporalCall) bool {
					return c.workflowID != workflowIDOf(testMachineSet()) && c.workflowID != workflowIDOf(waiting)
				},
			)
		}
		signaled()
		version := w.putObject(classWithName("large"))
		w.runDueWork()
		calls := signaled()
		require.Len(t, calls, 1)
		assert.Equal(t, workflowIDOf(waiting), calls[0].workflowID)
		assert.Equal(t, version, calls[0].signalContent.Versions[cache.ClassesResource])
		w.advanceClock(2 * time.Second)
		w.putObject(changedCopy(classWithName("large"), func(c *v1alpha1.MachineClass) { c.Generation = 2 }))
		w.advanceClock(2 * time.Second)
		assert.Empty(t, signaled())
	})
}

// The size of a deployment does not signal its sets: the deployment's workflow writes each set's own size.
func TestTheSizeOfADeploymentSignalsNoSet(t *testing.T) {
	runBridgeTest(t, []runtime.Object{testDeployment(), testMachineSet()}, func(w *bridgeTestEnv) {
		w.takeCalls()
		w.putDeploymentWithReplicas(5)
		w.advanceClock(5 * time.Second)
		assert.Equal(t, []string{signalWithStartLine(testDeployment())}, w.takeRequests())
	})
}
