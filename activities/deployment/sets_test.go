package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	observeset "millwright/observe/set"
)

// nameAndHashOfSet returns the name and hash of the set of a deployment's template.
func nameAndHashOfSet(t *testing.T, d *v1alpha1.MachineDeployment, collisions *int32) (name, hash string) {
	t.Helper()
	hash, err := observeset.TemplateHash(&d.Spec.Template, collisions)
	require.NoError(t, err)
	return observeset.NameFromHash(d.Name, hash), hash
}

func TestCreateSet(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 3, func(d *v1alpha1.MachineDeployment) {
		d.Spec.MinReadySeconds, d.Spec.AutoPreserveFailedMachineMax = 5, 2
		d.Annotations = map[string]string{
			"note":                              "copied",
			v1alpha1.AnnotationLastScalerChange: "2026-01-01T00:00:00Z",
			v1alpha1.AnnotationEffectiveCreationTimeout:        "7m",
			"kubectl.kubernetes.io/last-applied-configuration": "{}",
			v1alpha1.AnnotationRevision:                        "9",
			v1alpha1.AnnotationRevisionHistory:                 "8",
			v1alpha1.AnnotationDesiredReplicas:                 "9",
			v1alpha1.AnnotationMaxReplicas:                     "9",
			v1alpha1.AnnotationPreferNoSchedule:                "True",
			v1alpha1.AnnotationUnfreeze:                        "1",
			v1alpha1.AnnotationTriggerDeletion:                 "m~2026-01-01T00:00:00Z",
		}
	})
	w := activitiestest.NewWorld(t, d)
	versions, err := activitiestest.RunActivity[kube.MinVersions](
		w,
		newActivities(w.Kube).CreateSet,
		deployment.SetCreation{
			Deployment:  activitiestest.NewRef(d),
			Version:     "900",
			SetCreation: rollout.SetCreation{Replicas: 2, Revision: 10, Desired: 3, Max: 5},
		},
	)
	require.NoError(t, err)
	name, hash := nameAndHashOfSet(t, d, nil)
	s := w.MachineSet(name)
	require.NotNil(t, s, "its name follows from the template")
	labels := map[string]string{"app": "web", v1alpha1.LabelMachineTemplateHash: hash}
	assert.Equal(t, labels, s.Labels)
	assert.Equal(t, labels, s.Spec.Selector.MatchLabels)
	assert.Equal(t, labels, s.Spec.Template.Labels)
	assert.Equal(t, map[string]string{
		"note":                              "copied",
		v1alpha1.AnnotationLastScalerChange: "2026-01-01T00:00:00Z",
		v1alpha1.AnnotationEffectiveCreationTimeout: "7m",
		v1alpha1.AnnotationRevision:                 "10",
		v1alpha1.AnnotationDesiredReplicas:          "3",
		v1alpha1.AnnotationMaxReplicas:              "5",
	}, s.Annotations)
	assert.Equal(
		t,
		[]int32{2, 5, 2},
		[]int32{s.Spec.Replicas, s.Spec.MinReadySeconds, s.Spec.AutoPreserveFailedMachineMax},
	)
	assert.Equal(t, []string{v1alpha1.FinalizerMachine}, s.Finalizers)
	assert.Equal(t, "uid-d", string(s.OwnerReferences[0].UID))
	after := w.Deployment("d")
	assert.Equal(t, map[string]string{"app": "web"}, after.Spec.Template.Labels, "the deployment itself has no hash")
	assert.Equal(t, "10", after.Annotations[v1alpha1.AnnotationRevision], "it is numbered like its set")
	assert.Equal(t, []string{"create machinesets", "patch machinedeployments"}, w.MutatingRequests())
	assert.Equal(
		t,
		kube.MinVersions{cache.SetsResource: s.ResourceVersion, cache.DeploymentsResource: after.ResourceVersion},
		versions,
	)
	assert.Equal(t, []string{"Normal ScalingMachineSet Scaled up machine set " + name + " to 2"}, w.TakeNewEvents())
	assert.Nil(t, after.Status.CollisionCount)

	t.Run("what the autoscaler wrote reaches the set, its list of machines does not", func(t *testing.T) {
		assert.Contains(t, s.Annotations, v1alpha1.AnnotationLastScalerChange)
		assert.NotContains(t, s.Annotations, v1alpha1.AnnotationTriggerDeletion)
	})
}

