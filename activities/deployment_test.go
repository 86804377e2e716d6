package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/observe"
)

func decideDeployment(w *world, in activities.Read) activities.DeploymentDecision {
	w.t.Helper()
	return twice[activities.DeploymentDecision](w, w.DecideDeployment, in)
}

// owned returns a set of a deployment.
func owned(d *v1alpha1.MachineDeployment, name string, replicas int32, change ...func(*v1alpha1.MachineSet)) *v1alpha1.MachineSet {
	return set(name, replicas, append(change, ownedBy[*v1alpha1.MachineSet](d))...)
}

func TestDecideDeployment(t *testing.T) {
	t.Parallel()
	t.Run("U2: makes a set where there is none", func(t *testing.T) {
		d := deployment("d", 3)
		decision := decideDeployment(newWorld(t, d), read(d))
		assert.True(t, decision.Create)
		assert.Equal(t, attention.Scale, decision.Need)
		assert.Equal(t, "900", decision.Version)
		assert.Equal(t, "create a set of 3 machines: there is none", decision.Decision.Why)
	})
	t.Run("gives its set its size", func(t *testing.T) {
		d := deployment("d", 3)
		decision := decideDeployment(newWorld(t, d, owned(d, "d-1", 1)), read(d))
		assert.Equal(t, []rollout.Resize{{Name: "d-1", UID: "uid-d-1", Version: "900", From: 1, To: 3}}, decision.Resize)
	})
	t.Run("U1: does nothing where there is nothing to do", func(t *testing.T) {
		d := deployment("d", 3)
		d.Status = v1alpha1.MachineDeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3}
		decision := decideDeployment(newWorld(t, d, counted(owned(d, "d-1", 3), 3, 3)), read(d))
		assert.Equal(t, attention.Nothing, decision.Need)
		assert.False(t, decision.Create || decision.Pending || decision.Report || decision.Prepare || decision.Release)
	})
	t.Run("a changed template is pending", func(t *testing.T) {
		d := deployment("d", 3)
		old := owned(d, "d-1", 3, func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" })
		decision := decideDeployment(newWorld(t, d, old), read(d))
		assert.True(t, decision.Pending)
		assert.False(t, decision.Create)
	})
	t.Run("U15: one that is to go deletes its sets", func(t *testing.T) {
		d := deployment("d", 3, going[*v1alpha1.MachineDeployment])
		decision := decideDeployment(newWorld(t, d, owned(d, "d-1", 3), owned(d, "d-2", 0)), read(d))
		assert.Len(t, decision.Delete, 2)
		assert.False(t, decision.Release)
	})
	t.Run("U4: and is released when none is left", func(t *testing.T) {
		d := deployment("d", 3, going[*v1alpha1.MachineDeployment])
		assert.True(t, decideDeployment(newWorld(t, d, set("foreign", 1)), read(d)).Release)
	})
	t.Run("is gone, also when another one has its name", func(t *testing.T) {
		w := newWorld(t, deployment("d", 3))
		for _, live := range []bool{false, true} {
			assert.True(t, decideDeployment(w, activities.Read{Ref: stranger(deployment("d", 3)), Live: live}).Gone)
			assert.True(t, decideDeployment(w, activities.Read{Ref: ref(deployment("x", 3)), Live: live}).Gone)
		}
	})
	t.Run("says what was read", func(t *testing.T) {
		d := deployment("d", 3)
		decision := decideDeployment(newWorld(t, d, owned(d, "d-1", 1)), live(d))
		assert.Equal(t, activities.Gate{observe.Deployments: "900", observe.Sets: "900"}, decision.Seen)
	})
}

