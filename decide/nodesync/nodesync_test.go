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
	nameLabel            = "node.gardener.cloud/machine-name"
	templateRecord       = "node.machine.sapcloud.io/last-applied-anno-labels-taints"
	capacityRecord       = "node.machine.sapcloud.io/last-applied-virtual-capacity"
	notManagedAnnotation = "node.machine.sapcloud.io/not-managed-by-mcm"
	criticalTaint        = "node.gardener.cloud/critical-components-not-ready"
)

type (
	texts  = map[string]string
	taints = []nodesync.Taint
)

func newTaint(key, value, effect string) nodesync.Taint {
	return nodesync.Taint{Key: key, Value: value, Effect: effect}
}

// applyChanges returns the node after the changes, as the activity writes them.
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

// syncedNode returns a node without other keys after all wanted changes were applied.
func syncedNode(t *testing.T, wanted nodesync.Wanted) nodesync.Node {
	t.Helper()
	n := applyChanges(nodesync.Node{}, nodesync.Decide(wanted, nodesync.Node{}))
	require.Equal(t, nodesync.Changes{}, nodesync.Decide(wanted, n), "a node that took the changes needs none")
	return n
}

// baseWanted returns a template. Each row of a table changes the template or the node that has it.
func baseWanted() nodesync.Wanted {
	return nodesync.Wanted{
		MachineName: "m",
		Labels:      texts{"pool": "web"},
		Annotations: texts{"team": "shop"},
		Taints:      taints{newTaint("only", "web", "NoSchedule")},
		Capacity:    texts{"example.com/dongle": "2"},
	}
}

func TestVirtualCapacityFollowsTheClass(t *testing.T) {
	for _, row := range []struct {
		name   string
		wanted texts
		has    texts
		edit   nodesync.Edit
		record string // the record in Set; "-": the record is removed
		why    string
	}{
		{name: "unchanged", wanted: texts{"example.com/dongle": "2"}, has: texts{"example.com/dongle": "2", "cpu": "4"}},
		{
			name: "changed in the class", wanted: texts{"example.com/dongle": "3"}, has: texts{"example.com/dongle": "2"},
			edit: nodesync.Edit{Set: texts{"example.com/dongle": "3"}}, record: `{"example.com/dongle":"3"}`,
			why: "node has another value of capacity example.com/dongle, has no current record of the virtual capacity",
		},
		{
			name: "changed on the node", wanted: texts{"example.com/dongle": "2"}, has: texts{"example.com/dongle": "0"},
			edit: nodesync.Edit{Set: texts{"example.com/dongle": "2"}},
			why:  "node has another value of capacity example.com/dongle",
		},
		{
			name: "added", wanted: texts{"example.com/dongle": "2", "example.com/key": "1"}, has: texts{"example.com/dongle": "2"},
			edit: nodesync.Edit{Set: texts{"example.com/key": "1"}}, record: `{"example.com/dongle":"2","example.com/key":"1"}`,
			why: "node lacks capacity example.com/key, has no current record of the virtual capacity",
		},
		{
			name: "deleted; that of others stays", wanted: texts{}, has: texts{"example.com/dongle": "2", "cpu": "4"},
			edit: nodesync.Edit{Remove: []string{"example.com/dongle"}}, record: "-",
			why: "node has capacity example.com/dongle that left the class, has no current record of the virtual capacity",
		},
		{name: "not known: left as it is", wanted: nil, has: texts{"example.com/dongle": "1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			wanted, node := baseWanted(), syncedNode(t, baseWanted())
			wanted.Capacity, node.Capacity = row.wanted, row.has
			c := nodesync.Decide(wanted, node)
			assert.Equal(t, row.edit, c.Capacity)
			switch row.record {
			case "":
				assert.True(t, c.Annotations.Empty())
			case "-":
				assert.Equal(t, nodesync.Edit{Remove: []string{capacityRecord}}, c.Annotations)
			default:
				assert.Equal(t, nodesync.Edit{Set: texts{capacityRecord: row.record}}, c.Annotations)
			}
			assert.Equal(t, row.why, c.Why())
			assert.True(t, nodesync.Decide(wanted, applyChanges(node, c)).Empty(), "one time is enough")
		})
	}
}

