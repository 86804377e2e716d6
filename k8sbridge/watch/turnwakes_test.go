package watch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
)

// The end of a drain signals the next machine in the drain queue, whatever the outcome of the drain. No object of the
// queued machine changes when the drain ends, so without this signal the machine would wait for the next resync.
func TestEndOfADrainSignalsTheNextMachine(t *testing.T) {
	in := func(stage v1alpha1.MachineDeletionStage, drain *v1alpha1.MachineDrain, queued bool) machineChange {
		return func(m *v1alpha1.Machine) {
			setDeleting(m)
			m.Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
			m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: stage, Since: creationTime, Drain: drain, Queued: queued}
		}
	}
	begun := &v1alpha1.MachineDrain{StartedAt: creationTime}
	drained := changedCopy(testMachine(), in(v1alpha1.MachineDeletionDrain, begun, false))
	next := changedCopy(machineWithName("next"), in(v1alpha1.MachineDeletionDrain, nil, true))
	notQueued := changedCopy(machineWithName("other"), in(v1alpha1.MachineDeletionDrain, nil, false))
	for name, ends := range map[string]func(*bridgeTestEnv){
		"its drain ends": func(w *bridgeTestEnv) {
			w.putObject(changedCopy(testMachine(), in(v1alpha1.MachineDeletionDrain, &v1alpha1.MachineDrain{StartedAt: creationTime, Result: "Drained"}, false)))
		},
		"its deletion is past that": func(w *bridgeTestEnv) {
			w.putObject(changedCopy(testMachine(), in(v1alpha1.MachineDeletionInstance, begun, false)))
		},
		"it is gone": func(w *bridgeTestEnv) { w.deleteObject(drained) },
	} {
		t.Run(name, func(t *testing.T) {
			runBridgeTest(t, []runtime.Object{machineSetWithoutStatus(), drained, next, notQueued}, func(w *bridgeTestEnv) {
				w.takeCalls()
				ends(w)
				w.runDueWork()
				calls := w.takeRequests()
				assert.Contains(t, calls, signalWithStartLine(next))
				assert.NotContains(
					t,
					calls,
					signalWithStartLine(notQueued),
					"a machine that does not wait for its turn needs no signal",
				)
			})
		})
	}
}
