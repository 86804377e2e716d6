package machine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

func TestDeleteNode(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	other := func(change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
		return activitiestest.NewMachine("other", append(change, activitiestest.WithNode)...)
	}
	removal := machine.NodeRemoval{Machine: activitiestest.NewRef(m), NodeName: "n", ProviderID: "fake:///n"}
	nameless, unknown, regional := removal, removal, removal
	nameless.NodeName, unknown.ProviderID, regional.ProviderID = "", "", "aws:///eu-1/i-1"
	for name, row := range map[string]struct {
		in      machine.NodeRemoval
		objects []runtime.Object
		deleted bool
	}{
		"that of another machine, by its mark": {
			removal, []runtime.Object{m, other(), activitiestest.NewNode(activitiestest.WithMachineUID(other()))}, false,
		},
		"a node of a machine that names no instance": {
			unknown,
			[]runtime.Object{
				activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine]),
				activitiestest.NewNode(activitiestest.WithProviderID("fake:///control-plane-0")),
			},
			false,
		},
		"the node of the instance":                           {removal, []runtime.Object{m, activitiestest.NewNode(activitiestest.WithProviderID("fake:///n"))}, true},
		"one that never got a provider ID":                   {removal, []runtime.Object{m, activitiestest.NewNode()}, true},
		"one whose instance was never known":                 {unknown, []runtime.Object{m, activitiestest.NewNode(activitiestest.WithProviderID("fake:///n"))}, true},
		"one whose provider ID has the zone, not the region": {regional, []runtime.Object{m, activitiestest.NewNode(activitiestest.WithProviderID("aws:///eu-1a/i-1"))}, true},
		"that of another instance":                           {removal, []runtime.Object{m, activitiestest.NewNode(activitiestest.WithProviderID("fake:///new"))}, false},
		"its own by its mark, which a copy names":            {removal, []runtime.Object{m, other(), activitiestest.NewNode(activitiestest.WithMachineUID(m))}, true},
		"none: the machine had no node":                      {nameless, []runtime.Object{m, activitiestest.NewNode()}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, row.objects...)
			activitiestest.RunActivityTwice[any](w, newActivities(w.Kube).DeleteNode, row.in)
			assert.Equal(t, row.deleted, w.Node() == nil)
		})
	}
	t.Run("one that a copy names, too, and that has no mark", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m, other(), activitiestest.NewNode(), activitiestest.NewVolumeAttachment("a", "n"))
		_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteNode, removal)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("a node that was deleted by hand", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m)
		activitiestest.RunActivityTwice[any](w, newActivities(w.Kube).DeleteNode, removal)
		assert.Empty(t, w.MutatingRequests())
	})
}

func TestDeleteNodeRemovesOurFinalizerFirst(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	w := activitiestest.NewWorld(
		t,
		m,
		activitiestest.NewNode(
			func(n *corev1.Node) { n.Finalizers = []string{v1alpha1.FinalizerNode, activitiestest.BackupFinalizer} },
		),
	)
	_, err := activitiestest.RunActivity[any](
		w,
		newActivities(w.Kube).DeleteNode,
		machine.NodeRemoval{Machine: activitiestest.NewRef(m), NodeName: "n"},
	)
	require.NoError(t, err)
	assert.Equal(t, []string{"update nodes", "delete nodes"}, w.MutatingRequests())
	assert.Equal(
		t,
		[]string{activitiestest.BackupFinalizer},
		w.Node().Finalizers,
		"that of others holds the node until they let go",
	)
	assert.NotNil(t, w.Node().DeletionTimestamp)

	var sent clienttesting.DeleteActionImpl
	for _, action := range w.TargetClient.Actions() {
		if d, ok := action.(clienttesting.DeleteActionImpl); ok {
			sent = d
		}
	}
	require.NotNil(t, sent.DeleteOptions.Preconditions)
	assert.Equal(t, "uid-n", string(*sent.DeleteOptions.Preconditions.UID), "only the node that was looked at")
}

func TestDeleteNodeKeepsReplacedNode(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	w := activitiestest.NewWorld(t, m, activitiestest.NewNode(activitiestest.WithProviderID("fake:///n")))
	tracker, nodes := w.TargetClient.Tracker(), corev1.SchemeGroupVersion.WithResource("nodes")
	activitiestest.FailRequests(w.TargetClient, "delete", "nodes", 1, nil, func() {
		require.NoError(t, tracker.Delete(nodes, "", "n"))
		replacement := activitiestest.NewNode(activitiestest.WithProviderID("fake:///new"))
		replacement.UID = "uid-new"
		require.NoError(t, tracker.Create(nodes, replacement, ""))
	})
	removal := machine.NodeRemoval{Machine: activitiestest.NewRef(m), NodeName: "n", ProviderID: "fake:///n"}
	activitiestest.RunActivityTwice[any](w, newActivities(w.Kube).DeleteNode, removal)
	assert.Equal(t, "uid-new", string(w.Node().UID))
}

func TestDeleteNodeRetriesAfterAConflict(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	w := activitiestest.NewWorld(
		t,
		m,
		activitiestest.NewNode(func(n *corev1.Node) { n.Finalizers = []string{v1alpha1.FinalizerNode} }),
	)
	activitiestest.FailRequests(
		w.TargetClient,
		"update",
		"nodes",
		1,
		nil,
		func() { w.EditObject(cache.NodesResource, "n", activitiestest.NewAnnotationPatch("note", "new")) },
	)
	removal := machine.NodeRemoval{Machine: activitiestest.NewRef(m), NodeName: "n"}
	activitiestest.RunActivityTwice[any](w, newActivities(w.Kube).DeleteNode, removal)
	assert.Nil(t, w.Node())
	assert.Equal(t, []string{"update nodes", "update nodes", "delete nodes"}, w.MutatingRequests())
}
