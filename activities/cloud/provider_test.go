package cloud_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/provider"
)

// firstInstanceAnswer is the answer to a call that finds or creates the first instance of the cloud.
func firstInstanceAnswer() cloud.InstanceAnswer {
	return cloud.InstanceAnswer{
		ProviderID:     "fake:///i-1",
		NodeName:       "m",
		LastKnownState: "i-1",
		Addresses:      []kube.Address{{Type: "Hostname", Address: "m"}},
	}
}

func TestCreateInstance(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	for range 2 {
		answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		assert.Equal(t, firstInstanceAnswer(), answer)
	}
	assert.Equal(t, 1, o.Cloud.CreatedInstanceCount(), "the second adopts what the first made")
	assert.JSONEq(t, `{"size":"xl"}`, string(o.Cloud.Classes[0].Spec))
	assert.Equal(
		t,
		provider.Machine{Cluster: "prod", Namespace: activitiestest.TestNamespace, Name: "m", UID: "uid-m", NeverTried: true},
		o.Cloud.Machines[0],
	)

	t.Run("what is known goes along", func(t *testing.T) {
		in := activitiestest.DefaultInstanceCall
		in.ProviderID, in.LastKnownState = "fake:///i-1", "i-1"
		_, err := o.RunActivity(o.CreateInstance, in)
		require.NoError(t, err)
		last := o.Cloud.Machines[len(o.Cloud.Machines)-1]
		assert.Equal(t, []string{"fake:///i-1", "i-1"}, []string{last.ProviderID, last.LastKnownState})
	})
}

func TestNeverTriedIsIgnoredInLaterAttempts(t *testing.T) {
	t.Parallel()
	t.Run("when the first attempt failed somewhere", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		calls := 0
		o.Cloud.CreateFunc = func(context.Context) (provider.Instance, error) {
			if calls++; calls == 1 {
				return provider.Instance{}, temporal.NewApplicationError("the worker died", "Died")
			}
			return provider.Instance{ProviderID: "fake:///i-1", NodeName: "m"}, nil
		}
		_, _, err := o.RunActivityWithRetries(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		require.Len(t, o.Cloud.Machines, 2)
		assert.True(t, o.Cloud.Machines[0].NeverTried)
		assert.False(t, o.Cloud.Machines[1].NeverTried)
	})
	t.Run("when it was not the first from the start", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		in := activitiestest.DefaultInstanceCall
		in.NeverTried = false
		_, err := o.RunActivity(o.CreateInstance, in)
		require.NoError(t, err)
		assert.False(t, o.Cloud.Machines[0].NeverTried)
	})
}

func TestAnInstanceWithoutAProviderIDIsAnInternalError(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	o.Cloud.CreateFunc = func(context.Context) (provider.Instance, error) { return provider.Instance{NodeName: "m"}, nil }
	answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	require.NotNil(t, answer.Problem)
	assert.Equal(t, "Internal", answer.Problem.Reason)
	assert.Empty(t, answer.ProviderID)
}

// Some clouds name the node only when the instance boots.
func TestInstanceMayHaveNoNodeName(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	o.Cloud.CreateFunc = func(context.Context) (provider.Instance, error) {
		return provider.Instance{ProviderID: "fake:///i-1"}, nil
	}
	answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	assert.Equal(t, cloud.InstanceAnswer{ProviderID: "fake:///i-1"}, answer)
}

func TestInitializeInstance(t *testing.T) {
	t.Parallel()
	slow := activitiestest.NewClass(func(c *v1alpha1.MachineClass) { c.Name = "slow" })
	in := activitiestest.DefaultInstanceCall
	in.Class = "slow"
	t.Run("of a provider that has this step", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, slow)
		answer, err := o.RunActivity(o.CreateInstance, in)
		require.NoError(t, err)
		assert.True(t, answer.Uninitialized)
		for range 2 {
			answer, err = o.RunActivity(o.InitializeInstance, in)
			require.NoError(t, err)
			assert.Equal(t, firstInstanceAnswer(), answer)
		}
	})
	t.Run("that fails is a problem", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, slow)
		answer, err := o.RunActivity(o.InitializeInstance, in)
		require.NoError(t, err)
		assert.Equal(t, "NotFound", answer.Problem.Reason)
	})
	t.Run("of a provider without it is a success that forgets nothing", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		_, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		in := activitiestest.DefaultInstanceCall
		in.ProviderID, in.NodeName, in.LastKnownState = "fake:///i-1", "m", "i-1"
		for range 2 {
			answer, err := o.RunActivity(o.InitializeInstance, in)
			require.NoError(t, err)
			assert.Equal(t, cloud.InstanceAnswer{ProviderID: "fake:///i-1", NodeName: "m", LastKnownState: "i-1"}, answer)
		}
	})
}
