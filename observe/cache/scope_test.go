package cache_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/observe/cache"
)

func scopeWithSelector(t *testing.T, text string) cache.NamespaceScope {
	t.Helper()
	selector, err := labels.Parse(text)
	require.NoError(t, err)
	return cache.NamespaceScope{Selector: selector}
}

func TestNamespaceScopeContainsNamespace(t *testing.T) {
	blue, notGreen := scopeWithSelector(t, "fleet=blue"), scopeWithSelector(t, "fleet!=green")
	both := blue
	both.OnlyNamespaces, both.ExceptNamespaces = []string{"shop", "other"}, []string{"other"}
	for name, row := range map[string]struct {
		scope cache.NamespaceScope
		// expected results for the namespaces shop and test (label blue), other (label green), and new (labels unknown)
		want []bool
		says string
	}{
		"all":                       {cache.NamespaceScope{}, []bool{true, true, true, true}, "all namespaces"},
		"some":                      {cache.NamespaceScope{OnlyNamespaces: []string{"shop", "test"}}, []bool{true, true, false, false}, "namespaces shop, test"},
		"all but one":               {cache.NamespaceScope{ExceptNamespaces: []string{"other"}}, []bool{true, true, false, true}, "all namespaces except other"},
		"the exception is stronger": {cache.NamespaceScope{OnlyNamespaces: []string{"shop", "test"}, ExceptNamespaces: []string{"test"}}, []bool{true, false, false, false}, "namespaces shop, test except test"},
		"by label":                  {blue, []bool{true, true, false, false}, "all namespaces with labels fleet=blue"},
		"not by label":              {notGreen, []bool{true, true, false, false}, "all namespaces with labels fleet!=green"},
		"by label and name":         {both, []bool{true, false, false, false}, "namespaces shop, other with labels fleet=blue except other"},
	} {
		of := map[string]labels.Labels{
			"shop": labels.Set{
				"fleet": "blue",
			},
			"test":  labels.Set{"fleet": "blue"},
			"other": labels.Set{"fleet": "green"},
			"new":   nil,
		}
		has := func(s cache.NamespaceScope) (has []bool) {
			for _, namespace := range []string{"shop", "test", "other", "new"} {
				has = append(has, s.ContainsNamespace(namespace, of[namespace]))
			}
			return has
		}
		assert.Equal(t, row.want, has(row.scope), name)
		assert.Equal(t, row.says, row.scope.String(), name)
		text, err := json.Marshal(row.scope)
		require.NoError(t, err)
		var again cache.NamespaceScope
		require.NoError(t, json.Unmarshal(text, &again), "%s", text)
		assert.Equal(t, row.want, has(again), "%s: %s", name, text)
	}
}
