package cloud_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
)

func TestTheFirstAttemptIsTheFirstOnlyOnce(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) // by the server's clock; those of workers do not matter
	for name, row := range map[string]struct {
		attempt    int32
		started    time.Duration // after it was scheduled
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
			assert.Equal(t, row.want, cloud.IsFirst(info, row.hasDetails))
		})
	}
}

// A run that was reset replays what another run has recorded, while the create call of that run may be under way.
func TestNeverTriedHoldsInTheRunThatRecordedIt(t *testing.T) {
	t.Parallel()
	for run, want := range map[string]bool{"default-test-run-id": true, "the-run-before": false, "": false} {
		o := activitiestest.NewOffice(t, activitiestest.Class())
		in := activitiestest.InstanceCall
		in.IntentRun = run
		_, err := o.Ask(o.CreateInstance, in)
		require.NoError(t, err)
		assert.Equal(t, want, o.Cloud.Machines[0].NeverTried, "recorded by %q", run)
	}
}

// The heartbeat of an attempt that has called the cloud is there when somebody resets the activity.
func TestAnAttemptWithDetailsOfAnotherLooksFirst(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewOffice(t, activitiestest.Class())
	env := activitiestest.ActivityEnvironment()
	env.RegisterActivity(o.Provider)
	var details []string
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, d converter.EncodedValues) {
		var text string
		require.NoError(t, d.Get(&text))
		details = append(details, text)
	})
	_, err := env.ExecuteActivity(o.CreateInstance, activitiestest.InstanceCall)
	require.NoError(t, err)
	require.NotEmpty(t, details, "before the call")
	assert.True(t, o.Cloud.Machines[0].NeverTried)

	env.SetHeartbeatDetails(details[0])
	_, err = env.ExecuteActivity(o.CreateInstance, activitiestest.InstanceCall)
	require.NoError(t, err)
	assert.False(t, o.Cloud.Machines[1].NeverTried)
}
