package watch

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/set"
)

func controlPlaneResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "controlplanes"}
}

// testControlPlane returns a control plane with three replicas, of which the given number is available.
func testControlPlane(available int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "ControlPlane",
		"metadata": map[string]any{"namespace": "ns", "name": "cp", "uid": "uid-cp", "generation": int64(1)},
		"spec":     map[string]any{"replicas": int64(3)},
		"status":   map[string]any{"availableReplicas": available},
	}}
}

// A set that waits for the control plane has no pending work. The set is signaled when the control plane has changed.
func TestTheControlPlaneSignalsTheSetsThatWaitForIt(t *testing.T) {
	short := machineSetWithoutStatus()
	short.Spec.Replicas = 2
	runBridgeTest(t, append(objectsWithoutPendingWork(), testControlPlane(1)), func(w *bridgeTestEnv) {
		w.putObject(short)
		w.runDueWork()
		w.putObject(withStatusForRelatedObjects(short, set.ReadRelatedObjects(w.cluster, short)))
		w.advanceClock(5 * time.Second)
		w.takeCalls()
		s, found := w.cluster.MachineSet("ns/s")
		require.True(t, found)
		plan := scale.PlanSet(set.ScaleFacts(s, set.ReadRelatedObjects(w.cluster, s), time.Now(), 0))
		require.False(t, plan.Decision.HasActions(), "it makes none")
		require.False(t, plan.NeedsStatusWrite, "and says why")

		noted := testControlPlane(1)
		noted.SetAnnotations(map[string]string{"note": "x"})
		w.putObject(noted)
		w.advanceClock(2 * time.Second)
		assert.NotContains(t, w.takeRequests(), signalWithStartLine(testMachineSet()), "nothing that a check looks at")

		version := w.putObject(testControlPlane(3))
		for _, wait := range []time.Duration{time.Millisecond, maxResyncInterval} { // wait for the event, then for a resync
			w.advanceClock(wait)
			signaled := w.takeCalls()
			i := slices.IndexFunc(signaled, func(c temporalCall) bool { return c.workflowID == workflowIDOf(testMachineSet()) })
			require.GreaterOrEqual(t, i, 0, "the set was not signaled")
			assert.Equal(
				t,
				version,
				signaled[i].signalContent.Versions[cache.ControlPlanesResource],
				"the worker must see no less",
			)
		}
	})
}

func TestADeletedControlPlaneSignalsTheSets(t *testing.T) {
	short := machineSetWithoutStatus()
	short.Spec.Replicas = 2
	runBridgeTest(t, append(objectsWithoutPendingWork(), testControlPlane(1)), func(w *bridgeTestEnv) {
		w.putObject(short)
		w.runDueWork()
		w.putObject(withStatusForRelatedObjects(short, set.ReadRelatedObjects(w.cluster, short)))
		w.advanceClock(5 * time.Second)
		w.takeCalls()
		w.deleteObject(testControlPlane(1))
		w.runDueWork()
		assert.Contains(t, w.takeRequests(), signalWithStartLine(testMachineSet()))
	})
}

func TestControlPlaneSignalsNoSetWithoutPendingWork(t *testing.T) {
	runBridgeTest(t, append(objectsWithoutPendingWork(), testControlPlane(3)), func(w *bridgeTestEnv) {
		w.takeCalls()
		w.putObject(testControlPlane(1))
		w.advanceClock(2 * time.Second)
		assert.Empty(t, w.takeRequests(), "it wants no machine")
	})
}
