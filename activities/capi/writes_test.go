package capi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/capi"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/api/vocabulary"
	observecapi "millwright/observe/capi"
	"millwright/observe/capi/capitest"
)

// A write contains only the fields that change. See the test of the same name for deployments.
func TestWritesContainOnlyChanges(t *testing.T) {
	t.Parallel()
	onMachines := func(activity func(*capi.Activities) any) func(*capi.Activities, *activitiestest.World, *clusterv1.MachineSet, *clusterv1.Machine) error {
		return func(a *capi.Activities, w *activitiestest.World, s *clusterv1.MachineSet, m *clusterv1.Machine) error {
			_, err := activitiestest.RunActivity[kube.MinVersions](w, activity(a), newMachineBatch(s, m))
			return err
		}
	}
	finalize := func(a *capi.Activities, w *activitiestest.World, s *clusterv1.MachineSet, _ *clusterv1.Machine) error {
		_, err := activitiestest.RunActivity[string](w, a.FinalizeClusterAPISet, activitiestest.NewReadInput(s))
		return err
	}
	for name, row := range map[string]struct {
		set     capitest.SetChange
		machine capitest.MachineChange
		write   func(*capi.Activities, *activitiestest.World, *clusterv1.MachineSet, *clusterv1.Machine) error
		want    []string
	}{
		"prepare": {
			set:   func(s *clusterv1.MachineSet) { s.Finalizers, s.OwnerReferences = nil, nil },
			write: finalize,
			want:  []string{"machinesets: metadata.finalizers metadata.ownerReferences"},
		},
		"hand over": {
			set: func(s *clusterv1.MachineSet) {
				withOtherController(s)
				s.Status.Conditions = []metav1.Condition{{Type: vocabulary.ConditionMachinesCreated}, {Type: "Theirs"}}
			},
			write: finalize,
			want:  []string{"machines: metadata.managedFields", "machinesets/status: status.conditions", "machinesets: metadata.finalizers metadata.managedFields"},
		},
		"status": {
			write: func(a *capi.Activities, w *activitiestest.World, s *clusterv1.MachineSet, _ *clusterv1.Machine) error {
				_, err := activitiestest.RunActivity[string](w, a.ReportClusterAPISet, newReport(s))
				return err
			},
			want: []string{
				"machinesets/status: status.availableReplicas status.conditions " +
					"status.deprecated.v1beta1.availableReplicas status.deprecated.v1beta1.conditions " +
					"status.deprecated.v1beta1.fullyLabeledReplicas status.deprecated.v1beta1.readyReplicas " +
					"status.observedGeneration status.readyReplicas status.replicas status.selector status.upToDateReplicas status.versions",
			},
		},
		"adopt": {
			machine: capitest.WithoutOwner[*clusterv1.Machine],
			write:   onMachines(func(a *capi.Activities) any { return a.AdoptClusterAPIMachines }),
			want:    []string{"machines: metadata.ownerReferences"},
		},
		"release": {
			write: onMachines(func(a *capi.Activities) any { return a.ReleaseClusterAPIMachines }),
			want:  []string{"machines: metadata.annotations.machine.sapcloud.io/released-by metadata.ownerReferences"},
		},
		"unmark": {
			machine: capitest.AsUnhealthyMachine,
			write:   onMachines(func(a *capi.Activities) any { return a.UnmarkClusterAPIMachines }),
			want:    []string{"machines/status: status.conditions"},
		},
		"delete": {
			machine: capitest.AsUnhealthyMachine,
			write: func(a *capi.Activities, w *activitiestest.World, s *clusterv1.MachineSet, m *clusterv1.Machine) error {
				_, err := activitiestest.RunActivity[set.WriteResult](w, a.DeleteClusterAPIMachines, newMachineBatch(s, m))
				return err
			},
			want: []string{"machines/status: status.conditions"},
		},
		"copy the template": {
			set: changeTemplate,
			machine: func(m *clusterv1.Machine) {
				m.Labels["pool"] = "x"
				m.Spec.Taints = []clusterv1.MachineTaint{{Key: "theirs"}}
			},
			write: onMachines(func(a *capi.Activities) any { return a.SyncClusterAPIMachines }),
			want: []string{
				"machines as millwright-machineset: metadata.labels.new metadata.labels.pool spec.deletion.nodeDrainTimeoutSeconds spec.minReadySeconds",
			},
		},
		"copy the template to a machine that is being deleted": {
			set:     changeTemplate,
			machine: capitest.AsDeletingObject[*clusterv1.Machine],
			write:   onMachines(func(a *capi.Activities) any { return a.SyncClusterAPIMachines }),
			want:    []string{"machines as millwright-machineset: spec.deletion.nodeDrainTimeoutSeconds spec.minReadySeconds"},
		},
		"claim": {
			machine: capitest.WithoutManagedFields[*clusterv1.Machine],
			write:   onMachines(func(a *capi.Activities) any { return a.SyncClusterAPIMachines }),
			want:    []string{"machines as millwright-machineset: metadata.managedFields"},
		},
		"begin an update in place": {
			set: func(s *clusterv1.MachineSet) {
				capitest.WithDeploymentOwner(s)
				withSetAnnotation(clusterv1.AcknowledgedMoveAnnotation, "m")(s)
				s.Spec.Template.Spec.FailureDomain = "b"
			},
			machine: withPendingInPlaceUpdate,
			write:   onMachines(func(a *capi.Activities) any { return a.UpdateClusterAPIMachines }),
			want: []string{
				"machines as millwright-in-place: metadata.annotations.in-place-updates.internal.cluster.x-k8s.io/pending-acknowledge-move " +
					"metadata.annotations.runtime.cluster.x-k8s.io/pending-hooks",
				"machines as millwright-machineset: metadata.labels.cluster.x-k8s.io/deployment-name spec.failureDomain spec.version",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := capitest.NewSet("s", 1)
			capitest.WithFieldsOf[*clusterv1.MachineSet]("kubectl", `{"f:spec":{"f:replicas":{}}}`)(s)
			capitest.WithFieldsOf[*clusterv1.MachineSet](observecapi.DeploymentFieldManager, `{"f:spec":{"f:replicas":{}}}`)(s)
			m := capitest.NewMachine("m", s)
			if row.set != nil {
				row.set(s)
			}
			if row.machine != nil {
				row.machine(m)
			}
			w, a := newWorld(
				t,
				s,
				m,
				newClone(capitest.NewBootstrapTemplate(), "m", withMachineOwner(m)),
				newClone(capitest.NewInfrastructureTemplate(), "m", withMachineOwner(m)),
			)
			require.NoError(t, row.write(a, w, s, m))
			assert.Equal(t, row.want, w.ClusterAPIPatches())
		})
	}
}

