package cloud_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/provider"
)

func TestDeleteInstance(t *testing.T) {
	t.Parallel()
	t.Run("removes the instance, and asks the cloud also when there is none", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		_, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		for range 2 {
			answer, err := o.RunActivity(o.DeleteInstance, activitiestest.DefaultInstanceCall)
			require.NoError(t, err)
			assert.Equal(t, cloud.InstanceAnswer{}, answer)
		}
		assert.Empty(t, o.Cloud.Instances())
		assert.Equal(t, 2, o.Cloud.CallCount(provider.MethodDeleteInstance))
	})
	t.Run("finds it without a provider ID", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		o.Cloud.FailCallsAfterEffect(
			provider.MethodCreateInstance,
			1,
			provider.Errorf(provider.Aborted, "the answer was lost"),
		)
		_, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		require.Len(t, o.Cloud.Instances(), 1)
		_, err = o.RunActivity(o.DeleteInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		assert.Empty(t, o.Cloud.Instances())
	})
	t.Run("returns when it is gone, and looks less often the longer it takes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
			_, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
			require.NoError(t, err)
			o.Cloud.HoldDeletions()
			_, err = o.RunActivity(o.DeleteInstance, activitiestest.DefaultInstanceCall)
			activitiestest.AssertFailure(t, err, kube.FailureTypeTerminating, true)
			_, took, err := o.RunActivityWithRetries(o.DeleteInstance, activitiestest.DefaultInstanceCall)
			require.Error(t, err)
			assert.InDelta(t, 1.25, took.Seconds(), 0.25, "five pauses of 0.25 s, give or take a fifth")
			o.Cloud.FinishDeletions()
			_, err = o.RunActivity(o.DeleteInstance, activitiestest.DefaultInstanceCall)
			require.NoError(t, err)
		})
	})
	t.Run("believes an accepted deletion where the cloud tells no status", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		o.Cloud.FailCalls(provider.MethodInstanceStatus, 0, provider.Errorf(provider.Unimplemented, "no such call"))
		_, err := o.RunActivity(o.DeleteInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
	})
	t.Run("shows why it cannot", func(t *testing.T) {
		for _, method := range []provider.Method{provider.MethodDeleteInstance, provider.MethodInstanceStatus} {
			o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
			o.Cloud.FailCalls(method, 0, provider.Errorf(provider.PermissionDenied, "not yours"))
			answer, err := o.RunActivity(o.DeleteInstance, activitiestest.DefaultInstanceCall)
			require.NoError(t, err)
			assert.Equal(
				t,
				kube.Problem{
					Reason:   "PermissionDenied",
					Message:  "not yours",
					React:    kube.ReactionUntilCredentialChange,
					Failures: 1,
				},
				*answer.Problem,
			)
		}
	})
}

// The pause between polls is an eighth of the time since the delete request, within bounds. So the activity notices a
// deletion late by at most a seventh of the duration of the deletion.
func TestDeletePollIntervalGrowsWithWait(t *testing.T) {
	t.Parallel()
	for since, want := range map[time.Duration]time.Duration{
		-time.Minute:    250 * time.Millisecond, // the clocks of Temporal and of the worker differ
		0:               250 * time.Millisecond,
		2 * time.Second: 250 * time.Millisecond,
		8 * time.Second: time.Second,
		time.Minute:     7500 * time.Millisecond,
		2 * time.Minute: 15 * time.Second,
		time.Hour:       15 * time.Second,
	} {
		least, most := time.Hour, time.Duration(0)
		for range 1000 {
			wait := kube.DeletePollInterval(since)
			least, most = min(least, wait), max(most, wait)
		}
		assert.InEpsilon(t, 0.8*want.Seconds(), least.Seconds(), 0.05, "%s", since)
		assert.InEpsilon(t, 1.2*want.Seconds(), most.Seconds(), 0.05, "%s", since)
	}
}
