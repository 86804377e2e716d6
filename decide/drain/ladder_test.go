package drain_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

// newTwoHourEscalation returns the ladder of a drain with the default timeout that began at epoch.
func newTwoHourEscalation(now time.Duration, changes ...func(*drain.EscalationFacts)) drain.EscalationFacts {
	l := drain.EscalationFacts{Now: epochPlus(now), Started: epoch, Timeout: 2 * time.Hour, Grace: time.Minute}
	for _, change := range changes {
		change(&l)
	}
	return l
}

func withReachedMeans(means drain.RemovalMeans, since time.Duration) func(*drain.EscalationFacts) {
	return func(l *drain.EscalationFacts) { l.Reached, l.ReachedAt = means, epochPlus(since) }
}

func withUnusableNode(why string, since time.Duration) func(*drain.EscalationFacts) {
	return func(l *drain.EscalationFacts) { l.Unusable, l.UnusableSince = why, epochPlus(since) }
}

func withLostNode(l *drain.EscalationFacts) { l.Lost = true }

func withMaxEvictRetries(n int32) func(*drain.EscalationFacts) {
	return func(l *drain.EscalationFacts) { l.Retries = &n }
}

func withTimeout(d time.Duration) func(*drain.EscalationFacts) {
	return func(l *drain.EscalationFacts) { l.Timeout = d }
}

func withGracePeriod(d time.Duration) func(*drain.EscalationFacts) {
	return func(l *drain.EscalationFacts) { l.Grace = d }
}

func withExtendedDeadline(until time.Duration) func(*drain.EscalationFacts) {
	return func(l *drain.EscalationFacts) { l.Extended = epochPlus(until) }
}

func withForce(l *drain.EscalationFacts) { l.Force = "label force-deletion" }

func withoutEvictionSupport(l *drain.EscalationFacts) {
	l.NoEviction = "the API server does not serve policy/v1"
}

func withBreakerReason(l *drain.EscalationFacts) { l.Breaker = "most nodes look dead" }

func withUnansweringCluster(l *drain.EscalationFacts) { l.Unanswered = "the cluster does not answer" }

// withOutage adds an outage of an hour since the start of the drain, and the part of it in the recorded means.
func withOutage(inMeans time.Duration) func(*drain.EscalationFacts) {
	return func(l *drain.EscalationFacts) { l.Absent, l.AbsentInMeans = time.Hour, inMeans }
}

func beforeFirstPass(l *drain.EscalationFacts) { l.NoPassYet = true }

func withoutStartTime(l *drain.EscalationFacts) { l.Started = time.Time{} }

