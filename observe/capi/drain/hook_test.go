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

const drainOptInAnnotation = v1alpha1.AnnotationClusterAPIDrain

func TestDrainsNodesOfSet(t *testing.T) {
	on := func(value string) capitest.SetChange {
		return capitest.WithAnnotation[*clusterv1.MachineSet](drainOptInAnnotation, value)
	}
	onDeployment := func(value string) *clusterv1.MachineDeployment {
		return capitest.NewDeployment(capitest.WithAnnotation[*clusterv1.MachineDeployment](drainOptInAnnotation, value))
	}
	onCluster := func(value string) *clusterv1.Cluster {
		return capitest.NewCluster(capitest.WithAnnotation[*clusterv1.Cluster](drainOptInAnnotation, value))
	}
	for name, row := range map[string]struct {
		set     *clusterv1.MachineSet
		objects []runtime.Object
		want    bool
	}{
		"nobody":                              {capitest.NewSet("s", 1), []runtime.Object{capitest.NewCluster()}, false},
		"the set":                             {capitest.NewSet("s", 1, on("true")), []runtime.Object{capitest.NewCluster()}, true},
		"another value":                       {capitest.NewSet("s", 1, on("yes")), []runtime.Object{capitest.NewCluster()}, false},
		"the deployment":                      {capitest.NewSet("s", 1, capitest.WithDeploymentOwner), []runtime.Object{capitest.NewCluster(), onDeployment("true")}, true},
		"a deployment of others":              {capitest.NewSet("s", 1), []runtime.Object{capitest.NewCluster(), onDeployment("true")}, false},
		"the Cluster":                         {capitest.NewSet("s", 1), []runtime.Object{onCluster("true")}, true},
		"the set, before the Cluster":         {capitest.NewSet("s", 1, on("false")), []runtime.Object{onCluster("true")}, false},
		"the set, before the deployment":      {capitest.NewSet("s", 1, capitest.WithDeploymentOwner, on("true")), []runtime.Object{capitest.NewCluster(), onDeployment("false")}, true},
		"the deployment, before the Cluster":  {capitest.NewSet("s", 1, capitest.WithDeploymentOwner), []runtime.Object{onCluster("true"), onDeployment("false")}, false},
		"a deployment that does not say":      {capitest.NewSet("s", 1, capitest.WithDeploymentOwner), []runtime.Object{onCluster("true"), capitest.NewDeployment()}, true},
		"a Cluster that does not exist (yet)": {capitest.NewSet("s", 1), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := capitest.StartCaches(t, row.objects...)
			assert.Equal(t, row.want, capidrain.DrainsNodesOfSet(c, row.set))
			m := capiset.NewMachine(c, row.set, "m")
			assert.Equal(t, row.want, capidrain.HasDrainHook(m))
			_, excluded := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
			assert.Equal(t, row.want, excluded)
			assert.Equal(t, "web", m.Annotations["team"], "those of the template stay")
			bare := capitest.NewMachine(
				"m",
				row.set,
				func(m *clusterv1.Machine) { m.Annotations = row.set.Spec.Template.Annotations },
			)
			assert.Equal(t, map[bool]string{true: "annotations", false: ""}[row.want], capiset.DriftText(c, bare, row.set))
			assert.Empty(
				t,
				capiset.DriftText(
					c,
					capitest.NewMachine(
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
func TestMachineExcludedByAPersonGetsNoHook(t *testing.T) {
	c, _ := capitest.StartCaches(t, capitest.NewCluster())
	set := capitest.NewSet("s", 1, capitest.WithAnnotation[*clusterv1.MachineSet](drainOptInAnnotation, "true"))
	m := capitest.NewMachine(
		"m",
		capitest.NewSet("s", 1),
		capitest.WithAnnotation[*clusterv1.Machine](clusterv1.ExcludeNodeDrainingAnnotation, "ann"),
	)
	assert.Empty(t, capiset.DriftText(c, m, set))
	assert.False(t, capidrain.HasDrainHook(capiset.SyncedMachine(c, set, m)))
	set.Spec.Template.Annotations[clusterv1.ExcludeNodeDrainingAnnotation] = ""
	assert.False(
		t,
		capidrain.HasDrainHook(capiset.NewMachine(c, set, "m")),
		"nor do the machines of such a template",
	)
}

func TestHookRemovalPatch(t *testing.T) {
	gone := func(keys ...string) map[string]any {
		annotations := map[string]any{}
		for _, key := range keys {
			annotations[key] = nil
		}
		return map[string]any{"metadata": map[string]any{"annotations": annotations}}
	}
	set := capitest.NewSet("s", 1)
	assert.Equal(
		t,
		gone(capidrain.AnnotationPreDrainHook, clusterv1.ExcludeNodeDrainingAnnotation),
		capidrain.HookRemovalPatch(capitest.NewMachine("m", set, capitest.WithDrainHook), false),
	)
	assert.Equal(
		t,
		gone(capidrain.AnnotationPreDrainHook),
		capidrain.HookRemovalPatch(capitest.NewMachine("m", set, capitest.WithDrainHook), true),
		"Cluster API does not drain what is drained",
	)
	assert.Nil(t, capidrain.HookRemovalPatch(capitest.NewMachine("m", set), false))
	theirs := capitest.NewMachine(
		"m",
		set,
		capitest.WithDrainHook,
		capitest.WithAnnotation[*clusterv1.Machine](clusterv1.ExcludeNodeDrainingAnnotation, "ann"),
	)
	assert.Equal(
		t,
		gone(capidrain.AnnotationPreDrainHook),
		capidrain.HookRemovalPatch(theirs, false),
		"what a person wrote stays",
	)
}

func TestToMillwrightMachine(t *testing.T) {
	set := capitest.NewSet("s", 1)
	m := capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook, func(m *clusterv1.Machine) {
		m.Labels["node"] = "a label of the user"
		m.Spec.ProviderID, m.Spec.Deletion.NodeDrainTimeoutSeconds = "example:///1", new(int32(90))
		m.Annotations[v1alpha1.AnnotationHold] = "ann: lunch"
	})
	v := capidrain.ToMillwrightMachine(m)
	assert.True(t, observedrain.IsClusterAPIMachine(v))
	assert.Equal(t, "node-m", cache.NodeNameOfMachine(v), "the node that Cluster API has found")
	assert.Equal(t, "example:///1", v.Spec.ProviderID)
	assert.Equal(
		t,
		map[string]string{"team": "web", v1alpha1.AnnotationHold: "ann: lunch"},
		v.Annotations,
		"without what is Millwright's",
	)
	assert.Equal(t, v1alpha1.MachineDeletionDrain, v.Status.Deletion.Stage)
	assert.True(
		t,
		observedrain.IsInDrainQueue(
			capidrain.ToMillwrightMachine(capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook)),
		),
	)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-m"}}
	ladder := observedrain.EscalationFacts(v, nil, node, 0, capitest.Noon)
	assert.Equal(
		t,
		drain.EscalationFacts{Now: capitest.Noon, Timeout: 90 * time.Second, Setting: "nodeDrainTimeoutSeconds"},
		ladder,
	)
	for _, seconds := range []*int32{nil, new(int32(0))} {
		m.Spec.Deletion.NodeDrainTimeoutSeconds = seconds
		assert.True(t, observedrain.EscalationFacts(capidrain.ToMillwrightMachine(m), nil, node, 0, capitest.Noon).Endless)
	}

	v.Status.Deletion.Drain = &v1alpha1.MachineDrain{StartedAt: capitest.MinutesBeforeNoon(3), Means: "Evict"}
	v.Status.CurrentOperation = &v1alpha1.Operation{Step: "evict-pods", Since: capitest.MinutesBeforeNoon(3)}
	v.Status.LastOperation = v1alpha1.LastOperation{Type: v1alpha1.MachineOperationDelete, Description: "x"}
	v.Status.Conditions = []corev1.NodeCondition{
		{
			Type:               v1alpha1.MachineDrained,
			Status:             corev1.ConditionFalse,
			Reason:             "Blocked",
			Message:            "by a budget",
			LastTransitionTime: capitest.MinutesBeforeNoon(2),
		},
	}
	text, err := capidrain.StatusText(v)
	require.NoError(t, err)
	m.Annotations[v1alpha1.AnnotationDrainStatus] = text
	require.True(t, capidrain.CopyConditions(m, v))
	require.False(t, capidrain.CopyConditions(m, v), "once")
	again := capidrain.ToMillwrightMachine(m)
	assert.True(t, again.Status.Deletion.Drain.StartedAt.Equal(new(capitest.MinutesBeforeNoon(3))))
	assert.Equal(t, "evict-pods", again.Status.CurrentOperation.Step)
	assert.Equal(t, v.Status.LastOperation.Description, again.Status.LastOperation.Description)
	require.Len(t, again.Status.Conditions, 1)
	assert.Equal(t, "by a budget", again.Status.Conditions[0].Message)
	v.Status.Conditions = nil
	require.True(t, capidrain.CopyConditions(m, v), "and taken away")
	m.Annotations[v1alpha1.AnnotationDrainStatus] = "{"
	assert.Nil(t, capidrain.ToMillwrightMachine(m).Status.CurrentOperation, "what nobody can read counts as absent")
}

// withoutDeletionTimes removes the times of the deletion that a Machine has since Cluster API v1.14.
func withoutDeletionTimes(m *clusterv1.Machine) { m.Status.Deletion = nil }

func TestDrainHookFacts(t *testing.T) {
	set := capitest.NewSet("s", 1)
	infrastructure := func(change ...capitest.ProviderObjectChange) runtime.Object {
		o := capitest.NewInfrastructureTemplate()
		o.SetKind("ExampleMachine")
		o.SetName("m")
		for _, f := range change {
			f(o)
		}
		return o
	}
	related := func(more ...runtime.Object) []runtime.Object { return append(more, capitest.NewControlPlane()) }
	for name, row := range map[string]struct {
		machine *clusterv1.Machine
		objects []runtime.Object
		want    drain.HookFacts
	}{
		"not deleted": {capitest.NewMachine("m", set, capitest.WithDrainHook), nil, drain.HookFacts{HasHook: true, NodeName: "node-m"}},
		"at the hook": {
			capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook), related(capitest.NewCluster(), infrastructure()), drain.HookFacts{HasHook: true, Deleting: true, ClusterAPIWaits: true, NodeName: "node-m"},
		},
		"at the hook, with Cluster API before v1.14": {
			capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook, withoutDeletionTimes),
			related(capitest.NewCluster(), infrastructure()),
			drain.HookFacts{HasHook: true, Deleting: true, ClusterAPIWaits: true, NodeName: "node-m"},
		},
		"past its drain, with Cluster API before v1.14": {
			capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook, withoutDeletionTimes, capitest.WithConditionReason(
				clusterv1.MachineDeletingCondition, metav1.ConditionTrue, clusterv1.MachineDeletingDeletingNodeReason, "",
			)),
			related(capitest.NewCluster(), infrastructure()),
			drain.HookFacts{HasHook: true, Deleting: true, NodeName: "node-m", NoDrainReason: "the deletion is past its drain"},
		},
		"its Cluster is paused": {
			capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook), related(capitest.NewCluster(func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })),
			drain.HookFacts{HasHook: true, Deleting: true, ClusterAPIWaits: true, NodeName: "node-m", PauseReason: "Cluster c is paused"},
		},
		"it is paused": {
			capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook, capitest.WithAnnotation[*clusterv1.Machine](clusterv1.PausedAnnotation, "")), related(capitest.NewCluster()),
			drain.HookFacts{HasHook: true, Deleting: true, ClusterAPIWaits: true, NodeName: "node-m", PauseReason: "the machine has the annotation cluster.x-k8s.io/paused"},
		},
		"the infrastructure is gone": {
			capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook), related(capitest.NewCluster()),
			drain.HookFacts{HasHook: true, Deleting: true, ClusterAPIWaits: true, NodeName: "node-m", NoDrainReason: "ExampleMachine m is gone or being deleted, and the node is not drained"},
		},
		"the infrastructure is being deleted": {
			capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook), related(capitest.NewCluster(), infrastructure(capitest.AsDeletingObject)),
			drain.HookFacts{HasHook: true, Deleting: true, ClusterAPIWaits: true, NodeName: "node-m", NoDrainReason: "ExampleMachine m is gone or being deleted, and the node is not drained"},
		},
		"the Cluster is being deleted": {
			capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook), related(capitest.NewCluster(capitest.AsDeletingObject), infrastructure()),
			drain.HookFacts{HasHook: true, Deleting: true, ClusterAPIWaits: true, NodeName: "node-m", NoDrainReason: "Cluster c is being deleted, and its nodes are not drained"},
		},
		"past its drain": {
			capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook, func(m *clusterv1.Machine) {
				m.Status.Deletion.WaitForPreTerminateHookStartTime = capitest.MinutesBeforeNoon(1)
			}),
			related(capitest.NewCluster(), infrastructure()),
			drain.HookFacts{HasHook: true, Deleting: true, ClusterAPIWaits: true, NodeName: "node-m", NoDrainReason: "the deletion is past its drain"},
		},
		"without a node, and skipped": {
			capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" }, capitest.WithAnnotation[*clusterv1.Machine](v1alpha1.AnnotationSkipDrain, "ann: test")),
			related(capitest.NewCluster(), infrastructure()),
			drain.HookFacts{HasHook: true, Deleting: true, ClusterAPIWaits: true, SkipDrainReason: "annotation " + v1alpha1.AnnotationSkipDrain + ": ann: test"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := capitest.StartCaches(t, row.objects...)
			got, err := capidrain.HookFacts(t.Context(), c, row.machine, capidrain.ToMillwrightMachine(row.machine))
			require.NoError(t, err)
			assert.Equal(t, row.want, got)
		})
	}
}

