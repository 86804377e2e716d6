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

// asOrphanNodeOfAge makes a node of this age whose machine is gone.
func asOrphanNodeOfAge(age time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.CreationTimestamp = metav1.NewTime(time.Now().Add(-age))
		n.Annotations = map[string]string{"team": "shop"}
		n.Finalizers = []string{activitiestest.BackupFinalizer, v1alpha1.FinalizerNode}
	}
}

func newNodeSweep() orphan.NodeSweep {
	return orphan.NodeSweep{Namespace: activitiestest.TestNamespace, At: time.Now()}
}

func TestMarkNodes(t *testing.T) {
	t.Parallel()
	w := activitiestest.NewWorld(
		t,
		activitiestest.NewMachine("other"),
		activitiestest.NewNode(asOrphanNodeOfAge(21*time.Minute)),
	)
	assert.Equal(t, 1, activitiestest.RunActivityTwice[int](w, newActivities(w.Kube).MarkNodes, newNodeSweep()))
	n := w.Node()
	assert.Equal(t, map[string]string{"team": "shop", v1alpha1.AnnotationNotManaged: "1"}, n.Annotations)
	assert.Equal(t, []string{activitiestest.BackupFinalizer}, n.Finalizers)
}

func TestWhichNodesStayUnmarked(t *testing.T) {
	t.Parallel()
	for name, objects := range map[string][]runtime.Object{
		"19 minutes":         {activitiestest.NewMachine("other"), activitiestest.NewNode(asOrphanNodeOfAge(19 * time.Minute))},
		"it has its machine": {activitiestest.NewMachine("m", activitiestest.WithNode), activitiestest.NewNode(asOrphanNodeOfAge(time.Hour))},
		"no machine at all":  {activitiestest.NewNode(asOrphanNodeOfAge(time.Hour))},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, objects...)
			assert.Zero(t, activitiestest.RunActivityTwice[int](w, newActivities(w.Kube).MarkNodes, newNodeSweep()))
			assert.Empty(t, w.MutatingRequests())
		})
	}
}

// A node keeps its finalizer if its machine is on the API server but not yet in the cache.
func TestMarkNodesReadsMachinesLive(t *testing.T) {
	t.Parallel()
	w := activitiestest.NewWorld(
		t,
		activitiestest.NewMachine("other"),
		activitiestest.NewNode(asOrphanNodeOfAge(time.Hour)),
	)
	w.HoldEvents()
	_, err := w.MachineClient.MachineV1alpha1().
		Machines(activitiestest.TestNamespace).
		Create(t.Context(), activitiestest.NewMachine("late", activitiestest.WithNode), metav1.CreateOptions{})
	require.NoError(t, err)
	w.ForgetRequests()
	marked, err := activitiestest.RunActivity[int](w, newActivities(w.Kube).MarkNodes, newNodeSweep())
	require.NoError(t, err)
	assert.Zero(t, marked)
	assert.Equal(t, []string{"list machines"}, w.Requests())

	activitiestest.FailRequests(w.MachineClient, "list", "machines", 1, errors.New("away"), nil)
	_, err = activitiestest.RunActivity[int](w, newActivities(w.Kube).MarkNodes, newNodeSweep())
	require.ErrorContains(t, err, "away")
	assert.Empty(t, w.MutatingRequests())
}

func TestNodeChangedSinceReadIsMarkedByNextSweep(t *testing.T) {
	t.Parallel()
	w := activitiestest.NewWorld(
		t,
		activitiestest.NewMachine("other"),
		activitiestest.NewNode(asOrphanNodeOfAge(time.Hour)),
	)
	release := w.HoldEvents()
	w.EditObject(cache.NodesResource, "n", map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}})
	marked, err := activitiestest.RunActivity[int](w, newActivities(w.Kube).MarkNodes, newNodeSweep())
	require.NoError(t, err)
	assert.Zero(t, marked)
	release()
	w.AwaitCaches()
	marked, err = activitiestest.RunActivity[int](w, newActivities(w.Kube).MarkNodes, newNodeSweep())
	require.NoError(t, err)
	assert.Equal(t, 1, marked)
}

// The sync of a machine that claims a marked node removes the mark.
func TestSyncOfClaimingMachineRemovesNotManagedMark(t *testing.T) {
	t.Parallel()
	w := activitiestest.NewWorld(
		t,
		activitiestest.NewMachine("other"),
		activitiestest.NewNode(asOrphanNodeOfAge(time.Hour)),
		activitiestest.NewClass(),
	)
	activitiestest.RunActivityTwice[int](w, newActivities(w.Kube).MarkNodes, newNodeSweep())
	m, err := w.MachineClient.MachineV1alpha1().
		Machines(activitiestest.TestNamespace).
		Create(t.Context(), activitiestest.NewMachine("m", activitiestest.WithNode), metav1.CreateOptions{})
	require.NoError(t, err)
	w.AwaitCaches()
	activitiestest.SyncNode(w, activitiestest.NewReadInput(m))
	assert.NotContains(t, w.Node().Annotations, v1alpha1.AnnotationNotManaged)
	assert.Contains(t, w.Node().Finalizers, v1alpha1.FinalizerNode)
}
