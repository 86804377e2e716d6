package activities_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities"
)

func TestAwaitEmptyEnds(t *testing.T) {
	t.Parallel()
	t.Run("with its context", func(t *testing.T) {
		holding(t, one(), func(t *testing.T, w *world, in activities.Read) {
			a := w.wait(in)
			a.cancel()
			assertCanceled(t, <-a.ended)
		})
	})
	t.Run("with its context, which also ends the watch", func(t *testing.T) {
		for range 20 { // which of both is seen is chance
			holding(t, one(), func(t *testing.T, w *world, in activities.Read) {
				canceled, ended := make(chan struct{}), watch.NewFake()
				ended.Stop()
				w.target.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
					w.server.watched <- struct{}{}
					<-canceled
					return true, ended, nil
				})
				a := w.wait(in)
				a.cancel()
				close(canceled)
				assertCanceled(t, <-a.ended)
			})
		}
	})
	expired := &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old"}
	for name, row := range map[string]struct {
		end     func(*waiter, *watch.FakeWatcher)
		message string
	}{
		"with the watch":          {func(_ *waiter, pods *watch.FakeWatcher) { pods.Stop() }, "the watch of pods of node n has ended"},
		"with a watch that fails": {func(_ *waiter, pods *watch.FakeWatcher) { pods.Error(expired) }, "the watch of pods of node n has failed: too old"},
		"with the worker":         {func(a *waiter, _ *watch.FakeWatcher) { close(a.stop) }, "the worker stops while it waits for pods of node n"},
	} {
		t.Run(name+", and another attempt is to look again", func(t *testing.T) {
			holding(t, one(), func(t *testing.T, w *world, in activities.Read) {
				pods := w.watchBy()
				a := w.wait(in)
				row.end(a, pods)
				var application *temporal.ApplicationError
				require.ErrorAs(t, <-a.ended, &application)
				assert.Equal(t, row.message, application.Message())
				assert.False(t, application.NonRetryable())
				assert.Equal(t, time.Second, application.NextRetryDelay())
				assert.Equal(t, temporal.ApplicationErrorCategoryBenign, application.Category())

				w.remove("left")
				_, err := run[activities.Emptied](w, w.AwaitEmpty, in)
				require.NoError(t, err)
			})
		})
	}
}

func assertCanceled(t *testing.T, err error) {
	t.Helper()
	var application *temporal.ApplicationError // what the SDK's test environment makes of it
	require.ErrorAs(t, err, &application)
	assert.Equal(t, context.Canceled.Error(), application.Message())
}

func TestAwaitEmptyWithoutANode(t *testing.T) {
	t.Parallel()
	m, early := machine("m", onNode), machine("m")
	for name, row := range map[string]struct {
		in      activities.Read
		objects []runtime.Object
	}{
		"U127: the node is gone":      {read(m), []runtime.Object{m, pod("left")}},
		"the machine has no node yet": {read(early), []runtime.Object{early, node(), pod("left")}},
		"the machine is gone":         {read(m), []runtime.Object{node(), pod("left")}},
		"another one has its name":    {activities.Read{Ref: stranger(m)}, []runtime.Object{m, node(), pod("left")}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.objects...)
			assert.Equal(t, activities.Emptied{}, twice[activities.Emptied](w, w.AwaitEmpty, row.in))
			assert.NotContains(t, w.requests(), "list pods")
		})
	}
}

func TestAwaitEmptyFails(t *testing.T) {
	t.Parallel()
	t.Run("to read the node", func(t *testing.T) {
		holding(t, one(), func(t *testing.T, w *world, in activities.Read) {
			failing(w.target, "get", "nodes", 1, errors.New("no answer"), nil)
			_, err := run[activities.Emptied](w, w.AwaitEmpty, in)
			require.ErrorContains(t, err, "get node n of machine m: no answer")
		})
	})
	t.Run("to read the machine", func(t *testing.T) {
		holding(t, one(), func(t *testing.T, w *world, in activities.Read) {
			failing(w.machines, "get", "machines", 1, errors.New("no answer"), nil)
			in.Live = true
			_, err := run[activities.Emptied](w, w.AwaitEmpty, in)
			require.ErrorContains(t, err, "get machine shop/m: no answer")
		})
	})
	t.Run("to list pods", func(t *testing.T) {
		holding(t, one(), func(t *testing.T, w *world, in activities.Read) {
			failing(w.target, "list", "pods", 1, errors.New("no answer"), nil)
			_, err := run[activities.Emptied](w, w.AwaitEmpty, in)
			require.ErrorContains(t, err, "list pods of node n: no answer")
		})
	})
	t.Run("to watch pods", func(t *testing.T) {
		holding(t, one(), func(t *testing.T, w *world, in activities.Read) {
			w.target.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
				return true, nil, errors.New("no answer")
			})
			_, err := run[activities.Emptied](w, w.AwaitEmpty, in)
			require.ErrorContains(t, err, "watch pods of node n: no answer")
			_, retryable := failure(t, err)
			assert.True(t, retryable)
		})
	})
}
