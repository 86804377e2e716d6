package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/nodesync"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

// classWithDongles returns a class whose nodes have this amount of dongles; with an empty amount, the class has no node
// template.
func classWithDongles(amount string) *v1alpha1.MachineClass {
	c := &v1alpha1.MachineClass{ObjectMeta: observetest.NewMetadata("small")}
	if amount != "" {
		c.NodeTemplate = &v1alpha1.NodeTemplate{
			VirtualCapacity: corev1.ResourceList{"example.com/dongle": resource.MustParse(amount)},
		}
	}
	return c
}

func TestNodeSyncOfANewNode(t *testing.T) {
	c := nodesync.Decide(
		machine.NodeSyncFacts(
			observetest.NewMachine("m", observetest.WithNodeTemplate),
			classWithDongles("2000"),
			observetest.NewNode(),
		),
	)
	assert.Equal(t, map[string]string{"pool": "web", v1alpha1.LabelMachineName: "m"}, c.Labels.Set)
	assert.Equal(t, map[string]string{
		"team": "shop", v1alpha1.AnnotationMachineUID: "uid-m",
		v1alpha1.AnnotationLastAppliedTemplate: `{"metadata":{"annotations":{"team":"shop"},"labels":{"pool":"web"}},` +
			`"spec":{"taints":[{"key":"only","value":"web","effect":"NoExecute"}]}}`,
		v1alpha1.AnnotationLastAppliedVirtualCapacity: `{"example.com/dongle":"2k"}`,
	}, c.Annotations.Set)
	assert.Equal(t, []nodesync.Taint{{Key: "only", Value: "web", Effect: "NoExecute"}}, c.Taints.Set)
	assert.Equal(t, map[string]string{"example.com/dongle": "2k"}, c.Capacity.Set)
	assert.True(t, c.Finalizer)
}

// syncedNode returns a node in the state that observetest.WithNodeTemplate and a class with two dongles require.
func syncedNode(change ...func(*corev1.Node)) *corev1.Node {
	n := observetest.NewNode(observetest.NewNodeCondition("Ready", "True"))
	n.Labels = map[string]string{"pool": "web", v1alpha1.LabelMachineName: "m", "kubernetes.io/os": "linux"}
	n.Annotations = map[string]string{
		"team":                        "shop",
		v1alpha1.AnnotationMachineUID: "uid-m",
		v1alpha1.AnnotationLastAppliedTemplate: `{"metadata":{"creationTimestamp":null,"labels":{"pool":"web"},"annotations":{"team":"shop"}},` +
			`"spec":{"taints":[{"key":"only","value":"web","effect":"NoExecute"}]}}`,
		v1alpha1.AnnotationLastAppliedVirtualCapacity: `{"example.com/dongle":"2"}`,
	}
	n.Finalizers = []string{"example.com/backup", v1alpha1.FinalizerNode}
	n.Spec.Taints = []corev1.Taint{{Key: "only", Value: "web", Effect: "NoExecute", TimeAdded: observetest.Now()}}
	n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4"), "example.com/dongle": resource.MustParse("2")}
	for _, f := range change {
		f(n)
	}
	return n
}

func TestNodeSyncDecisions(t *testing.T) {
	marked := func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationNotManaged] = v1alpha1.ValueNotManaged }
	loose := func(n *corev1.Node) { n.Finalizers = nil }
	goingNode := func(n *corev1.Node) { n.DeletionTimestamp = observetest.Now() }
	ripe := func(n *corev1.Node) { n.Spec.Taints = nil }
	critical := func(m *v1alpha1.Machine) {
		m.Spec.NodeTemplateSpec.Spec.Taints[0].Key = v1alpha1.TaintCriticalComponentsNotReady
	}
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		class   *v1alpha1.MachineClass
		node    *corev1.Node
		why     string
	}{
		{"nothing to do; when a taint was added is no difference", observetest.NewMachine("m", observetest.WithNodeTemplate), classWithDongles("2"), syncedNode(), ""},
		{"the same amount in other words", observetest.NewMachine("m", observetest.WithNodeTemplate), classWithDongles("2000m"), syncedNode(), ""},
		{"no class: the capacity stays", observetest.NewMachine("m", observetest.WithNodeTemplate), nil, syncedNode(), ""},
		{"a class without a node template: the capacity stays", observetest.NewMachine("m", observetest.WithNodeTemplate), classWithDongles(""), syncedNode(), ""},
		{
			"a class without virtual capacity", observetest.NewMachine("m", observetest.WithNodeTemplate), &v1alpha1.MachineClass{NodeTemplate: &v1alpha1.NodeTemplate{}}, syncedNode(),
			"node has capacity example.com/dongle that left the class, has no current record of the virtual capacity",
		},
		{"marked as a node without a machine", observetest.NewMachine("m", observetest.WithNodeTemplate), nil, syncedNode(marked), "node is marked as a node without a machine"},
		{"without our finalizer", observetest.NewMachine("m", observetest.WithNodeTemplate), nil, syncedNode(loose), "node lacks our finalizer"},
		{"without our finalizer, and being deleted", observetest.NewMachine("m", observetest.WithNodeTemplate), nil, syncedNode(loose, goingNode), ""},
		{"of another machine before", observetest.NewMachine("n", observetest.WithNodeTemplate), nil, syncedNode(), "node has another value of label " + v1alpha1.LabelMachineName +
			", has another value of annotation " + v1alpha1.AnnotationMachineUID},
		{"a taint that was taken off by hand", observetest.NewMachine("m", observetest.WithNodeTemplate), nil, syncedNode(ripe), "node lacks taint only:NoExecute"},
		{
			"the critical taint, which was applied and is gone", observetest.NewMachine("m", observetest.WithNodeTemplate, critical), nil, syncedNode(ripe, func(n *corev1.Node) {
				n.Annotations[v1alpha1.AnnotationLastAppliedTemplate] = `{"metadata":{"labels":{"pool":"web"},"annotations":{"team":"shop"}},` +

					`"spec":{"taints":[{"key":"` + v1alpha1.TaintCriticalComponentsNotReady +
					`","value":"web","effect":"NoExecute"}]}}`
			}), "",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			m, class, n := row.machine.DeepCopy(), row.class.DeepCopy(), row.node.DeepCopy()
			assert.Equal(t, row.why, nodesync.Decide(machine.NodeSyncFacts(row.machine, row.class, row.node)).Sentence())
			assert.Equal(t, m, row.machine, "what it is given stays as it is")
			assert.Equal(t, class, row.class)
			assert.Equal(t, n, row.node)
		})
	}
}

func TestNoNodeSyncWithoutANode(t *testing.T) {
	m := observetest.NewMachine(
		"m",
		observetest.WithNodeTemplate,
		withJoinedNode,
		observetest.WithPhase(v1alpha1.MachineRunning),
	)
	assert.NotEqual(
		t,
		attention.NeedNodeSync,
		attention.PlanMachine(machine.Facts(m, machine.RelatedObjects{Class: classWithDongles("2")}, time.Time{})).Need,
	)
}
