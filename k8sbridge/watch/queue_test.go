package watch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	observedrain "millwright/observe/drain"
)

// machineInDrain returns a machine whose deletion is in the stage Drain: queued, or with a drain that has started.
func machineInDrain(name string, queued bool) *v1alpha1.Machine {
	return changedCopy(machineWithName(name), setDeleting[*v1alpha1.Machine], func(m *v1alpha1.Machine) {
		m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: v1alpha1.MachineDeletionDrain, Queued: queued}
		if !queued {
			m.Status.Deletion.Drain = &v1alpha1.MachineDrain{StartedAt: metav1.Now(), Means: "Evict"}
		}
	})
}

// startDrains starts the drains of signaled machines, with the given limit of parallel drains, until no further signal
// arrives. startDrains returns the number of started drains.
func (w *bridgeTestEnv) startDrains(most int) (begun int) {
	for signaled := true; signaled; {
		w.advanceClock(minSignalInterval)
		signaled = false
		for _, c := range w.takeCalls() {
			m, found := w.cluster.Machine(c.input.Ref.Key())
			if c.verb == "start" || !found || m.Status.Deletion == nil || !m.Status.Deletion.Queued {
				continue
			}
			if may, _ := drain.MayDrainNow(observedrain.QueueEntries(w.cluster), string(m.UID), most); may {
				w.putObject(machineInDrain(m.Name, false))
				w.runDueWork()
				begun++
				signaled = true
			}
		}
	}
	return begun
}

func machinesInDrainQueue(drained, queued int) []runtime.Object {
	var objects []runtime.Object
	for i := range drained {
		objects = append(objects, machineInDrain(fmt.Sprintf("a-%02d", i), false))
	}
	for i := range queued {
		objects = append(objects, machineInDrain(fmt.Sprintf("b-%02d", i), true))
	}
	return objects
}

func TestAllFreeDrainTurnsAreTaken(t *testing.T) {
	runBridgeTest(t, machinesInDrainQueue(30, 70), func(w *bridgeTestEnv) {
		w.takeCalls()
		for i := range 30 {
			w.putObject(changedCopy(machineInDrain(fmt.Sprintf("a-%02d", i), false), func(m *v1alpha1.Machine) {
				m.Status.Deletion.Stage = v1alpha1.MachineDeletionInstance
			}))
		}
		start := time.Now()
		assert.Equal(t, 30, w.startDrains(30))
		assert.Less(t, time.Since(start), 3*time.Second)
		w.advanceClock(minSignalInterval)
		assert.Empty(t, w.takeRequests(), "when all places are taken, the others sleep")
	})
}

// The limit of parallel drains is a setting of the workers, and the bridge cannot read it. After a restart of the
// workers with a higher limit, the next resync wakes the first queued machines. Each machine that starts its drain
// wakes further machines.
func TestAHigherDrainLimitTakesEffectAtTheNextResync(t *testing.T) {
	runBridgeTest(t, machinesInDrainQueue(10, 30), func(w *bridgeTestEnv) {
		w.takeCalls()
		w.advanceClock(maxResyncInterval)
		assert.Equal(t, 20, w.startDrains(30))
	})
}
