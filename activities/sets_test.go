package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe"
)

func createSet(d *v1alpha1.MachineDeployment) activities.SetCreation {
	return activities.SetCreation{Deployment: ref(d), Version: d.ResourceVersion, Creation: rollout.Creation{
		Replicas: int(d.Spec.Replicas), Revision: 1, Desired: int(d.Spec.Replicas), Max: int(d.Spec.Replicas) + 1,
	}}
}

// nameOf returns the name and hash of the set that a deployment's template asks for.
func nameOf(t *testing.T, d *v1alpha1.MachineDeployment, collisions *int32) (name, hash string) {
	t.Helper()
	hash, err := observe.TemplateHash(&d.Spec.Template, collisions)
	require.NoError(t, err)
	return observe.SetName(d.Name, hash), hash
}

func TestCreateSet(t *testing.T) {
	t.Parallel()
	d := deployment("d", 3, func(d *v1alpha1.MachineDeployment) {
		d.Spec.MinReadySeconds, d.Spec.AutoPreserveFailedMachineMax = 5, 2
		d.Annotations = map[string]string{
			"note": "copied", v1alpha1.AnnotationLastScalerChange: "2026-01-01T00:00:00Z", v1alpha1.AnnotationEffectiveCreationTimeout: "7m",
			"kubectl.kubernetes.io/last-applied-configuration": "{}", v1alpha1.AnnotationRevision: "9", v1alpha1.AnnotationRevisionHistory: "8",
			v1alpha1.AnnotationDesiredReplicas: "9", v1alpha1.AnnotationMaxReplicas: "9", v1alpha1.AnnotationPreferNoSchedule: "True",
			v1alpha1.AnnotationUnfreeze: "1", v1alpha1.AnnotationTriggerDeletion: "m~2026-01-01T00:00:00Z",
		}
	})
	w := newWorld(t, d)
	gate, err := run[activities.Gate](w, w.CreateSet, activities.SetCreation{
		Deployment: ref(d), Version: "900", Creation: rollout.Creation{Replicas: 2, Revision: 10, Desired: 3, Max: 5},
	})
	require.NoError(t, err)
	name, hash := nameOf(t, d, nil)
	s := w.set(name)
	require.NotNil(t, s, "its name follows from the template")
	labels := map[string]string{"app": "web", v1alpha1.LabelMachineTemplateHash: hash}
	assert.Equal(t, labels, s.Labels)
	assert.Equal(t, labels, s.Spec.Selector.MatchLabels)
	assert.Equal(t, labels, s.Spec.Template.Labels)
	assert.Equal(t, map[string]string{
		"note": "copied", v1alpha1.AnnotationLastScalerChange: "2026-01-01T00:00:00Z", v1alpha1.AnnotationEffectiveCreationTimeout: "7m",
		v1alpha1.AnnotationRevision: "10", v1alpha1.AnnotationDesiredReplicas: "3", v1alpha1.AnnotationMaxReplicas: "5",
	}, s.Annotations)
	assert.Equal(t, []int32{2, 5, 2}, []int32{s.Spec.Replicas, s.Spec.MinReadySeconds, s.Spec.AutoPreserveFailedMachineMax})
	assert.Equal(t, []string{v1alpha1.FinalizerMachine}, s.Finalizers)
	assert.Equal(t, "uid-d", string(s.OwnerReferences[0].UID))
	after := w.deployment("d")
	assert.Equal(t, map[string]string{"app": "web"}, after.Spec.Template.Labels, "the deployment itself has no hash")
	assert.Equal(t, "10", after.Annotations[v1alpha1.AnnotationRevision], "it is numbered like its set")
	assert.Equal(t, []string{"create machinesets", "patch machinedeployments"}, w.writes())
	assert.Equal(t, activities.Gate{observe.Sets: s.ResourceVersion, observe.Deployments: after.ResourceVersion}, gate)
	assert.Equal(t, []string{"Normal ScalingMachineSet Scaled up machine set " + name + " to 2"}, w.told())
	assert.Nil(t, after.Status.CollisionCount)

	t.Run("U14: what the autoscaler wrote reaches the set, its list of machines does not", func(t *testing.T) {
		assert.Contains(t, s.Annotations, v1alpha1.AnnotationLastScalerChange)
		assert.NotContains(t, s.Annotations, v1alpha1.AnnotationTriggerDeletion)
	})
}

