package drain_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

// newTwoHourLadder returns the ladder of a drain with the default timeout that began at epoch.
func newTwoHourLadder(now time.Duration, changes ...func(*drain.EscalationLadder)) drain.EscalationLadder {
	l := drain.EscalationLadder{Now: epochPlus(now), Started: epoch, Timeout: 2 * time.Hour, Grace: time.Minute}
	for _, change := range changes {
		change(&l)
	}
	return l
}

func withReachedMeans(means drain.RemovalMeans, since time.Duration) func(*drain.EscalationLadder) {
	return func(l *drain.EscalationLadder) { l.Reached, l.ReachedAt = means, epochPlus(since) }
}

func withUnusableNode(why string, since time.Duration) func(*drain.EscalationLadder) {
	return func(l *drain.EscalationLadder) { l.Unusable, l.UnusableSince = why, epochPlus(since) }
}

func withLostNode(l *drain.EscalationLadder) { l.Lost = true }

func withRetries(n int32) func(*drain.EscalationLadder) {
	return func(l *drain.EscalationLadder) { l.Retries = &n }
}

func withTimeout(d time.Duration) func(*drain.EscalationLadder) {
	return func(l *drain.EscalationLadder) { l.Timeout = d }
}

func withGracePeriod(d time.Duration) func(*drain.EscalationLadder) {
	return func(l *drain.EscalationLadder) { l.Grace = d }
}

func withExtension(until time.Duration) func(*drain.EscalationLadder) {
	return func(l *drain.EscalationLadder) { l.Extended = epochPlus(until) }
}

func withForce(l *drain.EscalationLadder) { l.Force = "label force-deletion" }

func withoutEviction(l *drain.EscalationLadder) {
	l.NoEviction = "the API server does not serve policy/v1"
}

func withBreakerReason(l *drain.EscalationLadder) { l.Breaker = "most nodes look dead" }

func withoutAnswer(l *drain.EscalationLadder) { l.Unanswered = "the cluster does not answer" }

// withOutage adds an outage of an hour since the start of the drain, and the part of it in the recorded means.
func withOutage(inMeans time.Duration) func(*drain.EscalationLadder) {
	return func(l *drain.EscalationLadder) { l.Absent, l.AbsentInMeans = time.Hour, inMeans }
}

func beforeFirstPass(l *drain.EscalationLadder) { l.NoPassYet = true }

func withoutStartTime(l *drain.EscalationLadder) { l.Started = time.Time{} }

