package activitiestest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
)

type runningActivity[T any] struct {
	Cancel            context.CancelFunc
	WorkerStopChannel chan struct{} // a closed Stop stops the worker
	Outcome           chan activityOutcome[T]
}

// activityOutcome is the result or the error of an ended activity.
type activityOutcome[T any] struct {
	Result T
	Err    error
}

// StartActivity starts an activity in a test environment. prepare may change the environment.
func StartActivity[T any](
	w *World,
	activity, in any,
	prepare func(*testsuite.TestActivityEnvironment),
) *runningActivity[T] {
	ctx, cancel := context.WithCancel(w.T.Context())
	a := &runningActivity[T]{
		Cancel:            cancel,
		WorkerStopChannel: make(chan struct{}),
		Outcome:           make(chan activityOutcome[T], 1),
	}
	w.T.Cleanup(cancel)
	env := NewActivityEnvironment()
	env.RegisterActivity(activity)
	env.SetWorkerOptions(
		worker.Options{BackgroundActivityContext: ctx, Interceptors: Worker{ClockAhead: w.ClockAhead}.interceptors()},
	)
	env.SetWorkerStopChannel(a.WorkerStopChannel)
	prepare(env)
	go func() {
		var o activityOutcome[T]
		value, err := env.ExecuteActivity(activity, in)
		if o.Err = err; err == nil {
			o.Err = value.Get(&o.Result)
		}
		a.Outcome <- o
	}()
	return a
}

// AssertRunning asserts that the activity is still running when all goroutines of the bubble are blocked.
func (a *runningActivity[T]) AssertRunning(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if len(a.Outcome) > 0 {
		require.Fail(t, "it has ended", "%+v", <-a.Outcome)
	}
}

// AwaitResult waits for the end of the activity and returns its outcome and duration.
func (a *runningActivity[T]) AwaitResult(t *testing.T) (T, time.Duration) {
	t.Helper()
	begun := time.Now()
	o := <-a.Outcome
	require.NoError(t, o.Err)
	return o.Result, time.Since(begun)
}

// CancelAndWait cancels the activity and waits for its end.
func (a *runningActivity[T]) CancelAndWait() error {
	a.Cancel()
	return (<-a.Outcome).Err
}

// AdvanceTime lets time pass in a bubble, and then waits until all its goroutines are blocked.
func AdvanceTime(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
