package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/observe/cache"
	"millwright/observe/capi/capitest"
	capidrain "millwright/observe/capi/drain"
	capiset "millwright/observe/capi/set"
	observedrain "millwright/observe/drain"
)

const optInAnnotation = v1alpha1.AnnotationClusterAPIDrain

func TestWhichMachinesOptIn(t *testing.T) {
	on := func(value string) capitest.OnSet {
		return capitest.Annotated[*clusterv1.MachineSet](optInAnnotation, value)
	}
	onDeployment := func(value string) *clusterv1.MachineDeployment {
		return capitest.Deployment(capitest.Annotated[*clusterv1.MachineDeployment](optInAnnotation, value))
	}
	onCluster := func(value string) *clusterv1.Cluster {
		return capitest.Cluster(capitest.Annotated[*clusterv1.Cluster](optInAnnotation, value))
	}
	for name, row := range map[string]struct {
		set     *clusterv1.MachineSet
		objects []runtime.Object
		want    bool
	}{
		"nobody":                              {capitest.Set("s", 1), []runtime.Object{capitest.Cluster()}, false},
		"the set":                             {capitest.Set("s", 1, on("true")), []runtime.Object{capitest.Cluster()}, true},
		"another value":                       {capitest.Set("s", 1, on("yes")), []runtime.Object{capitest.Cluster()}, false},
		"the deployment":                      {capitest.Set("s", 1, capitest.OfDeployment), []runtime.Object{capitest.Cluster(), onDeployment("true")}, true},
		"a deployment of others":              {capitest.Set("s", 1), []runtime.Object{capitest.Cluster(), onDeployment("true")}, false},
		"the Cluster":                         {capitest.Set("s", 1), []runtime.Object{onCluster("true")}, true},
		"the set, before the Cluster":         {capitest.Set("s", 1, on("false")), []runtime.Object{onCluster("true")}, false},
		"the set, before the deployment":      {capitest.Set("s", 1, capitest.OfDeployment, on("true")), []runtime.Object{capitest.Cluster(), onDeployment("false")}, true},
		"the deployment, before the Cluster":  {capitest.Set("s", 1, capitest.OfDeployment), []runtime.Object{onCluster("true"), onDeployment("false")}, false},
		"a deployment that does not say":      {capitest.Set("s", 1, capitest.OfDeployment), []runtime.Object{onCluster("true"), capitest.Deployment()}, true},
		"a Cluster that does not exist (yet)": {capitest.Set("s", 1), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := capitest.Watching(t, row.objects...)
			assert.Equal(t, row.want, capidrain.Drains(c, row.set))
			m := capiset.Desired(c, row.set, "m", nil)
			assert.Equal(t, row.want, capidrain.Hooked(m))
			_, excluded := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
			assert.Equal(t, row.want, excluded)
			assert.Equal(t, "web", m.Annotations["team"], "those of the template stay")
			bare := capitest.Machine(
				"m",
				row.set,
				func(m *clusterv1.Machine) { m.Annotations = row.set.Spec.Template.Annotations },
			)
			assert.Equal(t, map[bool]string{true: "annotations", false: ""}[row.want], capiset.Drift(c, bare, row.set))
			assert.Empty(
				t,
				capiset.Drift(
					c,
					capitest.Machine(
						"m",
						row.set,
						func(m *clusterv1.Machine) { m.Annotations = capidrain.MachineAnnotations(c, row.set, nil) },
					),
					row.set,
				),
			)
		})
	}
}

// A machine that a person excluded from draining gets no hook, and keeps the person's annotation.
func TestAMachineThatAPersonExcluded(t *testing.T) {
	c, _ := capitest.Watching(t, capitest.Cluster())
	set := capitest.Set("s", 1, capitest.Annotated[*clusterv1.MachineSet](optInAnnotation, "true"))
	m := capitest.Machine(
		"m",
		capitest.Set("s", 1),
		capitest.Annotated[*clusterv1.Machine](clusterv1.ExcludeNodeDrainingAnnotation, "ann"),
	)
	assert.Empty(t, capiset.Drift(c, m, set))
	assert.False(t, capidrain.Hooked(capiset.Desired(c, set, "m", m)))
	set.Spec.Template.Annotations[clusterv1.ExcludeNodeDrainingAnnotation] = ""
	assert.False(t, capidrain.Hooked(capiset.Desired(c, set, "m", nil)), "nor do the machines of such a template")
}

