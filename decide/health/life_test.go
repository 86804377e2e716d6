package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/health"
)

// applyVerdict returns the facts of a machine after a verdict was written to its status.
func applyVerdict(f health.Facts, v health.Verdict, at time.Time) health.Facts {
	if v.Change != nil {
		f.Phase, f.Since = v.Change.Phase, at
	}
	if v.Clock != nil {
		f.UnhealthySince, f.RecoveredAt, f.InstanceGoneAt = v.Clock.UnhealthySince, v.Clock.RecoveredAt, time.Time{}
	}
	if v.Due != nil {
		f.Due = v.Due.True
	}
	return f
}

// decideEachSecond calls Decide for each second, until the machine is Failed or the duration `until` has passed.
// decideEachSecond returns the machine's facts and the elapsed time. world sets the node's facts for the elapsed time.
func decideEachSecond(
	f health.Facts,
	until time.Duration,
	world func(*health.Facts, time.Duration),
) (health.Facts, time.Duration) {
	for after := time.Duration(0); after < until; after += time.Second {
		f.Now = noon.Add(after)
		world(&f, after)
		for range 2 { // one phase change may cause the next
			f = applyVerdict(f, health.Decide(f), f.Now)
		}
		if f.Phase == "Failed" {
			return f, after
		}
	}
	return f, until
}

// simulateFlappingNode returns a node that in every period is first unhealthy, then healthy.
func simulateFlappingNode(sickFor, wellFor time.Duration) func(*health.Facts, time.Duration) {
	return func(f *health.Facts, after time.Duration) {
		inPeriod := after % (sickFor + wellFor)
		f.Healthy, f.BadSince = inPeriod >= sickFor, time.Time{}
		if !f.Healthy {
			f.BadSince = f.Now.Add(-inPeriod)
		}
	}
}

func TestFlappingNodeDoesNotPostponeTimeout(t *testing.T) {
	for _, row := range []struct {
		name   string
		sick   time.Duration
		well   time.Duration
		failed time.Duration // elapsed time until the phase Failed; two hours: never Failed
	}{
		{"sick without a break", time.Hour, 0, 10 * time.Minute},
		{"several times a minute", 10 * time.Second, 5 * time.Second, 10 * time.Minute},
		{"well for most of each minute, and well at the end: it fails with the next illness", 20 * time.Second, 50 * time.Second, 10*time.Minute + 30*time.Second},
		{"well for a minute each time", 9 * time.Minute, time.Minute, 2 * time.Hour},
		{"well for longer than it is sick", time.Minute, 9 * time.Minute, 2 * time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			f, after := decideEachSecond(newFacts("Running"), 2*time.Hour, simulateFlappingNode(row.sick, row.well))
			assert.Equal(t, row.failed, after)
			assert.Equal(t, row.failed < 2*time.Hour, f.Phase == "Failed")
		})
	}
	t.Run("preservation writes all the while", func(t *testing.T) {
		flap := simulateFlappingNode(10*time.Second, 5*time.Second)
		_, after := decideEachSecond(newFacts("Running"), time.Hour, func(f *health.Facts, after time.Duration) {
			flap(f, after)
			f.Since = f.Now
		})
		assert.Equal(t, 10*time.Minute, after)
	})
}

func TestRecoveredMachineIsNotDueForReplacement(t *testing.T) {
	f, _ := decideEachSecond(
		newFacts("Running", withRequiredGrant),
		15*time.Minute,
		simulateFlappingNode(time.Hour, time.Hour),
	)
	assert.Equal(t, "Unknown", f.Phase)
	assert.True(t, f.Due, "nobody has granted it")

	f.Healthy = true
	v := health.Decide(f)
	assert.Equal(t, "Running", v.Change.Phase)
	assert.False(t, v.Due.True)
	assert.Equal(t, "Recovered", v.Due.Reason)
	f = applyVerdict(f, v, f.Now)
	assert.False(t, f.Due)
	assert.Equal(t, health.Verdict{}, health.Decide(f), "and that is all")

	early := health.Decide(newFacts("Unknown"))
	assert.Nil(t, early.Due, "a machine that was never due gets no condition")
}

// The breaker is open while most nodes look dead. The breaker only delays replacements. After the breaker closes, it
// has no further effect.
func TestAfterAnOutageEachMachineIsJudgedByItsOwnNode(t *testing.T) {
	outage := func(f *health.Facts, _ time.Duration) {
		withUnhealthyNode(f)
		withOpenBreaker(f)
		f.BadSince = noon
	}
	f, after := decideEachSecond(newFacts("Running"), time.Hour, outage)
	require.Equal(t, time.Hour, after, "held")
	require.Equal(t, "Unknown", f.Phase)
	require.True(t, f.Due, "its deadline has passed")
	require.Equal(t, noon, f.UnhealthySince)
	f.Breaker = ""
	for _, row := range []struct {
		name string
		edit factsEdit
		to   string
	}{
		{"the node reports again", func(f *health.Facts) { f.Healthy = true }, "Running"},
		{"the node stays silent", func(*health.Facts) {}, "Failed"},
		{"the node is gone", withoutNode, "Failed"},
		{"the node stays silent below a deployment", withRequiredGrant, ""},
		{"the node fell ill only now", func(f *health.Facts) { f.UnhealthySince = f.Now }, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := f
			row.edit(&f)
			assert.Equal(t, row.to, phaseOfVerdict(health.Decide(f)))
		})
	}
}