// The deployment must have the revision of its current set.
func TestCreateSetIsIdempotent(t *testing.T) {
	t.Parallel()
	t.Run("where the deployment has its number, it is one set, told once", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 3, withRevision[*v1alpha1.MachineDeployment]("1"))
		w := activitiestest.NewWorld(t, d)
		versions := activitiestest.RunActivityTwice[kube.MinVersions](
			w,
			newActivities(w.Kube).CreateSet,
			activitiestest.NewSetCreation(d),
		)
		name, _ := nameAndHashOfSet(t, d, nil)
		assert.Equal(
			t,
			kube.MinVersions{cache.SetsResource: w.MachineSet(name).ResourceVersion},
			versions,
			"the deployment was not written",
		)
		assert.Equal(
			t,
			[]string{"create machinesets", "create machinesets"},
			w.MutatingRequests(),
			"the second meets the first",
		)
	})
	t.Run("where it got one, the second meets another version", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 3)
		w := activitiestest.NewWorld(t, d)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).CreateSet,
			activitiestest.NewSetCreation(d),
		)
		require.NoError(t, err)
		before := w.Snapshot()
		_, err = activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).CreateSet,
			activitiestest.NewSetCreation(d),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Equal(t, before, w.Snapshot())
		assert.Len(t, w.TakeNewEvents(), 1)
	})
	t.Run("one that was ended in between numbers the deployment the second time", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 3)
		w := activitiestest.NewWorld(t, d)
		activitiestest.FailRequests(
			w.MachineClient,
			"patch",
			"machinedeployments",
			1,
			apierrors.NewServiceUnavailable("away"),
			nil,
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).CreateSet,
			activitiestest.NewSetCreation(d),
		)
		require.Error(t, err)
		_, retryable := activitiestest.FailureTypeOf(t, err)
		assert.True(t, retryable)
		assert.Empty(t, w.Deployment("d").Annotations)
		versions, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).CreateSet,
			activitiestest.NewSetCreation(d),
		)
		require.NoError(t, err)
		name, _ := nameAndHashOfSet(t, d, nil)
		assert.Equal(t, "1", w.Deployment("d").Annotations[v1alpha1.AnnotationRevision])
		assert.Equal(
			t,
			kube.MinVersions{
				cache.SetsResource:        w.MachineSet(name).ResourceVersion,
				cache.DeploymentsResource: w.Deployment("d").ResourceVersion,
			},
			versions,
		)
		assert.Len(t, w.TakeNewEvents(), 1, "one event for each set")
	})
	t.Run("a template that changes meanwhile is not numbered", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 3)
		w := activitiestest.NewWorld(t, d)
		activitiestest.FailRequests(
			w.MachineClient,
			"patch",
			"machinedeployments",
			1,
			nil,
			func() { w.EditObject(cache.DeploymentsResource, "d", classPatch()) },
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).CreateSet,
			activitiestest.NewSetCreation(d),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.NotContains(t, w.Deployment("d").Annotations, v1alpha1.AnnotationRevision)
	})
}

// classPatch returns a patch that changes the class in a template.
func classPatch() map[string]any {
	return map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"class": map[string]any{"name": "new"}}}},
	}
}

