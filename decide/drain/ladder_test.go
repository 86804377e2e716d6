package drain_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

// twoHourLadder returns the ladder of a drain with the default timeout that began at epoch.
func twoHourLadder(now time.Duration, changes ...func(*drain.EscalationLadder)) drain.EscalationLadder {
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

func withOpenBreaker(l *drain.EscalationLadder) { l.Breaker = "most nodes look dead" }

func withoutFirstPass(l *drain.EscalationLadder) { l.NoPassYet = true }

func withoutStartTime(l *drain.EscalationLadder) { l.Started = time.Time{} }

func TestMeansOfTheLadder(t *testing.T) {
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
		{"evicts at first", twoHourLadder(0), evict, 2 * h},
		{"evicts to the end", twoHourLadder(2*h - 1), evict, 2 * h},
		{"then deletes", twoHourLadder(2 * h), remove, 2*h + 90*s},
		{"asks once more when nobody looked", twoHourLadder(3*h, withoutFirstPass), evict, 3 * h},
		{"asks as usual when it is in time", twoHourLadder(h, withoutFirstPass), evict, 2 * h},
		{"looks first when it deletes already", twoHourLadder(3*h, withoutFirstPass, withReachedMeans(remove, 2*h)), remove, 3 * h},
		{"looks first when it kills already", twoHourLadder(3*h, withoutFirstPass, withReachedMeans(kill, 2*h)), kill, 3 * h},
		{"does not ask once more when force is wanted", twoHourLadder(3*h, withoutFirstPass, withForce), kill, 3*h + 30*s},
		{"no longer than the drain might take", twoHourLadder(10*m, withTimeout(10*m), withGracePeriod(h)), remove, 20*m + 30*s},
		{"then kills", twoHourLadder(2*h+90*s, withReachedMeans(remove, 2*h)), kill, 2*h + 2*m},
		{"before the first pass there is no deadline", twoHourLadder(9*h, withoutStartTime), evict, never},
		{"before it, an unusable node ends it", twoHourLadder(9*h, withoutStartTime, withUnusableNode(notReady, 9*h)), evict, 9*h + 5*m},

		{"no retries: one full pass", twoHourLadder(0, withRetries(0)), remove, 90 * s},
		{"not without it", twoHourLadder(9*h, withoutStartTime, withRetries(0)), evict, never},
		{"fewer than none are none", twoHourLadder(0, withRetries(-1)), remove, 90 * s},
		{"a timeout below 20 s ends", twoHourLadder(19*s, withTimeout(19*s)), remove, 19*s + 19*s + 30*s},
		{"and has its time before", twoHourLadder(18*s, withTimeout(19*s)), evict, 19 * s},
		{"no timeout: one full pass", twoHourLadder(0, withTimeout(0)), remove, 30 * s},
		{"less than that is the same", twoHourLadder(0, withTimeout(-h)), remove, 30 * s},
		{"more than two hours are honoured", twoHourLadder(2*h, withTimeout(5*h)), evict, 5 * h},
		{"to the end", twoHourLadder(5*h-1, withTimeout(5*h)), evict, 5 * h},
		{"retries shorten where they are set", twoHourLadder(2*h-1, withTimeout(5*h), withRetries(360)), evict, 2 * h},
		{"retries do not lengthen", twoHourLadder(2*h, withRetries(361)), remove, 2*h + 90*s},
		{"not by overflow either", twoHourLadder(0, withRetries(500_000_000)), evict, 2 * h},
		{"however many they are", twoHourLadder(0, withRetries(math.MaxInt32)), evict, 2 * h},
		{"nor with the longest timeout", twoHourLadder(0, withTimeout(math.MaxInt64), withRetries(3)), evict, m},

		{"extended beyond the timeout", twoHourLadder(3*h-1, withExtension(3*h)), evict, 3 * h},
		{"extended beyond the retries", twoHourLadder(30*m, withRetries(3), withExtension(h)), evict, h},
		{"an extension never shortens", twoHourLadder(0, withExtension(h)), evict, 2 * h},
		{"extended too late: deletes, and for longer", twoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withExtension(3*h)), remove, 3*h + 90*s},
		{"extended too late: kills", twoHourLadder(3*h, withReachedMeans(kill, 3*h), withExtension(4*h)), kill, 3*h + 30*s},

		{"never back: the timeout was raised", twoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withTimeout(9*h)), remove, 9*h + 90*s},
		{"never back: the anchor is lost", twoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withoutStartTime), remove, 2*h + 90*s},
		{"never back: the node recovered", twoHourLadder(m, withReachedMeans(kill, m-10*s)), kill, m + 20*s},
		{"we were away: deletion has its full time", twoHourLadder(9 * h), remove, 9*h + 90*s},
		{"we were away: from when it was reached", twoHourLadder(9*h+m, withReachedMeans(remove, 9*h)), remove, 9*h + 90*s},
		{"we were away: killing has its full time", twoHourLadder(9*h, withReachedMeans(remove, 2*h)), kill, 9*h + 30*s},
		{"when it was reached is not known", twoHourLadder(9*h, func(l *drain.EscalationLadder) { l.Reached = remove }), remove, 9*h + 90*s},

		{"not ready for 5 minutes", twoHourLadder(10*m, withUnusableNode(notReady, 5*m)), kill, 10*m + 30*s},
		{"read-only for 5 minutes", twoHourLadder(10*m, withUnusableNode(readOnly, 5*m)), kill, 10*m + 30*s},
		{"both, or one of them, for long", twoHourLadder(10*m, withUnusableNode(notReady+" and "+readOnly, -h)), kill, 10*m + 30*s},
		{"not for 5 minutes yet", twoHourLadder(10*m-1, withUnusableNode(readOnly, 5*m)), evict, 10 * m},
		{"the deadline comes before", twoHourLadder(2*h-m, withUnusableNode(readOnly, 2*h-m)), evict, 2 * h},
		{"while deleting", twoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withUnusableNode(readOnly, 2*h-220*s)), remove, 2*h + 80*s},
		{"nothing is wrong", twoHourLadder(10*m, func(l *drain.EscalationLadder) { l.UnusableSince = epochPlus(-h) }), evict, 2 * h},
		{"unusable, and nobody knows since when", twoHourLadder(10*m, func(l *drain.EscalationLadder) { l.Unusable = notReady }), evict, 2 * h},
		{"unusable for long, and so are most nodes: evicts on, and asks again", twoHourLadder(12*m, withUnusableNode(notReady, 5*m), withOpenBreaker), evict, 15 * m},
		{"unusable for long, and so are most nodes: deletes to the end", twoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withUnusableNode(notReady, h), withOpenBreaker), remove, 2*h + 90*s},
		{"the instance is gone: at once", twoHourLadder(12*m, withUnusableNode(notReady, 12*m), withLostNode), kill, 12*m + 30*s},
		{"the instance is gone, and most nodes are unusable: evicts on, and asks again", twoHourLadder(12*m, withUnusableNode(notReady, 11*m), withLostNode, withOpenBreaker), evict, 16 * m},
		{"by force, although most nodes are unusable", twoHourLadder(0, withoutStartTime, withForce, withOpenBreaker), kill, 30 * s},
		{"deletes in order at first", twoHourLadder(0, withoutStartTime, withoutEviction), inOrder, never},
		{"to the deadline", twoHourLadder(2*h-1, withReachedMeans(inOrder, 0), withoutEviction), inOrder, 2 * h},
		{"an operator moves the deadline", twoHourLadder(2*h, withReachedMeans(inOrder, 0), withoutEviction, withExtension(3*h)), inOrder, 3 * h},
		{"then all at once", twoHourLadder(2*h, withReachedMeans(inOrder, 0), withoutEviction), remove, 2*h + 90*s},
		{"once more in order when nobody looked", twoHourLadder(3*h, withReachedMeans(inOrder, 0), withoutEviction, withoutFirstPass), inOrder, 3 * h},
		{"from when that is known", twoHourLadder(h, withReachedMeans(evict, 0), withoutEviction), inOrder, 2 * h},
		{"never back: that is not known any more", twoHourLadder(h, withReachedMeans(inOrder, 0)), inOrder, 2 * h},
		{"never back: past the deadline", twoHourLadder(2*h+m, withReachedMeans(remove, 2*h), withoutEviction), remove, 2*h + 90*s},
		{"never back: kills", twoHourLadder(m, withReachedMeans(kill, m-10*s), withoutEviction), kill, m + 20*s},
		{"by force", twoHourLadder(m, withReachedMeans(inOrder, 0), withoutEviction, withForce), kill, m + 30*s},
		{"its node is not ready", twoHourLadder(10*m, withReachedMeans(inOrder, 0), withoutEviction, withUnusableNode(notReady, 5*m)), kill, 10*m + 30*s},
		{"its node is not ready for less", twoHourLadder(10*m, withReachedMeans(inOrder, 0), withoutEviction, withUnusableNode(notReady, 6*m)), inOrder, 11 * m},
		{"by force, at once", twoHourLadder(0, withoutStartTime, withForce), kill, 30 * s},
		{"by force, since then", twoHourLadder(20*s, withForce, withReachedMeans(kill, 0)), kill, 30 * s},
		{"by force, while deleting", twoHourLadder(2*h+m, withForce, withReachedMeans(remove, 2*h)), kill, 2*h + 90*s},
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

