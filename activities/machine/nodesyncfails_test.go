package machine_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/nodesync"
	"millwright/observe/cache"
	observemachine "millwright/observe/machine"
)

func TestSyncNodeChangesNoCachedObject(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, withNodeTemplate)
	w := activitiestest.NewWorld(
		t,
		m,
		activitiestest.NewClass(withVirtualDongleCapacity),
		activitiestest.NewNode(activitiestest.WithForeignMetadata, func(n *corev1.Node) {
			n.Annotations[v1alpha1.AnnotationLastAppliedTemplate] = `{"metadata":{"labels":{"kubernetes.io/os":"linux"}}}`
			n.Annotations[v1alpha1.AnnotationLastAppliedVirtualCapacity] = `{"cpu":"4"}`
		}),
	)
	release := w.HoldEvents()
	cachedMachine, _ := w.Cluster.Machine(activitiestest.TestNamespace + "/m")
	cachedClass, _ := w.Cluster.Class(activitiestest.TestNamespace + "/small")
	cachedNode, _ := w.Cluster.Target("").Node("n")
	machineBefore, classBefore, nodeBefore := cachedMachine.DeepCopy(), cachedClass.DeepCopy(), cachedNode.DeepCopy()

	require.False(t, nodesync.Decide(observemachine.NodeSyncFacts(cachedMachine, cachedClass, cachedNode)).IsEmpty())
	_, err := activitiestest.RunActivity[kube.MinVersions](
		w,
		newActivities(w.Kube).SyncNode,
		activitiestest.NewReadInput(m),
	)
	require.NoError(t, err)
	assert.Equal(t, []string{"patch nodes/status", "update nodes"}, w.MutatingRequests())
	again, _ := w.Cluster.Target("").Node("n")
	require.Same(t, cachedNode, again, "its event has not come")
	assert.Equal(t, machineBefore, cachedMachine)
	assert.Equal(t, classBefore, cachedClass)
	assert.Equal(t, nodeBefore, cachedNode)

	t.Run("a cache that is behind costs one write in vain", func(t *testing.T) {
		before := w.Node()
		w.ForgetRequests()
		versions, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).SyncNode,
			activitiestest.NewReadInput(m),
		)
		require.NoError(t, err)
		assert.Empty(t, versions)
		assert.Equal(t, []string{"patch nodes/status"}, w.MutatingRequests(), "a conflict: then the node is read live")
		assert.Equal(t, before, w.Node())
	})
	release()
}

func TestSyncNodeRetriesAfterAConflict(t *testing.T) {
	t.Parallel()
	for name, verb := range map[string]string{"of the capacity": "patch", "of the labels": "update"} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithNode, withNodeTemplate)
			w := activitiestest.NewWorld(
				t,
				m,
				activitiestest.NewClass(withVirtualDongleCapacity),
				activitiestest.NewNode(activitiestest.WithForeignMetadata),
			)
			activitiestest.FailRequests(w.TargetClient, verb, "nodes", 1, nil, func() {
				w.EditObject(cache.NodesResource, "n", map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"pool": "db", "mine": "1"}},
					"spec":     map[string]any{"taints": []any{map[string]any{"key": "mine", "effect": "NoSchedule"}}},
				})
			})
			n := activitiestest.SyncNode(w, activitiestest.NewReadInput(m))
			assert.Len(t, w.MutatingRequests(), 3, "one was in vain")
			assert.Equal(
				t,
				map[string]string{"kubernetes.io/os": "linux", "mine": "1", "pool": "web", v1alpha1.LabelMachineName: "m"},
				n.Labels,
			)
			assert.Equal(
				t,
				[]corev1.Taint{{Key: "mine", Effect: "NoSchedule"}, {Key: "only", Value: "web", Effect: "NoSchedule"}},
				n.Spec.Taints,
				"what the other one wrote is not lost",
			)
			assert.Equal(t, map[string]string{"cpu": "4", dongleResource: "2"}, nodeCapacityTexts(n))
		})
	}
	t.Run("each time", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithNode, withNodeTemplate)
		w := activitiestest.NewWorld(t, m, activitiestest.NewClass(), activitiestest.NewNode())
		activitiestest.FailRequests(
			w.TargetClient,
			"update",
			"nodes",
			-1,
			apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n", nil),
			nil,
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).SyncNode,
			activitiestest.NewReadInput(m),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, true)
		assert.Len(t, w.MutatingRequests(), 3)
	})
}

