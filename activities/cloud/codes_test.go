package cloud_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/provider"
)

// The test checks how each method reacts to each code, as the table of codes and calls in the specification requires.
func TestReactionOfEachMethodToEachCode(t *testing.T) {
	t.Parallel()
	for _, code := range provider.Codes() {
		shown := &kube.Problem{Reason: code.String(), Message: "no", React: kube.ReactionToCode(code), Failures: 1}
		for name, row := range map[string]struct {
			step   func(*activitiestest.CloudWorld) any
			method provider.Method // provider method that fails
			done   provider.Code   // provider code that counts as success
		}{
			"CreateInstance":                      {func(o *activitiestest.CloudWorld) any { return o.CreateInstance }, provider.MethodCreateInstance, provider.OK},
			"InitializeInstance":                  {func(o *activitiestest.CloudWorld) any { return o.InitializeInstance }, provider.MethodInitializeInstance, provider.Unimplemented},
			"DeleteInstance":                      {func(o *activitiestest.CloudWorld) any { return o.DeleteInstance }, provider.MethodDeleteInstance, provider.NotFound},
			"InstanceStatus":                      {func(o *activitiestest.CloudWorld) any { return o.InstanceStatus }, provider.MethodInstanceStatus, provider.OK},
			"the status that DeleteInstance asks": {func(o *activitiestest.CloudWorld) any { return o.DeleteInstance }, provider.MethodInstanceStatus, provider.NotFound},
		} {
			t.Run(code.String()+" of "+name, func(t *testing.T) {
				o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
				o.Cloud.FailCalls(row.method, 0, provider.Errorf(code, "no"))
				answer, err := o.RunActivity(row.step(o), activitiestest.DefaultInstanceCall)
				deleting := row.method == provider.MethodInstanceStatus && name != "InstanceStatus"
				switch {
				case deleting && (code == provider.NotInitialized || code == provider.OutOfRange):
					activitiestest.AssertFailure(t, err, kube.FailureTypeTerminating, true)
					return
				case code == row.done, deleting && code == provider.Unimplemented:
					require.NoError(t, err)
					assert.Nil(t, answer.Problem)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, shown, answer.Problem)
			})
		}
	}
}

func TestInstanceIsGoneOnlyIfCloudIsSure(t *testing.T) {
	t.Parallel()
	for _, code := range provider.Codes() {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		o.Cloud.FailCalls(provider.MethodInstanceStatus, 0, provider.Errorf(code, "no"))
		answer, err := o.RunActivity(o.InstanceStatus, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		assert.Equal(t, code == provider.NotFound, answer.Gone, code)
		settled := code == provider.NotFound || code == provider.Unimplemented || code == provider.AlreadyExists
		assert.Equal(t, settled, answer.HasNoInstance(), code)
	}
	t.Run("an instance that is there is not", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		_, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		answer, err := o.RunActivity(o.InstanceStatus, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		assert.Equal(t, firstInstanceAnswer(), answer)

		require.True(t, o.Cloud.RemoveInstances("uid-m"))
		answer, err = o.RunActivity(o.InstanceStatus, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		assert.True(t, answer.Gone)
	})
	t.Run("one that waits to be initialised exists, and has its names", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		waits := provider.Errorf(provider.NotInitialized, "it waits")
		waits.Instance = &provider.Instance{ProviderID: "fake:///i-1", NodeName: "n", State: provider.Uninitialized}
		o.Cloud.FailCalls(provider.MethodInstanceStatus, 0, waits)
		answer, err := o.RunActivity(o.InstanceStatus, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		assert.Equal(t, cloud.InstanceAnswer{ProviderID: "fake:///i-1", NodeName: "n", Uninitialized: true}, answer)
		assert.False(t, answer.HasNoInstance())
	})
	t.Run("nothing is known of it without its class", func(t *testing.T) {
		in := activitiestest.DefaultInstanceCall
		in.Class = "other"
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		answer, err := o.RunActivity(o.InstanceStatus, in)
		require.NoError(t, err)
		assert.False(t, answer.Gone)
	})
}
