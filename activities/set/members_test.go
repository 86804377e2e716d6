package set_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/cache"
)

func newMachineBatch(s *v1alpha1.MachineSet, machines ...*v1alpha1.Machine) set.MachineBatch {
	b := set.MachineBatch{Set: activitiestest.NewRef(s)}
	for _, m := range machines {
		b.Machines = append(
			b.Machines,
			scale.MachineTarget{Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, Why: "so"},
		)
	}
	return b
}

func TestAdoptMachines(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 2)
	other := activitiestest.NewMachineSet("other", 1)
	t.Run("makes the set their controller, and tells of it", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "mine", UID: "uid-mine"}}
		m.Annotations = map[string]string{v1alpha1.AnnotationReleasedBy: "uid-s"}
		w := activitiestest.NewWorld(t, s, m)
		versions, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).AdoptMachines,
			newMachineBatch(s, m),
		)
		require.NoError(t, err)
		got := w.Machine("m")
		assert.Equal(t, kube.MinVersions{cache.MachinesResource: got.ResourceVersion}, versions)
		assert.True(t, metav1.IsControlledBy(got, s))
		assert.Len(t, got.OwnerReferences, 2, "what else owns it stays")
		assert.NotContains(t, got.Annotations, v1alpha1.AnnotationReleasedBy)
		assert.Equal(t, []string{"Normal SuccessfulAdopt Adopted Machine: m: so"}, w.TakeNewEvents())
	})
	t.Run("takes none that has changed", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, s, m)
		w.EditObject(cache.MachinesResource, "m", activitiestest.NewAnnotationPatch("x", "y"))
		_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).AdoptMachines, newMachineBatch(s, m))
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	})
	t.Run("takes none that another set has taken", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithOwner[*v1alpha1.Machine](other))
		w := activitiestest.NewWorld(t, s, other, m)
		activitiestest.RunActivityTwice[kube.MinVersions](w, newActivities(w.Kube).AdoptMachines, newMachineBatch(s, m))
		assert.True(t, metav1.IsControlledBy(w.Machine("m"), other))
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("takes none for a set that is being deleted", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(
			t,
			activitiestest.NewMachineSet("s", 2, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet]),
			m,
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).AdoptMachines, newMachineBatch(s, m))
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("knows when the set is gone, and when a machine is", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.NewMachine("m"))
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).AdoptMachines,
			newMachineBatch(s, activitiestest.NewMachine("m")),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
		activitiestest.RunActivityTwice[kube.MinVersions](
			activitiestest.NewWorld(t, s),
			newActivities(activitiestest.NewWorld(t, s).Kube).AdoptMachines,
			newMachineBatch(s, activitiestest.NewMachine("m")),
		)
	})
}

func TestReleaseMachines(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 2)
	m := activitiestest.NewMachine("m", activitiestest.WithOwner[*v1alpha1.Machine](s))
	w := activitiestest.NewWorld(t, s, m)
	_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ReleaseMachines, newMachineBatch(s, m))
	require.NoError(t, err)
	got := w.Machine("m")
	assert.Empty(t, got.OwnerReferences)
	assert.Equal(t, "uid-s", got.Annotations[v1alpha1.AnnotationReleasedBy])
	assert.Equal(t, m.Finalizers, got.Finalizers, "it is still taken care of")
	w.ForgetRequests()
	activitiestest.RunActivityTwice[kube.MinVersions](w, newActivities(w.Kube).ReleaseMachines, newMachineBatch(s, got))
	assert.Empty(t, w.MutatingRequests())
}

func TestSyncMachines(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 2)
	s.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"team": "b"}
	m := activitiestest.NewMachine("m", activitiestest.WithOwner[*v1alpha1.Machine](s))
	w := activitiestest.NewWorld(t, s, m)
	_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).SyncMachines, newMachineBatch(s, m))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"team": "b"}, w.Machine("m").Spec.NodeTemplateSpec.Labels)
	assert.Equal(t, "shop", w.Machine("m").Annotations["team"])
	t.Run("a machine that admission refuses is told", func(t *testing.T) {
		w := activitiestest.NewWorld(t, s, m)
		activitiestest.FailRequests(
			w.MachineClient,
			"update",
			"machines",
			1,
			apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "m", assert.AnError),
			nil,
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).SyncMachines, newMachineBatch(s, m))
		activitiestest.AssertFailure(t, err, kube.FailureTypeRefused, false)
	})
}

