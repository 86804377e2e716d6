package capi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/decide/list"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	capiset "millwright/observe/capi/set"
)

var withSetAnnotation = capitest.Annotated[*clusterv1.MachineSet]

// setThatMovesMachines returns a set that moves its surplus machines to the set "next".
func setThatMovesMachines(replicas int32) *clusterv1.MachineSet {
	return capitest.Set(
		"s",
		replicas,
		capitest.OfDeployment,
		withSetAnnotation(clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next"),
	)
}

func receivingSet(from string) *clusterv1.MachineSet {
	return capitest.Set(
		"next",
		0,
		capitest.OfDeployment,
		withSetAnnotation(clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation, from),
		func(s *clusterv1.MachineSet) {
			s.Labels[clusterv1.MachineDeploymentUniqueLabel] = "hash"
		},
	)
}

func TestMachinesMoveToAnotherSet(t *testing.T) {
	s, to := setThatMovesMachines(1), receivingSet("s")
	person := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "uid-x"}
	m := capitest.Machine("m", s, func(m *clusterv1.Machine) { m.OwnerReferences = append(m.OwnerReferences, person) })
	going := capitest.Machine("going", s, capitest.Going)
	w, acts := newWorld(t, s, to, m, going)
	versions, err := activitiestest.Run[kube.MinVersions](
		w,
		acts.MoveClusterAPIMachines,
		batchOf(s, m, going, capitest.Machine("gone", s)),
	)
	require.NoError(t, err)
	now := w.ClusterAPIMachine("m")
	assert.Equal(t, kube.MinVersions{capi.MachinesResource: now.ResourceVersion}, versions)
	assert.Equal(
		t,
		[]metav1.OwnerReference{person, *metav1.NewControllerRef(to, clusterv1.GroupVersion.WithKind("MachineSet"))},
		now.OwnerReferences,
	)
	assert.Equal(t, "hash", now.Labels[clusterv1.MachineDeploymentUniqueLabel])
	assert.Equal(t, m.Labels["pool"], now.Labels["pool"])
	assert.Contains(t, now.Annotations, clusterv1.UpdateInProgressAnnotation)
	assert.Contains(t, now.Annotations, clusterv1.PendingAcknowledgeMoveAnnotation)
	assert.Equal(t, m.Spec, now.Spec)
	assert.Equal(t, going.OwnerReferences, w.ClusterAPIMachine("going").OwnerReferences)

	w.Forget()
	_, err = activitiestest.Run[kube.MinVersions](w, acts.MoveClusterAPIMachines, batchOf(s, now))
	require.NoError(t, err)
	assert.Empty(t, w.Writes(), "it has moved")
	_, err = activitiestest.Run[kube.MinVersions](w, acts.MoveClusterAPIMachines, batchOf(s, m))
	activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
}

func TestNoMachineMovesToASetThatAcceptsNone(t *testing.T) {
	for name, to := range map[string]*clusterv1.MachineSet{
		"it takes the machines of another set": receivingSet("other"), "there is none": capitest.Set("another", 0),
		"it is being deleted": func() *clusterv1.MachineSet { s := receivingSet("s"); capitest.Going(s); return s }(),
	} {
		s := setThatMovesMachines(0)
		m := capitest.Machine("m", s)
		w, acts := newWorld(t, s, to, m)
		_, err := activitiestest.Run[kube.MinVersions](w, acts.MoveClusterAPIMachines, batchOf(s, m))
		activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
		assert.Empty(t, w.Writes(), name)
	}
}

// updateDue makes a machine wait for the start of its in-place update: the machine has moved to set s, and s counts the
// machine.
func updateDue(m *clusterv1.Machine) {
	capitest.Annotated[*clusterv1.Machine](clusterv1.UpdateInProgressAnnotation, "")(m)
	capitest.Annotated[*clusterv1.Machine](clusterv1.PendingAcknowledgeMoveAnnotation, "")(m)
	m.Spec.Version = "v1.30.0"
}

// updatingSet returns a set that counts machine m, and whose templates differ from the clones of m.
func updatingSet(change ...capitest.OnSet) *clusterv1.MachineSet {
	return capitest.Set(
		"s",
		1,
		append(
			change,
			capitest.OfDeployment,
			withSetAnnotation(clusterv1.AcknowledgedMoveAnnotation, "m"),
			func(s *clusterv1.MachineSet) {
				s.Spec.Template.Spec.FailureDomain = "b"
			},
		)...)
}