func TestEscalationMeansAtEachTime(t *testing.T) {
	const (
		h, m, s  = time.Hour, time.Minute, time.Second
		notReady = "node is not ready"
		readOnly = "file system is read-only"
		never    = time.Duration(math.MinInt64) // the step has no deadline
	)
	evict, inOrder, remove, kill := drain.MeansEvict, drain.MeansDeleteInOrder, drain.MeansDelete, drain.MeansKill
	for _, row := range []struct {
		name  string
		from  drain.EscalationFacts
		means drain.RemovalMeans
		until time.Duration
	}{
		{"evicts at first", newTwoHourEscalation(0), evict, 2 * h},
		{"evicts to the end", newTwoHourEscalation(2*h - 1), evict, 2 * h},
		{"then deletes", newTwoHourEscalation(2 * h), remove, 2*h + 90*s},
		{"asks once more when nobody looked", newTwoHourEscalation(3*h, beforeFirstPass), evict, 3 * h},
		{"asks as usual when it is in time", newTwoHourEscalation(h, beforeFirstPass), evict, 2 * h},
		{"looks first when it deletes already", newTwoHourEscalation(3*h, beforeFirstPass, withReachedMeans(remove, 2*h)), remove, 3 * h},
		{"looks first when it kills already", newTwoHourEscalation(3*h, beforeFirstPass, withReachedMeans(kill, 2*h)), kill, 3 * h},
		{"does not ask once more when force is wanted", newTwoHourEscalation(3*h, beforeFirstPass, withForce), kill, 3*h + 30*s},
		{"no longer than the drain might take", newTwoHourEscalation(10*m, withTimeout(10*m), withGracePeriod(h)), remove, 20*m + 30*s},
		{"then kills", newTwoHourEscalation(2*h+90*s, withReachedMeans(remove, 2*h)), kill, 2*h + 2*m},
		{"before the first pass there is no deadline", newTwoHourEscalation(9*h, withoutStartTime), evict, never},
		{"before it, an unusable node ends it", newTwoHourEscalation(9*h, withoutStartTime, withUnusableNode(notReady, 9*h)), evict, 9*h + 5*m},

		{"no retries: one full pass", newTwoHourEscalation(0, withMaxEvictRetries(0)), remove, 90 * s},
		{"not without it", newTwoHourEscalation(9*h, withoutStartTime, withMaxEvictRetries(0)), evict, never},
		{"fewer than none are none", newTwoHourEscalation(0, withMaxEvictRetries(-1)), remove, 90 * s},
		{"a timeout below 20 s ends", newTwoHourEscalation(19*s, withTimeout(19*s)), remove, 19*s + 19*s + 30*s},
		{"and has its time before", newTwoHourEscalation(18*s, withTimeout(19*s)), evict, 19 * s},
		{"no timeout: one full pass", newTwoHourEscalation(0, withTimeout(0)), remove, 30 * s},
		{"less than that is the same", newTwoHourEscalation(0, withTimeout(-h)), remove, 30 * s},
		{"more than two hours are honoured", newTwoHourEscalation(2*h, withTimeout(5*h)), evict, 5 * h},
		{"to the end", newTwoHourEscalation(5*h-1, withTimeout(5*h)), evict, 5 * h},
		{"retries shorten where they are set", newTwoHourEscalation(2*h-1, withTimeout(5*h), withMaxEvictRetries(360)), evict, 2 * h},
		{"retries do not lengthen", newTwoHourEscalation(2*h, withMaxEvictRetries(361)), remove, 2*h + 90*s},
		{"not by overflow either", newTwoHourEscalation(0, withMaxEvictRetries(500_000_000)), evict, 2 * h},
		{"however many they are", newTwoHourEscalation(0, withMaxEvictRetries(math.MaxInt32)), evict, 2 * h},
		{"nor with the longest timeout", newTwoHourEscalation(0, withTimeout(math.MaxInt64), withMaxEvictRetries(3)), evict, m},

		{"extended beyond the timeout", newTwoHourEscalation(3*h-1, withExtendedDeadline(3*h)), evict, 3 * h},
		{"extended beyond the retries", newTwoHourEscalation(30*m, withMaxEvictRetries(3), withExtendedDeadline(h)), evict, h},
		{"an extension never shortens", newTwoHourEscalation(0, withExtendedDeadline(h)), evict, 2 * h},
		{"extended too late: deletes, and for longer", newTwoHourEscalation(2*h+m, withReachedMeans(remove, 2*h), withExtendedDeadline(3*h)), remove, 3*h + 90*s},
		{"extended too late: kills", newTwoHourEscalation(3*h, withReachedMeans(kill, 3*h), withExtendedDeadline(4*h)), kill, 3*h + 30*s},

		{"never back: the timeout was raised", newTwoHourEscalation(2*h+m, withReachedMeans(remove, 2*h), withTimeout(9*h)), remove, 9*h + 90*s},
		{"never back: the anchor is lost", newTwoHourEscalation(2*h+m, withReachedMeans(remove, 2*h), withoutStartTime), remove, 2*h + 90*s},
		{"never back: the node recovered", newTwoHourEscalation(m, withReachedMeans(kill, m-10*s)), kill, m + 20*s},
		{"we were away: deletion has its full time", newTwoHourEscalation(9 * h), remove, 9*h + 90*s},
		{"we were away: from when it was reached", newTwoHourEscalation(9*h+m, withReachedMeans(remove, 9*h)), remove, 9*h + 90*s},
		{"we were away: killing has its full time", newTwoHourEscalation(9*h, withReachedMeans(remove, 2*h)), kill, 9*h + 30*s},
		{"when it was reached is not known", newTwoHourEscalation(9*h, func(l *drain.EscalationFacts) { l.Reached = remove }), remove, 9*h + 90*s},

		{"not ready for 5 minutes", newTwoHourEscalation(10*m, withUnusableNode(notReady, 5*m)), kill, 10*m + 30*s},
		{"read-only for 5 minutes", newTwoHourEscalation(10*m, withUnusableNode(readOnly, 5*m)), kill, 10*m + 30*s},
		{"both, or one of them, for long", newTwoHourEscalation(10*m, withUnusableNode(notReady+" and "+readOnly, -h)), kill, 10*m + 30*s},
		{"not for 5 minutes yet", newTwoHourEscalation(10*m-1, withUnusableNode(readOnly, 5*m)), evict, 10 * m},
		{"the deadline comes before", newTwoHourEscalation(2*h-m, withUnusableNode(readOnly, 2*h-m)), evict, 2 * h},
		{"while deleting", newTwoHourEscalation(2*h+m, withReachedMeans(remove, 2*h), withUnusableNode(readOnly, 2*h-220*s)), remove, 2*h + 80*s},
		{"nothing is wrong", newTwoHourEscalation(10*m, func(l *drain.EscalationFacts) { l.UnusableSince = epochPlus(-h) }), evict, 2 * h},
		{"unusable, and nobody knows since when", newTwoHourEscalation(10*m, func(l *drain.EscalationFacts) { l.Unusable = notReady }), evict, 2 * h},
		{"unusable for long, and so are most nodes: evicts on, and asks again", newTwoHourEscalation(12*m, withUnusableNode(notReady, 5*m), withBreakerReason), evict, 15 * m},
		{"unusable for long, and so are most nodes: deletes to the end", newTwoHourEscalation(2*h+m, withReachedMeans(remove, 2*h), withUnusableNode(notReady, h), withBreakerReason), remove, 2*h + 90*s},
		{"the instance is gone: at once", newTwoHourEscalation(12*m, withUnusableNode(notReady, 12*m), withLostNode), kill, 12*m + 30*s},
		{"the instance is gone, and most nodes are unusable: evicts on, and asks again", newTwoHourEscalation(12*m, withUnusableNode(notReady, 11*m), withLostNode, withBreakerReason), evict, 16 * m},
		{"by force, although most nodes are unusable", newTwoHourEscalation(0, withoutStartTime, withForce, withBreakerReason), kill, 30 * s},
		{"deletes in order at first", newTwoHourEscalation(0, withoutStartTime, withoutEvictionSupport), inOrder, never},
		{"to the deadline", newTwoHourEscalation(2*h-1, withReachedMeans(inOrder, 0), withoutEvictionSupport), inOrder, 2 * h},
		{"an operator moves the deadline", newTwoHourEscalation(2*h, withReachedMeans(inOrder, 0), withoutEvictionSupport, withExtendedDeadline(3*h)), inOrder, 3 * h},
		{"then all at once", newTwoHourEscalation(2*h, withReachedMeans(inOrder, 0), withoutEvictionSupport), remove, 2*h + 90*s},
		{"once more in order when nobody looked", newTwoHourEscalation(3*h, withReachedMeans(inOrder, 0), withoutEvictionSupport, beforeFirstPass), inOrder, 3 * h},
		{"from when that is known", newTwoHourEscalation(h, withReachedMeans(evict, 0), withoutEvictionSupport), inOrder, 2 * h},
		{"never back: that is not known any more", newTwoHourEscalation(h, withReachedMeans(inOrder, 0)), inOrder, 2 * h},
		{"never back: past the deadline", newTwoHourEscalation(2*h+m, withReachedMeans(remove, 2*h), withoutEvictionSupport), remove, 2*h + 90*s},
		{"never back: kills", newTwoHourEscalation(m, withReachedMeans(kill, m-10*s), withoutEvictionSupport), kill, m + 20*s},
		{"by force", newTwoHourEscalation(m, withReachedMeans(inOrder, 0), withoutEvictionSupport, withForce), kill, m + 30*s},
		{"its node is not ready", newTwoHourEscalation(10*m, withReachedMeans(inOrder, 0), withoutEvictionSupport, withUnusableNode(notReady, 5*m)), kill, 10*m + 30*s},
		{"its node is not ready for less", newTwoHourEscalation(10*m, withReachedMeans(inOrder, 0), withoutEvictionSupport, withUnusableNode(notReady, 6*m)), inOrder, 11 * m},
		{"no answer: waits past the deadline", newTwoHourEscalation(3*h, withUnansweringCluster), evict, never},
		{"no answer: with the recorded means", newTwoHourEscalation(3*h, withReachedMeans(remove, 2*h), withUnansweringCluster), remove, never},
		{"no answer: although the node is lost", newTwoHourEscalation(12*m, withUnusableNode(notReady, 5*m), withLostNode, withUnansweringCluster), evict, never},
		{"after an outage: evicts for longer", newTwoHourEscalation(2*h, withOutage(h)), evict, 3 * h},
		{"after an outage: deletes for longer", newTwoHourEscalation(2*h+m, withReachedMeans(remove, 2*h), withOutage(h)), remove, 3*h + 90*s},
		{"after an outage before the deletions", newTwoHourEscalation(3*h, withReachedMeans(remove, 3*h), withOutage(0)), remove, 3*h + 90*s},
		{"after an outage: kills for longer", newTwoHourEscalation(2*h+m, withReachedMeans(kill, 2*h), withOutage(m)), kill, 2*h + 90*s},
		{"by force, at once", newTwoHourEscalation(0, withoutStartTime, withForce), kill, 30 * s},
		{"by force, since then", newTwoHourEscalation(20*s, withForce, withReachedMeans(kill, 0)), kill, 30 * s},
		{"by force, while deleting", newTwoHourEscalation(2*h+m, withForce, withReachedMeans(remove, 2*h)), kill, 2*h + 90*s},
	} {
		t.Run(row.name, func(t *testing.T) {
			step := drain.DecideStep(row.from)
			assert.Equal(t, row.means, step.Means)
			want := epochPlus(row.until)
			if row.until == never {
				want = time.Time{}
			}
			assert.Equal(t, want, step.Until)
			assert.False(t, step.Over)
			assert.NotEmpty(t, step.Why)
		})
	}
}

