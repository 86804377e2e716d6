package capi_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	capiset "millwright/observe/capi/set"
)

func TestCreateMachinesWithTheirClones(t *testing.T) {
	s := capitest.NewSet("s", 3, capitest.WithDeploymentOwner)
	w, a := newWorld(t, s)
	written := activitiestest.RunActivityTwice[set.WriteResult](
		w,
		a.CreateClusterAPIMachines,
		activitiestest.NewClusterAPIMachineCreation(s, "s-a", "s-b", "s-c"),
	)
	assert.Empty(t, written.Failure)
	assert.Equal(t, []string{
		`Normal SuccessfulCreate Created Machine "s-a"`,
		`Normal SuccessfulCreate Created Machine "s-b"`,
		`Normal SuccessfulCreate Created Machine "s-c"`,
	}, slices.Sorted(slices.Values(w.TakeNewEvents())))
	newest := kube.MinVersions{}
	for _, name := range []string{"s-a", "s-b", "s-c"} {
		m := w.ClusterAPIMachine(name)
		require.NotNil(t, m, name)
		newest.RaiseVersion(capi.MachinesResource, m.ResourceVersion)
		want := capiset.NewMachine(w.ClusterAPICache, s, name)
		assert.Equal(
			t,
			[]any{want.Labels, want.Annotations, want.Finalizers, want.OwnerReferences},
			[]any{m.Labels, m.Annotations, m.Finalizers, m.OwnerReferences},
		)
		assert.Equal(
			t,
			clusterv1.ContractVersionedObjectReference{
				APIGroup: "bootstrap.cluster.x-k8s.io",
				Kind:     "KubeadmConfig",
				Name:     name,
			},
			m.Spec.Bootstrap.ConfigRef,
		)
		assert.Equal(
			t,
			clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.cluster.x-k8s.io",
				Kind:     "ExampleMachine",
				Name:     name,
			},
			m.Spec.InfrastructureRef,
		)

		bootstrap, machine := bootstrapCloneOf(w, name), infrastructureCloneOf(w, name)
		require.NotNil(t, bootstrap)
		require.NotNil(t, machine)
		assert.Equal(t, map[string]any{"format": "cloud-config"}, bootstrap.Object["spec"])
		assert.Equal(t, map[string]any{"cpus": int64(2)}, machine.Object["spec"])
		assert.Equal(t, "infrastructure.cluster.x-k8s.io/v1beta2", machine.GetAPIVersion())
		assert.Equal(t, map[string]string{
			"disk":                               "ssd",
			"pool":                               "s",
			clusterv1.ClusterNameLabel:           "c",
			clusterv1.MachineSetNameLabel:        "s",
			clusterv1.MachineDeploymentNameLabel: "d",
		}, machine.GetLabels(), "of the template and the machine")
		assert.Equal(t, map[string]string{
			"price": "low", "team": "web", clusterv1.TemplateClonedFromNameAnnotation: "small",
			clusterv1.TemplateClonedFromGroupKindAnnotation: "ExampleMachineTemplate.infrastructure.cluster.x-k8s.io",
		}, machine.GetAnnotations())
		for _, o := range []*unstructured.Unstructured{bootstrap, machine} {
			assert.Equal(
				t,
				[]metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineSet", Name: "s", UID: "uid-s"}},
				o.GetOwnerReferences(),
				"until the machine takes them over",
			)
		}
	}
	assert.Equal(t, newest, written.Versions)
}

// Cluster API's controllers may already own the clones when Temporal retries the attempt.
func TestARetryFindsTheCreatedObjects(t *testing.T) {
	s := capitest.NewSet("s", 1)
	made := capitest.NewMachine("s-a", s)
	w, a := newWorld(
		t,
		s,
		made,
		newClone(capitest.NewBootstrapTemplate(), "s-a", withMachineOwner(made)),
		newClone(capitest.NewInfrastructureTemplate(), "s-a"),
	)
	written := activitiestest.RunActivityTwice[set.WriteResult](
		w,
		a.CreateClusterAPIMachines,
		activitiestest.NewClusterAPIMachineCreation(s, "s-a"),
	)
	assert.Equal(t, kube.MinVersions{capi.MachinesResource: made.ResourceVersion}, written.Versions)
	assert.Equal(t, made, w.ClusterAPIMachine("s-a"))
	assert.Empty(t, w.TakeNewEvents())
}

func TestCreateMachinesWithoutABootstrapTemplate(t *testing.T) {
	s := capitest.NewSet("s", 1, func(s *clusterv1.MachineSet) {
		s.Spec.Template.Spec.Bootstrap = clusterv1.Bootstrap{DataSecretName: new("data")}
	})
	w, a := newWorld(t, s)
	activitiestest.RunActivityTwice[set.WriteResult](
		w,
		a.CreateClusterAPIMachines,
		activitiestest.NewClusterAPIMachineCreation(s, "s-a"),
	)
	assert.Equal(t, s.Spec.Template.Spec.Bootstrap, w.ClusterAPIMachine("s-a").Spec.Bootstrap)
	assert.Nil(t, bootstrapCloneOf(w, "s-a"))
	assert.NotNil(t, infrastructureCloneOf(w, "s-a"))
}

