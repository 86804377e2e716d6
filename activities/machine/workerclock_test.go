package machine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities/activitiestest"
	activitiesdrain "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
)

// withMachineAge sets a machine's creation time to the given duration before the server's time.
func withMachineAge(k activitiestest.Worker, ago time.Duration) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.CreationTimestamp = k.ServerTimestamp(ago) }
}

// reportMachineOnWorker writes a status on a worker, at the server's present time plus the given delay.
func reportMachineOnWorker(
	t *testing.T,
	w *activitiestest.World,
	k activitiestest.Worker,
	after time.Duration,
	in machine.Report,
) {
	t.Helper()
	in.Read = k.NewReadInput(w.Machine("m"))
	in.Read.At = in.Read.At.Add(after)
	_, err := activitiestest.RunActivityOnWorker[kube.ReportResult](w, k, newActivities(w.Kube).ReportMachine, in)
	require.NoError(t, err)
	w.AwaitCaches()
}

// decideMachineAtTime decides about machine m at the given time.
func decideMachineAtTime(w *activitiestest.World, when time.Time) machine.Decision {
	w.T.Helper()
	return activitiestest.DecideMachine(w, readInputAtTime(w.Machine("m"), when))
}

// The creation timeout stops at the workflow's time, even if the clock of the writing worker is wrong.
func TestTheClockOfAWorkerDoesNotEndAStoppedCreation(t *testing.T) {
	t.Parallel()
	activitiestest.ForEachWorkerClock(t, func(t *testing.T, k activitiestest.Worker) {
		server := k.ServerTime()
		m := activitiestest.NewMachine("m", withMachineAge(k, 15*time.Minute))
		w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
		end := m.CreationTimestamp.Add(20 * time.Minute)

		reportMachineOnWorker(t, w, k, 0, machine.Report{Phase: "CrashLoopBackOff", Stopped: true})
		assert.WithinDuration(t, server, w.Machine("m").Status.CreationStopped.Since.Time, activitiestest.TimestampTolerance)
		d := decideMachineAtTime(w, server.Add(time.Hour))
		assert.False(t, activitiestest.WritesPhaseFailed(d))
		assert.WithinDuration(
			t,
			end.Add(time.Hour),
			d.CreateBy,
			activitiestest.TimestampTolerance,
			"it has five minutes left",
		)

		reportMachineOnWorker(t, w, k, time.Hour, machine.Report{Phase: "CrashLoopBackOff"})
		d = decideMachineAtTime(w, server.Add(time.Hour+4*time.Minute))
		assert.False(t, activitiestest.WritesPhaseFailed(d))
		assert.WithinDuration(t, end.Add(time.Hour), d.CreateBy, activitiestest.TimestampTolerance)
		assert.True(
			t,
			activitiestest.WritesPhaseFailed(decideMachineAtTime(w, server.Add(time.Hour+6*time.Minute))),
			"and no more than that",
		)
	})
}

// The timeout of an in-place update, and the health timeout after a failed update, start at the timestamp of the phase.
func TestTheClockOfAWorkerDoesNotShortenAnInPlaceUpdate(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Minute
	activitiestest.ForEachWorkerClock(t, func(t *testing.T, k activitiestest.Worker) {
		for phase, over := range map[string]string{"InPlaceUpdating": "InPlaceUpdateFailed", "InPlaceUpdateFailed": "Failed"} {
			server := k.ServerTime()
			m := activitiestest.NewMachine(
				"m",
				activitiestest.WithNode,
				activitiestest.WithCreateAttempt,
				withMachineAge(k, time.Hour),
				activitiestest.WithPhase("Running"),
			)
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
				MachineInPlaceUpdateTimeout: activitiestest.NewDuration(timeout),
				MachineHealthTimeout:        activitiestest.NewDuration(timeout),
			}
			w := activitiestest.NewWorld(
				t,
				m,
				activitiestest.NewClass(),
				activitiestest.NewNode(activitiestest.WithSelectedLabels),
			)
			reportMachineOnWorker(t, w, k, 0, machine.Report{Phase: phase})

			d := decideMachineAtTime(w, server.Add(timeout-activitiestest.TimestampTolerance))
			require.NotNil(t, d.Health, phase)
			assert.Nil(t, d.Health.Change, phase)
			assert.WithinDuration(t, server.Add(timeout), d.Health.Deadline, activitiestest.TimestampTolerance, phase)
			d = decideMachineAtTime(w, server.Add(timeout+activitiestest.TimestampTolerance))
			require.NotNil(t, d.Health, phase)
			require.NotNil(t, d.Health.Change, phase)
			assert.Equal(t, over, d.Health.Change.Phase)
		}
	})
}

