package capi_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/set"
	"millwright/api/vocabulary"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
)

var (
	asUpstreamSet = capitest.AsUpstreamObject[*clusterv1.MachineSet]
	hasPausedSet  = capitest.WithPausedCondition[*clusterv1.MachineSet]
)

// While Cluster API's controller may still change a set, Millwright writes nothing but the condition Blocked, also when
// the set has too few machines.
func TestASetThatClusterAPIMayChangeIsNotTakenOver(t *testing.T) {
	s := capitest.NewSet("s", 3, asUpstreamSet)
	w, acts := newWorld(t, s)
	d := decideSet(t, w, s)
	assert.False(t, d.Prepare || d.Free || d.Scale.HasActions() || len(d.Extra) > 0)
	assert.True(t, d.Report)
	assert.Equal(t, vocabulary.BlockedByHandOver, d.Blocked.Reason)
	assert.Equal(t, capi.UpstreamMessage, d.Pending.Why)
	assert.Contains(t, d.Blocked.Message, `{"spec":{"paused":true}}`)

	version := activitiestest.RunActivityTwice[string](w, acts.FinalizeClusterAPISet, activitiestest.NewLiveReadInput(s))
	assert.Equal(t, s.ResourceVersion, version)
	assert.Empty(t, w.MutatingRequests())

	want := w.ClusterAPISet("s").Status.DeepCopy()
	_, err := activitiestest.RunActivity[string](
		w,
		acts.ReportClusterAPISet,
		set.Report{Input: set.Input{ReadInput: activitiestest.NewLiveReadInput(s)}},
	)
	require.NoError(t, err)
	has := w.ClusterAPISet("s")
	blocked := capi.ConditionOfType(has.Status.Conditions, vocabulary.ConditionBlocked)
	assert.Equal(t, d.Blocked.Reason, blocked.Reason)
	want.Conditions = append(want.Conditions, blocked)
	assert.Equal(t, want, &has.Status, "the rest of the status is the controller's")
	w.AwaitCaches()
	assert.False(t, decideSet(t, w, has).Report)
}

// When Cluster API's controller has set the condition Paused, the set is taken over, also while it is paused.
func TestAPausedSetOfClusterAPIIsTakenOver(t *testing.T) {
	s := capitest.NewSet("s", 3, asUpstreamSet, hasPausedSet, withAnnotation(clusterv1.PausedAnnotation, ""))
	w, acts := newWorld(t, s)
	d := decideSet(t, w, s)
	assert.True(t, d.Prepare)
	assert.False(t, d.Scale.HasActions())
	activitiestest.RunActivityTwice[string](w, acts.FinalizeClusterAPISet, activitiestest.NewLiveReadInput(s))
	assert.Equal(t, []string{capi.Finalizer}, w.ClusterAPISet("s").Finalizers)
	assert.False(t, decideSet(t, w, s).Prepare)
}

// The API server accepts no new finalizer on a set that is being deleted, so Cluster API's controller gets the set back.
func TestADeletedSetOfClusterAPIIsReturned(t *testing.T) {
	s := capitest.NewSet("s", 3, capitest.AsDeletingObject[*clusterv1.MachineSet], asUpstreamSet)
	w, acts := newWorld(t, s)
	d := decideSet(t, w, s)
	assert.True(t, d.Free)
	assert.False(t, d.Scale.HasActions())
	_, err := activitiestest.RunActivity[string](w, acts.FinalizeClusterAPISet, activitiestest.NewLiveReadInput(s))
	require.NoError(t, err)
	has := w.ClusterAPISet("s")
	assert.Equal(t, capitest.DefaultSettings.UpstreamWatchFilter, has.Labels[clusterv1.WatchLabel])
	assert.Equal(t, []string{clusterv1.MachineSetFinalizer}, has.Finalizers)
	assert.False(t, capi.IsMarkedByMillwright(has))
}

