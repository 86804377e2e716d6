package machine_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// nodeWriteActivities returns the activities that write a node, by name.
func nodeWriteActivities(w *activitiestest.World, in kube.ReadInput) map[string]func() (kube.MinVersions, error) {
	return map[string]func() (kube.MinVersions, error){
		"mark": func() (kube.MinVersions, error) {
			return activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).MarkInPlace,
				newInPlaceCondition(in, v1alpha1.ReasonSelectedForUpdate),
			)
		},
		"cordon": func() (kube.MinVersions, error) {
			return activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).CordonNode, in)
		},
	}
}

func TestInPlaceActivitiesWriteNothingIfNotNeeded(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
	early := activitiestest.NewMachine("m", activitiestest.WithPhase(v1alpha1.MachinePending))
	chosen := activitiestest.NewNode(activitiestest.WithSelectedLabels)
	for name, row := range map[string]struct {
		in      kube.ReadInput
		objects []runtime.Object
	}{
		"the node is missing":                       {activitiestest.NewReadInput(m), []runtime.Object{m}},
		"the machine has no node yet":               {activitiestest.NewReadInput(early), []runtime.Object{early, chosen}},
		"the machine is gone":                       {activitiestest.NewReadInput(m), []runtime.Object{chosen}},
		"the machine is gone, read live":            {activitiestest.NewLiveReadInput(m), []runtime.Object{chosen}},
		"another machine has its name":              {kube.ReadInput{Ref: activitiestest.NewFormerObjectRef(m)}, []runtime.Object{m, chosen}},
		"another machine names the node as its own": {activitiestest.NewReadInput(m), []runtime.Object{m, activitiestest.NewMachine("other", activitiestest.WithNode), chosen}},
	} {
		for step := range nodeWriteActivities(nil, row.in) {
			t.Run(name+", "+step, func(t *testing.T) {
				w := activitiestest.NewWorld(t, row.objects...)
				versions, err := nodeWriteActivities(w, row.in)[step]()
				require.NoError(t, err)
				assert.Empty(t, versions)
				assert.Empty(t, w.MutatingRequests())
			})
		}
	}
	t.Run("because there is no target", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m)
		var err error
		w.Cluster, err = cache.NewCluster(w.MachineClient, nil, nil)
		require.NoError(t, err)
		require.NoError(t, w.Cluster.Start(t.Context()))
		for name, step := range nodeWriteActivities(w, activitiestest.NewReadInput(m)) {
			versions, err := step()
			require.NoError(t, err, name)
			assert.Empty(t, versions, name)
		}
	})
	t.Run("mark, because the machine is being deleted", func(t *testing.T) {
		leaving := activitiestest.NewMachine(
			"m",
			activitiestest.WithNode,
			activitiestest.WithPhase(v1alpha1.MachineRunning),
			activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
		)
		w := activitiestest.NewWorld(t, leaving, chosen)
		_, err := nodeWriteActivities(w, activitiestest.NewReadInput(leaving))["mark"]()
		require.NoError(t, err)
		assert.Empty(t, w.MutatingRequests())
	})
}