func TestAnOpenBreakerDoesNotStopTheHealthClock(t *testing.T) {
	v := health.Decide(newFacts("Unknown", withUnhealthyDuration(4*time.Minute), withOpenBreaker))
	assert.Equal(t, health.Verdict{Why: unknownReadyReason, Deadline: noon.Add(6 * time.Minute), Look: true}, v)
	for reason, ended := range map[string]factsEdit{"HealthTimeout": withUnhealthyDuration(healthTimeout), "NodeDeleted": withDeletingNode, "InstanceGone": withInstanceGone} {
		v := health.Decide(newFacts("Unknown", withUnhealthyNode, ended, withOpenBreaker))
		assert.Nil(t, v.Change, reason)
		assert.Equal(t, reason, v.Due.Reason)
		assert.True(t, v.Held, reason)
		assert.False(t, health.Decide(newFacts("Unknown", withUnhealthyNode, ended)).Held, reason)
		assert.Contains(t, v.Why, "; held: 8 of 10 nodes look dead at once")
	}
	assert.Equal(t, "Running", phaseOfVerdict(health.Decide(newFacts("Unknown", withOpenBreaker))), "who is well is well")
	assert.Equal(
		t,
		"Failed",
		phaseOfVerdict(
			health.Decide(newFacts("Unknown", withUnhealthyDuration(healthTimeout), withOpenBreaker, withReplacementGrant)),
		),
		"a grant is not taken back",
	)
}

// In each minute the API server fails for 25 s, and most nodes look dead for 25 s.
func TestAnUnstableAPIServerFailsNoMachine(t *testing.T) {
	flap := simulateFlappingNode(25*time.Second, 35*time.Second)
	for _, row := range []struct {
		name string
		edit factsEdit
	}{
		{"a lone machine", func(*health.Facts) {}},
		{"below a deployment", withRequiredGrant},
	} {
		t.Run(row.name, func(t *testing.T) {
			f, after := decideEachSecond(newFacts("Running", row.edit), 2*time.Hour, func(f *health.Facts, after time.Duration) {
				flap(f, after)
				f.Breaker = ""
				if !f.Healthy {
					withOpenBreaker(f)
				}
			})
			assert.Equal(t, 2*time.Hour, after)
			assert.Equal(t, "Running", f.Phase)
			assert.False(t, f.Due)
		})
	}
}

func TestManuallyDeletedNodeMakesMachineDueForReplacement(t *testing.T) {
	for _, row := range []struct {
		name  string
		edits []factsEdit
	}{
		{"a node that is well", nil},
		{"a node that is sick", []factsEdit{withUnhealthyNode}},
		{"a machine without a health timeout", []factsEdit{withoutHealthTimeout}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := newFacts("Running", append(row.edits, withDeletingNode, withRequiredGrant)...)
			v := health.Decide(f)
			require.Equal(t, "Unknown", phaseOfVerdict(v))
			f = applyVerdict(f, v, noon)
			v = health.Decide(f)
			assert.Empty(t, phaseOfVerdict(v), "within the budget only")
			assert.Equal(t, "NodeDeleted", v.Due.Reason)
			f = applyVerdict(f, v, noon)

			f.NodeDeleting, f.Healthy, f.Now = false, true, noon.Add(time.Minute)
			v = health.Decide(f)
			assert.Equal(t, "Running", phaseOfVerdict(v), "the node is back under its name")
			assert.False(t, v.Due.True)
		})
	}
	t.Run("it is gone altogether", func(t *testing.T) {
		missing := func(f *health.Facts) { f.NodeGone = true }
		for _, row := range []struct {
			edits  []factsEdit
			reason string
		}{
			{[]factsEdit{withUnhealthyDuration(time.Minute), missing, withRequiredGrant}, "NodeDeleted"},
			{[]factsEdit{withUnhealthyDuration(time.Minute), missing, withRequiredGrant, withoutHealthTimeout}, "NodeDeleted"},
			{[]factsEdit{withUnhealthyDuration(time.Minute), missing, withRequiredGrant, withInstanceGone}, "InstanceGone"},
		} {
			v := health.Decide(newFacts("Unknown", append(row.edits, withoutNode)...))
			require.NotNil(t, v.Due)
			assert.Equal(t, row.reason, v.Due.Reason)
		}
		v := health.Decide(newFacts("Unknown", withUnhealthyDuration(time.Minute), missing, withoutNode))
		assert.Equal(t, "Failed", phaseOfVerdict(v))
		v = health.Decide(newFacts("Pending", missing, withoutNode))
		assert.Empty(t, phaseOfVerdict(v), "it has not joined yet")
	})
	t.Run("nobody knows whether it is gone: the machine is as patient as ever", func(t *testing.T) {
		v := health.Decide(newFacts("Unknown", withUnhealthyDuration(time.Minute), withoutNode))
		assert.Equal(t, health.Verdict{Why: "node m-1 is not registered", Deadline: noon.Add(9 * time.Minute), Look: true}, v)
	})
}

func phaseOfVerdict(v health.Verdict) string {
	if v.Change == nil {
		return ""
	}
	return v.Change.Phase
}