func TestAnUpdateInPlaceBegins(t *testing.T) {
	s := updatingSet()
	m := capitest.Machine("m", s, updateDue, func(m *clusterv1.Machine) { m.Spec.FailureDomain = "a" })
	w, acts := newWorld(
		t,
		s,
		m,
		cloneOfTemplate(capitest.Bootstrap(), "m", ownedByMachine(m)),
		cloneOfTemplate(capitest.Infrastructure(), "m", ownedByMachine(m)),
	)
	_, err := activitiestest.Run[kube.MinVersions](w, acts.UpdateClusterAPIMachines, batchOf(s, m))
	require.NoError(t, err)
	now := w.ClusterAPIMachine("m")
	assert.Equal(t, []string{"v1.31.2", "b"}, []string{now.Spec.Version, now.Spec.FailureDomain})
	assert.Equal(t, capiset.UpdateMachineHook, now.Annotations[runtimev1.PendingHooksAnnotation])
	assert.Contains(t, now.Annotations, clusterv1.UpdateInProgressAnnotation)
	assert.NotContains(t, now.Annotations, clusterv1.PendingAcknowledgeMoveAnnotation)
	for template, o := range map[*unstructured.Unstructured]*unstructured.Unstructured{capitest.Bootstrap(): bootstrapOf(w, "m"), capitest.Infrastructure(): infrastructureOf(w, "m")} {
		wanted, _, _ := unstructured.NestedMap(template.Object, "spec", "template", "spec")
		spec, _, _ := unstructured.NestedMap(o.Object, "spec")
		assert.Subset(t, spec, wanted)
		assert.Contains(t, o.GetAnnotations(), clusterv1.UpdateInProgressAnnotation)
		assert.Equal(t, template.GetName(), o.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation])
		assert.Len(t, o.GetOwnerReferences(), 1)
	}
	assert.Equal(t, []string{"Normal SuccessfulStartInPlaceUpdate Machine starting in-place update"}, w.NewEvents())

	w.Forget()
	_, err = activitiestest.Run[kube.MinVersions](w, acts.UpdateClusterAPIMachines, batchOf(s, now))
	require.NoError(t, err)
	assert.Empty(t, w.Writes(), "it has begun")
}

// The update of a machine with a missing clone does not start. The update of a machine without bootstrap configuration
// does.
func TestAnUpdateInPlaceThatCannotBegin(t *testing.T) {
	s := updatingSet(withSetAnnotation(clusterv1.AcknowledgedMoveAnnotation, "m"))
	s.Annotations[clusterv1.AcknowledgedMoveAnnotation] = "m,n,bare"
	var machines []*clusterv1.Machine
	for _, name := range []string{"m", "n", "bare"} {
		machines = append(machines, capitest.Machine(name, s, updateDue))
	}
	machines[2].Spec.Bootstrap = clusterv1.Bootstrap{DataSecretName: new("x")}
	w, acts := newWorld(
		t,
		s,
		machines[0],
		machines[1],
		machines[2],
		cloneOfTemplate(
			capitest.Bootstrap(),
			"m",
		),
		cloneOfTemplate(capitest.Bootstrap(), "n"),
		cloneOfTemplate(capitest.Infrastructure(), "n"),
		cloneOfTemplate(capitest.Infrastructure(), "bare"),
	)
	_, err := activitiestest.Run[kube.MinVersions](w, acts.UpdateClusterAPIMachines, batchOf(s, machines...))
	activitiestest.AssertFailure(t, err, kube.TypeRefused, false)
	require.ErrorContains(t, err, "ExampleMachine shop/m does not exist: its machine cannot be updated in place")
	begun := list.Map(machines, func(m *clusterv1.Machine) bool {
		return w.ClusterAPIMachine(m.Name).Annotations[runtimev1.PendingHooksAnnotation] != ""
	})
	assert.Equal(t, []bool{false, true, true}, begun, "the others go on")

	missing := updatingSet()
	missing.Spec.Template.Spec.InfrastructureRef.Name = "other"
	m := capitest.Machine("m", missing, updateDue)
	w, acts = newWorld(t, missing, m)
	_, err = activitiestest.Run[kube.MinVersions](w, acts.UpdateClusterAPIMachines, batchOf(missing, m))
	activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
	assert.Empty(t, w.Writes())
}

// A decision names the machines to move, and the machines whose update is to start.
func TestDecideAndMoveMachines(t *testing.T) {
	s := setThatMovesMachines(0)
	m := capitest.Machine("m", s)
	w, acts := newWorld(t, s, receivingSet("s"), m)
	d, err := activitiestest.Run[set.Decision](
		w,
		acts.DecideClusterAPISet,
		set.Input{Read: kube.Read{Ref: activitiestest.Ref(s)}},
	)
	require.NoError(t, err)
	require.Len(t, d.Scale.Move, 1, d.Scale.Why)
	assert.Empty(t, d.Scale.Delete)
	_, err = activitiestest.Run[kube.MinVersions](
		w,
		acts.MoveClusterAPIMachines,
		set.Batch{Set: activitiestest.Ref(s), Machines: d.Scale.Move},
	)
	require.NoError(t, err)
	assert.True(t, metav1.IsControlledBy(w.ClusterAPIMachine("m"), receivingSet("s")))
}
