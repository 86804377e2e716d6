package drain_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/observe/cache"
	observe "millwright/observe/drain"
	"millwright/observe/observetest"
)

func newRule(name string, change ...func(*v1alpha1.MachineDrainRule)) *v1alpha1.MachineDrainRule {
	r := &v1alpha1.MachineDrainRule{ObjectMeta: observetest.NewMetadata(name)}
	r.Spec.Drain.Behavior = v1alpha1.MachineDrainRuleBehaviorSkip
	for _, f := range change {
		f(r)
	}
	return r
}

func withMachineSelectors(selectors ...*metav1.LabelSelector) func(*v1alpha1.MachineDrainRule) {
	return func(r *v1alpha1.MachineDrainRule) {
		for _, s := range selectors {
			r.Spec.Machines = append(r.Spec.Machines, v1alpha1.MachineDrainRuleMachines{Selector: s})
		}
	}
}

func withPodSelectors(entries ...v1alpha1.MachineDrainRulePods) func(*v1alpha1.MachineDrainRule) {
	return func(r *v1alpha1.MachineDrainRule) { r.Spec.Pods = entries }
}

func labelSelector(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// matchingRule returns the rule for pod p on the node of machine m.
func matchingRule(t *testing.T, namespace map[string]string, rules ...runtime.Object) (*drain.Rule, bool) {
	t.Helper()
	cluster, err := cache.NewCluster(fake.NewSimpleClientset(rules...), kubefake.NewClientset(), nil)
	require.NoError(t, err)
	require.NoError(t, cluster.WatchDrainResources())
	require.NoError(t, cluster.Start(t.Context()))
	found, err := observe.ReadRules(cluster, observetest.NewMachine("m"))
	require.NoError(t, err)
	return found.RuleForPod(newPod(), namespace), found.UsesNamespaceLabels()
}

func TestDrainRules(t *testing.T) {
	web, other := labelSelector("app", "web"), labelSelector("app", "other")
	mine, theirs := labelSelector("team", "mine"), labelSelector("team", "theirs")
	pods := func(p, ns *metav1.LabelSelector) v1alpha1.MachineDrainRulePods {
		return v1alpha1.MachineDrainRulePods{Selector: p, NamespaceSelector: ns}
	}
	elsewhere := newRule("elsewhere")
	elsewhere.Namespace = "other"
	for _, row := range []struct {
		name    string
		rules   []runtime.Object
		matches string // name of the rule that applies; empty if no rule applies
		asks    bool   // whether a rule selects by labels of namespaces
	}{
		{"no rule", nil, "", false},
		{"no selector matches everything", []runtime.Object{newRule("all")}, "all", false},
		{"an empty selector matches everything", []runtime.Object{
			newRule("all", withMachineSelectors(&metav1.LabelSelector{}), withPodSelectors(pods(&metav1.LabelSelector{}, nil))),
		}, "all", false},
		{"an entry without selectors matches everything", []runtime.Object{newRule("all", withMachineSelectors(nil), withPodSelectors(pods(nil, nil)))}, "all", false},
		{"a rule of another namespace", []runtime.Object{elsewhere}, "", false},
		{"the first by name decides", []runtime.Object{newRule("c"), newRule("b"), newRule("a", withPodSelectors(pods(other, nil)))}, "b", false},
		{"labels of the pod and of its namespace", []runtime.Object{newRule("r", withPodSelectors(pods(web, mine)))}, "r", true},
		{"labels of the pod alone are not enough", []runtime.Object{newRule("r", withPodSelectors(pods(web, theirs)))}, "", true},
		{"those of its namespace alone are not enough", []runtime.Object{newRule("r", withPodSelectors(pods(other, mine)))}, "", true},
		{"one of several entries for machines", []runtime.Object{newRule("r", withMachineSelectors(other, web))}, "r", false},
		{"none of several entries for machines", []runtime.Object{newRule("r", withMachineSelectors(other, theirs))}, "", false},
		{"one of several entries for pods", []runtime.Object{newRule("r", withPodSelectors(pods(other, nil), pods(nil, mine)))}, "r", true},
		{"none of several entries for pods", []runtime.Object{newRule("r", withPodSelectors(pods(other, nil), pods(nil, theirs)))}, "", true},
		{"a rule for other machines is none of ours", []runtime.Object{newRule("r", withMachineSelectors(other), withPodSelectors(pods(nil, mine)))}, "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			says, asks := matchingRule(t, map[string]string{"team": "mine"}, row.rules...)
			assert.Equal(t, row.asks, asks)
			if row.matches == "" {
				assert.Nil(t, says)
				return
			}
			require.NotNil(t, says)
			assert.Equal(t, row.matches, says.Name)
		})
	}
}

func TestFieldsOfADrainRule(t *testing.T) {
	for _, behaviour := range []v1alpha1.MachineDrainRuleBehavior{"Drain", "Skip", "WaitCompleted"} {
		for _, order := range []*int32{nil, new(int32(-3)), new(int32(7))} {
			says, _ := matchingRule(t, nil, newRule("r", func(r *v1alpha1.MachineDrainRule) {
				r.Spec.Drain.Behavior, r.Spec.Drain.Order = behaviour, order
			}))
			want := drain.Rule{Name: "r", Behavior: string(behaviour)}
			if order != nil {
				want.Order = *order
			}
			assert.Equal(t, want, *says)
		}
	}
}

func TestReadRulesRejectsAnInvalidRule(t *testing.T) {
	wrong := &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is", Values: []string{"web"}}},
	}
	for name, change := range map[string]func(*v1alpha1.MachineDrainRule){
		"of machines":   withMachineSelectors(wrong),
		"of pods":       withPodSelectors(v1alpha1.MachineDrainRulePods{Selector: wrong}),
		"of namespaces": withPodSelectors(v1alpha1.MachineDrainRulePods{NamespaceSelector: wrong}),
	} {
		t.Run("an invalid selector "+name, func(t *testing.T) {
			cluster, err := cache.NewCluster(fake.NewSimpleClientset(newRule("r", change)), kubefake.NewClientset(), nil)
			require.NoError(t, err)
			require.NoError(t, cluster.WatchDrainResources())
			require.NoError(t, cluster.Start(t.Context()))
			_, err = observe.ReadRules(cluster, observetest.NewMachine("m"))
			assert.ErrorContains(t, err, "read drain rule shop/r")
		})
	}
}
