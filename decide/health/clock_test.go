package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/health"
)

func TestCreationCountsFromTheCreationOfTheObject(t *testing.T) {
	young := func(f *health.Facts) { f.Since = f.Now }
	for _, phase := range []string{"", "CrashLoopBackOff", "Pending", "Available"} {
		t.Run("phase "+phase, func(t *testing.T) {
			v := health.Decide(facts(phase, noNode, tooLate, young))
			require.NotNil(t, v.Change)
			assert.Equal(t, "Failed", v.Change.Phase)

			v = health.Decide(facts(phase, noNode, young))
			assert.Nil(t, v.Change)
			assert.Equal(t, noon.Add(time.Minute), v.Deadline)

			v = health.Decide(facts(phase, noNode, young, func(f *health.Facts) { f.CreateBy = time.Time{} }))
			assert.Nil(t, v.Change, "without an end it never ends")
			assert.Zero(t, v.Deadline)
		})
	}
}

func TestBelowADeploymentAMachineWaitsForItsGrant(t *testing.T) {
	for _, row := range []struct {
		name   string
		edits  []edit
		reason string
	}{
		{"with a node", []edit{sickFor(overdue)}, "HealthTimeout"},
		{"without a node", []edit{sickFor(overdue), noNode}, "HealthTimeout"},
		{"a day later", []edit{sickFor(24 * time.Hour), due}, "HealthTimeout"},
		{"its node is being deleted", []edit{nodeGoing}, "NodeDeleted"},
		{"its instance is gone", []edit{sickFor(time.Second), gone}, "InstanceGone"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := health.Decide(facts("Unknown", append(row.edits, inSet)...))
			assert.Nil(t, v.Change)
			require.NotNil(t, v.Due)
			assert.True(t, v.Due.True)
			assert.Equal(t, row.reason, v.Due.Reason)
			assert.Equal(t, row.reason != "InstanceGone", v.Look, "the provider is asked once only")
			assert.Zero(t, v.Deadline, "time alone brings nothing any more")

			v = health.Decide(facts("Unknown", append(row.edits, inSet, due, granted)...))
			require.NotNil(t, v.Change)
			assert.Equal(t, "Failed", v.Change.Phase)
		})
	}
	t.Run("a grant counts in every phase, also for a node that is well", func(t *testing.T) {
		for _, phase := range []string{"", "Pending", "CrashLoopBackOff", "Available", "Running", "Unknown"} {
			v := health.Decide(facts(phase, inSet, granted))
			require.NotNil(t, v.Change, phase)
			assert.Equal(t, "Failed", v.Change.Phase)
			assert.Equal(t, "ReplacementGranted", v.Change.Reason)
		}
	})
	t.Run("a creation timeout waits for nobody: there is nothing to lose", func(t *testing.T) {
		v := health.Decide(facts("Pending", noNode, tooLate, inSet, breaker))
		require.NotNil(t, v.Change)
		assert.Equal(t, "Failed", v.Change.Phase)
	})
}

func TestADisabledHealthTimeoutFailsNoMachine(t *testing.T) {
	v := health.Decide(facts("Unknown", sickFor(1000*time.Hour), endless))
	assert.Equal(t, health.Verdict{Why: silence, Look: true}, v)
	t.Run("what is no matter of time ends the timeout all the same", func(t *testing.T) {
		for reason, fact := range map[string]edit{"NodeDeleted": nodeGoing, "InstanceGone": gone} {
			v := health.Decide(facts("Unknown", sickFor(time.Second), endless, fact))
			require.NotNil(t, v.Change, reason)
			assert.Equal(t, reason, v.Change.Reason)
		}
	})
	t.Run("the creation timeout is another one", func(t *testing.T) {
		assert.NotNil(t, health.Decide(facts("Pending", noNode, tooLate, endless)).Change)
	})
}

func TestHealthTimeoutOfZeroMeansAtOnce(t *testing.T) {
	zero := func(f *health.Facts) { f.Timeout = 0 }
	v := health.Decide(facts("Running", sick, zero))
	require.NotNil(t, v.Change)
	assert.Equal(t, "Unknown", v.Change.Phase, "each change is told")
	f := written(facts("Running", sick, zero), v, noon)
	v = health.Decide(f)
	require.NotNil(t, v.Change)
	assert.Equal(t, "Failed", v.Change.Phase)
}

