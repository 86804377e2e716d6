package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
)

// newSetTarget returns the target for a set that has not changed since its creation.
func newSetTarget(name string) rollout.ObjectTarget {
	return rollout.ObjectTarget{Name: name, UID: "uid-" + name, Version: "900"}
}

// possibleSetChanges returns each possible change of a set, keyed by its name.
func possibleSetChanges(d *v1alpha1.MachineDeployment, target rollout.ObjectTarget) map[string]deployment.SetChanges {
	one := []rollout.ObjectTarget{target}
	return map[string]deployment.SetChanges{
		"open":  {Deployment: activitiestest.NewRef(d), SetChanges: rollout.SetChanges{AllowScaleUp: one}},
		"close": {Deployment: activitiestest.NewRef(d), SetChanges: rollout.SetChanges{ForbidScaleUp: one}},
		"revise": {
			Deployment: activitiestest.NewRef(d),
			SetChanges: rollout.SetChanges{Revise: &rollout.RevisionChange{ObjectTarget: target, Revision: 4, History: "1,2"}},
		},
		"sync": {Deployment: activitiestest.NewRef(d), SetChanges: rollout.SetChanges{Sync: one}},
		"resize": {
			Deployment: activitiestest.NewRef(d),
			SetChanges: rollout.SetChanges{
				Resize: []rollout.SetResize{{Name: target.Name, UID: target.UID, Version: target.Version, From: 3, To: 4}},
			},
		},
		"delete": {Deployment: activitiestest.NewRef(d), SetChanges: rollout.SetChanges{Delete: one}},
	}
}

// A repeated change writes nothing. A set that changed since the decision stays unchanged.
func TestOutdatedOrRepeatedSetChangesWriteNothing(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 3, withRevision[*v1alpha1.MachineDeployment]("2"))
	anew := func() *activitiestest.World {
		return activitiestest.NewWorld(
			t,
			d,
			newSettledSet(d, "s", 3, activitiestest.WithScaleUpDisabled, activitiestest.WithoutFinalizers[*v1alpha1.MachineSet]),
			newSettledSet(d, "open", 3, activitiestest.WithoutFinalizers[*v1alpha1.MachineSet]),
		)
	}
	changed, another := newSetTarget("s"), newSetTarget("s")
	changed.Version, another.UID = "899", "uid-of-a-former-one"
	for what, seen := range map[string]rollout.ObjectTarget{"another version": changed, "another one of its name": another} {
		for kind, in := range possibleSetChanges(d, seen) {
			t.Run(kind+": "+what, func(t *testing.T) {
				if kind == "resize" { // the precondition of a resize is the set's size
					in.Resize[0].From = 2
				}
				w := anew()
				before := w.Snapshot()
				_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ChangeSets, in)
				activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
				assert.Equal(t, before, w.Snapshot())
				assert.Empty(t, w.TakeNewEvents())
			})
		}
	}
	for kind, in := range possibleSetChanges(d, newSetTarget("s")) {
		t.Run(kind+": a second time", func(t *testing.T) {
			w := anew()
			d := w.Deployment("d")
			d.Spec.MinReadySeconds, d.Annotations["note"] = 7, "new" // gives each change something to write
			w.EditObject(cache.DeploymentsResource, "d", activitiestest.EncodeObject(d))
			in := in
			if kind == "close" {
				in.ForbidScaleUp = []rollout.ObjectTarget{newSetTarget("open")}
			}
			_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ChangeSets, in)
			require.NoError(t, err)
			w.AwaitCaches()
			before := w.Snapshot()
			w.TakeNewEvents()
			_, err = activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ChangeSets, in)
			if kind == "delete" {
				require.NoError(t, err, "gone is what it should be")
			} else {
				activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
			}
			assert.Equal(t, before, w.Snapshot())
			assert.Empty(t, w.TakeNewEvents())
		})
		t.Run(kind+": of a set that is gone", func(t *testing.T) {
			w := activitiestest.NewWorld(t, d)
			_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ChangeSets, in)
			if kind == "delete" {
				require.NoError(t, err)
				return
			}
			activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
			assert.ErrorContains(t, err, "shop/s", "it is not the deployment that is gone")
		})
	}
}

