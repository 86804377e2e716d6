package activities_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/observe"
)

func TestEvictPodsEnds(t *testing.T) {
	t.Parallel()
	expired := &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old"}
	for name, row := range map[string]struct {
		end     func(*emptier, *watch.FakeWatcher)
		message string
	}{
		"with the watch":          {func(_ *emptier, pods *watch.FakeWatcher) { pods.Stop() }, "the watch of pods of node n has ended"},
		"with a watch that fails": {func(_ *emptier, pods *watch.FakeWatcher) { pods.Error(expired) }, "the watch of pods of node n has failed: too old"},
		"with the worker":         {func(e *emptier, _ *watch.FakeWatcher) { close(e.stop) }, "the worker stops while it drains node n"},
	} {
		t.Run(name+", and another attempt is to look again", func(t *testing.T) {
			emptying(t, pods("a"), func(t *testing.T, d *desk, in activities.Eviction) {
				watched := d.watchBy()
				e := d.empty(in)
				e.goesOn(t)
				row.end(e, watched)
				var application *temporal.ApplicationError
				require.ErrorAs(t, (<-e.ended).err, &application)
				assert.Equal(t, row.message, application.Message())
				assert.False(t, application.NonRetryable())
				assert.Equal(t, time.Second, application.NextRetryDelay())
				assert.Equal(t, temporal.ApplicationErrorCategoryBenign, application.Category())

				d.end("a")
				seen, err := run[activities.Evicted](d.world, d.EvictPods, in)
				require.NoError(t, err)
				assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			})
		})
	}
	t.Run("when it is given up, with what it saw", func(t *testing.T) {
		emptying(t, pods("a", "b", "c"), func(t *testing.T, d *desk, in activities.Eviction) {
			e := d.empty(in)
			e.goesOn(t)
			d.end("a")
			e.cancel()
			end := <-e.ended
			require.NoError(t, end.err)
			assert.Equal(t, activities.OutcomeChanged, end.result.Outcome)
			assert.Equal(t, 3, end.result.Accepted)
		})
	})
}

func TestEvictPodsFails(t *testing.T) {
	t.Parallel()
	t.Run("to list pods", func(t *testing.T) {
		emptying(t, pods("a"), func(t *testing.T, d *desk, in activities.Eviction) {
			failing(d.target, "list", "pods", 1, errors.New("no answer"), nil)
			_, err := run[activities.Evicted](d.world, d.EvictPods, in)
			require.ErrorContains(t, err, "list pods of node n: no answer")
			_, retryable := failure(t, err)
			assert.True(t, retryable)
			assert.Empty(t, d.since())
		})
	})
	t.Run("to watch pods", func(t *testing.T) {
		emptying(t, pods("a"), func(t *testing.T, d *desk, in activities.Eviction) {
			d.target.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
				return true, nil, errors.New("no answer")
			})
			_, err := run[activities.Evicted](d.world, d.EvictPods, in)
			require.ErrorContains(t, err, "watch pods of node n: no answer")
			_, retryable := failure(t, err)
			assert.True(t, retryable)
			assert.Empty(t, d.since(), "who cannot see what becomes of pods asks none")
		})
	})
}

func TestANextAttemptGoesOnWhereTheLastOneStood(t *testing.T) {
	t.Parallel()
	emptying(t, pods("a"), func(t *testing.T, d *desk, in activities.Eviction) {
		in.Gone = 3
		e := d.empty(in, activities.DrainProgress{Gone: 5})
		e.goesOn(t)
		d.end("a")
		seen, _ := e.ends(t)
		assert.Equal(t, drain.Counts{Gone: 6}, seen.Picture.Counts, "its heartbeats are newer than what it was called with")
	})
	emptying(t, pods("a"), func(t *testing.T, d *desk, in activities.Eviction) {
		in.Gone = 3
		e := d.empty(in, "a heartbeat of another version")
		e.goesOn(t)
		d.end("a")
		seen, _ := e.ends(t)
		assert.Equal(t, drain.Counts{Gone: 4}, seen.Picture.Counts)
	})
}

func TestWhatPeopleWantOfADrainEndsTheAttempt(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		patch map[string]any
		ends  bool
	}{
		"force":          {annotated(v1alpha1.AnnotationForce, "alice: now"), true},
		"a hold":         {annotated(v1alpha1.AnnotationHold, "alice looks"), true},
		"another try":    {annotated(v1alpha1.AnnotationRetry, "1"), true},
		"something else": {annotated("note", "x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			emptying(t, pods("a"), func(t *testing.T, d *desk, in activities.Eviction) {
				e := d.empty(in)
				e.goesOn(t)
				d.edit(observe.Machines, "m", row.patch)
				synctest.Wait()
				require.Len(t, e.ended, map[bool]int{true: 1}[row.ends])
				if !row.ends {
					_ = e.quit()
					return
				}
				seen, _ := e.ends(t)
				assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
			})
		})
	}
	t.Run("who is in a hurry asks every pod again", func(t *testing.T) {
		emptying(t, append(healthy("a"), budget(0)), func(t *testing.T, d *desk, in activities.Eviction) {
			in.Hurry = true
			e := d.empty(in)
			e.goesOn(t)
			assert.Equal(t, []asked{evicted("a")}, d.since(), "whatever its budget says")
			_ = e.quit()
		})
	})
}
