package cache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/vocabulary"
	"millwright/observe/cache"
)

func newGuardDeployment(namespace string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "machine-controller-manager",
			Labels: map[string]string{"app.kubernetes.io/part-of": "millwright"},
		},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas},
	}
}

func TestANamespaceWhoseGuardIsScaledToZeroIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mcm := newGuardDeployment("migrated", 0) // machine-controller-manager itself
		mcm.Labels = nil
		control := kubefake.NewClientset(newGuardDeployment("shop", 1), newGuardDeployment("asleep", 0), mcm)
		c, err := cache.NewCluster(fake.NewSimpleClientset(), nil, nil)
		require.NoError(t, err)
		require.NoError(t, c.WatchOtherControllers(control, "us"))
		require.NoError(t, c.WatchGuardDeployments(control))
		require.NoError(t, c.Start(t.Context()))
		synctest.Wait()
		var reasons []string
		c.OnActiveController(func(reason, _ string, in func(string) bool) {
			assert.NotEqual(t, in("asleep"), in("shop"))
			reasons = append(reasons, reason)
		})
		assert.Equal(t, []string{vocabulary.ReasonNamespaceHeld}, reasons)
		assert.True(t, c.ActsOnMachines("shop"))
		assert.False(t, c.ActsOnMachines("asleep"))
		assert.True(t, c.ActsOnMachines("migrated"))

		begun := time.Now()
		scale := func(namespace string, replicas int32) {
			_, err := control.AppsV1().Deployments(namespace).
				Update(t.Context(), newGuardDeployment(namespace, replicas), metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		scale("shop", 0)
		<-c.OwnershipChanges()
		assert.False(t, c.ActsInNamespace("shop"))
		assert.Len(t, reasons, 2)
		time.Sleep(time.Hour)
		assert.Zero(t, c.AbsencesOfNamespace("shop").DurationBetween(begun, time.Now()), "the hold has not ended")
		scale("shop", 1)
		<-c.OwnershipChanges()
		assert.True(t, c.ActsInNamespace("shop"))
		assert.Equal(t, time.Hour, c.AbsencesOfNamespace("shop").DurationBetween(begun, time.Now()))
		assert.Zero(t, c.AbsencesOfNamespace("migrated").DurationBetween(begun, time.Now()))

		require.NoError(t, control.AppsV1().Deployments("asleep").
			Delete(t.Context(), "machine-controller-manager", metav1.DeleteOptions{}))
		synctest.Wait()
		assert.True(t, c.ActsInNamespace("asleep"))
	})
}
