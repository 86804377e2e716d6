package cache_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// renewedMCMLease returns a Lease of machine-controller-manager whose holder renewed it at this time of the holder's
// clock.
func renewedMCMLease(namespace string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cache.MCMLeaseNames()[0]},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new("pod-1"),
			LeaseDurationSeconds: new(int32(15)),
			RenewTime:            new(metav1.NewMicroTime(renewed)),
		},
	}
}

// updateLease updates a Lease and waits until the bubble is idle.
func updateLease(t *testing.T, control kubernetes.Interface, lease *coordinationv1.Lease) {
	t.Helper()
	_, err := control.CoordinationV1().Leases(lease.Namespace).Update(t.Context(), lease, metav1.UpdateOptions{})
	require.NoError(t, err)
	synctest.Wait()
}

func TestClusterDoesNotActWhereAnotherControllerIsActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := kubefake.NewClientset(
			renewedMCMLease("left-behind", time.Now().Add(-10*time.Minute)),
			renewedMCMLease("at-work", time.Now().Add(-time.Second)),
			renewedMCMLease("slow-clock", time.Now().Add(-10*time.Minute)),
		)
		c, err := cache.NewCluster(fake.NewSimpleClientset(), nil, nil)
		require.NoError(t, err)
		require.NoError(t, c.WatchOtherControllers(control, "ours"))
		require.NoError(t, c.Start(t.Context()))
		synctest.Wait()
		told := map[string]string{}
		c.OnActiveController(func(_, why string, in func(string) bool) {
			for _, namespace := range []string{"shop", "left-behind", "at-work", "slow-clock"} {
				if in(namespace) {
					told[namespace] = why
				}
			}
		})
		put := func(lease *coordinationv1.Lease) { t.Helper(); updateLease(t, control, lease) }

		assert.True(t, c.ActsOnMachines("shop"))
		assert.True(t, c.ActsOnMachines("left-behind"))
		assert.False(t, c.ActsOnMachines("at-work"))
		assert.Len(t, told, 1)
		assert.Contains(
			t,
			told["at-work"],
			"machine-controller-manager is at work in namespace at-work: pod-1 renewed Lease ",
		)
		put(renewedMCMLease("slow-clock", time.Now().Add(-9*time.Minute)))
		assert.False(t, c.ActsOnMachines("slow-clock"), "it renews, whatever its clock says")
		assert.Contains(t, told, "slow-clock")

		time.Sleep(10 * time.Second)
		put(renewedMCMLease("at-work", time.Now()))
		time.Sleep(10 * time.Second)
		assert.False(t, c.ActsOnMachines("at-work"), "it was renewed")
		assert.True(t, c.ActsOnMachines("slow-clock"), "it has ended")
		lease := renewedMCMLease("at-work", time.Now())
		lease.Labels = map[string]string{"a": "b"}
		lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-10 * time.Second)))
		put(lease)
		time.Sleep(6 * time.Second)
		assert.True(t, c.ActsOnMachines("at-work"), "a write that renews nothing counts for nothing")

		clear(told)
		put(renewedMCMLease("at-work", time.Now()))
		assert.False(t, c.ActsOnMachines("at-work"))
		assert.Contains(t, told, "at-work", "it has begun again")
		released := renewedMCMLease("at-work", time.Now())
		released.Spec.HolderIdentity = new("")
		put(released)
		assert.True(t, c.ActsOnMachines("at-work"), "it has released the Lease")
		put(renewedMCMLease("at-work", time.Now()))
		require.NoError(t, control.CoordinationV1().Leases("at-work").Delete(t.Context(), lease.Name, metav1.DeleteOptions{}))
		synctest.Wait()
		assert.True(t, c.ActsOnMachines("at-work"), "the Lease is gone")

		put(renewedMCMLease("left-behind", time.Now()))
		assert.False(t, c.ActsOnMachines("left-behind"))
		c.Scope = cache.NamespaceScope{ExceptNamespaces: []string{"shop"}}
		assert.False(t, c.ActsOnMachines("shop"))
	})
}

// newWorkersLease returns the Lease of an installation's workers; namespaces is the scope as JSON.
func newWorkersLease(namespace string, created, renewed time.Time, namespaces string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: v1alpha1.LeaseWorkers, CreationTimestamp: metav1.NewTime(created),
			Annotations: map[string]string{
				v1alpha1.AnnotationInstallation: "of-" + namespace, v1alpha1.AnnotationScope: namespaces,
			},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("pod-2"), RenewTime: new(metav1.NewMicroTime(renewed))},
	}
}

