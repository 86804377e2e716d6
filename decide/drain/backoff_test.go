package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

func TestTryRecordAfterEachAnswer(t *testing.T) {
	for _, row := range []struct {
		answer drain.RequestAnswer
		next   time.Time
	}{
		{drain.RequestAnswer{Result: drain.Accepted}, time.Time{}},
		{drain.RequestAnswer{Result: drain.Gone}, time.Time{}},
		{drain.RequestAnswer{Result: drain.Refused, Message: "violates"}, epochPlus(10 * time.Second)},
		{drain.RequestAnswer{Result: drain.Refused, RetryAfter: time.Hour}, epochPlus(10 * time.Second)},
		{drain.RequestAnswer{Result: drain.SeveralBudgets}, epochPlus(time.Minute)},
		{drain.RequestAnswer{Result: drain.Throttled}, epochPlus(5 * time.Second)},
		{drain.RequestAnswer{Result: drain.Throttled, RetryAfter: time.Second}, epochPlus(5 * time.Second)},
		{drain.RequestAnswer{Result: drain.Throttled, RetryAfter: 20 * time.Second}, epochPlus(20 * time.Second)},
		{drain.RequestAnswer{Result: drain.NamespaceDeleting}, epochPlus(30 * time.Second)},
		{drain.RequestAnswer{Result: drain.Failed}, epochPlus(5 * time.Second)},
	} {
		t.Run(string(row.answer.Result), func(t *testing.T) {
			row.answer.Means = drain.Evict
			before := drain.TryRecord{
				Attempts: 2,
				Last:     epochPlus(-time.Hour),
				Means:    drain.Evict,
				Next:     epochPlus(-time.Minute),
				Message:  "before",
			}
			after := drain.TryRecordAfterAttempt(before, row.answer, epoch)
			assert.Equal(t, row.next, after.Next)
			after.Next, after.Failures = time.Time{}, 0
			assert.Equal(t, drain.TryRecord{
				Attempts: 3, Last: epoch, Means: drain.Evict, Result: row.answer.Result, Message: row.answer.Message,
				Accepted: row.answer.Result == drain.Accepted,
			}, after)
		})
	}
}

func TestPauseDoublesAfterFailuresInARow(t *testing.T) {
	var tries drain.TryRecord
	var pauses []time.Duration
	fail := func(means drain.RemovalMeans) time.Duration {
		tries = drain.TryRecordAfterAttempt(tries, drain.RequestAnswer{Means: means, Result: drain.Failed}, epoch)
		return tries.Next.Sub(epoch)
	}
	for range 6 {
		pauses = append(pauses, fail(drain.Evict))
	}
	assert.Equal(
		t,
		[]time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute},
		pauses,
	)
	assert.Equal(t, 6, tries.Attempts)
	assert.Equal(t, 5*time.Second, fail(drain.Kill), "another means has little time, and begins anew")
	tries = drain.TryRecordAfterAttempt(tries, drain.RequestAnswer{Means: drain.Kill, Result: drain.Throttled}, epoch)
	assert.Equal(t, 5*time.Second, fail(drain.Kill), "not in a row")
	assert.Equal(t, 10*time.Second, fail(drain.Kill))
}

func TestAcceptedRequestStaysAccepted(t *testing.T) {
	tries := drain.TryRecordAfterAttempt(
		drain.TryRecord{},
		drain.RequestAnswer{Means: drain.Evict, Result: drain.Accepted},
		epoch,
	)
	tries = drain.TryRecordAfterAttempt(tries, drain.RequestAnswer{Means: drain.Kill, Result: drain.Failed}, epoch)
	assert.True(t, tries.Accepted)
}

func TestAChangedBudgetEndsThePausesOfItsPods(t *testing.T) {
	for result, wakes := range map[drain.RequestResult]bool{
		drain.Refused: true, drain.SeveralBudgets: true, drain.Throttled: false, drain.NamespaceDeleting: false, drain.Failed: false,
	} {
		tries := drain.TryRecordAfterAttempt(
			drain.TryRecord{},
			drain.RequestAnswer{Means: drain.Evict, Result: result},
			epoch,
		)
		woken := drain.TryRecordWithoutPause(tries)
		assert.Equal(t, wakes, woken.Next.IsZero(), result)
		woken.Next = tries.Next
		assert.Equal(t, tries, woken, result)
	}
}
