package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/capi/deployment"
	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	observedeployment "millwright/observe/capi/deployment"
)

func newSetCreation(d *clusterv1.MachineDeployment) activities.SetCreation {
	return activities.SetCreation{
		Deployment:  activitiestest.NewRef(d),
		Version:     d.ResourceVersion,
		SetCreation: rollout.SetCreation{Replicas: 1, Revision: 2, Desired: 3, Max: 4},
	}
}

func withoutRevision(d *clusterv1.MachineDeployment) {
	delete(d.Annotations, clusterv1.RevisionAnnotation)
}

func TestCreateSet(t *testing.T) {
	d := capitest.NewPreparedDeployment(3, withoutRevision)
	w, a := newWorld(t, d)
	versions, err := activitiestest.RunActivity[kube.MinVersions](w, a.CreateClusterAPISet, newSetCreation(d))
	require.NoError(t, err)
	sets := w.ClusterAPISets()
	require.Len(t, sets, 1)
	assert.EqualValues(t, 1, *sets[0].Spec.Replicas)
	after := w.ClusterAPIDeployment("d")
	assert.Equal(t, "2", after.Annotations[clusterv1.RevisionAnnotation])
	assert.Equal(
		t,
		kube.MinVersions{capi.SetsResource: sets[0].ResourceVersion, capi.DeploymentsResource: after.ResourceVersion},
		versions,
	)
	assert.Equal(
		t,
		[]string{"Normal SuccessfulCreate Created MachineSet " + sets[0].Name + " with 1 replicas"},
		w.TakeNewEvents(),
	)
}

// The first attempt creates the set, but does not write the revision; the second attempt finds the set.
func TestCreateSetFindsItsSetAfterALostAnswer(t *testing.T) {
	d := capitest.NewPreparedDeployment(3, withoutRevision)
	w, a := newWorld(t, d)
	activitiestest.FailRequests(
		w.ClusterAPIServer.Clientset,
		"patch",
		"machinedeployments",
		1,
		apierrors.NewInternalError(assert.AnError),
		nil,
	)
	_, err := activitiestest.RunActivity[kube.MinVersions](w, a.CreateClusterAPISet, newSetCreation(d))
	require.Error(t, err)
	_, err = activitiestest.RunActivity[kube.MinVersions](w, a.CreateClusterAPISet, newSetCreation(d))
	require.NoError(t, err)
	assert.Len(t, w.ClusterAPISets(), 1)
	assert.Equal(t, "2", w.ClusterAPIDeployment("d").Annotations[clusterv1.RevisionAnnotation])
	assert.Len(t, w.TakeNewEvents(), 1)
}

// If another object already has a set's name, the new set gets the next name.
func TestCreateSetChoosesNextNameIfNameIsTaken(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	first, a := newWorld(t, d)
	_, err := activitiestest.RunActivity[kube.MinVersions](first, a.CreateClusterAPISet, newSetCreation(d))
	require.NoError(t, err)
	name := first.ClusterAPISets()[0].Name
	for what, other := range map[string]*clusterv1.MachineSet{
		"of another owner":    capitest.NewSet(name, 1),
		"being deleted":       capitest.NewSetOfDeployment(d, name, 1, 2, capitest.AsDeletingObject[*clusterv1.MachineSet]),
		"of another revision": capitest.NewSetOfDeployment(d, name, 1, 1),
		"of another template": capitest.NewSetOfDeployment(d, name, 1, 2, capitest.WithFormerTemplate),
	} {
		w, a := newWorld(t, d, other)
		_, err := activitiestest.RunActivity[kube.MinVersions](w, a.CreateClusterAPISet, newSetCreation(d))
		require.NoError(t, err, what)
		assert.Len(t, w.ClusterAPISets(), 2, what)
		assert.EqualValues(t, 1, *w.ClusterAPISet(name).Spec.Replicas, what)
	}
}