func TestLastStepOfEscalation(t *testing.T) {
	for _, row := range []struct {
		name string
		from drain.EscalationFacts
		want drain.Step
	}{
		{
			"what is left is not called drained", newTwoHourEscalation(2*time.Hour+2*time.Minute, withReachedMeans(drain.MeansKill, 2*time.Hour+90*time.Second)),
			drain.Step{Means: drain.MeansKill, Over: true, Why: "over since 14:02:00 UTC: the remaining pods stay"},
		},
		{
			"by force too", newTwoHourEscalation(time.Minute, withForce, withReachedMeans(drain.MeansKill, 0)),
			drain.Step{Means: drain.MeansKill, Over: true, Why: "over since 12:00:30 UTC: the remaining pods stay: label force-deletion"},
		},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, drain.DecideStep(row.from)) })
	}
}

// The test runs all steps of a drain whose pods never leave the node. DecideStep is called at the Until of each step.
func TestSequenceOfEscalationSteps(t *testing.T) {
	const end = "kills since 14:01:30 UTC, until 14:02:00 UTC, then leaves the remaining pods"
	assert.Equal(t, []string{
		"evicts until 14:00:00 UTC (drainTimeout 2h), then deletes",
		"deletes since 14:00:00 UTC, until 14:01:30 UTC, then kills", end,
		"over since 14:02:00 UTC: the remaining pods stay",
	}, stepReasons(newTwoHourEscalation(0)))
	assert.Equal(t, []string{
		"deletes in order until 14:00:00 UTC (drainTimeout 2h), then deletes all at once; it cannot evict: the API server does not serve policy/v1",
		"deletes since 14:00:00 UTC, until 14:01:30 UTC, then kills",
		end,
		"over since 14:02:00 UTC: the remaining pods stay",
	}, stepReasons(newTwoHourEscalation(0, withoutEvictionSupport)))
}

