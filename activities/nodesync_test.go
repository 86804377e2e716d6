package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

const dongle = "example.com/dongle" // a resource that only a class knows of

// templated is a machine whose node shall carry one of each.
func templated(m *v1alpha1.Machine) {
	m.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
	m.Spec.NodeTemplateSpec.Annotations = map[string]string{"team": "shop"}
	m.Spec.NodeTemplateSpec.Spec.Taints = []corev1.Taint{{Key: "only", Value: "web", Effect: "NoSchedule"}}
}

// dongles makes nodes of a class have two dongles.
func dongles(c *v1alpha1.MachineClass) {
	c.NodeTemplate = &v1alpha1.NodeTemplate{VirtualCapacity: corev1.ResourceList{dongle: resource.MustParse("2")}}
}

// lived makes a node one with things of others on it.
func lived(n *corev1.Node) {
	since := metav1.Unix(1_700_000_000, 0)
	n.Labels = map[string]string{"kubernetes.io/os": "linux"}
	n.Annotations = map[string]string{"volumes.kubernetes.io/x": "true", v1alpha1.AnnotationNotManaged: v1alpha1.ValueNotManaged}
	n.Finalizers = []string{backup}
	n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintPreserved, Effect: v1alpha1.TaintPreservedEffect, TimeAdded: &since}}
	n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4")}
}

// wish gives the machine m another node template.
func (w *world) wish(template map[string]any) {
	w.edit(observe.Machines, "m", map[string]any{"spec": map[string]any{"nodeTemplate": template}})
	w.settle()
	w.forget()
}

// amounts returns a node's capacity as text.
func amounts(n *corev1.Node) map[string]string {
	result := map[string]string{}
	for name, q := range n.Status.Capacity {
		result[string(name)] = q.String()
	}
	return result
}

// syncNode syncs twice and returns the node as it is then.
func syncNode(w *world, in activities.Read) *corev1.Node {
	w.t.Helper()
	gate := twice[activities.Gate](w, w.SyncNode, in)
	n := w.node()
	if len(w.writes()) > 0 {
		require.NotNil(w.t, n)
		assert.Equal(w.t, activities.Gate{observe.Nodes: n.ResourceVersion}, gate, "the version to wait for")
	} else {
		assert.Empty(w.t, gate)
	}
	return n
}

func TestSyncNode(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, templated)
	w := newWorld(t, m, class(dongles), node(lived))
	before := w.node()
	n := syncNode(w, read(m))
	assert.Equal(t, []string{"patch nodes/status", "update nodes"}, w.writes(), "capacity first; and the second run writes nothing")
	assert.Equal(t, map[string]string{"kubernetes.io/os": "linux", "pool": "web", v1alpha1.LabelMachineName: "m"}, n.Labels)
	assert.Equal(t, map[string]string{
		"volumes.kubernetes.io/x": "true", "team": "shop",
		v1alpha1.AnnotationLastAppliedTemplate: `{"metadata":{"annotations":{"team":"shop"},"labels":{"pool":"web"}},` +
			`"spec":{"taints":[{"key":"only","value":"web","effect":"NoSchedule"}]}}`,
		v1alpha1.AnnotationLastAppliedVirtualCapacity: `{"example.com/dongle":"2"}`,
	}, n.Annotations)
	assert.Equal(t, []string{backup, v1alpha1.FinalizerNode}, n.Finalizers)
	assert.Equal(t, append(before.Spec.Taints, corev1.Taint{Key: "only", Value: "web", Effect: "NoSchedule"}), n.Spec.Taints,
		"those of others stay, and so does when they were added")
	assert.Equal(t, map[string]string{"cpu": "4", dongle: "2"}, amounts(n))
	assert.Equal(t, before.Status.Conditions, n.Status.Conditions)
}