func TestUnhook(t *testing.T) {
	gone := func(keys ...string) map[string]any {
		annotations := map[string]any{}
		for _, key := range keys {
			annotations[key] = nil
		}
		return map[string]any{"metadata": map[string]any{"annotations": annotations}}
	}
	set := capitest.Set("s", 1)
	assert.Equal(
		t,
		gone(capidrain.AnnotationHook, clusterv1.ExcludeNodeDrainingAnnotation),
		capidrain.Unhook(capitest.Machine("m", set, capitest.Hooked), false),
	)
	assert.Equal(
		t,
		gone(capidrain.AnnotationHook),
		capidrain.Unhook(capitest.Machine("m", set, capitest.Hooked), true),
		"Cluster API does not drain what is drained",
	)
	assert.Nil(t, capidrain.Unhook(capitest.Machine("m", set), false))
	theirs := capitest.Machine(
		"m",
		set,
		capitest.Hooked,
		capitest.Annotated[*clusterv1.Machine](clusterv1.ExcludeNodeDrainingAnnotation, "ann"),
	)
	assert.Equal(t, gone(capidrain.AnnotationHook), capidrain.Unhook(theirs, false), "what a person wrote stays")
}

func TestAMachineInTheFormOfMillwright(t *testing.T) {
	set := capitest.Set("s", 1)
	m := capitest.Machine("m", set, capitest.AtTheHook, func(m *clusterv1.Machine) {
		m.Labels["node"] = "a label of the user"
		m.Spec.ProviderID, m.Spec.Deletion.NodeDrainTimeoutSeconds = "example:///1", new(int32(90))
		m.Annotations[v1alpha1.AnnotationHold] = "ann: lunch"
	})
	v := capidrain.AsMachine(m)
	assert.True(t, observedrain.OfClusterAPI(v))
	assert.Equal(t, "node-m", cache.NodeNameOf(v), "the node that Cluster API has found")
	assert.Equal(t, "example:///1", v.Spec.ProviderID)
	assert.Equal(
		t,
		map[string]string{"team": "web", v1alpha1.AnnotationHold: "ann: lunch"},
		v.Annotations,
		"without what is Millwright's",
	)
	assert.Equal(t, v1alpha1.MachineDeletionDrain, v.Status.Deletion.Stage)
	assert.True(t, observedrain.InDrain(capidrain.AsMachine(capitest.Machine("m", set, capitest.AtTheHook))))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-m"}}
	ladder := observedrain.Ladder(v, nil, node, 0, capitest.Noon)
	assert.Equal(
		t,
		drain.Ladder{Now: capitest.Noon, Timeout: 90 * time.Second, Setting: "nodeDrainTimeoutSeconds"},
		ladder,
	)
	for _, seconds := range []*int32{nil, new(int32(0))} {
		m.Spec.Deletion.NodeDrainTimeoutSeconds = seconds
		assert.True(t, observedrain.Ladder(capidrain.AsMachine(m), nil, node, 0, capitest.Noon).Endless)
	}

	v.Status.Deletion.Drain = &v1alpha1.MachineDrain{StartedAt: capitest.Ago(3), Means: "Evict"}
	v.Status.CurrentOperation = &v1alpha1.Operation{Step: "evict-pods", Since: capitest.Ago(3)}
	v.Status.LastOperation = v1alpha1.LastOperation{Type: v1alpha1.MachineOperationDelete, Description: "x"}
	v.Status.Conditions = []corev1.NodeCondition{
		{
			Type:               v1alpha1.MachineDrained,
			Status:             corev1.ConditionFalse,
			Reason:             "Blocked",
			Message:            "by a budget",
			LastTransitionTime: capitest.Ago(2),
		},
	}
	text, err := capidrain.StatusOf(v)
	require.NoError(t, err)
	m.Annotations[v1alpha1.AnnotationDrainStatus] = text
	require.True(t, capidrain.SetConditions(m, v))
	require.False(t, capidrain.SetConditions(m, v), "once")
	again := capidrain.AsMachine(m)
	assert.True(t, again.Status.Deletion.Drain.StartedAt.Equal(new(capitest.Ago(3))))
	assert.Equal(t, "evict-pods", again.Status.CurrentOperation.Step)
	assert.Equal(t, v.Status.LastOperation.Description, again.Status.LastOperation.Description)
	require.Len(t, again.Status.Conditions, 1)
	assert.Equal(t, "by a budget", again.Status.Conditions[0].Message)
	v.Status.Conditions = nil
	require.True(t, capidrain.SetConditions(m, v), "and taken away")
	m.Annotations[v1alpha1.AnnotationDrainStatus] = "{"
	assert.Nil(t, capidrain.AsMachine(m).Status.CurrentOperation, "what nobody can read counts as absent")
}

