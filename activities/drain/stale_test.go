package drain_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/decide/drain"
)

// A drain never acts on an outdated cached object: it reads the object live, or its write fails.
func TestDrainDoesNotActOnStaleObjects(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(0, drain.MeansEvict))
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	t.Run("of a node that is gone", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode(), activitiestest.NewPod("a"))
		activitiestest.FailRequests(
			w.TargetClient,
			"patch",
			"nodes",
			1,
			nil,
			func() { require.NoError(t, w.TargetClient.Tracker().Delete(nodes, "", "n")) },
		)
		load, err := activitiestest.RunActivity[activities.NodeLoad](
			w,
			newActivities(w.Kube).CordonAndCountPods,
			activitiestest.NewReadInput(m),
		)
		require.NoError(t, err)
		assert.Equal(t, activities.NodeLoad{Versions: kube.MinVersions{}}, load, "nothing to drain")
	})
	t.Run("of a node that somebody has just cordoned", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
		activitiestest.FailRequests(w.TargetClient, "patch", "nodes", 1, nil, func() {
			w.EditObject("nodes", "n", map[string]any{"spec": map[string]any{"unschedulable": true}})
		})
		load, err := activitiestest.RunActivity[activities.NodeLoad](
			w,
			newActivities(w.Kube).CordonAndCountPods,
			activitiestest.NewReadInput(m),
		)
		require.NoError(t, err)
		assert.Equal(t, w.NodeMinVersions(), load.Versions)
		assert.Equal(t, []string{"patch nodes"}, w.MutatingRequests(), "refused, and not sent again")
	})
	t.Run("of a pod that is another one by now", func(t *testing.T) {
		runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			d.SetRequestError(apierrors.NewConflict(activitiestest.PodsResource.GroupResource(), "a", nil), "a")
			e := d.StartEviction(in)
			e.AssertRunning(t)
			d.RemovePods("a")
			seen, took := e.AwaitResult(t)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			assert.Zero(t, took)
			assert.Equal(
				t,
				[]activitiestest.PodRequest{newEvictRequest("a")},
				d.TakeNewRequests(),
				"once, and with the UID that was read",
			)
			assert.Zero(t, seen.Accepted)
		})
	})
}

// The node is cordoned before its pods are listed, so that no pod is scheduled in between.
func TestNodeIsCordonedBeforePodsAreListed(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(0, drain.MeansEvict))
	w := activitiestest.NewWorld(t, m, activitiestest.NewNode(), activitiestest.NewPod("a"))
	w.ServePods()
	activitiestest.FailRequests(
		w.TargetClient,
		"list",
		"pods",
		1,
		nil,
		func() { assert.True(t, w.Node().Spec.Unschedulable) },
	)
	load, err := activitiestest.RunActivity[activities.NodeLoad](
		w,
		newActivities(w.Kube).CordonAndCountPods,
		activitiestest.NewReadInput(m),
	)
	require.NoError(t, err)
	assert.Equal(t, 1, load.Pods)
	assert.Equal(t, []string{"patch nodes", "list pods"}, w.Requests())
}
