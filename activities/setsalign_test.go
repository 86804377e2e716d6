package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe"
)

// seenSet names a set as it was seen first.
func seenSet(name string) rollout.Target {
	return rollout.Target{Name: name, UID: "uid-" + name, Version: "900"}
}

// setChanges are all that may be done to a set, each by itself.
func setChanges(d *v1alpha1.MachineDeployment, target rollout.Target) map[string]activities.SetChanges {
	one := []rollout.Target{target}
	return map[string]activities.SetChanges{
		"open":   {Deployment: ref(d), Open: one},
		"close":  {Deployment: ref(d), Close: one},
		"revise": {Deployment: ref(d), Revise: &rollout.Revise{Target: target, Revision: 4, History: "1,2"}},
		"sync":   {Deployment: ref(d), Sync: one},
		"resize": {Deployment: ref(d), Resize: []rollout.Resize{{Name: target.Name, UID: target.UID, Version: target.Version, From: 3, To: 4}}},
		"delete": {Deployment: ref(d), Delete: one},
	}
}

// Whatever is done to a set, it is done to the one that was looked at, and once.
func TestChangeSetsMeetsWhatTheDecisionSaw(t *testing.T) {
	t.Parallel()
	d := deployment("d", 3, revised[*v1alpha1.MachineDeployment]("2"))
	anew := func() *world {
		return newWorld(t, d, settled(d, "s", 3, forbidden, bare[*v1alpha1.MachineSet]), settled(d, "open", 3, bare[*v1alpha1.MachineSet]))
	}
	changed, another := seenSet("s"), seenSet("s")
	changed.Version, another.UID = "899", "uid-of-a-former-one"
	for what, seen := range map[string]rollout.Target{"another version": changed, "another one of its name": another} {
		for kind, in := range setChanges(d, seen) {
			t.Run(kind+": "+what, func(t *testing.T) {
				if kind == "resize" { // its size is what it has to be found with
					in.Resize[0].From = 2
				}
				w := anew()
				before := w.snapshot()
				_, err := run[activities.Gate](w, w.ChangeSets, in)
				assertFailure(t, err, activities.TypeConflict, false)
				assert.Equal(t, before, w.snapshot())
				assert.Empty(t, w.told())
			})
		}
	}
	for kind, in := range setChanges(d, seenSet("s")) {
		t.Run(kind+": a second time", func(t *testing.T) {
			w := anew()
			d := w.deployment("d")
			d.Spec.MinReadySeconds, d.Annotations["note"] = 7, "new" // so that there is something to do for all of them
			w.edit(observe.Deployments, "d", encode(d))
			in := in
			if kind == "close" {
				in.Close = []rollout.Target{seenSet("open")}
			}
			_, err := run[activities.Gate](w, w.ChangeSets, in)
			require.NoError(t, err)
			w.settle()
			before := w.snapshot()
			w.told()
			_, err = run[activities.Gate](w, w.ChangeSets, in)
			if kind == "delete" {
				require.NoError(t, err, "gone is what it should be")
			} else {
				assertFailure(t, err, activities.TypeConflict, false)
			}
			assert.Equal(t, before, w.snapshot())
			assert.Empty(t, w.told())
		})
		t.Run(kind+": of a set that is gone", func(t *testing.T) {
			w := newWorld(t, d)
			_, err := run[activities.Gate](w, w.ChangeSets, in)
			if kind == "delete" {
				require.NoError(t, err)
				return
			}
			assertFailure(t, err, activities.TypeObjectGone, false)
			assert.ErrorContains(t, err, "shop/s", "it is not the deployment that is gone")
		})
	}
}

func TestChangeSetsOpensAndCloses(t *testing.T) {
	t.Parallel()
	d := deployment("d", 3)
	w := newWorld(t, d, owned(d, "closed", 1, forbidden), owned(d, "open", 1))
	gate, err := run[activities.Gate](w, w.ChangeSets, activities.SetChanges{
		Deployment: ref(d), Open: []rollout.Target{seenSet("closed")}, Close: []rollout.Target{seenSet("open")},
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"app": "web"}, w.set("closed").Labels, "other labels stay")
	assert.Equal(t, map[string]string{v1alpha1.LabelScaleUpDisabled: "true"}, w.set("open").Labels)
	assert.Equal(t, activities.Gate{observe.Sets: w.set("open").ResourceVersion}, gate, "the last version")
	assert.Equal(t, []string{"patch machinesets", "patch machinesets"}, w.writes())
}

