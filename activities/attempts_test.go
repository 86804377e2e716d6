package activities_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
)

// attempt is an activity while it runs.
type attempt[T any] struct {
	cancel context.CancelFunc
	stop   chan struct{} // closed: the worker stops
	ended  chan outcome[T]
}

// outcome is how it has ended.
type outcome[T any] struct {
	result T
	err    error
}

// attemptTo runs an activity, in an environment that prepare may change.
func attemptTo[T any](w *world, activity, in any, prepare func(*testsuite.TestActivityEnvironment)) *attempt[T] {
	ctx, cancel := context.WithCancel(w.t.Context())
	a := &attempt[T]{cancel: cancel, stop: make(chan struct{}), ended: make(chan outcome[T], 1)}
	w.t.Cleanup(cancel)
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(w.Activities)
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	env.SetWorkerStopChannel(a.stop)
	prepare(env)
	go func() {
		var o outcome[T]
		value, err := env.ExecuteActivity(activity, in)
		if o.err = err; err == nil {
			o.err = value.Get(&o.result)
		}
		a.ended <- o
	}()
	return a
}

// goesOn asserts that it has not ended, when all has happened that was to happen.
func (a *attempt[T]) goesOn(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if len(a.ended) > 0 {
		require.Fail(t, "it has ended", "%+v", <-a.ended)
	}
}

// ends returns how it ends, and how long that takes.
func (a *attempt[T]) ends(t *testing.T) (T, time.Duration) {
	t.Helper()
	begun := time.Now()
	o := <-a.ended
	require.NoError(t, o.err)
	return o.result, time.Since(begun)
}

// quit cancels it and waits until it has ended, by that or by itself.
func (a *attempt[T]) quit() error {
	a.cancel()
	return (<-a.ended).err
}

// after lets time pass in a bubble, until all that was to happen by then has happened.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