// After a restore of the API server, a cache may still contain the deployment from before the restore, with more
// replicas.
func TestNoSetGrowsForAnOutdatedSpec(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		seen int64
		to   int
		want []string
	}{
		"the spec that the decision saw": {2, 5, []string{"patch machinesets"}},
		"another spec":                   {3, 5, []string{}},
		"another spec, and it shrinks":   {3, 2, []string{"patch machinesets"}},
		"a decision of another version":  {0, 5, []string{"patch machinesets"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := activitiestest.NewDeployment("d", 3, func(d *v1alpha1.MachineDeployment) { d.Generation = 2 })
			w := activitiestest.NewWorld(t, d, activitiestest.NewOwnedSet(d, "s", 3))
			_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ChangeSets, deployment.SetChanges{
				Deployment: activitiestest.NewRef(d),
				Generation: row.seen,
				SetChanges: rollout.SetChanges{
					Resize: []rollout.SetResize{{Name: "s", UID: "uid-s", Version: "900", From: 3, To: row.to}},
				},
			})
			_, conflict := kube.FailureOfType(err, kube.FailureTypeConflict)
			assert.Equal(t, len(row.want) == 0, conflict)
			assert.Equal(t, row.want, w.MutatingRequests())
		})
	}
}

func TestChangeSetsAllowsAndForbidsScaleUp(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 3)
	w := activitiestest.NewWorld(
		t,
		d,
		activitiestest.NewOwnedSet(d, "closed", 1, activitiestest.WithScaleUpDisabled),
		activitiestest.NewOwnedSet(d, "open", 1),
	)
	versions, err := activitiestest.RunActivity[kube.MinVersions](
		w,
		newActivities(w.Kube).ChangeSets,
		deployment.SetChanges{
			Deployment: activitiestest.NewRef(d),
			SetChanges: rollout.SetChanges{
				AllowScaleUp:  []rollout.ObjectTarget{newSetTarget("closed")},
				ForbidScaleUp: []rollout.ObjectTarget{newSetTarget("open")},
			},
		},
	)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"app": "web"}, w.MachineSet("closed").Labels, "other labels stay")
	assert.Equal(t, map[string]string{"app": "web", v1alpha1.LabelScaleUpDisabled: "true"}, w.MachineSet("open").Labels)
	assert.Equal(
		t,
		kube.MinVersions{cache.SetsResource: w.MachineSet("open").ResourceVersion},
		versions,
		"the last version",
	)
	assert.Equal(t, []string{"patch machinesets", "patch machinesets"}, w.MutatingRequests())
}

func TestChangeSetsSetsTheRevision(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment(
		"d",
		3,
		withRevision[*v1alpha1.MachineDeployment]("3"),
		func(d *v1alpha1.MachineDeployment) {
			d.Spec.MinReadySeconds, d.Annotations["note"] = 7, "new"
		},
	)
	s := newSettledSet(
		d,
		"s",
		3,
		withRevision[*v1alpha1.MachineSet]("2"),
		func(s *v1alpha1.MachineSet) { s.Annotations["note"], s.Spec.MinReadySeconds = "old", 0 },
	)
	in := deployment.SetChanges{
		Deployment: activitiestest.NewRef(d),
		SetChanges: rollout.SetChanges{
			Revise: &rollout.RevisionChange{ObjectTarget: newSetTarget("s"), Revision: 4, History: "1,2"},
		},
	}
	t.Run("the set, and the deployment with it", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d, s)
		versions, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ChangeSets, in)
		require.NoError(t, err)
		after := w.MachineSet("s")
		assert.Equal(t, map[string]string{
			v1alpha1.AnnotationRevision: "4", v1alpha1.AnnotationRevisionHistory: "1,2", "note": "new",
			v1alpha1.AnnotationDesiredReplicas: "3", v1alpha1.AnnotationMaxReplicas: "4",
		}, after.Annotations)
		assert.Equal(t, int32(7), after.Spec.MinReadySeconds, "what is the deployment's comes with it")
		assert.Equal(t, "4", w.Deployment("d").Annotations[v1alpha1.AnnotationRevision])
		assert.Equal(
			t,
			kube.MinVersions{
				cache.SetsResource:        after.ResourceVersion,
				cache.DeploymentsResource: w.Deployment("d").ResourceVersion,
			},
			versions,
		)
		assert.Equal(t, []string{"patch machinesets", "patch machinedeployments"}, w.MutatingRequests(), "one write each")
	})
	t.Run("without a history: what the set has stays", func(t *testing.T) {
		old := s.DeepCopy()
		old.Annotations[v1alpha1.AnnotationRevisionHistory] = "1"
		w := activitiestest.NewWorld(t, d, old)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).ChangeSets,
			deployment.SetChanges{
				Deployment: activitiestest.NewRef(d),
				SetChanges: rollout.SetChanges{Revise: &rollout.RevisionChange{ObjectTarget: newSetTarget("s"), Revision: 4}},
			},
		)
		require.NoError(t, err)
		assert.Equal(t, "1", w.MachineSet("s").Annotations[v1alpha1.AnnotationRevisionHistory])
	})
	t.Run("one that was ended in between is seen to be so", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d, s)
		activitiestest.FailRequests(
			w.MachineClient,
			"patch",
			"machinedeployments",
			1,
			apierrors.NewServiceUnavailable("away"),
			nil,
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ChangeSets, in)
		require.Error(t, err)
		w.AwaitCaches()
		decision := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d))
		require.Len(t, decision.Rollout.Sync, 1)
		_, err = activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).ChangeSets,
			deployment.SetChanges{
				Deployment: activitiestest.NewRef(d),
				SetChanges: rollout.SetChanges{Sync: decision.Rollout.Sync},
			},
		)
		require.NoError(t, err)
		assert.Equal(t, "4", w.Deployment("d").Annotations[v1alpha1.AnnotationRevision])
		w.AwaitCaches()
		assert.Empty(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Rollout.Sync)
	})
}