func TestCreateSetWhoseNameIsTaken(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 3)
	name, _ := nameAndHashOfSet(t, d, nil)
	for what, taken := range map[string]*v1alpha1.MachineSet{
		"by a stranger":                                  activitiestest.NewMachineSet(name, 1, withOtherLabels),
		"by a set of another template":                   activitiestest.NewOwnedSet(d, name, 1, func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" }),
		"by a set that is about to go":                   activitiestest.NewOwnedSet(d, name, 1, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet]),
		"by a set of a activitiestest.Former deployment": activitiestest.NewMachineSet(name, 1, activitiestest.WithOwner[*v1alpha1.MachineSet](activitiestest.NewDeployment("former", 1))),
	} {
		t.Run(what, func(t *testing.T) {
			w := activitiestest.NewWorld(t, d, taken)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).CreateSet,
				activitiestest.NewSetCreation(d),
			)
			activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
			assert.Equal(t, int32(1), *w.Deployment("d").Status.CollisionCount)

			_, err = activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).CreateSet,
				activitiestest.NewSetCreation(w.Deployment("d")),
			)
			require.NoError(t, err)
			other, _ := nameAndHashOfSet(t, d, new(int32(1)))
			assert.NotNil(t, w.MachineSet(other), "the next name is free")
			assert.Equal(t, int32(1), w.MachineSet(name).Spec.Replicas, "the other set is left alone")
		})
	}
	t.Run("each collision counts", func(t *testing.T) {
		d.Status.CollisionCount = new(int32(1))
		second, _ := nameAndHashOfSet(t, d, d.Status.CollisionCount)
		w := activitiestest.NewWorld(t, d, activitiestest.NewMachineSet(second, 1, withOtherLabels))
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).CreateSet,
			activitiestest.NewSetCreation(d),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Equal(t, int32(2), *w.Deployment("d").Status.CollisionCount)
	})
}

func TestCreateSetRefusesOutdatedDecision(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 3)
	t.Run("a decision about another deployment", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).CreateSet,
			deployment.SetCreation{Deployment: activitiestest.NewFormerObjectRef(d), Version: "900"},
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
	})
	t.Run("a decision that is out of date", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).CreateSet,
			deployment.SetCreation{Deployment: activitiestest.NewRef(d), Version: "899"},
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("what the API server will not take, and people hear of it", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d)
		activitiestest.FailRequests(
			w.MachineClient,
			"create",
			"machinesets",
			-1,
			apierrors.NewInvalid(schema.GroupKind{Kind: "MachineSet"}, "d-x", nil),
			nil,
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).CreateSet,
			activitiestest.NewSetCreation(d),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeRefused, false)
		assert.Equal(
			t,
			[]string{`Warning MachineSetCreateError Error creating machine set: MachineSet "d-x" is invalid`},
			w.TakeNewEvents(),
		)
	})
}

func changeSets(
	w *activitiestest.World,
	d *v1alpha1.MachineDeployment,
	resize []rollout.SetResize,
	remove []rollout.ObjectTarget,
) (kube.MinVersions, error) {
	w.T.Helper()
	return activitiestest.RunActivity[kube.MinVersions](
		w,
		newActivities(w.Kube).ChangeSets,
		deployment.SetChanges{
			Deployment: activitiestest.NewRef(d),
			SetChanges: rollout.SetChanges{Resize: resize, Delete: remove},
		},
	)
}