// If two installations share a control cluster, the younger installation does not act in the namespaces of the older
// installation, even while the older installation is down. The instances there carry the older installation's name.
func TestClusterDoesNotActInNamespacesOfAnOlderInstallation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		labelled := func(name, fleet string) *corev1.Namespace {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"fleet": fleet}}}
		}
		unnamed := newWorkersLease("earlier", now.Add(-9*time.Hour), now, "")
		delete(unnamed.Annotations, v1alpha1.AnnotationInstallation)
		control := kubefake.NewClientset(
			labelled("shop", "blue"), labelled("bakery", "green"), labelled("farm", ""), labelled("mill", ""),
			newWorkersLease("old", now.Add(-time.Hour), now.Add(-50*time.Minute), `{"namespaceSelector":"fleet=blue"}`),
			newWorkersLease("young", now.Add(-time.Second), now, ""),
			newWorkersLease("same", now.Add(-time.Minute), now, `{"namespaces":["farm"]}`),
			newWorkersLease("a-same", now.Add(-time.Minute), now, `{"namespaces":["mill"]}`),
			unnamed,
		)
		leases := func(namespace string) typedcoordinationv1.LeaseInterface {
			return control.CoordinationV1().Leases(namespace)
		}
		c, err := cache.NewCluster(fake.NewSimpleClientset(), nil, nil)
		require.NoError(t, err)
		require.NoError(t, c.WatchOtherControllers(control, "of-our"))
		require.NoError(t, c.Start(t.Context()))
		synctest.Wait()
		ours := func() (ours []string) {
			for _, namespace := range []string{"shop", "bakery", "farm", "mill", "new"} {
				if c.ActsOnMachines(namespace) {
					ours = append(ours, namespace)
				}
			}
			return ours
		}
		assert.Empty(t, ours(), "as long as we have no Lease, all others are older")
		var told []string
		c.OnActiveController(func(_, why string, in func(string) bool) {
			if in("shop") {
				told = append(told, why)
			}
		})
		assert.Len(t, told, 2)
		assert.Contains(t, strings.Join(told, "\n"), "installation of-old of Millwright, in namespace old, "+
			"is at work in all namespaces with labels fleet=blue: pod-2 renewed Lease millwright-worker at ")

		_, err = leases(
			"our",
		).Create(t.Context(), newWorkersLease("our", now.Add(-time.Minute), now, ""), metav1.CreateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(
			t,
			[]string{"bakery", "farm"},
			ours(),
			"of the same age, the order of the names decides; new may be blue",
		)

		label := func(fleet string) {
			_, err = control.CoreV1().Namespaces().Update(t.Context(), labelled("shop", fleet), metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		<-c.OwnershipChanges()
		label("green")
		assert.Len(t, c.OwnershipChanges(), 1, "the other's selector does not have it any more")
		assert.Equal(t, []string{"shop", "bakery", "farm"}, ours())
		<-c.OwnershipChanges()
		c.Scope = scopeWithSelector(t, "fleet in (blue, green)")
		label("red")
		assert.Len(t, c.OwnershipChanges(), 1)
		assert.Equal(t, []string{"bakery"}, ours())
		c.Scope = cache.NamespaceScope{}

		<-c.OwnershipChanges()
		told = nil
		updateLease(t, control, newWorkersLease("old", now.Add(-time.Hour), now, `{}`))
		assert.Len(t, c.OwnershipChanges(), 1, "it acts on more namespaces than before")
		assert.Len(t, told, 1)
		assert.Empty(t, ours())
		require.NoError(t, leases("old").Delete(t.Context(), v1alpha1.LeaseWorkers, metav1.DeleteOptions{}))
		synctest.Wait()
		assert.Equal(t, []string{"shop", "bakery", "farm", "new"}, ours())

		told = nil
		require.NoError(t, leases("our").Delete(t.Context(), v1alpha1.LeaseWorkers, metav1.DeleteOptions{}))
		updateLease(t, control, newWorkersLease("young", now.Add(-time.Second), time.Now(), ""))
		assert.Len(t, told, 1, "without a Lease, ours is the youngest")
		_, err = leases("our").Create(t.Context(), newWorkersLease("our", time.Now(), now, ""), metav1.CreateOptions{})
		require.NoError(t, err)
		updateLease(t, control, newWorkersLease("young", now.Add(-time.Second), time.Now().Add(time.Second), ""))
		assert.Len(t, told, 1, "it was told already")

		time.Sleep(time.Hour)
		assert.Empty(t, ours(), "an installation that is down still has its namespaces")
	})
}
