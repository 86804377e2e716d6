package nodesync_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/nodesync"
)

const (
	machineNameLabel         = "node.gardener.cloud/machine-name"
	templateRecordAnnotation = "node.machine.sapcloud.io/last-applied-anno-labels-taints"
	capacityRecordAnnotation = "node.machine.sapcloud.io/last-applied-virtual-capacity"
	notManagedAnnotation     = "node.machine.sapcloud.io/not-managed-by-mcm"
	criticalComponentsTaint  = "node.gardener.cloud/critical-components-not-ready"
)

type (
	textMap   = map[string]string
	taintList = []nodesync.Taint
)

func newTaint(key, value, effect string) nodesync.Taint {
	return nodesync.Taint{Key: key, Value: value, Effect: effect}
}

// applyChanges applies changes to a node in the same way as the activity.
func applyChanges(n nodesync.Node, c nodesync.Changes) nodesync.Node {
	n.Labels = c.Labels.Apply(n.Labels)
	n.Annotations = c.Annotations.Apply(n.Annotations)
	n.Capacity = c.Capacity.Apply(n.Capacity)
	named := slices.Concat(c.Taints.Set, c.Taints.Remove)
	n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t nodesync.Taint) bool {
		return slices.ContainsFunc(named, func(o nodesync.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect })
	})
	n.Taints = append(n.Taints, c.Taints.Set...)
	n.Finalizer = n.Finalizer || c.Finalizer
	return n
}

// syncedNode returns a node that has exactly the wanted keys.
func syncedNode(t *testing.T, wanted nodesync.WantedState) nodesync.Node {
	t.Helper()
	n := applyChanges(nodesync.Node{}, nodesync.Decide(wanted, nodesync.Node{}))
	require.Equal(t, nodesync.Changes{}, nodesync.Decide(wanted, n), "a node that took the changes needs none")
	return n
}

// baseWantedState returns a template. Each test row changes the template, or the node to which the template was
// applied.
func baseWantedState() nodesync.WantedState {
	return nodesync.WantedState{
		MachineName: "m",
		Labels:      textMap{"pool": "web"},
		Annotations: textMap{"team": "shop"},
		Taints:      taintList{newTaint("only", "web", "NoSchedule")},
		Capacity:    textMap{"example.com/dongle": "2"},
	}
}

func TestVirtualCapacityFollowsTheClass(t *testing.T) {
	for _, row := range []struct {
		name   string
		wanted textMap
		has    textMap
		edit   nodesync.MapEdit
		record string // the record in Set; "-": the record is removed
		why    string
	}{
		{name: "unchanged", wanted: textMap{"example.com/dongle": "2"}, has: textMap{"example.com/dongle": "2", "cpu": "4"}},
		{
			name: "changed in the class", wanted: textMap{"example.com/dongle": "3"}, has: textMap{"example.com/dongle": "2"},
			edit: nodesync.MapEdit{Set: textMap{"example.com/dongle": "3"}}, record: `{"example.com/dongle":"3"}`,
			why: "node has another value of capacity example.com/dongle, has no current record of the virtual capacity",
		},
		{
			name: "changed on the node", wanted: textMap{"example.com/dongle": "2"}, has: textMap{"example.com/dongle": "0"},
			edit: nodesync.MapEdit{Set: textMap{"example.com/dongle": "2"}},
			why:  "node has another value of capacity example.com/dongle",
		},
		{
			name: "added", wanted: textMap{"example.com/dongle": "2", "example.com/key": "1"}, has: textMap{"example.com/dongle": "2"},
			edit: nodesync.MapEdit{Set: textMap{"example.com/key": "1"}}, record: `{"example.com/dongle":"2","example.com/key":"1"}`,
			why: "node lacks capacity example.com/key, has no current record of the virtual capacity",
		},
		{
			name: "deleted; that of others stays", wanted: textMap{}, has: textMap{"example.com/dongle": "2", "cpu": "4"},
			edit: nodesync.MapEdit{Remove: []string{"example.com/dongle"}}, record: "-",
			why: "node has capacity example.com/dongle that left the class, has no current record of the virtual capacity",
		},
		{name: "not known: left as it is", wanted: nil, has: textMap{"example.com/dongle": "1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			wanted, node := baseWantedState(), syncedNode(t, baseWantedState())
			wanted.Capacity, node.Capacity = row.wanted, row.has
			c := nodesync.Decide(wanted, node)
			assert.Equal(t, row.edit, c.Capacity)
			switch row.record {
			case "":
				assert.True(t, c.Annotations.IsEmpty())
			case "-":
				assert.Equal(t, nodesync.MapEdit{Remove: []string{capacityRecordAnnotation}}, c.Annotations)
			default:
				assert.Equal(t, nodesync.MapEdit{Set: textMap{capacityRecordAnnotation: row.record}}, c.Annotations)
			}
			assert.Equal(t, row.why, c.Sentence())
			assert.True(t, nodesync.Decide(wanted, applyChanges(node, c)).IsEmpty(), "one time is enough")
		})
	}
}

