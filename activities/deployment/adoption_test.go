package deployment_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
)

// withLabelsOfFormerDeployment gives a set the labels that a former deployment of the same name gave to its sets.
func withLabelsOfFormerDeployment(s *v1alpha1.MachineSet) {
	s.Labels = map[string]string{"app": "web", v1alpha1.LabelMachineTemplateHash: "4711"}
	s.Spec.Template.Labels = s.Labels
}

// withOwnerUIDBeforeRestore gives a set an owner reference to its deployment with the UID from before a restore.
func withOwnerUIDBeforeRestore(s *v1alpha1.MachineSet) {
	before := activitiestest.NewDeployment("d", 2)
	before.UID = "uid-before-the-restore"
	activitiestest.WithOwner[*v1alpha1.MachineSet](before)(s)
}

func withOtherLabels(s *v1alpha1.MachineSet) { s.Labels = map[string]string{"app": "other"} }

func changeSetOwners(w *activitiestest.World, d *v1alpha1.MachineDeployment, decision rollout.Decision) error {
	_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ChangeSets, deployment.SetChanges{
		Deployment: activitiestest.NewRef(
			d,
		),
		SetChanges: rollout.SetChanges{Release: decision.Release, Adopt: decision.Adopt},
	})
	return err
}

func TestAdoptSets(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 2)
	for name, restored := range map[string]func(*v1alpha1.MachineSet){"without a controller": func(*v1alpha1.MachineSet) {}, "of a deployment that is gone": withOwnerUIDBeforeRestore} {
		for _, live := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, live %t", name, live), func(t *testing.T) {
				s := activitiestest.NewMachineSet("s", 2, withLabelsOfFormerDeployment, restored)
				w := activitiestest.NewWorld(t, d, s, activitiestest.NewMachineSet("others", 2, withOtherLabels))
				read := kube.ReadInput{Ref: activitiestest.NewRef(d), Live: live}
				decision := activitiestest.DecideDeployment(w, read)
				assert.Equal(
					t,
					[]rollout.ObjectTarget{
						{Name: "s", UID: "uid-s", Version: "900", Why: "the selector matches its labels, and it has no owner"},
					},
					decision.Rollout.Adopt,
				)
				assert.Nil(t, decision.Rollout.Create)
				require.NoError(t, changeSetOwners(w, d, decision.Rollout))
				assert.True(t, metav1.IsControlledBy(w.MachineSet("s"), d))
				assert.Len(t, w.MachineSet("s").OwnerReferences, 1)
				assert.Equal(
					t,
					[]string{"Normal SuccessfulAdopt Adopted MachineSet: s: the selector matches its labels, and it has no owner"},
					w.TakeNewEvents(),
				)
				assert.Equal(t, []string{"patch machinesets"}, w.MutatingRequests())
				w.AwaitCaches()
				next := activitiestest.DecideDeployment(w, read).Rollout
				assert.Nil(t, next.Create, "it has the template: it is the set of the deployment")
				assert.Equal(t, int64(1), next.Revision)
				assert.Equal(t, "s", next.Revise.Name)
			})
		}
	}
	s := activitiestest.NewMachineSet("s", 2, withLabelsOfFormerDeployment)
	adopt := rollout.Decision{
		SetChanges: rollout.SetChanges{Adopt: []rollout.ObjectTarget{{Name: "s", UID: "uid-s", Version: "900"}}},
	}
	t.Run("not for a deployment that is being deleted", func(t *testing.T) {
		going := activitiestest.NewDeployment("d", 2, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineDeployment])
		w := activitiestest.NewWorld(t, going, s)
		assert.False(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(going)).Rollout.HasActions())
		activitiestest.AssertFailure(t, changeSetOwners(w, going, adopt), kube.FailureTypeConflict, false)
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("not one that is being deleted", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			d,
			activitiestest.NewMachineSet(
				"s",
				2,
				withLabelsOfFormerDeployment,
				activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet],
			),
		)
		assert.Empty(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Rollout.Adopt)
	})
	t.Run("of two deployments the first takes it, and the second does not take it away", func(t *testing.T) {
		other := activitiestest.NewDeployment("other", 2)
		w := activitiestest.NewWorld(t, d, other, s)
		require.NoError(t, changeSetOwners(w, d, adopt))
		activitiestest.AssertFailure(t, changeSetOwners(w, other, adopt), kube.FailureTypeConflict, false)
		adopt.Adopt[0].Version = w.MachineSet("s").ResourceVersion
		require.NoError(t, changeSetOwners(w, other, adopt))
		assert.True(t, metav1.IsControlledBy(w.MachineSet("s"), d))
	})
	t.Run("a set that no cache has yet, and that has the name, is adopted later and is no collision", func(t *testing.T) {
		name, _ := nameAndHashOfSet(t, d, nil)
		w := activitiestest.NewWorld(t, d, activitiestest.NewMachineSet(name, 2, withLabelsOfFormerDeployment))
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).CreateSet,
			activitiestest.NewSetCreation(d),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Nil(t, w.Deployment("d").Status.CollisionCount)
	})
}

func TestReleaseSets(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 2)
	s := activitiestest.NewOwnedSet(d, "s", 2, withOtherLabels)
	w := activitiestest.NewWorld(t, d, s)
	decision := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Rollout
	assert.Equal(
		t,
		[]rollout.ObjectTarget{{Name: "s", UID: "uid-s", Version: "900", Why: "the selector does not match its labels"}},
		decision.Release,
	)
	require.NoError(t, changeSetOwners(w, d, decision))
	assert.Empty(t, w.MachineSet("s").OwnerReferences)
	assert.Equal(t, "uid-d", w.MachineSet("s").Annotations[v1alpha1.AnnotationReleasedBy])
	assert.Equal(
		t,
		[]string{"Normal SuccessfulRelease Released MachineSet: s: the selector does not match its labels"},
		w.TakeNewEvents(),
	)
	w.AwaitCaches()
	assert.NotNil(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Rollout.Create)
	t.Run("one that matches again is adopted again", func(t *testing.T) {
		w.EditObject(
			cache.SetsResource,
			"s",
			map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}},
		)
		w.AwaitCaches()
		decision := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Rollout
		require.Len(t, decision.Adopt, 1)
		require.NoError(t, changeSetOwners(w, d, decision))
		assert.NotContains(t, w.MachineSet("s").Annotations, v1alpha1.AnnotationReleasedBy)
	})
	t.Run("sets that lose their labels again and again do not become more and more", func(t *testing.T) {
		lost := func(name string) *v1alpha1.MachineSet {
			return activitiestest.NewMachineSet(name, 2, withOtherLabels, withReleasedByAnnotation("uid-d"))
		}
		one := activitiestest.NewWorld(t, d, lost("a"))
		assert.NotNil(
			t,
			activitiestest.DecideDeployment(one, activitiestest.NewReadInput(d)).Rollout.Create,
			"one may be what a person wants",
		)
		two := activitiestest.NewWorld(t, d, lost("a"), lost("b"))
		stopped := activitiestest.DecideDeployment(two, activitiestest.NewReadInput(d)).Rollout
		assert.Nil(t, stopped.Create)
		assert.Equal(
			t,
			"2 sets that were released have no owner: something changes the labels of the sets that are created",
			stopped.Why,
		)
	})
}

func withReleasedByAnnotation(uid string) func(*v1alpha1.MachineSet) {
	return func(s *v1alpha1.MachineSet) {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1alpha1.AnnotationReleasedBy, uid)
	}
}