// stepReasons returns the Why of each step of a ladder.
func stepReasons(l drain.EscalationFacts) (said []string) {
	for range 10 {
		step := drain.DecideStep(l)
		said = append(said, step.Why)
		if step.Over {
			break
		}
		if step.Means != l.Reached {
			l.Reached, l.ReachedAt = step.Means, l.Now
		}
		l.Now = step.Until
	}
	return said
}

func TestReasonOfEachEscalationStep(t *testing.T) {
	for _, row := range []struct {
		from drain.EscalationFacts
		want string
	}{
		{newTwoHourEscalation(0, withoutStartTime), "evicts for 2h (drainTimeout 2h), then deletes"},
		{newTwoHourEscalation(0, withoutStartTime, withoutEvictionSupport), "deletes in order for 2h (drainTimeout 2h), then deletes all at once; it cannot evict: the API server does not serve policy/v1"},
		{newTwoHourEscalation(0, withoutStartTime, withMaxEvictRetries(3)), "evicts for 1m (maxEvictRetries 3), then deletes"},
		{newTwoHourEscalation(time.Hour, withReachedMeans(drain.MeansDeleteInOrder, 0)), "deletes in order until 14:00:00 UTC (drainTimeout 2h), then deletes all at once; it cannot evict: its cluster could not when the drain began"},
		{newTwoHourEscalation(2*time.Hour, beforeFirstPass, withoutEvictionSupport), "deletes in order once more, then deletes all at once: no run was active when the deadline passed; it cannot evict: the API server does not serve policy/v1"},
		{newTwoHourEscalation(0, withoutEvictionSupport, withUnusableNode("node is not ready", -time.Minute)), "deletes in order until 12:04:00 UTC, then kills: node is not ready since 11:59:00 UTC; it cannot evict: the API server does not serve policy/v1"},
		{newTwoHourEscalation(0, withMaxEvictRetries(3)), "evicts until 12:01:00 UTC (maxEvictRetries 3), then deletes"},
		{newTwoHourEscalation(0, withMaxEvictRetries(360)), "evicts until 14:00:00 UTC (drainTimeout 2h), then deletes"},
		{newTwoHourEscalation(0, withExtendedDeadline(36*time.Hour)), "evicts until 2026-01-03 00:00:00 UTC (extended), then deletes"},
		{newTwoHourEscalation(0, withUnusableNode("node is not ready", -time.Minute)), "evicts until 12:04:00 UTC, then kills: node is not ready since 11:59:00 UTC"},
		{newTwoHourEscalation(2*time.Hour, withUnusableNode("node is not ready", 115*time.Minute+time.Second)), "deletes since 14:00:00 UTC, until 14:00:01 UTC, then kills: node is not ready since 13:55:01 UTC"},
		{newTwoHourEscalation(2*time.Hour, withReachedMeans(drain.MeansDelete, 2*time.Hour), withExtendedDeadline(3*time.Hour)), "deletes since 14:00:00 UTC, until 15:01:30 UTC, then kills; the extension until 15:00:00 UTC came after the deadline, and nothing is evicted again"},
		{newTwoHourEscalation(0, withUnusableNode("node is not ready", -5*time.Minute)), "kills since 12:00:00 UTC, until 12:00:30 UTC, then leaves the remaining pods: node is not ready since 11:55:00 UTC"},
		{newTwoHourEscalation(0, withForce), "kills since 12:00:00 UTC, until 12:00:30 UTC, then leaves the remaining pods: label force-deletion"},
	} {
		assert.Equal(t, row.want, drain.DecideStep(row.from).Why)
	}
}