func TestCreateSetRefusesOutdatedDecision(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	cluster, bootstrap := capitest.NewCluster(), capitest.NewBootstrapTemplate()
	for name, has := range map[string][]runtime.Object{
		"a template went away":          {d, cluster, bootstrap},
		"the Cluster went away":         {d, bootstrap, capitest.NewInfrastructureTemplate()},
		"the Cluster is deleted":        {d, capitest.NewCluster(capitest.AsDeletingObject[*clusterv1.Cluster]), bootstrap, capitest.NewInfrastructureTemplate()},
		"the deployment changed":        {capitest.NewPreparedDeployment(3, func(d *clusterv1.MachineDeployment) { d.ResourceVersion = "901" }), cluster, bootstrap, capitest.NewInfrastructureTemplate()},
		"the deployment is deleted":     {capitest.NewPreparedDeployment(3, capitest.AsDeletingObject[*clusterv1.MachineDeployment]), cluster, bootstrap, capitest.NewInfrastructureTemplate()},
		"the deployment is handed over": {capitest.NewPreparedDeployment(3, withOtherController), cluster, bootstrap, capitest.NewInfrastructureTemplate()},
	} {
		w := activitiestest.NewClusterAPIWorld(t, capitest.DefaultSettings, has...)
		a := &deployment.Activities{Kube: w.Kube, Cache: w.ClusterAPICache}
		_, err := activitiestest.RunActivity[kube.MinVersions](w, a.CreateClusterAPISet, newSetCreation(d))
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Empty(t, w.ClusterAPISets(), name)
	}
}

func TestCreateSetReportsRefusalOfAPIServer(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	w, a := newWorld(t, d)
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "machinesets"}, "x", nil)
	activitiestest.FailRequests(w.ClusterAPIServer.Clientset, "create", "machinesets", 1, refusal, nil)
	_, err := activitiestest.RunActivity[kube.MinVersions](w, a.CreateClusterAPISet, newSetCreation(d))
	activitiestest.AssertFailure(t, err, kube.FailureTypeRefused, false)
	told := w.TakeNewEvents()
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "Warning FailedCreate Failed to create MachineSet: ")
}

func newSetTarget(s *clusterv1.MachineSet) rollout.ObjectTarget {
	return rollout.ObjectTarget{Name: s.Name, UID: string(s.UID), Version: s.ResourceVersion, Why: "because"}
}

