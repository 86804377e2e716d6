package cache_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

func TestNodeNameOfMachine(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ label, status, want string }{
		"none":                                  {"", "", ""},
		"of another controller, or of a backup": {"n", "", "n"},
		"both":                                  {"n", "n", "n"},
		"the status counts, which is proven":    {"label", "status", "status"},
		"too long for a label":                  {"", "long", "long"},
	} {
		m := &v1alpha1.Machine{}
		if row.label != "" {
			m.Labels = map[string]string{v1alpha1.LabelNode: row.label}
		}
		m.Status.NodeName = row.status
		assert.Equal(t, row.want, cache.NodeNameOfMachine(m), name)
	}
}