func TestAForcedDrainEndsIfTheClusterDoesNotAnswer(t *testing.T) {
	for _, reached := range []drain.RemovalMeans{"", drain.MeansEvict, drain.MeansDelete, drain.MeansKill} {
		step := drain.DecideStep(
			newTwoHourEscalation(time.Hour, withReachedMeans(reached, 0), withUnansweringCluster, withForce),
		)
		assert.True(t, step.Over, reached)
		assert.Equal(t, "the remaining pods stay: label force-deletion; the cluster does not answer", step.Why)
	}
	assert.False(t, drain.DecideStep(newTwoHourEscalation(9*time.Hour, withUnansweringCluster)).Over)
}

func TestAnOutageExtendsTheDisplayedDeadline(t *testing.T) {
	for name, row := range map[string]struct{ now, recorded, want time.Duration }{
		"before the deadline":                {time.Hour, 3 * time.Hour, 2 * time.Hour},
		"after it":                           {2 * time.Hour, 3 * time.Hour, 3 * time.Hour},
		"after it, and nothing was extended": {2 * time.Hour, 2 * time.Hour, 2 * time.Hour},
	} {
		l := newTwoHourEscalation(row.now)
		assert.Equal(
			t,
			epochPlus(row.want),
			drain.Deadlines{Escalation: &l, RecordedDeadline: epochPlus(row.recorded)}.NextDeadline(),
			name,
		)
	}
}
