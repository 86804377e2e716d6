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
	"millwright/observe/cache"
)

func TestPreserveMachineRetriesAfterAConflict(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		at     activitiestest.WriteKind
		writes int // number of writes, including the failed write and, where needed, a second taint write
	}{
		"of the end":         {expiryWrite, 5},
		"of the marks":       {nodeAnnotationsWrite, 5},
		"of the condition":   {nodeConditionWrite, 6},
		"of the annotations": {machineAnnotationsWrite, 6},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo)
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(withNodePreserveAnnotation("now")))
			w.FailWrites(row.at, 1, nil, func() {
				w.EditObject(cache.NodesResource, "n", map[string]any{
					"metadata": map[string]any{"annotations": map[string]any{"mine": "1"}},
					"spec":     map[string]any{"taints": []any{map[string]any{"key": "mine", "effect": "NoSchedule"}}},
				})
				w.EditObject(cache.MachinesResource, "m", activitiestest.NewAnnotationPatch("mine", "1"))
			})
			preserveMachine(w, readInputAfterPreservationStart(m, 0))
			assert.Len(t, w.MutatingRequests(), row.writes)
			assert.Equal(t, "1", w.Node().Annotations["mine"], "what the other one wrote is not lost")
			assert.Equal(t, "1", w.Machine("m").Annotations["mine"])
			assert.Len(t, w.TakeNewEvents(), 1)
		})
	}
	t.Run("who changed the wish", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("now"))
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
		w.FailWrites(
			expiryWrite,
			1,
			nil,
			func() {
				w.EditObject(cache.MachinesResource, "m", activitiestest.NewAnnotationPatch(v1alpha1.AnnotationPreserve, "false"))
			},
		)
		versions, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).PreserveMachine,
			readInputAfterPreservationStart(m, 0),
		)
		require.NoError(t, err)
		assert.Empty(t, versions)
		assert.Equal(t, []string{"update machines/status"}, w.MutatingRequests(), "in vain, and then there is nothing to do")
		assert.Nil(t, w.Machine("m").Status.CurrentStatus.PreserveExpiryTime)
		assert.Empty(t, w.TakeNewEvents())
	})
	t.Run("each time", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("now"))
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
		w.FailWrites(nodeAnnotationsWrite, -1, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n", nil), nil)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).PreserveMachine,
			readInputAfterPreservationStart(m, 0),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, true)
		assert.Len(t, w.MutatingRequests(), 4)
		assert.Equal(t, []string{"end"}, preservationRecordPlaces(w), "it is protected nevertheless")
	})
}

func TestPreserveMachineContinuesIfNodeIsDeleted(t *testing.T) {
	t.Parallel()
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	for name, at := range map[string]activitiestest.WriteKind{"before the marks": nodeAnnotationsWrite, "before the condition": nodeConditionWrite} {
		m := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("now"))
		t.Run("it goes "+name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
			w.FailWrites(at, 1, nil, func() { require.NoError(t, w.TargetClient.Tracker().Delete(nodes, "", "n")) })
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).PreserveMachine,
				readInputAfterPreservationStart(m, 0),
			)
			require.NoError(t, err)
			assert.Equal(t, &activitiestest.PreservationEnd, w.Machine("m").Status.CurrentStatus.PreserveExpiryTime)
			assert.Nil(t, w.Node())
		})
		t.Run("another one takes its place "+name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
			w.FailWrites(at, 1, nil, func() {
				require.NoError(t, w.TargetClient.Tracker().Delete(nodes, "", "n"))
				require.NoError(
					t,
					w.TargetClient.Tracker().Create(nodes, activitiestest.NewNode(func(n *corev1.Node) { n.UID = "uid-new" }), ""),
				)
			})
			preserveMachine(w, readInputAfterPreservationStart(m, 0))
			assert.Equal(t, "uid-new", string(w.Node().UID))
			assert.NotNil(t, preservedTaint(w.Node()))
			assert.Equal(t, preservedFailedMachineMessage, preservedCondition(w.Node()).Message)
		})
	}
	t.Run("the machine goes", func(t *testing.T) {
		m := activitiestest.NewMachine(
			"m",
			activitiestest.WithNode,
			setFailedLongAgo,
			withPreserveAnnotation("now"),
			activitiestest.WithoutFinalizers[*v1alpha1.Machine],
		)
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
		w.FailWrites(expiryWrite, 1, nil, func() {
			require.NoError(
				t,
				w.MachineClient.Tracker().
					Delete(v1alpha1.SchemeGroupVersion.WithResource("machines"), activitiestest.TestNamespace, "m"),
			)
		})
		versions, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).PreserveMachine,
			readInputAfterPreservationStart(m, 0),
		)
		require.NoError(t, err)
		assert.Empty(t, versions)
	})
}

