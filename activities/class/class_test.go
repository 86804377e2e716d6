package class_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/activitiestest"
	"millwright/activities/class"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/scale"
	"millwright/observe/cache"
)

func decideClass(w *activitiestest.World, in kube.ReadInput) class.Decision {
	w.T.Helper()
	return activitiestest.RunActivityTwice[class.Decision](w, newActivities(w.Kube).DecideClass, in)
}

// seenVersions are the resource versions that a decision about class small and a Secret has read.
var seenVersions = kube.MinVersions{cache.ClassesResource: "900", cache.SecretsResource: "900"}

func TestDecideClass(t *testing.T) {
	t.Parallel()
	const ours = v1alpha1.FinalizerSecret
	goes := activitiestest.WithDeletionTimestamp[*v1alpha1.MachineClass]
	for name, row := range map[string]struct {
		class *v1alpha1.MachineClass
		rest  []runtime.Object
		want  class.Decision
	}{
		"in order": {activitiestest.NewClass(activitiestest.WithSecretRefs("a")), []runtime.Object{activitiestest.NewSecretMetadata("a", ours)}, class.Decision{Why: "its finalizers are in place", Seen: seenVersions}},
		"its Secret is missing: nothing to wait for": {activitiestest.NewClass(activitiestest.WithSecretRefs("a", "b")), []runtime.Object{activitiestest.NewSecretMetadata("b", ours)}, class.Decision{Why: "its finalizers are in place", Seen: seenVersions}},
		"without finalizer, before any machine": {activitiestest.NewClass(activitiestest.WithSecretRefs("a"), activitiestest.WithoutFinalizers), []runtime.Object{activitiestest.NewSecretMetadata("a", activitiestest.BackupFinalizer)}, class.Decision{
			Need: attention.NeedFinalizers, Why: "new: our finalizer is missing", Prepare: true, Guard: []class.SecretTarget{activitiestest.NewSecretTarget("a", activitiestest.BackupFinalizer, ours)}, Seen: seenVersions,
		}},
		"its Secrets lack ours": {activitiestest.NewClass(activitiestest.WithSecretRefs("b", "a")), []runtime.Object{activitiestest.NewSecretMetadata("a"), activitiestest.NewSecretMetadata("b"), activitiestest.NewSecretMetadata("c")}, class.Decision{
			Need: attention.NeedFinalizers, Why: "2 Secrets to guard", Guard: []class.SecretTarget{activitiestest.NewSecretTarget("a", ours), activitiestest.NewSecretTarget("b", ours)}, Seen: seenVersions,
		}},
		"it was edited, and names another Secret": {activitiestest.NewClass(activitiestest.WithSecretRefs("new")), []runtime.Object{activitiestest.NewSecretMetadata("new"), activitiestest.NewSecretMetadata("old", ours, activitiestest.BackupFinalizer)}, class.Decision{
			Need: attention.NeedFinalizers, Why: "1 Secret to guard", Guard: []class.SecretTarget{activitiestest.NewSecretTarget("new", ours)}, Unguard: []class.SecretTarget{activitiestest.NewSecretTarget("old", activitiestest.BackupFinalizer)}, Seen: seenVersions,
		}},
		"it is being deleted while its machine is terminating": {activitiestest.NewClass(activitiestest.WithSecretRefs("a"), goes), []runtime.Object{activitiestest.NewSecretMetadata("a", ours), activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])}, class.Decision{
			Need: attention.NeedDeletion, Why: "deletion was asked for; 1 machine refers to it", Seen: kube.MinVersions{cache.ClassesResource: "900", cache.SecretsResource: "900", cache.MachinesResource: "900"},
		}},
		"it is being deleted: first its Secret is released": {activitiestest.NewClass(activitiestest.WithSecretRefs("a"), goes), []runtime.Object{activitiestest.NewSecretMetadata("a", ours)}, class.Decision{
			Need: attention.NeedDeletion, Why: "deletion was asked for; no machine refers to it", Unguard: []class.SecretTarget{activitiestest.NewSecretTarget("a")}, Seen: seenVersions,
		}},
		"then itself": {activitiestest.NewClass(activitiestest.WithSecretRefs("a"), goes), []runtime.Object{activitiestest.NewSecretMetadata("a")}, class.Decision{
			Need: attention.NeedDeletion, Why: "deletion was asked for; no machine refers to it", Release: true, Seen: seenVersions,
		}},
		"released already, and another finalizer holds it": {activitiestest.NewClass(activitiestest.WithSecretRefs("a"), goes, activitiestest.WithoutFinalizers), []runtime.Object{activitiestest.NewSecretMetadata("a", ours)}, class.Decision{
			Why: "released: the API server removes it", Seen: seenVersions,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := activitiestest.NewWorld(t, append(row.rest, row.class)...)
			assert.Equal(t, row.want, decideClass(w, activitiestest.NewReadInput(row.class)))
			assert.Empty(t, w.Requests(), "all of it is in the caches")
			assert.Equal(t, row.want, decideClass(w, activitiestest.NewLiveReadInput(row.class)))
		})
	}
}

