package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities"
	"millwright/provider"
)

func TestDeleteInstance(t *testing.T) {
	t.Parallel()
	t.Run("U94: removes the instance, and asks the cloud also when there is none", func(t *testing.T) {
		o := newOffice(t, class())
		_, err := o.ask(o.CreateInstance, instanceCall)
		require.NoError(t, err)
		for range 2 {
			answer, err := o.ask(o.DeleteInstance, instanceCall)
			require.NoError(t, err)
			assert.Equal(t, activities.InstanceAnswer{}, answer)
		}
		assert.Empty(t, o.cloud.Instances())
		assert.Equal(t, 2, o.cloud.Calls(provider.MethodDeleteInstance))
	})
	t.Run("finds it without a provider ID", func(t *testing.T) {
		o := newOffice(t, class())
		o.cloud.FailAfter(provider.MethodCreateInstance, 1, provider.Errorf(provider.Aborted, "the answer was lost"))
		_, err := o.ask(o.CreateInstance, instanceCall)
		require.NoError(t, err)
		require.Len(t, o.cloud.Instances(), 1)
		_, err = o.ask(o.DeleteInstance, instanceCall)
		require.NoError(t, err)
		assert.Empty(t, o.cloud.Instances())
	})
	t.Run("returns when it is gone, and looks less often the longer it takes", func(t *testing.T) {
		o := newOffice(t, class())
		_, err := o.ask(o.CreateInstance, instanceCall)
		require.NoError(t, err)
		o.cloud.HoldDeletions()
		_, err = o.ask(o.DeleteInstance, instanceCall)
		assertFailure(t, err, activities.TypeTerminating, true)
		_, took, err := o.patiently(o.DeleteInstance, instanceCall)
		require.Error(t, err)
		assert.Equal(t, 3*time.Second, took.Truncate(100*time.Millisecond), "0.2 + 0.3 + 0.5 + 0.8 + 1.2 s between six looks")
		o.cloud.FinishDeletions()
		_, err = o.ask(o.DeleteInstance, instanceCall)
		require.NoError(t, err)
	})
	t.Run("believes an accepted deletion where the cloud tells no status", func(t *testing.T) {
		o := newOffice(t, class())
		o.cloud.Fail(provider.MethodInstanceStatus, 0, provider.Errorf(provider.Unimplemented, "no such call"))
		_, err := o.ask(o.DeleteInstance, instanceCall)
		require.NoError(t, err)
	})
	t.Run("shows why it cannot", func(t *testing.T) {
		for _, method := range []provider.Method{provider.MethodDeleteInstance, provider.MethodInstanceStatus} {
			o := newOffice(t, class())
			o.cloud.Fail(method, 0, provider.Errorf(provider.PermissionDenied, "not yours"))
			answer, err := o.ask(o.DeleteInstance, instanceCall)
			require.NoError(t, err)
			assert.Equal(t, activities.Problem{Reason: "PermissionDenied", Message: "not yours", React: activities.UntilCredential, Failures: 1}, *answer.Problem)
		}
	})
}