func TestPreserveMachineReturnsErrors(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("now"))
	t.Run("for now, to read the node", func(t *testing.T) {
		for _, answer := range []error{errors.New("no answer"), apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", nil)} {
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
			w.FailWrites(activitiestest.WriteKind{Verb: "get", Resource: "nodes", InControlCluster: false}, 1, answer, nil)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).PreserveMachine,
				readInputAfterPreservationStart(m, 0),
			)
			require.ErrorContains(t, err, "get node n of machine m")
			_, retryable := activitiestest.FailureTypeOf(t, err)
			assert.True(t, retryable)
			assert.Empty(t, w.MutatingRequests(), "a node that cannot be read is not a node without wishes")
			preserveMachine(w, readInputAfterPreservationStart(m, 0))
			assert.Equal(t, preservedFailedMachineMessage, preservedCondition(w.Node()).Message)
		}
	})
	t.Run("for good", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
		w.FailWrites(nodeAnnotationsWrite, 1, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", nil), nil)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).PreserveMachine,
			readInputAfterPreservationStart(m, 0),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeRefused, false)
	})
	for message, at := range map[string]activitiestest.WriteKind{
		"write end of preservation: no answer":           expiryWrite,
		"write annotations and taint of node: no answer": nodeAnnotationsWrite,
		"write condition of node: no answer":             nodeConditionWrite,
		"write annotations of machine: no answer":        machineAnnotationsWrite,
	} {
		t.Run("for now: "+message, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo)
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(withNodePreserveAnnotation("now")))
			w.FailWrites(at, 1, errors.New("no answer"), nil)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).PreserveMachine,
				readInputAfterPreservationStart(m, 0),
			)
			require.ErrorContains(t, err, message)
		})
	}
}

func TestPreserveMachineChangesNoCachedObject(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("false"))
	w := activitiestest.NewWorld(
		t,
		m,
		activitiestest.NewNode(withNodePreserveAnnotation("now"), addChangesOfOtherControllers),
	)
	release := w.HoldEvents()
	cachedMachine, _ := w.Cluster.Machine(activitiestest.TestNamespace + "/m")
	cachedNode, _ := w.Cluster.Target("").Node("n")
	machineBefore, nodeBefore := cachedMachine.DeepCopy(), cachedNode.DeepCopy()
	_, err := activitiestest.RunActivity[kube.MinVersions](
		w,
		newActivities(w.Kube).PreserveMachine,
		readInputAfterPreservationStart(m, 0),
	)
	require.NoError(t, err)
	assert.Len(t, w.MutatingRequests(), 4)
	assert.Equal(t, machineBefore, cachedMachine)
	assert.Equal(t, nodeBefore, cachedNode)

	t.Run("and a cache that is behind tells nobody twice", func(t *testing.T) {
		w.TakeNewEvents()
		before := w.Snapshot()
		versions, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).PreserveMachine,
			readInputAfterPreservationStart(m, 0),
		)
		require.NoError(t, err)
		assert.Empty(t, versions)
		assert.Equal(t, before, w.Snapshot())
		assert.Empty(t, w.TakeNewEvents())
	})
	release()
}
