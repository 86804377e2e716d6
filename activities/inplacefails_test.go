package activities_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

// onNodeSteps are the steps that write a node, each with a node on which it has something to do.
func onNodeSteps(w *world, in activities.Read) map[string]func() (activities.Gate, error) {
	return map[string]func() (activities.Gate, error){
		"mark": func() (activities.Gate, error) {
			return run[activities.Gate](w, w.MarkInPlace, mark(in, v1alpha1.ReasonSelectedForUpdate))
		},
		"cordon": func() (activities.Gate, error) { return run[activities.Gate](w, w.CordonNode, in) },
	}
}

func TestInPlaceLeavesItAlone(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, phase(v1alpha1.MachineRunning))
	early := machine("m", phase(v1alpha1.MachinePending))
	chosen := node(isChosen)
	for name, row := range map[string]struct {
		in      activities.Read
		objects []runtime.Object
	}{
		"U126: the node is missing":                 {read(m), []runtime.Object{m}},
		"U126: the machine has no node yet":         {read(early), []runtime.Object{early, chosen}},
		"the machine is gone":                       {read(m), []runtime.Object{chosen}},
		"the machine is gone, read live":            {live(m), []runtime.Object{chosen}},
		"another machine has its name":              {activities.Read{Ref: stranger(m)}, []runtime.Object{m, chosen}},
		"another machine names the node as its own": {read(m), []runtime.Object{m, machine("other", onNode), chosen}},
	} {
		for step := range onNodeSteps(nil, row.in) {
			t.Run(name+", "+step, func(t *testing.T) {
				w := newWorld(t, row.objects...)
				gate, err := onNodeSteps(w, row.in)[step]()
				require.NoError(t, err)
				assert.Empty(t, gate)
				assert.Empty(t, w.writes())
			})
		}
	}
	t.Run("because there is no target", func(t *testing.T) {
		w := newWorld(t, m)
		var err error
		w.Cluster, err = observe.NewCluster(w.machines, nil, nil)
		require.NoError(t, err)
		require.NoError(t, w.Cluster.Start(t.Context()))
		for name, step := range onNodeSteps(w, read(m)) {
			gate, err := step()
			require.NoError(t, err, name)
			assert.Empty(t, gate, name)
		}
	})
	t.Run("mark, because the machine is to go", func(t *testing.T) {
		leaving := machine("m", onNode, phase(v1alpha1.MachineRunning), going[*v1alpha1.Machine])
		w := newWorld(t, leaving, chosen)
		_, err := onNodeSteps(w, read(leaving))["mark"]()
		require.NoError(t, err)
		assert.Empty(t, w.writes())
	})
}