// A template or Cluster that was deleted since the decision causes a Conflict. The activity creates nothing.
func TestNothingIsCreatedWithoutTheTemplates(t *testing.T) {
	s := capitest.NewSet("s", 1)
	theirs := func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel] = "theirs" }
	for _, row := range []struct {
		name string
		has  []runtime.Object
		in   set.MachineCreation
	}{
		{"no infrastructure template", []runtime.Object{s, capitest.NewCluster(), capitest.NewBootstrapTemplate()}, activitiestest.NewClusterAPIMachineCreation(s, "s-a")},
		{"no bootstrap template", []runtime.Object{s, capitest.NewCluster(), capitest.NewInfrastructureTemplate()}, activitiestest.NewClusterAPIMachineCreation(s, "s-a")},
		{"no Cluster", []runtime.Object{s, capitest.NewBootstrapTemplate(), capitest.NewInfrastructureTemplate()}, activitiestest.NewClusterAPIMachineCreation(s, "s-a")},
		{"its Cluster goes", []runtime.Object{s, capitest.NewCluster(capitest.AsDeletingObject), capitest.NewBootstrapTemplate(), capitest.NewInfrastructureTemplate()}, activitiestest.NewClusterAPIMachineCreation(s, "s-a")},
		{"the set changed", []runtime.Object{s, capitest.NewCluster(), capitest.NewBootstrapTemplate(), capitest.NewInfrastructureTemplate()}, set.MachineCreation{Set: activitiestest.NewRef(s), Version: "899", Names: []string{"s-a"}}},
		{"the set was handed over", []runtime.Object{capitest.NewSet("s", 1, theirs), capitest.NewCluster(), capitest.NewBootstrapTemplate(), capitest.NewInfrastructureTemplate()}, activitiestest.NewClusterAPIMachineCreation(s, "s-a")},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := activitiestest.NewClusterAPIWorld(t, capitest.DefaultSettings, row.has...)
			w.ForgetRequests()
			_, err := activitiestest.RunActivity[set.WriteResult](w, newActivities(w).CreateClusterAPIMachines, row.in)
			activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
			assert.Empty(t, w.MutatingRequests())
		})
	}
	t.Run("the set is gone", func(t *testing.T) {
		w, a := newWorld(t)
		_, err := activitiestest.RunActivity[set.WriteResult](
			w,
			a.CreateClusterAPIMachines,
			activitiestest.NewClusterAPIMachineCreation(s, "s-a"),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
	})
}

func TestARejectedMachineLeavesNoClones(t *testing.T) {
	for _, row := range []struct {
		name, resource string
	}{
		{"the machine", "machines"},
		{"the clone of the infrastructure template", "examplemachines"},
		{"the clone of the bootstrap template", "kubeadmconfigs"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := capitest.NewSet("s", 4)
			w, a := newWorld(t, s)
			refuseCreation(w, row.resource, "s-b", forbiddenError())
			written, err := activitiestest.RunActivity[set.WriteResult](
				w,
				a.CreateClusterAPIMachines,
				activitiestest.NewClusterAPIMachineCreation(s, "s-a", "s-b", "s-c", "s-d"),
			)
			require.NoError(t, err)
			assert.False(t, written.Failure.Deleting)
			assert.Contains(t, written.Failure.Message, "forbidden")
			assert.Contains(t, written.Failure.Message, "s-b")
			for name, there := range map[string]bool{"s-a": true, "s-b": false, "s-c": true, "s-d": false} {
				// the first batch has one machine, the second has two; the rejection prevents a third batch
				assert.Equal(t, there, w.ClusterAPIMachine(name) != nil, name)
				assert.Equal(t, there, bootstrapCloneOf(w, name) != nil, "bootstrap of %s", name)
				assert.Equal(t, there, infrastructureCloneOf(w, name) != nil, "machine of %s", name)
			}
			assert.Equal(
				t,
				w.ClusterAPIMachine("s-c").ResourceVersion,
				written.Versions[capi.MachinesResource],
				"those that were created are waited for",
			)
			assert.Contains(t, w.TakeNewEvents(), "Warning FailedCreate Error creating: "+written.Failure.Message)
		})
	}
}

// If the API server does not answer, the machine may exist. Temporal retries the activity, and the retry finds the
// clones. An API server that answers a creation with an internal error may still have created the machine, which uses
// its clones.
func TestClonesAreKeptIfMachineMayHaveBeenCreated(t *testing.T) {
	s := capitest.NewSet("s", 1)
	later := activitiestest.Worker{AttemptDelay: 5 * time.Second}
	for name, made := range map[string]bool{"made": true, "not made": false} {
		t.Run(name, func(t *testing.T) {
			w, a := newWorld(t, s)
			w.ClusterAPIServer.Clientset.PrependReactor(
				"create",
				"machines",
				func(action k8stesting.Action) (bool, runtime.Object, error) {
					create, _ := action.(k8stesting.CreateAction)
					if made {
						require.NoError(
							t,
							w.ClusterAPIServer.Clientset.Tracker().Create(action.GetResource(), create.GetObject(), action.GetNamespace()),
						)
					}
					return true, nil, apierrors.NewInternalError(assert.AnError)
				},
			)
			written, err := activitiestest.RunActivityOnWorker[set.WriteResult](
				w,
				later,
				a.CreateClusterAPIMachines,
				activitiestest.NewClusterAPIMachineCreation(s, "s-a"),
			)
			require.NoError(t, err)
			assert.Contains(t, written.Failure.Message, assert.AnError.Error())
			assert.Equal(t, made, infrastructureCloneOf(w, "s-a") != nil)
			assert.Equal(t, made, bootstrapCloneOf(w, "s-a") != nil)
		})
	}
}