// The drain timeout starts at the recorded time of the first evictions.
func TestTheClockOfAWorkerDoesNotShortenADrain(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Minute
	for name, purpose := range map[string]string{"of a deletion": "", "of a preservation": vocabulary.DrainForPreservation} {
		t.Run(name, func(t *testing.T) {
			activitiestest.ForEachWorkerClock(t, func(t *testing.T, k activitiestest.Worker) {
				server := k.ServerTime()
				m := activitiestest.NewMachine(
					"m",
					activitiestest.WithNode,
					activitiestest.WithCreateAttempt,
					withMachineAge(k, time.Hour),
				)
				m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
					MachineDrainTimeout: activitiestest.NewDuration(timeout),
				}
				if purpose == "" {
					activitiestest.WithDeletionTimestamp(m)
				} else {
					withFailureAndPreservation(k.ServerTime().Add(time.Hour))(m)
				}
				w := activitiestest.NewWorld(t, m, activitiestest.NewClass(), activitiestest.NewNode())
				step := func(after time.Duration) activitiesdrain.Decision {
					in := activitiesdrain.Input{ReadInput: readInputAtTime(w.Machine("m"), server.Add(after)), Purpose: purpose}
					d, err := activitiestest.RunActivityOnWorker[activitiesdrain.Decision](
						w,
						k,
						(&activitiesdrain.Activities{Kube: w.Kube}).DecideDrain,
						in,
					)
					require.NoError(t, err)
					return d
				}
				begins := machine.Report{Deletion: &machine.DeletionProgress{Stage: "Drain", Means: "Evict"}}
				if purpose != "" {
					begins = machine.Report{Drain: &machine.DrainProgress{Purpose: step(0).Purpose, Means: "Evict"}}
				}
				reportMachineOnWorker(t, w, k, 0, begins)
				w.AwaitCaches()

				d := step(time.Second)
				assert.Equal(t, drain.MeansEvict, d.Step.Means, d.Why)
				assert.WithinDuration(t, server.Add(timeout), d.Step.Until, activitiestest.TimestampTolerance)
				assert.Equal(t, drain.MeansDelete, step(timeout+activitiestest.TimestampTolerance).Step.Means)
			})
		})
	}
}

// A restored API server may have lost the record of a create call. The provider searches for an existing instance
// before it creates one, unless the machine is new.
func TestNeverTriedDependsOnMachineAgeByServerClock(t *testing.T) {
	t.Parallel()
	for age, never := range map[time.Duration]bool{time.Minute: true, 5 * time.Minute: false} {
		t.Run(age.String(), func(t *testing.T) {
			activitiestest.ForEachWorkerClock(t, func(t *testing.T, k activitiestest.Worker) {
				m := activitiestest.NewMachine("m", withMachineAge(k, age))
				w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
				in := newCreationReport(m)
				in.Read = k.NewReadInput(m)
				begun, err := activitiestest.RunActivityOnWorker[machine.CreateIntentResult](
					w,
					k,
					newActivities(w.Kube).RecordCreateIntent,
					in,
				)
				require.NoError(t, err)
				assert.Equal(t, never, begun.NeverTried)
			})
		})
	}
}

// Temporal may retry a regular activity for hours, so the status gets the time of the last attempt, not the time of the
// workflow's decision.
func TestAStatusThatIsWrittenLateHasTheTimeOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := activitiestest.Worker{ClockAhead: 10 * time.Minute}
		m := activitiestest.NewMachine(
			"m",
			activitiestest.WithNode,
			activitiestest.WithCreateAttempt,
			withMachineAge(k, 5*time.Hour),
		)
		w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
		reportMachineOnWorker(t, w, k, -time.Hour, machine.Report{Phase: "InPlaceUpdating"})
		assert.WithinDuration(
			t,
			k.ServerTime(),
			w.Machine("m").Status.CurrentStatus.LastUpdateTime.Time,
			activitiestest.TimestampTolerance,
		)

		late := activitiestest.NewMachine("m", withMachineAge(k, 3*time.Minute))
		w = activitiestest.NewWorld(t, late, activitiestest.NewClass())
		in := newCreationReport(late)
		in.Read = kube.ReadInput{Ref: activitiestest.NewRef(late), At: late.CreationTimestamp.Time}
		begun, err := activitiestest.RunActivityOnWorker[machine.CreateIntentResult](
			w,
			k,
			newActivities(w.Kube).RecordCreateIntent,
			in,
		)
		require.NoError(t, err)
		assert.False(t, begun.NeverTried, "the machine is not new any more")
	})
}

// No timestamp in a machine's status is before the machine's creation, although the clocks of Temporal and the API
// server differ slightly.
func TestNoTimeOfAMachineIsBeforeItsCreation(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m")
	w := activitiestest.NewWorld(t, m)
	in := machine.Report{
		Read:    readInputAtTime(m, m.CreationTimestamp.Add(-2*time.Second)),
		Phase:   "Pending",
		Stopped: true,
	}
	_, err := activitiestest.RunLocalActivity[kube.ReportResult](w, newActivities(w.Kube).ReportMachine, in)
	require.NoError(t, err)
	status := w.Machine("m").Status
	assert.True(t, status.CurrentStatus.LastUpdateTime.Equal(&m.CreationTimestamp))
	assert.True(t, status.CreationStopped.Since.Equal(&m.CreationTimestamp))
}

// The activity fails if the token would already have expired by the server's clock; the worker's clock has no effect.
func TestTheClockOfAWorkerDoesNotExpireABootstrapToken(t *testing.T) {
	t.Parallel()
	activitiestest.ForEachWorkerClock(t, func(t *testing.T, k activitiestest.Worker) {
		m := activitiestest.NewMachine("m", withMachineAge(k, 15*time.Minute))
		w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
		issue := func(expires time.Time) (kube.TokenRef, error) {
			in := machine.TokenRequest{Read: k.NewReadInput(m), Attempt: "1", Expires: expires}
			return activitiestest.RunActivityOnWorker[kube.TokenRef](w, k, newActivities(w.Kube).IssueToken, in)
		}
		first, err := issue(k.ServerTime().Add(5 * time.Minute))
		require.NoError(t, err)
		again, err := issue(k.ServerTime().Add(5 * time.Minute))
		require.NoError(t, err)
		assert.Equal(t, first, again)
		_, err = issue(k.ServerTime().Add(-time.Minute))
		activitiestest.AssertFailure(t, err, kube.FailureTypeTokenGone, false)
	})
}