// changeTemplate changes the parts of a set's template that change in place.
func changeTemplate(s *clusterv1.MachineSet) {
	s.Spec.Template.Labels["new"] = "x"
	s.Spec.Template.Spec.MinReadySeconds = new(int32(7))
	s.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(7))
}

// A set copies its template to a machine at most once. A value that the template lacks stays if another writer added it,
// and is removed if Cluster API's controller wrote it before the set was handed over. If an admission webhook restores a
// value, the write is refused, so that the set waits before it tries again.
func TestASetCopiesItsTemplateOnce(t *testing.T) {
	t.Parallel()
	drainTimeout := func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(60)) }
	const ownedTimeout = `{"f:spec":{"f:deletion":{"f:nodeDrainTimeoutSeconds":{}}}}`
	for name, row := range map[string]struct {
		machine  func(*clusterv1.Machine)
		syncs    int
		discards bool
	}{
		"a person patched the machine": {machine: func(m *clusterv1.Machine) {
			drainTimeout(m)
			capitest.WithFieldsOf[*clusterv1.Machine]("kubectl-patch", ownedTimeout)(m)
		}},
		"Cluster API had the set": {machine: func(m *clusterv1.Machine) {
			drainTimeout(m)
			capitest.WithoutManagedFields(m)
			capitest.WithFieldsOf[*clusterv1.Machine]("capi-machineset", ownedTimeout)(m)
		}, syncs: 1},
		"a webhook has a default": {machine: drainTimeout},
		"a controller has a readiness gate and a taint": {machine: func(m *clusterv1.Machine) {
			m.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "x"}}
			m.Spec.Taints = []clusterv1.MachineTaint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
			capitest.WithFieldsOf[*clusterv1.Machine]("manager", `{"f:spec":{
				"f:readinessGates":{"k:{\"conditionType\":\"x\"}":{".":{},"f:conditionType":{}}},
				"f:taints":{"k:{\"effect\":\"NoSchedule\",\"key\":\"x\"}":{".":{},"f:effect":{},"f:key":{}}}}}`)(m)
		}},
		"nobody has managed fields": {machine: capitest.WithoutManagedFields[*clusterv1.Machine], syncs: 1},
		"a webhook restores an annotation": {
			machine: func(m *clusterv1.Machine) { m.Annotations["team"] = "of the webhook" }, syncs: 1, discards: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := capitest.NewSet("s", 1)
			m := capitest.NewMachine("m", s, row.machine)
			w, a := newWorld(t, s, m)
			if row.discards {
				w.ClusterAPIServer.Clientset.PrependReactor(
					"patch", "machines", func(clienttesting.Action) (bool, runtime.Object, error) { return true, m, nil },
				)
			}
			for syncs := 0; ; syncs++ {
				w.AwaitCaches()
				d, err := activitiestest.RunActivity[set.Decision](
					w,
					a.DecideClusterAPISet,
					activitiestest.NewClusterAPISetInput(s, false),
				)
				require.NoError(t, err)
				if len(d.Scale.Sync) == 0 {
					assert.False(t, d.Scale.HasListEntries(), d.Scale.Why)
					assert.Equal(t, row.syncs, syncs)
					break
				}
				require.Less(t, syncs, row.syncs, d.Scale.Sync[0].Why)
				in := set.MachineBatch{Set: activitiestest.NewRef(s), Machines: d.Scale.Sync}
				_, err = activitiestest.RunActivity[kube.MinVersions](w, a.SyncClusterAPIMachines, in)
				if row.discards {
					activitiestest.AssertFailure(t, err, kube.FailureTypeRefused, false)
					break
				}
				require.NoError(t, err)
			}
		})
	}
}
