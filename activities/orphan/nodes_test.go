package orphan_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	"millwright/activities/orphan"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// orphanOfAge makes a node of this age whose machine is gone.
func orphanOfAge(age time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.CreationTimestamp = metav1.NewTime(time.Now().Add(-age))
		n.Annotations = map[string]string{"team": "shop"}
		n.Finalizers = []string{activitiestest.Backup, v1alpha1.FinalizerNode}
	}
}

func nodeSweep() orphan.NodeSweep {
	return orphan.NodeSweep{Namespace: activitiestest.Shop, At: time.Now()}
}

func TestMarkNodes(t *testing.T) {
	t.Parallel()
	w := activitiestest.NewWorld(t, activitiestest.Machine("other"), activitiestest.Node(orphanOfAge(21*time.Minute)))
	assert.Equal(t, 1, activitiestest.Twice[int](w, newActivities(w.Kube).MarkNodes, nodeSweep()))
	n := w.Node()
	assert.Equal(t, map[string]string{"team": "shop", v1alpha1.AnnotationNotManaged: "1"}, n.Annotations)
	assert.Equal(t, []string{activitiestest.Backup}, n.Finalizers)
}

func TestNodesThatStayUnmarked(t *testing.T) {
	t.Parallel()
	for name, objects := range map[string][]runtime.Object{
		"19 minutes":         {activitiestest.Machine("other"), activitiestest.Node(orphanOfAge(19 * time.Minute))},
		"it has its machine": {activitiestest.Machine("m", activitiestest.OnNode), activitiestest.Node(orphanOfAge(time.Hour))},
		"no machine at all":  {activitiestest.Node(orphanOfAge(time.Hour))},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, objects...)
			assert.Zero(t, activitiestest.Twice[int](w, newActivities(w.Kube).MarkNodes, nodeSweep()))
			assert.Empty(t, w.Writes())
		})
	}
}

// A node keeps its finalizer if its machine is on the API server but not yet in the cache.
func TestMarkNodesReadsMachinesLive(t *testing.T) {
	t.Parallel()
	w := activitiestest.NewWorld(t, activitiestest.Machine("other"), activitiestest.Node(orphanOfAge(time.Hour)))
	w.Hold()
	_, err := w.Machines.MachineV1alpha1().
		Machines(activitiestest.Shop).
		Create(t.Context(), activitiestest.Machine("late", activitiestest.OnNode), metav1.CreateOptions{})
	require.NoError(t, err)
	w.Forget()
	marked, err := activitiestest.Run[int](w, newActivities(w.Kube).MarkNodes, nodeSweep())
	require.NoError(t, err)
	assert.Zero(t, marked)
	assert.Equal(t, []string{"list machines"}, w.Requests())

	activitiestest.Failing(w.Machines, "list", "machines", 1, errors.New("away"), nil)
	_, err = activitiestest.Run[int](w, newActivities(w.Kube).MarkNodes, nodeSweep())
	require.ErrorContains(t, err, "away")
	assert.Empty(t, w.Writes())
}

func TestChangedNodeIsLeftToNextSweep(t *testing.T) {
	t.Parallel()
	w := activitiestest.NewWorld(t, activitiestest.Machine("other"), activitiestest.Node(orphanOfAge(time.Hour)))
	release := w.Hold()
	w.Edit(cache.Nodes, "n", map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}})
	marked, err := activitiestest.Run[int](w, newActivities(w.Kube).MarkNodes, nodeSweep())
	require.NoError(t, err)
	assert.Zero(t, marked)
	release()
	w.Settle()
	marked, err = activitiestest.Run[int](w, newActivities(w.Kube).MarkNodes, nodeSweep())
	require.NoError(t, err)
	assert.Equal(t, 1, marked)
}

// The sync of a machine that claims a marked node removes the mark.
func TestClaimingMachineRemovesMark(t *testing.T) {
	t.Parallel()
	w := activitiestest.NewWorld(
		t,
		activitiestest.Machine("other"),
		activitiestest.Node(orphanOfAge(time.Hour)),
		activitiestest.Class(),
	)
	activitiestest.Twice[int](w, newActivities(w.Kube).MarkNodes, nodeSweep())
	m, err := w.Machines.MachineV1alpha1().
		Machines(activitiestest.Shop).
		Create(t.Context(), activitiestest.Machine("m", activitiestest.OnNode), metav1.CreateOptions{})
	require.NoError(t, err)
	w.Settle()
	activitiestest.SyncNode(w, activitiestest.Read(m))
	assert.NotContains(t, w.Node().Annotations, v1alpha1.AnnotationNotManaged)
	assert.Contains(t, w.Node().Finalizers, v1alpha1.FinalizerNode)
}
