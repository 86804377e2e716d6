package capi_test

import (
	"slices"
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

var withSetAnnotation = capitest.WithAnnotation[*clusterv1.MachineSet]

// newMovingSet returns a set that moves its surplus machines to the set "next".
func newMovingSet(replicas int32) *clusterv1.MachineSet {
	return capitest.NewSet(
		"s",
		replicas,
		capitest.WithDeploymentOwner,
		withSetAnnotation(clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next"),
	)
}

func newReceivingSet(from string) *clusterv1.MachineSet {
	return capitest.NewSet(
		"next",
		0,
		capitest.WithDeploymentOwner,
		withSetAnnotation(clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation, from),
		func(s *clusterv1.MachineSet) {
			s.Labels[clusterv1.MachineDeploymentUniqueLabel] = "hash"
		},
	)
}

func TestMachinesMoveToAnotherSet(t *testing.T) {
	s, to := newMovingSet(1), newReceivingSet("s")
	person := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "uid-x"}
	m := capitest.NewMachine("m", s, func(m *clusterv1.Machine) { m.OwnerReferences = append(m.OwnerReferences, person) })
	going := capitest.NewMachine("going", s, capitest.AsDeletingObject)
	w, acts := newWorld(t, s, to, m, going)
	versions, err := activitiestest.RunActivity[kube.MinVersions](
		w,
		acts.MoveClusterAPIMachines,
		newMachineBatch(s, m, going, capitest.NewMachine("gone", s)),
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

	w.ForgetRequests()
	_, err = activitiestest.RunActivity[kube.MinVersions](w, acts.MoveClusterAPIMachines, newMachineBatch(s, now))
	require.NoError(t, err)
	assert.Empty(t, w.MutatingRequests(), "it has moved")
	_, err = activitiestest.RunActivity[kube.MinVersions](w, acts.MoveClusterAPIMachines, newMachineBatch(s, m))
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
}

func TestNoMachineMovesToASetThatAcceptsNone(t *testing.T) {
	for name, to := range map[string]*clusterv1.MachineSet{
		"it takes the machines of another set": newReceivingSet("other"), "there is none": capitest.NewSet("another", 0),
		"it is being deleted": func() *clusterv1.MachineSet { s := newReceivingSet("s"); capitest.AsDeletingObject(s); return s }(),
	} {
		s := newMovingSet(0)
		m := capitest.NewMachine("m", s)
		w, acts := newWorld(t, s, to, m)
		_, err := activitiestest.RunActivity[kube.MinVersions](w, acts.MoveClusterAPIMachines, newMachineBatch(s, m))
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Empty(t, w.MutatingRequests(), name)
	}
}

// withPendingInPlaceUpdate makes a machine wait for the start of its in-place update: the machine has moved to set s,
// and s has acknowledged the move.
func withPendingInPlaceUpdate(m *clusterv1.Machine) {
	capitest.WithAnnotation[*clusterv1.Machine](clusterv1.UpdateInProgressAnnotation, "")(m)
	capitest.WithAnnotation[*clusterv1.Machine](clusterv1.PendingAcknowledgeMoveAnnotation, "")(m)
	m.Spec.Version = "v1.30.0"
}

// newUpdatingSet returns a set that has acknowledged the move of machine m, and whose templates differ from the clones
// of m.
func newUpdatingSet(change ...capitest.SetChange) *clusterv1.MachineSet {
	return capitest.NewSet(
		"s",
		1,
		append(
			change,
			capitest.WithDeploymentOwner,
			withSetAnnotation(clusterv1.AcknowledgedMoveAnnotation, "m"),
			func(s *clusterv1.MachineSet) {
				s.Spec.Template.Spec.FailureDomain = "b"
			},
		)...)
}

func TestInPlaceUpdateBegins(t *testing.T) {
	s := newUpdatingSet()
	m := capitest.NewMachine("m", s, withPendingInPlaceUpdate, func(m *clusterv1.Machine) { m.Spec.FailureDomain = "a" })
	w, acts := newWorld(
		t,
		s,
		m,
		newClone(capitest.NewBootstrapTemplate(), "m", withMachineOwner(m)),
		newClone(capitest.NewInfrastructureTemplate(), "m", withMachineOwner(m)),
	)
	_, err := activitiestest.RunActivity[kube.MinVersions](w, acts.UpdateClusterAPIMachines, newMachineBatch(s, m))
	require.NoError(t, err)
	now := w.ClusterAPIMachine("m")
	assert.Equal(t, []string{"v1.31.2", "b"}, []string{now.Spec.Version, now.Spec.FailureDomain})
	assert.Equal(t, capiset.UpdateMachineHook, now.Annotations[runtimev1.PendingHooksAnnotation])
	assert.Contains(t, now.Annotations, clusterv1.UpdateInProgressAnnotation)
	assert.NotContains(t, now.Annotations, clusterv1.PendingAcknowledgeMoveAnnotation)
	for template, o := range map[*unstructured.Unstructured]*unstructured.Unstructured{capitest.NewBootstrapTemplate(): bootstrapCloneOf(w, "m"), capitest.NewInfrastructureTemplate(): infrastructureCloneOf(w, "m")} {
		wanted, _, _ := unstructured.NestedMap(template.Object, "spec", "template", "spec")
		spec, _, _ := unstructured.NestedMap(o.Object, "spec")
		assert.Subset(t, spec, wanted)
		assert.Contains(t, o.GetAnnotations(), clusterv1.UpdateInProgressAnnotation)
		assert.Equal(t, template.GetName(), o.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation])
		assert.Len(t, o.GetOwnerReferences(), 1)
	}
	assert.Equal(t, []string{"Normal SuccessfulStartInPlaceUpdate Machine starting in-place update"}, w.TakeNewEvents())

	w.ForgetRequests()
	_, err = activitiestest.RunActivity[kube.MinVersions](w, acts.UpdateClusterAPIMachines, newMachineBatch(s, now))
	require.NoError(t, err)
	assert.Empty(t, w.MutatingRequests(), "it has begun")
}

// An update in place removes from a clone what the new template no longer has, also if Cluster API's controller made the
// clone. Therefore Millwright takes over the managed fields of that controller before its first apply.
func TestInPlaceUpdateTakesOverManagedFieldsOfClones(t *testing.T) {
	const (
		apply  = metav1.ManagedFieldsOperationApply
		update = metav1.ManagedFieldsOperationUpdate
	)
	entry := managedFieldsEntryOf(capitest.NewInfrastructureTemplate().GetAPIVersion())
	provider := entry("manager", update, `{"f:spec":{"f:providerID":{}}}`)
	ofStatus := entry("capi-machineset", update, `{"f:status":{"f:ready":{}}}`)
	ofStatus.Subresource = "status"
	for name, row := range map[string]struct{ before, after []metav1.ManagedFieldsEntry }{
		"of Cluster API": {
			[]metav1.ManagedFieldsEntry{
				entry("capi-machineset", apply, `{"f:spec":{"f:size":{}}}`), provider,
				entry("capi-machineset-metadata", apply, `{"f:metadata":{"f:labels":{"f:a":{}}}}`), ofStatus,
			},
			[]metav1.ManagedFieldsEntry{
				provider, ofStatus,
				entry("millwright-machineset", apply, `{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:size":{}}}`),
			},
		},
		"of both": {
			[]metav1.ManagedFieldsEntry{
				entry("millwright-machineset", apply, `{"f:spec":{"f:old":{}}}`), provider,
				entry("capi-machineset", apply, `{"f:spec":{"f:size":{}}}`),
			},
			[]metav1.ManagedFieldsEntry{
				provider, entry("millwright-machineset", apply, `{"f:spec":{"f:old":{},"f:size":{}}}`),
			},
		},
		"of its creation by Millwright": {
			[]metav1.ManagedFieldsEntry{entry("millwright-machineset", update, `{"f:spec":{"f:size":{}}}`), provider},
			[]metav1.ManagedFieldsEntry{provider, entry("millwright-machineset", apply, `{"f:spec":{"f:size":{}}}`)},
		},
		"of an apply by Millwright": {
			[]metav1.ManagedFieldsEntry{entry("millwright-machineset", apply, `{"f:spec":{"f:size":{}}}`), provider}, nil,
		},
		"none, because the API server lost them": {
			nil, []metav1.ManagedFieldsEntry{entry("millwright-machineset", apply, `{"f:metadata":{"f:name":{}}}`)},
		},
		"lost, and then applied by another client": {
			[]metav1.ManagedFieldsEntry{entry("before-first-apply", update, `{"f:spec":{"f:size":{}}}`), provider},
			[]metav1.ManagedFieldsEntry{provider},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newUpdatingSet()
			m := capitest.NewMachine("m", s, withPendingInPlaceUpdate)
			clone := newClone(capitest.NewInfrastructureTemplate(), "m", withMachineOwner(m))
			clone.SetManagedFields(row.before)
			w, acts := newWorld(t, s, m, newClone(capitest.NewBootstrapTemplate(), "m", withMachineOwner(m)), clone)
			_, err := activitiestest.RunActivity[kube.MinVersions](w, acts.UpdateClusterAPIMachines, newMachineBatch(s, m))
			require.NoError(t, err)
			want := []string{"patch examplemachines", "patch examplemachines"}
			if row.after == nil {
				row.after, want = row.before, want[1:] // only the apply
			}
			assert.ElementsMatch(t, row.after, infrastructureCloneOf(w, "m").GetManagedFields())
			isOther := func(request string) bool { return request != want[0] }
			assert.Equal(t, want, slices.DeleteFunc(w.MutatingRequests(), isOther))
		})
	}
}

