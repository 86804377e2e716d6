package ownership_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/ownership"
)

const (
	id    = "aws:///eu-1a/i-1" // of the Machine that asks
	other = "aws:///eu-1a/i-2"
)

// me is the Machine that asks: it has an instance, and the provider told the name of its node.
var me = ownership.Machine{Namespace: "prod", Name: "m", UID: "uid-m", ProviderID: id, Told: "n"}

func asking(change func(*ownership.Machine)) ownership.Machine {
	m := me
	change(&m)
	return m
}

// untold has a label node alone: the provider has not told the name.
func untold() ownership.Machine { return asking(func(m *ownership.Machine) { m.Told = "" }) }

// bare names no instance.
func bare() ownership.Machine {
	return asking(func(m *ownership.Machine) { m.ProviderID, m.Told = "", "" })
}

// one is another Machine that exists.
func one(providerID, told string) []ownership.Machine {
	return []ownership.Machine{{Namespace: "copy", Name: "m", UID: "uid-c", ProviderID: providerID, Told: told}}
}

// lost is one whose instance the provider does not have any more.
func lost(providerID, told string) []ownership.Machine {
	all := one(providerID, told)
	all[0].InstanceGone = true
	return all
}

type nodeRow struct {
	situation string
	node      ownership.Node
	me        ownership.Machine
	others    []ownership.Machine
	answer    ownership.Whose
}

var nodeTable = []nodeRow{
	{
		"the node has the Machine's provider ID, and no other Machine names it",
		ownership.Node{ProviderID: id},
		me, one(other, "x"), ownership.Ours,
	},
	{
		"the same ID, in the form of another program: region instead of zone",
		ownership.Node{ProviderID: "aws:///eu/i-1"},
		me, nil, ownership.Ours,
	},
	{
		"an ID without \"://\", equal on Machine and node",
		ownership.Node{ProviderID: "i-0abc"},
		asking(func(m *ownership.Machine) { m.ProviderID = "i-0abc" }), nil, ownership.Ours,
	},
	{
		"a restore: the mark is of a Machine that does not exist any more",
		ownership.Node{ProviderID: id, Mark: "uid-before"},
		me, nil, ownership.Ours,
	},
	{
		"a copy of the Machine in another namespace, and the node has the mark of the original: as seen from the original",
		ownership.Node{ProviderID: id, Mark: "uid-m"},
		me, one(id, "n"), ownership.Ours,
	},
	{
		"the same, as seen from the copy",
		ownership.Node{ProviderID: id, Mark: "uid-c"},
		me, one(id, "n"), ownership.Anothers,
	},
	{
		"a copy, and the node has no mark, or that of a Machine that does not exist any more",
		ownership.Node{ProviderID: id, Mark: "uid-before"},
		me, one(id, "n"), ownership.InDoubt,
	},
	{
		"a copy whose instance is gone, and the node has no mark",
		ownership.Node{ProviderID: id},
		me, lost(id, "n"), ownership.Ours,
	},
	{
		"another Machine has a label with the node's name, and no instance",
		ownership.Node{ProviderID: id},
		me, one("", ""), ownership.Ours,
	},
	{
		"the node has the mark of a Machine that names another instance now",
		ownership.Node{ProviderID: id, Mark: "uid-c"},
		me, one(other, ""), ownership.InDoubt,
	},
	{
		"two nodes have the Machine's provider ID",
		ownership.Node{ProviderID: id, Twin: "n-2"},
		me, nil, ownership.InDoubt,
	},
	{
		"a reused name: the node has the provider ID of another instance, which another Machine names",
		ownership.Node{ProviderID: other},
		me, one(other, "n"), ownership.Anothers,
	},
	{
		"a reused name: the node has the provider ID of an instance that no Machine names",
		ownership.Node{ProviderID: other},
		me, nil, ownership.Nobodys,
	},
	{
		"the node has another provider ID and the Machine's mark: somebody changed spec.providerID",
		ownership.Node{ProviderID: other, Mark: "uid-m"},
		me, nil, ownership.InDoubt,
	},
	{
		"the node has no provider ID, and the Machine's mark",
		ownership.Node{Mark: "uid-m"},
		untold(), one(other, "n"), ownership.Ours,
	},
	{
		"the node has no provider ID yet, and the provider told its name for the Machine's instance",
		ownership.Node{},
		me, nil, ownership.Ours,
	},
	{
		"the node has no provider ID, and the provider told its name for the instances of two Machines",
		ownership.Node{},
		me, one(other, "n"), ownership.InDoubt,
	},
	{
		"the same, and the other instance is gone: a reused address",
		ownership.Node{},
		me, lost(other, "n"), ownership.Ours,
	},
	{
		"the node has no provider ID, and the mark of another Machine",
		ownership.Node{Mark: "uid-c"},
		me, one(other, "n"), ownership.Anothers,
	},
	{
		"the same, and the other instance is gone",
		ownership.Node{Mark: "uid-c"},
		me, lost(other, "n"), ownership.Ours,
	},
	{
		"the node has no provider ID, and its name was told for another Machine's instance alone",
		ownership.Node{},
		untold(), one(other, "n"), ownership.Anothers,
	},
	{
		"the node has no provider ID, and a label of the Machine alone has its name: the provider is asked",
		ownership.Node{},
		untold(), nil, ownership.InDoubt,
	},
	{
		"the Machine names no instance, and a label has the node's name",
		ownership.Node{ProviderID: other},
		bare(), nil, ownership.Nobodys,
	},
	{
		"the same, and the node has no provider ID",
		ownership.Node{},
		bare(), nil, ownership.Nobodys,
	},
	{
		"the same, and another Machine names the node's instance",
		ownership.Node{ProviderID: other},
		bare(), one(other, "n"), ownership.Anothers,
	},
	{
		"spec.providerID was removed, and the node has the Machine's mark",
		ownership.Node{ProviderID: id, Mark: "uid-m"},
		bare(), nil, ownership.Ours,
	},
	{
		"the same, and another Machine names the node's instance",
		ownership.Node{ProviderID: id, Mark: "uid-m"},
		bare(), one(id, "n"), ownership.InDoubt,
	},
}