func TestNewNodeGetsAllChanges(t *testing.T) {
	wanted := baseWantedState()
	wanted.Taints = append(wanted.Taints, newTaint("a", "", "NoExecute"))
	c := nodesync.Decide(wanted, nodesync.Node{Labels: textMap{"pool": "web"}})
	assert.Equal(t, nodesync.MapEdit{Set: textMap{machineNameLabel: "m"}}, c.Labels)
	assert.Equal(
		t,
		taintList{newTaint("a", "", "NoExecute"), newTaint("only", "web", "NoSchedule")},
		c.Taints.Set,
		"sorted",
	)
	assert.Equal(t, textMap{
		"team": "shop",
		templateRecordAnnotation: `{"metadata":{"annotations":{"team":"shop"},"labels":{"pool":"web"}},` +
			`"spec":{"taints":[{"key":"a","effect":"NoExecute"},{"key":"only","value":"web","effect":"NoSchedule"}]}}`,
		capacityRecordAnnotation: `{"example.com/dongle":"2"}`,
	}, c.Annotations.Set)
	assert.Equal(t, textMap{"example.com/dongle": "2"}, c.Capacity.Set)
	assert.True(t, c.Finalizer)
	assert.Equal(t, "node lacks label node.gardener.cloud/machine-name, lacks annotation team, lacks taint a:NoExecute, "+
		"lacks taint only:NoSchedule, has no current record of the template, lacks capacity example.com/dongle, "+
		"has no current record of the virtual capacity, lacks our finalizer", c.Sentence())
}

func TestANodeWithoutATemplateCarriesNoRecords(t *testing.T) {
	wanted := nodesync.WantedState{MachineName: "m", Capacity: textMap{}}
	assert.Equal(
		t,
		nodesync.Node{Labels: textMap{machineNameLabel: "m"}, Annotations: textMap{}, Capacity: textMap{}, Finalizer: true},
		syncedNode(t, wanted),
	)
}

func TestMachineNameLabelIsSet(t *testing.T) {
	for _, row := range []struct {
		name string
		has  textMap
		set  textMap
	}{
		{"missing", nil, textMap{machineNameLabel: "m"}},
		{"that of a former machine", textMap{machineNameLabel: "old"}, textMap{machineNameLabel: "m"}},
		{"right", textMap{machineNameLabel: "m"}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := nodesync.Decide(nodesync.WantedState{MachineName: "m"}, nodesync.Node{Labels: row.has})
			assert.Equal(t, row.set, c.Labels.Set)
		})
	}
}

func TestFinalizerIsAddedUnlessNodeIsDeleted(t *testing.T) {
	for _, row := range []struct {
		name                string
		on, deleting, putOn bool
	}{
		{"missing", false, false, true},
		{"on", true, false, false},
		{"too late", false, true, false},
		{"on, while the node is being deleted", true, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			node := nodesync.Node{Labels: textMap{machineNameLabel: "m"}, Finalizer: row.on, Deleting: row.deleting}
			c := nodesync.Decide(nodesync.WantedState{MachineName: "m"}, node)
			assert.Equal(t, row.putOn, c.Finalizer)
			assert.Equal(t, !row.putOn, c.IsEmpty())
		})
	}
}

func TestNotManagedAnnotationIsRemoved(t *testing.T) {
	node := syncedNode(t, baseWantedState())
	node.Annotations[notManagedAnnotation] = "1"
	c := nodesync.Decide(baseWantedState(), node)
	assert.Equal(t, nodesync.MapEdit{Remove: []string{notManagedAnnotation}}, c.Annotations)
	assert.Equal(t, "node is marked as a node without a machine", c.Sentence())
}

