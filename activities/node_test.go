package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

func providerID(id string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.ProviderID = id }
}

func TestDeleteNode(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, going[*v1alpha1.Machine])
	other := func(change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
		return machine("other", append(change, onNode)...)
	}
	removal := activities.NodeRemoval{Machine: ref(m), NodeName: "n", ProviderID: "fake:///n"}
	nameless, unknown := removal, removal
	nameless.NodeName, unknown.ProviderID = "", ""
	for name, row := range map[string]struct {
		in      activities.NodeRemoval
		objects []runtime.Object
		deleted bool
	}{
		"U95, ND-04, ND-10: the node of the instance": {removal, []runtime.Object{m, node(providerID("fake:///n"))}, true},
		"one that never got a provider ID":            {removal, []runtime.Object{m, node()}, true},
		"one whose instance was never known":          {unknown, []runtime.Object{m, node(providerID("fake:///n"))}, true},
		"that of another instance":                    {removal, []runtime.Object{m, node(providerID("fake:///new"))}, false},
		"one that another machine names as its own":   {unknown, []runtime.Object{m, other(), node()}, false},
		"one that is named by one that is to go too":  {removal, []runtime.Object{m, other(going[*v1alpha1.Machine]), node()}, true},
		"none: the machine had no node":               {nameless, []runtime.Object{m, node()}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.objects...)
			twice[any](w, w.DeleteNode, row.in)
			assert.Equal(t, row.deleted, w.node() == nil)
		})
	}
	t.Run("a node that was deleted by hand", func(t *testing.T) {
		w := newWorld(t, m)
		twice[any](w, w.DeleteNode, removal)
		assert.Empty(t, w.writes())
	})
}

func TestDeleteNodeTakesOffOurFinalizerFirst(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, going[*v1alpha1.Machine])
	w := newWorld(t, m, node(func(n *corev1.Node) { n.Finalizers = []string{v1alpha1.FinalizerNode, backup} }))
	_, err := run[any](w, w.DeleteNode, activities.NodeRemoval{Machine: ref(m), NodeName: "n"})
	require.NoError(t, err)
	assert.Equal(t, []string{"update nodes", "delete nodes"}, w.writes())
	assert.Equal(t, []string{backup}, w.node().Finalizers, "that of others holds the node until they let go")
	assert.NotNil(t, w.node().DeletionTimestamp)

	var sent clienttesting.DeleteActionImpl
	for _, action := range w.target.Actions() {
		if d, ok := action.(clienttesting.DeleteActionImpl); ok {
			sent = d
		}
	}
	require.NotNil(t, sent.DeleteOptions.Preconditions)
	assert.Equal(t, "uid-n", string(*sent.DeleteOptions.Preconditions.UID), "only the node that was looked at")
}

func TestDeleteNodeThatWasReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, going[*v1alpha1.Machine])
	w := newWorld(t, m, node(providerID("fake:///n")))
	tracker, nodes := w.target.Tracker(), corev1.SchemeGroupVersion.WithResource("nodes")
	failing(w.target, "delete", "nodes", 1, nil, func() {
		require.NoError(t, tracker.Delete(nodes, "", "n"))
		replacement := node(providerID("fake:///new"))
		replacement.UID = "uid-new"
		require.NoError(t, tracker.Create(nodes, replacement, ""))
	})
	removal := activities.NodeRemoval{Machine: ref(m), NodeName: "n", ProviderID: "fake:///n"}
	twice[any](w, w.DeleteNode, removal)
	assert.Equal(t, "uid-new", string(w.node().UID))
}

func TestDeleteNodeAgainWhenItsWriteMetAnother(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, going[*v1alpha1.Machine])
	w := newWorld(t, m, node(func(n *corev1.Node) { n.Finalizers = []string{v1alpha1.FinalizerNode} }))
	failing(w.target, "update", "nodes", 1, nil, func() { w.edit(observe.Nodes, "n", annotated("note", "new")) })
	removal := activities.NodeRemoval{Machine: ref(m), NodeName: "n"}
	twice[any](w, w.DeleteNode, removal)
	assert.Nil(t, w.node())
	assert.Equal(t, []string{"update nodes", "update nodes", "delete nodes"}, w.writes())
}