func TestDrainRulesOfClusterAPI(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	other := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Near"}}}
	rule := func(name string, change ...func(*clusterv1.MachineDrainRule)) runtime.Object {
		r := &clusterv1.MachineDrainRule{ObjectMeta: capitest.NewMetadata(name)}
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
	cluster := capitest.NewCluster(func(c *clusterv1.Cluster) { c.Labels = map[string]string{"app": "web"} })
	m := capitest.NewMachine("m", capitest.NewSet("s", 1), func(m *clusterv1.Machine) { m.Labels["app"] = "web" })
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
			c, _ := capitest.StartCaches(t, append(row.rules, cluster)...)
			rules, err := capidrain.RulesOfMachine(c, m)
			require.NoError(t, err)
			got := rules.RuleForPod(pod, map[string]string{"app": "web"})
			if row.want == "" {
				assert.Nil(t, got)
				return
			}
			assert.Equal(t, &drain.Rule{Name: row.want, Behavior: "Skip"}, got)
		})
	}
	t.Run("behaviour and order", func(t *testing.T) {
		c, _ := capitest.StartCaches(t, rule("a", func(r *clusterv1.MachineDrainRule) {
			r.Spec.Drain = clusterv1.MachineDrainRuleDrainConfig{
				Behavior: clusterv1.MachineDrainRuleDrainBehaviorDrain,
				Order:    new(int32(-5)),
			}
		}))
		rules, err := capidrain.RulesOfMachine(c, m)
		require.NoError(t, err)
		assert.Equal(t, &drain.Rule{Name: "a", Behavior: "Drain", Order: -5}, rules.RuleForPod(pod, nil))
	})
	for name, r := range map[string]runtime.Object{
		"of machines":   rule("a", machines(clusterv1.MachineDrainRuleMachineSelector{Selector: bad})),
		"of Clusters":   rule("a", machines(clusterv1.MachineDrainRuleMachineSelector{ClusterSelector: bad})),
		"of pods":       rule("a", pods(clusterv1.MachineDrainRulePodSelector{Selector: bad})),
		"of namespaces": rule("a", pods(clusterv1.MachineDrainRulePodSelector{NamespaceSelector: bad})),
	} {
		t.Run("an invalid selector "+name, func(t *testing.T) {
			c, _ := capitest.StartCaches(t, r, cluster)
			_, err := capidrain.RulesOfMachine(c, m)
			assert.ErrorContains(t, err, "read MachineDrainRule shop/a")
		})
	}
}