func TestDecideClassThatIsGone(t *testing.T) {
	t.Parallel()
	w := activitiestest.NewWorld(t, activitiestest.NewClass())
	for _, in := range []kube.ReadInput{{Ref: activitiestest.NewFormerObjectRef(activitiestest.NewClass())}, {Ref: activitiestest.NewFormerObjectRef(activitiestest.NewClass()), Live: true}} {
		assert.Equal(t, class.Decision{Gone: true, Why: "the object is gone"}, decideClass(w, in))
	}
}

func TestDecideClassLimitsNumberOfSecrets(t *testing.T) {
	t.Parallel()
	objects := []runtime.Object{activitiestest.NewClass()}
	for i := range scale.MaxBatchSize + 10 {
		objects = append(objects, activitiestest.NewSecretMetadata(fmt.Sprintf("secret-%03d", i), v1alpha1.FinalizerSecret))
	}
	d := decideClass(activitiestest.NewWorld(t, objects...), activitiestest.NewReadInput(activitiestest.NewClass()))
	require.Len(t, d.Unguard, scale.MaxBatchSize)
	assert.Equal(t, "secret-000", d.Unguard[0].Name)
	assert.Equal(t, "60 Secrets to release: no class needs them", d.Why)
}

// If no worker serves the provider of a class, the provider may be misspelt. The status of the class names the
// providers that workers serve.
func TestAnUnservedClassNamesTheServedProviders(t *testing.T) {
	t.Parallel()
	provider := func(name, of string) *v1alpha1.MachineClass {
		return activitiestest.NewClass(func(c *v1alpha1.MachineClass) {
			c.Name, c.UID, c.Provider = name, types.UID("uid-"+name), of
		})
	}
	typo := provider("typo", "virtal")
	w := activitiestest.NewWorld(
		t,
		typo,
		provider("a", "virtual"),
		provider("b", "aws"),
		provider("c", "aws"),
		provider("d", "gone"),
	)
	w.Pollers = func(_ context.Context, _, name string) (int, error) {
		return map[string]int{"virtual": 1, "aws": 2}[name], nil
	}
	serving := decideClassOnce(w, activitiestest.NewReadInput(typo)).Serving
	require.NotNil(t, serving)
	assert.Equal(t, class.ServingState{Provider: "virtal", Unserved: true, Served: []string{"aws", "virtual"}}, *serving)
	says := func(s class.ServingState) string {
		s.ReadInput = activitiestest.NewLiveReadInput(typo)
		activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).ReportServing, s)
		return meta.FindStatusCondition(w.Class("typo").Status.Conditions, v1alpha1.ClassServed).Message
	}
	assert.Equal(
		t,
		"no worker serves provider virtal: correct the class (served: aws, virtual), or start one with --queues=provider-virtal",
		says(*serving),
	)
	serving.Served = nil
	assert.Equal(t, "no worker serves provider virtal: start one with --queues=provider-virtal", says(*serving))
}

