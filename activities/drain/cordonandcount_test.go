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
		"pods that must go":        {nil, append(stayingPods(), activitiestest.Pod("a"), activitiestest.Pod("done", activitiestest.InPhase(corev1.PodSucceeded)), activitiestest.Pod("b", activitiestest.Going[*corev1.Pod])), 3, 0, []string{"patch nodes"}},
		"volumes":                  {nil, []runtime.Object{activitiestest.Attached("a", "n"), activitiestest.Attached("", "n"), activitiestest.Attached("b", "other")}, 0, 2, []string{"patch nodes"}},
		"somebody has cordoned it": {[]func(*corev1.Node){activitiestest.Lived, activitiestest.WithCordon}, leavingPods("a"), 1, 0, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.Machine("m", activitiestest.OnNode, activitiestest.Draining(0, drain.Evict))
			w := activitiestest.NewWorld(t, append(row.related, m, activitiestest.Node(row.node...))...)
			w.ServePods()
			load := activitiestest.Twice[activities.NodeLoad](
				w,
				newActivities(w.Kube).CordonAndCountPods,
				activitiestest.Read(m),
			)
			assert.Equal(t, activities.NodeLoad{Pods: row.pods, Attached: row.volume, Versions: w.Current()}, load)
			assert.True(t, w.Node().Spec.Unschedulable, "first of all")
			assert.Equal(t, row.writes, w.Writes())
			assert.Contains(t, w.Requests(), "list pods", "live: a node that is said to be empty gets no drain")
		})
	}
	other := activitiestest.Machine("other", activitiestest.OnNode)
	for name, row := range map[string]struct {
		machine *v1alpha1.Machine
		related []runtime.Object
	}{
		"there is no node":              {activitiestest.Machine("m", activitiestest.OnNode, activitiestest.Draining(0, drain.Evict)), nil},
		"the machine has none":          {activitiestest.Machine("m", activitiestest.Draining(0, drain.Evict)), []runtime.Object{activitiestest.Node()}},
		"its node is another machine's": {activitiestest.Machine("m", activitiestest.OnNode, activitiestest.Draining(0, drain.Evict)), []runtime.Object{activitiestest.Node(activitiestest.MarkedBy(other)), other}},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, append(row.related, row.machine, activitiestest.Pod("a"))...)
			assert.Equal(
				t,
				activities.NodeLoad{Versions: kube.MinVersions{}},
				activitiestest.Twice[activities.NodeLoad](
					w,
					newActivities(w.Kube).CordonAndCountPods,
					activitiestest.Read(row.machine),
				),
			)
			assert.Empty(t, w.Writes())
			assert.NotContains(t, w.Requests(), "list pods")
		})
	}
	t.Run("the machine is gone", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.Node())
		assert.Zero(
			t,
			activitiestest.Twice[activities.NodeLoad](
				w,
				newActivities(w.Kube).CordonAndCountPods,
				activitiestest.Read(activitiestest.Machine("m")),
			).Pods,
		)
		assert.Empty(t, w.Writes())
	})
}

func TestCordonIsRetriedIfNodeWriteFails(t *testing.T) {
	t.Parallel()
	m := activitiestest.Machine("m", activitiestest.OnNode, activitiestest.Draining(0, drain.Evict))
	for name, step := range map[string]func(*activitiestest.World) any{
		"its cordon":    func(w *activitiestest.World) any { return newActivities(w.Kube).CordonAndCountPods },
		"its condition": func(w *activitiestest.World) any { return (&machine.Activities{Kube: w.Kube}).AnnounceTermination },
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.Node())
			activitiestest.Failing(w.Target, "patch", "nodes", 1, errors.New("no answer"), nil)
			_, err := activitiestest.Run[any](w, step(w), activitiestest.Read(m))
			require.ErrorContains(t, err, "patch node of machine m: no answer")
			_, retryable := activitiestest.Failure(t, err)
			assert.True(t, retryable, "the deletion stays in its stage")
			_, err = activitiestest.Run[any](w, step(w), activitiestest.Read(m))
			require.NoError(t, err)
		})
	}
	t.Run("no cache has the node, and the API server does not answer", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m)
		w.Hold()
		require.NoError(t, w.Target.Tracker().Add(activitiestest.Node()))
		activitiestest.Failing(w.Target, "get", "nodes", 1, errors.New("no answer"), nil)
		_, err := activitiestest.Run[activities.NodeLoad](w, newActivities(w.Kube).CordonAndCountPods, activitiestest.Read(m))
		require.ErrorContains(t, err, "get node n of machine m: no answer")
	})
	t.Run("its pods cannot be listed", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m, activitiestest.Node())
		activitiestest.Failing(w.Target, "list", "pods", 1, errors.New("no answer"), nil)
		_, err := activitiestest.Run[any](w, newActivities(w.Kube).CordonAndCountPods, activitiestest.Read(m))
		require.ErrorContains(t, err, "list pods of node n: no answer")
	})
}
