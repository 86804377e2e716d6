package nodesync_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/nodesync"
)

func TestLastAppliedRecords(t *testing.T) {
	t.Run("one that MCM wrote is current", func(t *testing.T) {
		node := syncedNode(t, baseWantedState())
		node.Annotations[templateRecord] = `{"metadata":{"creationTimestamp":null,"labels":{"pool":"web"},"annotations":{"team":"shop"}},` +

			`"spec":{"taints":[{"key":"only","value":"web","effect":"NoSchedule"}]}}`
		node.Annotations[capacityRecord] = `{ "example.com/dongle": "2" }`
		assert.True(t, nodesync.Decide(baseWantedState(), node).IsEmpty())
	})
	t.Run("one of nothing stays where nothing is wanted", func(t *testing.T) {
		wanted := nodesync.WantedState{MachineName: "m", Capacity: textMap{}}
		node := syncedNode(t, wanted)
		node.Annotations = textMap{templateRecord: `{"metadata":{"creationTimestamp":null},"spec":{}}`, capacityRecord: "{}"}
		assert.True(t, nodesync.Decide(wanted, node).IsEmpty())
	})
	for _, broken := range []string{"{", `[1]`, `{"metadata":"text"}`, `{"metadata":{"labels":{"pool":"old","gone":"1"}},"spec":7}`} {
		t.Run("one that cannot be read counts as nothing applied: "+broken, func(t *testing.T) {
			node, want := syncedNode(t, baseWantedState()), syncedNode(t, baseWantedState()).Annotations
			node.Labels["gone"], node.Capacity["gone"] = "1", "1"
			node.Annotations[templateRecord], node.Annotations[capacityRecord] = broken, broken
			c := nodesync.Decide(baseWantedState(), node)
			assert.Equal(
				t,
				textMap{templateRecord: want[templateRecord], capacityRecord: want[capacityRecord]},
				c.Annotations.Set,
			)
			assert.True(t, c.Labels.IsEmpty())
			assert.True(t, c.Capacity.IsEmpty())

			c = nodesync.Decide(nodesync.WantedState{MachineName: "m", Capacity: textMap{}}, node)
			assert.Equal(
				t,
				nodesync.MapEdit{Remove: []string{templateRecord, capacityRecord}},
				c.Annotations,
				"nothing wanted: no record",
			)
		})
	}
}

func TestARecordOfCapacityThatCannotBeReadRemovesNothing(t *testing.T) {
	node := syncedNode(t, baseWantedState())
	node.Annotations[capacityRecord], node.Capacity["gone"] = `{"gone":"1","other":7}`, "1"
	c := nodesync.Decide(baseWantedState(), node)
	assert.True(t, c.Capacity.IsEmpty())
	assert.Equal(t, nodesync.MapEdit{Set: textMap{capacityRecord: `{"example.com/dongle":"2"}`}}, c.Annotations)
}