func TestDecideClassReadsLive(t *testing.T) {
	t.Parallel()
	small := activitiestest.NewClass(activitiestest.WithDeletionTimestamp[*v1alpha1.MachineClass])
	w := activitiestest.NewWorld(t, small)
	w.HoldEvents() // the caches lack this machine
	w.CreateObjects(activitiestest.NewMachine("m"))
	assert.True(t, decideClassOnce(w, activitiestest.NewReadInput(small)).Release)
	d := decideClassOnce(w, activitiestest.NewLiveReadInput(small))
	assert.False(t, d.Release)
	assert.Equal(t, "deletion was asked for; 1 machine refers to it", d.Why)
	assert.Equal(t, w.Machine("m").ResourceVersion, d.Seen[cache.MachinesResource])
}

func decideClassOnce(w *activitiestest.World, in kube.ReadInput) class.Decision {
	w.T.Helper()
	d, err := activitiestest.RunActivity[class.Decision](w, newActivities(w.Kube).DecideClass, in)
	require.NoError(w.T, err)
	return d
}

func TestFinalizeClass(t *testing.T) {
	t.Parallel()
	goes := activitiestest.WithDeletionTimestamp[*v1alpha1.MachineClass]
	foreign := func(c *v1alpha1.MachineClass) { c.Finalizers = append(c.Finalizers, activitiestest.BackupFinalizer) }
	t.Run("puts our finalizer on", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			activitiestest.NewClass(activitiestest.WithoutFinalizers[*v1alpha1.MachineClass], foreign),
		)
		assert.Equal(
			t,
			"1001",
			activitiestest.RunActivityTwice[string](
				w,
				newActivities(w.Kube).FinalizeClass,
				activitiestest.NewReadInput(activitiestest.NewClass()),
			),
		)
		assert.Equal(t, []string{activitiestest.BackupFinalizer, v1alpha1.FinalizerMachine}, w.Class("small").Finalizers)
	})
	t.Run("keeps it while a machine is left", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			activitiestest.NewClass(goes),
			activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine]),
		)
		activitiestest.RunActivityTwice[string](
			w,
			newActivities(w.Kube).FinalizeClass,
			activitiestest.NewLiveReadInput(activitiestest.NewClass()),
		)
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("and while its Secret is held", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			activitiestest.NewClass(goes, activitiestest.WithSecretRefs("a")),
			activitiestest.NewSecretMetadata("a", v1alpha1.FinalizerSecret),
		)
		activitiestest.RunActivityTwice[string](
			w,
			newActivities(w.Kube).FinalizeClass,
			activitiestest.NewLiveReadInput(activitiestest.NewClass()),
		)
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("takes it off when neither is left", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			activitiestest.NewClass(goes, activitiestest.WithSecretRefs("a"), foreign),
			activitiestest.NewSecretMetadata("a"),
			activitiestest.NewMachine("other", func(m *v1alpha1.Machine) { m.Spec.Class.Name = "large" }),
		)
		activitiestest.RunActivityTwice[string](
			w,
			newActivities(w.Kube).FinalizeClass,
			activitiestest.NewLiveReadInput(activitiestest.NewClass()),
		)
		assert.Equal(t, []string{activitiestest.BackupFinalizer}, w.Class("small").Finalizers)
	})
	t.Run("then the class is gone, and run again it says so", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.NewClass(goes))
		_, err := activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).FinalizeClass,
			activitiestest.NewLiveReadInput(activitiestest.NewClass()),
		)
		require.NoError(t, err)
		assert.Nil(t, w.Class("small"))
		_, err = activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).FinalizeClass,
			activitiestest.NewLiveReadInput(activitiestest.NewClass()),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
	})
	t.Run("leaves the decision to be made again when somebody was faster", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.NewClass(activitiestest.WithoutFinalizers[*v1alpha1.MachineClass]))
		w.HoldEvents()
		w.EditObject(cache.ClassesResource, "small", activitiestest.NewAnnotationPatch("note", "new"))
		_, err := activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).FinalizeClass,
			activitiestest.NewReadInput(activitiestest.NewClass()),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	})
}