func TestChangeSetsCopiesFieldsOfDeployment(t *testing.T) {
	t.Parallel()
	timeouts := func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
		d.Spec.AutoPreserveFailedMachineMax = 2
		d.Annotations["note"] = "new"
	}
	d := activitiestest.NewDeployment("d", 3, withRevision[*v1alpha1.MachineDeployment]("1"))
	s := newSettledSet(d, "s", 3)
	timeouts(d)
	t.Run("what is the deployment's, and rolls nothing", func(t *testing.T) {
		w := activitiestest.NewWorld(t, append(machineSetWithMachines(s), d)...)
		decision := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d))
		require.Len(t, decision.Rollout.Sync, 1)
		versions, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).ChangeSets,
			deployment.SetChanges{
				Deployment: activitiestest.NewRef(d),
				SetChanges: rollout.SetChanges{Sync: decision.Rollout.Sync},
			},
		)
		require.NoError(t, err)
		after := w.MachineSet("s")
		assert.Equal(t, d.Spec.Template.Spec.NodeTemplateSpec, after.Spec.Template.Spec.NodeTemplateSpec)
		assert.Equal(
			t,
			[]any{int32(2), "new", "1"},
			[]any{
				after.Spec.AutoPreserveFailedMachineMax,
				after.Annotations["note"],
				after.Annotations[v1alpha1.AnnotationRevision],
			},
		)
		assert.Equal(t, kube.MinVersions{cache.SetsResource: after.ResourceVersion}, versions)
		assert.Equal(t, []string{"patch machinesets"}, w.MutatingRequests(), "the deployment has its number")
		w.AwaitCaches()
		assert.Empty(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Rollout.Sync, "once is enough")
	})
	t.Run("a template that changed meanwhile is another set's", func(t *testing.T) {
		for kind, in := range possibleSetChanges(d, newSetTarget("s")) {
			if kind != "sync" && kind != "revise" {
				continue
			}
			w := activitiestest.NewWorld(t, d, s)
			w.HoldEvents()
			w.EditObject(cache.DeploymentsResource, "d", classPatch())
			before := w.Snapshot()
			_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ChangeSets, in)
			activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
			assert.Equal(t, before, w.Snapshot(), "%s: the set is a activitiestest.Former one by now", kind)
		}
	})
	t.Run("nor does one become the current one between two writes", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d, s)
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
			newActivities(w.Kube).ChangeSets,
			possibleSetChanges(d, newSetTarget("s"))["revise"],
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Equal(t, "1", w.Deployment("d").Annotations[v1alpha1.AnnotationRevision])
	})
	t.Run("a deployment that is gone, or is another", func(t *testing.T) {
		for _, gone := range []*v1alpha1.MachineDeployment{activitiestest.NewDeployment("x", 1), activitiestest.NewDeployment("d", 1, func(d *v1alpha1.MachineDeployment) { d.UID = "uid-of-a-former-one" })} {
			w := activitiestest.NewWorld(t, d, s)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).ChangeSets,
				deployment.SetChanges{
					Deployment: activitiestest.NewRef(gone),
					SetChanges: rollout.SetChanges{Sync: []rollout.ObjectTarget{newSetTarget("s")}},
				},
			)
			activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
			assert.Empty(t, w.MutatingRequests())
		}
	})
}
