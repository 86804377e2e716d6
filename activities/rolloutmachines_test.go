package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe"
)

// ofTemplate makes a set one of a template of its own, as its deployment would have made it.
func ofTemplate(hash, class string) func(*v1alpha1.MachineSet) {
	return func(s *v1alpha1.MachineSet) {
		s.Spec.Template.Labels[v1alpha1.LabelMachineTemplateHash] = hash
		s.Spec.Template.Spec.Class.Name = class
		s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", v1alpha1.LabelMachineTemplateHash: hash}}
	}
}

func moves(to *v1alpha1.MachineSet, from string, machines ...*v1alpha1.Machine) activities.MachineChanges {
	in := activities.MachineChanges{Deployment: ref(deployment("d", 3))}
	for _, t := range aimed(machines...) {
		in.Move = append(in.Move, rollout.Move{Machine: t, From: from, To: to.Name, ToUID: string(to.UID)})
	}
	return in
}

// updatedWorld holds a deployment with an old and a new set, and machines of the old one that were updated in place.
type updatedWorld struct {
	*world
	old, young *v1alpha1.MachineSet
	a, b       *v1alpha1.Machine
}

func newUpdatedWorld(t *testing.T, change ...func(*v1alpha1.MachineSet)) updatedWorld {
	t.Helper()
	d := deployment("d", 3)
	u := updatedWorld{
		old:   set("d-1", 2, ownedBy[*v1alpha1.MachineSet](d), ofTemplate("111", "small")),
		young: set("d-2", 0, append([]func(*v1alpha1.MachineSet){ownedBy[*v1alpha1.MachineSet](d), ofTemplate("222", "large")}, change...)...),
	}
	u.a = machine("a", onNode, phase(v1alpha1.MachineRunning), ownedBy[*v1alpha1.Machine](u.old))
	u.a.Labels[v1alpha1.LabelMachineTemplateHash] = "111"
	u.b = u.a.DeepCopy()
	u.b.Name, u.b.UID, u.b.Labels[v1alpha1.LabelNode] = "b", "uid-b", "n-2"
	u.world = newWorld(t, d, u.old, u.young, u.a, u.b)
	return u
}

func TestU31_MachinesAreHandedOver(t *testing.T) {
	t.Parallel()
	u := newUpdatedWorld(t, func(s *v1alpha1.MachineSet) {
		s.Spec.Template.Labels["tier"] = "front"
		s.Spec.Template.Annotations = map[string]string{"team": "shop", "version": "2"}
		s.Spec.Template.Spec.Class.Kind = "OtherClass"
		s.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "new"}
		s.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineDrainTimeout: duration(time.Hour)}
	})
	u.edit(observe.Sets, "d-1", map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"labels": map[string]any{"former": "x", "changed": "x"}, "annotations": map[string]any{"version": "1", "former": "x"},
	}}}})
	u.settle()
	u.edit(observe.Machines, "a", map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{"mine": "x", "former": "x", "changed": "y"},
		"annotations": map[string]any{"note": "x", "version": "1", "former": "x", v1alpha1.AnnotationMachinePriority: "2"},
		"ownerReferences": []any{
			map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "cm", "uid": "uid-cm"}, encode(u.a)["metadata"].(map[string]any)["ownerReferences"].([]any)[0],
		},
	}})
	before := u.machine("a")
	u.forget()
	gate, err := run[activities.Gate](u.world, u.ChangeMachines, moves(u.young, "d-1", before))
	require.NoError(t, err)
	assert.Equal(t, []string{"update machines"}, u.writes(), "in one write")
	m := u.machine("a")
	assert.Equal(t, activities.Gate{observe.Machines: m.ResourceVersion}, gate)
	assert.True(t, metav1.IsControlledBy(m, u.young))
	assert.Len(t, m.OwnerReferences, 2, "what else owns it stays, and its former set does not")
	assert.Equal(t, map[string]string{
		"app": "web", "tier": "front", "mine": "x", "changed": "y", "node": "n", "machine-template-hash": "222", "node.machine.sapcloud.io/update-result": "successful",
	}, m.Labels)
	assert.Equal(t, map[string]string{"note": "x", "team": "shop", "version": "2", v1alpha1.AnnotationMachinePriority: "2"}, m.Annotations)
	want := before.DeepCopy()
	want.Spec.Class = v1alpha1.ClassSpec{Kind: "OtherClass", Name: "large"}
	want.Spec.NodeTemplateSpec = u.young.Spec.Template.Spec.NodeTemplateSpec
	want.Spec.MachineConfiguration = u.young.Spec.Template.Spec.MachineConfiguration
	assert.Equal(t, want.Spec, m.Spec, "the instance is the same")
	assert.Equal(t, before.Status, m.Status)
	assert.Equal(t, before.Finalizers, m.Finalizers)
	assert.Equal(t, []string{"Normal SuccessfulAdopt Adopted Machine: a: so"}, u.told())
	u.settle()
	family := u.Cluster.MembersOf([]*v1alpha1.MachineSet{u.young})
	require.Len(t, family, 1)
	assert.Empty(t, observe.FollowTemplate(family[0].DeepCopy(), u.young), "its set has nothing to bring up to date")

	u.forget()
	_, err = run[activities.Gate](u.world, u.ChangeMachines, moves(u.young, "d-1", before))
	assertFailure(t, err, activities.TypeConflict, false)
	twice[activities.Gate](u.world, u.ChangeMachines, moves(u.young, "d-1", m))
	assert.Empty(t, u.writes())
}

