package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/health"
)

func TestCreationTimeoutCountsFromObjectCreation(t *testing.T) {
	young := func(f *health.Facts) { f.Since = f.Now }
	for _, phase := range []string{"", "CrashLoopBackOff", "Pending", "Available"} {
		t.Run("phase "+phase, func(t *testing.T) {
			v := health.Decide(newFacts(phase, withoutNode, withEndedCreationTimeout, young))
			require.NotNil(t, v.Change)
			assert.Equal(t, "Failed", v.Change.Phase)

			v = health.Decide(newFacts(phase, withoutNode, young))
			assert.Nil(t, v.Change)
			assert.Equal(t, noon.Add(time.Minute), v.Deadline)

			v = health.Decide(newFacts(phase, withoutNode, young, func(f *health.Facts) { f.CreateBy = time.Time{} }))
			assert.Nil(t, v.Change, "without an end it never ends")
			assert.Zero(t, v.Deadline)
		})
	}
}

func TestAMachineOfADeploymentWaitsForItsReplacementGrant(t *testing.T) {
	for _, row := range []struct {
		name   string
		edits  []factsEdit
		reason string
	}{
		{"with a node", []factsEdit{withUnhealthyDuration(healthTimeout)}, "HealthTimeout"},
		{"without a node", []factsEdit{withUnhealthyDuration(healthTimeout), withoutNode}, "HealthTimeout"},
		{"a day later", []factsEdit{withUnhealthyDuration(24 * time.Hour), withReplacementDue}, "HealthTimeout"},
		{"its node is being deleted", []factsEdit{withDeletingNode}, "NodeDeleted"},
		{"its instance is gone", []factsEdit{withUnhealthyDuration(time.Second), withInstanceGone}, "InstanceGone"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := health.Decide(newFacts("Unknown", append(row.edits, withRequiredGrant)...))
			assert.Nil(t, v.Change)
			require.NotNil(t, v.Due)
			assert.True(t, v.Due.True)
			assert.Equal(t, row.reason, v.Due.Reason)
			assert.Equal(t, row.reason != "InstanceGone", v.Look, "the provider is asked once only")
			assert.Zero(t, v.Deadline, "time alone brings nothing any more")

			v = health.Decide(
				newFacts("Unknown", append(row.edits, withRequiredGrant, withReplacementDue, withReplacementGrant)...),
			)
			require.NotNil(t, v.Change)
			assert.Equal(t, "Failed", v.Change.Phase)
		})
	}
	t.Run("a grant counts in every phase, also for a node that is well", func(t *testing.T) {
		for _, phase := range []string{"", "Pending", "CrashLoopBackOff", "Available", "Running", "Unknown"} {
			v := health.Decide(newFacts(phase, withRequiredGrant, withReplacementGrant))
			require.NotNil(t, v.Change, phase)
			assert.Equal(t, "Failed", v.Change.Phase)
			assert.Equal(t, "ReplacementGranted", v.Change.Reason)
		}
	})
	t.Run("a creation timeout waits for nobody: there is nothing to lose", func(t *testing.T) {
		v := health.Decide(newFacts("Pending", withoutNode, withEndedCreationTimeout, withRequiredGrant, withOpenBreaker))
		require.NotNil(t, v.Change)
		assert.Equal(t, "Failed", v.Change.Phase)
	})
}

func TestADisabledHealthTimeoutFailsNoMachine(t *testing.T) {
	v := health.Decide(newFacts("Unknown", withUnhealthyDuration(1000*time.Hour), withoutHealthTimeout))
	assert.Equal(t, health.Verdict{Why: unknownReadyReason, Look: true}, v)
	t.Run("what is no matter of time ends the timeout all the same", func(t *testing.T) {
		for reason, fact := range map[string]factsEdit{"NodeDeleted": withDeletingNode, "InstanceGone": withInstanceGone} {
			v := health.Decide(newFacts("Unknown", withUnhealthyDuration(time.Second), withoutHealthTimeout, fact))
			require.NotNil(t, v.Change, reason)
			assert.Equal(t, reason, v.Change.Reason)
		}
	})
	t.Run("the creation timeout is another one", func(t *testing.T) {
		assert.NotNil(
			t,
			health.Decide(newFacts("Pending", withoutNode, withEndedCreationTimeout, withoutHealthTimeout)).Change,
		)
	})
}