func TestRetryReusesClonesOfFailedCreation(t *testing.T) {
	s := capitest.NewSet("s", 1)
	w, a := newWorld(t, s)
	activitiestest.FailRequests(
		w.ClusterAPIServer.Clientset,
		"create",
		"machines",
		1,
		apierrors.NewInternalError(assert.AnError),
		nil,
	)
	_, err := activitiestest.RunActivity[set.WriteResult](
		w,
		a.CreateClusterAPIMachines,
		activitiestest.NewClusterAPIMachineCreation(s, "s-a"),
	)
	_, retryable := activitiestest.FailureTypeOf(t, err)
	assert.True(t, retryable)
	bootstrap, machine := bootstrapCloneOf(w, "s-a"), infrastructureCloneOf(w, "s-a")
	require.NotNil(t, bootstrap)
	require.NotNil(t, machine)
	activitiestest.RunActivityTwice[set.WriteResult](
		w,
		a.CreateClusterAPIMachines,
		activitiestest.NewClusterAPIMachineCreation(s, "s-a"),
	)
	assert.NotNil(t, w.ClusterAPIMachine("s-a"))
	assert.Equal(t, bootstrap.GetUID(), bootstrapCloneOf(w, "s-a").GetUID())
	assert.Equal(t, machine.GetUID(), infrastructureCloneOf(w, "s-a").GetUID())
}

// If the deletion of a clone fails, the activity returns this error together with the machine's error.
func TestFailedCloneDeletionIsReturnedWithMachineError(t *testing.T) {
	s := capitest.NewSet("s", 1)
	w, a := newWorld(t, s)
	refuseCreation(w, "machines", "s-a", forbiddenError())
	activitiestest.FailRequests(
		w.ClusterAPIServer.ProviderObjects,
		"delete",
		"examplemachines",
		1,
		apierrors.NewInternalError(assert.AnError),
		nil,
	)
	written, err := activitiestest.RunActivity[set.WriteResult](
		w,
		a.CreateClusterAPIMachines,
		activitiestest.NewClusterAPIMachineCreation(s, "s-a"),
	)
	require.NoError(t, err)
	assert.Contains(t, written.Failure.Message, "delete ExampleMachine s-a of a machine that was rejected")
	assert.Nil(t, bootstrapCloneOf(w, "s-a"), "the other one is deleted")
	assert.NotNil(t, infrastructureCloneOf(w, "s-a"))
}

// If another set's clone already has the name, the activity fails with a Conflict, and the other set's clone stays
// unchanged. The next decision chooses another name.
func TestCreationConflictsWithCloneOfAnotherSet(t *testing.T) {
	s := capitest.NewSet("s", 1)
	w, a := newWorld(t, s, newClone(capitest.NewBootstrapTemplate(), "s-a", func(o *unstructured.Unstructured) {
		o.SetOwnerReferences(
			[]metav1.OwnerReference{
				{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "other", UID: "uid-other"},
			},
		)
	}))
	before := w.Snapshot()
	_, err := activitiestest.RunActivity[set.WriteResult](
		w,
		a.CreateClusterAPIMachines,
		activitiestest.NewClusterAPIMachineCreation(s, "s-a"),
	)
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	assert.Equal(t, before, w.Snapshot())
}

// The activities carry out the decision of a set that lacks machines; the next decision counts the new machines.
func TestDecideAndCreateMachines(t *testing.T) {
	s := capitest.NewSet("s", 2)
	w, a := newWorld(t, s)
	d, err := activitiestest.RunActivity[set.Decision](
		w,
		a.DecideClusterAPISet,
		activitiestest.NewClusterAPISetInput(s, true),
	)
	require.NoError(t, err)
	require.Len(t, d.Scale.Create, 2)
	assert.Equal(t, "900", d.Version)
	_, err = activitiestest.RunActivity[set.WriteResult](
		w,
		a.CreateClusterAPIMachines,
		set.MachineCreation{Set: activitiestest.NewRef(s), Version: d.Version, Names: d.Scale.Create},
	)
	require.NoError(t, err)
	w.AwaitCaches()
	for _, live := range []bool{true, false} {
		d, err = activitiestest.RunActivity[set.Decision](
			w,
			a.DecideClusterAPISet,
			activitiestest.NewClusterAPISetInput(s, live),
		)
		require.NoError(t, err)
		assert.False(t, d.Scale.HasListEntries(), d.Scale.Why)
		assert.Empty(t, d.Extra, "the new clones are no strays")
	}
}