// Each kind of change to a set writes only the fields of this change. A change of a set that changed since the decision
// causes a Conflict.
func TestChangeSets(t *testing.T) {
	resized := func(from, to int) func(*activities.SetChanges, rollout.ObjectTarget) {
		return func(in *activities.SetChanges, s rollout.ObjectTarget) {
			in.Resize = []rollout.SetResize{{
				Name: s.Name, UID: s.UID, Version: s.Version, From: from, To: to, Desired: 3, Max: 4, HasEvent: from != to,
			}}
		}
	}
	for _, row := range []struct {
		name   string
		set    capitest.SetChange
		how    func(*activities.SetChanges, rollout.ObjectTarget)
		check  func(*testing.T, *clusterv1.MachineSet)
		writes []string
		told   []string
	}{
		{
			"adopt", capitest.WithoutOwner[*clusterv1.MachineSet],
			func(in *activities.SetChanges, s rollout.ObjectTarget) { in.Adopt = []rollout.ObjectTarget{s} },
			func(t *testing.T, s *clusterv1.MachineSet) {
				assert.True(t, metav1.IsControlledBy(s, capitest.NewPreparedDeployment(3)))
			},
			[]string{"patch machinesets"},
			[]string{"Normal SuccessfulAdopt Adopted MachineSet: s: because"},
		},
		{
			"open", capitest.WithAnnotation[*clusterv1.MachineSet](clusterv1.DisableMachineCreateAnnotation, "true"),
			func(in *activities.SetChanges, s rollout.ObjectTarget) { in.AllowScaleUp = []rollout.ObjectTarget{s} },
			func(t *testing.T, s *clusterv1.MachineSet) {
				assert.NotContains(t, s.Annotations, clusterv1.DisableMachineCreateAnnotation)
			},
			[]string{"patch machinesets"},
			nil,
		},
		{
			"close", nil,
			func(in *activities.SetChanges, s rollout.ObjectTarget) { in.ForbidScaleUp = []rollout.ObjectTarget{s} },
			func(t *testing.T, s *clusterv1.MachineSet) {
				assert.Equal(t, "true", s.Annotations[clusterv1.DisableMachineCreateAnnotation])
			},
			[]string{"patch machinesets"},
			nil,
		},
		{
			"sync", func(s *clusterv1.MachineSet) {
				capitest.WithFormerTemplate(s)
				s.Labels[clusterv1.WatchLabel] = "upstream"
			},
			func(in *activities.SetChanges, s rollout.ObjectTarget) { in.Sync = []rollout.ObjectTarget{s} },
			func(t *testing.T, s *clusterv1.MachineSet) {
				assert.Equal(t, capitest.WatchFilter, s.Labels[clusterv1.WatchLabel])
				assert.Equal(t, "v1.30.0", s.Spec.Template.Spec.Version, "only what changes in place")
			},
			[]string{"patch machinesets"},
			nil,
		},
		{
			"revise", nil,
			func(in *activities.SetChanges, s rollout.ObjectTarget) {
				in.Revise = &rollout.RevisionChange{ObjectTarget: s, Revision: 4, History: "1"}
			},
			func(t *testing.T, s *clusterv1.MachineSet) {
				assert.Equal(t, "4", s.Annotations[clusterv1.RevisionAnnotation])
				assert.Equal(t, "1", s.Annotations["machinedeployment.clusters.x-k8s.io/revision-history"])
			},
			[]string{"patch machinesets", "patch machinedeployments"},
			nil,
		},
		{
			"grow", nil, resized(2, 3),
			func(t *testing.T, s *clusterv1.MachineSet) {
				assert.EqualValues(t, 3, *s.Spec.Replicas)
				assert.Equal(t, "2", s.Annotations[v1alpha1.AnnotationFormerReplicas], "it had acted on two")
				assert.Equal(t, "4", s.Annotations[clusterv1.MaxReplicasAnnotation])
			},
			[]string{"patch machinesets"},
			[]string{"Normal SuccessfulScale Scaled up MachineSet s: 2 -> 3"},
		},
		{
			"shrink before it has acted", func(s *clusterv1.MachineSet) {
				s.Generation = 2
				s.Annotations[v1alpha1.AnnotationFormerReplicas] = "5"
			}, resized(2, 1),
			func(t *testing.T, s *clusterv1.MachineSet) {
				assert.EqualValues(t, 1, *s.Spec.Replicas)
				assert.Equal(t, "5", s.Annotations[v1alpha1.AnnotationFormerReplicas], "it may still act on five")
			},
			[]string{"patch machinesets"},
			[]string{"Normal SuccessfulScale Scaled down MachineSet s: 2 -> 1"},
		},
		{
			"delete", capitest.AsDeletingObject[*clusterv1.MachineSet], // the set's finalizer delays the deletion
			func(in *activities.SetChanges, s rollout.ObjectTarget) { in.Delete = []rollout.ObjectTarget{s} },
			func(t *testing.T, s *clusterv1.MachineSet) { assert.NotNil(t, s.DeletionTimestamp) },
			[]string{"delete machinesets"},
			[]string{`Normal SuccessfulDelete Deleted MachineSet "s"`},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := capitest.NewPreparedDeployment(3)
			s := capitest.NewSetOfDeployment(d, "s", 2, 1)
			if row.set != nil {
				row.set(s)
			}
			w, a := newWorld(t, d, s)
			in := activities.SetChanges{Deployment: activitiestest.NewRef(d)}
			stale := newSetTarget(s)
			stale.Version, stale.UID = "899", string(s.UID)
			row.how(&in, stale)
			if len(in.Resize) > 0 {
				in.Resize[0].From++ // less than 2 s after the decision, only a changed size causes a conflict
			}
			_, err := activitiestest.RunActivity[kube.MinVersions](w, a.ChangeClusterAPISets, in)
			activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
			assert.Equal(t, s, w.ClusterAPISet("s"))
			w.TakeNewEvents()
			w.ForgetRequests()

			in = activities.SetChanges{Deployment: activitiestest.NewRef(d)}
			row.how(&in, newSetTarget(s))
			for i := range in.Resize {
				in.Resize[i].ActedOn = observedeployment.LastHandledReplicas(
					s,
				) // the decision fills in LastHandledReplicas in the same way
			}
			versions, err := activitiestest.RunActivity[kube.MinVersions](w, a.ChangeClusterAPISets, in)
			require.NoError(t, err)
			after := w.ClusterAPISet("s")
			row.check(t, after)
			assert.Equal(t, row.writes, w.MutatingRequests())
			if len(in.Delete) == 0 {
				assert.Equal(t, after.ResourceVersion, versions[capi.SetsResource])
			}
			assert.ElementsMatch(t, row.told, w.TakeNewEvents())
		})
	}
}