func TestU122_SyncNodeFollowsTheTemplate(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		template map[string]any
		node     map[string]any // an edit by hand
		check    func(*testing.T, *corev1.Node)
		writes   int
	}{
		"unchanged": {},
		"changed, added and deleted": {
			template: map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"pool": "db", "tier": "1"}, "annotations": map[string]any{"team": nil}},
				"spec": map[string]any{"taints": []any{
					map[string]any{"key": "only", "value": "web", "effect": "NoExecute"},
				}},
			},
			check: func(t *testing.T, n *corev1.Node) {
				assert.Equal(t, map[string]string{"kubernetes.io/os": "linux", "pool": "db", "tier": "1", v1alpha1.LabelMachineName: "m"}, n.Labels)
				assert.NotContains(t, n.Annotations, "team")
				require.Len(t, n.Spec.Taints, 2)
				assert.Equal(t, corev1.Taint{Key: "only", Value: "web", Effect: "NoExecute"}, n.Spec.Taints[1])
			},
			writes: 1,
		},
		"a manual edit is reverted": {
			node: map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"pool": "mine"}, "annotations": map[string]any{"team": nil}},
				"spec": map[string]any{"taints": []any{
					map[string]any{"key": "only", "value": "mine", "effect": "NoSchedule"},
					map[string]any{"key": "only", "value": "mine", "effect": "NoExecute"},
				}},
			},
			check: func(t *testing.T, n *corev1.Node) {
				assert.Equal(t, "web", n.Labels["pool"])
				assert.Equal(t, "shop", n.Annotations["team"])
				assert.Equal(t, []corev1.Taint{{Key: "only", Value: "mine", Effect: "NoExecute"}, {Key: "only", Value: "web", Effect: "NoSchedule"}}, n.Spec.Taints,
					"another effect is another taint")
			},
			writes: 1,
		},
		"a foreign key is kept": {
			node: map[string]any{"metadata": map[string]any{"labels": map[string]any{"mine": "1"}}},
			check: func(t *testing.T, n *corev1.Node) {
				assert.Equal(t, "1", n.Labels["mine"])
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine("m", onNode, templated)
			w := newWorld(t, m, class(), node(lived))
			_, err := run[activities.Gate](w, w.SyncNode, read(m))
			require.NoError(t, err)
			w.edit(observe.Nodes, "n", row.node)
			w.wish(row.template)
			n := syncNode(w, read(m))
			assert.Len(t, w.writes(), row.writes)
			if row.check != nil {
				row.check(t, n)
			}
		})
	}
}

func TestU123_SyncNodeFollowsTheVirtualCapacity(t *testing.T) {
	t.Parallel()
	both := []string{"patch nodes/status", "update nodes"}
	for name, row := range map[string]struct {
		template map[string]any // change of the class's node template
		dongles  string         // that the node is given meanwhile
		capacity map[string]string
		writes   []string
	}{
		"unchanged":           {nil, "2", map[string]string{"cpu": "4", dongle: "2"}, []string{}},
		"changed":             {map[string]any{"virtualCapacity": map[string]any{dongle: "3"}}, "2", map[string]string{"cpu": "4", dongle: "3"}, both},
		"added":               {map[string]any{"virtualCapacity": map[string]any{"example.com/key": "1"}}, "2", map[string]string{"cpu": "4", dongle: "2", "example.com/key": "1"}, both},
		"deleted":             {map[string]any{"virtualCapacity": nil}, "2", map[string]string{"cpu": "4"}, both},
		"zeroed by a kubelet": {nil, "0", map[string]string{"cpu": "4", dongle: "2"}, both[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine("m", onNode)
			w := newWorld(t, m, class(dongles), node(lived))
			_, err := run[activities.Gate](w, w.SyncNode, read(m))
			require.NoError(t, err)
			n := w.node()
			n.Status.Capacity[dongle] = resource.MustParse(row.dongles)
			_, err = w.target.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
			require.NoError(t, err)
			w.edit(observe.Classes, "small", map[string]any{"nodeTemplate": row.template})
			w.settle()
			w.forget()
			assert.Equal(t, row.capacity, amounts(syncNode(w, read(m))))
			assert.Equal(t, row.writes, w.writes())
		})
	}
}