func TestTheCriticalComponentsTaintIsAddedOnce(t *testing.T) {
	wanted := baseWantedState()
	wanted.Taints = taintList{newTaint(criticalComponentsTaint, "", "NoSchedule"), newTaint("only", "web", "NoSchedule")}
	node := syncedNode(t, wanted)
	assert.Contains(t, node.Taints, newTaint(criticalComponentsTaint, "", "NoSchedule"), "a new node gets it")

	node.Taints = nil
	c := nodesync.Decide(wanted, node)
	assert.Equal(
		t,
		nodesync.TaintEdit{Set: taintList{newTaint("only", "web", "NoSchedule")}},
		c.Taints,
		"others took both off; one comes back",
	)

	node = applyChanges(node, c)
	wanted.Labels = textMap{"pool": "db"}
	node = applyChanges(node, nodesync.Decide(wanted, node))
	assert.True(t, nodesync.Decide(wanted, node).IsEmpty(), "nor does it come back with the next template")
	assert.NotContains(t, node.Taints, newTaint(criticalComponentsTaint, "", "NoSchedule"))

	t.Run("its value is that of the template while it is on", func(t *testing.T) {
		edited := syncedNode(t, wanted)
		edited.Taints = taintList{
			newTaint(criticalComponentsTaint, "mine", "NoSchedule"),
			newTaint("only", "web", "NoSchedule"),
		}
		assert.Equal(
			t,
			taintList{newTaint(criticalComponentsTaint, "", "NoSchedule")},
			nodesync.Decide(wanted, edited).Taints.Set,
		)
	})
	t.Run("it goes with the template", func(t *testing.T) {
		assert.Equal(
			t,
			taintList{newTaint(criticalComponentsTaint, "", "NoSchedule")},
			nodesync.Decide(baseWantedState(), syncedNode(t, wanted)).Taints.Remove,
		)
	})
	t.Run("a node that registered with it: noted, so that it does not come back", func(t *testing.T) {
		fresh := nodesync.Node{Taints: taintList{newTaint(criticalComponentsTaint, "", "NoSchedule")}}
		fresh = applyChanges(fresh, nodesync.Decide(wanted, fresh))
		fresh.Taints = slices.DeleteFunc(
			fresh.Taints,
			func(t nodesync.Taint) bool { return t.Key == criticalComponentsTaint },
		)
		assert.True(t, nodesync.Decide(wanted, fresh).IsEmpty())
	})
}

func TestOwnKeysAreRemovedOnlyIfTheTemplateSetThem(t *testing.T) {
	noSchedule, preserved := "deployment.machine.sapcloud.io/prefer-no-schedule", "node.machine.sapcloud.io/preserved"
	disabled := "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	byMCM := "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
	all := taintList{
		newTaint(noSchedule, "True", "PreferNoSchedule"),
		newTaint(preserved, "", "NoSchedule"),
		newTaint(criticalComponentsTaint, "", "NoSchedule"),
	}

	node := syncedNode(t, baseWantedState())
	node.Taints = append(node.Taints, all...)
	node.Annotations[disabled], node.Annotations[byMCM] = "true", "true"
	assert.True(t, nodesync.Decide(baseWantedState(), node).IsEmpty())

	wanted := baseWantedState()
	wanted.Taints, wanted.Annotations = append(wanted.Taints, all...), textMap{"team": "shop", disabled: "true"}
	c := nodesync.Decide(baseWantedState(), syncedNode(t, wanted))
	assert.Len(t, c.Taints.Remove, 3)
	assert.Equal(t, []string{disabled}, c.Annotations.Remove)
}

func TestATemplateCannotChangeKeysThatOnlyMillwrightWrites(t *testing.T) {
	wanted := baseWantedState()
	wanted.Labels[machineNameLabel] = "another"
	for _, key := range []string{templateRecordAnnotation, capacityRecordAnnotation, notManagedAnnotation} {
		wanted.Annotations[key] = "mine"
	}
	node := syncedNode(t, wanted)
	assert.Equal(t, syncedNode(t, baseWantedState()), node)

	t.Run("even if a record says that it did", func(t *testing.T) {
		node.Annotations[templateRecordAnnotation] = `{"metadata":{"labels":{"` + machineNameLabel + `":"m","pool":"web"},"annotations":{"` +
			templateRecordAnnotation + `":"x","team":"shop"}},"spec":{"taints":[{"key":"only","value":"web","effect":"NoSchedule"}]}}`
		assert.True(t, nodesync.Decide(baseWantedState(), node).IsEmpty())
	})
}

func TestSentenceNamesAtMostTwentyKeysAndNoValues(t *testing.T) {
	wanted := nodesync.WantedState{MachineName: "m", Labels: textMap{}}
	for i := range 30 {
		wanted.Labels[fmt.Sprintf("key-%02d", i)] = "secret"
	}
	why := nodesync.Decide(wanted, nodesync.Node{}).Sentence()
	assert.Contains(t, why, "node lacks label key-00, lacks label key-01, ")
	assert.Contains(t, why, "lacks label key-19 and 13 more")
	assert.NotContains(t, why, "key-20")
	assert.NotContains(t, why, "secret")
}

func TestMapEditApply(t *testing.T) {
	before := textMap{"a": "1", "b": "2"}
	after := nodesync.MapEdit{Set: textMap{"c": "3", "a": "9"}, Remove: []string{"b", "never there"}}.Apply(before)
	assert.Equal(t, textMap{"a": "9", "c": "3"}, after)
	assert.Equal(t, textMap{"a": "1", "b": "2"}, before, "the map that was given stays as it is")
	assert.Equal(t, textMap{}, nodesync.MapEdit{}.Apply(nil))
}
