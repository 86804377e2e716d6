package watch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
)

// The machine that is next in the queue of drains is signaled when a drain ends, whichever way it ends: its own objects
// do not change then, so that otherwise nobody would tell it before the next resync.
func TestAFreePlaceInTheQueueOfDrainsWakesTheNextMachine(t *testing.T) {
	in := func(stage v1alpha1.MachineDeletionStage, drain *v1alpha1.MachineDrain, queued bool) onMachine {
		return func(m *v1alpha1.Machine) {
			toBeDeleted(m)
			m.Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
			m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: stage, Since: born, Drain: drain, Queued: queued}
		}
	}
	begun := &v1alpha1.MachineDrain{StartedAt: born}
	drained := changed(aMachine(), in(v1alpha1.MachineDeletionDrain, begun, false))
	next := changed(machineNamed("next"), in(v1alpha1.MachineDeletionDrain, nil, true))
	notQueued := changed(machineNamed("other"), in(v1alpha1.MachineDeletionDrain, nil, false))
	for name, ends := range map[string]func(*world){
		"its drain ends": func(w *world) {
			w.put(changed(aMachine(), in(v1alpha1.MachineDeletionDrain, &v1alpha1.MachineDrain{StartedAt: born, Result: "Drained"}, false)))
		},
		"its deletion is past that": func(w *world) { w.put(changed(aMachine(), in(v1alpha1.MachineDeletionInstance, begun, false))) },
		"it is gone":                func(w *world) { w.remove(drained) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, []runtime.Object{bareSet(), drained, next, notQueued}, func(w *world) {
				w.took()
				ends(w)
				w.flush()
				calls := w.asked()
				assert.Contains(t, calls, awake(next))
				assert.NotContains(t, calls, awake(notQueued), "a machine that does not wait for its turn needs no signal")
			})
		})
	}
}