func TestEscalationStepAtEachTime(t *testing.T) {
	const (
		h, m, s  = time.Hour, time.Minute, time.Second
		notReady = "node is not ready"
		readOnly = "file system is read-only"
		never    = time.Duration(math.MinInt64) // the step has no deadline
	)
	evict, inOrder, remove, kill := drain.Evict, drain.DeleteInOrder, drain.Delete, drain.Kill
	for _, row := range []struct {
		name  string
		from  drain.EscalationLadder
		means drain.RemovalMeans
		until time.Duration
	}{
		{"evicts at first", newTwoHourLadder(0), evict, 2 * h},
		{"evicts to the end", newTwoHourLadder(2*h - 1), evict, 2 * h},
		{"then deletes", newTwoHourLadder(2 * h), remove, 2*h + 90*s},
		{"asks once more when nobody looked", newTwoHourLadder(3*h, beforeFirstPass), evict, 3 * h},
		{"asks as usual when it is in time", newTwoHourLadder(h, beforeFirstPass), evict, 2 * h},
		{"looks first when it deletes already", newTwoHourLadder(3*h, beforeFirstPass, withReachedMeans(remove, 2*h)), remove, 3 * h},
		{"looks first when it kills already", newTwoHourLadder(3*h, beforeFirstPass, withReachedMeans(kill, 2*h)), kill, 3 * h},
		{"does not ask once more when force is wanted", newTwoHourLadder(3*h, beforeFirstPass, withForce), kill, 3*h + 30*s},
		{"no longer than the drain might take", newTwoHourLadder(10*m, withTimeout(10*m), withGracePeriod(h)), remove, 20*m + 30*s},
		{"then kills", newTwoHourLadder(2*h+90*s, withReachedMeans(remove, 2*h)), kill, 2*h + 2*m},
		{"before the first pass there is no deadline", newTwoHourLadder(9*h, withoutStartTime), evict, never},
		{"before it, an unusable node ends it", newTwoHourLadder(9*h, withoutStartTime, withUnusableNode(notReady, 9*h)), evict, 9*h + 5*m},

		{"no retries: one full pass", newTwoHourLadder(0, withRetries(0)), remove, 90 * s},
		{"not without it", newTwoHourLadder(9*h, withoutStartTime, withRetries(0)), evict, never},
		{"fewer than none are none", newTwoHourLadder(0, withRetries(-1)), remove, 90 * s},
		{"a timeout below 20 s ends", newTwoHourLadder(19*s, withTimeout(19*s)), remove, 19*s + 19*s + 30*s},
		{"and has its time before", newTwoHourLadder(18*s, withTimeout(19*s)), evict, 19 * s},
		{"no timeout: one full pass", newTwoHourLadder(0, withTimeout(0)), remove, 30 * s},
		{"less than that is the same", newTwoHourLadder(0, withTimeout(-h)), remove, 30 * s},
		{"more than two hours are honoured", newTwoHourLadder(2*h, withTimeout(5*h)), evict, 5 * h},
		{"to the end", newTwoHourLadder(5*h-1, withTimeout(5*h)), evict, 5 * h},
		{"retries shorten where they are set", newTwoHourLadder(2*h-1, withTimeout(5*h), withRetries(360)), evict, 2 * h},
		{"retries do not lengthen", newTwoHourLadder(2*h, withRetries(361)), remove, 2*h + 90*s},
		{"not by overflow either", newTwoHourLadder(0, withRetries(500_000_000)), evict, 2 * h},
		{"however many they are", newTwoHourLadder(0, withRetries(math.MaxInt32)), evict, 2 * h},
		{"nor with the longest timeout", newTwoHourLadder(0, withTimeout(math.MaxInt64), withRetries(3)), evict, m},

		{"extended beyond the timeout", newTwoHourLadder(3*h-1, withExtension(3*h)), evict, 3 * h},
		{"extended beyond the retries", newTwoHourLadder(30*m, withRetries(3), withExtension(h)), evict, h},
		{"an extension never shortens", newTwoHourLadder(0, withExtension(h)), evict, 2 * h},
		{"extended too late: deletes, and for longer", newTwoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withExtension(3*h)), remove, 3*h + 90*s},
		{"extended too late: kills", newTwoHourLadder(3*h, withReachedMeans(kill, 3*h), withExtension(4*h)), kill, 3*h + 30*s},

		{"never back: the timeout was raised", newTwoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withTimeout(9*h)), remove, 9*h + 90*s},
		{"never back: the anchor is lost", newTwoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withoutStartTime), remove, 2*h + 90*s},
		{"never back: the node recovered", newTwoHourLadder(m, withReachedMeans(kill, m-10*s)), kill, m + 20*s},
		{"we were away: deletion has its full time", newTwoHourLadder(9 * h), remove, 9*h + 90*s},
		{"we were away: from when it was reached", newTwoHourLadder(9*h+m, withReachedMeans(remove, 9*h)), remove, 9*h + 90*s},
		{"we were away: killing has its full time", newTwoHourLadder(9*h, withReachedMeans(remove, 2*h)), kill, 9*h + 30*s},
		{"when it was reached is not known", newTwoHourLadder(9*h, func(l *drain.EscalationLadder) { l.Reached = remove }), remove, 9*h + 90*s},

		{"not ready for 5 minutes", newTwoHourLadder(10*m, withUnusableNode(notReady, 5*m)), kill, 10*m + 30*s},
		{"read-only for 5 minutes", newTwoHourLadder(10*m, withUnusableNode(readOnly, 5*m)), kill, 10*m + 30*s},
		{"both, or one of them, for long", newTwoHourLadder(10*m, withUnusableNode(notReady+" and "+readOnly, -h)), kill, 10*m + 30*s},
		{"not for 5 minutes yet", newTwoHourLadder(10*m-1, withUnusableNode(readOnly, 5*m)), evict, 10 * m},
		{"the deadline comes before", newTwoHourLadder(2*h-m, withUnusableNode(readOnly, 2*h-m)), evict, 2 * h},
		{"while deleting", newTwoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withUnusableNode(readOnly, 2*h-220*s)), remove, 2*h + 80*s},
		{"nothing is wrong", newTwoHourLadder(10*m, func(l *drain.EscalationLadder) { l.UnusableSince = epochPlus(-h) }), evict, 2 * h},
		{"unusable, and nobody knows since when", newTwoHourLadder(10*m, func(l *drain.EscalationLadder) { l.Unusable = notReady }), evict, 2 * h},
		{"unusable for long, and so are most nodes: evicts on, and asks again", newTwoHourLadder(12*m, withUnusableNode(notReady, 5*m), withBreakerReason), evict, 15 * m},
		{"unusable for long, and so are most nodes: deletes to the end", newTwoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withUnusableNode(notReady, h), withBreakerReason), remove, 2*h + 90*s},
		{"the instance is gone: at once", newTwoHourLadder(12*m, withUnusableNode(notReady, 12*m), withLostNode), kill, 12*m + 30*s},
		{"the instance is gone, and most nodes are unusable: evicts on, and asks again", newTwoHourLadder(12*m, withUnusableNode(notReady, 11*m), withLostNode, withBreakerReason), evict, 16 * m},
		{"by force, although most nodes are unusable", newTwoHourLadder(0, withoutStartTime, withForce, withBreakerReason), kill, 30 * s},
		{"deletes in order at first", newTwoHourLadder(0, withoutStartTime, withoutEviction), inOrder, never},
		{"to the deadline", newTwoHourLadder(2*h-1, withReachedMeans(inOrder, 0), withoutEviction), inOrder, 2 * h},
		{"an operator moves the deadline", newTwoHourLadder(2*h, withReachedMeans(inOrder, 0), withoutEviction, withExtension(3*h)), inOrder, 3 * h},
		{"then all at once", newTwoHourLadder(2*h, withReachedMeans(inOrder, 0), withoutEviction), remove, 2*h + 90*s},
		{"once more in order when nobody looked", newTwoHourLadder(3*h, withReachedMeans(inOrder, 0), withoutEviction, beforeFirstPass), inOrder, 3 * h},
		{"from when that is known", newTwoHourLadder(h, withReachedMeans(evict, 0), withoutEviction), inOrder, 2 * h},
		{"never back: that is not known any more", newTwoHourLadder(h, withReachedMeans(inOrder, 0)), inOrder, 2 * h},
		{"never back: past the deadline", newTwoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withoutEviction), remove, 2*h + 90*s},
		{"never back: kills", newTwoHourLadder(m, withReachedMeans(kill, m-10*s), withoutEviction), kill, m + 20*s},
		{"by force", newTwoHourLadder(m, withReachedMeans(inOrder, 0), withoutEviction, withForce), kill, m + 30*s},
		{"its node is not ready", newTwoHourLadder(10*m, withReachedMeans(inOrder, 0), withoutEviction, withUnusableNode(notReady, 5*m)), kill, 10*m + 30*s},
		{"its node is not ready for less", newTwoHourLadder(10*m, withReachedMeans(inOrder, 0), withoutEviction, withUnusableNode(notReady, 6*m)), inOrder, 11 * m},
		{"no answer: waits past the deadline", newTwoHourLadder(3*h, withoutAnswer), evict, never},
		{"no answer: with the recorded means", newTwoHourLadder(3*h, withReachedMeans(remove, 2*h), withoutAnswer), remove, never},
		{"no answer: although the node is lost", newTwoHourLadder(12*m, withUnusableNode(notReady, 5*m), withLostNode, withoutAnswer), evict, never},
		{"after an outage: evicts for longer", newTwoHourLadder(2*h, withOutage(h)), evict, 3 * h},
		{"after an outage: deletes for longer", newTwoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withOutage(h)), remove, 3*h + 90*s},
		{"after an outage before the deletions", newTwoHourLadder(3*h, withReachedMeans(remove, 3*h), withOutage(0)), remove, 3*h + 90*s},
		{"after an outage: kills for longer", newTwoHourLadder(2*h+m, withReachedMeans(kill, 2*h), withOutage(m)), kill, 2*h + 90*s},
		{"by force, at once", newTwoHourLadder(0, withoutStartTime, withForce), kill, 30 * s},
		{"by force, since then", newTwoHourLadder(20*s, withForce, withReachedMeans(kill, 0)), kill, 30 * s},
		{"by force, while deleting", newTwoHourLadder(2*h+m, withForce, withReachedMeans(remove, 2*h)), kill, 2*h + 90*s},
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
		from drain.EscalationLadder
		want drain.Step
	}{
		{
			"what is left is not called drained", newTwoHourLadder(2*time.Hour+2*time.Minute, withReachedMeans(drain.Kill, 2*time.Hour+90*time.Second)),
			drain.Step{Means: drain.Kill, Over: true, Why: "over since 14:02:00 UTC: the remaining pods stay"},
		},
		{
			"by force too", newTwoHourLadder(time.Minute, withForce, withReachedMeans(drain.Kill, 0)),
			drain.Step{Means: drain.Kill, Over: true, Why: "over since 12:00:30 UTC: the remaining pods stay: label force-deletion"},
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
	}, stepReasons(newTwoHourLadder(0)))
	assert.Equal(t, []string{
		"deletes in order until 14:00:00 UTC (drainTimeout 2h), then deletes all at once; it cannot evict: the API server does not serve policy/v1",
		"deletes since 14:00:00 UTC, until 14:01:30 UTC, then kills",
		end,
		"over since 14:02:00 UTC: the remaining pods stay",
	}, stepReasons(newTwoHourLadder(0, withoutEviction)))
}