func TestChangeSets(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 5)
	grow := []rollout.SetResize{
		{Name: "s", UID: "uid-s", Version: "900", From: 3, To: 5, Desired: 7, Max: 9, HasEvent: true},
	}
	t.Run("resizes a set, if it still is what was seen", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d, activitiestest.NewOwnedSet(d, "s", 3))
		versions, err := changeSets(w, d, grow, nil)
		require.NoError(t, err)
		assert.Equal(t, int32(5), w.MachineSet("s").Spec.Replicas)
		assert.Equal(
			t,
			map[string]string{v1alpha1.AnnotationDesiredReplicas: "7", v1alpha1.AnnotationMaxReplicas: "9"},
			w.MachineSet("s").Annotations,
		)
		assert.Equal(t, kube.MinVersions{cache.SetsResource: w.MachineSet("s").ResourceVersion}, versions)
		assert.Equal(t, []string{"Normal ScalingMachineSet Scaled up machine set s to 5"}, w.TakeNewEvents())

		before := w.Snapshot()
		_, err = changeSets(w, d, grow, nil)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Equal(t, before, w.Snapshot(), "run again it meets its own version")
	})
	t.Run("records an event only if the decision requests one", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d, activitiestest.NewOwnedSet(d, "s", 3), activitiestest.NewOwnedSet(d, "same", 2))
		_, err := changeSets(w, d, []rollout.SetResize{
			{Name: "s", UID: "uid-s", Version: "900", From: 3, To: 0, Desired: 5, Max: 6, HasEvent: true},
			{Name: "same", UID: "uid-same", Version: "900", From: 2, To: 2, Desired: 5, Max: 6},
		}, nil)
		require.NoError(t, err)
		assert.Equal(t, []string{"Normal ScalingMachineSet Scaled down machine set s to 0"}, w.TakeNewEvents())
		assert.Equal(t, int32(2), w.MachineSet("same").Spec.Replicas)
		assert.Equal(
			t,
			map[string]string{v1alpha1.AnnotationDesiredReplicas: "5", v1alpha1.AnnotationMaxReplicas: "6"},
			w.MachineSet("same").Annotations,
		)
	})
	t.Run("resizes a set that has written its status since", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d, activitiestest.NewOwnedSet(d, "s", 3))
		_, err := changeSets(w, d, []rollout.SetResize{{Name: "s", UID: "uid-s", Version: "899", From: 3, To: 5}}, nil)
		require.NoError(t, err)
		assert.Equal(t, int32(5), w.MachineSet("s").Spec.Replicas)
		assert.Empty(t, w.TakeNewEvents())
	})
	t.Run(
		"leaves a set alone that got another size or another owner, is being deleted or was replaced",
		func(t *testing.T) {
			for _, row := range []struct {
				set   *v1alpha1.MachineSet
				other rollout.SetResize
			}{
				{activitiestest.NewOwnedSet(d, "s", 3), rollout.SetResize{Name: "s", UID: "uid-s", Version: "899", From: 4, To: 5}},
				{activitiestest.NewOwnedSet(d, "s", 3, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet]), rollout.SetResize{Name: "s", UID: "uid-s", Version: "899", From: 3, To: 5}},
				{activitiestest.NewOwnedSet(d, "s", 3), rollout.SetResize{Name: "s", UID: "uid-of-a-former-one", Version: "900", From: 3, To: 5}},
				{activitiestest.NewOwnedSet(activitiestest.NewDeployment("other", 5), "s", 3), rollout.SetResize{Name: "s", UID: "uid-s", Version: "899", From: 3, To: 5}},
			} {
				w := activitiestest.NewWorld(t, d, row.set)
				_, err := changeSets(w, d, []rollout.SetResize{row.other}, nil)
				activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
				assert.Equal(t, int32(3), w.MachineSet("s").Spec.Replicas)
			}
		},
	)
	t.Run("deletes sets, in the same way", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d, activitiestest.NewOwnedSet(d, "s", 3), activitiestest.NewOwnedSet(d, "changed", 3))
		all := []rollout.ObjectTarget{
			{Name: "gone", UID: "uid-gone", Version: "900"},
			{Name: "s", UID: "uid-s", Version: "900"},
			{Name: "changed", UID: "uid-changed", Version: "899"},
		}
		_, err := changeSets(w, d, nil, all)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.NotNil(t, w.MachineSet("s").DeletionTimestamp)
		assert.Nil(t, w.MachineSet("changed").DeletionTimestamp)
	})
	t.Run("a set that is gone is not the deployment", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d)
		_, err := changeSets(w, d, grow, nil)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
		assert.ErrorContains(t, err, "shop/s")
	})
}
