package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/capi/deployment"
	"millwright/api/vocabulary"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
)

// The caches keep only Millwright's managed fields. An update from the caches must not drop the managed fields of other
// managers; see the test of the same name in activities/capi.
func TestAnUpdateFromTheCachesHasNoManagedFields(t *testing.T) {
	t.Parallel()
	managed := func(d *clusterv1.MachineDeployment) {
		d.Labels, d.Finalizers = map[string]string{clusterv1.WatchLabel: "theirs"}, []string{capi.Finalizer}
		d.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Operation: "Apply"},
			{Manager: capi.DeploymentFieldManager, Operation: "Update"},
		}
	}
	d := capitest.NewDeployment(managed)
	w := activitiestest.NewClusterAPIWorld(t, capitest.DefaultSettings, d, capitest.NewCluster())
	a := &deployment.Activities{Kube: w.Kube, Cache: w.ClusterAPICache}
	_, err := activitiestest.RunActivity[string](w, a.FinalizeClusterAPIDeployment, activitiestest.NewReadInput(d))
	require.NoError(t, err)
	var updated []*clusterv1.MachineDeployment
	for _, action := range w.ClusterAPIServer.Clientset.Actions() {
		if update, is := action.(clienttesting.UpdateAction); is {
			updated = append(updated, update.GetObject().(*clusterv1.MachineDeployment))
		}
	}
	require.Len(t, updated, 1)
	assert.Empty(t, updated[0].ManagedFields)
}

// A deployment that is handed over loses the conditions that only Millwright writes: see the test for sets in
// activities/capi.
func TestADeploymentThatIsHandedOverLosesTheConditionsOfMillwright(t *testing.T) {
	t.Parallel()
	d := capitest.NewPreparedDeployment(1, withOtherController, func(d *clusterv1.MachineDeployment) {
		for _, kind := range []string{clusterv1.MachineDeploymentRollingOutCondition, vocabulary.ConditionProgressing, vocabulary.ConditionBlocked} {
			d.Status.Conditions = append(
				d.Status.Conditions,
				metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind},
			)
		}
	})
	w, a := newWorld(t, d)
	_, err := activitiestest.RunActivity[string](w, a.FinalizeClusterAPIDeployment, activitiestest.NewLiveReadInput(d))
	require.NoError(t, err)
	now := w.ClusterAPIDeployment("d")
	assert.Empty(t, now.Finalizers)
	require.Len(t, now.Status.Conditions, 1)
	assert.Equal(t, clusterv1.MachineDeploymentRollingOutCondition, now.Status.Conditions[0].Type)
}
