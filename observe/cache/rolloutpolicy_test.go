package cache_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

func TestFirstMatchingPolicy(t *testing.T) {
	policy := func(name string, targets ...v1alpha1.RolloutPolicyTarget) *v1alpha1.RolloutPolicy {
		return &v1alpha1.RolloutPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.RolloutPolicySpec{Targets: targets},
		}
	}
	team := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": name}}
	}
	unreadable := &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Nonsense"}},
	}
	pool := &v1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: "pool", Labels: map[string]string{"team": "shop"}},
	}
	for name, row := range map[string]struct {
		policies []*v1alpha1.RolloutPolicy
		want     string
	}{
		"none":                      {nil, ""},
		"one for all":               {[]*v1alpha1.RolloutPolicy{policy("all")}, "all"},
		"by name":                   {[]*v1alpha1.RolloutPolicy{policy("a", v1alpha1.RolloutPolicyTarget{Name: "other"}), policy("b", v1alpha1.RolloutPolicyTarget{Name: "pool"})}, "b"},
		"by labels":                 {[]*v1alpha1.RolloutPolicy{policy("a", v1alpha1.RolloutPolicyTarget{Selector: team("web")}), policy("b", v1alpha1.RolloutPolicyTarget{Selector: team("shop")})}, "b"},
		"both have to hold":         {[]*v1alpha1.RolloutPolicy{policy("a", v1alpha1.RolloutPolicyTarget{Name: "pool", Selector: team("web")})}, ""},
		"one of several entries":    {[]*v1alpha1.RolloutPolicy{policy("a", v1alpha1.RolloutPolicyTarget{Name: "other"}, v1alpha1.RolloutPolicyTarget{Selector: team("shop")})}, "a"},
		"the first by name":         {[]*v1alpha1.RolloutPolicy{policy("z"), policy("b"), policy("c", v1alpha1.RolloutPolicyTarget{Name: "pool"})}, "b"},
		"one that nobody can read":  {[]*v1alpha1.RolloutPolicy{policy("a", v1alpha1.RolloutPolicyTarget{Selector: unreadable})}, ""},
		"an empty selector selects": {[]*v1alpha1.RolloutPolicy{policy("a", v1alpha1.RolloutPolicyTarget{Selector: &metav1.LabelSelector{}})}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			got := cache.FirstMatchingPolicy(row.policies, pool)
			if row.want == "" {
				assert.Nil(t, got)
				return
			}
			assert.Equal(t, row.want, got.Name)
		})
	}
}