// The number of a revision is part of the deployment: whoever reads it has to see that of the set.
func TestCreateSetRunTwice(t *testing.T) {
	t.Parallel()
	t.Run("where the deployment has its number, it is one set, told once", func(t *testing.T) {
		d := deployment("d", 3, revised[*v1alpha1.MachineDeployment]("1"))
		w := newWorld(t, d)
		gate := twice[activities.Gate](w, w.CreateSet, createSet(d))
		name, _ := nameOf(t, d, nil)
		assert.Equal(t, activities.Gate{observe.Sets: w.set(name).ResourceVersion}, gate, "the deployment was not written")
		assert.Equal(t, []string{"create machinesets", "create machinesets"}, w.writes(), "the second meets the first")
	})
	t.Run("where it got one, the second meets another version", func(t *testing.T) {
		d := deployment("d", 3)
		w := newWorld(t, d)
		_, err := run[activities.Gate](w, w.CreateSet, createSet(d))
		require.NoError(t, err)
		before := w.snapshot()
		_, err = run[activities.Gate](w, w.CreateSet, createSet(d))
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Equal(t, before, w.snapshot())
		assert.Len(t, w.told(), 1)
	})
	t.Run("one that was ended in between numbers the deployment the second time", func(t *testing.T) {
		d := deployment("d", 3)
		w := newWorld(t, d)
		failing(w.machines, "patch", "machinedeployments", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := run[activities.Gate](w, w.CreateSet, createSet(d))
		require.Error(t, err)
		_, retryable := failure(t, err)
		assert.True(t, retryable)
		assert.Empty(t, w.deployment("d").Annotations)
		gate, err := run[activities.Gate](w, w.CreateSet, createSet(d))
		require.NoError(t, err)
		name, _ := nameOf(t, d, nil)
		assert.Equal(t, "1", w.deployment("d").Annotations[v1alpha1.AnnotationRevision])
		assert.Equal(t, activities.Gate{observe.Sets: w.set(name).ResourceVersion, observe.Deployments: w.deployment("d").ResourceVersion}, gate)
		assert.Len(t, w.told(), 1, "one set is told of once")
	})
	t.Run("a template that changes meanwhile is not numbered", func(t *testing.T) {
		d := deployment("d", 3)
		w := newWorld(t, d)
		failing(w.machines, "patch", "machinedeployments", 1, nil, func() { w.edit(observe.Deployments, "d", anotherClass()) })
		_, err := run[activities.Gate](w, w.CreateSet, createSet(d))
		assertFailure(t, err, activities.TypeConflict, false)
		assert.NotContains(t, w.deployment("d").Annotations, v1alpha1.AnnotationRevision)
	})
}

// anotherClass is a patch that changes the class that a template names.
func anotherClass() map[string]any {
	return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"class": map[string]any{"name": "new"}}}}}
}

func TestCreateSetWhoseNameIsTaken(t *testing.T) {
	t.Parallel()
	d := deployment("d", 3)
	name, _ := nameOf(t, d, nil)
	for what, taken := range map[string]*v1alpha1.MachineSet{
		"by a stranger":                   set(name, 1),
		"by a set of another template":    owned(d, name, 1, func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" }),
		"by a set that is about to go":    owned(d, name, 1, going[*v1alpha1.MachineSet]),
		"by a set of a former deployment": set(name, 1, ownedBy[*v1alpha1.MachineSet](deployment("former", 1))),
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, d, taken)
			_, err := run[activities.Gate](w, w.CreateSet, createSet(d))
			assertFailure(t, err, activities.TypeConflict, false)
			assert.Equal(t, int32(1), *w.deployment("d").Status.CollisionCount)

			_, err = run[activities.Gate](w, w.CreateSet, createSet(w.deployment("d")))
			require.NoError(t, err)
			other, _ := nameOf(t, d, new(int32(1)))
			assert.NotNil(t, w.set(other), "the next name is free")
			assert.Equal(t, int32(1), w.set(name).Spec.Replicas, "the other set is left alone")
		})
	}
	t.Run("each collision counts", func(t *testing.T) {
		d.Status.CollisionCount = new(int32(1))
		second, _ := nameOf(t, d, d.Status.CollisionCount)
		w := newWorld(t, d, set(second, 1))
		_, err := run[activities.Gate](w, w.CreateSet, createSet(d))
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Equal(t, int32(2), *w.deployment("d").Status.CollisionCount)
	})
}

func TestCreateSetRefuses(t *testing.T) {
	t.Parallel()
	d := deployment("d", 3)
	t.Run("a decision about another deployment", func(t *testing.T) {
		w := newWorld(t, d)
		_, err := run[activities.Gate](w, w.CreateSet, activities.SetCreation{Deployment: stranger(d), Version: "900"})
		assertFailure(t, err, activities.TypeObjectGone, false)
	})
	t.Run("a decision that is out of date", func(t *testing.T) {
		w := newWorld(t, d)
		_, err := run[activities.Gate](w, w.CreateSet, activities.SetCreation{Deployment: ref(d), Version: "899"})
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Empty(t, w.writes())
	})
	t.Run("D19: what the API server will not take, and people hear of it", func(t *testing.T) {
		w := newWorld(t, d)
		failing(w.machines, "create", "machinesets", -1, apierrors.NewInvalid(schema.GroupKind{Kind: "MachineSet"}, "d-x", nil), nil)
		_, err := run[activities.Gate](w, w.CreateSet, createSet(d))
		assertFailure(t, err, activities.TypeRefused, false)
		assert.Equal(t, []string{`Warning MachineSetCreateError Error creating machine set: MachineSet "d-x" is invalid`}, w.told())
	})
}