func TestTheHookOfAMachine(t *testing.T) {
	set := capitest.Set("s", 1)
	infrastructure := func(change ...capitest.OnForeign) runtime.Object {
		o := capitest.Infrastructure()
		o.SetKind("ExampleMachine")
		o.SetName("m")
		for _, f := range change {
			f(o)
		}
		return o
	}
	related := func(more ...runtime.Object) []runtime.Object { return append(more, capitest.ControlPlane()) }
	for name, row := range map[string]struct {
		machine *clusterv1.Machine
		objects []runtime.Object
		want    drain.Hook
	}{
		"not deleted": {capitest.Machine("m", set, capitest.Hooked), nil, drain.Hook{Hooked: true, NodeName: "node-m"}},
		"at the hook": {
			capitest.Machine("m", set, capitest.AtTheHook), related(capitest.Cluster(), infrastructure()), drain.Hook{Hooked: true, Deleting: true, Waiting: true, NodeName: "node-m"},
		},
		"its Cluster is paused": {
			capitest.Machine("m", set, capitest.AtTheHook), related(capitest.Cluster(func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })),
			drain.Hook{Hooked: true, Deleting: true, Waiting: true, NodeName: "node-m", Paused: "Cluster c is paused"},
		},
		"it is paused": {
			capitest.Machine("m", set, capitest.AtTheHook, capitest.Annotated[*clusterv1.Machine](clusterv1.PausedAnnotation, "")), related(capitest.Cluster()),
			drain.Hook{Hooked: true, Deleting: true, Waiting: true, NodeName: "node-m", Paused: "the machine has the annotation cluster.x-k8s.io/paused"},
		},
		"the infrastructure is gone": {
			capitest.Machine("m", set, capitest.AtTheHook), related(capitest.Cluster()),
			drain.Hook{Hooked: true, Deleting: true, Waiting: true, NodeName: "node-m", Needless: "ExampleMachine m is gone or being deleted, and the node is not drained"},
		},
		"the infrastructure is being deleted": {
			capitest.Machine("m", set, capitest.AtTheHook), related(capitest.Cluster(), infrastructure(capitest.Going)),
			drain.Hook{Hooked: true, Deleting: true, Waiting: true, NodeName: "node-m", Needless: "ExampleMachine m is gone or being deleted, and the node is not drained"},
		},
		"the Cluster is being deleted": {
			capitest.Machine("m", set, capitest.AtTheHook), related(capitest.Cluster(capitest.Going), infrastructure()),
			drain.Hook{Hooked: true, Deleting: true, Waiting: true, NodeName: "node-m", Needless: "Cluster c is being deleted, and its nodes are not drained"},
		},
		"past its drain": {
			capitest.Machine("m", set, capitest.AtTheHook, func(m *clusterv1.Machine) { m.Status.Deletion.WaitForPreTerminateHookStartTime = capitest.Ago(1) }),
			related(capitest.Cluster(), infrastructure()),
			drain.Hook{Hooked: true, Deleting: true, Waiting: true, NodeName: "node-m", Needless: "the deletion is past its drain"},
		},
		"without a node, and skipped": {
			capitest.Machine("m", set, capitest.AtTheHook, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" }, capitest.Annotated[*clusterv1.Machine](v1alpha1.AnnotationSkipDrain, "ann: test")),
			related(capitest.Cluster(), infrastructure()),
			drain.Hook{Hooked: true, Deleting: true, Waiting: true, Skip: "annotation " + v1alpha1.AnnotationSkipDrain + ": ann: test"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := capitest.Watching(t, row.objects...)
			got, err := capidrain.Hook(t.Context(), c, row.machine, capidrain.AsMachine(row.machine))
			require.NoError(t, err)
			assert.Equal(t, row.want, got)
		})
	}
}