func TestD6_SyncNodeWithoutANodeTemplateInTheClass(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.MachineClass){
		"never had one": func(*v1alpha1.MachineClass) {},
		"lost it":       dongles,
	} {
		for way, how := range map[string]func(metav1.Object) activities.Read{"cached": read, "live": live} {
			t.Run(name+", "+way, func(t *testing.T) {
				m := machine("m", onNode)
				w := newWorld(t, m, class(change), node(lived))
				before := amounts(syncNode(w, how(m)))
				w.edit(observe.Classes, "small", map[string]any{"nodeTemplate": nil})
				w.settle()
				w.forget()
				assert.Equal(t, before, amounts(syncNode(w, how(m))), "the capacity stays as it is")
				assert.Empty(t, w.writes())
			})
		}
	}
	t.Run("no class at all", func(t *testing.T) {
		for way, how := range map[string]func(metav1.Object) activities.Read{"cached": read, "live": live} {
			m := machine("m", onNode, templated)
			w := newWorld(t, m, node(lived))
			assert.Equal(t, "web", syncNode(w, how(m)).Labels["pool"], way)
			assert.Equal(t, []string{"update nodes"}, w.writes())
		}
	})
}

func TestU117_SyncNodePutsTheCriticalTaintOnOnce(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, templated, func(m *v1alpha1.Machine) {
		m.Spec.NodeTemplateSpec.Spec.Taints[0].Key = v1alpha1.TaintCriticalComponentsNotReady
	})
	w := newWorld(t, m, class(), node())
	require.Len(t, syncNode(w, read(m)).Spec.Taints, 1)
	w.edit(observe.Nodes, "n", map[string]any{"spec": map[string]any{"taints": nil}})
	w.forget()
	assert.Empty(t, syncNode(w, read(m)).Spec.Taints, "its components run: it does not come back")
	assert.Empty(t, w.writes())
}

func TestSyncNodeLeavesItAlone(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, templated)
	leaving := machine("m", onNode, templated, going[*v1alpha1.Machine])
	early := machine("m", templated)
	for name, row := range map[string]struct {
		in      activities.Read
		objects []runtime.Object
	}{
		"U124: the node is missing":                 {read(m), []runtime.Object{m, class(dongles)}},
		"U124: the machine has no node yet":         {read(early), []runtime.Object{early, class(), node()}},
		"the machine is gone":                       {read(m), []runtime.Object{class(), node()}},
		"another machine has its name":              {activities.Read{Ref: stranger(m)}, []runtime.Object{m, class(), node()}},
		"the machine is to go":                      {read(leaving), []runtime.Object{leaving, class(), node()}},
		"the machine is to go, read live":           {live(leaving), []runtime.Object{leaving, class(), node()}},
		"another machine names the node as its own": {read(m), []runtime.Object{m, machine("other", onNode), class(), node()}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.objects...)
			before := w.node()
			assert.Equal(t, before, syncNode(w, row.in))
			assert.Empty(t, w.writes())
		})
	}
	t.Run("because there is no target", func(t *testing.T) {
		w := newWorld(t, m, class())
		var err error
		w.Cluster, err = observe.NewCluster(w.machines, nil, nil)
		require.NoError(t, err)
		require.NoError(t, w.Cluster.Start(t.Context()))
		for _, in := range []activities.Read{read(m), live(m)} {
			gate, err := run[activities.Gate](w, w.SyncNode, in)
			require.NoError(t, err)
			assert.Empty(t, gate)
		}
	})
	t.Run("but not because of a machine that is to go", func(t *testing.T) {
		former := machine("former", onNode, going[*v1alpha1.Machine])
		w := newWorld(t, m, former, class(), node(func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.LabelMachineName: "former"} }))
		assert.Equal(t, "m", syncNode(w, read(m)).Labels[v1alpha1.LabelMachineName])
	})
	t.Run("and puts no finalizer on a node that is being deleted", func(t *testing.T) {
		w := newWorld(t, m, class(), node(lived, going[*corev1.Node]))
		assert.Equal(t, []string{backup}, syncNode(w, read(m)).Finalizers)
	})
}
