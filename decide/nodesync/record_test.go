package nodesync_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/nodesync"
)

func TestLastAppliedRecords(t *testing.T) {
	t.Run("one that MCM wrote is current", func(t *testing.T) {
		node := syncedNode(t, baseWantedState())
		node.Annotations[templateRecordAnnotation] = `{"metadata":{"creationTimestamp":null,"labels":{"pool":"web"},"annotations":{"team":"shop"}},` +

			`"spec":{"taints":[{"key":"only","value":"web","effect":"NoSchedule"}]}}`
		node.Annotations[capacityRecordAnnotation] = `{ "example.com/dongle": "2" }`
		assert.True(t, nodesync.Decide(baseWantedState(), node).IsEmpty())
	})
	t.Run("one of nothing stays where nothing is wanted", func(t *testing.T) {
		wanted := nodesync.WantedState{MachineName: "m", Capacity: textMap{}}
		node := syncedNode(t, wanted)
		node.Annotations = textMap{
			templateRecordAnnotation: `{"metadata":{"creationTimestamp":null},"spec":{}}`,
			capacityRecordAnnotation: "{}",
		}
		assert.True(t, nodesync.Decide(wanted, node).IsEmpty())
	})
	for _, broken := range []string{"{", `[1]`, `{"metadata":"text"}`, `{"metadata":{"labels":{"pool":"old","gone":"1"}},"spec":7}`} {
		t.Run("one that cannot be read counts as nothing applied: "+broken, func(t *testing.T) {
			node, want := syncedNode(t, baseWantedState()), syncedNode(t, baseWantedState()).Annotations
			node.Labels["gone"], node.Capacity["gone"] = "1", "1"
			node.Annotations[templateRecordAnnotation], node.Annotations[capacityRecordAnnotation] = broken, broken
			c := nodesync.Decide(baseWantedState(), node)
			assert.Equal(
				t,
				textMap{
					templateRecordAnnotation: want[templateRecordAnnotation],
					capacityRecordAnnotation: want[capacityRecordAnnotation],
				},
				c.Annotations.Set,
			)
			assert.True(t, c.Labels.IsEmpty())
			assert.True(t, c.Capacity.IsEmpty())

			c = nodesync.Decide(nodesync.WantedState{MachineName: "m", Capacity: textMap{}}, node)
			assert.Equal(
				t,
				nodesync.MapEdit{Remove: []string{templateRecordAnnotation, capacityRecordAnnotation}},
				c.Annotations,
				"nothing wanted: no record",
			)
		})
	}
}

func TestUnreadableCapacityRecordRemovesNothing(t *testing.T) {
	node := syncedNode(t, baseWantedState())
	node.Annotations[capacityRecordAnnotation], node.Capacity["gone"] = `{"gone":"1","other":7}`, "1"
	c := nodesync.Decide(baseWantedState(), node)
	assert.True(t, c.Capacity.IsEmpty())
	assert.Equal(t, nodesync.MapEdit{Set: textMap{capacityRecordAnnotation: `{"example.com/dongle":"2"}`}}, c.Annotations)
}
