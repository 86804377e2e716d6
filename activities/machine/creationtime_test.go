package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/health"
)

// readInputAtTime returns a ReadInput of a machine for a decision at the given time.
func readInputAtTime(m *v1alpha1.Machine, when time.Time) kube.ReadInput {
	return kube.ReadInput{Ref: activitiestest.NewRef(m), At: when}
}

func withAge(age time.Duration) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.CreationTimestamp = metav1.NewTime(time.Now().Add(-age)).Rfc3339Copy() }
}

func TestMachineFailsAfterCreationTimeout(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change []func(*v1alpha1.Machine)
		why    string
	}{
		"nothing was made yet":          {nil, "the provider has not created its instance"},
		"the cloud refuses to make it":  {[]func(*v1alpha1.Machine){activitiestest.WithPhase(v1alpha1.MachineCrashLoopBackOff)}, "the provider has not created its instance"},
		"the cloud cannot initialise":   {[]func(*v1alpha1.Machine){activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineCrashLoopBackOff)}, "the provider has not created its instance"},
		"its node does not join":        {[]func(*v1alpha1.Machine){activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachinePending)}, "instance fake:///n exists; node n has not joined yet"},
		"whatever was written lately":   {[]func(*v1alpha1.Machine){activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachinePending), setPhaseTimeNow}, "instance fake:///n exists; node n has not joined yet"},
		"a machine without a finalizer": {[]func(*v1alpha1.Machine){activitiestest.WithoutFinalizers[*v1alpha1.Machine]}, "the provider has not created its instance"},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", row.change...)
			w, end := activitiestest.NewWorld(t, m, activitiestest.NewClass()), m.CreationTimestamp.Add(20*time.Minute)
			for way, read := range map[string]func(time.Time) kube.ReadInput{
				"cached": func(when time.Time) kube.ReadInput { return readInputAtTime(m, when) },
				"live": func(when time.Time) kube.ReadInput {
					return kube.ReadInput{Ref: activitiestest.NewRef(m), At: when, Live: true}
				},
			} {
				before := activitiestest.DecideMachine(w, read(end.Add(-time.Second)))
				assert.False(t, activitiestest.WritesPhaseFailed(before), way)
				assert.True(t, before.Health.Deadline.Equal(end), way)
				assert.Equal(t, row.why, before.Health.Why, way)

				d := activitiestest.DecideMachine(w, read(end))
				require.True(t, activitiestest.WritesPhaseFailed(d), way)
				message := "Machine m failed to join the cluster in 20m: " + row.why
				assert.Equal(t, health.PhaseChange{
					Phase: "Failed", Operation: "Create", State: "Failed", Reason: "CreationTimeout", Warning: true, Message: message,
				}, *d.Health.Change, way)
				assert.Equal(t, health.ReplacementDue{True: true, Reason: "CreationTimeout", Message: message}, *d.Health.Due, way)
			}
		})
	}
}

func setPhaseTimeNow(m *v1alpha1.Machine) { m.Status.CurrentStatus.LastUpdateTime = metav1.Now() }

// Temporal's clock decides whether a deadline has passed; the worker's clock has no effect.
func TestDeadlinesFollowTheClockOfTemporal(t *testing.T) {
	t.Parallel()
	young, old := activitiestest.NewMachine("young"), activitiestest.NewMachine("old", withAge(time.Hour))
	w := activitiestest.NewWorld(t, young, old, activitiestest.NewClass())
	assert.False(t, activitiestest.WritesPhaseFailed(activitiestest.DecideMachine(w, activitiestest.NewReadInput(young))))
	assert.True(
		t,
		activitiestest.WritesPhaseFailed(
			activitiestest.DecideMachine(w, readInputAtTime(young, young.CreationTimestamp.Add(20*time.Minute))),
		),
		"the worker's clock is behind",
	)
	assert.True(
		t,
		activitiestest.WritesPhaseFailed(activitiestest.DecideMachine(w, activitiestest.NewReadInput(old))),
		"the workflow does not say",
	)
	assert.False(
		t,
		activitiestest.WritesPhaseFailed(activitiestest.DecideMachine(w, readInputAtTime(old, old.CreationTimestamp.Time))),
		"the worker's clock is ahead",
	)
}

