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

// inDrain returns a machine whose deletion is in the stage Drain: queued, or with a drain that has begun.
func inDrain(name string, queued bool) *v1alpha1.Machine {
	return changed(machineNamed(name), toBeDeleted[*v1alpha1.Machine], func(m *v1alpha1.Machine) {
		m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: v1alpha1.MachineDeletionDrain, Queued: queued}
		if !queued {
			m.Status.Deletion.Drain = &v1alpha1.MachineDrain{StartedAt: metav1.Now(), Means: "Evict"}
		}
	})
}

// workers begins the drain of each machine that was signaled and whose turn has come, until no signal arrives any more.
// It returns how many have begun.
func (w *world) workers(most int) (begun int) {
	for signaled := true; signaled; {
		w.pass(signalPause)
		signaled = false
		for _, c := range w.took() {
			m, found := w.cluster.Machine(c.input.Ref.Key())
			if c.verb == "start" || !found || m.Status.Deletion == nil || !m.Status.Deletion.Queued {
				continue
			}
			if may, _ := drain.DecideTurn(observedrain.Turns(w.cluster), string(m.UID), most); may {
				w.put(inDrain(m.Name, false))
				w.flush()
				begun++
				signaled = true
			}
		}
	}
	return begun
}

func queueOf(drained, queued int) []runtime.Object {
	var objects []runtime.Object
	for i := range drained {
		objects = append(objects, inDrain(fmt.Sprintf("a-%02d", i), false))
	}
	for i := range queued {
		objects = append(objects, inDrain(fmt.Sprintf("b-%02d", i), true))
	}
	return objects
}

func TestPlacesThatBecomeFreeTogetherAreAllTaken(t *testing.T) {
	inWorld(t, queueOf(30, 70), func(w *world) {
		w.took()
		for i := range 30 {
			w.put(changed(inDrain(fmt.Sprintf("a-%02d", i), false), func(m *v1alpha1.Machine) {
				m.Status.Deletion.Stage = v1alpha1.MachineDeletionInstance
			}))
		}
		start := time.Now()
		assert.Equal(t, 30, w.workers(30))
		assert.Less(t, time.Since(start), 3*time.Second)
		w.pass(signalPause)
		assert.Empty(t, w.asked(), "when all places are taken, the others sleep")
	})
}

// The bridge does not know the limit. When the workers have restarted with a higher one, the next resync wakes the
// first machines, and each that begins wakes others.
func TestALimitThatWasRaised(t *testing.T) {
	inWorld(t, queueOf(10, 30), func(w *world) {
		w.took()
		w.pass(aResync)
		assert.Equal(t, 20, w.workers(30))
	})
}
