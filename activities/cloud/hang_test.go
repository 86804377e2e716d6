package cloud_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities/activitiestest"
	"millwright/provider"
)

// The times of the test pass in a synctest bubble, without waiting.
func TestHangingProviderCallEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		step   func(*activitiestest.CloudWorld) any
		method provider.Method // provider method that hangs
	}{
		"CreateInstance":                      {func(o *activitiestest.CloudWorld) any { return o.CreateInstance }, provider.MethodCreateInstance},
		"InitializeInstance":                  {func(o *activitiestest.CloudWorld) any { return o.InitializeInstance }, provider.MethodInitializeInstance},
		"DeleteInstance":                      {func(o *activitiestest.CloudWorld) any { return o.DeleteInstance }, provider.MethodDeleteInstance},
		"the status that DeleteInstance asks": {func(o *activitiestest.CloudWorld) any { return o.DeleteInstance }, provider.MethodInstanceStatus},
		"InstanceStatus":                      {func(o *activitiestest.CloudWorld) any { return o.InstanceStatus }, provider.MethodInstanceStatus},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
				o.Cloud.BlockCalls(row.method)
				took, err := o.RunActivityWithTimeout(row.step(o), 10*time.Minute)
				require.Error(t, err, "a deadline is no answer of the cloud's that people should see")
				assert.Equal(t, 10*time.Minute, took)
			})
		})
	}
	t.Run("is asked again afterwards", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
			release := o.Cloud.BlockCalls(provider.MethodCreateInstance)
			_, err := o.RunActivityWithTimeout(o.CreateInstance, time.Minute)
			require.Error(t, err)
			release()
			answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
			require.NoError(t, err)
			assert.Equal(t, firstInstanceAnswer(), answer)
			assert.Equal(t, 1, o.Cloud.CreatedInstanceCount())
		})
	})
}