func TestEffectiveCreationTimeout(t *testing.T) {
	t.Parallel()
	patient := func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineCreationTimeout: activitiestest.NewDuration(time.Hour),
		}
	}
	for name, row := range map[string]struct {
		change     func(*v1alpha1.Machine)
		annotation string
		want       time.Duration
	}{
		"absent: the default":                  {func(*v1alpha1.Machine) {}, "", 20 * time.Minute},
		"absent: the spec":                     {patient, "", time.Hour},
		"valid: it beats the spec":             {patient, "7m", 7 * time.Minute},
		"invalid: the spec":                    {patient, "soon", time.Hour},
		"invalid: the default":                 {func(*v1alpha1.Machine) {}, "20", 20 * time.Minute},
		"negative is invalid":                  {patient, "-1m", time.Hour},
		"valid, and longer than what is usual": {patient, "48h", 48 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", row.change)
			m.Annotations = map[string]string{v1alpha1.AnnotationEffectiveCreationTimeout: row.annotation}
			w, end := activitiestest.NewWorld(t, m, activitiestest.NewClass()), m.CreationTimestamp.Add(row.want)
			d := activitiestest.DecideMachine(w, readInputAtTime(m, end.Add(-time.Second)))
			assert.WithinDuration(t, end, d.CreateBy, 0)
			assert.False(t, activitiestest.WritesPhaseFailed(d))
			assert.True(t, activitiestest.WritesPhaseFailed(activitiestest.DecideMachine(w, readInputAtTime(m, end))))
		})
	}
}

func TestCreationTimeoutIgnoresTimeWaitingForAPerson(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithPhase(v1alpha1.MachineCrashLoopBackOff))
	born := m.CreationTimestamp
	since := metav1.NewTime(born.Add(15 * time.Minute))
	for name, row := range map[string]struct {
		stopped v1alpha1.CreationStopped
		at      time.Duration // time since the machine's creation
		left    time.Duration // time until the timeout; negative: the machine has failed
	}{
		"it waits now":                    {v1alpha1.CreationStopped{Since: &since}, 20 * time.Hour, 5 * time.Minute},
		"and has waited before":           {v1alpha1.CreationStopped{Since: &since, Total: *activitiestest.NewDuration(time.Hour)}, 20 * time.Hour, time.Hour + 5*time.Minute},
		"it waited":                       {v1alpha1.CreationStopped{Total: *activitiestest.NewDuration(time.Hour)}, 79 * time.Minute, time.Minute},
		"it waited, and its time is over": {v1alpha1.CreationStopped{Total: *activitiestest.NewDuration(time.Hour)}, 80 * time.Minute, -1},
		"by a clock that is ahead":        {v1alpha1.CreationStopped{Since: &since}, 10 * time.Minute, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			m := m.DeepCopy()
			m.Status.CreationStopped = &row.stopped
			now := born.Add(row.at)
			d := activitiestest.DecideMachine(activitiestest.NewWorld(t, m, activitiestest.NewClass()), readInputAtTime(m, now))
			assert.Equal(t, row.left < 0, activitiestest.WritesPhaseFailed(d))
			if row.left >= 0 {
				assert.WithinDuration(t, now.Add(row.left), d.CreateBy, 0)
			}
		})
	}
}

func TestMachineWithUnusableClassDoesNotTimeOut(t *testing.T) {
	t.Parallel()
	unusable := activitiestest.NewClass(func(c *v1alpha1.MachineClass) { c.Provider = "" })
	for name, p := range map[string]v1alpha1.MachinePhase{"a new machine": "", "one that was tried": v1alpha1.MachineCrashLoopBackOff} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithPhase(p), withAge(100*time.Hour))
			for _, w := range []*activitiestest.World{activitiestest.NewWorld(t, m), activitiestest.NewWorld(t, m, unusable)} {
				for _, in := range []kube.ReadInput{activitiestest.NewReadInput(m), activitiestest.NewLiveReadInput(m)} {
					d := activitiestest.DecideMachine(w, in)
					assert.Equal(t, attention.NeedInstance, d.Need)
					assert.NotNil(t, d.Problem)
					assert.Nil(t, d.Health, "nobody can blame the machine")
				}
			}
		})
	}
	t.Run("one whose instance is there does not wait for its class", func(t *testing.T) {
		m := activitiestest.NewMachine(
			"m",
			activitiestest.WithNode,
			activitiestest.WithPhase(v1alpha1.MachinePending),
			withAge(100*time.Hour),
		)
		d := activitiestest.DecideMachine(activitiestest.NewWorld(t, m), activitiestest.NewReadInput(m))
		assert.NotNil(t, d.Problem)
		assert.True(t, activitiestest.WritesPhaseFailed(d))
	})
}