// The update of a machine with a missing clone does not start. The update of a machine without bootstrap configuration
// starts.
func TestInPlaceUpdateNeedsAllClones(t *testing.T) {
	s := newUpdatingSet(withSetAnnotation(clusterv1.AcknowledgedMoveAnnotation, "m"))
	s.Annotations[clusterv1.AcknowledgedMoveAnnotation] = "m,n,bare"
	var machines []*clusterv1.Machine
	for _, name := range []string{"m", "n", "bare"} {
		machines = append(machines, capitest.NewMachine(name, s, withPendingInPlaceUpdate))
	}
	machines[2].Spec.Bootstrap = clusterv1.Bootstrap{DataSecretName: new("x")}
	w, acts := newWorld(
		t,
		s,
		machines[0],
		machines[1],
		machines[2],
		newClone(
			capitest.NewBootstrapTemplate(),
			"m",
		),
		newClone(capitest.NewBootstrapTemplate(), "n"),
		newClone(capitest.NewInfrastructureTemplate(), "n"),
		newClone(capitest.NewInfrastructureTemplate(), "bare"),
	)
	_, err := activitiestest.RunActivity[kube.MinVersions](
		w,
		acts.UpdateClusterAPIMachines,
		newMachineBatch(s, machines...),
	)
	activitiestest.AssertFailure(t, err, kube.FailureTypeRefused, false)
	require.ErrorContains(t, err, "ExampleMachine shop/m does not exist: its machine cannot be updated in place")
	begun := list.Map(machines, func(m *clusterv1.Machine) bool {
		return w.ClusterAPIMachine(m.Name).Annotations[runtimev1.PendingHooksAnnotation] != ""
	})
	assert.Equal(t, []bool{false, true, true}, begun, "the others go on")

	missing := newUpdatingSet()
	missing.Spec.Template.Spec.InfrastructureRef.Name = "other"
	m := capitest.NewMachine("m", missing, withPendingInPlaceUpdate)
	w, acts = newWorld(t, missing, m)
	_, err = activitiestest.RunActivity[kube.MinVersions](w, acts.UpdateClusterAPIMachines, newMachineBatch(missing, m))
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	assert.Empty(t, w.MutatingRequests())
}

// A decision names the machines to move, and the machines whose update is to start.
func TestDecideAndMoveMachines(t *testing.T) {
	s := newMovingSet(0)
	m := capitest.NewMachine("m", s)
	w, acts := newWorld(t, s, newReceivingSet("s"), m)
	d, err := activitiestest.RunActivity[set.Decision](
		w,
		acts.DecideClusterAPISet,
		set.Input{ReadInput: kube.ReadInput{Ref: activitiestest.NewRef(s)}},
	)
	require.NoError(t, err)
	require.Len(t, d.Scale.Move, 1, d.Scale.Why)
	assert.Empty(t, d.Scale.Delete)
	_, err = activitiestest.RunActivity[kube.MinVersions](
		w,
		acts.MoveClusterAPIMachines,
		set.MachineBatch{Set: activitiestest.NewRef(s), Machines: d.Scale.Move},
	)
	require.NoError(t, err)
	assert.True(t, metav1.IsControlledBy(w.ClusterAPIMachine("m"), newReceivingSet("s")))
}
