package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities"
	"millwright/decide/drain"
)

// What a drain acts upon it reads live, or its write tells that it is old.
func TestDR37_AStaleReadDoesNoHarm(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, draining(0, drain.Evict))
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	t.Run("DR-37: of a node that is gone", func(t *testing.T) {
		w := newWorld(t, m, node(), pod("a"))
		failing(w.target, "patch", "nodes", 1, nil, func() { require.NoError(t, w.target.Tracker().Delete(nodes, "", "n")) })
		load, err := run[activities.NodeLoad](w, w.WeighNode, read(m))
		require.NoError(t, err)
		assert.Equal(t, activities.NodeLoad{Versions: activities.Gate{}}, load, "nothing to drain")
	})
	t.Run("DR-37: of a node that somebody has just cordoned", func(t *testing.T) {
		w := newWorld(t, m, node())
		failing(w.target, "patch", "nodes", 1, nil, func() {
			w.edit("nodes", "n", map[string]any{"spec": map[string]any{"unschedulable": true}})
		})
		load, err := run[activities.NodeLoad](w, w.WeighNode, read(m))
		require.NoError(t, err)
		assert.Equal(t, w.current(), load.Versions)
		assert.Equal(t, []string{"patch nodes"}, w.writes(), "refused, and not sent again")
	})
	t.Run("DR-37: of a pod that is another one by now", func(t *testing.T) {
		emptying(t, pods("a"), func(t *testing.T, d *desk, in activities.Eviction) {
			d.answer(apierrors.NewConflict(podsResource.GroupResource(), "a", nil), "a")
			e := d.empty(in)
			e.goesOn(t)
			d.end("a")
			seen, took := e.ends(t)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			assert.Zero(t, took)
			assert.Equal(t, []asked{evicted("a")}, d.since(), "once, and with the UID that was read")
			assert.Zero(t, seen.Accepted)
		})
	})
}

// Nobody puts a pod onto a node that is being emptied: it is cordoned before anybody looks what stands on it.
func TestDR32_ADrainCordonsFirst(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, draining(0, drain.Evict))
	w := newWorld(t, m, node(), pod("a"))
	w.servePods()
	failing(w.target, "list", "pods", 1, nil, func() { assert.True(t, w.node().Spec.Unschedulable) })
	load, err := run[activities.NodeLoad](w, w.WeighNode, read(m))
	require.NoError(t, err)
	assert.Equal(t, 1, load.Pods)
	assert.Equal(t, []string{"patch nodes", "list pods"}, w.requests())
}
