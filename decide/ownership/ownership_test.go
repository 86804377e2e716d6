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
	ownProviderID   = "aws:///eu-1a/i-1" // provider ID of the Machine for which the owner is requested
	otherProviderID = "aws:///eu-1a/i-2"
)

// ownMachine is the Machine for which the owner is requested. ownMachine has an instance, and the provider returned
// the name of its node.
var ownMachine = ownership.Machine{Namespace: "prod", Name: "m", UID: "uid-m", ProviderID: ownProviderID, Told: "n"}

func changedOwnMachine(change func(*ownership.Machine)) ownership.Machine {
	m := ownMachine
	change(&m)
	return m
}

// machineWithoutNodeName returns ownMachine without status.nodeName, so that only a label names the node.
func machineWithoutNodeName() ownership.Machine {
	return changedOwnMachine(func(m *ownership.Machine) { m.Told = "" })
}

// machineWithoutInstance returns ownMachine without a provider ID and without status.nodeName.
func machineWithoutInstance() ownership.Machine {
	return changedOwnMachine(func(m *ownership.Machine) { m.ProviderID, m.Told = "", "" })
}

// listWithOtherMachine returns a list with one other existing Machine.
func listWithOtherMachine(providerID, told string) []ownership.Machine {
	return []ownership.Machine{{Namespace: "copy", Name: "m", UID: "uid-c", ProviderID: providerID, Told: told}}
}

// listWithLostMachine returns a list with one other Machine whose instance is gone, as the provider reported.
func listWithLostMachine(providerID, told string) []ownership.Machine {
	all := listWithOtherMachine(providerID, told)
	all[0].InstanceGone = true
	return all
}

type nodeOwnerCase struct {
	situation     string
	node          ownership.Node
	ownMachine    ownership.Machine
	otherMachines []ownership.Machine
	wantedOwner   ownership.OwnerKind
}