func TestChangeSetsRevises(t *testing.T) {
	t.Parallel()
	d := deployment("d", 3, revised[*v1alpha1.MachineDeployment]("3"), func(d *v1alpha1.MachineDeployment) {
		d.Spec.MinReadySeconds, d.Annotations["note"] = 7, "new"
	})
	s := settled(d, "s", 3, revised[*v1alpha1.MachineSet]("2"), func(s *v1alpha1.MachineSet) { s.Annotations["note"], s.Spec.MinReadySeconds = "old", 0 })
	in := activities.SetChanges{Deployment: ref(d), Revise: &rollout.Revise{Target: seenSet("s"), Revision: 4, History: "1,2"}}
	t.Run("the set, and the deployment with it", func(t *testing.T) {
		w := newWorld(t, d, s)
		gate, err := run[activities.Gate](w, w.ChangeSets, in)
		require.NoError(t, err)
		after := w.set("s")
		assert.Equal(t, map[string]string{
			v1alpha1.AnnotationRevision: "4", v1alpha1.AnnotationRevisionHistory: "1,2", "note": "new",
			v1alpha1.AnnotationDesiredReplicas: "3", v1alpha1.AnnotationMaxReplicas: "4",
		}, after.Annotations)
		assert.Equal(t, int32(7), after.Spec.MinReadySeconds, "what is the deployment's comes with it")
		assert.Equal(t, "4", w.deployment("d").Annotations[v1alpha1.AnnotationRevision])
		assert.Equal(t, activities.Gate{observe.Sets: after.ResourceVersion, observe.Deployments: w.deployment("d").ResourceVersion}, gate)
		assert.Equal(t, []string{"update machinesets", "patch machinedeployments"}, w.writes(), "one write each")
	})
	t.Run("without a history: what the set has stays", func(t *testing.T) {
		old := s.DeepCopy()
		old.Annotations[v1alpha1.AnnotationRevisionHistory] = "1"
		w := newWorld(t, d, old)
		_, err := run[activities.Gate](w, w.ChangeSets, activities.SetChanges{Deployment: ref(d), Revise: &rollout.Revise{Target: seenSet("s"), Revision: 4}})
		require.NoError(t, err)
		assert.Equal(t, "1", w.set("s").Annotations[v1alpha1.AnnotationRevisionHistory])
	})
	t.Run("one that was ended in between is seen to be so", func(t *testing.T) {
		w := newWorld(t, d, s)
		failing(w.machines, "patch", "machinedeployments", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := run[activities.Gate](w, w.ChangeSets, in)
		require.Error(t, err)
		w.settle()
		decision := decideDeployment(w, read(d))
		require.Len(t, decision.Sync, 1)
		_, err = run[activities.Gate](w, w.ChangeSets, activities.SetChanges{Deployment: ref(d), Sync: decision.Sync})
		require.NoError(t, err)
		assert.Equal(t, "4", w.deployment("d").Annotations[v1alpha1.AnnotationRevision])
		w.settle()
		assert.Empty(t, decideDeployment(w, read(d)).Sync)
	})
}

func TestChangeSetsSyncs(t *testing.T) {
	t.Parallel()
	timeouts := func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
		d.Spec.AutoPreserveFailedMachineMax = 2
		d.Annotations["note"] = "new"
	}
	d := deployment("d", 3, revised[*v1alpha1.MachineDeployment]("1"))
	s := settled(d, "s", 3)
	timeouts(d)
	t.Run("what is the deployment's, and rolls nothing", func(t *testing.T) {
		w := newWorld(t, append(staffed(s), d)...)
		decision := decideDeployment(w, read(d))
		require.Len(t, decision.Sync, 1)
		gate, err := run[activities.Gate](w, w.ChangeSets, activities.SetChanges{Deployment: ref(d), Sync: decision.Sync})
		require.NoError(t, err)
		after := w.set("s")
		assert.Equal(t, d.Spec.Template.Spec.NodeTemplateSpec, after.Spec.Template.Spec.NodeTemplateSpec)
		assert.Equal(t, []any{int32(2), "new", "1"}, []any{after.Spec.AutoPreserveFailedMachineMax, after.Annotations["note"], after.Annotations[v1alpha1.AnnotationRevision]})
		assert.Equal(t, activities.Gate{observe.Sets: after.ResourceVersion}, gate)
		assert.Equal(t, []string{"update machinesets"}, w.writes(), "the deployment has its number")
		w.settle()
		assert.Empty(t, decideDeployment(w, read(d)).Sync, "once is enough")
	})
	t.Run("a template that changed meanwhile is another set's", func(t *testing.T) {
		for kind, in := range setChanges(d, seenSet("s")) {
			if kind != "sync" && kind != "revise" {
				continue
			}
			w := newWorld(t, d, s)
			w.hold()
			w.edit(observe.Deployments, "d", anotherClass())
			before := w.snapshot()
			_, err := run[activities.Gate](w, w.ChangeSets, in)
			assertFailure(t, err, activities.TypeConflict, false)
			assert.Equal(t, before, w.snapshot(), "%s: the set is a former one by now", kind)
		}
	})
	t.Run("nor does one become the current one between two writes", func(t *testing.T) {
		w := newWorld(t, d, s)
		failing(w.machines, "patch", "machinedeployments", 1, nil, func() { w.edit(observe.Deployments, "d", anotherClass()) })
		_, err := run[activities.Gate](w, w.ChangeSets, setChanges(d, seenSet("s"))["revise"])
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Equal(t, "1", w.deployment("d").Annotations[v1alpha1.AnnotationRevision])
	})
	t.Run("a deployment that is gone, or is another", func(t *testing.T) {
		for _, gone := range []*v1alpha1.MachineDeployment{deployment("x", 1), deployment("d", 1, func(d *v1alpha1.MachineDeployment) { d.UID = "uid-of-a-former-one" })} {
			w := newWorld(t, d, s)
			_, err := run[activities.Gate](w, w.ChangeSets, activities.SetChanges{Deployment: ref(gone), Sync: []rollout.Target{seenSet("s")}})
			assertFailure(t, err, activities.TypeObjectGone, false)
			assert.Empty(t, w.writes())
		}
	})
}