// Whatever else is written or seen, the end of the timeout stays where the health clock puts it.
func TestOnlyTheHealthClockMovesTheDeadline(t *testing.T) {
	for _, row := range []struct {
		name string
		edit edit
	}{
		{"as it was", func(*health.Facts) {}},
		{"preservation wrote lastUpdateTime just now", func(f *health.Facts) { f.Since = f.Now }},
		{"and a minute ago", func(f *health.Facts) { f.Since = f.Now.Add(-time.Minute) }},
		{"a lastUpdateTime before the illness", func(f *health.Facts) { f.Since = f.Now.Add(-time.Hour) }},
		{"Ready went from False to Unknown just now", func(f *health.Facts) { f.BadSince = f.Now }},
		{"another condition is bad for longer", func(f *health.Facts) { f.BadSince = f.Now.Add(-time.Hour) }},
		{"the node went missing", noNode},
		{"the reason is another one", func(f *health.Facts) { f.Why = "node m-1: DiskPressure is True (Full)" }},
		{"the critical taint came", func(f *health.Facts) { f.NodeWaits = "its critical components are not ready" }},
		{"it was due before", due},
		{"the creation timeout has passed", tooLate},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := health.Decide(facts("Unknown", sickFor(4*time.Minute), row.edit))
			assert.Nil(t, v.Change)
			assert.Nil(t, v.Clock)
			assert.Equal(t, noon.Add(6*time.Minute), v.Deadline)

			v = health.Decide(facts("Unknown", sickFor(overdue), row.edit))
			require.NotNil(t, v.Change)
			assert.Equal(t, "Failed", v.Change.Phase)
		})
	}
	t.Run("without a health clock, the phase is the base", func(t *testing.T) {
		v := health.Decide(facts("Unknown", sick))
		assert.Nil(t, v.Change)
		assert.Equal(t, noon.Add(5*time.Minute), v.Deadline)
	})
}

func TestTheHealthClockStartsWhenTheNodeTurnedBad(t *testing.T) {
	for _, row := range []struct {
		name     string
		badSince time.Time
		since    time.Time
	}{
		{"as the node's conditions say", noon.Add(-40 * time.Second), noon.Add(-40 * time.Second)},
		{"now, when they do not tell or there is no node", time.Time{}, noon},
		{"now, when the node's clock is ahead", noon.Add(time.Hour), noon},
		{"with the phase, when they were bad before: somebody has asked about more of them since", noon.Add(-time.Hour), noon.Add(-5 * time.Minute)},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := health.Decide(facts("Running", sick, func(f *health.Facts) { f.BadSince = row.badSince }))
			assert.Equal(t, &health.Clock{UnhealthySince: row.since}, v.Clock)
		})
	}
}

// A node that recovered five minutes ago falls ill again.
func TestAShortRecoveryGoesOnWithTheOldClock(t *testing.T) {
	recovered, old := noon.Add(-5*time.Minute), noon.Add(-8*time.Minute)
	for _, row := range []struct {
		name    string
		timeout time.Duration
		well    time.Duration // from the recovery to the next illness
		old     bool
	}{
		{"well for a moment", 10 * time.Minute, 0, true},
		{"well for less than a tenth of 10 minutes", 10 * time.Minute, 59 * time.Second, true},
		{"well for a tenth of 10 minutes", 10 * time.Minute, time.Minute, false},
		{"well for less than a tenth of 5 minutes", 5 * time.Minute, 29 * time.Second, true},
		{"well for a tenth of 5 minutes", 5 * time.Minute, 30 * time.Second, false},
		{"a minute is enough, however long the timeout", 24 * time.Hour, time.Minute, false},
		{"and less is not", 24 * time.Hour, 59 * time.Second, true},
		{"with a timeout of zero, each illness is a new one", 0, 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			ill := recovered.Add(row.well)
			v := health.Decide(facts("Running", sick, func(f *health.Facts) {
				f.Since, f.RecoveredAt, f.UnhealthySince, f.BadSince, f.Timeout = recovered, recovered, old, ill, row.timeout
			}))
			want := ill
			if row.old {
				want = old
			}
			assert.Equal(t, &health.Clock{UnhealthySince: want}, v.Clock, "and it is not well any more")
		})
	}
	t.Run("a recovery from an illness without a clock", func(t *testing.T) {
		v := health.Decide(facts("Running", sick, func(f *health.Facts) { f.Since, f.RecoveredAt = noon, noon }))
		assert.Equal(t, &health.Clock{UnhealthySince: noon}, v.Clock)
	})
}

func TestPreservedMachineThatRecoversIsTakenBack(t *testing.T) {
	preserved := func(f *health.Facts) { f.Preserved = true }
	v := health.Decide(facts("Failed", preserved, due))
	require.NotNil(t, v.Change)
	assert.Equal(t, "Running", v.Change.Phase)
	require.NotNil(t, v.Due)
	assert.False(t, v.Due.True)
	assert.Equal(
		t,
		health.Verdict{},
		health.Decide(facts("Failed", preserved, noNode)),
		"without a healthy node it stays as it is",
	)
	assert.Equal(t, health.Verdict{}, health.Decide(facts("Failed", preserved, nodeGoing)))
	assert.Equal(t, health.Verdict{}, health.Decide(facts("Failed")), "one that its set replaces is not")
}

func TestMoreTimeTakesTheReplacementBack(t *testing.T) {
	v := health.Decide(facts("Unknown", sickFor(overdue), due, inSet, func(f *health.Facts) { f.NoTimeout = true }))
	assert.Nil(t, v.Change)
	require.NotNil(t, v.Due)
	assert.Equal(t, "HealthTimeoutExtended", v.Due.Reason)
	assert.False(t, v.Due.True)
}
