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

// attempt is a running activity.
type attempt[T any] struct {
	Cancel context.CancelFunc
	Stop   chan struct{} // closed: the worker stops
	Ended  chan outcome[T]
}

// outcome is how an activity has ended.
type outcome[T any] struct {
	Result T
	Err    error
}

// AttemptTo runs an activity, in an environment that prepare may change.
func AttemptTo[T any](w *World, activity, in any, prepare func(*testsuite.TestActivityEnvironment)) *attempt[T] {
	ctx, cancel := context.WithCancel(w.T.Context())
	a := &attempt[T]{Cancel: cancel, Stop: make(chan struct{}), Ended: make(chan outcome[T], 1)}
	w.T.Cleanup(cancel)
	env := ActivityEnvironment()
	env.RegisterActivity(activity)
	env.SetWorkerOptions(
		worker.Options{BackgroundActivityContext: ctx, Interceptors: Worker{Ahead: w.Ahead}.interceptors()},
	)
	env.SetWorkerStopChannel(a.Stop)
	prepare(env)
	go func() {
		var o outcome[T]
		value, err := env.ExecuteActivity(activity, in)
		if o.Err = err; err == nil {
			o.Err = value.Get(&o.Result)
		}
		a.Ended <- o
	}()
	return a
}

// GoesOn asserts that the activity has not ended when all goroutines of the bubble wait.
func (a *attempt[T]) GoesOn(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if len(a.Ended) > 0 {
		require.Fail(t, "it has ended", "%+v", <-a.Ended)
	}
}

// Ends waits for the end of the activity and returns its outcome and duration.
func (a *attempt[T]) Ends(t *testing.T) (T, time.Duration) {
	t.Helper()
	begun := time.Now()
	o := <-a.Ended
	require.NoError(t, o.Err)
	return o.Result, time.Since(begun)
}

// Quit cancels the activity and waits for its end.
func (a *attempt[T]) Quit() error {
	a.Cancel()
	return (<-a.Ended).Err
}

// After lets time pass in a bubble, until all its goroutines wait.
func After(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