var nodeOwnerCases = []nodeOwnerCase{
	{
		"the node has the Machine's provider ID, and no other Machine names it",
		ownership.Node{ProviderID: ownProviderID},
		ownMachine, listWithOtherMachine(otherProviderID, "x"), ownership.OwnerSelf,
	},
	{
		"node and Machine have the same ID in two forms: region instead of zone",
		ownership.Node{ProviderID: "aws:///eu/i-1"},
		ownMachine, nil, ownership.OwnerSelf,
	},
	{
		"machine and node have an equal ID without \"://\"",
		ownership.Node{ProviderID: "i-0abc"},
		changedOwnMachine(func(m *ownership.Machine) { m.ProviderID = "i-0abc" }), nil, ownership.OwnerSelf,
	},
	{
		"after a restore: the mark names a Machine that does not exist any more",
		ownership.Node{ProviderID: ownProviderID, MarkerUID: "uid-before"},
		ownMachine, nil, ownership.OwnerSelf,
	},
	{
		"the Machine has a copy in another namespace, and the node has the Machine's mark",
		ownership.Node{ProviderID: ownProviderID, MarkerUID: "uid-m"},
		ownMachine, listWithOtherMachine(ownProviderID, "n"), ownership.OwnerSelf,
	},
	{
		"the Machine is the copy, and the node has the mark of the original",
		ownership.Node{ProviderID: ownProviderID, MarkerUID: "uid-c"},
		ownMachine, listWithOtherMachine(ownProviderID, "n"), ownership.OwnerOther,
	},
	{
		"the Machine has a copy, and the node has no mark, or the mark of a Machine that does not exist any more",
		ownership.Node{ProviderID: ownProviderID, MarkerUID: "uid-before"},
		ownMachine, listWithOtherMachine(ownProviderID, "n"), ownership.OwnerInDoubt,
	},
	{
		"the Machine has a copy whose instance is gone, and the node has no mark",
		ownership.Node{ProviderID: ownProviderID},
		ownMachine, listWithLostMachine(ownProviderID, "n"), ownership.OwnerSelf,
	},
	{
		"another Machine has a label with the node's name, and no instance",
		ownership.Node{ProviderID: ownProviderID},
		ownMachine, listWithOtherMachine("", ""), ownership.OwnerSelf,
	},
	{
		"the node has the mark of a Machine that names another instance now",
		ownership.Node{ProviderID: ownProviderID, MarkerUID: "uid-c"},
		ownMachine, listWithOtherMachine(otherProviderID, ""), ownership.OwnerInDoubt,
	},
	{
		"two nodes have the Machine's provider ID",
		ownership.Node{ProviderID: ownProviderID, DuplicateNodeName: "n-2"},
		ownMachine, nil, ownership.OwnerInDoubt,
	},
	{
		"a reused name: the node has the provider ID of another instance, which another Machine names",
		ownership.Node{ProviderID: otherProviderID},
		ownMachine, listWithOtherMachine(otherProviderID, "n"), ownership.OwnerOther,
	},
	{
		"a reused name: the node has the provider ID of an instance that no Machine names",
		ownership.Node{ProviderID: otherProviderID},
		ownMachine, nil, ownership.OwnerNone,
	},
	{
		"the node has another provider ID and the Machine's mark: somebody changed spec.providerID",
		ownership.Node{ProviderID: otherProviderID, MarkerUID: "uid-m"},
		ownMachine, nil, ownership.OwnerInDoubt,
	},
	{
		"the node has no provider ID, but the Machine's mark",
		ownership.Node{MarkerUID: "uid-m"},
		machineWithoutNodeName(), listWithOtherMachine(otherProviderID, "n"), ownership.OwnerSelf,
	},
	{
		"the node has no provider ID yet, and the provider returned its name for the Machine's instance",
		ownership.Node{},
		ownMachine, nil, ownership.OwnerSelf,
	},
	{
		"the node has no provider ID, and the provider returned its name for the instances of two Machines",
		ownership.Node{},
		ownMachine, listWithOtherMachine(otherProviderID, "n"), ownership.OwnerInDoubt,
	},
	{
		"the provider returned the node's name for two Machines, and the other instance is gone: a reused address",
		ownership.Node{},
		ownMachine, listWithLostMachine(otherProviderID, "n"), ownership.OwnerSelf,
	},
	{
		"the node has no provider ID, but the mark of another Machine",
		ownership.Node{MarkerUID: "uid-c"},
		ownMachine, listWithOtherMachine(otherProviderID, "n"), ownership.OwnerOther,
	},
	{
		"the node has the mark of another Machine whose instance is gone",
		ownership.Node{MarkerUID: "uid-c"},
		ownMachine, listWithLostMachine(otherProviderID, "n"), ownership.OwnerSelf,
	},
	{
		"the node has no provider ID, and the provider returned its name for another Machine's instance alone",
		ownership.Node{},
		machineWithoutNodeName(), listWithOtherMachine(otherProviderID, "n"), ownership.OwnerOther,
	},
	{
		"the node has no provider ID, and only the Machine's label has its name: the provider is asked",
		ownership.Node{},
		machineWithoutNodeName(), nil, ownership.OwnerInDoubt,
	},
	{
		"the Machine names no instance, and its label has the node's name",
		ownership.Node{ProviderID: otherProviderID},
		machineWithoutInstance(), nil, ownership.OwnerNone,
	},
	{
		"the Machine names no instance, and its label names a node without provider ID",
		ownership.Node{},
		machineWithoutInstance(), nil, ownership.OwnerNone,
	},
	{
		"the Machine names no instance, and another Machine names the node's instance",
		ownership.Node{ProviderID: otherProviderID},
		machineWithoutInstance(), listWithOtherMachine(otherProviderID, "n"), ownership.OwnerOther,
	},
	{
		"the Machine's spec.providerID was removed, and the node has the Machine's mark",
		ownership.Node{ProviderID: ownProviderID, MarkerUID: "uid-m"},
		machineWithoutInstance(), nil, ownership.OwnerSelf,
	},
	{
		"the Machine's spec.providerID was removed, and another Machine names the node's instance",
		ownership.Node{ProviderID: ownProviderID, MarkerUID: "uid-m"},
		machineWithoutInstance(), listWithOtherMachine(ownProviderID, "n"), ownership.OwnerInDoubt,
	},
}

func TestOwnerOfANode(t *testing.T) {
	for _, row := range nodeOwnerCases {
		t.Run(row.situation, func(t *testing.T) {
			row.node.Name = "n"
			got := ownership.OwnerOfNode(row.node, row.ownMachine, append(row.otherMachines, row.ownMachine))
			assert.Equal(t, row.wantedOwner, got.Whose, got.Why)
			assert.NotEmpty(t, got.Why)
			assert.Contains(t, got.Why, "n", "it names the node")
			if got.Ask {
				assert.True(t, got.HasOwnerKind(ownership.OwnerInDoubt))
			}
		})
	}
	label := ownership.OwnerOfNode(ownership.Node{Name: "n"}, machineWithoutNodeName(), nil)
	assert.True(t, label.Ask, "the provider knows the name of the instance's node")
}

type instanceOwnerCase struct {
	situation     string
	instance      ownership.Instance
	ownMachine    ownership.Machine
	otherMachines []ownership.Machine
	wantedOwner   ownership.OwnerKind
}

