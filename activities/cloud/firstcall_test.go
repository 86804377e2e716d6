package cloud_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/provider"
)

func TestIsFirstCloudCall(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) // by the server's clock; workers' clocks do not matter
	for name, row := range map[string]struct {
		attempt    int32
		started    time.Duration // delay between the schedule and the start of the activity
		hasDetails bool
		want       bool
	}{
		"the first":                  {1, time.Second, false, true},
		"the first of a busy worker": {1, 5*time.Second - 1, false, true},
		"one that was reset, or waited for a worker": {1, 5 * time.Second, false, false},
		"one that was reset at once":                 {1, time.Second, true, false},
		"the second":                                 {2, time.Second, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			info := activity.Info{Attempt: row.attempt, ScheduledTime: at, StartedTime: at.Add(row.started)}
			assert.Equal(t, row.want, cloud.IsFirstCloudCall(info, row.hasDetails))
		})
	}
}

// A run that was reset replays the records of an earlier run, while the create call of the earlier run may still run.
func TestNeverTriedIsIgnoredInAnotherRun(t *testing.T) {
	t.Parallel()
	for run, want := range map[string]bool{"default-test-run-id": true, "the-run-before": false, "": false} {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		in := activitiestest.DefaultInstanceCall
		in.IntentRun = run
		_, err := o.RunActivity(o.CreateInstance, in)
		require.NoError(t, err)
		assert.Equal(t, want, o.Cloud.Machines[0].NeverTried, "recorded by %q", run)
	}
}

// Heartbeat details show that an attempt has called the cloud. Heartbeat details survive a reset by an operator, and
// the timeout of an attempt whose worker died. The create call of the old attempt may then still run.
func TestAttemptAfterEarlierHeartbeatSearchesForInstanceFirst(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	env := activitiestest.NewActivityEnvironment()
	env.RegisterActivity(o.Activities)
	var details []cloud.AttemptDetail
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, d converter.EncodedValues) {
		var detail cloud.AttemptDetail
		require.NoError(t, d.Get(&detail))
		details = append(details, detail)
	})
	_, err := env.ExecuteActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	require.NotEmpty(t, details, "before the call")
	first := o.Cloud.Machines[0]
	assert.True(t, first.NeverTried)
	assert.Zero(t, first.MayRunUntil)
	lost := details[0]
	assert.False(t, lost.CreatesUntil.IsZero())
	lost.CreatesUntil = time.Now().Add(time.Hour)

	env.SetHeartbeatDetails(lost)
	_, err = env.ExecuteActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	next := o.Cloud.Machines[1]
	assert.False(t, next.NeverTried)
	assert.WithinDuration(t, lost.CreatesUntil, next.MayRunUntil, time.Minute)

	o.Cloud.CreateFunc = func(context.Context) (provider.Instance, error) {
		return provider.Instance{}, provider.Errorf(provider.Unavailable, "not now")
	}
	again := activitiestest.DefaultInstanceCall
	again.Known = &kube.Problem{Reason: provider.Unavailable.String(), React: kube.ReactionRetry}
	_, err = env.ExecuteActivity(o.CreateInstance, again)
	require.Error(t, err, "Temporal makes the next attempt")
	ended := details[len(details)-1]
	assert.Zero(t, ended.CreatesUntil, "the call has ended")
	for what, detail := range map[string]any{"an attempt that ended": ended, "a worker of another version": "the cloud was called"} {
		env.SetHeartbeatDetails(detail)
		_, err = env.ExecuteActivity(o.CreateInstance, again)
		require.Error(t, err)
		next = o.Cloud.Machines[len(o.Cloud.Machines)-1]
		assert.False(t, next.NeverTried, what)
		assert.Zero(t, next.MayRunUntil, what)
	}
}