func TestTheLadderEnds(t *testing.T) {
	for _, row := range []struct {
		name string
		from drain.EscalationLadder
		want drain.Step
	}{
		{
			"what is left is not called drained", twoHourLadder(2*time.Hour+2*time.Minute, withReachedMeans(drain.Kill, 2*time.Hour+90*time.Second)),
			drain.Step{Means: drain.Kill, Over: true, Why: "over since 14:02:00 UTC: the remaining pods stay"},
		},
		{
			"by force too", twoHourLadder(time.Minute, withForce, withReachedMeans(drain.Kill, 0)),
			drain.Step{Means: drain.Kill, Over: true, Why: "over since 12:00:30 UTC: the remaining pods stay: label force-deletion"},
		},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, drain.DecideStep(row.from)) })
	}
}

// The test runs all steps of a drain whose pods never leave the node. DecideStep is called at the Until of each step.
func TestAllStepsOfTheLadder(t *testing.T) {
	const end = "kills since 14:01:30 UTC, until 14:02:00 UTC, then leaves the remaining pods"
	assert.Equal(t, []string{
		"evicts until 14:00:00 UTC (drainTimeout 2h), then deletes",
		"deletes since 14:00:00 UTC, until 14:01:30 UTC, then kills", end,
		"over since 14:02:00 UTC: the remaining pods stay",
	}, stepReasons(twoHourLadder(0)))
	assert.Equal(t, []string{
		"deletes in order until 14:00:00 UTC (drainTimeout 2h), then deletes all at once; it cannot evict: the API server does not serve policy/v1",
		"deletes since 14:00:00 UTC, until 14:01:30 UTC, then kills",
		end,
		"over since 14:02:00 UTC: the remaining pods stay",
	}, stepReasons(twoHourLadder(0, withoutEviction)))
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

func TestReasonsOfTheLadder(t *testing.T) {
	for _, row := range []struct {
		from drain.EscalationLadder
		want string
	}{
		{twoHourLadder(0, withoutStartTime), "evicts for 2h (drainTimeout 2h), then deletes"},
		{twoHourLadder(0, withoutStartTime, withoutEviction), "deletes in order for 2h (drainTimeout 2h), then deletes all at once; it cannot evict: the API server does not serve policy/v1"},
		{twoHourLadder(0, withoutStartTime, withRetries(3)), "evicts for 1m (maxEvictRetries 3), then deletes"},
		{twoHourLadder(time.Hour, withReachedMeans(drain.DeleteInOrder, 0)), "deletes in order until 14:00:00 UTC (drainTimeout 2h), then deletes all at once; it cannot evict: its cluster could not when the drain began"},
		{twoHourLadder(2*time.Hour, withoutFirstPass, withoutEviction), "deletes in order once more, then deletes all at once: no run was active when the deadline passed; it cannot evict: the API server does not serve policy/v1"},
		{twoHourLadder(0, withoutEviction, withUnusableNode("node is not ready", -time.Minute)), "deletes in order until 12:04:00 UTC, then kills: node is not ready since 11:59:00 UTC; it cannot evict: the API server does not serve policy/v1"},
		{twoHourLadder(0, withRetries(3)), "evicts until 12:01:00 UTC (maxEvictRetries 3), then deletes"},
		{twoHourLadder(0, withRetries(360)), "evicts until 14:00:00 UTC (drainTimeout 2h), then deletes"},
		{twoHourLadder(0, withExtension(36*time.Hour)), "evicts until 2026-01-03 00:00:00 UTC (extended), then deletes"},
		{twoHourLadder(0, withUnusableNode("node is not ready", -time.Minute)), "evicts until 12:04:00 UTC, then kills: node is not ready since 11:59:00 UTC"},
		{twoHourLadder(2*time.Hour, withUnusableNode("node is not ready", 115*time.Minute+time.Second)), "deletes since 14:00:00 UTC, until 14:00:01 UTC, then kills: node is not ready since 13:55:01 UTC"},
		{twoHourLadder(2*time.Hour, withReachedMeans(drain.Delete, 2*time.Hour), withExtension(3*time.Hour)), "deletes since 14:00:00 UTC, until 15:01:30 UTC, then kills; the extension until 15:00:00 UTC came after the deadline, and nothing is evicted again"},
		{twoHourLadder(0, withUnusableNode("node is not ready", -5*time.Minute)), "kills since 12:00:00 UTC, until 12:00:30 UTC, then leaves the remaining pods: node is not ready since 11:55:00 UTC"},
		{twoHourLadder(0, withForce), "kills since 12:00:00 UTC, until 12:00:30 UTC, then leaves the remaining pods: label force-deletion"},
	} {
		assert.Equal(t, row.want, drain.DecideStep(row.from).Why)
	}
}