func TestDrainQueueOfACluster(t *testing.T) {
	set := capitest.NewSet("s", 1)
	far := capitest.NewMachine("far", set, capitest.AsMachineAtDrainHook)
	far.Spec.ClusterName = "other"
	c, _ := capitest.StartCaches(
		t,
		capitest.NewMachine("a", set, capitest.AsMachineAtDrainHook),
		capitest.NewMachine("alive", set, capitest.WithDrainHook),
		far,
		capitest.NewMachine(
			"queued",
			set,
			capitest.AsMachineAtDrainHook,
			capitest.WithAnnotation[*clusterv1.Machine](
				v1alpha1.AnnotationDrainStatus,
				`{"deletion":{"stage":"Drain","since":"2026-01-01T11:59:00Z","queued":true}}`,
			),
		),
		capitest.NewMachine(
			"over",
			set,
			capitest.AsMachineAtDrainHook,
			capitest.WithAnnotation[*clusterv1.Machine](
				v1alpha1.AnnotationDrainStatus,
				`{"deletion":{"stage":"Drain","since":"2026-01-01T11:59:00Z","drain":{"startedAt":"2026-01-01T11:59:00Z","result":"Drained"}}}`,
			),
		),
	)
	names := map[string]bool{}
	for _, turn := range capidrain.QueueEntries(c, "shop", "c") {
		names[turn.Name] = turn.Queued
		assert.Equal(t, "s", turn.Group)
	}
	assert.Equal(t, map[string]bool{"a": false, "queued": true}, names)
}
