package drain_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

// twoHours is the default drain, which began at epoch.
func twoHours(now time.Duration, changes ...func(*drain.Ladder)) drain.Ladder {
	l := drain.Ladder{Now: at(now), Started: epoch, Timeout: 2 * time.Hour, Grace: time.Minute}
	for _, change := range changes {
		change(&l)
	}
	return l
}

func reached(means drain.Means, since time.Duration) func(*drain.Ladder) {
	return func(l *drain.Ladder) { l.Reached, l.ReachedAt = means, at(since) }
}

func unusable(why string, since time.Duration) func(*drain.Ladder) {
	return func(l *drain.Ladder) { l.Unusable, l.UnusableSince = why, at(since) }
}

func lost(l *drain.Ladder) { l.Lost = true }

func retries(n int32) func(*drain.Ladder) { return func(l *drain.Ladder) { l.Retries = &n } }

func timeout(d time.Duration) func(*drain.Ladder) { return func(l *drain.Ladder) { l.Timeout = d } }

func grace(d time.Duration) func(*drain.Ladder) { return func(l *drain.Ladder) { l.Grace = d } }

func extended(until time.Duration) func(*drain.Ladder) {
	return func(l *drain.Ladder) { l.Extended = at(until) }
}

func forced(l *drain.Ladder) { l.Force = "label force-deletion" }

func cannotEvict(l *drain.Ladder) { l.NoEviction = "the API server does not serve policy/v1" }

func open(l *drain.Ladder) { l.Breaker = "most nodes look dead" }

func unasked(l *drain.Ladder) { l.NoPassYet = true }

func notStarted(l *drain.Ladder) { l.Started = time.Time{} }

