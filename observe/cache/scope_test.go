package cache_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/observe/cache"
)

func TestWhichNamespacesAreMillwrights(t *testing.T) {
	for name, row := range map[string]struct {
		scope cache.Scope
		want  []bool // shop, test, other
	}{
		"all":                       {cache.Scope{}, []bool{true, true, true}},
		"some":                      {cache.Scope{Only: []string{"shop", "test"}}, []bool{true, true, false}},
		"all but one":               {cache.Scope{Except: []string{"other"}}, []bool{true, true, false}},
		"the exception is stronger": {cache.Scope{Only: []string{"shop", "test"}, Except: []string{"test"}}, []bool{true, false, false}},
	} {
		assert.Equal(t, row.want, []bool{row.scope.Has("shop"), row.scope.Has("test"), row.scope.Has("other")}, name)
	}
}
