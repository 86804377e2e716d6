package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	observeset "millwright/observe/set"
)

// withTemplate gives a set its own template, as its deployment would have created it.
func withTemplate(hash, class string) func(*v1alpha1.MachineSet) {
	return func(s *v1alpha1.MachineSet) {
		s.Spec.Template.Labels[v1alpha1.LabelMachineTemplateHash] = hash
		s.Spec.Template.Spec.Class.Name = class
		s.Spec.Selector = &metav1.LabelSelector{
			MatchLabels: map[string]string{"app": "web", v1alpha1.LabelMachineTemplateHash: hash},
		}
	}
}

func newMachineMoves(to *v1alpha1.MachineSet, from string, machines ...*v1alpha1.Machine) deployment.MachineChanges {
	in := deployment.MachineChanges{Deployment: activitiestest.NewRef(activitiestest.NewDeployment("d", 3))}
	for _, t := range targetsOf(machines...) {
		in.Move = append(in.Move, rollout.MachineMove{Machine: t, From: from, To: to.Name, ToUID: string(to.UID)})
	}
	return in
}

// worldWithOldAndNewSet holds a deployment with an old and a new set. The machines of the old set were updated in
// place.
type worldWithOldAndNewSet struct {
	*activitiestest.World
	oldSet, newSet     *v1alpha1.MachineSet
	machineA, machineB *v1alpha1.Machine
}

func newWorldWithOldAndNewSet(t *testing.T, change ...func(*v1alpha1.MachineSet)) worldWithOldAndNewSet {
	t.Helper()
	d := activitiestest.NewDeployment("d", 3)
	u := worldWithOldAndNewSet{
		oldSet: activitiestest.NewMachineSet(
			"d-1",
			2,
			activitiestest.WithOwner[*v1alpha1.MachineSet](d),
			withTemplate("111", "small"),
		),
		newSet: activitiestest.NewMachineSet(
			"d-2",
			0,
			append(
				[]func(*v1alpha1.MachineSet){activitiestest.WithOwner[*v1alpha1.MachineSet](d), withTemplate("222", "large")},
				change...)...),
	}
	u.machineA = activitiestest.NewMachine(
		"a",
		activitiestest.WithNode,
		activitiestest.WithPhase(v1alpha1.MachineRunning),
		activitiestest.WithOwner[*v1alpha1.Machine](u.oldSet),
	)
	u.machineA.Labels[v1alpha1.LabelMachineTemplateHash] = "111"
	u.machineB = u.machineA.DeepCopy()
	u.machineB.Name, u.machineB.UID, u.machineB.Labels[v1alpha1.LabelNode] = "b", "uid-b", "n-2"
	u.World = activitiestest.NewWorld(t, d, u.oldSet, u.newSet, u.machineA, u.machineB)
	return u
}

