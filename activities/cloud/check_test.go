package cloud_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/provider"
)

func runCheckClass(t *testing.T, o *activitiestest.CloudWorld, name string) cloud.CheckResult {
	t.Helper()
	in := kube.Ref{Namespace: activitiestest.TestNamespace, Name: name}
	checked, err := activitiestest.ExecuteActivity[cloud.CheckResult](
		t,
		o.CheckClass,
		in,
		(*testsuite.TestActivityEnvironment).ExecuteActivity,
	)
	require.NoError(t, err)
	return checked
}

func TestCheckClass(t *testing.T) {
	t.Parallel()
	t.Run("the cloud answers", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(
			t,
			activitiestest.NewClassWithSecrets("a", ""),
			activitiestest.NewSecret("a", map[string]string{"userData": "boot"}),
		)
		checked := runCheckClass(t, o, "small")
		assert.Nil(t, checked.Problem)
		assert.Equal(t, provider.ByToken, checked.Traits.Idempotency)
		assert.Zero(t, checked.Instances)
		_, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		assert.Equal(t, 1, runCheckClass(t, o, "small").Instances)
	})
	t.Run("the credentials are refused, and do not come out", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(
			t,
			activitiestest.NewClassWithSecrets("a", ""),
			activitiestest.NewSecret("a", map[string]string{"userData": "boot", "token": activitiestest.SecretMarker}),
		)
		o.Cloud.FailCalls(
			provider.MethodListInstances,
			1,
			provider.Errorf(provider.Unauthenticated, "token %s is wrong", activitiestest.SecretMarker),
		)
		problem := runCheckClass(t, o, "small").Problem
		require.NotNil(t, problem)
		assert.Equal(t, "Unauthenticated", problem.Reason)
		assert.NotContains(t, problem.Message, activitiestest.SecretMarker)
	})
	t.Run("there is no such class", func(t *testing.T) {
		assert.Equal(
			t,
			"ClassNotFound",
			runCheckClass(t, activitiestest.NewCloudWorld(t, activitiestest.NewClass()), "none").Problem.Reason,
		)
	})
	t.Run("its Secret is missing", func(t *testing.T) {
		assert.Equal(
			t,
			"SecretNotFound",
			runCheckClass(
				t,
				activitiestest.NewCloudWorld(t, activitiestest.NewClassWithSecrets("a", "")),
				"small",
			).Problem.Reason,
		)
	})
	t.Run("its Secret has no user data", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(
			t,
			activitiestest.NewClassWithSecrets("a", ""),
			activitiestest.NewSecret("a", map[string]string{"x": "y"}),
		)
		assert.Equal(t, "SecretInvalid", runCheckClass(t, o, "small").Problem.Reason)
	})
}
