package kubecli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/api/v1alpha1"
)

func TestPageLineNamesTheWorkflowOfTheOperation(t *testing.T) {
	open := &v1alpha1.Operation{WorkflowID: "garden/drain/shop/m-1/u"}
	for name, row := range map[string]struct {
		ui        TemporalUI
		namespace string
		operation *v1alpha1.Operation
		variable  string
		want      string
	}{
		"no UI":           {"", "", open, "", ""},
		"nothing is done": {"https://ui", "", nil, "", ""},
		"no workflow":     {"https://ui", "", &v1alpha1.Operation{}, "", ""},
		"default":         {"https://ui/t/", "", open, "", "\npage: https://ui/t/namespaces/millwright/workflows/garden%2Fdrain%2Fshop%2Fm-1%2Fu\n"},
		"of the variable": {"https://ui", "", open, "prod", "\npage: https://ui/namespaces/prod/workflows/garden%2Fdrain%2Fshop%2Fm-1%2Fu\n"},
		"of the flag":     {"https://ui", "field", open, "prod", "\npage: https://ui/namespaces/field/workflows/garden%2Fdrain%2Fshop%2Fm-1%2Fu\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TEMPORAL_NAMESPACE", row.variable)
			line, err := row.ui.PageLine(row.namespace, row.operation)
			require.NoError(t, err)
			assert.Equal(t, row.want, line)
		})
	}
	_, err := TemporalUI("here").PageLine("", open)
	assert.EqualError(t, err, `--ui-address "here" is no URL`)
}