func TestU31_WhatTheOldSetWouldFindGoes(t *testing.T) {
	t.Parallel()
	u := newUpdatedWorld(t)
	u.edit(observe.Sets, "d-1", map[string]any{"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"line": "one", "app": "web"}}}})
	u.edit(observe.Machines, "a", map[string]any{"metadata": map[string]any{"labels": map[string]any{"line": "one"}}})
	u.edit(observe.Machines, "b", map[string]any{"metadata": map[string]any{"labels": map[string]any{"line": "one"}}, "status": map[string]any{}})
	u.settle()
	failed := u.machine("b")
	failed.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
	u.rewrite(failed)
	_, err := run[activities.Gate](u.world, u.ChangeMachines, moves(u.young, "d-1", u.machine("a"), u.machine("b")))
	require.NoError(t, err)
	for _, name := range []string{"a", "b"} {
		labels := u.machine(name).Labels
		assert.NotContains(t, labels, "line")
		assert.Equal(t, "222", labels[v1alpha1.LabelMachineTemplateHash], "one that has failed is the new set's, too")
		assert.Equal(t, "web", labels["app"])
	}
	_, err = run[activities.Gate](u.world, u.ChangeMachines, moves(u.young, "a-set-that-is-gone", u.machine("a")))
	require.NoError(t, err)
}

func TestHandOverIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.MachineSet){
		"the set is going":            going[*v1alpha1.MachineSet],
		"another set has its name":    func(s *v1alpha1.MachineSet) { s.UID = "uid-other" },
		"nobody owns the set":         func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil },
		"another deployment owns it":  ownedBy[*v1alpha1.MachineSet](deployment("other", 1)),
		"the set has gone altogether": func(s *v1alpha1.MachineSet) { s.Name = "d-3" },
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpdatedWorld(t, change)
			u.young.Name, u.young.UID = "d-2", "uid-d-2"
			_, err := run[activities.Gate](u.world, u.ChangeMachines, moves(u.young, "d-1", u.a, u.b))
			assertFailure(t, err, activities.TypeConflict, false)
			assert.Empty(t, u.writes())
		})
	}
	t.Run("a machine that changed: the others are handed over", func(t *testing.T) {
		u := newUpdatedWorld(t)
		u.edit(observe.Machines, "a", annotated("x", "y"))
		_, err := run[activities.Gate](u.world, u.ChangeMachines, moves(u.young, "d-1", u.a, u.b))
		assertFailure(t, err, activities.TypeConflict, false)
		assert.True(t, metav1.IsControlledBy(u.machine("a"), u.old))
		assert.True(t, metav1.IsControlledBy(u.machine("b"), u.young))
	})
	t.Run("a machine that is gone, or has gone and come again, is passed over", func(t *testing.T) {
		u := newUpdatedWorld(t)
		former := u.b.DeepCopy()
		former.UID = "uid-former"
		twice[activities.Gate](u.world, u.ChangeMachines, moves(u.young, "d-1", machine("gone"), former))
		assert.Empty(t, u.writes())
	})
	t.Run("the set cannot be read", func(t *testing.T) {
		u := newUpdatedWorld(t)
		failing(u.machines, "get", "machinesets", 1, apierrors.NewTooManyRequests("later", 1), nil)
		_, err := run[activities.Gate](u.world, u.ChangeMachines, moves(u.young, "d-1", u.a))
		require.ErrorContains(t, err, "get set shop/d-2: later")
		assert.Empty(t, u.writes())
	})
	t.Run("admission refuses it", func(t *testing.T) {
		u := newUpdatedWorld(t)
		failing(u.machines, "update", "machines", 1, apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "a", nil), nil)
		_, err := run[activities.Gate](u.world, u.ChangeMachines, moves(u.young, "d-1", u.a))
		assertFailure(t, err, activities.TypeRefused, false)
	})
}

func TestU30_AMachineThatIsCountedLosesItsProtection(t *testing.T) {
	t.Parallel()
	u := newUpdatedWorld(t)
	u.edit(observe.Machines, "a", map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelUpdateResult: "successful"}}})
	in := activities.MachineChanges{Deployment: ref(deployment("d", 3)), Accept: aimed(u.machine("a"), u.b)}
	gate, err := run[activities.Gate](u.world, u.ChangeMachines, in)
	require.NoError(t, err)
	want := u.a.Labels
	assert.Equal(t, want, u.machine("a").Labels)
	assert.Equal(t, []string{"update machines"}, u.writes(), "the other one has none")
	assert.Equal(t, activities.Gate{observe.Machines: u.machine("a").ResourceVersion}, gate)
	assert.Empty(t, u.told())
	_, err = run[activities.Gate](u.world, u.ChangeMachines, in)
	assertFailure(t, err, activities.TypeConflict, false)
	in.Accept = aimed(u.machine("a"))
	twice[activities.Gate](u.world, u.ChangeMachines, in)
}
