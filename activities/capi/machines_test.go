package capi_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	capiset "millwright/observe/capi/set"
)

func withoutFinalizers(m *clusterv1.Machine) { m.Finalizers = nil }

func withResourceVersion(v string) capitest.MachineChange {
	return func(m *clusterv1.Machine) { m.ResourceVersion = v }
}

// remediationReasonAndMessage returns the reason and the message of the condition OwnerRemediated of a machine.
func remediationReasonAndMessage(w *activitiestest.World, name string) []string {
	reason, message := capiset.RemediationReason(w.ClusterAPIMachine(name))
	return []string{reason, message}
}

func TestDeleteMachines(t *testing.T) {
	s := capitest.NewSet("s", 0)
	a, b, gone := capitest.NewMachine(
		"a",
		s,
		withoutFinalizers,
	), capitest.NewMachine(
		"b",
		s,
		withoutFinalizers,
	), capitest.NewMachine(
		"gone",
		s,
	)
	w, acts := newWorld(t, s, a, b, capitest.NewMachine("stays", s, withoutFinalizers))
	written := activitiestest.RunActivityTwice[set.WriteResult](
		w,
		acts.DeleteClusterAPIMachines,
		newMachineBatch(s, a, b, gone),
	)
	assert.Empty(t, written.Failure)
	assert.True(t, written.Unseen, "the answer to a deletion has no version")
	assert.Nil(t, w.ClusterAPIMachine("a"))
	assert.Nil(t, w.ClusterAPIMachine("b"))
	assert.NotNil(t, w.ClusterAPIMachine("stays"))
	assert.Equal(
		t,
		[]string{
			`Normal SuccessfulDelete Deleted Machine "a": because`,
			`Normal SuccessfulDelete Deleted Machine "b": because`,
		},
		slices.Sorted(slices.Values(w.TakeNewEvents())),
	)
}

func TestAChangedMachineIsNotDeleted(t *testing.T) {
	s := capitest.NewSet("s", 0)
	another := capitest.NewMachine("another", s)
	another.UID = "uid-former"
	w, acts := newWorld(
		t,
		s,
		capitest.NewMachine("changed", s),
		capitest.NewMachine("another", s),
		capitest.NewMachine("same", s),
	)
	for _, row := range []set.MachineBatch{newMachineBatch(s, capitest.NewMachine("changed", s, withResourceVersion("899")), capitest.NewMachine("same", s)), newMachineBatch(s, another)} {
		_, err := activitiestest.RunActivity[set.WriteResult](w, acts.DeleteClusterAPIMachines, row)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	}
	assert.Nil(t, w.ClusterAPIMachine("changed").DeletionTimestamp)
	assert.Nil(t, w.ClusterAPIMachine("another").DeletionTimestamp, "it has the name of the one that was meant")
	assert.NotNil(t, w.ClusterAPIMachine("same").DeletionTimestamp, "the others are deleted")
}

// The size may have changed since the decision, or Cluster API's core has the set now.
func TestNoMachineOfAChangedSetIsDeleted(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.MachineSet, *set.MachineBatch){
		"another version": func(_ *clusterv1.MachineSet, in *set.MachineBatch) { in.Version = "899" },
		"handed over":     func(s *clusterv1.MachineSet, _ *set.MachineBatch) { delete(s.Labels, clusterv1.WatchLabel) },
	} {
		t.Run(name, func(t *testing.T) {
			s := capitest.NewSet("s", 0)
			in := newMachineBatch(s, capitest.NewMachine("a", s))
			change(s, &in)
			w, acts := newWorld(t, s, capitest.NewMachine("a", s))
			_, err := activitiestest.RunActivity[set.WriteResult](w, acts.DeleteClusterAPIMachines, in)
			activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
			assert.Nil(t, w.ClusterAPIMachine("a").DeletionTimestamp)
		})
	}
}

func TestRejectedDeletionDoesNotStopOtherDeletions(t *testing.T) {
	s := capitest.NewSet("s", 0)
	a, b := capitest.NewMachine("a", s, withoutFinalizers), capitest.NewMachine("b", s, withoutFinalizers)
	w, acts := newWorld(t, s, a, b)
	activitiestest.FailRequests(w.ClusterAPIServer.Clientset, "delete", "machines", 1, forbiddenError(), nil)
	written, err := activitiestest.RunActivity[set.WriteResult](w, acts.DeleteClusterAPIMachines, newMachineBatch(s, a, b))
	require.NoError(t, err)
	assert.True(t, written.Failure.Deleting)
	assert.Contains(t, written.Failure.Message, "forbidden")
	assert.NotEqual(t, w.ClusterAPIMachine("a") == nil, w.ClusterAPIMachine("b") == nil, "the other one is deleted")
	assert.Contains(t, w.TakeNewEvents(), "Warning FailedDelete Error deleting: "+written.Failure.Message)
}

