package activities_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

// left is a node of this age whose machine is gone.
func left(age time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.CreationTimestamp = metav1.NewTime(time.Now().Add(-age))
		n.Annotations = map[string]string{"team": "shop"}
		n.Finalizers = []string{backup, v1alpha1.FinalizerNode}
	}
}

func nodeSweep() activities.NodeSweep { return activities.NodeSweep{Namespace: shop, At: time.Now()} }

func TestU162_MarkNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, machine("other"), node(left(21*time.Minute)))
	assert.Equal(t, 1, twice[int](w, w.MarkNodes, nodeSweep()))
	n := w.node()
	assert.Equal(t, map[string]string{"team": "shop", v1alpha1.AnnotationNotManaged: "1"}, n.Annotations)
	assert.Equal(t, []string{backup}, n.Finalizers)
}

func TestU162_NodesThatAreLeftAlone(t *testing.T) {
	t.Parallel()
	for name, objects := range map[string][]runtime.Object{
		"U162: 19 minutes":         {machine("other"), node(left(19 * time.Minute))},
		"U162: it has its machine": {machine("m", onNode), node(left(time.Hour))},
		"N7: no machine at all":    {node(left(time.Hour))},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, objects...)
			assert.Zero(t, twice[int](w, w.MarkNodes, nodeSweep()))
			assert.Empty(t, w.writes())
		})
	}
}

// A machine that no cache shows yet keeps its node.
func TestU162_TheAPIServerHasTheLastWord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, machine("other"), node(left(time.Hour)))
	w.hold()
	_, err := w.machines.MachineV1alpha1().Machines(shop).Create(t.Context(), machine("late", onNode), metav1.CreateOptions{})
	require.NoError(t, err)
	w.forget()
	marked, err := run[int](w, w.MarkNodes, nodeSweep())
	require.NoError(t, err)
	assert.Zero(t, marked)
	assert.Equal(t, []string{"list machines"}, w.requests())

	failing(w.machines, "list", "machines", 1, errors.New("away"), nil)
	_, err = run[int](w, w.MarkNodes, nodeSweep())
	require.ErrorContains(t, err, "away")
	assert.Empty(t, w.writes())
}

func TestU162_ANodeThatChangedMeanwhileIsLeftToTheNextSweep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, machine("other"), node(left(time.Hour)))
	release := w.hold()
	w.edit(observe.Nodes, "n", map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}})
	marked, err := run[int](w, w.MarkNodes, nodeSweep())
	require.NoError(t, err)
	assert.Zero(t, marked)
	release()
	w.settle()
	marked, err = run[int](w, w.MarkNodes, nodeSweep())
	require.NoError(t, err)
	assert.Equal(t, 1, marked)
}

// A machine that claims a marked node takes the mark off again.
func TestU162_AMachineThatClaimsTheNodeUndoesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, machine("other"), node(left(time.Hour)), class())
	twice[int](w, w.MarkNodes, nodeSweep())
	m, err := w.machines.MachineV1alpha1().Machines(shop).Create(t.Context(), machine("m", onNode), metav1.CreateOptions{})
	require.NoError(t, err)
	w.settle()
	syncNode(w, read(m))
	assert.NotContains(t, w.node().Annotations, v1alpha1.AnnotationNotManaged)
	assert.Contains(t, w.node().Finalizers, v1alpha1.FinalizerNode)
}