func TestTheLadder(t *testing.T) {
	const (
		h, m, s  = time.Hour, time.Minute, time.Second
		notReady = "node is not ready"
		readOnly = "file system is read-only"
		never    = time.Duration(math.MinInt64) // no end
	)
	evict, inOrder, remove, kill := drain.Evict, drain.DeleteInOrder, drain.Delete, drain.Kill
	for _, row := range []struct {
		name  string
		from  drain.Ladder
		means drain.Means
		until time.Duration
	}{
		{"evicts at first", twoHours(0), evict, 2 * h},
		{"evicts to the end", twoHours(2*h - 1), evict, 2 * h},
		{"then deletes", twoHours(2 * h), remove, 2*h + 90*s},
		{"asks once more when nobody looked", twoHours(3*h, unasked), evict, 3 * h},
		{"asks as usual when it is in time", twoHours(h, unasked), evict, 2 * h},
		{"looks first when it deletes already", twoHours(3*h, unasked, reached(remove, 2*h)), remove, 3 * h},
		{"looks first when it kills already", twoHours(3*h, unasked, reached(kill, 2*h)), kill, 3 * h},
		{"does not ask once more when force is wanted", twoHours(3*h, unasked, forced), kill, 3*h + 30*s},
		{"no longer than the drain might take", twoHours(10*m, timeout(10*m), grace(h)), remove, 20*m + 30*s},
		{"then kills", twoHours(2*h+90*s, reached(remove, 2*h)), kill, 2*h + 2*m},
		{"before the first pass there is no deadline", twoHours(9*h, notStarted), evict, never},
		{"before it, an unusable node ends it", twoHours(9*h, notStarted, unusable(notReady, 9*h)), evict, 9*h + 5*m},

		{"no retries: one full pass", twoHours(0, retries(0)), remove, 90 * s},
		{"not without it", twoHours(9*h, notStarted, retries(0)), evict, never},
		{"fewer than none are none", twoHours(0, retries(-1)), remove, 90 * s},
		{"a timeout below 20 s ends", twoHours(19*s, timeout(19*s)), remove, 19*s + 19*s + 30*s},
		{"and has its time before", twoHours(18*s, timeout(19*s)), evict, 19 * s},
		{"no timeout: one full pass", twoHours(0, timeout(0)), remove, 30 * s},
		{"less than that is the same", twoHours(0, timeout(-h)), remove, 30 * s},
		{"more than two hours are honoured", twoHours(2*h, timeout(5*h)), evict, 5 * h},
		{"to the end", twoHours(5*h-1, timeout(5*h)), evict, 5 * h},
		{"retries shorten where they are set", twoHours(2*h-1, timeout(5*h), retries(360)), evict, 2 * h},
		{"retries do not lengthen", twoHours(2*h, retries(361)), remove, 2*h + 90*s},
		{"not by overflow either", twoHours(0, retries(500_000_000)), evict, 2 * h},
		{"however many they are", twoHours(0, retries(math.MaxInt32)), evict, 2 * h},
		{"nor with the longest timeout", twoHours(0, timeout(math.MaxInt64), retries(3)), evict, m},

		{"extended beyond the timeout", twoHours(3*h-1, extended(3*h)), evict, 3 * h},
		{"extended beyond the retries", twoHours(30*m, retries(3), extended(h)), evict, h},
		{"an extension never shortens", twoHours(0, extended(h)), evict, 2 * h},
		{"extended too late: deletes, and for longer", twoHours(2*h+m, reached(remove, 2*h), extended(3*h)), remove, 3*h + 90*s},
		{"extended too late: kills", twoHours(3*h, reached(kill, 3*h), extended(4*h)), kill, 3*h + 30*s},

		{"never back: the timeout was raised", twoHours(2*h+m, reached(remove, 2*h), timeout(9*h)), remove, 9*h + 90*s},
		{"never back: the anchor is lost", twoHours(2*h+m, reached(remove, 2*h), notStarted), remove, 2*h + 90*s},
		{"never back: the node recovered", twoHours(m, reached(kill, m-10*s)), kill, m + 20*s},
		{"we were away: deletion has its full time", twoHours(9 * h), remove, 9*h + 90*s},
		{"we were away: from when it was reached", twoHours(9*h+m, reached(remove, 9*h)), remove, 9*h + 90*s},
		{"we were away: killing has its full time", twoHours(9*h, reached(remove, 2*h)), kill, 9*h + 30*s},
		{"when it was reached is not known", twoHours(9*h, func(l *drain.Ladder) { l.Reached = remove }), remove, 9*h + 90*s},

		{"not ready for 5 minutes", twoHours(10*m, unusable(notReady, 5*m)), kill, 10*m + 30*s},
		{"read-only for 5 minutes", twoHours(10*m, unusable(readOnly, 5*m)), kill, 10*m + 30*s},
		{"both, or one of them, for long", twoHours(10*m, unusable(notReady+" and "+readOnly, -h)), kill, 10*m + 30*s},
		{"not for 5 minutes yet", twoHours(10*m-1, unusable(readOnly, 5*m)), evict, 10 * m},
		{"the deadline comes before", twoHours(2*h-m, unusable(readOnly, 2*h-m)), evict, 2 * h},
		{"while deleting", twoHours(2*h+m, reached(remove, 2*h), unusable(readOnly, 2*h-220*s)), remove, 2*h + 80*s},
		{"nothing is wrong", twoHours(10*m, func(l *drain.Ladder) { l.UnusableSince = at(-h) }), evict, 2 * h},
		{"unusable, and nobody knows since when", twoHours(10*m, func(l *drain.Ladder) { l.Unusable = notReady }), evict, 2 * h},
		{"unusable for long, and so are most nodes: evicts on, and asks again", twoHours(12*m, unusable(notReady, 5*m), open), evict, 15 * m},
		{"unusable for long, and so are most nodes: deletes to the end", twoHours(2*h+m, reached(remove, 2*h), unusable(notReady, h), open), remove, 2*h + 90*s},
		{"the instance is gone: at once", twoHours(12*m, unusable(notReady, 12*m), lost), kill, 12*m + 30*s},
		{"the instance is gone, and most nodes are unusable: evicts on, and asks again", twoHours(12*m, unusable(notReady, 11*m), lost, open), evict, 16 * m},
		{"by force, although most nodes are unusable", twoHours(0, notStarted, forced, open), kill, 30 * s},
		{"deletes in order at first", twoHours(0, notStarted, cannotEvict), inOrder, never},
		{"to the deadline", twoHours(2*h-1, reached(inOrder, 0), cannotEvict), inOrder, 2 * h},
		{"an operator moves the deadline", twoHours(2*h, reached(inOrder, 0), cannotEvict, extended(3*h)), inOrder, 3 * h},
		{"then all at once", twoHours(2*h, reached(inOrder, 0), cannotEvict), remove, 2*h + 90*s},
		{"once more in order when nobody looked", twoHours(3*h, reached(inOrder, 0), cannotEvict, unasked), inOrder, 3 * h},
		{"from when that is known", twoHours(h, reached(evict, 0), cannotEvict), inOrder, 2 * h},
		{"never back: that is not known any more", twoHours(h, reached(inOrder, 0)), inOrder, 2 * h},
		{"never back: past the deadline", twoHours(2*h+m, reached(remove, 2*h), cannotEvict), remove, 2*h + 90*s},
		{"never back: kills", twoHours(m, reached(kill, m-10*s), cannotEvict), kill, m + 20*s},
		{"by force", twoHours(m, reached(inOrder, 0), cannotEvict, forced), kill, m + 30*s},
		{"its node is not ready", twoHours(10*m, reached(inOrder, 0), cannotEvict, unusable(notReady, 5*m)), kill, 10*m + 30*s},
		{"its node is not ready for less", twoHours(10*m, reached(inOrder, 0), cannotEvict, unusable(notReady, 6*m)), inOrder, 11 * m},
		{"by force, at once", twoHours(0, notStarted, forced), kill, 30 * s},
		{"by force, since then", twoHours(20*s, forced, reached(kill, 0)), kill, 30 * s},
		{"by force, while deleting", twoHours(2*h+m, forced, reached(remove, 2*h)), kill, 2*h + 90*s},
	} {
		t.Run(row.name, func(t *testing.T) {
			step := drain.DecideStep(row.from)
			assert.Equal(t, row.means, step.Means)
			want := at(row.until)
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
		from drain.Ladder
		want drain.Step
	}{
		{
			"what is left is not called drained", twoHours(2*time.Hour+2*time.Minute, reached(drain.Kill, 2*time.Hour+90*time.Second)),
			drain.Step{Means: drain.Kill, Over: true, Why: "over since 14:02:00 UTC: the remaining pods stay"},
		},
		{
			"by force too", twoHours(time.Minute, forced, reached(drain.Kill, 0)),
			drain.Step{Means: drain.Kill, Over: true, Why: "over since 12:00:30 UTC: the remaining pods stay: label force-deletion"},
		},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, drain.DecideStep(row.from)) })
	}
}

