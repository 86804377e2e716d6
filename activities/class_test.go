package activities_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/scale"
	"millwright/observe"
)

// keys is the metadata of a Secret.
func keys(name string, finalizers ...string) *metav1.PartialObjectMetadata {
	s := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metadata(name)}
	s.Finalizers = finalizers
	return s
}

func (w *world) class(name string) *v1alpha1.MachineClass {
	return stored[v1alpha1.MachineClass](w.machines.Tracker(), "machineclasses", shop, name)
}

// keys returns the metadata of a Secret as the API server has it now; nil when it is gone.
func (w *world) keys(name string) *metav1.PartialObjectMetadata {
	object, err := w.meta.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), shop, name)
	if err != nil {
		return nil
	}
	return object.(*metav1.PartialObjectMetadata)
}

func needing(secrets ...string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) {
		c.SecretRef = secretRef("", secrets[0])
		if len(secrets) > 1 {
			c.CredentialsSecretRef = secretRef(shop, secrets[1])
		}
	}
}

func decideClass(w *world, in activities.Read) activities.ClassDecision {
	w.t.Helper()
	return twice[activities.ClassDecision](w, w.DecideClass, in)
}

func target(name string, finalizers ...string) activities.SecretTarget {
	return activities.SecretTarget{Name: name, UID: "uid-" + name, Version: "900", Finalizers: append([]string{}, finalizers...)}
}

// aSeen is what a decision about the class small and a Secret has read.
var aSeen = activities.Gate{observe.Classes: "900", observe.Secrets: "900"}

func TestDecideClass(t *testing.T) {
	t.Parallel()
	const ours = v1alpha1.FinalizerSecret
	goes := going[*v1alpha1.MachineClass]
	for name, row := range map[string]struct {
		class *v1alpha1.MachineClass
		rest  []runtime.Object
		want  activities.ClassDecision
	}{
		"U171: in order": {class(needing("a")), []runtime.Object{keys("a", ours)}, activities.ClassDecision{Why: "its finalizers are in place", Seen: aSeen}},
		"U171: its Secret is missing: nothing to wait for": {class(needing("a", "b")), []runtime.Object{keys("b", ours)}, activities.ClassDecision{Why: "its finalizers are in place", Seen: aSeen}},
		"U170, U171: without finalizer, before any machine": {class(needing("a"), bare), []runtime.Object{keys("a", backup)}, activities.ClassDecision{
			Need: attention.Finalizers, Why: "new: not yet taken care of", Prepare: true, Guard: []activities.SecretTarget{target("a", backup, ours)}, Seen: aSeen,
		}},
		"U170: its Secrets lack ours": {class(needing("b", "a")), []runtime.Object{keys("a"), keys("b"), keys("c")}, activities.ClassDecision{
			Need: attention.Finalizers, Why: "2 Secrets to guard", Guard: []activities.SecretTarget{target("a", ours), target("b", ours)}, Seen: aSeen,
		}},
		"U170: it was edited, and names another Secret": {class(needing("new")), []runtime.Object{keys("new"), keys("old", ours, backup)}, activities.ClassDecision{
			Need: attention.Finalizers, Why: "1 Secrets to guard", Guard: []activities.SecretTarget{target("new", ours)}, Unguard: []activities.SecretTarget{target("old", backup)}, Seen: aSeen,
		}},
		"N11: it is to go while its machine is terminating": {class(needing("a"), goes), []runtime.Object{keys("a", ours), machine("m", going[*v1alpha1.Machine])}, activities.ClassDecision{
			Need: attention.Deletion, Why: "deletion was asked for; 1 machines refer to it", Seen: activities.Gate{observe.Classes: "900", observe.Secrets: "900", observe.Machines: "900"},
		}},
		"U170: it is to go: first its Secret is released": {class(needing("a"), goes), []runtime.Object{keys("a", ours)}, activities.ClassDecision{
			Need: attention.Deletion, Why: "deletion was asked for; no machine refers to it", Unguard: []activities.SecretTarget{target("a")}, Seen: aSeen,
		}},
		"U170: then itself": {class(needing("a"), goes), []runtime.Object{keys("a")}, activities.ClassDecision{
			Need: attention.Deletion, Why: "deletion was asked for; no machine refers to it", Release: true, Seen: aSeen,
		}},
		"released already, and another finalizer holds it": {class(needing("a"), goes, bare), []runtime.Object{keys("a", ours)}, activities.ClassDecision{
			Why: "released: the API server removes it", Seen: aSeen,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, append(row.rest, row.class)...)
			assert.Equal(t, row.want, decideClass(w, read(row.class)))
			assert.Empty(t, w.requests(), "all of it is in the caches")
			assert.Equal(t, row.want, decideClass(w, live(row.class)))
		})
	}
}

func TestDecideClassGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, class())
	for _, in := range []activities.Read{{Ref: stranger(class())}, {Ref: stranger(class()), Live: true}} {
		assert.Equal(t, activities.ClassDecision{Gone: true, Why: "the object is gone"}, decideClass(w, in))
	}
}

func TestDecideClassIsBounded(t *testing.T) {
	t.Parallel()
	objects := []runtime.Object{class()}
	for i := range scale.MaxBatch + 10 {
		objects = append(objects, keys(fmt.Sprintf("secret-%03d", i), v1alpha1.FinalizerSecret))
	}
	d := decideClass(newWorld(t, objects...), read(class()))
	require.Len(t, d.Unguard, scale.MaxBatch)
	assert.Equal(t, "secret-000", d.Unguard[0].Name)
	assert.Equal(t, "60 Secrets to release: no class needs them", d.Why)
}

func TestDecideClassReadsLive(t *testing.T) {
	t.Parallel()
	small := class(going[*v1alpha1.MachineClass])
	w := newWorld(t, small)
	w.hold() // a machine that no cache shows yet
	w.create(machine("m"))
	assert.True(t, decideClassOnce(w, read(small)).Release)
	d := decideClassOnce(w, live(small))
	assert.False(t, d.Release)
	assert.Equal(t, "deletion was asked for; 1 machines refer to it", d.Why)
	assert.Equal(t, w.machine("m").ResourceVersion, d.Seen[observe.Machines])
}

func decideClassOnce(w *world, in activities.Read) activities.ClassDecision {
	w.t.Helper()
	d, err := run[activities.ClassDecision](w, w.DecideClass, in)
	require.NoError(w.t, err)
	return d
}

func TestFinalizeClass(t *testing.T) {
	t.Parallel()
	goes := going[*v1alpha1.MachineClass]
	foreign := func(c *v1alpha1.MachineClass) { c.Finalizers = append(c.Finalizers, backup) }
	t.Run("U170: puts our finalizer on", func(t *testing.T) {
		w := newWorld(t, class(bare[*v1alpha1.MachineClass], foreign))
		assert.Equal(t, "1001", twice[string](w, w.FinalizeClass, read(class())))
		assert.Equal(t, []string{backup, v1alpha1.FinalizerMachine}, w.class("small").Finalizers)
	})
	t.Run("N11: keeps it while a machine is left", func(t *testing.T) {
		w := newWorld(t, class(goes), machine("m", going[*v1alpha1.Machine]))
		twice[string](w, w.FinalizeClass, live(class()))
		assert.Empty(t, w.writes())
	})
	t.Run("U170: and while its Secret is held", func(t *testing.T) {
		w := newWorld(t, class(goes, needing("a")), keys("a", v1alpha1.FinalizerSecret))
		twice[string](w, w.FinalizeClass, live(class()))
		assert.Empty(t, w.writes())
	})
	t.Run("U170: takes it off when neither is left", func(t *testing.T) {
		w := newWorld(t, class(goes, needing("a"), foreign), keys("a"), machine("other", func(m *v1alpha1.Machine) { m.Spec.Class.Name = "large" }))
		twice[string](w, w.FinalizeClass, live(class()))
		assert.Equal(t, []string{backup}, w.class("small").Finalizers)
	})
	t.Run("then the class is gone, and run again it says so", func(t *testing.T) {
		w := newWorld(t, class(goes))
		_, err := run[string](w, w.FinalizeClass, live(class()))
		require.NoError(t, err)
		assert.Nil(t, w.class("small"))
		_, err = run[string](w, w.FinalizeClass, live(class()))
		assertFailure(t, err, activities.TypeObjectGone, false)
	})
	t.Run("leaves the decision to be made again when somebody was faster", func(t *testing.T) {
		w := newWorld(t, class(bare[*v1alpha1.MachineClass]))
		w.hold()
		w.edit(observe.Classes, "small", annotated("note", "new"))
		_, err := run[string](w, w.FinalizeClass, read(class()))
		assertFailure(t, err, activities.TypeConflict, false)
	})
}