func TestSyncNodeIgnoresDeletedOrReplacedNode(t *testing.T) {
	t.Parallel()
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	for name, verb := range map[string]string{"before the capacity": "patch", "before the labels": "update"} {
		m := activitiestest.NewMachine("m", activitiestest.WithNode, withNodeTemplate)
		t.Run("it goes "+name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewClass(withVirtualDongleCapacity), activitiestest.NewNode())
			activitiestest.FailRequests(
				w.TargetClient,
				verb,
				"nodes",
				1,
				nil,
				func() { require.NoError(t, w.TargetClient.Tracker().Delete(nodes, "", "n")) },
			)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).SyncNode,
				activitiestest.NewReadInput(m),
			)
			require.NoError(t, err)
			assert.Nil(t, w.Node())
		})
		t.Run("another one takes its place "+name, func(t *testing.T) {
			w := activitiestest.NewWorld(
				t,
				m,
				activitiestest.NewClass(withVirtualDongleCapacity),
				activitiestest.NewNode(activitiestest.WithForeignMetadata),
			)
			activitiestest.FailRequests(w.TargetClient, verb, "nodes", 1, nil, func() {
				require.NoError(t, w.TargetClient.Tracker().Delete(nodes, "", "n"))
				require.NoError(
					t,
					w.TargetClient.Tracker().Create(nodes, activitiestest.NewNode(func(n *corev1.Node) { n.UID = "uid-new" }), ""),
				)
			})
			n := activitiestest.SyncNode(w, activitiestest.NewReadInput(m))
			assert.Equal(t, "uid-new", string(n.UID))
			assert.Equal(
				t,
				map[string]string{"pool": "web", v1alpha1.LabelMachineName: "m"},
				n.Labels,
				"decided anew, for the new one",
			)
		})
	}
}

func TestSyncNodeReturnsErrors(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, withNodeTemplate)
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", nil)
	t.Run("for good, with a template that no node can carry", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m, activitiestest.NewClass(), activitiestest.NewNode())
		activitiestest.FailRequests(w.TargetClient, "update", "nodes", 1, invalid, nil)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).SyncNode,
			activitiestest.NewReadInput(m),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeRefused, false)
	})
	for name, row := range map[string]struct {
		verb, resource, message string
		in                      kube.ReadInput
		ours                    bool
	}{
		"to read the node":  {"get", "nodes", "get node n of machine m: no answer", activitiestest.NewLiveReadInput(m), false},
		"to read the class": {"get", "machineclasses", "get class small of machine m: no answer", activitiestest.NewLiveReadInput(m), true},
		"to write capacity": {"patch", "nodes", "write capacity of node: no answer", activitiestest.NewReadInput(m), false},
		"to write the rest": {"update", "nodes", "write labels, annotations and taints of node: no answer", activitiestest.NewReadInput(m), false},
	} {
		t.Run("for now, "+name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewClass(withVirtualDongleCapacity), activitiestest.NewNode())
			if row.ours {
				activitiestest.FailRequests(w.MachineClient, row.verb, row.resource, 1, errors.New("no answer"), nil)
			} else {
				activitiestest.FailRequests(w.TargetClient, row.verb, row.resource, 1, errors.New("no answer"), nil)
			}
			_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).SyncNode, row.in)
			require.ErrorContains(t, err, row.message)
			_, retryable := activitiestest.FailureTypeOf(t, err)
			assert.True(t, retryable)

			n := activitiestest.SyncNode(w, row.in)
			assert.Equal(t, map[string]string{dongleResource: "2"}, nodeCapacityTexts(n))
			assert.Contains(t, n.Labels, "pool")
		})
	}
}
