package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/vocabulary"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
)

// newUpstreamSet returns a set of a deployment that Cluster API's controller reconciles.
func newUpstreamSet(d *clusterv1.MachineDeployment, name string, change ...capitest.SetChange) *clusterv1.MachineSet {
	return capitest.NewSetOfDeployment(d, name, 3, 1, append([]capitest.SetChange{
		capitest.AsUpstreamObject[*clusterv1.MachineSet],
		func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel] = "theirs" },
	}, change...)...)
}

// A deployment is taken over only when Cluster API's controllers change neither the deployment nor its sets.
func TestTakeOverADeployment(t *testing.T) {
	paused := capitest.WithPausedCondition[*clusterv1.MachineSet]
	deleting := capitest.AsDeletingObject[*clusterv1.MachineSet]
	for _, row := range []struct {
		name       string
		deployment []capitest.DeploymentChange
		set        []capitest.SetChange
		taken      bool
	}{
		{name: "nothing is paused"},
		{name: "the set is paused", set: []capitest.SetChange{paused}},
		{name: "the deployment is paused", deployment: []capitest.DeploymentChange{capitest.WithPausedCondition[*clusterv1.MachineDeployment]}},
		{
			name: "both are paused", taken: true, set: []capitest.SetChange{paused},
			deployment: []capitest.DeploymentChange{
				capitest.WithPausedCondition[*clusterv1.MachineDeployment],
				capitest.WithAnnotation[*clusterv1.MachineDeployment](clusterv1.PausedAnnotation, ""),
			},
		},
		{
			name: "the deployment is paused, and its set is being deleted", set: []capitest.SetChange{deleting},
			deployment: []capitest.DeploymentChange{capitest.WithPausedCondition[*clusterv1.MachineDeployment]},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := capitest.NewPreparedDeployment(
				3,
				append([]capitest.DeploymentChange{capitest.AsUpstreamObject[*clusterv1.MachineDeployment]}, row.deployment...)...)
			w, acts := newWorld(t, d, newUpstreamSet(d, "s", row.set...))
			decision := decideDeployment(w, d)
			assert.Equal(t, row.taken, decision.Prepare)
			assert.Equal(t, !row.taken, decision.Blocked.Reason == vocabulary.BlockedByHandOver)
			assert.False(t, decision.Rollout.HasActions())
			activitiestest.RunActivityTwice[string](w, acts.FinalizeClusterAPIDeployment, newDecisionInput(d, true).ReadInput)
			if !row.taken {
				assert.Empty(t, w.MutatingRequests())
				return
			}
			assert.Equal(t, []string{capi.Finalizer}, w.ClusterAPIDeployment("d").Finalizers)
			s := w.ClusterAPISet("s")
			assert.Equal(t, []string{capi.Finalizer}, s.Finalizers)
			assert.Equal(t, capitest.DefaultSettings.WatchFilter, s.Labels[clusterv1.WatchLabel])
			assert.False(t, decideDeployment(w, d).Prepare)
		})
	}
}

// A set that Cluster API's controller reconciles keeps its label until it is taken over, also when the deployment is
// Millwright's.
func TestAnAdoptedSetKeepsTheLabelOfItsController(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	set := newUpstreamSet(d, "s")
	w, acts := newWorld(t, d, set)
	assert.False(t, decideDeployment(w, d).Prepare)
	for range 2 {
		decision := decideDeployment(w, d)
		if len(decision.Rollout.Sync) == 0 {
			break
		}
		_, err := activitiestest.RunActivity[kube.MinVersions](w, acts.ChangeClusterAPISets, activities.SetChanges{
			Deployment: activitiestest.NewRef(d), SetChanges: decision.Rollout.SetChanges,
		})
		require.NoError(t, err)
	}
	assert.Equal(t, "theirs", w.ClusterAPISet("s").Labels[clusterv1.WatchLabel])
	assert.Empty(t, decideDeployment(w, d).Rollout.Sync)
}

// A deployment that is being deleted before Millwright has taken it over goes back to Cluster API's controller.
func TestADeletedDeploymentOfClusterAPIIsReturned(t *testing.T) {
	d := capitest.NewPreparedDeployment(
		3,
		capitest.AsDeletingObject[*clusterv1.MachineDeployment],
		capitest.AsUpstreamObject[*clusterv1.MachineDeployment],
	)
	w, acts := newWorld(t, d, newUpstreamSet(d, "s"))
	decision := decideDeployment(w, d)
	assert.True(t, decision.Release)
	assert.False(t, decision.Rollout.HasActions())
	_, err := activitiestest.RunActivity[string](w, acts.FinalizeClusterAPIDeployment, newDecisionInput(d, true).ReadInput)
	require.NoError(t, err)
	assert.Equal(t, capitest.DefaultSettings.UpstreamWatchFilter, w.ClusterAPIDeployment("d").Labels[clusterv1.WatchLabel])
}
