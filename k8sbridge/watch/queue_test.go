package watch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/observe/cache"
	observedrain "millwright/observe/drain"
	"millwright/observe/observetest"
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
			if may, _ := drain.MayDrainNow(observedrain.QueueEntries(w.cluster, m.Namespace), string(m.UID), most); may {
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

func TestAllFreeDrainSlotsAreUsed(t *testing.T) {
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

// The machines that wait for their turn in one target cluster do not take the signals of another target cluster, where
// a drain ends or drains may begin.
func TestEachTargetClusterSignalsItsOwnDrainQueue(t *testing.T) {
	inNamespace := func(namespace string, m *v1alpha1.Machine) *v1alpha1.Machine {
		m.Namespace, m.UID = namespace, types.UID("uid-"+namespace+"-"+m.Name)
		return m
	}
	objects := machinesInDrainQueue(10, 30) // the machines of the queue in the namespace ns come first by their names
	ending, next := inNamespace("z-bank", machineInDrain("a", false)), inNamespace("z-bank", machineInDrain("b", true))
	synctest.Test(t, func(t *testing.T) {
		w := newBridgeTestEnv(t, append(objects, ending, next)...)
		w.cluster.SetTargetSource(observetest.Targets{
			"ns": cache.NewTarget(nil, "cluster-1"), "z-bank": cache.NewTarget(nil, "cluster-2"),
		})
		w.startLeader()
		w.advanceClock(3 * time.Second)
		w.takeCalls()
		w.putObject(changedCopy(ending, func(m *v1alpha1.Machine) {
			m.Status.Deletion.Stage = v1alpha1.MachineDeletionInstance
		}))
		w.runDueWork()
		requests := w.takeRequests()
		assert.Contains(t, requests, signalWithStartLine(next))
		assert.NotContains(
			t,
			requests,
			signalWithStartLine(machineInDrain("b-00", true)),
			"no drain of its cluster has ended",
		)

		w.advanceClock(maxResyncInterval)
		requests = w.takeRequests()
		assert.Contains(t, requests, signalWithStartLine(next), "the resync wakes the queue of each cluster")
		assert.Contains(t, requests, signalWithStartLine(machineInDrain("b-00", true)))
	})
}
