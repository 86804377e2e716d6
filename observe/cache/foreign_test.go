package cache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/observe/cache"
)

// held is a Lease of machine-controller-manager that its holder has renewed at this time of the holder's clock.
func held(namespace string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cache.MCMLeases()[0]},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new("pod-1"),
			LeaseDurationSeconds: new(int32(15)),
			RenewTime:            new(metav1.NewMicroTime(renewed)),
		},
	}
}

func TestANamespaceInWhichAnotherControllerIsAtWorkIsNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := kubefake.NewClientset(
			held("left-behind", time.Now().Add(-10*time.Minute)),
			held("at-work", time.Now().Add(-time.Second)),
			held("slow-clock", time.Now().Add(-10*time.Minute)),
		)
		c, err := cache.NewCluster(fake.NewSimpleClientset(), nil, nil)
		require.NoError(t, err)
		require.NoError(t, c.WatchForeign(control))
		require.NoError(t, c.Start(t.Context()))
		synctest.Wait()
		told := map[string]string{}
		c.OnForeign(func(namespace, why string) { told[namespace] = why })
		put := func(lease *coordinationv1.Lease) {
			t.Helper()
			_, err := control.CoordinationV1().Leases(lease.Namespace).Update(t.Context(), lease, metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}

		assert.True(t, c.Ours("shop"))
		assert.True(t, c.Ours("left-behind"))
		assert.False(t, c.Ours("at-work"))
		assert.Len(t, told, 1)
		assert.Contains(
			t,
			told["at-work"],
			"machine-controller-manager is at work in namespace at-work: pod-1 renewed Lease ",
		)
		put(held("slow-clock", time.Now().Add(-9*time.Minute)))
		assert.False(t, c.Ours("slow-clock"), "it renews, whatever its clock says")
		assert.Contains(t, told, "slow-clock")

		time.Sleep(10 * time.Second)
		put(held("at-work", time.Now()))
		time.Sleep(10 * time.Second)
		assert.False(t, c.Ours("at-work"), "it was renewed")
		assert.True(t, c.Ours("slow-clock"), "it has ended")
		lease := held("at-work", time.Now())
		lease.Labels = map[string]string{"a": "b"}
		lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-10 * time.Second)))
		put(lease)
		time.Sleep(6 * time.Second)
		assert.True(t, c.Ours("at-work"), "a write that renews nothing counts for nothing")

		clear(told)
		put(held("at-work", time.Now()))
		assert.False(t, c.Ours("at-work"))
		assert.Contains(t, told, "at-work", "it has begun again")
		released := held("at-work", time.Now())
		released.Spec.HolderIdentity = new("")
		put(released)
		assert.True(t, c.Ours("at-work"), "it has released the Lease")
		put(held("at-work", time.Now()))
		require.NoError(t, control.CoordinationV1().Leases("at-work").Delete(t.Context(), lease.Name, metav1.DeleteOptions{}))
		synctest.Wait()
		assert.True(t, c.Ours("at-work"), "the Lease is gone")

		put(held("left-behind", time.Now()))
		assert.False(t, c.Ours("left-behind"))
		c.Scope = cache.Scope{Except: []string{"shop"}}
		assert.False(t, c.Ours("shop"))
	})
}
