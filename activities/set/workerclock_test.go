package set_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities/activitiestest"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/decide/scale"
)

// The workflow's time decides when the back-off before the next generation of machines ends. The timestamps in the
// status also come from the workflow's time.
func TestTheClockOfAWorkerDoesNotEndTheBackOffOfASet(t *testing.T) {
	t.Parallel()
	activitiestest.ForEachWorkerClock(t, func(t *testing.T, k activitiestest.Worker) {
		server := k.ServerTime()
		s := activitiestest.NewMachineSet("s", 1)
		w := activitiestest.NewWorld(
			t,
			append(machineSetWithMachines(s, 1, activitiestest.WithPhase(v1alpha1.MachineFailed), func(m *v1alpha1.Machine) {
				m.CreationTimestamp = k.ServerTimestamp(-time.Second)
			}), activitiestest.NewClass())...)
		decides := func(after time.Duration) set.Decision {
			in := set.Input{ReadInput: k.NewReadInput(s)}
			in.At = server.Add(after)
			d, err := activitiestest.RunActivityOnWorker[set.Decision](w, k, newActivities(w.Kube).DecideSet, in)
			require.NoError(t, err)
			return d
		}
		failed := decides(0).Scale.Generations
		require.NotNil(t, failed)
		// a machine that fails within seconds moves the end of its generation by the tolerated difference between clocks
		assert.WithinDuration(t, server, failed.Last, 15*time.Second)

		_, err := activitiestest.RunActivityOnWorker[string](w, k, newActivities(w.Kube).ReportSet, set.Report{
			// the back-off is eight minutes
			Input: set.Input{ReadInput: k.NewReadInput(s)}, Generations: &scale.GenerationRecord{Failed: 4, Last: server},
		})
		require.NoError(t, err)
		for _, c := range w.MachineSet("s").Status.Conditions {
			assert.WithinDuration(t, server, c.LastTransitionTime.Time, activitiestest.TimestampTolerance, c.Type)
		}
		w.AwaitCaches()
		assert.Empty(t, decides(7*time.Minute).Scale.Delete)
		assert.Len(t, decides(9*time.Minute).Scale.Delete, 1)
	})
}
