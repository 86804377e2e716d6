package nodesync_test

import (
	"maps"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/nodesync"
)

// randomSource generates random templates and nodes from few keys, so that equal keys are frequent.
type randomSource struct{ *rand.Rand }

func (d randomSource) randomTextMap(keys ...string) textMap {
	m := textMap{}
	for _, key := range keys {
		if d.Intn(2) == 0 {
			m[key] = string(rune('0' + d.Intn(3)))
		}
	}
	return m
}

func (d randomSource) randomTaintList() taintList {
	var list taintList
	for _, key := range []string{criticalComponentsTaint, "a", "b"} {
		for _, effect := range []string{"NoSchedule", "NoExecute"} {
			if d.Intn(2) == 0 {
				list = append(list, newTaint(key, string(rune('0'+d.Intn(3))), effect))
			}
		}
	}
	d.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func (d randomSource) randomWantedState() nodesync.WantedState {
	w := nodesync.WantedState{
		MachineName: "m",
		Labels:      d.randomTextMap("a", "b", "c", machineNameLabel),
		Annotations: d.randomTextMap("a", "b", "c", notManagedAnnotation, templateRecordAnnotation),
		Taints:      d.randomTaintList(),
	}
	if d.Intn(4) > 0 {
		w.Capacity = d.randomTextMap("x", "y", "z")
	}
	return w
}

// randomNode returns a random node. The former template may have been applied to the node, and other parties may have
// changed the node since.
func (d randomSource) randomNode(former nodesync.WantedState) nodesync.Node {
	n := nodesync.Node{
		Labels:      textMap{},
		Annotations: textMap{},
		Capacity:    textMap{},
		Deleting:    d.Intn(4) == 0,
		Finalizer:   d.Intn(2) == 0,
	}
	if d.Intn(3) > 0 {
		n = applyChanges(n, nodesync.Decide(former, n))
	}
	maps.Copy(n.Labels, d.randomTextMap("a", "c", "foreign"))
	maps.Copy(n.Annotations, d.randomTextMap("a", "c", "foreign", notManagedAnnotation))
	maps.Copy(n.Capacity, d.randomTextMap("x", "z", "cpu"))
	for _, key := range []string{"a", "b", templateRecordAnnotation, capacityRecordAnnotation} {
		if d.Intn(6) == 0 {
			delete(n.Annotations, key)
		}
	}
	if d.Intn(2) == 0 {
		n.Taints = d.randomTaintList()
	}
	return n
}

func TestASyncedNodeNeedsNoChange(t *testing.T) {
	d := randomSource{rand.New(rand.NewSource(1))}
	empty := 0
	for range 5_000 {
		former, wanted := d.randomWantedState(), d.randomWantedState()
		if d.Intn(4) == 0 {
			wanted = former
		}
		node := d.randomNode(former)
		c := nodesync.Decide(wanted, node)
		if c.IsEmpty() {
			empty++
		}
		require.Equal(t, c.IsEmpty(), c.Sentence() == "", "%+v", c)
		require.Equal(t, c, nodesync.Decide(wanted, node), "the same facts, the same answer")

		after := applyChanges(node, c)
		require.Equal(t, nodesync.Changes{}, nodesync.Decide(wanted, after), "wanted %+v, node %+v", wanted, node)
		for key, value := range wanted.Labels {
			if key != machineNameLabel {
				require.Equal(t, value, after.Labels[key])
			}
		}
		require.Equal(t, node.Labels["foreign"], after.Labels["foreign"])
		require.Equal(t, node.Annotations["foreign"], after.Annotations["foreign"])
		require.Equal(t, node.Capacity["cpu"], after.Capacity["cpu"])
		for _, foreign := range node.Taints {
			ours := slices.ContainsFunc(slices.Concat(former.Taints, wanted.Taints), func(o nodesync.Taint) bool {
				return o.Key == foreign.Key && o.Effect == foreign.Effect
			})
			if !ours {
				require.Contains(t, after.Taints, foreign)
			}
		}
	}
	assert.NotZero(t, empty, "the dice must make nodes that need nothing, too")
	assert.Less(t, empty, 2_500)
}