func TestInPlaceActivitiesRetryAfterConflict(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	for step := range nodeWriteActivities(nil, activitiestest.NewReadInput(m)) {
		t.Run(step+": who wrote something else", func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(activitiestest.WithSelectedLabels))
			activitiestest.FailRequests(
				w.TargetClient,
				"patch",
				"nodes",
				1,
				nil,
				func() { w.EditObject(cache.NodesResource, "n", activitiestest.NewAnnotationPatch("mine", "1")) },
			)
			versions, err := nodeWriteActivities(w, activitiestest.NewReadInput(m))[step]()
			require.NoError(t, err)
			assert.Equal(t, w.NodeMinVersions(), versions)
			assert.Len(t, w.MutatingRequests(), 2, "one was in vain")
			assert.Equal(t, "1", w.Node().Annotations["mine"])
			assert.True(t, w.Node().Spec.Unschedulable || activitiestest.FindUpdateCondition(w.Node()) != nil)
		})
		t.Run(step+": each time", func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(activitiestest.WithSelectedLabels))
			activitiestest.FailRequests(
				w.TargetClient,
				"patch",
				"nodes",
				-1,
				apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n", nil),
				nil,
			)
			_, err := nodeWriteActivities(w, activitiestest.NewReadInput(m))[step]()
			activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, true)
			assert.Len(t, w.MutatingRequests(), 3)
		})
		t.Run(step+": the node goes", func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(activitiestest.WithSelectedLabels))
			activitiestest.FailRequests(
				w.TargetClient,
				"patch",
				"nodes",
				1,
				nil,
				func() { require.NoError(t, w.TargetClient.Tracker().Delete(nodes, "", "n")) },
			)
			versions, err := nodeWriteActivities(w, activitiestest.NewReadInput(m))[step]()
			require.NoError(t, err)
			assert.Empty(t, versions)
			assert.Nil(t, w.Node())
		})
		t.Run(step+": another node takes its place", func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(activitiestest.WithSelectedLabels))
			activitiestest.FailRequests(w.TargetClient, "patch", "nodes", 1, nil, func() {
				require.NoError(t, w.TargetClient.Tracker().Delete(nodes, "", "n"))
				require.NoError(
					t,
					w.TargetClient.Tracker().
						Create(nodes, activitiestest.NewNode(activitiestest.WithUpdateCondition("SelectedForUpdate"), func(n *corev1.Node) { n.UID = "uid-new" }), ""),
				)
			})
			_, err := nodeWriteActivities(w, activitiestest.NewReadInput(m))[step]()
			require.NoError(t, err)
			assert.Equal(t, "uid-new", string(w.Node().UID))
			assert.False(t, w.Node().Spec.Unschedulable)
			assert.Equal(
				t,
				activitiestest.OldTime.Unix(),
				activitiestest.FindUpdateCondition(w.Node()).LastTransitionTime.Unix(),
				"decided anew, for the new one",
			)
			assert.Len(t, w.MutatingRequests(), 1)
		})
	}
	t.Run("mark: called off at the last moment", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			m,
			activitiestest.NewNode(
				activitiestest.WithSelectedLabels,
				activitiestest.WithCordon,
				activitiestest.WithUpdateCondition("SelectedForUpdate"),
			),
		)
		activitiestest.FailRequests(w.TargetClient, "patch", "nodes", 1, nil, func() {
			w.EditObject(
				cache.NodesResource,
				"n",
				map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelSelectedForUpdate: nil}}},
			)
		})
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkInPlace,
			newInPlaceCondition(activitiestest.NewReadInput(m), v1alpha1.ReasonDrainSuccessful),
		)
		require.NoError(t, err)
		assert.Equal(t, v1alpha1.ReasonSelectedForUpdate, activitiestest.FindUpdateCondition(w.Node()).Reason)
		assert.Len(t, w.MutatingRequests(), 1)
	})
}

func TestInPlaceActivitiesReturnWriteErrors(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
	for step := range nodeWriteActivities(nil, activitiestest.NewReadInput(m)) {
		t.Run(step+", for good", func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(activitiestest.WithSelectedLabels))
			activitiestest.FailRequests(
				w.TargetClient,
				"patch",
				"nodes",
				1,
				apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", nil),
				nil,
			)
			_, err := nodeWriteActivities(w, activitiestest.NewReadInput(m))[step]()
			activitiestest.AssertFailure(t, err, kube.FailureTypeRefused, false)
		})
		for verb, message := range map[string]string{"get": "get node n of machine m: no answer", "patch": "patch node of machine m: no answer"} {
			t.Run(step+", for now, to "+verb, func(t *testing.T) {
				w := activitiestest.NewWorld(t, m, activitiestest.NewNode(activitiestest.WithSelectedLabels))
				activitiestest.FailRequests(w.TargetClient, verb, "nodes", 1, errors.New("no answer"), nil)
				_, err := nodeWriteActivities(w, activitiestest.NewReadInput(m))[step]()
				require.ErrorContains(t, err, message)
				_, retryable := activitiestest.FailureTypeOf(t, err)
				assert.True(t, retryable)
				_, err = nodeWriteActivities(w, activitiestest.NewReadInput(m))[step]()
				require.NoError(t, err)
			})
		}
		t.Run(step+", for now, to read the machine", func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(activitiestest.WithSelectedLabels))
			activitiestest.FailRequests(w.MachineClient, "get", "machines", 1, errors.New("no answer"), nil)
			_, err := nodeWriteActivities(w, activitiestest.NewLiveReadInput(m))[step]()
			require.ErrorContains(t, err, "get machine shop/m: no answer")
		})
	}
}

func TestInPlaceActivitiesChangeNoCachedObject(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
	w := activitiestest.NewWorld(
		t,
		m,
		activitiestest.NewNode(activitiestest.WithSelectedLabels, activitiestest.WithUpdateCondition("CandidateForUpdate")),
	)
	release := w.HoldEvents()
	cached, _ := w.Cluster.Target("").Node("n")
	before := cached.DeepCopy()
	for name, step := range nodeWriteActivities(w, activitiestest.NewReadInput(m)) {
		_, err := step()
		require.NoError(t, err, name)
	}
	assert.Len(t, w.MutatingRequests(), 2)
	again, _ := w.Cluster.Target("").Node("n")
	require.Same(t, cached, again, "its event has not come")
	assert.Equal(t, before, cached)
	release()
}