// stepReasons returns the Why of each step of a ladder.
func stepReasons(l drain.EscalationLadder) (said []string) {
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

func TestSentenceOfEachEscalationStep(t *testing.T) {
	for _, row := range []struct {
		from drain.EscalationLadder
		want string
	}{
		{newTwoHourLadder(0, withoutStartTime), "evicts for 2h (drainTimeout 2h), then deletes"},
		{newTwoHourLadder(0, withoutStartTime, withoutEviction), "deletes in order for 2h (drainTimeout 2h), then deletes all at once; it cannot evict: the API server does not serve policy/v1"},
		{newTwoHourLadder(0, withoutStartTime, withRetries(3)), "evicts for 1m (maxEvictRetries 3), then deletes"},
		{newTwoHourLadder(time.Hour, withReachedMeans(drain.DeleteInOrder, 0)), "deletes in order until 14:00:00 UTC (drainTimeout 2h), then deletes all at once; it cannot evict: its cluster could not when the drain began"},
		{newTwoHourLadder(2*time.Hour, beforeFirstPass, withoutEviction), "deletes in order once more, then deletes all at once: no run was active when the deadline passed; it cannot evict: the API server does not serve policy/v1"},
		{newTwoHourLadder(0, withoutEviction, withUnusableNode("node is not ready", -time.Minute)), "deletes in order until 12:04:00 UTC, then kills: node is not ready since 11:59:00 UTC; it cannot evict: the API server does not serve policy/v1"},
		{newTwoHourLadder(0, withRetries(3)), "evicts until 12:01:00 UTC (maxEvictRetries 3), then deletes"},
		{newTwoHourLadder(0, withRetries(360)), "evicts until 14:00:00 UTC (drainTimeout 2h), then deletes"},
		{newTwoHourLadder(0, withExtension(36*time.Hour)), "evicts until 2026-01-03 00:00:00 UTC (extended), then deletes"},
		{newTwoHourLadder(0, withUnusableNode("node is not ready", -time.Minute)), "evicts until 12:04:00 UTC, then kills: node is not ready since 11:59:00 UTC"},
		{newTwoHourLadder(2*time.Hour, withUnusableNode("node is not ready", 115*time.Minute+time.Second)), "deletes since 14:00:00 UTC, until 14:00:01 UTC, then kills: node is not ready since 13:55:01 UTC"},
		{newTwoHourLadder(2*time.Hour, withReachedMeans(drain.Delete, 2*time.Hour), withExtension(3*time.Hour)), "deletes since 14:00:00 UTC, until 15:01:30 UTC, then kills; the extension until 15:00:00 UTC came after the deadline, and nothing is evicted again"},
		{newTwoHourLadder(0, withUnusableNode("node is not ready", -5*time.Minute)), "kills since 12:00:00 UTC, until 12:00:30 UTC, then leaves the remaining pods: node is not ready since 11:55:00 UTC"},
		{newTwoHourLadder(0, withForce), "kills since 12:00:00 UTC, until 12:00:30 UTC, then leaves the remaining pods: label force-deletion"},
	} {
		assert.Equal(t, row.want, drain.DecideStep(row.from).Why)
	}
}

func TestAForcedDrainEndsIfTheClusterDoesNotAnswer(t *testing.T) {
	for _, reached := range []drain.RemovalMeans{"", drain.Evict, drain.Delete, drain.Kill} {
		step := drain.DecideStep(newTwoHourLadder(time.Hour, withReachedMeans(reached, 0), withoutAnswer, withForce))
		assert.True(t, step.Over, reached)
		assert.Equal(t, "the remaining pods stay: label force-deletion; the cluster does not answer", step.Why)
	}
	assert.False(t, drain.DecideStep(newTwoHourLadder(9*time.Hour, withoutAnswer)).Over)
}

func TestAnOutageExtendsTheDeadlineThatPeopleSee(t *testing.T) {
	for name, row := range map[string]struct{ now, recorded, want time.Duration }{
		"before the deadline":                {time.Hour, 3 * time.Hour, 2 * time.Hour},
		"after it":                           {2 * time.Hour, 3 * time.Hour, 3 * time.Hour},
		"after it, and nothing was extended": {2 * time.Hour, 2 * time.Hour, 2 * time.Hour},
	} {
		l := newTwoHourLadder(row.now)
		assert.Equal(
			t,
			epochPlus(row.want),
			drain.Deadlines{Ladder: &l, RecordedDeadline: epochPlus(row.recorded)}.NextDeadline(),
			name,
		)
	}
}