func TestANewNode(t *testing.T) {
	wanted := baseWanted()
	wanted.Taints = append(wanted.Taints, newTaint("a", "", "NoExecute"))
	c := nodesync.Decide(wanted, nodesync.Node{Labels: texts{"pool": "web"}})
	assert.Equal(t, nodesync.Edit{Set: texts{nameLabel: "m"}}, c.Labels)
	assert.Equal(t, taints{newTaint("a", "", "NoExecute"), newTaint("only", "web", "NoSchedule")}, c.Taints.Set, "sorted")
	assert.Equal(t, texts{
		"team": "shop",
		templateRecord: `{"metadata":{"annotations":{"team":"shop"},"labels":{"pool":"web"}},` +
			`"spec":{"taints":[{"key":"a","effect":"NoExecute"},{"key":"only","value":"web","effect":"NoSchedule"}]}}`,
		capacityRecord: `{"example.com/dongle":"2"}`,
	}, c.Annotations.Set)
	assert.Equal(t, texts{"example.com/dongle": "2"}, c.Capacity.Set)
	assert.True(t, c.Finalizer)
	assert.Equal(t, "node lacks label node.gardener.cloud/machine-name, lacks annotation team, lacks taint a:NoExecute, "+
		"lacks taint only:NoSchedule, has no current record of the template, lacks capacity example.com/dongle, "+
		"has no current record of the virtual capacity, lacks our finalizer", c.Why())
}

func TestANodeWithoutATemplateCarriesNoRecords(t *testing.T) {
	wanted := nodesync.Wanted{MachineName: "m", Capacity: texts{}}
	assert.Equal(
		t,
		nodesync.Node{Labels: texts{nameLabel: "m"}, Annotations: texts{}, Capacity: texts{}, Finalizer: true},
		syncedNode(t, wanted),
	)
}

func TestMachineName(t *testing.T) {
	for _, row := range []struct {
		name string
		has  texts
		set  texts
	}{
		{"missing", nil, texts{nameLabel: "m"}},
		{"that of a former machine", texts{nameLabel: "old"}, texts{nameLabel: "m"}},
		{"right", texts{nameLabel: "m"}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := nodesync.Decide(nodesync.Wanted{MachineName: "m"}, nodesync.Node{Labels: row.has})
			assert.Equal(t, row.set, c.Labels.Set)
		})
	}
}

func TestFinalizer(t *testing.T) {
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
			node := nodesync.Node{Labels: texts{nameLabel: "m"}, Finalizer: row.on, Deleting: row.deleting}
			c := nodesync.Decide(nodesync.Wanted{MachineName: "m"}, node)
			assert.Equal(t, row.putOn, c.Finalizer)
			assert.Equal(t, !row.putOn, c.Empty())
		})
	}
}

func TestTheMarkOfAnUnmanagedNodeIsRemoved(t *testing.T) {
	node := syncedNode(t, baseWanted())
	node.Annotations[notManagedAnnotation] = "1"
	c := nodesync.Decide(baseWanted(), node)
	assert.Equal(t, nodesync.Edit{Remove: []string{notManagedAnnotation}}, c.Annotations)
	assert.Equal(t, "node is marked as a node without a machine", c.Why())
}

