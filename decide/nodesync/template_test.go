package nodesync_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/nodesync"
)

func TestANodeFollowsItsTemplate(t *testing.T) {
	for _, row := range []struct {
		name   string
		wanted func(*nodesync.WantedState)
		node   func(*nodesync.Node)
		labels nodesync.MapEdit
		others nodesync.MapEdit // changes of annotations, except the record
		taints nodesync.TaintEdit
		why    string
	}{
		{name: "unchanged"},
		{
			name:   "label changed in the template",
			wanted: func(w *nodesync.WantedState) { w.Labels["pool"] = "db" },
			labels: nodesync.MapEdit{Set: textMap{"pool": "db"}},
			why:    "node has another value of label pool, has no current record of the template",
		},
		{
			name:   "label added",
			wanted: func(w *nodesync.WantedState) { w.Labels["zone"] = "a" },
			labels: nodesync.MapEdit{Set: textMap{"zone": "a"}},
			why:    "node lacks label zone, has no current record of the template",
		},
		{
			name:   "label deleted",
			wanted: func(w *nodesync.WantedState) { w.Labels = nil },
			labels: nodesync.MapEdit{Remove: []string{"pool"}},
			why:    "node has label pool that left the template, has no current record of the template",
		},
		{
			name:   "label edited by hand is reverted",
			node:   func(n *nodesync.Node) { n.Labels["pool"] = "mine" },
			labels: nodesync.MapEdit{Set: textMap{"pool": "web"}},
			why:    "node has another value of label pool",
		},
		{
			name:   "label removed by hand is put back",
			node:   func(n *nodesync.Node) { delete(n.Labels, "pool") },
			labels: nodesync.MapEdit{Set: textMap{"pool": "web"}},
			why:    "node lacks label pool",
		},
		{name: "foreign label kept", node: func(n *nodesync.Node) { n.Labels["kubernetes.io/os"] = "linux" }},
		{
			name:   "annotation changed in the template",
			wanted: func(w *nodesync.WantedState) { w.Annotations["team"] = "ops" },
			others: nodesync.MapEdit{Set: textMap{"team": "ops"}},
			why:    "node has another value of annotation team, has no current record of the template",
		},
		{
			name:   "annotation added",
			wanted: func(w *nodesync.WantedState) { w.Annotations["cost"] = "7" },
			others: nodesync.MapEdit{Set: textMap{"cost": "7"}},
			why:    "node lacks annotation cost, has no current record of the template",
		},
		{
			name:   "annotation deleted",
			wanted: func(w *nodesync.WantedState) { w.Annotations = nil },
			others: nodesync.MapEdit{Remove: []string{"team"}},
			why:    "node has annotation team that left the template, has no current record of the template",
		},
		{
			name:   "annotation edited by hand is reverted",
			node:   func(n *nodesync.Node) { n.Annotations["team"] = "mine" },
			others: nodesync.MapEdit{Set: textMap{"team": "shop"}},
			why:    "node has another value of annotation team",
		},
		{name: "foreign annotation kept", node: func(n *nodesync.Node) { n.Annotations["volumes.kubernetes.io/x"] = "true" }},
		{
			name:   "taint changed in the template",
			wanted: func(w *nodesync.WantedState) { w.Taints = taintList{newTaint("only", "db", "NoSchedule")} },
			taints: nodesync.TaintEdit{Set: taintList{newTaint("only", "db", "NoSchedule")}},
			why:    "node has another value of taint only:NoSchedule, has no current record of the template",
		},
		{
			name: "same taint key, another effect: another taint, added",
			wanted: func(w *nodesync.WantedState) {
				w.Taints = append(w.Taints, newTaint("only", "web", "NoExecute"))
			},
			taints: nodesync.TaintEdit{Set: taintList{newTaint("only", "web", "NoExecute")}},
			why:    "node lacks taint only:NoExecute, has no current record of the template",
		},
		{
			name:   "the effect of a taint changes: one comes, one goes",
			wanted: func(w *nodesync.WantedState) { w.Taints = taintList{newTaint("only", "web", "NoExecute")} },
			taints: nodesync.TaintEdit{Set: taintList{newTaint("only", "web", "NoExecute")}, Remove: taintList{newTaint("only", "", "NoSchedule")}},
			why:    "node lacks taint only:NoExecute, has taint only:NoSchedule that left the template, has no current record of the template",
		},
		{
			name:   "taint deleted; the foreign one with its key stays",
			wanted: func(w *nodesync.WantedState) { w.Taints = nil },
			node:   func(n *nodesync.Node) { n.Taints = append(n.Taints, newTaint("only", "web", "PreferNoSchedule")) },
			taints: nodesync.TaintEdit{Remove: taintList{newTaint("only", "", "NoSchedule")}},
			why:    "node has taint only:NoSchedule that left the template, has no current record of the template",
		},
		{
			name:   "taint edited by hand is reverted",
			node:   func(n *nodesync.Node) { n.Taints = taintList{newTaint("only", "mine", "NoSchedule")} },
			taints: nodesync.TaintEdit{Set: taintList{newTaint("only", "web", "NoSchedule")}},
			why:    "node has another value of taint only:NoSchedule",
		},
		{
			name:   "taint removed by hand is put back",
			node:   func(n *nodesync.Node) { n.Taints = nil },
			taints: nodesync.TaintEdit{Set: taintList{newTaint("only", "web", "NoSchedule")}},
			why:    "node lacks taint only:NoSchedule",
		},
		{
			name: "foreign taint kept",
			node: func(n *nodesync.Node) {
				n.Taints = append(n.Taints, newTaint("node.kubernetes.io/unreachable", "", "NoExecute"))
			},
		},
		{
			name: "of a taint that is wanted twice the later one counts",
			wanted: func(w *nodesync.WantedState) {
				w.Taints = taintList{newTaint("only", "db", "NoSchedule"), newTaint("only", "web", "NoSchedule")}
			},
		},
		{
			name:   "what left the template and is not on the node any more: only the record changes",
			wanted: func(w *nodesync.WantedState) { w.Labels, w.Taints = nil, nil },
			node:   func(n *nodesync.Node) { n.Labels, n.Taints = textMap{machineNameLabel: "m"}, nil },
			why:    "node has no current record of the template",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			wanted, node := baseWantedState(), syncedNode(t, baseWantedState())
			if row.wanted != nil {
				row.wanted(&wanted)
			}
			if row.node != nil {
				row.node(&node)
			}
			c := nodesync.Decide(wanted, node)
			assert.Equal(t, row.labels, c.Labels)
			assert.Equal(t, row.taints, c.Taints)
			others := c.Annotations
			_, recorded := others.Set[templateRecordAnnotation]
			assert.Equal(t, row.wanted != nil && row.why != "", recorded, "a new record with a new template, and only then")
			others.Set = maps.Clone(others.Set)
			if delete(others.Set, templateRecordAnnotation); len(others.Set) == 0 {
				others.Set = nil
			}
			assert.Equal(t, row.others, others)
			assert.Equal(t, row.why, c.Sentence())
			assert.Equal(t, row.why == "", c.IsEmpty())
			assert.True(t, nodesync.Decide(wanted, applyChanges(node, c)).IsEmpty(), "one time is enough")
		})
	}
}
