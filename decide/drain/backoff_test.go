package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

func TestRequestRecordAfterEachAnswer(t *testing.T) {
	for _, row := range []struct {
		answer drain.RequestAnswer
		next   time.Time
	}{
		{drain.RequestAnswer{Result: drain.ResultAccepted}, time.Time{}},
		{drain.RequestAnswer{Result: drain.ResultPodGone}, time.Time{}},
		{drain.RequestAnswer{Result: drain.ResultRefused, Message: "violates"}, epochPlus(10 * time.Second)},
		{drain.RequestAnswer{Result: drain.ResultRefused, RetryAfter: time.Hour}, epochPlus(10 * time.Second)},
		{drain.RequestAnswer{Result: drain.ResultSeveralBudgets}, epochPlus(time.Minute)},
		{drain.RequestAnswer{Result: drain.ResultThrottled}, epochPlus(5 * time.Second)},
		{drain.RequestAnswer{Result: drain.ResultThrottled, RetryAfter: time.Second}, epochPlus(5 * time.Second)},
		{drain.RequestAnswer{Result: drain.ResultThrottled, RetryAfter: 20 * time.Second}, epochPlus(20 * time.Second)},
		{drain.RequestAnswer{Result: drain.ResultNamespaceDeleting}, epochPlus(30 * time.Second)},
		{drain.RequestAnswer{Result: drain.ResultFailed}, epochPlus(5 * time.Second)},
	} {
		t.Run(string(row.answer.Result), func(t *testing.T) {
			row.answer.Means = drain.MeansEvict
			before := drain.RequestRecord{
				Attempts: 2,
				Last:     epochPlus(-time.Hour),
				Means:    drain.MeansEvict,
				Next:     epochPlus(-time.Minute),
				Message:  "before",
			}
			after := drain.RequestRecordAfterAnswer(before, row.answer, epoch)
			assert.Equal(t, row.next, after.Next)
			after.Next, after.Failures = time.Time{}, 0
			assert.Equal(t, drain.RequestRecord{
				Attempts: 3, Last: epoch, Means: drain.MeansEvict, Result: row.answer.Result, Message: row.answer.Message,
				Accepted: row.answer.Result == drain.ResultAccepted,
			}, after)
		})
	}
}

func TestRetryPauseDoublesAfterFailuresInARow(t *testing.T) {
	var tries drain.RequestRecord
	var pauses []time.Duration
	fail := func(means drain.RemovalMeans) time.Duration {
		tries = drain.RequestRecordAfterAnswer(tries, drain.RequestAnswer{Means: means, Result: drain.ResultFailed}, epoch)
		return tries.Next.Sub(epoch)
	}
	for range 6 {
		pauses = append(pauses, fail(drain.MeansEvict))
	}
	assert.Equal(
		t,
		[]time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute},
		pauses,
	)
	assert.Equal(t, 6, tries.Attempts)
	assert.Equal(t, 5*time.Second, fail(drain.MeansKill), "another means has little time, and begins anew")
	tries = drain.RequestRecordAfterAnswer(
		tries,
		drain.RequestAnswer{Means: drain.MeansKill, Result: drain.ResultThrottled},
		epoch,
	)
	assert.Equal(t, 5*time.Second, fail(drain.MeansKill), "not in a row")
	assert.Equal(t, 10*time.Second, fail(drain.MeansKill))
}

func TestAcceptedRequestStaysAccepted(t *testing.T) {
	tries := drain.RequestRecordAfterAnswer(
		drain.RequestRecord{},
		drain.RequestAnswer{Means: drain.MeansEvict, Result: drain.ResultAccepted},
		epoch,
	)
	tries = drain.RequestRecordAfterAnswer(
		tries,
		drain.RequestAnswer{Means: drain.MeansKill, Result: drain.ResultFailed},
		epoch,
	)
	assert.True(t, tries.Accepted)
}

func TestAChangedBudgetEndsTheRetryPausesOfItsPods(t *testing.T) {
	for result, wakes := range map[drain.RequestResult]bool{
		drain.ResultRefused: true, drain.ResultSeveralBudgets: true, drain.ResultThrottled: false, drain.ResultNamespaceDeleting: false, drain.ResultFailed: false,
	} {
		tries := drain.RequestRecordAfterAnswer(
			drain.RequestRecord{},
			drain.RequestAnswer{Means: drain.MeansEvict, Result: result},
			epoch,
		)
		woken := drain.RequestRecordWithoutPause(tries)
		assert.Equal(t, wakes, woken.Next.IsZero(), result)
		woken.Next = tries.Next
		assert.Equal(t, tries, woken, result)
	}
}