// If a health check requested the replacement of a machine, the machine's condition first reports the deletion. The set
// then counts the machine as in flight until the machine is gone.
func TestARemediatedMachineReportsItsDeletion(t *testing.T) {
	s := capitest.NewSet("s", 1)
	sick, fine := capitest.NewMachine("sick", s, capitest.AsUnhealthyMachine), capitest.NewMachine("fine", s)
	w, acts := newWorld(t, s, sick, fine)
	_, err := activitiestest.RunActivity[set.WriteResult](w, acts.DeleteClusterAPIMachines, newMachineBatch(s, sick, fine))
	require.NoError(t, err)
	assert.Equal(t, []string{"MachineDeleting", "Machine is deleting"}, remediationReasonAndMessage(w, "sick"))
	assert.Equal(t, []string{"", ""}, remediationReasonAndMessage(w, "fine"), "a surplus machine")
	for _, name := range []string{"sick", "fine"} {
		assert.NotNil(t, w.ClusterAPIMachine(name).DeletionTimestamp, name)
	}
	assert.ElementsMatch(t, []string{"patch machines/status", "delete machines", "delete machines"}, w.MutatingRequests())
}

func TestRemediationConditionIsWrittenBeforeDeletion(t *testing.T) {
	s := capitest.NewSet("s", 1)
	sick := capitest.NewMachine("sick", s, capitest.AsUnhealthyMachine)
	w, acts := newWorld(t, s, sick)
	activitiestest.FailRequests(
		w.ClusterAPIServer.Clientset,
		"delete",
		"machines",
		1,
		apierrors.NewInternalError(assert.AnError),
		nil,
	)
	_, err := activitiestest.RunActivity[set.WriteResult](w, acts.DeleteClusterAPIMachines, newMachineBatch(s, sick))
	require.Error(t, err)
	assert.Equal(t, []string{"MachineDeleting", "Machine is deleting"}, remediationReasonAndMessage(w, "sick"))
	assert.Nil(t, w.ClusterAPIMachine("sick").DeletionTimestamp)
	w.AwaitCaches()
	_, err = activitiestest.RunActivity[set.WriteResult](
		w,
		acts.DeleteClusterAPIMachines,
		newMachineBatch(s, w.ClusterAPIMachine("sick")),
	)
	require.NoError(t, err, "the next decision deletes it")
	assert.NotNil(t, w.ClusterAPIMachine("sick").DeletionTimestamp)
}

func TestAdoptMachines(t *testing.T) {
	s := capitest.NewSet("s", 2)
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "X", Name: "x", UID: "uid-x"}
	free := capitest.NewMachine(
		"free",
		s,
		func(m *clusterv1.Machine) {
			m.OwnerReferences = []metav1.OwnerReference{other, capi.ClusterOwnerReference(capitest.NewCluster())}
		},
	)
	owned := capitest.NewMachine("owned", capitest.NewSet("other", 1))
	w, acts := newWorld(t, s, free, owned)
	versions, err := activitiestest.RunActivity[kube.MinVersions](
		w,
		acts.AdoptClusterAPIMachines,
		newMachineBatch(s, free, owned, capitest.NewMachine("gone", s)),
	)
	require.NoError(t, err)
	assert.Equal(
		t,
		[]metav1.OwnerReference{other, *metav1.NewControllerRef(s, clusterv1.GroupVersion.WithKind("MachineSet"))},
		w.ClusterAPIMachine("free").OwnerReferences,
	)
	assert.Equal(t, owned, w.ClusterAPIMachine("owned"), "it has a controller")
	assert.Equal(t, w.ClusterAPIMachine("free").ResourceVersion, versions[capi.MachinesResource])
	assert.Equal(t, []string{`Normal SuccessfulAdopt Adopted Machine "free": because`}, w.TakeNewEvents())

	adopted := w.ClusterAPIMachine("free")
	activitiestest.RunActivityTwice[kube.MinVersions](w, acts.AdoptClusterAPIMachines, newMachineBatch(s, adopted))
	assert.Equal(t, adopted, w.ClusterAPIMachine("free"))
}

