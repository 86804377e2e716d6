package workflows_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/activities"
	"millwright/workflows"
)

func TestID(t *testing.T) {
	short := activities.Ref{Namespace: "shoot--a", Name: "pool-x2", UID: "322f5550-1c4b-4eee-acba-eb54507c9eec"}
	assert.Equal(t, "machine/shoot--a/pool-x2/322f5550-1c4b-4eee-acba-eb54507c9eec", workflows.ID(workflows.KindMachine, short))

	long := short
	long.Name = strings.Repeat("a", 253)
	other := long
	other.Name = strings.Repeat("a", 252) + "b"
	id := workflows.ID(workflows.KindMachineDeployment, long)
	assert.LessOrEqual(t, len(id), 200)
	assert.True(t, strings.HasPrefix(id, "machinedeployment/shoot--a/aaaa"))
	assert.True(t, strings.HasSuffix(id, "/"+long.UID))
	assert.NotEqual(t, id, workflows.ID(workflows.KindMachineDeployment, other), "names that differ only at the end")
	assert.NotEqual(t, workflows.ID(workflows.KindMachine, short), workflows.ID(workflows.KindMachineSet, short))
}

func TestAttributesFitSQLStores(t *testing.T) {
	count := map[string]int{}
	for _, a := range workflows.Attributes() {
		count[a.Type]++
		assert.NotEmpty(t, a.Help, a.Name)
	}
	for kind, n := range count {
		limit := 3
		if kind == "Keyword" {
			limit = 10
		}
		assert.LessOrEqual(t, n, limit, kind)
	}
}
