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

var noted = capitest.Annotated[*clusterv1.MachineSet]

// sender hands its surplus over to the set next, and receiver is that set.
func sender(replicas int32) *clusterv1.MachineSet {
	return capitest.Set(
		"s",
		replicas,
		capitest.OfDeployment,
		noted(clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next"),
	)
}

func receiver(from string) *clusterv1.MachineSet {
	return capitest.Set(
		"next",
		0,
		capitest.OfDeployment,
		noted(clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation, from),
		func(s *clusterv1.MachineSet) {
			s.Labels[clusterv1.MachineDeploymentUniqueLabel] = "hash"
		},
	)
}

func TestMachinesMoveToAnotherSet(t *testing.T) {
	s, to := sender(1), receiver("s")
	person := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "uid-x"}
	m := capitest.Machine("m", s, func(m *clusterv1.Machine) { m.OwnerReferences = append(m.OwnerReferences, person) })
	going := capitest.Machine("going", s, capitest.Going)
	w, acts := world(t, s, to, m, going)
	versions, err := activitiestest.Run[kube.MinVersions](
		w,
		acts.MoveClusterAPIMachines,
		batch(s, m, going, capitest.Machine("gone", s)),
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
	_, err = activitiestest.Run[kube.MinVersions](w, acts.MoveClusterAPIMachines, batch(s, now))
	require.NoError(t, err)
	assert.Empty(t, w.Writes(), "it has moved")
	_, err = activitiestest.Run[kube.MinVersions](w, acts.MoveClusterAPIMachines, batch(s, m))
	activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
}

func TestNothingMovesToASetThatTakesNothing(t *testing.T) {
	for name, to := range map[string]*clusterv1.MachineSet{
		"it takes the machines of another set": receiver("other"), "there is none": capitest.Set("another", 0),
		"it is being deleted": func() *clusterv1.MachineSet { s := receiver("s"); capitest.Going(s); return s }(),
	} {
		s := sender(0)
		m := capitest.Machine("m", s)
		w, acts := world(t, s, to, m)
		_, err := activitiestest.Run[kube.MinVersions](w, acts.MoveClusterAPIMachines, batch(s, m))
		activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
		assert.Empty(t, w.Writes(), name)
	}
}

// due is a machine whose update in place its set has to begin: it has moved to set s, which counts it.
func due(m *clusterv1.Machine) {
	capitest.Annotated[*clusterv1.Machine](clusterv1.UpdateInProgressAnnotation, "")(m)
	capitest.Annotated[*clusterv1.Machine](clusterv1.PendingAcknowledgeMoveAnnotation, "")(m)
	m.Spec.Version = "v1.30.0"
}

// updating is a set that counts machine m, and whose templates differ from the clones of that machine.
func updating(change ...capitest.OnSet) *clusterv1.MachineSet {
	return capitest.Set(
		"s",
		1,
		append(
			change,
			capitest.OfDeployment,
			noted(clusterv1.AcknowledgedMoveAnnotation, "m"),
			func(s *clusterv1.MachineSet) {
				s.Spec.Template.Spec.FailureDomain = "b"
			},
		)...)
}

func TestAnUpdateInPlaceBegins(t *testing.T) {
	s := updating()
	m := capitest.Machine("m", s, due, func(m *clusterv1.Machine) { m.Spec.FailureDomain = "a" })
	w, acts := world(
		t,
		s,
		m,
		clone(capitest.Bootstrap(), "m", ownedByMachine(m)),
		clone(capitest.Infrastructure(), "m", ownedByMachine(m)),
	)
	_, err := activitiestest.Run[kube.MinVersions](w, acts.UpdateClusterAPIMachines, batch(s, m))
	require.NoError(t, err)
	now := w.ClusterAPIMachine("m")
	assert.Equal(t, []string{"v1.31.2", "b"}, []string{now.Spec.Version, now.Spec.FailureDomain})
	assert.Equal(t, capiset.UpdateMachineHook, now.Annotations[runtimev1.PendingHooksAnnotation])
	assert.Contains(t, now.Annotations, clusterv1.UpdateInProgressAnnotation)
	assert.NotContains(t, now.Annotations, clusterv1.PendingAcknowledgeMoveAnnotation)
	for template, o := range map[*unstructured.Unstructured]*unstructured.Unstructured{capitest.Bootstrap(): bootstrapOf(w, "m"), capitest.Infrastructure(): machineOf(w, "m")} {
		wanted, _, _ := unstructured.NestedMap(template.Object, "spec", "template", "spec")
		spec, _, _ := unstructured.NestedMap(o.Object, "spec")
		assert.Subset(t, spec, wanted)
		assert.Contains(t, o.GetAnnotations(), clusterv1.UpdateInProgressAnnotation)
		assert.Equal(t, template.GetName(), o.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation])
		assert.Len(t, o.GetOwnerReferences(), 1)
	}
	assert.Equal(t, []string{"Normal SuccessfulStartInPlaceUpdate Machine starting in-place update"}, w.Told())

	w.Forget()
	_, err = activitiestest.Run[kube.MinVersions](w, acts.UpdateClusterAPIMachines, batch(s, now))
	require.NoError(t, err)
	assert.Empty(t, w.Writes(), "it has begun")
}

// Machines whose update cannot begin, and one without bootstrap configuration.
func TestAnUpdateInPlaceThatCannotBegin(t *testing.T) {
	s := updating(noted(clusterv1.AcknowledgedMoveAnnotation, "m"))
	s.Annotations[clusterv1.AcknowledgedMoveAnnotation] = "m,n,bare"
	var machines []*clusterv1.Machine
	for _, name := range []string{"m", "n", "bare"} {
		machines = append(machines, capitest.Machine(name, s, due))
	}
	machines[2].Spec.Bootstrap = clusterv1.Bootstrap{DataSecretName: new("x")}
	w, acts := world(
		t,
		s,
		machines[0],
		machines[1],
		machines[2],
		clone(
			capitest.Bootstrap(),
			"m",
		),
		clone(capitest.Bootstrap(), "n"),
		clone(capitest.Infrastructure(), "n"),
		clone(capitest.Infrastructure(), "bare"),
	)
	_, err := activitiestest.Run[kube.MinVersions](w, acts.UpdateClusterAPIMachines, batch(s, machines...))
	activitiestest.AssertFailure(t, err, kube.TypeRefused, false)
	require.ErrorContains(t, err, "ExampleMachine shop/m does not exist: its machine cannot be updated in place")
	begun := list.Map(machines, func(m *clusterv1.Machine) bool {
		return w.ClusterAPIMachine(m.Name).Annotations[runtimev1.PendingHooksAnnotation] != ""
	})
	assert.Equal(t, []bool{false, true, true}, begun, "the others go on")

	missing := updating()
	missing.Spec.Template.Spec.InfrastructureRef.Name = "other"
	m := capitest.Machine("m", missing, due)
	w, acts = world(t, missing, m)
	_, err = activitiestest.Run[kube.MinVersions](w, acts.UpdateClusterAPIMachines, batch(missing, m))
	activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
	assert.Empty(t, w.Writes())
}

// A decision names the machines that are to move, and those whose update is to begin.
func TestFromTheDecisionToTheMove(t *testing.T) {
	s := sender(0)
	m := capitest.Machine("m", s)
	w, acts := world(t, s, receiver("s"), m)
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
	assert.True(t, metav1.IsControlledBy(w.ClusterAPIMachine("m"), receiver("s")))
}
