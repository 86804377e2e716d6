package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

func TestTriesAfterEachAnswer(t *testing.T) {
	for _, row := range []struct {
		answer drain.Answer
		next   time.Time
	}{
		{drain.Answer{Result: drain.Accepted}, time.Time{}},
		{drain.Answer{Result: drain.Gone}, time.Time{}},
		{drain.Answer{Result: drain.Refused, Message: "violates"}, timeAt(10 * time.Second)},
		{drain.Answer{Result: drain.Refused, RetryAfter: time.Hour}, timeAt(10 * time.Second)},
		{drain.Answer{Result: drain.Several}, timeAt(time.Minute)},
		{drain.Answer{Result: drain.Throttled}, timeAt(5 * time.Second)},
		{drain.Answer{Result: drain.Throttled, RetryAfter: time.Second}, timeAt(5 * time.Second)},
		{drain.Answer{Result: drain.Throttled, RetryAfter: 20 * time.Second}, timeAt(20 * time.Second)},
		{drain.Answer{Result: drain.Going}, timeAt(30 * time.Second)},
		{drain.Answer{Result: drain.Failed}, timeAt(5 * time.Second)},
	} {
		t.Run(string(row.answer.Result), func(t *testing.T) {
			row.answer.Means = drain.Evict
			before := drain.Tries{
				Attempts: 2,
				Last:     timeAt(-time.Hour),
				Means:    drain.Evict,
				Next:     timeAt(-time.Minute),
				Message:  "before",
			}
			after := drain.AfterAttempt(before, row.answer, epoch)
			assert.Equal(t, row.next, after.Next)
			after.Next, after.Failures = time.Time{}, 0
			assert.Equal(t, drain.Tries{
				Attempts: 3, Last: epoch, Means: drain.Evict, Result: row.answer.Result, Message: row.answer.Message,
				Accepted: row.answer.Result == drain.Accepted,
			}, after)
		})
	}
}

func TestPauseDoublesAfterFailuresInARow(t *testing.T) {
	var tries drain.Tries
	var pauses []time.Duration
	fail := func(means drain.Means) time.Duration {
		tries = drain.AfterAttempt(tries, drain.Answer{Means: means, Result: drain.Failed}, epoch)
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
	tries = drain.AfterAttempt(tries, drain.Answer{Means: drain.Kill, Result: drain.Throttled}, epoch)
	assert.Equal(t, 5*time.Second, fail(drain.Kill), "not in a row")
	assert.Equal(t, 10*time.Second, fail(drain.Kill))
}

func TestAcceptedRequestStaysAccepted(t *testing.T) {
	tries := drain.AfterAttempt(drain.Tries{}, drain.Answer{Means: drain.Evict, Result: drain.Accepted}, epoch)
	tries = drain.AfterAttempt(tries, drain.Answer{Means: drain.Kill, Result: drain.Failed}, epoch)
	assert.True(t, tries.Accepted)
}

func TestAChangedBudgetEndsThePausesOfItsPods(t *testing.T) {
	for result, wakes := range map[drain.Result]bool{
		drain.Refused: true, drain.Several: true, drain.Throttled: false, drain.Going: false, drain.Failed: false,
	} {
		tries := drain.AfterAttempt(drain.Tries{}, drain.Answer{Means: drain.Evict, Result: result}, epoch)
		woken := drain.EndPause(tries)
		assert.Equal(t, wakes, woken.Next.IsZero(), result)
		woken.Next = tries.Next
		assert.Equal(t, tries, woken, result)
	}
}