func TestZeroHealthTimeoutEndsImmediately(t *testing.T) {
	zero := func(f *health.Facts) { f.Timeout = 0 }
	v := health.Decide(newFacts("Running", withUnhealthyNode, zero))
	require.NotNil(t, v.Change)
	assert.Equal(t, "Unknown", v.Change.Phase, "each change is told")
	f := applyVerdict(newFacts("Running", withUnhealthyNode, zero), v, noon)
	v = health.Decide(f)
	require.NotNil(t, v.Change)
	assert.Equal(t, "Failed", v.Change.Phase)
}

// Only the recorded UnhealthyTimes determines the end of the health timeout. Other status writes and other observations
// do not change the end.
func TestOnlyTheHealthClockMovesTheDeadline(t *testing.T) {
	for _, row := range []struct {
		name string
		edit factsEdit
	}{
		{"as it was", func(*health.Facts) {}},
		{"preservation wrote lastUpdateTime just now", func(f *health.Facts) { f.Since = f.Now }},
		{"and a minute ago", func(f *health.Facts) { f.Since = f.Now.Add(-time.Minute) }},
		{"a lastUpdateTime before the illness", func(f *health.Facts) { f.Since = f.Now.Add(-time.Hour) }},
		{"Ready went from False to Unknown just now", func(f *health.Facts) { f.BadSince = f.Now }},
		{"another condition is bad for longer", func(f *health.Facts) { f.BadSince = f.Now.Add(-time.Hour) }},
		{"the node went missing", withoutNode},
		{"the reason is another one", func(f *health.Facts) { f.Why = "node m-1: DiskPressure is True (Full)" }},
		{"the critical taint came", func(f *health.Facts) { f.NodeWaits = "its critical components are not ready" }},
		{"it was due before", withReplacementDue},
		{"the creation timeout has passed", withEndedCreationTimeout},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := health.Decide(newFacts("Unknown", withUnhealthyDuration(4*time.Minute), row.edit))
			assert.Nil(t, v.Change)
			assert.Nil(t, v.Clock)
			assert.Equal(t, noon.Add(6*time.Minute), v.Deadline)

			v = health.Decide(newFacts("Unknown", withUnhealthyDuration(healthTimeout), row.edit))
			require.NotNil(t, v.Change)
			assert.Equal(t, "Failed", v.Change.Phase)
		})
	}
	t.Run("without a health clock, the phase is the base", func(t *testing.T) {
		v := health.Decide(newFacts("Unknown", withUnhealthyNode))
		assert.Nil(t, v.Change)
		assert.Equal(t, noon.Add(5*time.Minute), v.Deadline)
	})
}

func TestTheHealthClockStartsWhenTheNodeBecameUnhealthy(t *testing.T) {
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
			v := health.Decide(newFacts("Running", withUnhealthyNode, func(f *health.Facts) { f.BadSince = row.badSince }))
			assert.Equal(t, &health.UnhealthyTimes{UnhealthySince: row.since}, v.Clock)
		})
	}
}

// A node that recovered five minutes ago becomes unhealthy again.
func TestAShortRecoveryKeepsTheHealthClock(t *testing.T) {
	recovered, old := noon.Add(-5*time.Minute), noon.Add(-8*time.Minute)
	for _, row := range []struct {
		name    string
		timeout time.Duration
		well    time.Duration // time from the recovery until the node is unhealthy again
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
			v := health.Decide(newFacts("Running", withUnhealthyNode, func(f *health.Facts) {
				f.Since, f.RecoveredAt, f.UnhealthySince, f.BadSince, f.Timeout = recovered, recovered, old, ill, row.timeout
			}))
			want := ill
			if row.old {
				want = old
			}
			assert.Equal(t, &health.UnhealthyTimes{UnhealthySince: want}, v.Clock, "and it is not well any more")
		})
	}
	t.Run("a recovery from an illness without a clock", func(t *testing.T) {
		v := health.Decide(
			newFacts("Running", withUnhealthyNode, func(f *health.Facts) { f.Since, f.RecoveredAt = noon, noon }),
		)
		assert.Equal(t, &health.UnhealthyTimes{UnhealthySince: noon}, v.Clock)
	})
}

