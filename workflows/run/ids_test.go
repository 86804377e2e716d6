package run_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/activities/kube"
	"millwright/workflows/run"
)

const testInstallation run.Installation = "garden"

func TestWorkflowIDs(t *testing.T) {
	short := kube.Ref{Namespace: "shoot--a", Name: "pool-x2", UID: "322f5550-1c4b-4eee-acba-eb54507c9eec"}
	assert.Equal(
		t,
		"garden/machine/shoot--a/pool-x2/322f5550-1c4b-4eee-acba-eb54507c9eec",
		testInstallation.ID(run.KindMachine, short),
	)

	long := short
	long.Name = strings.Repeat("a", 253)
	other := long
	other.Name = strings.Repeat("a", 252) + "b"
	id := testInstallation.ID(run.KindMachineDeployment, long)
	assert.LessOrEqual(t, len(id), 200)
	assert.True(t, strings.HasPrefix(id, "garden/machinedeployment/shoot--a/aaaa"))
	assert.True(t, strings.HasSuffix(id, "/"+long.UID))
	assert.NotEqual(t, id, testInstallation.ID(run.KindMachineDeployment, other), "names that differ only at the end")
	assert.NotEqual(t, testInstallation.ID(run.KindMachine, short), testInstallation.ID(run.KindMachineSet, short))
	assert.NotEqual(t, testInstallation.ID(run.KindMachine, short), run.Installation("shoot").ID(run.KindMachine, short))

	longest := run.Installation(strings.Repeat("i", 63))
	for _, kind := range []run.Kind{run.KindMachineDeployment, run.KindRollout, run.KindOrphanCollection} {
		full := kube.Ref{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("a", 253), UID: short.UID}
		assert.LessOrEqual(t, len("temporal-sys-scheduler:"+longest.ID(kind, full, 1234567)), 255, kind)
	}
}

func TestWorkflowIDsContainTheInstallation(t *testing.T) {
	ref := kube.Ref{Namespace: "machine", Name: "drain", UID: "u"}
	for _, i := range []run.Installation{"garden", "machine", "a.b_c-9"} {
		assert.NoError(t, i.Check())
		assert.Equal(t, i, run.InstallationInID(i.ID(run.KindDrain, ref)))
		kind, parsed, ours := i.ParseID(i.ID(run.KindRollout, ref, 7))
		assert.Equal(t, []any{run.KindRollout, ref, true}, []any{kind, parsed, ours})
		_, _, ours = i.ParseID(run.Installation("z").ID(run.KindRollout, ref, 7))
		assert.False(t, ours)
		_, _, ours = i.ParseID(i.ReservationWorkflowID())
		assert.False(t, ours)
		assert.Equal(t, string(i)+"/provider-virtual", i.Shard(0).ProviderTaskQueue("virtual"))
	}
	assert.Empty(t, run.InstallationInID("machine/default/pool-x2/u"), "an ID from before the name was added")
	for _, bad := range []run.Installation{"", "a/b", "a b", run.Installation(strings.Repeat("i", 64))} {
		assert.Error(t, bad.Check(), string(bad))
	}
}

func TestSearchAttributesFitSQLStores(t *testing.T) {
	count := map[string]int{}
	for _, a := range run.SearchAttributes() {
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