// A set whose label changes back before Millwright has taken it over loses the condition that asks for the hand-over.
func TestAHandOverThatNobodyWantsAnyMoreIsForgotten(t *testing.T) {
	s := capitest.NewSet("s", 3, asUpstreamSet)
	w, acts := newWorld(t, s)
	_, err := activitiestest.RunActivity[string](
		w,
		acts.ReportClusterAPISet,
		set.Report{Input: set.Input{ReadInput: activitiestest.NewLiveReadInput(s)}},
	)
	require.NoError(t, err)
	label := []byte(`{"metadata":{"labels":{"` + clusterv1.WatchLabel + `":"theirs"}}}`)
	_, err = w.ClusterAPIServer.Client.MachineSets(s.Namespace).
		Patch(t.Context(), "s", types.MergePatchType, label, metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = activitiestest.RunActivity[string](w, acts.FinalizeClusterAPISet, activitiestest.NewLiveReadInput(s))
	require.NoError(t, err)
	has := w.ClusterAPISet("s")
	assert.Empty(t, capi.ConditionOfType(has.Status.Conditions, vocabulary.ConditionBlocked).Type)
	assert.Equal(t, []string{clusterv1.MachineSetFinalizer}, has.Finalizers)
	assert.False(t, capi.IsMarkedByMillwright(has))
}

// A set that goes back to Cluster API gives the fields that Millwright wrote to Cluster API's field managers: on its
// machines, on their clones, and on the set.
func TestAReturnedSetGivesItsFieldsToClusterAPI(t *testing.T) {
	const (
		apply  = metav1.ManagedFieldsOperationApply
		update = metav1.ManagedFieldsOperationUpdate
	)
	entry := managedFieldsEntryOf(clusterv1.GroupVersion.String())
	others := entry("kubectl-label", update, `{"f:metadata":{"f:labels":{"f:person":{}}}}`)
	s := capitest.NewSet("s", 2, withOtherController)
	s.ManagedFields = []metav1.ManagedFieldsEntry{
		others,
		entry("millwright-machinedeployment", update, `{"f:spec":{"f:template":{"f:spec":{"f:version":{}}}}}`),
	}
	m := capitest.NewMachine("m", s)
	m.ManagedFields = []metav1.ManagedFieldsEntry{
		entry("capi-machineset", apply, `{"f:metadata":{"f:labels":{"f:a":{}}}}`),
		entry("millwright-machineset", update, `{"f:metadata":{"f:labels":{"f:b":{}}},"f:spec":{"f:minReadySeconds":{}}}`),
		others,
	}
	deleting := capitest.NewMachine("deleting", s, capitest.AsDeletingObject[*clusterv1.Machine])
	deleting.ManagedFields = slices.Clone(m.ManagedFields)
	clone := newClone(capitest.NewInfrastructureTemplate(), "m", withMachineOwner(m))
	clone.SetManagedFields([]metav1.ManagedFieldsEntry{
		entry(
			"millwright-machineset",
			update,
			`{"f:metadata":{"f:annotations":{"f:a":{},"f:cluster.x-k8s.io/cloned-from-name":{}},`+
				`"f:labels":{"f:b":{}}},"f:spec":{"f:size":{}}}`,
		),
		entry("millwright-machineset", apply, `{"f:spec":{"f:zone":{}}}`),
		others,
	})
	w, acts := newWorld(t, s, m, deleting, clone, newClone(capitest.NewBootstrapTemplate(), "m", withMachineOwner(m)))
	_, err := activitiestest.RunActivity[string](w, acts.FinalizeClusterAPISet, activitiestest.NewLiveReadInput(s))
	require.NoError(t, err)

	assert.ElementsMatch(t, []metav1.ManagedFieldsEntry{
		entry("capi-machineset", apply, `{"f:metadata":{"f:labels":{"f:a":{},"f:b":{}}},"f:spec":{"f:minReadySeconds":{}}}`),
		others,
	}, w.ClusterAPIMachine("m").ManagedFields)
	assert.Equal(t, deleting.ManagedFields, w.ClusterAPIMachine("deleting").ManagedFields)
	assert.ElementsMatch(t, []metav1.ManagedFieldsEntry{
		entry("capi-machineset", apply, `{"f:spec":{"f:size":{},"f:zone":{}}}`),
		entry("capi-machineset-metadata", apply, `{"f:metadata":{"f:annotations":{"f:a":{}},"f:labels":{"f:b":{}}}}`),
		others,
	}, infrastructureCloneOf(w, "m").GetManagedFields())
	assert.ElementsMatch(t, []metav1.ManagedFieldsEntry{
		entry("capi-machinedeployment", apply, `{"f:spec":{"f:template":{"f:spec":{"f:version":{}}}}}`),
		others,
	}, w.ClusterAPISet("s").ManagedFields)
	assert.Empty(t, w.ClusterAPISet("s").Finalizers)
}
