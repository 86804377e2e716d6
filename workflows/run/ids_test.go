package run_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/activities/kube"
	"millwright/workflows/run"
)

func TestID(t *testing.T) {
	short := kube.Ref{Namespace: "shoot--a", Name: "pool-x2", UID: "322f5550-1c4b-4eee-acba-eb54507c9eec"}
	assert.Equal(t, "machine/shoot--a/pool-x2/322f5550-1c4b-4eee-acba-eb54507c9eec", run.ID(run.KindMachine, short))

	long := short
	long.Name = strings.Repeat("a", 253)
	other := long
	other.Name = strings.Repeat("a", 252) + "b"
	id := run.ID(run.KindMachineDeployment, long)
	assert.LessOrEqual(t, len(id), 200)
	assert.True(t, strings.HasPrefix(id, "machinedeployment/shoot--a/aaaa"))
	assert.True(t, strings.HasSuffix(id, "/"+long.UID))
	assert.NotEqual(t, id, run.ID(run.KindMachineDeployment, other), "names that differ only at the end")
	assert.NotEqual(t, run.ID(run.KindMachine, short), run.ID(run.KindMachineSet, short))
}

func TestAttributesFitSQLStores(t *testing.T) {
	count := map[string]int{}
	for _, a := range run.Attributes() {
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