func TestInPlaceMeetsAFasterWriter(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, phase(v1alpha1.MachineRunning))
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	for step := range onNodeSteps(nil, read(m)) {
		t.Run(step+": who wrote something else", func(t *testing.T) {
			w := newWorld(t, m, node(isChosen))
			failing(w.target, "patch", "nodes", 1, nil, func() { w.edit(observe.Nodes, "n", annotated("mine", "1")) })
			gate, err := onNodeSteps(w, read(m))[step]()
			require.NoError(t, err)
			assert.Equal(t, w.current(), gate)
			assert.Len(t, w.writes(), 2, "one was in vain")
			assert.Equal(t, "1", w.node().Annotations["mine"])
			assert.True(t, w.node().Spec.Unschedulable || updateCondition(w.node()) != nil)
		})
		t.Run(step+": each time", func(t *testing.T) {
			w := newWorld(t, m, node(isChosen))
			failing(w.target, "patch", "nodes", -1, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n", nil), nil)
			_, err := onNodeSteps(w, read(m))[step]()
			assertFailure(t, err, activities.TypeConflict, true)
			assert.Len(t, w.writes(), 3)
		})
		t.Run(step+": the node goes", func(t *testing.T) {
			w := newWorld(t, m, node(isChosen))
			failing(w.target, "patch", "nodes", 1, nil, func() { require.NoError(t, w.target.Tracker().Delete(nodes, "", "n")) })
			gate, err := onNodeSteps(w, read(m))[step]()
			require.NoError(t, err)
			assert.Empty(t, gate)
			assert.Nil(t, w.node())
		})
		t.Run(step+": another node takes its place", func(t *testing.T) {
			w := newWorld(t, m, node(isChosen))
			failing(w.target, "patch", "nodes", 1, nil, func() {
				require.NoError(t, w.target.Tracker().Delete(nodes, "", "n"))
				require.NoError(t, w.target.Tracker().Create(nodes, node(saysUpdate("SelectedForUpdate"), func(n *corev1.Node) { n.UID = "uid-new" }), ""))
			})
			_, err := onNodeSteps(w, read(m))[step]()
			require.NoError(t, err)
			assert.Equal(t, "uid-new", string(w.node().UID))
			assert.False(t, w.node().Spec.Unschedulable)
			assert.Equal(t, longAgo.Unix(), updateCondition(w.node()).LastTransitionTime.Unix(), "decided anew, for the new one")
			assert.Len(t, w.writes(), 1)
		})
	}
	t.Run("mark: called off at the last moment", func(t *testing.T) {
		w := newWorld(t, m, node(isChosen, withCordon, saysUpdate("SelectedForUpdate")))
		failing(w.target, "patch", "nodes", 1, nil, func() {
			w.edit(observe.Nodes, "n", map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelSelectedForUpdate: nil}}})
		})
		_, err := run[activities.Gate](w, w.MarkInPlace, mark(read(m), v1alpha1.ReasonDrainSuccessful))
		require.NoError(t, err)
		assert.Equal(t, v1alpha1.ReasonSelectedForUpdate, updateCondition(w.node()).Reason)
		assert.Len(t, w.writes(), 1)
	})
}

func TestInPlaceFails(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, phase(v1alpha1.MachineRunning))
	for step := range onNodeSteps(nil, read(m)) {
		t.Run(step+", for good", func(t *testing.T) {
			w := newWorld(t, m, node(isChosen))
			failing(w.target, "patch", "nodes", 1, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", nil), nil)
			_, err := onNodeSteps(w, read(m))[step]()
			assertFailure(t, err, activities.TypeRefused, false)
		})
		for verb, message := range map[string]string{"get": "get node n of machine m: no answer", "patch": "patch node of machine m: no answer"} {
			t.Run(step+", for now, to "+verb, func(t *testing.T) {
				w := newWorld(t, m, node(isChosen))
				failing(w.target, verb, "nodes", 1, errors.New("no answer"), nil)
				_, err := onNodeSteps(w, read(m))[step]()
				require.ErrorContains(t, err, message)
				_, retryable := failure(t, err)
				assert.True(t, retryable)
				_, err = onNodeSteps(w, read(m))[step]()
				require.NoError(t, err)
			})
		}
		t.Run(step+", for now, to read the machine", func(t *testing.T) {
			w := newWorld(t, m, node(isChosen))
			failing(w.machines, "get", "machines", 1, errors.New("no answer"), nil)
			_, err := onNodeSteps(w, live(m))[step]()
			require.ErrorContains(t, err, "get machine shop/m: no answer")
		})
	}
}

func TestD21_InPlaceLeavesTheCachesAlone(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, phase(v1alpha1.MachineRunning))
	w := newWorld(t, m, node(isChosen, saysUpdate("CandidateForUpdate")))
	release := w.hold()
	cached, _ := w.Cluster.Node("n")
	before := cached.DeepCopy()
	for name, step := range onNodeSteps(w, read(m)) {
		_, err := step()
		require.NoError(t, err, name)
	}
	assert.Len(t, w.writes(), 2)
	again, _ := w.Cluster.Node("n")
	require.Same(t, cached, again, "its event has not come")
	assert.Equal(t, before, cached)
	release()
}
