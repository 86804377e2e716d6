package activities_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

func TestPreserveMachineMeetsAFasterWriter(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		at     write
		writes int // in all: one in vain, and one more where the taint has to be put on again
	}{
		"of the end":         {writeEnd, 5},
		"of the marks":       {writeMarks, 5},
		"of the condition":   {writeCondition, 6},
		"of the annotations": {writeMachine, 6},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine("m", onNode, ill)
			w := newWorld(t, m, node(nodeAsks("now")))
			w.fail(row.at, 1, nil, func() {
				w.edit(observe.Nodes, "n", map[string]any{
					"metadata": map[string]any{"annotations": map[string]any{"mine": "1"}},
					"spec":     map[string]any{"taints": []any{map[string]any{"key": "mine", "effect": "NoSchedule"}}},
				})
				w.edit(observe.Machines, "m", annotated("mine", "1"))
			})
			preserveMachine(w, keepAt(m, 0))
			assert.Len(t, w.writes(), row.writes)
			assert.Equal(t, "1", w.node().Annotations["mine"], "what the other one wrote is not lost")
			assert.Equal(t, "1", w.machine("m").Annotations["mine"])
			assert.Len(t, w.told(), 1)
		})
	}
	t.Run("who changed the wish", func(t *testing.T) {
		m := machine("m", onNode, ill, asks("now"))
		w := newWorld(t, m, node())
		w.fail(writeEnd, 1, nil, func() { w.edit(observe.Machines, "m", annotated(v1alpha1.AnnotationPreserve, "false")) })
		gate, err := run[activities.Gate](w, w.PreserveMachine, keepAt(m, 0))
		require.NoError(t, err)
		assert.Empty(t, gate)
		assert.Equal(t, []string{"update machines/status"}, w.writes(), "in vain, and then there is nothing to do")
		assert.Nil(t, w.machine("m").Status.CurrentStatus.PreserveExpiryTime)
		assert.Empty(t, w.told())
	})
	t.Run("each time", func(t *testing.T) {
		m := machine("m", onNode, ill, asks("now"))
		w := newWorld(t, m, node())
		w.fail(writeMarks, -1, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n", nil), nil)
		_, err := run[activities.Gate](w, w.PreserveMachine, keepAt(m, 0))
		assertFailure(t, err, activities.TypeConflict, true)
		assert.Len(t, w.writes(), 4)
		assert.Equal(t, []string{"end"}, saying(w), "it is protected nevertheless")
	})
}

func TestPreserveMachineThatLosesItsNodeMeanwhile(t *testing.T) {
	t.Parallel()
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	for name, at := range map[string]write{"before the marks": writeMarks, "before the condition": writeCondition} {
		m := machine("m", onNode, ill, asks("now"))
		t.Run("it goes "+name, func(t *testing.T) {
			w := newWorld(t, m, node())
			w.fail(at, 1, nil, func() { require.NoError(t, w.target.Tracker().Delete(nodes, "", "n")) })
			_, err := run[activities.Gate](w, w.PreserveMachine, keepAt(m, 0))
			require.NoError(t, err)
			assert.Equal(t, &keptUntil, w.machine("m").Status.CurrentStatus.PreserveExpiryTime)
			assert.Nil(t, w.node())
		})
		t.Run("another one takes its place "+name, func(t *testing.T) {
			w := newWorld(t, m, node())
			w.fail(at, 1, nil, func() {
				require.NoError(t, w.target.Tracker().Delete(nodes, "", "n"))
				require.NoError(t, w.target.Tracker().Create(nodes, node(func(n *corev1.Node) { n.UID = "uid-new" }), ""))
			})
			preserveMachine(w, keepAt(m, 0))
			assert.Equal(t, "uid-new", string(w.node().UID))
			assert.NotNil(t, preservedTaint(w.node()))
			assert.Equal(t, failedSentence, preservedCondition(w.node()).Message)
		})
	}
	t.Run("the machine goes", func(t *testing.T) {
		m := machine("m", onNode, ill, asks("now"), bare[*v1alpha1.Machine])
		w := newWorld(t, m, node())
		w.fail(writeEnd, 1, nil, func() {
			require.NoError(t, w.machines.Tracker().Delete(v1alpha1.SchemeGroupVersion.WithResource("machines"), shop, "m"))
		})
		gate, err := run[activities.Gate](w, w.PreserveMachine, keepAt(m, 0))
		require.NoError(t, err)
		assert.Empty(t, gate)
	})
}

func TestPreserveMachineFails(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, ill, asks("now"))
	t.Run("U132: for now, to read the node", func(t *testing.T) {
		for _, answer := range []error{errors.New("no answer"), apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", nil)} {
			w := newWorld(t, m, node())
			w.fail(write{"get", "nodes", false}, 1, answer, nil)
			_, err := run[activities.Gate](w, w.PreserveMachine, keepAt(m, 0))
			require.ErrorContains(t, err, "get node n of machine m")
			_, retryable := failure(t, err)
			assert.True(t, retryable)
			assert.Empty(t, w.writes(), "a node that cannot be read is not a node without wishes")
			preserveMachine(w, keepAt(m, 0))
			assert.Equal(t, failedSentence, preservedCondition(w.node()).Message)
		}
	})
	t.Run("for good", func(t *testing.T) {
		w := newWorld(t, m, node())
		w.fail(writeMarks, 1, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", nil), nil)
		_, err := run[activities.Gate](w, w.PreserveMachine, keepAt(m, 0))
		assertFailure(t, err, activities.TypeRefused, false)
	})
	for message, at := range map[string]write{
		"write end of preservation: no answer":           writeEnd,
		"write annotations and taint of node: no answer": writeMarks,
		"write condition of node: no answer":             writeCondition,
		"write annotations of machine: no answer":        writeMachine,
	} {
		t.Run("for now: "+message, func(t *testing.T) {
			m := machine("m", onNode, ill)
			w := newWorld(t, m, node(nodeAsks("now")))
			w.fail(at, 1, errors.New("no answer"), nil)
			_, err := run[activities.Gate](w, w.PreserveMachine, keepAt(m, 0))
			require.ErrorContains(t, err, message)
		})
	}
}

func TestD21_PreserveMachineLeavesTheCachesAlone(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, ill, asks("false"))
	w := newWorld(t, m, node(nodeAsks("now"), cordoned))
	release := w.hold()
	cachedMachine, _ := w.Cluster.Machine(shop + "/m")
	cachedNode, _ := w.Cluster.Node("n")
	machineBefore, nodeBefore := cachedMachine.DeepCopy(), cachedNode.DeepCopy()
	_, err := run[activities.Gate](w, w.PreserveMachine, keepAt(m, 0))
	require.NoError(t, err)
	assert.Len(t, w.writes(), 4)
	assert.Equal(t, machineBefore, cachedMachine)
	assert.Equal(t, nodeBefore, cachedNode)

	t.Run("and a cache that is behind tells nobody twice", func(t *testing.T) {
		w.told()
		before := w.snapshot()
		gate, err := run[activities.Gate](w, w.PreserveMachine, keepAt(m, 0))
		require.NoError(t, err)
		assert.Empty(t, gate)
		assert.Equal(t, before, w.snapshot())
		assert.Empty(t, w.told())
	})
	release()
}
