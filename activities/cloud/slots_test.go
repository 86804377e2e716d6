package cloud_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/provider"
)

// While the calls of one namespace hang, the worker has slots for other namespaces.
func TestANamespaceHasALimitedNumberOfCallsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		class := activitiestest.NewClass()
		other := class.DeepCopy()
		other.Namespace = "other"
		o := activitiestest.NewCloudWorld(t, class)
		require.NoError(t, o.Classes.(activitiestest.FakeClient).Tracker().Add(other))
		o.NamespaceCalls = 2
		release := o.Cloud.BlockCalls(provider.MethodCreateInstance)
		create := func(namespace, name string) error {
			in := activitiestest.DefaultInstanceCall
			in.Machine = kube.Ref{Namespace: namespace, Name: name, UID: "uid-" + namespace + name}
			_, err := o.RunActivity(o.CreateInstance, in)
			return err
		}
		var calls sync.WaitGroup
		begin := func(namespace, name string) {
			calls.Go(func() { assert.NoError(t, create(namespace, name)) })
			synctest.Wait()
		}
		begin("shop", "a")
		begin("shop", "b")
		err := create("shop", "c")
		activitiestest.AssertFailure(t, err, kube.FailureTypeNamespaceBusy, true)
		var busy *temporal.ApplicationError
		require.ErrorAs(t, err, &busy)
		assert.Positive(t, busy.NextRetryDelay())
		_, err = o.RunActivity(o.DeleteInstance, activitiestest.DefaultInstanceCall)
		activitiestest.AssertFailure(t, err, kube.FailureTypeNamespaceBusy, true)
		for _, activity := range []struct{ do, in any }{
			{o.CheckClass, kube.Ref{Namespace: "shop", Name: "small"}},
			{o.FindOrphans, cloud.OrphanSearch{Class: kube.Ref{Namespace: "shop", Name: "small"}}},
			{o.CollectOrphan, cloud.OrphanCall{Class: kube.Ref{Namespace: "shop", Name: "small"}}},
		} {
			env := activitiestest.NewActivityEnvironment()
			env.RegisterActivity(o.Activities)
			_, err = env.ExecuteActivity(activity.do, activity.in)
			activitiestest.AssertFailure(t, err, kube.FailureTypeNamespaceBusy, true)
		}
		begin("other", "a")
		release()
		calls.Wait()
		require.NoError(t, create("shop", "c"))
	})
}