// An owner reference to the set that is not a controller reference is replaced by a controller reference.
func TestAnAdoptedMachineHasOneOwnerReference(t *testing.T) {
	s := capitest.NewSet("s", 1)
	// an owner reference that is not a controller reference
	former := metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineSet", Name: "s", UID: "uid-s"}
	m := capitest.NewMachine("m", s, func(m *clusterv1.Machine) { m.OwnerReferences = []metav1.OwnerReference{former} })
	w, acts := newWorld(t, s, m)
	_, err := activitiestest.RunActivity[kube.MinVersions](w, acts.AdoptClusterAPIMachines, newMachineBatch(s, m))
	require.NoError(t, err)
	assert.Len(t, w.ClusterAPIMachine("m").OwnerReferences, 1)
}

func TestUnsuitableSetAdoptsNoMachine(t *testing.T) {
	s := capitest.NewSet("s", 1)
	free := capitest.NewMachine("free", s, capitest.WithoutOwner)
	for name, has := range map[string][]runtime.Object{
		"a set that is being deleted":  {capitest.NewSet("s", 1, capitest.AsDeletingObject), free},
		"a set that was handed over":   {capitest.NewSet("s", 1, func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel] = "theirs" }), free},
		"of a machine that is changed": {s, capitest.NewMachine("free", s, capitest.WithoutOwner, withResourceVersion("901"))},
	} {
		t.Run(name, func(t *testing.T) {
			w, acts := newWorld(t, has...)
			_, err := activitiestest.RunActivity[kube.MinVersions](w, acts.AdoptClusterAPIMachines, newMachineBatch(s, free))
			activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
			assert.Empty(t, w.ClusterAPIMachine("free").OwnerReferences)
		})
	}
}

func TestReleaseMachines(t *testing.T) {
	s := capitest.NewSet("s", 1)
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "X", Name: "x", UID: "uid-x"}
	mine := capitest.NewMachine(
		"mine",
		s,
		func(m *clusterv1.Machine) { m.OwnerReferences = append(m.OwnerReferences, other) },
	)
	cluster := capitest.NewCluster()
	w, acts := newWorld(t, s, mine)
	_, err := activitiestest.RunActivity[kube.MinVersions](w, acts.ReleaseClusterAPIMachines, newMachineBatch(s, mine))
	require.NoError(t, err)
	assert.Equal(
		t,
		[]metav1.OwnerReference{other, capi.ClusterOwnerReference(cluster)},
		w.ClusterAPIMachine("mine").OwnerReferences,
	)
	assert.True(t, capi.IsReleasedBySet(w.ClusterAPIMachine("mine"), s))
	assert.Equal(t, []string{`Normal SuccessfulRelease Released Machine "mine": because`}, w.TakeNewEvents())
	activitiestest.RunActivityTwice[kube.MinVersions](
		w,
		acts.ReleaseClusterAPIMachines,
		newMachineBatch(s, w.ClusterAPIMachine("mine"), capitest.NewMachine("gone", s)),
	)
	assert.Empty(t, w.TakeNewEvents())
	_, err = activitiestest.RunActivity[kube.MinVersions](w, acts.ReleaseClusterAPIMachines, newMachineBatch(s, mine))
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
}

func TestUnmarkMachines(t *testing.T) {
	s := capitest.NewSet("s", 1)
	well := capitest.NewMachine(
		"well",
		s,
		capitest.AsUnhealthyMachine,
		capitest.WithCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue),
	)
	w, acts := newWorld(t, s, well)
	versions, err := activitiestest.RunActivity[kube.MinVersions](
		w,
		acts.UnmarkClusterAPIMachines,
		newMachineBatch(s, well, capitest.NewMachine("gone", s)),
	)
	require.NoError(t, err)
	now := w.ClusterAPIMachine("well")
	assert.Nil(t, meta.FindStatusCondition(now.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition))
	assert.Len(t, now.Status.Conditions, len(well.Status.Conditions)-1, "the others stay")
	assert.Equal(t, now.ResourceVersion, versions[capi.MachinesResource])
	activitiestest.RunActivityTwice[kube.MinVersions](w, acts.UnmarkClusterAPIMachines, newMachineBatch(s, now))
	assert.Equal(t, now, w.ClusterAPIMachine("well"))
	_, err = activitiestest.RunActivity[kube.MinVersions](w, acts.UnmarkClusterAPIMachines, newMachineBatch(s, well))
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
}