func TestWhoseNode(t *testing.T) {
	for _, row := range nodeTable {
		t.Run(row.situation, func(t *testing.T) {
			row.node.Name = "n"
			got := ownership.OfNode(row.node, row.me, append(row.others, row.me))
			assert.Equal(t, row.answer, got.Whose, got.Why)
			assert.NotEmpty(t, got.Why)
			assert.Contains(t, got.Why, "n", "it names the node")
			if got.Ask {
				assert.True(t, got.Is(ownership.InDoubt))
			}
		})
	}
	label := ownership.OfNode(ownership.Node{Name: "n"}, untold(), nil)
	assert.True(t, label.Ask, "the provider knows the name of the instance's node")
}

type instanceRow struct {
	situation string
	instance  ownership.Instance
	me        ownership.Machine
	others    []ownership.Machine
	answer    ownership.Whose
}

var instanceTable = []instanceRow{
	{
		"the instance has the Machine's UID",
		ownership.Instance{UID: "uid-m"},
		bare(), nil, ownership.Ours,
	},
	{
		"the same, and a copy of the Machine names its provider ID",
		ownership.Instance{UID: "uid-m"},
		me, one(id, "n"), ownership.Ours,
	},
	{
		"the instance has the UID of another Machine that exists, and the Machine names its provider ID: a copy, " +
			"a template with a providerID, a stranger",
		ownership.Instance{UID: "uid-c"},
		me, one(id, "n"), ownership.Anothers,
	},
	{
		"the same, and the other Machine does not know its instance yet",
		ownership.Instance{UID: "uid-c"},
		me, one("", ""), ownership.Anothers,
	},
	{
		"a restore: the instance has the UID of a Machine that does not exist any more, and the Machine alone names it",
		ownership.Instance{UID: "uid-before"},
		me, nil, ownership.Ours,
	},
	{
		"two restores: the same, and another Machine names it, too",
		ownership.Instance{UID: "uid-before"},
		me, one(id, "n"), ownership.InDoubt,
	},
	{
		"the instance has no UID, as with MCM's drivers, and the Machine alone names it",
		ownership.Instance{Machine: "m"},
		me, one(other, ""), ownership.Ours,
	},
	{
		"the instance has no UID, and two Machines name it",
		ownership.Instance{Machine: "m"},
		me, one(id, ""), ownership.InDoubt,
	},
	{
		"the instance has no UID and the Machine's name, no Machine names it, and the Machine names none: " +
			"another controller made it for the Machine",
		ownership.Instance{Machine: "m"},
		bare(), nil, ownership.Ours,
	},
	{
		"the same, and another Machine names it",
		ownership.Instance{Machine: "m"},
		bare(), one(id, ""), ownership.InDoubt,
	},
	{
		"the instance has no UID and the Machine's name, and the Machine names another one",
		ownership.Instance{Machine: "m"},
		asking(func(m *ownership.Machine) { m.ProviderID = other }), nil, ownership.Nobodys,
	},
	{
		"the instance has the UID of a Machine that does not exist, and the Machine's name alone",
		ownership.Instance{UID: "uid-before", Machine: "m"},
		bare(), nil, ownership.Nobodys,
	},
	{
		"the instance has neither UID nor name, and another Machine names it",
		ownership.Instance{},
		bare(), one(id, ""), ownership.Anothers,
	},
}

