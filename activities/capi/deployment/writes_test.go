package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/capi/deployment"
	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
)

// A write contains only the fields that change, so that a field that a newer version of Cluster API has stays. The write
// also contains no managed fields: the caches keep only a part of them, and the API server takes the managed fields in a
// request as the complete list.
func TestWritesContainOnlyChanges(t *testing.T) {
	t.Parallel()
	manage := func(o metav1.Object) {
		capitest.WithFieldsOf[metav1.Object]("kubectl", `{"f:spec":{"f:paused":{}}}`)(o)
		capitest.WithFieldsOf[metav1.Object](capi.DeploymentFieldManager, `{"f:spec":{"f:paused":{}}}`)(o)
	}
	changed := func(how func(*activities.SetChanges, rollout.ObjectTarget)) func(*deployment.Activities, *activitiestest.World, *clusterv1.MachineDeployment, *clusterv1.MachineSet) error {
		return func(a *deployment.Activities, w *activitiestest.World, d *clusterv1.MachineDeployment, s *clusterv1.MachineSet) error {
			in := activities.SetChanges{Deployment: activitiestest.NewRef(d)}
			how(&in, newSetTarget(s))
			_, err := activitiestest.RunActivity[kube.MinVersions](w, a.ChangeClusterAPISets, in)
			return err
		}
	}
	finalized := func(a *deployment.Activities, w *activitiestest.World, d *clusterv1.MachineDeployment, _ *clusterv1.MachineSet) error {
		_, err := activitiestest.RunActivity[string](w, a.FinalizeClusterAPIDeployment, activitiestest.NewReadInput(d))
		return err
	}
	for name, row := range map[string]struct {
		deployment capitest.DeploymentChange
		set        capitest.SetChange
		write      func(*deployment.Activities, *activitiestest.World, *clusterv1.MachineDeployment, *clusterv1.MachineSet) error
		want       []string
	}{
		"prepare": {
			deployment: func(d *clusterv1.MachineDeployment) { d.Finalizers, d.OwnerReferences = nil, nil },
			write:      finalized,
			want:       []string{"machinedeployments as millwright-machinedeployment: metadata.finalizers metadata.ownerReferences"},
		},
		"hand over": {
			deployment: func(d *clusterv1.MachineDeployment) {
				withOtherController(d)
				d.Status.Conditions = []metav1.Condition{{Type: vocabulary.ConditionProgressing}, {Type: "Theirs"}}
			},
			set:   func(s *clusterv1.MachineSet) { s.OwnerReferences = nil },
			write: finalized,
			want: []string{
				"machinedeployments as millwright-machinedeployment: metadata.finalizers",
				"machinedeployments/status: status.conditions",
			},
		},
		"status": {
			write: func(a *deployment.Activities, w *activitiestest.World, d *clusterv1.MachineDeployment, _ *clusterv1.MachineSet) error {
				_, err := activitiestest.RunActivity[string](
					w,
					a.ReportClusterAPIDeployment,
					activities.Report{Input: newDecisionInput(d, false)},
				)
				return err
			},
			want: []string{
				"machinedeployments/status: status.availableReplicas status.conditions " +
					"status.deprecated.v1beta1.availableReplicas status.deprecated.v1beta1.conditions " +
					"status.deprecated.v1beta1.readyReplicas status.deprecated.v1beta1.unavailableReplicas " +
					"status.deprecated.v1beta1.updatedReplicas status.observedGeneration status.phase status.readyReplicas " +
					"status.replicas status.selector status.upToDateReplicas",
			},
		},
		"roll back": {
			deployment: capitest.WithAnnotation[*clusterv1.MachineDeployment](v1alpha1.AnnotationRollbackTo, "1"),
			set:        capitest.WithFormerTemplate,
			write: func(a *deployment.Activities, w *activitiestest.World, d *clusterv1.MachineDeployment, s *clusterv1.MachineSet) error {
				in := activities.RollbackInput{Deployment: activitiestest.NewRef(d), Version: d.ResourceVersion}
				target := newSetTarget(s)
				in.Rollback = rollout.Rollback{Set: &target, Revision: 1}
				_, err := activitiestest.RunActivity[kube.MinVersions](w, a.RollBackClusterAPIDeployment, in)
				return err
			},
			want: []string{
				"machinedeployments as millwright-machinedeployment: metadata.annotations.rollout.machine.sapcloud.io/rollback-to spec.template.spec.version",
			},
		},
		"adopt a set": {
			set:   capitest.WithoutOwner[*clusterv1.MachineSet],
			write: changed(func(in *activities.SetChanges, s rollout.ObjectTarget) { in.Adopt = []rollout.ObjectTarget{s} }),
			want:  []string{"machinesets as millwright-machinedeployment: metadata.ownerReferences"},
		},
		"release a set": {
			set:   func(s *clusterv1.MachineSet) { s.Labels["pool"] = "another" },
			write: changed(func(in *activities.SetChanges, s rollout.ObjectTarget) { in.Release = []rollout.ObjectTarget{s} }),
			want: []string{
				"machinesets as millwright-machinedeployment: metadata.annotations.machine.sapcloud.io/released-by metadata.ownerReferences",
			},
		},
		"copy the deployment": {
			set: func(s *clusterv1.MachineSet) {
				s.Spec.Template.Labels["pool"] = "x"
				s.Spec.Template.Spec.MinReadySeconds = new(int32(7))
			},
			deployment: func(d *clusterv1.MachineDeployment) {
				d.Spec.Template.Spec.MinReadySeconds = new(int32(8))
				d.Spec.Template.Spec.Taints = []clusterv1.MachineTaint{{Key: "x"}}
			},
			write: changed(func(in *activities.SetChanges, s rollout.ObjectTarget) { in.Sync = []rollout.ObjectTarget{s} }),
			want: []string{
				"machinesets as millwright-machinedeployment: metadata.annotations.rollout.machine.sapcloud.io/former-replicas " +
					"spec.template.metadata.labels.pool spec.template.spec.minReadySeconds spec.template.spec.taints",
			},
		},
		"write a revision": {
			write: changed(func(in *activities.SetChanges, s rollout.ObjectTarget) {
				in.Revise = &rollout.RevisionChange{ObjectTarget: s, Revision: 4}
			}),
			want: []string{
				"machinedeployments as millwright-machinedeployment: metadata.annotations.machinedeployment.clusters.x-k8s.io/revision",
				"machinesets as millwright-machinedeployment: metadata.annotations.machinedeployment.clusters.x-k8s.io/revision " +
					"metadata.annotations.rollout.machine.sapcloud.io/former-replicas",
			},
		},
		"resize": {
			write: changed(func(in *activities.SetChanges, s rollout.ObjectTarget) {
				in.Resize = []rollout.SetResize{{Name: s.Name, UID: s.UID, Version: s.Version, From: 3, To: 4}}
			}),
			want: []string{
				"machinesets as millwright-machinedeployment: metadata.annotations.in-place-updates.internal.cluster.x-k8s.io/acknowledged-move " +
					"metadata.annotations.in-place-updates.internal.cluster.x-k8s.io/move-machines-to-machineset " +
					"metadata.annotations.in-place-updates.internal.cluster.x-k8s.io/receive-machines-from-machinesets " +
					"metadata.annotations.machinedeployment.clusters.x-k8s.io/desired-replicas " +
					"metadata.annotations.machinedeployment.clusters.x-k8s.io/max-replicas " +
					"metadata.annotations.rollout.machine.sapcloud.io/former-replicas spec.replicas",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := capitest.NewPreparedDeployment(3)
			s := capitest.NewSetOfDeployment(d, "s", 3, 1)
			manage(d)
			manage(s)
			if row.deployment != nil {
				row.deployment(d)
			}
			if row.set != nil {
				row.set(s)
			}
			w, a := newWorld(t, d, s)
			require.NoError(t, row.write(a, w, d, s))
			assert.Equal(t, row.want, w.ClusterAPIPatches())
		})
	}
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