func TestMachinesAreHandedOver(t *testing.T) {
	t.Parallel()
	u := newWorldWithOldAndNewSet(t, func(s *v1alpha1.MachineSet) {
		s.Spec.Template.Labels["tier"] = "front"
		s.Spec.Template.Annotations = map[string]string{"team": "shop", "version": "2"}
		s.Spec.Template.Spec.Class.Kind = "OtherClass"
		s.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "new"}
		s.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineDrainTimeout: activitiestest.NewDuration(time.Hour),
		}
	})
	u.EditObject(
		cache.SetsResource,
		"d-1",
		map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
			"labels": map[string]any{
				"former":  "x",
				"changed": "x",
			},
			"annotations": map[string]any{"version": "1", "former": "x"},
		}}}},
	)
	u.AwaitCaches()
	u.EditObject(cache.MachinesResource, "a", map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{"mine": "x", "former": "x", "changed": "y"},
		"annotations": map[string]any{"note": "x", "version": "1", "former": "x", v1alpha1.AnnotationMachinePriority: "2"},
		"ownerReferences": []any{
			map[string]any{
				"apiVersion": "v1",
				"kind":       "ConfigMap",
				"name":       "cm",
				"uid":        "uid-cm",
			},
			activitiestest.EncodeObject(u.machineA)["metadata"].(map[string]any)["ownerReferences"].([]any)[0],
		},
	}})
	before := u.Machine("a")
	u.ForgetRequests()
	versions, err := activitiestest.RunActivity[kube.MinVersions](
		u.World,
		newActivities(u.Kube).ChangeMachines,
		newMachineMoves(u.newSet, "d-1", before),
	)
	require.NoError(t, err)
	assert.Equal(t, []string{"update machines"}, u.MutatingRequests(), "in one write")
	m := u.Machine("a")
	assert.Equal(t, kube.MinVersions{cache.MachinesResource: m.ResourceVersion}, versions)
	assert.True(t, metav1.IsControlledBy(m, u.newSet))
	assert.Len(t, m.OwnerReferences, 2, "what else owns it stays, and its former set does not")
	assert.Equal(t, map[string]string{
		"app":                                    "web",
		"tier":                                   "front",
		"mine":                                   "x",
		"changed":                                "y",
		"node":                                   "n",
		"machine-template-hash":                  "222",
		"node.machine.sapcloud.io/update-result": "successful",
	}, m.Labels)
	assert.Equal(
		t,
		map[string]string{"note": "x", "team": "shop", "version": "2", v1alpha1.AnnotationMachinePriority: "2"},
		m.Annotations,
	)
	want := before.DeepCopy()
	want.Spec.Class = v1alpha1.ClassSpec{Kind: "OtherClass", Name: "large"}
	want.Spec.NodeTemplateSpec = u.newSet.Spec.Template.Spec.NodeTemplateSpec
	want.Spec.MachineConfiguration = u.newSet.Spec.Template.Spec.MachineConfiguration
	assert.Equal(t, want.Spec, m.Spec, "the instance is the same")
	assert.Equal(t, before.Status, m.Status)
	assert.Equal(t, before.Finalizers, m.Finalizers)
	assert.Equal(t, []string{"Normal SuccessfulAdopt Adopted Machine: a: so"}, u.TakeNewEvents())
	u.AwaitCaches()
	tree := u.Cluster.MachinesOfSets([]*v1alpha1.MachineSet{u.newSet})
	require.Len(t, tree, 1)
	assert.Empty(t, observeset.CopyTemplateFields(tree[0].DeepCopy(), u.newSet), "its set has nothing to bring up to date")

	u.ForgetRequests()
	_, err = activitiestest.RunActivity[kube.MinVersions](
		u.World,
		newActivities(u.Kube).ChangeMachines,
		newMachineMoves(u.newSet, "d-1", before),
	)
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	activitiestest.RunActivityTwice[kube.MinVersions](
		u.World,
		newActivities(u.Kube).ChangeMachines,
		newMachineMoves(u.newSet, "d-1", m),
	)
	assert.Empty(t, u.MutatingRequests())
}

func TestLabelsOfTheOldSetAreRemoved(t *testing.T) {
	t.Parallel()
	u := newWorldWithOldAndNewSet(t)
	u.EditObject(
		cache.SetsResource,
		"d-1",
		map[string]any{
			"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"line": "one", "app": "web"}}},
		},
	)
	u.EditObject(
		cache.MachinesResource,
		"a",
		map[string]any{"metadata": map[string]any{"labels": map[string]any{"line": "one"}}},
	)
	u.EditObject(
		cache.MachinesResource,
		"b",
		map[string]any{"metadata": map[string]any{"labels": map[string]any{"line": "one"}}, "status": map[string]any{}},
	)
	u.AwaitCaches()
	failed := u.Machine("b")
	failed.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
	u.WriteStatus(failed)
	_, err := activitiestest.RunActivity[kube.MinVersions](
		u.World,
		newActivities(u.Kube).ChangeMachines,
		newMachineMoves(u.newSet, "d-1", u.Machine("a"), u.Machine("b")),
	)
	require.NoError(t, err)
	for _, name := range []string{"a", "b"} {
		labels := u.Machine(name).Labels
		assert.NotContains(t, labels, "line")
		assert.Equal(t, "222", labels[v1alpha1.LabelMachineTemplateHash], "one that has failed is the new set's, too")
		assert.Equal(t, "web", labels["app"])
	}
	_, err = activitiestest.RunActivity[kube.MinVersions](
		u.World,
		newActivities(u.Kube).ChangeMachines,
		newMachineMoves(u.newSet, "a-set-that-is-gone", u.Machine("a")),
	)
	require.NoError(t, err)
}

func TestHandOverOfAMachineIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.MachineSet){
		"the set is going":            activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet],
		"another set has its name":    func(s *v1alpha1.MachineSet) { s.UID = "uid-other" },
		"nobody owns the set":         func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil },
		"another deployment owns it":  activitiestest.WithOwner[*v1alpha1.MachineSet](activitiestest.NewDeployment("other", 1)),
		"the set has gone altogether": func(s *v1alpha1.MachineSet) { s.Name = "d-3" },
	} {
		t.Run(name, func(t *testing.T) {
			u := newWorldWithOldAndNewSet(t, change)
			u.newSet.Name, u.newSet.UID = "d-2", "uid-d-2"
			_, err := activitiestest.RunActivity[kube.MinVersions](
				u.World,
				newActivities(u.Kube).ChangeMachines,
				newMachineMoves(u.newSet, "d-1", u.machineA, u.machineB),
			)
			activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
			assert.Empty(t, u.MutatingRequests())
		})
	}
	t.Run("a machine that changed: the others are handed over", func(t *testing.T) {
		u := newWorldWithOldAndNewSet(t)
		u.EditObject(cache.MachinesResource, "a", activitiestest.NewAnnotationPatch("x", "y"))
		_, err := activitiestest.RunActivity[kube.MinVersions](
			u.World,
			newActivities(u.Kube).ChangeMachines,
			newMachineMoves(u.newSet, "d-1", u.machineA, u.machineB),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.True(t, metav1.IsControlledBy(u.Machine("a"), u.oldSet))
		assert.True(t, metav1.IsControlledBy(u.Machine("b"), u.newSet))
	})
	t.Run("a machine that is gone, or has gone and come again, is passed over", func(t *testing.T) {
		u := newWorldWithOldAndNewSet(t)
		former := u.machineB.DeepCopy()
		former.UID = "uid-former"
		activitiestest.RunActivityTwice[kube.MinVersions](
			u.World,
			newActivities(u.Kube).ChangeMachines,
			newMachineMoves(u.newSet, "d-1", activitiestest.NewMachine("gone"), former),
		)
		assert.Empty(t, u.MutatingRequests())
	})
	t.Run("the set cannot be read", func(t *testing.T) {
		u := newWorldWithOldAndNewSet(t)
		activitiestest.FailRequests(u.MachineClient, "get", "machinesets", 1, apierrors.NewTooManyRequests("later", 1), nil)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			u.World,
			newActivities(u.Kube).ChangeMachines,
			newMachineMoves(u.newSet, "d-1", u.machineA),
		)
		require.ErrorContains(t, err, "get set shop/d-2: later")
		assert.Empty(t, u.MutatingRequests())
	})
	t.Run("admission refuses it", func(t *testing.T) {
		u := newWorldWithOldAndNewSet(t)
		activitiestest.FailRequests(
			u.MachineClient,
			"update",
			"machines",
			1,
			apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "a", nil),
			nil,
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			u.World,
			newActivities(u.Kube).ChangeMachines,
			newMachineMoves(u.newSet, "d-1", u.machineA),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeRefused, false)
	})
}

func TestUpdateResultLabelIsRemovedFromMachine(t *testing.T) {
	t.Parallel()
	u := newWorldWithOldAndNewSet(t)
	u.EditObject(
		cache.MachinesResource,
		"a",
		map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelUpdateResult: "successful"}}},
	)
	in := deployment.MachineChanges{
		Deployment:     activitiestest.NewRef(activitiestest.NewDeployment("d", 3)),
		MachineChanges: rollout.MachineChanges{ClearUpdateResult: targetsOf(u.Machine("a"), u.machineB)},
	}
	versions, err := activitiestest.RunActivity[kube.MinVersions](u.World, newActivities(u.Kube).ChangeMachines, in)
	require.NoError(t, err)
	want := u.machineA.Labels
	assert.Equal(t, want, u.Machine("a").Labels)
	assert.Equal(t, []string{"update machines"}, u.MutatingRequests(), "the other one has none")
	assert.Equal(t, kube.MinVersions{cache.MachinesResource: u.Machine("a").ResourceVersion}, versions)
	assert.Empty(t, u.TakeNewEvents())
	_, err = activitiestest.RunActivity[kube.MinVersions](u.World, newActivities(u.Kube).ChangeMachines, in)
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	in.ClearUpdateResult = targetsOf(u.Machine("a"))
	activitiestest.RunActivityTwice[kube.MinVersions](u.World, newActivities(u.Kube).ChangeMachines, in)
}
