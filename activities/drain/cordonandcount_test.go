package drain_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
)

func TestCordonAndCountPods(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		node    []func(*corev1.Node)
		related []runtime.Object
		pods    int
		volume  int
		writes  []string
	}{
		"nothing stands on it":     {nil, nil, 0, 0, []string{"patch nodes"}},
		"it is cordoned":           {[]func(*corev1.Node){activitiestest.WithCordon}, nil, 0, 0, []string{}},
		"only pods that may stay":  {nil, stayingPods(), 0, 0, []string{"patch nodes"}},
		"pods that must go":        {nil, append(stayingPods(), activitiestest.NewPod("a"), activitiestest.NewPod("done", activitiestest.WithPodPhase(corev1.PodSucceeded)), activitiestest.NewPod("b", activitiestest.WithDeletionTimestamp[*corev1.Pod])), 3, 0, []string{"patch nodes"}},
		"volumes":                  {nil, []runtime.Object{activitiestest.NewVolumeAttachment("a", "n"), activitiestest.NewVolumeAttachment("", "n"), activitiestest.NewVolumeAttachment("b", "other")}, 0, 2, []string{"patch nodes"}},
		"somebody has cordoned it": {[]func(*corev1.Node){activitiestest.WithForeignMetadata, activitiestest.WithCordon}, podsToRemove("a"), 1, 0, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(0, drain.MeansEvict))
			w := activitiestest.NewWorld(t, append(row.related, m, activitiestest.NewNode(row.node...))...)
			w.ServePods()
			load := activitiestest.RunActivityTwice[activities.NodeLoad](
				w,
				newActivities(w.Kube).CordonAndCountPods,
				activitiestest.NewReadInput(m),
			)
			assert.Equal(t, activities.NodeLoad{Pods: row.pods, Attached: row.volume, Versions: w.NodeMinVersions()}, load)
			assert.True(t, w.Node().Spec.Unschedulable, "first of all")
			assert.Equal(t, row.writes, w.MutatingRequests())
			assert.Contains(t, w.Requests(), "list pods", "live: a node that is said to be empty gets no drain")
		})
	}
	other := activitiestest.NewMachine("other", activitiestest.WithNode)
	for name, row := range map[string]struct {
		machine *v1alpha1.Machine
		related []runtime.Object
	}{
		"there is no node":              {activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(0, drain.MeansEvict)), nil},
		"the machine has none":          {activitiestest.NewMachine("m", activitiestest.WithDrain(0, drain.MeansEvict)), []runtime.Object{activitiestest.NewNode()}},
		"its node is another machine's": {activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(0, drain.MeansEvict)), []runtime.Object{activitiestest.NewNode(activitiestest.WithMachineUID(other)), other}},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, append(row.related, row.machine, activitiestest.NewPod("a"))...)
			assert.Equal(
				t,
				activities.NodeLoad{Versions: kube.MinVersions{}},
				activitiestest.RunActivityTwice[activities.NodeLoad](
					w,
					newActivities(w.Kube).CordonAndCountPods,
					activitiestest.NewReadInput(row.machine),
				),
			)
			assert.Empty(t, w.MutatingRequests())
			assert.NotContains(t, w.Requests(), "list pods")
		})
	}
	t.Run("the machine is gone", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.NewNode())
		assert.Zero(
			t,
			activitiestest.RunActivityTwice[activities.NodeLoad](
				w,
				newActivities(w.Kube).CordonAndCountPods,
				activitiestest.NewReadInput(activitiestest.NewMachine("m")),
			).Pods,
		)
		assert.Empty(t, w.MutatingRequests())
	})
}

func TestCordonIsRetriedIfNodeWriteFails(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(0, drain.MeansEvict))
	for name, step := range map[string]func(*activitiestest.World) any{
		"its cordon":    func(w *activitiestest.World) any { return newActivities(w.Kube).CordonAndCountPods },
		"its condition": func(w *activitiestest.World) any { return (&machine.Activities{Kube: w.Kube}).AnnounceTermination },
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
			activitiestest.FailRequests(w.TargetClient, "patch", "nodes", 1, errors.New("no answer"), nil)
			_, err := activitiestest.RunActivity[any](w, step(w), activitiestest.NewReadInput(m))
			require.ErrorContains(t, err, "patch node of machine m: no answer")
			_, retryable := activitiestest.FailureTypeOf(t, err)
			assert.True(t, retryable, "the deletion stays in its stage")
			_, err = activitiestest.RunActivity[any](w, step(w), activitiestest.NewReadInput(m))
			require.NoError(t, err)
		})
	}
	t.Run("no cache has the node, and the API server does not answer", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m)
		w.HoldEvents()
		require.NoError(t, w.TargetClient.Tracker().Add(activitiestest.NewNode()))
		activitiestest.FailRequests(w.TargetClient, "get", "nodes", 1, errors.New("no answer"), nil)
		_, err := activitiestest.RunActivity[activities.NodeLoad](
			w,
			newActivities(w.Kube).CordonAndCountPods,
			activitiestest.NewReadInput(m),
		)
		require.ErrorContains(t, err, "get node n of machine m: no answer")
	})
	t.Run("its pods cannot be listed", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
		activitiestest.FailRequests(w.TargetClient, "list", "pods", 1, errors.New("no answer"), nil)
		_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).CordonAndCountPods, activitiestest.NewReadInput(m))
		require.ErrorContains(t, err, "list pods of node n: no answer")
	})
}