func TestTheCriticalTaintIsAddedOnce(t *testing.T) {
	wanted := baseWanted()
	wanted.Taints = taints{newTaint(criticalTaint, "", "NoSchedule"), newTaint("only", "web", "NoSchedule")}
	node := syncedNode(t, wanted)
	assert.Contains(t, node.Taints, newTaint(criticalTaint, "", "NoSchedule"), "a new node gets it")

	node.Taints = nil
	c := nodesync.Decide(wanted, node)
	assert.Equal(
		t,
		nodesync.TaintEdit{Set: taints{newTaint("only", "web", "NoSchedule")}},
		c.Taints,
		"others took both off; one comes back",
	)

	node = applyChanges(node, c)
	wanted.Labels = texts{"pool": "db"}
	node = applyChanges(node, nodesync.Decide(wanted, node))
	assert.True(t, nodesync.Decide(wanted, node).Empty(), "nor does it come back with the next template")
	assert.NotContains(t, node.Taints, newTaint(criticalTaint, "", "NoSchedule"))

	t.Run("its value is that of the template while it is on", func(t *testing.T) {
		edited := syncedNode(t, wanted)
		edited.Taints = taints{newTaint(criticalTaint, "mine", "NoSchedule"), newTaint("only", "web", "NoSchedule")}
		assert.Equal(t, taints{newTaint(criticalTaint, "", "NoSchedule")}, nodesync.Decide(wanted, edited).Taints.Set)
	})
	t.Run("it goes with the template", func(t *testing.T) {
		assert.Equal(
			t,
			taints{newTaint(criticalTaint, "", "NoSchedule")},
			nodesync.Decide(baseWanted(), syncedNode(t, wanted)).Taints.Remove,
		)
	})
	t.Run("a node that registered with it: noted, so that it does not come back", func(t *testing.T) {
		fresh := nodesync.Node{Taints: taints{newTaint(criticalTaint, "", "NoSchedule")}}
		fresh = applyChanges(fresh, nodesync.Decide(wanted, fresh))
		fresh.Taints = slices.DeleteFunc(fresh.Taints, func(t nodesync.Taint) bool { return t.Key == criticalTaint })
		assert.True(t, nodesync.Decide(wanted, fresh).Empty())
	})
}

func TestOwnKeysAreRemovedOnlyIfTheTemplateSetThem(t *testing.T) {
	noSchedule, preserved := "deployment.machine.sapcloud.io/prefer-no-schedule", "node.machine.sapcloud.io/preserved"
	disabled := "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	byMCM := "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
	all := taints{
		newTaint(noSchedule, "True", "PreferNoSchedule"),
		newTaint(preserved, "", "NoSchedule"),
		newTaint(criticalTaint, "", "NoSchedule"),
	}

	node := syncedNode(t, baseWanted())
	node.Taints = append(node.Taints, all...)
	node.Annotations[disabled], node.Annotations[byMCM] = "true", "true"
	assert.True(t, nodesync.Decide(baseWanted(), node).Empty())

	wanted := baseWanted()
	wanted.Taints, wanted.Annotations = append(wanted.Taints, all...), texts{"team": "shop", disabled: "true"}
	c := nodesync.Decide(baseWanted(), syncedNode(t, wanted))
	assert.Len(t, c.Taints.Remove, 3)
	assert.Equal(t, []string{disabled}, c.Annotations.Remove)
}

func TestATemplateCannotChangeKeysThatOnlyMillwrightWrites(t *testing.T) {
	wanted := baseWanted()
	wanted.Labels[nameLabel] = "another"
	for _, key := range []string{templateRecord, capacityRecord, notManagedAnnotation} {
		wanted.Annotations[key] = "mine"
	}
	node := syncedNode(t, wanted)
	assert.Equal(t, syncedNode(t, baseWanted()), node)

	t.Run("even if a record says that it did", func(t *testing.T) {
		node.Annotations[templateRecord] = `{"metadata":{"labels":{"` + nameLabel + `":"m","pool":"web"},"annotations":{"` +
			templateRecord + `":"x","team":"shop"}},"spec":{"taints":[{"key":"only","value":"web","effect":"NoSchedule"}]}}`
		assert.True(t, nodesync.Decide(baseWanted(), node).Empty())
	})
}

func TestWhyNamesTwentyKeysAtMostAndNoValues(t *testing.T) {
	wanted := nodesync.Wanted{MachineName: "m", Labels: texts{}}
	for i := range 30 {
		wanted.Labels[fmt.Sprintf("key-%02d", i)] = "secret"
	}
	why := nodesync.Decide(wanted, nodesync.Node{}).Why()
	assert.Contains(t, why, "node lacks label key-00, lacks label key-01, ")
	assert.Contains(t, why, "lacks label key-19 and 13 more")
	assert.NotContains(t, why, "key-20")
	assert.NotContains(t, why, "secret")
}

func TestApply(t *testing.T) {
	before := texts{"a": "1", "b": "2"}
	after := nodesync.Edit{Set: texts{"c": "3", "a": "9"}, Remove: []string{"b", "never there"}}.Apply(before)
	assert.Equal(t, texts{"a": "9", "c": "3"}, after)
	assert.Equal(t, texts{"a": "1", "b": "2"}, before, "the map that was given stays as it is")
	assert.Equal(t, texts{}, nodesync.Edit{}.Apply(nil))
}