func changeSets(w *world, d *v1alpha1.MachineDeployment, resize []rollout.Resize, remove []rollout.Target) (activities.Gate, error) {
	w.t.Helper()
	return run[activities.Gate](w, w.ChangeSets, activities.SetChanges{Deployment: ref(d), Resize: resize, Delete: remove})
}

func TestChangeSets(t *testing.T) {
	t.Parallel()
	d := deployment("d", 5)
	grow := []rollout.Resize{{Name: "s", UID: "uid-s", Version: "900", From: 3, To: 5, Desired: 7, Max: 9}}
	t.Run("resizes a set, if it still is what was seen", func(t *testing.T) {
		w := newWorld(t, d, owned(d, "s", 3))
		gate, err := changeSets(w, d, grow, nil)
		require.NoError(t, err)
		assert.Equal(t, int32(5), w.set("s").Spec.Replicas)
		assert.Equal(t, map[string]string{v1alpha1.AnnotationDesiredReplicas: "7", v1alpha1.AnnotationMaxReplicas: "9"}, w.set("s").Annotations)
		assert.Equal(t, activities.Gate{observe.Sets: w.set("s").ResourceVersion}, gate)
		assert.Equal(t, []string{"Normal ScalingMachineSet Scaled up machine set s to 5"}, w.told())

		before := w.snapshot()
		_, err = changeSets(w, d, grow, nil)
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Equal(t, before, w.snapshot(), "run again it meets its own version")
	})
	t.Run("tells of each size, and of annotations alone nobody", func(t *testing.T) {
		w := newWorld(t, d, owned(d, "s", 3), owned(d, "same", 2))
		_, err := changeSets(w, d, []rollout.Resize{
			{Name: "s", UID: "uid-s", Version: "900", From: 3, To: 0, Desired: 5, Max: 6},
			{Name: "same", UID: "uid-same", Version: "900", From: 2, To: 2, Desired: 5, Max: 6},
		}, nil)
		require.NoError(t, err)
		assert.Equal(t, []string{"Normal ScalingMachineSet Scaled down machine set s to 0"}, w.told())
		assert.Equal(t, int32(2), w.set("same").Spec.Replicas)
		assert.Equal(t, map[string]string{v1alpha1.AnnotationDesiredReplicas: "5", v1alpha1.AnnotationMaxReplicas: "6"}, w.set("same").Annotations)
	})
	t.Run("resizes a set that has written its status since", func(t *testing.T) {
		w := newWorld(t, d, owned(d, "s", 3))
		_, err := changeSets(w, d, []rollout.Resize{{Name: "s", UID: "uid-s", Version: "899", From: 3, To: 5}}, nil)
		require.NoError(t, err)
		assert.Equal(t, int32(5), w.set("s").Spec.Replicas)
		assert.Equal(t, []string{"Normal ScalingMachineSet Scaled up machine set s to 5"}, w.told())
	})
	t.Run("leaves a set alone that got another size or another owner, is to go or was replaced", func(t *testing.T) {
		for _, row := range []struct {
			set   *v1alpha1.MachineSet
			other rollout.Resize
		}{
			{owned(d, "s", 3), rollout.Resize{Name: "s", UID: "uid-s", Version: "899", From: 4, To: 5}},
			{owned(d, "s", 3, going[*v1alpha1.MachineSet]), rollout.Resize{Name: "s", UID: "uid-s", Version: "899", From: 3, To: 5}},
			{owned(d, "s", 3), rollout.Resize{Name: "s", UID: "uid-of-a-former-one", Version: "900", From: 3, To: 5}},
			{owned(deployment("other", 5), "s", 3), rollout.Resize{Name: "s", UID: "uid-s", Version: "899", From: 3, To: 5}},
		} {
			w := newWorld(t, d, row.set)
			_, err := changeSets(w, d, []rollout.Resize{row.other}, nil)
			assertFailure(t, err, activities.TypeConflict, false)
			assert.Equal(t, int32(3), w.set("s").Spec.Replicas)
		}
	})
	t.Run("deletes sets, in the same way", func(t *testing.T) {
		w := newWorld(t, d, owned(d, "s", 3), owned(d, "changed", 3))
		all := []rollout.Target{{Name: "gone", UID: "uid-gone", Version: "900"}, {Name: "s", UID: "uid-s", Version: "900"}, {Name: "changed", UID: "uid-changed", Version: "899"}}
		_, err := changeSets(w, d, nil, all)
		assertFailure(t, err, activities.TypeConflict, false)
		assert.NotNil(t, w.set("s").DeletionTimestamp)
		assert.Nil(t, w.set("changed").DeletionTimestamp)
	})
	t.Run("a set that is gone is not the deployment", func(t *testing.T) {
		w := newWorld(t, d)
		_, err := changeSets(w, d, grow, nil)
		assertFailure(t, err, activities.TypeObjectGone, false)
		assert.ErrorContains(t, err, "shop/s")
	})
}
