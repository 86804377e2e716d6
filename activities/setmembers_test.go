package activities_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe"
)

func batchOf(s *v1alpha1.MachineSet, machines ...*v1alpha1.Machine) activities.Batch {
	b := activities.Batch{Set: ref(s)}
	for _, m := range machines {
		b.Machines = append(b.Machines, scale.Target{Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, Why: "so"})
	}
	return b
}

func TestU52_AdoptMachines(t *testing.T) {
	t.Parallel()
	s := set("s", 2)
	other := set("other", 1)
	t.Run("makes the set their controller, and tells of it", func(t *testing.T) {
		m := machine("m")
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "mine", UID: "uid-mine"}}
		m.Annotations = map[string]string{v1alpha1.AnnotationReleasedBy: "uid-s"}
		w := newWorld(t, s, m)
		gate, err := run[activities.Gate](w, w.AdoptMachines, batchOf(s, m))
		require.NoError(t, err)
		got := w.machine("m")
		assert.Equal(t, activities.Gate{observe.Machines: got.ResourceVersion}, gate)
		assert.True(t, metav1.IsControlledBy(got, s))
		assert.Len(t, got.OwnerReferences, 2, "what else owns it stays")
		assert.NotContains(t, got.Annotations, v1alpha1.AnnotationReleasedBy)
		assert.Equal(t, []string{"Normal SuccessfulAdopt Adopted Machine: m: so"}, w.told())
	})
	t.Run("takes none that has changed", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, s, m)
		w.edit(observe.Machines, "m", annotated("x", "y"))
		_, err := run[activities.Gate](w, w.AdoptMachines, batchOf(s, m))
		assertFailure(t, err, activities.TypeConflict, false)
	})
	t.Run("takes none that another set has taken", func(t *testing.T) {
		m := machine("m", ownedBy[*v1alpha1.Machine](other))
		w := newWorld(t, s, other, m)
		twice[activities.Gate](w, w.AdoptMachines, batchOf(s, m))
		assert.True(t, metav1.IsControlledBy(w.machine("m"), other))
		assert.Empty(t, w.writes())
	})
	t.Run("takes none for a set that is to go", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, set("s", 2, going[*v1alpha1.MachineSet]), m)
		_, err := run[activities.Gate](w, w.AdoptMachines, batchOf(s, m))
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Empty(t, w.writes())
	})
	t.Run("knows when the set is gone, and when a machine is", func(t *testing.T) {
		w := newWorld(t, machine("m"))
		_, err := run[activities.Gate](w, w.AdoptMachines, batchOf(s, machine("m")))
		assertFailure(t, err, activities.TypeObjectGone, false)
		twice[activities.Gate](newWorld(t, s), newWorld(t, s).AdoptMachines, batchOf(s, machine("m")))
	})
}

func TestD10_ReleaseMachines(t *testing.T) {
	t.Parallel()
	s := set("s", 2)
	m := machine("m", ownedBy[*v1alpha1.Machine](s))
	w := newWorld(t, s, m)
	_, err := run[activities.Gate](w, w.ReleaseMachines, batchOf(s, m))
	require.NoError(t, err)
	got := w.machine("m")
	assert.Empty(t, got.OwnerReferences)
	assert.Equal(t, "uid-s", got.Annotations[v1alpha1.AnnotationReleasedBy])
	assert.Equal(t, m.Finalizers, got.Finalizers, "it is still taken care of")
	w.forget()
	twice[activities.Gate](w, w.ReleaseMachines, batchOf(s, got))
	assert.Empty(t, w.writes())
}

func TestSyncMachines(t *testing.T) {
	t.Parallel()
	s := set("s", 2)
	s.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"team": "b"}
	m := machine("m", ownedBy[*v1alpha1.Machine](s))
	w := newWorld(t, s, m)
	_, err := run[activities.Gate](w, w.SyncMachines, batchOf(s, m))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"team": "b"}, w.machine("m").Spec.NodeTemplateSpec.Labels)
	assert.Equal(t, "shop", w.machine("m").Annotations["team"])
	t.Run("a machine that admission refuses is told", func(t *testing.T) {
		w := newWorld(t, s, m)
		failing(w.machines, "update", "machines", 1, apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "m", assert.AnError), nil)
		_, err := run[activities.Gate](w, w.SyncMachines, batchOf(s, m))
		assertFailure(t, err, activities.TypeRefused, false)
	})
}

func TestUnmarkMachines(t *testing.T) {
	t.Parallel()
	s := set("s", 2)
	m := machine("m", ownedBy[*v1alpha1.Machine](s))
	m.Annotations = map[string]string{v1alpha1.AnnotationRemediateMachine: "", "x": "y"}
	w := newWorld(t, s, m)
	_, err := run[activities.Gate](w, w.UnmarkMachines, batchOf(s, m))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"x": "y"}, w.machine("m").Annotations)
}

func TestMS31_DeletionThatFailsForOneMachine(t *testing.T) {
	t.Parallel()
	s := set("s", 0)
	a, b := machine("a", ownedBy[*v1alpha1.Machine](s)), machine("b", ownedBy[*v1alpha1.Machine](s))
	w := newWorld(t, s, a, b)
	failing(w.machines, "delete", "machines", 1, apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "a", assert.AnError), nil)
	done, err := run[activities.Written](w, w.DeleteMachines, batchOf(s, a, b))
	require.NoError(t, err)
	assert.True(t, done.Failure.Deleting)
	assert.Contains(t, done.Failure.Message, "forbidden")
	assert.NotEqual(t, isGoing(w.machine("a")), isGoing(w.machine("b")), "the others go on")
	in := activities.SetReport{SetRead: activities.SetRead{Read: activities.Read{Ref: ref(s), Live: true}, Failure: done.Failure}}
	conditions := reportSet(w, in).Conditions
	assert.True(t, slices.ContainsFunc(conditions, func(c v1alpha1.MachineSetCondition) bool {
		return c.Type == v1alpha1.MachineSetReplicaFailure && c.Reason == v1alpha1.ReasonFailedDelete
	}))
}

func TestI8_FreezeIsTold(t *testing.T) {
	t.Parallel()
	s := set("s", 1)
	w := newWorld(t, s)
	label := func(value any) {
		w.edit(observe.Sets, "s", map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelFreeze: value}}})
		reportSet(w, activities.SetReport{SetRead: activities.SetRead{Read: activities.Read{Ref: ref(s), Live: true}}})
	}
	label(nil)
	assert.Empty(t, w.told())
	label("True")
	assert.Equal(t, []string{"Normal FrozeMachineSet Froze MachineSet s: no machine is created"}, w.told())
	label(nil)
	assert.Equal(t, []string{"Normal UnfrozeMachineSet Unfroze MachineSet s"}, w.told())
}