func TestUnmarkMachines(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 2)
	m := activitiestest.NewMachine("m", activitiestest.WithOwner[*v1alpha1.Machine](s))
	m.Annotations = map[string]string{v1alpha1.AnnotationRemediateMachine: "", "x": "y"}
	w := activitiestest.NewWorld(t, s, m)
	_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).UnmarkMachines, newMachineBatch(s, m))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"x": "y"}, w.Machine("m").Annotations)
}

func TestFailedDeletionDoesNotStopOtherDeletions(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 0)
	a := activitiestest.NewMachine("a", activitiestest.WithOwner[*v1alpha1.Machine](s))
	b := activitiestest.NewMachine("b", activitiestest.WithOwner[*v1alpha1.Machine](s))
	w := activitiestest.NewWorld(t, s, a, b)
	activitiestest.FailRequests(
		w.MachineClient,
		"delete",
		"machines",
		1,
		apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "a", assert.AnError),
		nil,
	)
	done, err := activitiestest.RunActivity[set.WriteResult](
		w,
		newActivities(w.Kube).DeleteMachines,
		newMachineBatch(s, a, b),
	)
	require.NoError(t, err)
	assert.True(t, done.Failure.Deleting)
	assert.Contains(t, done.Failure.Message, "forbidden")
	assert.NotEqual(t, isBeingDeleted(w.Machine("a")), isBeingDeleted(w.Machine("b")), "the others go on")
	in := set.Report{
		Input: set.Input{ReadInput: kube.ReadInput{Ref: activitiestest.NewRef(s), Live: true}, Failure: done.Failure},
	}
	conditions := reportSet(w, in).Conditions
	assert.True(t, slices.ContainsFunc(conditions, func(c v1alpha1.MachineSetCondition) bool {
		return c.Type == v1alpha1.MachineSetReplicaFailure && c.Reason == v1alpha1.ReasonFailedDelete
	}))
}

// The annotation "unfreeze" ends one freeze. The activity removes the label and the annotation, so that a later freeze
// takes effect.
func TestAnUnfrozenSetLosesLabelAndAnnotation(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 1)
	w := activitiestest.NewWorld(t, s)
	report := func() {
		reportSet(w, set.Report{Input: set.Input{ReadInput: kube.ReadInput{Ref: activitiestest.NewRef(s), Live: true}}})
	}
	w.EditObject(
		cache.SetsResource,
		"s",
		map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelFreeze: "True", "team": "a"}}},
	)
	report()
	require.Contains(t, w.MachineSet("s").Labels, v1alpha1.LabelFreeze)
	w.EditObject(
		cache.SetsResource,
		"s",
		map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationUnfreeze: "", "note": "b"}},
		},
	)
	report()
	assert.NotContains(t, w.MachineSet("s").Labels, v1alpha1.LabelFreeze)
	assert.NotContains(t, w.MachineSet("s").Annotations, v1alpha1.AnnotationUnfreeze)
	assert.Equal(t, []string{"a", "b"}, []string{w.MachineSet("s").Labels["team"], w.MachineSet("s").Annotations["note"]})
	assert.Contains(t, w.TakeNewEvents(), "Normal UnfrozeMachineSet Unfroze MachineSet s")
	w.ForgetRequests()
	report()
	assert.Empty(t, w.MutatingRequests())
}

func TestFreezeIsReported(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 1)
	w := activitiestest.NewWorld(t, s)
	label := func(value any) {
		w.EditObject(
			cache.SetsResource,
			"s",
			map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelFreeze: value}}},
		)
		reportSet(w, set.Report{Input: set.Input{ReadInput: kube.ReadInput{Ref: activitiestest.NewRef(s), Live: true}}})
	}
	label(nil)
	assert.Empty(t, w.TakeNewEvents())
	label("True")
	assert.Equal(t, []string{"Normal FrozeMachineSet Froze MachineSet s: no machine is created"}, w.TakeNewEvents())
	label(nil)
	assert.Equal(t, []string{"Normal UnfrozeMachineSet Unfroze MachineSet s"}, w.TakeNewEvents())
}