var instanceOwnerCases = []instanceOwnerCase{
	{
		"the instance has the Machine's UID",
		ownership.Instance{MachineUID: "uid-m"},
		machineWithoutInstance(), nil, ownership.OwnerSelf,
	},
	{
		"the instance has the Machine's UID, and a copy of the Machine names its provider ID",
		ownership.Instance{MachineUID: "uid-m"},
		ownMachine, listWithOtherMachine(ownProviderID, "n"), ownership.OwnerSelf,
	},
	{
		"the instance has the UID of another Machine that exists, and the Machine names its provider ID: a copy, " +
			"a template with a providerID, a stranger",
		ownership.Instance{MachineUID: "uid-c"},
		ownMachine, listWithOtherMachine(ownProviderID, "n"), ownership.OwnerOther,
	},
	{
		"the instance has the UID of another Machine that does not know its instance yet",
		ownership.Instance{MachineUID: "uid-c"},
		ownMachine, listWithOtherMachine("", ""), ownership.OwnerOther,
	},
	{
		"after a restore: the instance has the UID of a Machine that does not exist any more, and the Machine alone names it",
		ownership.Instance{MachineUID: "uid-before"},
		ownMachine, nil, ownership.OwnerSelf,
	},
	{
		"after two restores: the instance has such a UID, and two Machines name it",
		ownership.Instance{MachineUID: "uid-before"},
		ownMachine, listWithOtherMachine(ownProviderID, "n"), ownership.OwnerInDoubt,
	},
	{
		"the instance has no UID, as with MCM's drivers, and the Machine alone names it",
		ownership.Instance{MachineName: "m"},
		ownMachine, listWithOtherMachine(otherProviderID, ""), ownership.OwnerSelf,
	},
	{
		"the instance has no UID, and two Machines name it",
		ownership.Instance{MachineName: "m"},
		ownMachine, listWithOtherMachine(ownProviderID, ""), ownership.OwnerInDoubt,
	},
	{
		"the instance has no UID and the Machine's name, no Machine names it, and the Machine names none: " +
			"another controller made it for the Machine",
		ownership.Instance{MachineName: "m"},
		machineWithoutInstance(), nil, ownership.OwnerSelf,
	},
	{
		"the instance has no UID and the Machine's name, and another Machine names it",
		ownership.Instance{MachineName: "m"},
		machineWithoutInstance(), listWithOtherMachine(ownProviderID, ""), ownership.OwnerInDoubt,
	},
	{
		"the instance has no UID and the Machine's name, and the Machine names another instance",
		ownership.Instance{MachineName: "m"},
		changedOwnMachine(func(m *ownership.Machine) { m.ProviderID = otherProviderID }), nil, ownership.OwnerNone,
	},
	{
		"the instance has the Machine's name, but the UID of a Machine that does not exist",
		ownership.Instance{MachineUID: "uid-before", MachineName: "m"},
		machineWithoutInstance(), nil, ownership.OwnerNone,
	},
	{
		"the instance has neither UID nor name, and another Machine names it",
		ownership.Instance{},
		machineWithoutInstance(), listWithOtherMachine(ownProviderID, ""), ownership.OwnerOther,
	},
}

func TestOwnerOfAnInstance(t *testing.T) {
	for _, row := range instanceOwnerCases {
		t.Run(row.situation, func(t *testing.T) {
			row.instance.ProviderID = ownProviderID
			got := ownership.OwnerOfInstance(row.instance, row.ownMachine, append(row.otherMachines, row.ownMachine))
			assert.Equal(t, row.wantedOwner, got.Whose, got.Why)
			assert.Contains(t, got.Why, ownProviderID)
			assert.False(t, got.Ask)
		})
	}
}

// The table of docs/ownership.md contains exactly the situations of the tests, with the same answers.
func TestOwnershipDocsMatchTheTestTables(t *testing.T) {
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
	for _, row := range nodeOwnerCases {
		want = append(want, formatDocsTableRow(row.situation, row.wantedOwner))
	}
	for _, row := range instanceOwnerCases {
		want = append(want, formatDocsTableRow(row.situation, row.wantedOwner))
	}
	assert.Equal(t, strings.Join(want, "\n"), strings.Join(page, "\n"))
}

func formatDocsTableRow(situation string, answer ownership.OwnerKind) string {
	said := map[ownership.OwnerKind]string{
		ownership.OwnerSelf: "ours", ownership.OwnerOther: "another's", ownership.OwnerNone: "nobody's", ownership.OwnerInDoubt: "**in doubt**",
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
		assert.Equal(t, row.same, ownership.IsSameInstance(row.a, row.b), row.what)
		assert.Equal(t, row.same, ownership.IsSameInstance(row.b, row.a), row.what)
	}
}

// The order of the other Machines does not change an answer. A Machine that has no link to the node or instance does
// not change an answer.
func TestOwnerDoesNotDependOnTheOrderOfMachines(t *testing.T) {
	stranger := ownership.Machine{Namespace: "else", Name: "x", UID: "uid-x", ProviderID: "aws:///eu-1a/i-9", Told: "n-9"}
	for _, row := range nodeOwnerCases {
		row.node.Name = "n"
		all := append(slices.Clone(row.otherMachines), row.ownMachine, stranger)
		want := ownership.OwnerOfNode(row.node, row.ownMachine, all)
		slices.Reverse(all)
		assert.Equal(t, want, ownership.OwnerOfNode(row.node, row.ownMachine, all), row.situation)
	}
}