func createSet(d *v1alpha1.MachineDeployment) activities.SetCreation {
	return activities.SetCreation{Deployment: ref(d), Version: d.ResourceVersion}
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
		d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{}
		d.Spec.Strategy.RollingUpdate.MaxSurge = new(intstr.FromString("50%"))
		d.Annotations = map[string]string{
			"note": "copied", v1alpha1.AnnotationLastScalerChange: "2026-01-01T00:00:00Z", v1alpha1.AnnotationEffectiveCreationTimeout: "7m",
			"kubectl.kubernetes.io/last-applied-configuration": "{}", v1alpha1.AnnotationRevision: "9", v1alpha1.AnnotationRevisionHistory: "8",
			v1alpha1.AnnotationDesiredReplicas: "9", v1alpha1.AnnotationMaxReplicas: "9", v1alpha1.AnnotationPreferNoSchedule: "True",
			v1alpha1.AnnotationUnfreeze: "1", v1alpha1.AnnotationTriggerDeletion: "m~2026-01-01T00:00:00Z",
		}
	})
	w := newWorld(t, d)
	gate := twice[activities.Gate](w, w.CreateSet, createSet(d))
	name, hash := nameOf(t, d, nil)
	s := w.set(name)
	require.NotNil(t, s, "its name follows from the template")
	labels := map[string]string{"app": "web", v1alpha1.LabelMachineTemplateHash: hash}
	assert.Equal(t, labels, s.Labels)
	assert.Equal(t, labels, s.Spec.Selector.MatchLabels)
	assert.Equal(t, labels, s.Spec.Template.Labels)
	assert.Equal(t, map[string]string{
		"note": "copied", v1alpha1.AnnotationLastScalerChange: "2026-01-01T00:00:00Z", v1alpha1.AnnotationEffectiveCreationTimeout: "7m",
		v1alpha1.AnnotationRevision: "1", v1alpha1.AnnotationDesiredReplicas: "3", v1alpha1.AnnotationMaxReplicas: "5",
	}, s.Annotations)
	assert.Equal(t, []int32{3, 5, 2}, []int32{s.Spec.Replicas, s.Spec.MinReadySeconds, s.Spec.AutoPreserveFailedMachineMax})
	assert.Equal(t, []string{v1alpha1.FinalizerMachine}, s.Finalizers)
	assert.Equal(t, "uid-d", string(s.OwnerReferences[0].UID))
	assert.Equal(t, map[string]string{"app": "web"}, w.deployment("d").Spec.Template.Labels, "the deployment itself has no hash")
	assert.Equal(t, activities.Gate{observe.Sets: s.ResourceVersion}, gate)
	assert.Equal(t, []string{"Normal ScalingMachineSet Scaled up machine set " + name + " to 3"}, w.told())
	assert.Nil(t, w.deployment("d").Status.CollisionCount)

	t.Run("U14: what the autoscaler wrote reaches the set, its list of machines does not", func(t *testing.T) {
		assert.Contains(t, s.Annotations, v1alpha1.AnnotationLastScalerChange)
		assert.NotContains(t, s.Annotations, v1alpha1.AnnotationTriggerDeletion)
	})
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
	grow := []rollout.Resize{{Name: "s", UID: "uid-s", Version: "900", From: 3, To: 5}}
	t.Run("resizes a set, if it still is what was seen", func(t *testing.T) {
		w := newWorld(t, d, owned(d, "s", 3))
		gate, err := changeSets(w, d, grow, nil)
		require.NoError(t, err)
		assert.Equal(t, int32(5), w.set("s").Spec.Replicas)
		assert.Equal(t, activities.Gate{observe.Sets: w.set("s").ResourceVersion}, gate)
		assert.Equal(t, []string{"Normal ScalingMachineSet Scaled up machine set s to 5"}, w.told())

		before := w.snapshot()
		_, err = changeSets(w, d, grow, nil)
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Equal(t, before, w.snapshot(), "run again it meets its own version")
	})
	t.Run("leaves a set alone that changed or was replaced", func(t *testing.T) {
		for _, other := range []rollout.Resize{
			{Name: "s", UID: "uid-s", Version: "899", From: 3, To: 5},
			{Name: "s", UID: "uid-of-a-former-one", Version: "900", From: 3, To: 5},
		} {
			w := newWorld(t, d, owned(d, "s", 3))
			_, err := changeSets(w, d, []rollout.Resize{other}, nil)
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

func TestFinalizeDeployment(t *testing.T) {
	t.Parallel()
	t.Run("puts our finalizer on", func(t *testing.T) {
		d := deployment("d", 2, bare)
		w := newWorld(t, d)
		assert.Equal(t, "1001", twice[string](w, w.FinalizeDeployment, read(d)))
		assert.Equal(t, []string{v1alpha1.FinalizerMachine}, w.deployment("d").Finalizers)
	})
	t.Run("U4: takes it off when no set is left", func(t *testing.T) {
		d := deployment("d", 2, going[*v1alpha1.MachineDeployment])
		d.Finalizers = append(d.Finalizers, backup)
		w := newWorld(t, d, set("foreign", 1))
		twice[string](w, w.FinalizeDeployment, read(d))
		assert.Equal(t, []string{backup}, w.deployment("d").Finalizers)
	})
	t.Run("keeps it until then", func(t *testing.T) {
		d := deployment("d", 2, going[*v1alpha1.MachineDeployment])
		w := newWorld(t, d, owned(d, "s", 0, going[*v1alpha1.MachineSet]))
		twice[string](w, w.FinalizeDeployment, read(d))
		assert.Empty(t, w.writes())
	})
	t.Run("leaves the decision to be made again when somebody was faster", func(t *testing.T) {
		d := deployment("d", 2, bare)
		w := newWorld(t, d)
		w.hold()
		w.edit(observe.Deployments, "d", annotated("note", "new"))
		_, err := run[string](w, w.FinalizeDeployment, read(d))
		assertFailure(t, err, activities.TypeConflict, false)
	})
	t.Run("knows when the deployment is gone", func(t *testing.T) {
		w := newWorld(t, deployment("d", 2))
		_, err := run[string](w, w.FinalizeDeployment, activities.Read{Ref: stranger(deployment("d", 2))})
		assertFailure(t, err, activities.TypeObjectGone, false)
	})
}