// A resize within two seconds of the decision succeeds if only the status of the set changed.
func TestResizeSucceedsIfOnlyStatusChanged(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	s := capitest.NewSetOfDeployment(d, "s", 2, 1)
	w, a := newWorld(t, d, s)
	changed := s.DeepCopy()
	changed.Status.ReadyReplicas = new(int32(1))
	_, err := kube.PatchChanges(t.Context(), w.ClusterAPIServer.Client.MachineSets("shop"), s, changed, "status")
	require.NoError(t, err)
	_, err = activitiestest.RunActivity[kube.MinVersions](w, a.ChangeClusterAPISets, activities.SetChanges{
		Deployment: activitiestest.NewRef(d),
		SetChanges: rollout.SetChanges{Resize: []rollout.SetResize{
			{Name: "s", UID: "uid-s", Version: s.ResourceVersion, From: 2, To: 3, Desired: 3, Max: 4},
		}},
	})
	require.NoError(t, err)
	assert.EqualValues(t, 3, *w.ClusterAPISet("s").Spec.Replicas)
}

// Only a deployment that selects the set, and that is not being deleted, adopts the set.
func TestOnlySelectedSetsWithoutControllerAreAdopted(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	for name, row := range map[string]struct {
		deployment *clusterv1.MachineDeployment
		set        *clusterv1.MachineSet
	}{
		"it has a controller":       {d, capitest.NewSetOfDeployment(capitest.NewPreparedDeployment(3, func(d *clusterv1.MachineDeployment) { d.UID = "uid-x" }), "s", 1, 1)},
		"it is not selected":        {d, capitest.NewSetOfDeployment(d, "s", 1, 1, capitest.WithoutOwner[*clusterv1.MachineSet], func(s *clusterv1.MachineSet) { s.Labels = nil })},
		"it is being deleted":       {d, capitest.NewSetOfDeployment(d, "s", 1, 1, capitest.WithoutOwner[*clusterv1.MachineSet], capitest.AsDeletingObject[*clusterv1.MachineSet])},
		"the deployment is deleted": {capitest.NewPreparedDeployment(3, capitest.AsDeletingObject[*clusterv1.MachineDeployment]), capitest.NewSetOfDeployment(d, "s", 1, 1, capitest.WithoutOwner[*clusterv1.MachineSet])},
	} {
		w, a := newWorld(t, row.deployment, row.set)
		_, _ = activitiestest.RunActivity[kube.MinVersions](
			w,
			a.ChangeClusterAPISets,
			activities.SetChanges{
				Deployment: activitiestest.NewRef(d),
				SetChanges: rollout.SetChanges{Adopt: []rollout.ObjectTarget{newSetTarget(row.set)}},
			},
		)
		assert.Equal(t, row.set, w.ClusterAPISet("s"), name)
	}
}

// A revision is written only to the set of the deployment's current template. If another set has become current since
// the decision, the activity writes nothing.
func TestRevisionOfFormerSetIsNotWritten(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	s := capitest.NewSetOfDeployment(d, "s", 2, 1, capitest.WithFormerTemplate)
	w, a := newWorld(t, d, s)
	_, err := activitiestest.RunActivity[kube.MinVersions](w, a.ChangeClusterAPISets, activities.SetChanges{
		Deployment: activitiestest.NewRef(
			d,
		),
		SetChanges: rollout.SetChanges{Revise: &rollout.RevisionChange{ObjectTarget: newSetTarget(s), Revision: 4}},
	})
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	assert.Equal(t, s, w.ClusterAPISet("s"))
}

// After a restore of the API server, a cache may still contain the deployment from before the restore, with more
// replicas.
func TestNoSetGrowsForAnOutdatedSpec(t *testing.T) {
	for name, row := range map[string]struct {
		seen     int64
		to       int
		conflict bool
	}{
		"the spec that the decision saw": {1, 5, false},
		"another spec":                   {2, 5, true},
		"another spec, and it shrinks":   {2, 2, false},
		"a decision of another version":  {0, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := capitest.NewPreparedDeployment(3)
			s := capitest.NewSetOfDeployment(d, "s", 3, 1)
			w, a := newWorld(t, d, s)
			_, err := activitiestest.RunActivity[kube.MinVersions](w, a.ChangeClusterAPISets, activities.SetChanges{
				Deployment: activitiestest.NewRef(d),
				Generation: row.seen,
				SetChanges: rollout.SetChanges{
					Resize: []rollout.SetResize{{Name: s.Name, UID: string(s.UID), Version: s.ResourceVersion, From: 3, To: row.to}},
				},
			})
			_, conflict := kube.FailureOfType(err, kube.FailureTypeConflict)
			assert.Equal(t, row.conflict, conflict)
			if !row.conflict {
				require.NoError(t, err)
			}
		})
	}
}
