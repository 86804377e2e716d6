package activities_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
)

func TestWeighNode(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		node   []func(*corev1.Node)
		around []runtime.Object
		pods   int
		volume int
		writes []string
	}{
		"DR-01: nothing stands on it":     {nil, nil, 0, 0, []string{"patch nodes"}},
		"DR-02: it is cordoned":           {[]func(*corev1.Node){withCordon}, nil, 0, 0, []string{}},
		"DR-34: only pods that may stay":  {nil, staying(), 0, 0, []string{"patch nodes"}},
		"DR-35: pods that must go":        {nil, append(staying(), pod("a"), pod("done", inPhase(corev1.PodSucceeded)), pod("b", going[*corev1.Pod])), 3, 0, []string{"patch nodes"}},
		"volumes":                         {nil, []runtime.Object{attached("a", "n"), attached("", "n"), attached("b", "other")}, 0, 2, []string{"patch nodes"}},
		"DR-33: somebody has cordoned it": {[]func(*corev1.Node){lived, withCordon}, pods("a"), 1, 0, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine("m", onNode, draining(0, drain.Evict))
			w := newWorld(t, append(row.around, m, node(row.node...))...)
			w.servePods()
			load := twice[activities.NodeLoad](w, w.WeighNode, read(m))
			assert.Equal(t, activities.NodeLoad{Pods: row.pods, Attached: row.volume, Versions: w.current()}, load)
			assert.True(t, w.node().Spec.Unschedulable, "DR-32: first of all")
			assert.Equal(t, row.writes, w.writes())
			assert.Contains(t, w.requests(), "list pods", "live: a node that is said to be empty gets no drain")
		})
	}
	other := machine("other", onNode)
	for name, row := range map[string]struct {
		machine *v1alpha1.Machine
		around  []runtime.Object
	}{
		"DR-31: there is no node":       {machine("m", onNode, draining(0, drain.Evict)), nil},
		"U84: the machine has none":     {machine("m", draining(0, drain.Evict)), []runtime.Object{node()}},
		"its node is another machine's": {machine("m", onNode, draining(0, drain.Evict)), []runtime.Object{node(), other}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(row.around, row.machine, pod("a"))...)
			assert.Equal(t, activities.NodeLoad{Versions: activities.Gate{}}, twice[activities.NodeLoad](w, w.WeighNode, read(row.machine)))
			assert.Empty(t, w.writes())
			assert.NotContains(t, w.requests(), "list pods")
		})
	}
	t.Run("the machine is gone", func(t *testing.T) {
		w := newWorld(t, node())
		assert.Zero(t, twice[activities.NodeLoad](w, w.WeighNode, read(machine("m"))).Pods)
		assert.Empty(t, w.writes())
	})
}

func TestU93_ANodeThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, draining(0, drain.Evict))
	for name, step := range map[string]func(*world) any{
		"U93: its cordon":    func(w *world) any { return w.WeighNode },
		"U93: its condition": func(w *world) any { return w.AnnounceTermination },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, m, node())
			failing(w.target, "patch", "nodes", 1, errors.New("no answer"), nil)
			_, err := run[any](w, step(w), read(m))
			require.ErrorContains(t, err, "patch node of machine m: no answer")
			_, retryable := failure(t, err)
			assert.True(t, retryable, "the deletion stays in its stage")
			_, err = run[any](w, step(w), read(m))
			require.NoError(t, err)
		})
	}
	t.Run("its pods cannot be listed", func(t *testing.T) {
		w := newWorld(t, m, node())
		failing(w.target, "list", "pods", 1, errors.New("no answer"), nil)
		_, err := run[any](w, w.WeighNode, read(m))
		require.ErrorContains(t, err, "list pods of node n: no answer")
	})
}
