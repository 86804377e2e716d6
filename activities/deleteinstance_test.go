package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/activities"
	machinefake "millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
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
		assert.Equal(t, 2400*time.Millisecond, took.Truncate(100*time.Millisecond), "0.30 + 0.38 + 0.47 + 0.59 + 0.73 s between six looks: it is the second of which nobody knows how long it takes")
		o.cloud.FinishDeletions()
		_, err = o.ask(o.DeleteInstance, instanceCall)
		require.NoError(t, err)
	})
	t.Run("looks again with the class and the Secret that it has read", func(t *testing.T) {
		o := newOffice(t, withSecret(), secret("cloud", map[string]string{"key": "value"}))
		_, err := o.ask(o.CreateInstance, instanceCall)
		require.NoError(t, err)
		o.cloud.HoldDeletions()
		before := o.reads()
		_, _, err = o.patiently(o.DeleteInstance, instanceCall)
		assertFailure(t, err, activities.TypeTerminating, true)
		assert.Equal(t, 6, o.cloud.Calls(provider.MethodDeleteInstance))
		assert.Equal(t, []int{1, 1}, []int{o.reads()[0] - before[0], o.reads()[1] - before[1]}, "gets of the class, and of the Secret")
	})
	t.Run("what a cloud says of a class that it read before is no answer", func(t *testing.T) {
		o := newOffice(t, withSecret(), secret("cloud", map[string]string{"key": "value"}))
		_, err := o.ask(o.CreateInstance, instanceCall)
		require.NoError(t, err)
		o.cloud.HoldDeletions()
		o.Cloud = &refusing{Provider: o.cloud, at: 3}
		before := o.reads()
		_, _, err = o.patiently(o.DeleteInstance, instanceCall)
		assertFailure(t, err, activities.TypeTerminating, true)
		assert.Equal(t, []int{2, 2}, []int{o.reads()[0] - before[0], o.reads()[1] - before[1]}, "it was read anew, and nobody was told of a problem")
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

// refusing is a cloud that refuses one call of InstanceStatus.
type refusing struct {
	provider.Provider
	at, calls int
}

func (r *refusing) InstanceStatus(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
	if r.calls++; r.calls == r.at {
		return provider.Instance{}, provider.Errorf(provider.Unauthenticated, "this key is not valid any more")
	}
	return r.Provider.InstanceStatus(ctx, class, machine)
}

func withSecret() *v1alpha1.MachineClass {
	c := class()
	c.CredentialsSecretRef = secretRef(shop, "cloud")
	return c
}

// reads counts how often class and Secret were read.
func (o *office) reads() [2]int {
	return [2]int{len(o.Classes.(*machinefake.Clientset).Actions()), len(o.Secrets.(*kubefake.Clientset).Actions())}
}
