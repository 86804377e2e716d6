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
	nameLabel      = "node.gardener.cloud/machine-name"
	templateRecord = "node.machine.sapcloud.io/last-applied-anno-labels-taints"
	capacityRecord = "node.machine.sapcloud.io/last-applied-virtual-capacity"
	notManaged     = "node.machine.sapcloud.io/not-managed-by-mcm"
	critical       = "node.gardener.cloud/critical-components-not-ready"
)

type (
	texts  = map[string]string
	taints = []nodesync.Taint
)

func taint(key, value, effect string) nodesync.Taint {
	return nodesync.Taint{Key: key, Value: value, Effect: effect}
}

// applied makes the changes on a node, as the activity does.
func applied(n nodesync.Node, c nodesync.Changes) nodesync.Node {
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

// synced returns a bare node that took everything that is wanted.
func synced(t *testing.T, wanted nodesync.Wanted) nodesync.Node {
	t.Helper()
	n := applied(nodesync.Node{}, nodesync.Decide(wanted, nodesync.Node{}))
	require.Equal(t, nodesync.Changes{}, nodesync.Decide(wanted, n), "a node that took the changes needs none")
	return n
}

// base is a template and the node that it was applied to; rows change one of them.
func base() nodesync.Wanted {
	return nodesync.Wanted{
		MachineName: "m",
		Labels:      texts{"pool": "web"},
		Annotations: texts{"team": "shop"},
		Taints:      taints{taint("only", "web", "NoSchedule")},
		Capacity:    texts{"example.com/dongle": "2"},
	}
}

func TestVirtualCapacityFollowsTheClass(t *testing.T) {
	for _, row := range []struct {
		name   string
		wanted texts
		has    texts
		edit   nodesync.Edit
		record string // in Set; - for removed
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
			wanted, node := base(), synced(t, base())
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
			assert.True(t, nodesync.Decide(wanted, applied(node, c)).Empty(), "one time is enough")
		})
	}
}

func TestANewNode(t *testing.T) {
	wanted := base()
	wanted.Taints = append(wanted.Taints, taint("a", "", "NoExecute"))
	c := nodesync.Decide(wanted, nodesync.Node{Labels: texts{"pool": "web"}})
	assert.Equal(t, nodesync.Edit{Set: texts{nameLabel: "m"}}, c.Labels)
	assert.Equal(t, taints{taint("a", "", "NoExecute"), taint("only", "web", "NoSchedule")}, c.Taints.Set, "sorted")
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
		synced(t, wanted),
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

func TestANodeThatHasAMachineIsNotMarkedAsOneWithout(t *testing.T) {
	node := synced(t, base())
	node.Annotations[notManaged] = "1"
	c := nodesync.Decide(base(), node)
	assert.Equal(t, nodesync.Edit{Remove: []string{notManaged}}, c.Annotations)
	assert.Equal(t, "node is marked as a node without a machine", c.Why())
}

func TestTheCriticalTaintIsPutOnOnce(t *testing.T) {
	wanted := base()
	wanted.Taints = taints{taint(critical, "", "NoSchedule"), taint("only", "web", "NoSchedule")}
	node := synced(t, wanted)
	assert.Contains(t, node.Taints, taint(critical, "", "NoSchedule"), "a new node gets it")

	node.Taints = nil
	c := nodesync.Decide(wanted, node)
	assert.Equal(
		t,
		nodesync.TaintEdit{Set: taints{taint("only", "web", "NoSchedule")}},
		c.Taints,
		"others took both off; one comes back",
	)

	node = applied(node, c)
	wanted.Labels = texts{"pool": "db"}
	node = applied(node, nodesync.Decide(wanted, node))
	assert.True(t, nodesync.Decide(wanted, node).Empty(), "nor does it come back with the next template")
	assert.NotContains(t, node.Taints, taint(critical, "", "NoSchedule"))

	t.Run("its value is that of the template while it is on", func(t *testing.T) {
		edited := synced(t, wanted)
		edited.Taints = taints{taint(critical, "mine", "NoSchedule"), taint("only", "web", "NoSchedule")}
		assert.Equal(t, taints{taint(critical, "", "NoSchedule")}, nodesync.Decide(wanted, edited).Taints.Set)
	})
	t.Run("it goes with the template", func(t *testing.T) {
		assert.Equal(t, taints{taint(critical, "", "NoSchedule")}, nodesync.Decide(base(), synced(t, wanted)).Taints.Remove)
	})
	t.Run("a node that registered with it: noted, so that it does not come back", func(t *testing.T) {
		fresh := nodesync.Node{Taints: taints{taint(critical, "", "NoSchedule")}}
		fresh = applied(fresh, nodesync.Decide(wanted, fresh))
		fresh.Taints = slices.DeleteFunc(fresh.Taints, func(t nodesync.Taint) bool { return t.Key == critical })
		assert.True(t, nodesync.Decide(wanted, fresh).Empty())
	})
}

func TestKeysOfOursAreRemovedOnlyIfTheTemplateBroughtThem(t *testing.T) {
	noSchedule, preserved := "deployment.machine.sapcloud.io/prefer-no-schedule", "node.machine.sapcloud.io/preserved"
	disabled := "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	byMCM := "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
	all := taints{
		taint(noSchedule, "True", "PreferNoSchedule"),
		taint(preserved, "", "NoSchedule"),
		taint(critical, "", "NoSchedule"),
	}

	node := synced(t, base())
	node.Taints = append(node.Taints, all...)
	node.Annotations[disabled], node.Annotations[byMCM] = "true", "true"
	assert.True(t, nodesync.Decide(base(), node).Empty())

	wanted := base()
	wanted.Taints, wanted.Annotations = append(wanted.Taints, all...), texts{"team": "shop", disabled: "true"}
	c := nodesync.Decide(base(), synced(t, wanted))
	assert.Len(t, c.Taints.Remove, 3)
	assert.Equal(t, []string{disabled}, c.Annotations.Remove)
}

func TestATemplateCannotTouchWhatOnlyWeWrite(t *testing.T) {
	wanted := base()
	wanted.Labels[nameLabel] = "another"
	for _, key := range []string{templateRecord, capacityRecord, notManaged} {
		wanted.Annotations[key] = "mine"
	}
	node := synced(t, wanted)
	assert.Equal(t, synced(t, base()), node)

	t.Run("even if a record says that it did", func(t *testing.T) {
		node.Annotations[templateRecord] = `{"metadata":{"labels":{"` + nameLabel + `":"m","pool":"web"},"annotations":{"` +
			templateRecord + `":"x","team":"shop"}},"spec":{"taints":[{"key":"only","value":"web","effect":"NoSchedule"}]}}`
		assert.True(t, nodesync.Decide(base(), node).Empty())
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