func TestRulesOfClusterAPI(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	other := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Near"}}}
	rule := func(name string, change ...func(*clusterv1.MachineDrainRule)) runtime.Object {
		r := &clusterv1.MachineDrainRule{ObjectMeta: capitest.Meta(name)}
		r.Spec.Drain.Behavior = clusterv1.MachineDrainRuleDrainBehaviorSkip
		for _, f := range change {
			f(r)
		}
		return r
	}
	machines := func(entries ...clusterv1.MachineDrainRuleMachineSelector) func(*clusterv1.MachineDrainRule) {
		return func(r *clusterv1.MachineDrainRule) { r.Spec.Machines = entries }
	}
	pods := func(entries ...clusterv1.MachineDrainRulePodSelector) func(*clusterv1.MachineDrainRule) {
		return func(r *clusterv1.MachineDrainRule) { r.Spec.Pods = entries }
	}
	elsewhere := func(r *clusterv1.MachineDrainRule) { r.Namespace = "elsewhere" }
	cluster := capitest.Cluster(func(c *clusterv1.Cluster) { c.Labels = map[string]string{"app": "web"} })
	m := capitest.Machine("m", capitest.Set("s", 1), func(m *clusterv1.Machine) { m.Labels["app"] = "web" })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	for name, row := range map[string]struct {
		rules []runtime.Object
		want  string // name of the rule that applies
	}{
		"none":                              {nil, ""},
		"of all machines and all pods":      {[]runtime.Object{rule("a")}, "a"},
		"the first by name":                 {[]runtime.Object{rule("b"), rule("a")}, "a"},
		"of another namespace":              {[]runtime.Object{rule("a", elsewhere)}, ""},
		"machine and Cluster":               {[]runtime.Object{rule("a", machines(clusterv1.MachineDrainRuleMachineSelector{Selector: web, ClusterSelector: web}))}, "a"},
		"the Cluster does not match":        {[]runtime.Object{rule("a", machines(clusterv1.MachineDrainRuleMachineSelector{Selector: web, ClusterSelector: other}))}, ""},
		"the machine does not match":        {[]runtime.Object{rule("a", machines(clusterv1.MachineDrainRuleMachineSelector{Selector: other, ClusterSelector: web}))}, ""},
		"one of several entries":            {[]runtime.Object{rule("a", machines(clusterv1.MachineDrainRuleMachineSelector{Selector: other}, clusterv1.MachineDrainRuleMachineSelector{ClusterSelector: web}))}, "a"},
		"pod and namespace":                 {[]runtime.Object{rule("a", pods(clusterv1.MachineDrainRulePodSelector{Selector: web, NamespaceSelector: web}))}, "a"},
		"the namespace does not match":      {[]runtime.Object{rule("a", pods(clusterv1.MachineDrainRulePodSelector{Selector: web, NamespaceSelector: other}))}, ""},
		"one of several entries about pods": {[]runtime.Object{rule("a", pods(clusterv1.MachineDrainRulePodSelector{Selector: other}, clusterv1.MachineDrainRulePodSelector{NamespaceSelector: web}))}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := capitest.Watching(t, append(row.rules, cluster)...)
			rules, err := capidrain.Rules(c, m)
			require.NoError(t, err)
			got := rules.Of(pod, map[string]string{"app": "web"})
			if row.want == "" {
				assert.Nil(t, got)
				return
			}
			assert.Equal(t, &drain.Rule{Name: row.want, Behavior: "Skip"}, got)
		})
	}
	t.Run("behaviour and order", func(t *testing.T) {
		c, _ := capitest.Watching(t, rule("a", func(r *clusterv1.MachineDrainRule) {
			r.Spec.Drain = clusterv1.MachineDrainRuleDrainConfig{
				Behavior: clusterv1.MachineDrainRuleDrainBehaviorDrain,
				Order:    new(int32(-5)),
			}
		}))
		rules, err := capidrain.Rules(c, m)
		require.NoError(t, err)
		assert.Equal(t, &drain.Rule{Name: "a", Behavior: "Drain", Order: -5}, rules.Of(pod, nil))
	})
	for name, r := range map[string]runtime.Object{
		"of machines":   rule("a", machines(clusterv1.MachineDrainRuleMachineSelector{Selector: bad})),
		"of Clusters":   rule("a", machines(clusterv1.MachineDrainRuleMachineSelector{ClusterSelector: bad})),
		"of pods":       rule("a", pods(clusterv1.MachineDrainRulePodSelector{Selector: bad})),
		"of namespaces": rule("a", pods(clusterv1.MachineDrainRulePodSelector{NamespaceSelector: bad})),
	} {
		t.Run("an invalid selector "+name, func(t *testing.T) {
			c, _ := capitest.Watching(t, r, cluster)
			_, err := capidrain.Rules(c, m)
			assert.ErrorContains(t, err, "read MachineDrainRule shop/a")
		})
	}
}

func TestTurnsOfTheMachinesOfACluster(t *testing.T) {
	set := capitest.Set("s", 1)
	far := capitest.Machine("far", set, capitest.AtTheHook)
	far.Spec.ClusterName = "other"
	c, _ := capitest.Watching(
		t,
		capitest.Machine("a", set, capitest.AtTheHook),
		capitest.Machine("alive", set, capitest.Hooked),
		far,
		capitest.Machine(
			"queued",
			set,
			capitest.AtTheHook,
			capitest.Annotated[*clusterv1.Machine](
				v1alpha1.AnnotationDrainStatus,
				`{"deletion":{"stage":"Drain","since":"2026-01-01T11:59:00Z","queued":true}}`,
			),
		),
		capitest.Machine(
			"over",
			set,
			capitest.AtTheHook,
			capitest.Annotated[*clusterv1.Machine](
				v1alpha1.AnnotationDrainStatus,
				`{"deletion":{"stage":"Drain","since":"2026-01-01T11:59:00Z","drain":{"startedAt":"2026-01-01T11:59:00Z","result":"Drained"}}}`,
			),
		),
	)
	names := map[string]bool{}
	for _, turn := range capidrain.Turns(c, "shop", "c") {
		names[turn.Name] = turn.Queued
		assert.Equal(t, "s", turn.Group)
	}
	assert.Equal(t, map[string]bool{"a": false, "queued": true}, names)
}