// The annotation with the replacing revision reaches the machine, and causes no write of the machine's clones: a write
// would wake the controllers of the providers for each old machine of a rollout.
func TestSyncOfTheReplacingRevisionWritesOnlyTheMachine(t *testing.T) {
	s := capitest.NewSet("s", 1)
	w, acts := newWorld(t, s)
	_, err := activitiestest.RunActivity[set.WriteResult](
		w,
		acts.CreateClusterAPIMachines,
		activitiestest.NewClusterAPIMachineCreation(s, "s-a"),
	)
	require.NoError(t, err)
	patch := fmt.Appendf(
		nil,
		`{"spec":{"template":{"metadata":{"annotations":{%q:"2"}}}}}`,
		v1alpha1.AnnotationReplacedByRevision,
	)
	_, err = w.ClusterAPIServer.Client.MachineSets(s.Namespace).
		Patch(t.Context(), "s", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	w.ForgetRequests()
	_, err = activitiestest.RunActivity[kube.MinVersions](
		w,
		acts.SyncClusterAPIMachines,
		newMachineBatch(w.ClusterAPISet("s"), w.ClusterAPIMachine("s-a")),
	)
	require.NoError(t, err)
	assert.Equal(t, "2", w.ClusterAPIMachine("s-a").Annotations[v1alpha1.AnnotationReplacedByRevision])
	assert.Equal(t, []string{"patch machines"}, w.MutatingRequests())
}

func TestPostponeRemediation(t *testing.T) {
	s := capitest.NewSet("s", 1)
	sick := capitest.NewMachine("sick", s, capitest.AsUnhealthyMachine)
	w, acts := newWorld(t, s, sick)
	in := set.ExtraWritesInput{Set: activitiestest.NewRef(s), Objects: []set.ExtraObject{
		{
			Name:    "sick",
			UID:     "uid-sick",
			Version: "900",
			Reason:  "RemediationDeferred",
			Why:     "too many",
		},
		{Name: "gone", UID: "uid-gone", Version: "900", Reason: "RemediationDeferred"},
	}}
	versions, err := activitiestest.RunActivity[kube.MinVersions](w, acts.PostponeRemediation, in)
	require.NoError(t, err)
	assert.Equal(t, []string{"RemediationDeferred", "too many"}, remediationReasonAndMessage(w, "sick"))
	now := w.ClusterAPIMachine("sick")
	assert.Equal(t, now.ResourceVersion, versions[capi.MachinesResource])
	assert.Nil(t, now.DeletionTimestamp)
	before := meta.FindStatusCondition(sick.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	assert.Equal(
		t,
		before.LastTransitionTime.Unix(),
		meta.FindStatusCondition(now.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition).LastTransitionTime.Unix(),
		"it was False before",
	)
	in.Objects[0].Version = now.ResourceVersion
	activitiestest.RunActivityTwice[kube.MinVersions](w, acts.PostponeRemediation, in)
	assert.Equal(t, now, w.ClusterAPIMachine("sick"))
	in.Objects[0].Version = "899"
	_, err = activitiestest.RunActivity[kube.MinVersions](w, acts.PostponeRemediation, in)
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
}

// A machine that is being deleted gets only the fields that its deletion needs.
func TestSyncAMachineThatIsBeingDeleted(t *testing.T) {
	s := capitest.NewSet("s", 0, func(s *clusterv1.MachineSet) {
		spec := &s.Spec.Template.Spec
		spec.Deletion.NodeDrainTimeoutSeconds, spec.MinReadySeconds = new(int32(1)), new(int32(2))
		spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "x"}}
		spec.Version, s.Spec.Template.Labels["new"], s.Spec.Template.Annotations["new"] = "v1.32.0", "x", "x"
	})
	old := capitest.NewMachine("old", capitest.NewSet("s", 0), capitest.AsDeletingObject)
	w, acts := newWorld(t, s, old)
	_, err := activitiestest.RunActivity[kube.MinVersions](
		w,
		acts.SyncClusterAPIMachines,
		newMachineBatch(s, old, capitest.NewMachine("gone", s)),
	)
	require.NoError(t, err)
	now, want := w.ClusterAPIMachine("old"), old.DeepCopy()
	want.Spec.Deletion = s.Spec.Template.Spec.Deletion
	want.Spec.MinReadySeconds = new(int32(2))
	want.Spec.ReadinessGates = s.Spec.Template.Spec.ReadinessGates
	assert.Equal(t, want.Spec, now.Spec)
	assert.Equal(
		t,
		[]any{old.Labels, old.Annotations, old.Finalizers, old.OwnerReferences},
		[]any{now.Labels, now.Annotations, now.Finalizers, now.OwnerReferences},
	)
	assert.Empty(t, capiset.DriftText(w.ClusterAPICache, now, s))
	activitiestest.RunActivityTwice[kube.MinVersions](w, acts.SyncClusterAPIMachines, newMachineBatch(s, now))
	assert.Equal(t, now, w.ClusterAPIMachine("old"))
	_, err = activitiestest.RunActivity[kube.MinVersions](w, acts.SyncClusterAPIMachines, newMachineBatch(s, old))
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
}
