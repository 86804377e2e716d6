package nodesync_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/nodesync"
)

func TestLastAppliedRecords(t *testing.T) {
	t.Run("one that MCM wrote is current", func(t *testing.T) {
		node := syncedNode(t, baseWanted())
		node.Annotations[templateRecord] = `{"metadata":{"creationTimestamp":null,"labels":{"pool":"web"},"annotations":{"team":"shop"}},` +

			`"spec":{"taints":[{"key":"only","value":"web","effect":"NoSchedule"}]}}`
		node.Annotations[capacityRecord] = `{ "example.com/dongle": "2" }`
		assert.True(t, nodesync.Decide(baseWanted(), node).Empty())
	})
	t.Run("one of nothing stays where nothing is wanted", func(t *testing.T) {
		wanted := nodesync.Wanted{MachineName: "m", Capacity: texts{}}
		node := syncedNode(t, wanted)
		node.Annotations = texts{templateRecord: `{"metadata":{"creationTimestamp":null},"spec":{}}`, capacityRecord: "{}"}
		assert.True(t, nodesync.Decide(wanted, node).Empty())
	})
	for _, broken := range []string{"{", `[1]`, `{"metadata":"text"}`, `{"metadata":{"labels":{"pool":"old","gone":"1"}},"spec":7}`} {
		t.Run("one that cannot be read counts as nothing applied: "+broken, func(t *testing.T) {
			node, want := syncedNode(t, baseWanted()), syncedNode(t, baseWanted()).Annotations
			node.Labels["gone"], node.Capacity["gone"] = "1", "1"
			node.Annotations[templateRecord], node.Annotations[capacityRecord] = broken, broken
			c := nodesync.Decide(baseWanted(), node)
			assert.Equal(t, texts{templateRecord: want[templateRecord], capacityRecord: want[capacityRecord]}, c.Annotations.Set)
			assert.True(t, c.Labels.Empty())
			assert.True(t, c.Capacity.Empty())

			c = nodesync.Decide(nodesync.Wanted{MachineName: "m", Capacity: texts{}}, node)
			assert.Equal(
				t,
				nodesync.Edit{Remove: []string{templateRecord, capacityRecord}},
				c.Annotations,
				"nothing wanted: no record",
			)
		})
	}
}

func TestARecordOfCapacityThatCannotBeReadRemovesNothing(t *testing.T) {
	node := syncedNode(t, baseWanted())
	node.Annotations[capacityRecord], node.Capacity["gone"] = `{"gone":"1","other":7}`, "1"
	c := nodesync.Decide(baseWanted(), node)
	assert.True(t, c.Capacity.Empty())
	assert.Equal(t, nodesync.Edit{Set: texts{capacityRecord: `{"example.com/dongle":"2"}`}}, c.Annotations)
}
