package orphan

import "time"

// Node is a node of the target cluster.
type Node struct {
	Name       string
	ProviderID string // empty when the node does not say
	Machine    string // name of its machine, as its label says; empty when it does not
	Created    time.Time
	Marked     bool // it says that it has no machine
	Guarded    bool // it has our finalizer
}

// NodeOwner is a Machine of any namespace, by all that ties it to a node.
type NodeOwner struct {
	Name       string
	Node       string // name of its node; empty until that is known
	ProviderID string // empty until its instance is known
}

// MostMarked bounds how many nodes are marked at a time. Source: what one decision about machines names.
const MostMarked = 50

// Unmanaged returns the names of nodes that have had no machine for as long as a machine may take to join, and that do not say
// so yet or still have our finalizer: at most MostMarked, in the order given. In a world without machines there is none: somebody has
// yet to bring them back.
func Unmanaged(now time.Time, nodes []Node, owners []NodeOwner) []string {
	if len(owners) == 0 {
		return nil
	}
	claimed := map[NodeOwner]bool{} // one tie each
	for _, o := range owners {
		claimed[NodeOwner{Name: o.Name}] = true
		claimed[NodeOwner{Node: o.Node}] = true
		claimed[NodeOwner{ProviderID: o.ProviderID}] = true
	}
	delete(claimed, NodeOwner{}) // what is not known ties nothing
	var names []string
	for _, n := range nodes {
		done := n.Marked && !n.Guarded
		young := now.Before(n.Created.Add(DefaultMinAge))
		tied := claimed[NodeOwner{Name: n.Name}] || claimed[NodeOwner{Name: n.Machine}] || claimed[NodeOwner{Node: n.Name}] || claimed[NodeOwner{ProviderID: n.ProviderID}]
		if !done && !young && !tied && len(names) < MostMarked {
			names = append(names, n.Name)
		}
	}
	return names
}