// The whole way of a drain that nothing ends, looked at when each step says.
func TestTheLadderFromBottomToTop(t *testing.T) {
	const end = "kills since 14:01:30 UTC, until 14:02:00 UTC, then leaves the remaining pods"
	assert.Equal(t, []string{
		"evicts until 14:00:00 UTC (drainTimeout 2h), then deletes",
		"deletes since 14:00:00 UTC, until 14:01:30 UTC, then kills", end,
		"over since 14:02:00 UTC: the remaining pods stay",
	}, climbed(twoHours(0)))
	assert.Equal(t, []string{
		"deletes in order until 14:00:00 UTC (drainTimeout 2h), then deletes all at once; it cannot evict: the API server does not serve policy/v1",
		"deletes since 14:00:00 UTC, until 14:01:30 UTC, then kills",
		end,
		"over since 14:02:00 UTC: the remaining pods stay",
	}, climbed(twoHours(0, cannotEvict)))
}

// climbed returns what each step of a ladder says.
func climbed(l drain.Ladder) (said []string) {
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

func TestWhatTheLadderSays(t *testing.T) {
	for _, row := range []struct {
		from drain.Ladder
		want string
	}{
		{twoHours(0, notStarted), "evicts for 2h (drainTimeout 2h), then deletes"},
		{twoHours(0, notStarted, cannotEvict), "deletes in order for 2h (drainTimeout 2h), then deletes all at once; it cannot evict: the API server does not serve policy/v1"},
		{twoHours(0, notStarted, retries(3)), "evicts for 1m (maxEvictRetries 3), then deletes"},
		{twoHours(time.Hour, reached(drain.DeleteInOrder, 0)), "deletes in order until 14:00:00 UTC (drainTimeout 2h), then deletes all at once; it cannot evict: its cluster could not when the drain began"},
		{twoHours(2*time.Hour, unasked, cannotEvict), "deletes in order once more, then deletes all at once: no run was active when the deadline passed; it cannot evict: the API server does not serve policy/v1"},
		{twoHours(0, cannotEvict, unusable("node is not ready", -time.Minute)), "deletes in order until 12:04:00 UTC, then kills: node is not ready since 11:59:00 UTC; it cannot evict: the API server does not serve policy/v1"},
		{twoHours(0, retries(3)), "evicts until 12:01:00 UTC (maxEvictRetries 3), then deletes"},
		{twoHours(0, retries(360)), "evicts until 14:00:00 UTC (drainTimeout 2h), then deletes"},
		{twoHours(0, extended(36*time.Hour)), "evicts until 2026-01-03 00:00:00 UTC (extended), then deletes"},
		{twoHours(0, unusable("node is not ready", -time.Minute)), "evicts until 12:04:00 UTC, then kills: node is not ready since 11:59:00 UTC"},
		{twoHours(2*time.Hour, unusable("node is not ready", 115*time.Minute+time.Second)), "deletes since 14:00:00 UTC, until 14:00:01 UTC, then kills: node is not ready since 13:55:01 UTC"},
		{twoHours(2*time.Hour, reached(drain.Delete, 2*time.Hour), extended(3*time.Hour)), "deletes since 14:00:00 UTC, until 15:01:30 UTC, then kills; the extension until 15:00:00 UTC came after the deadline, and nothing is evicted again"},
		{twoHours(0, unusable("node is not ready", -5*time.Minute)), "kills since 12:00:00 UTC, until 12:00:30 UTC, then leaves the remaining pods: node is not ready since 11:55:00 UTC"},
		{twoHours(0, forced), "kills since 12:00:00 UTC, until 12:00:30 UTC, then leaves the remaining pods: label force-deletion"},
	} {
		assert.Equal(t, row.want, drain.DecideStep(row.from).Why)
	}
}
