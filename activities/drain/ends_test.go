package drain_test

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

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/observe/cache"
)

func TestEvictPodsEndsWhenInterrupted(t *testing.T) {
	t.Parallel()
	expired := &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    410,
		Reason:  metav1.StatusReasonExpired,
		Message: "too old",
	}
	for name, row := range map[string]struct {
		end     func(*activitiestest.RunningEviction, *watch.FakeWatcher)
		message string
	}{
		"with the watch":          {func(_ *activitiestest.RunningEviction, pods *watch.FakeWatcher) { pods.Stop() }, "the watch of pods of node n has ended"},
		"with a watch that fails": {func(_ *activitiestest.RunningEviction, pods *watch.FakeWatcher) { pods.Error(expired) }, "the watch of pods of node n has failed: too old"},
		"with the worker":         {func(e *activitiestest.RunningEviction, _ *watch.FakeWatcher) { close(e.WorkerStopChannel) }, "the worker stops while it drains node n"},
	} {
		t.Run(name+", and another attempt is to look again", func(t *testing.T) {
			runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				watched := d.UseFakePodWatch()
				e := d.StartEviction(in)
				e.AssertRunning(t)
				row.end(e, watched)
				var application *temporal.ApplicationError
				require.ErrorAs(t, (<-e.Outcome).Err, &application)
				assert.Equal(t, row.message, application.Message())
				assert.False(t, application.NonRetryable())
				assert.Equal(t, time.Second, application.NextRetryDelay())
				assert.Equal(t, temporal.ApplicationErrorCategoryBenign, application.Category())

				d.RemovePods("a")
				seen, err := activitiestest.RunActivity[activities.EvictionResult](d.World, newActivities(d.Kube).EvictPods, in)
				require.NoError(t, err)
				assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			})
		})
	}
	t.Run("when it is given up, with what it saw", func(t *testing.T) {
		runEvictionTest(
			t,
			podsToRemove("a", "b", "c"),
			func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				e := d.StartEviction(in)
				e.AssertRunning(t)
				d.RemovePods("a")
				e.Cancel()
				end := <-e.Outcome
				require.NoError(t, end.Err)
				assert.Equal(t, activities.OutcomeChanged, end.Result.Outcome)
				assert.Equal(t, 3, end.Result.Accepted)
			},
		)
	})
}

func TestEvictPodsReturnsErrors(t *testing.T) {
	t.Parallel()
	t.Run("to list pods", func(t *testing.T) {
		runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			activitiestest.FailRequests(d.TargetClient, "list", "pods", 1, errors.New("no answer"), nil)
			_, err := activitiestest.RunActivity[activities.EvictionResult](d.World, newActivities(d.Kube).EvictPods, in)
			require.ErrorContains(t, err, "list pods of node n: no answer")
			_, retryable := activitiestest.FailureTypeOf(t, err)
			assert.True(t, retryable)
			assert.Empty(t, d.TakeNewRequests())
		})
	})
	t.Run("to watch pods", func(t *testing.T) {
		runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			d.TargetClient.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
				return true, nil, errors.New("no answer")
			})
			_, err := activitiestest.RunActivity[activities.EvictionResult](d.World, newActivities(d.Kube).EvictPods, in)
			require.ErrorContains(t, err, "watch pods of node n: no answer")
			_, retryable := activitiestest.FailureTypeOf(t, err)
			assert.True(t, retryable)
			assert.Empty(t, d.TakeNewRequests(), "who cannot see what becomes of pods asks none")
		})
	})
}

func TestNextAttemptContinuesFromHeartbeat(t *testing.T) {
	t.Parallel()
	runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
		in.Gone = 3
		e := d.StartEviction(in, activities.Progress{Gone: 5})
		e.AssertRunning(t)
		d.RemovePods("a")
		seen, _ := e.AwaitResult(t)
		assert.Equal(
			t,
			drain.PodCounts{Gone: 6},
			seen.Picture.Counts,
			"its heartbeats are newer than what it was called with",
		)
	})
	runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
		in.Gone = 3
		e := d.StartEviction(in, "a heartbeat of another version")
		e.AssertRunning(t)
		d.RemovePods("a")
		seen, _ := e.AwaitResult(t)
		assert.Equal(t, drain.PodCounts{Gone: 4}, seen.Picture.Counts)
	})
}

func TestOperatorRequestEndsAttempt(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		patch map[string]any
		ends  bool
	}{
		"force":          {activitiestest.NewAnnotationPatch(v1alpha1.AnnotationForce, "alice: now"), true},
		"a hold":         {activitiestest.NewAnnotationPatch(v1alpha1.AnnotationHold, "alice looks"), true},
		"another try":    {activitiestest.NewAnnotationPatch(v1alpha1.AnnotationRetry, "1"), true},
		"something else": {activitiestest.NewAnnotationPatch("note", "x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				e := d.StartEviction(in)
				e.AssertRunning(t)
				d.EditObject(cache.MachinesResource, "m", row.patch)
				synctest.Wait()
				require.Len(t, e.Outcome, map[bool]int{true: 1}[row.ends])
				if !row.ends {
					_ = e.CancelAndWait()
					return
				}
				seen, _ := e.AwaitResult(t)
				assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
			})
		})
	}
	t.Run("who is in a hurry asks every pod again", func(t *testing.T) {
		runEvictionTest(
			t,
			append(readyPods("a"), newBudget(0)),
			func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				in.Hurry = true
				e := d.StartEviction(in)
				e.AssertRunning(t)
				assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests(), "whatever its budget says")
				_ = e.CancelAndWait()
			},
		)
	})
}

// The workflow waits for a cluster that did not answer: the first answer wakes the workflow.
func TestTheFirstAnswerEndsAWaitForTheCluster(t *testing.T) {
	t.Parallel()
	runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
		in.Unanswered, in.Until = true, time.Time{}
		seen, took := d.StartEviction(in).AwaitResult(t)
		assert.Zero(t, took)
		assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
		assert.Equal(t, []string{"web/a"}, seen.Left)
		assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests())
	})
}
