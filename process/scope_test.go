package process

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/observe/cache"
)

func TestFlagsOfNamespaces(t *testing.T) {
	blue, err := labels.Parse("fleet=blue,tier notin (test)")
	require.NoError(t, err)
	for name, row := range map[string]struct {
		arguments []string
		want      cache.Scope
		wrong     string
	}{
		"none":              {nil, cache.Scope{}, ""},
		"some":              {[]string{"--namespaces=shop,test"}, cache.Scope{Only: []string{"shop", "test"}}, ""},
		"all but some":      {[]string{"--except-namespaces=a", "--except-namespaces=b"}, cache.Scope{Except: []string{"a", "b"}}, ""},
		"a pattern":         {[]string{"--namespaces=shoot--*"}, cache.Scope{}, `--namespaces: "shoot--*" is no name of a namespace`},
		"a wrong exception": {[]string{"--except-namespaces=A"}, cache.Scope{}, `--except-namespaces: "A" is no name of a namespace`},
		"an empty name":     {[]string{"--namespaces=shop,"}, cache.Scope{}, `--namespaces: "" is no name of a namespace`},
		"nothing remains":   {[]string{"--namespaces=shop", "--except-namespaces=shop"}, cache.Scope{}, "leaves none of shop"},
		"something remains": {[]string{"--namespaces=a,b", "--except-namespaces=b"}, cache.Scope{Only: []string{"a", "b"}, Except: []string{"b"}}, ""},
		"by label":          {[]string{"--namespace-selector=fleet=blue,tier notin (test)"}, cache.Scope{Selector: blue}, ""},
		"a wrong selector":  {[]string{"--namespace-selector=fleet in"}, cache.Scope{}, "--namespace-selector: "},
	} {
		t.Run(name, func(t *testing.T) {
			var flags ScopeFlags
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.Register(set)
			require.NoError(t, set.Parse(row.arguments))
			cluster := &cache.Cluster{}
			err := flags.Apply(cluster)
			if row.wrong != "" {
				require.ErrorContains(t, err, row.wrong)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, row.want, cluster.Scope)
		})
	}
}
