package process

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/observe/cache"
)

func TestScopeFlagsSelectNamespaces(t *testing.T) {
	blue, err := labels.Parse("fleet=blue,tier notin (test)")
	require.NoError(t, err)
	for name, row := range map[string]struct {
		arguments []string
		want      cache.NamespaceScope
		wrong     string
	}{
		"none":              {nil, cache.NamespaceScope{}, ""},
		"some":              {[]string{"--namespaces=shop,test"}, cache.NamespaceScope{OnlyNamespaces: []string{"shop", "test"}}, ""},
		"all but some":      {[]string{"--except-namespaces=a", "--except-namespaces=b"}, cache.NamespaceScope{ExceptNamespaces: []string{"a", "b"}}, ""},
		"a pattern":         {[]string{"--namespaces=shoot--*"}, cache.NamespaceScope{}, `--namespaces: "shoot--*" is no name of a namespace`},
		"a wrong exception": {[]string{"--except-namespaces=A"}, cache.NamespaceScope{}, `--except-namespaces: "A" is no name of a namespace`},
		"an empty name":     {[]string{"--namespaces=shop,"}, cache.NamespaceScope{}, `--namespaces: "" is no name of a namespace`},
		"nothing remains":   {[]string{"--namespaces=shop", "--except-namespaces=shop"}, cache.NamespaceScope{}, "leaves none of shop"},
		"something remains": {[]string{"--namespaces=a,b", "--except-namespaces=b"}, cache.NamespaceScope{OnlyNamespaces: []string{"a", "b"}, ExceptNamespaces: []string{"b"}}, ""},
		"by label":          {[]string{"--namespace-selector=fleet=blue,tier notin (test)"}, cache.NamespaceScope{Selector: blue}, ""},
		"a wrong selector":  {[]string{"--namespace-selector=fleet in"}, cache.NamespaceScope{}, "--namespace-selector: "},
	} {
		t.Run(name, func(t *testing.T) {
			var flags ScopeFlags
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.Register(set)
			require.NoError(t, set.Parse(row.arguments))
			cluster := &cache.Cluster{}
			err := flags.ApplyToCluster(cluster, nil)
			if row.wrong != "" {
				require.ErrorContains(t, err, row.wrong)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, row.want, cluster.Scope)
		})
	}
}