func TestAPreservedMachineThatRecoversIsRunning(t *testing.T) {
	preserved := func(f *health.Facts) { f.Preserved = true }
	v := health.Decide(newFacts("Failed", preserved, withReplacementDue))
	require.NotNil(t, v.Change)
	assert.Equal(t, "Running", v.Change.Phase)
	require.NotNil(t, v.Due)
	assert.False(t, v.Due.True)
	assert.Equal(
		t,
		health.Verdict{},
		health.Decide(newFacts("Failed", preserved, withoutNode)),
		"without a healthy node it stays as it is",
	)
	assert.Equal(t, health.Verdict{}, health.Decide(newFacts("Failed", preserved, withDeletingNode)))
	assert.Equal(t, health.Verdict{}, health.Decide(newFacts("Failed")), "one that its set replaces is not")
}

func TestALongerHealthTimeoutWithdrawsTheReplacement(t *testing.T) {
	v := health.Decide(
		newFacts(
			"Unknown",
			withUnhealthyDuration(healthTimeout),
			withReplacementDue,
			withRequiredGrant,
			func(f *health.Facts) { f.NoTimeout = true },
		),
	)
	assert.Nil(t, v.Change)
	require.NotNil(t, v.Due)
	assert.Equal(t, "HealthTimeoutExtended", v.Due.Reason)
	assert.False(t, v.Due.True)
}

// The conditions of a node are as old as the start of an outage until its kubelet reports again.
func TestAnOutageOfTheTargetExtendsTheHealthTimeout(t *testing.T) {
	outage := func(f *health.Facts) { f.TargetAbsent = 30 * time.Minute }
	v := health.Decide(newFacts("Unknown", withUnhealthyDuration(35*time.Minute), outage))
	assert.Nil(t, v.Change)
	assert.Nil(t, v.Due)
	assert.Equal(t, noon.Add(healthTimeout-5*time.Minute), v.Deadline)
	assert.False(t, health.HasTimedOut(newFacts("Unknown", withUnhealthyDuration(35*time.Minute), outage)))

	v = health.Decide(newFacts("Unknown", withUnhealthyDuration(30*time.Minute+healthTimeout), outage))
	require.NotNil(t, v.Change)
	assert.Equal(t, "Failed", v.Change.Phase)

	failedUpdate := func(f *health.Facts) { f.Since = noon.Add(-35 * time.Minute) }
	v = health.Decide(newFacts("InPlaceUpdateFailed", withUnhealthyNode, failedUpdate, outage))
	assert.Equal(t, noon.Add(healthTimeout-5*time.Minute), v.Deadline)
}

// While the target cluster is not connected, the facts about the node are old.
func TestNoTimeoutEndsWhileTheTargetIsNotConnected(t *testing.T) {
	const why = "the target cluster of namespace shop is not connected"
	down := func(f *health.Facts) { f.TargetDown = why }
	late := func(f *health.Facts) { f.UnhealthySince, f.Since = noon.Add(-24*time.Hour), noon.Add(-24*time.Hour) }
	for phase, want := range map[string]health.Verdict{
		"Pending":          {Why: why},
		"Available":        {Why: why},
		"Unknown":          {Why: why},
		"InPlaceUpdating":  {Why: why},
		"CrashLoopBackOff": {Why: why},
		"Running":          {},
	} {
		assert.Equal(t, want, health.Decide(newFacts(phase, withoutNode, withEndedCreationTimeout, late, down)), phase)
		connected := health.Decide(newFacts(phase, withoutNode, withEndedCreationTimeout, late))
		assert.True(t, connected.Change != nil || connected.Due != nil || connected.Clock != nil, phase)
	}
}
