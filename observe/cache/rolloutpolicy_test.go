package cache_test

import (
	"slices"
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

// The targets of a policy are in order, and the deployments of one target are in the order of their names.
func TestSiblingsInTurns(t *testing.T) {
	deployment := func(name, team string) *v1alpha1.MachineDeployment {
		return &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}
	}
	policy := func(name string, turns *v1alpha1.RolloutTurns, targets ...v1alpha1.RolloutPolicyTarget) *v1alpha1.RolloutPolicy {
		return &v1alpha1.RolloutPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RolloutPolicySpec{Targets: targets, Turns: turns},
		}
	}
	one := &v1alpha1.RolloutTurns{MaxConcurrent: 1}
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "web"}}
	other := policy("a", nil, v1alpha1.RolloutPolicyTarget{Name: "other"})
	fleet := policy(
		"b",
		one,
		v1alpha1.RolloutPolicyTarget{Name: "z"},
		v1alpha1.RolloutPolicyTarget{Selector: web},
		v1alpha1.RolloutPolicyTarget{},
	)
	all := []*v1alpha1.MachineDeployment{
		deployment(
			"a",
			"shop",
		),
		deployment("b", "shop"),
		deployment("c", "web"),
		deployment("other", "web"),
		deployment("z", "shop"),
	}
	order := []string{"z", "c", "a", "b"}
	for i, name := range order {
		d := all[slices.IndexFunc(all, func(d *v1alpha1.MachineDeployment) bool { return d.Name == name })]
		var siblings, earlier []string
		for _, s := range cache.SiblingsInTurns(fleet, []*v1alpha1.RolloutPolicy{other, fleet}, d, all) {
			siblings = append(siblings, s.Name)
			if cache.HasEarlierTurn(fleet, s, d) {
				earlier = append(earlier, s.Name)
			}
		}
		assert.ElementsMatch(t, append(slices.Clone(order[:i]), order[i+1:]...), siblings, name)
		assert.ElementsMatch(t, order[:i], earlier, name)
	}
	assert.Empty(
		t,
		cache.SiblingsInTurns(policy("b", nil), []*v1alpha1.RolloutPolicy{policy("b", nil)}, all[0], all),
		"no limit",
	)
	assert.Empty(t, cache.SiblingsInTurns(nil, nil, all[0], all), "no policy")
}