func TestWhoseInstance(t *testing.T) {
	for _, row := range instanceTable {
		t.Run(row.situation, func(t *testing.T) {
			row.instance.ProviderID = id
			got := ownership.OfInstance(row.instance, row.me, append(row.others, row.me))
			assert.Equal(t, row.answer, got.Whose, got.Why)
			assert.Contains(t, got.Why, id)
			assert.False(t, got.Ask)
		})
	}
}

// The page has each situation of the tests with its answer, and no other.
func TestThePageHasTheSameTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/ownership.md")
	require.NoError(t, err)
	var page, want []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(
			line,
		); strings.HasPrefix(line, "| ") && strings.Count(line, "|") == 3 &&
			!strings.HasPrefix(line, "| Situation") {
			page = append(page, line)
		}
	}
	for _, row := range nodeTable {
		want = append(want, tableRow(row.situation, row.answer))
	}
	for _, row := range instanceTable {
		want = append(want, tableRow(row.situation, row.answer))
	}
	assert.Equal(t, strings.Join(want, "\n"), strings.Join(page, "\n"))
}

func tableRow(situation string, answer ownership.Whose) string {
	said := map[ownership.Whose]string{
		ownership.Ours: "ours", ownership.Anothers: "another's", ownership.Nobodys: "nobody's", ownership.InDoubt: "**in doubt**",
	}[answer]
	return fmt.Sprintf("| %s%s | %s |", strings.ToUpper(situation[:1]), situation[1:], said)
}

// A driver and a cloud controller manager write the ID of the same instance in different forms.
func TestProviderIDsOfTheSameInstance(t *testing.T) {
	for _, row := range []struct {
		what string
		a, b string
		same bool
	}{
		{"the same text", "virtual:///eu-1/i-1", "virtual:///eu-1/i-1", true},
		{"AWS: region and zone", "aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-1", true},
		{"GCP: with and without a host", "gce:///project/eu-west1-b/m-1", "gce://project/eu-west1-b/m-1", true},
		{
			"Azure: location and resource", "azure:///westeurope/m-1",
			"azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m-1", true,
		},
		{"OpenStack: with and without the region", "openstack:///RegionOne/8f0c", "openstack:///8f0c", true},
		{"vSphere: no path", "vsphere://4219-ab", "vsphere://4219-ab", true},
		{"a plain name", "i-0abc", "i-0abc", true},
		{"a path without a cloud", "eu-west-1/i-1", "eu-west-1/i-1", true},
		{"a colon alone", "mycloud:i-1", "mycloud:i-1", true},
		{"the same text that ends with a slash", "aws:///eu/", "aws:///eu/", true},
		{"another instance", "aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-2", false},
		{"another instance whose ID ends alike", "aws:///eu-west-1/i-1", "aws:///eu-west-1/xi-1", false},
		{"another cloud", "aws:///eu-west-1/i-1", "gce:///eu-west-1/i-1", false},
		{"no cloud at all", "eu-west-1/i-1", "eu-west-2/i-1", false},
		{"none is no instance", "", "", false},
		{"nor is it that of any", "", "aws:///eu-west-1/i-1", false},
		{"nor does it have an empty name", "aws:///eu-west-1/", "aws:///eu-west-2/", false},
	} {
		assert.Equal(t, row.same, ownership.SameInstance(row.a, row.b), row.what)
		assert.Equal(t, row.same, ownership.SameInstance(row.b, row.a), row.what)
	}
}

// No order of the other Machines changes an answer, and a Machine that claims nothing changes none.
func TestTheOrderOfMachinesDoesNotMatter(t *testing.T) {
	stranger := ownership.Machine{Namespace: "else", Name: "x", UID: "uid-x", ProviderID: "aws:///eu-1a/i-9", Told: "n-9"}
	for _, row := range nodeTable {
		row.node.Name = "n"
		all := append(slices.Clone(row.others), row.me, stranger)
		want := ownership.OfNode(row.node, row.me, all)
		slices.Reverse(all)
		assert.Equal(t, want, ownership.OfNode(row.node, row.me, all), row.situation)
	}
}
