// Package orphan answers which instances of a cloud no Machine claims any more, and which of them may be deleted now. It takes
// all that could be a mistake for one: what is not certain stays, and is told.
package orphan

import (
	"cmp"
	"time"
)

// Facts are what one sweep over the instances of one class has read. The instances have to be read before the machines: else a
// machine that was made in between would be missing.
type Facts struct {
	Now       time.Time
	Held      string     // why nothing that was read may be believed, in one sentence; empty: nothing speaks against it
	Wish      string     // what a person's annotation collect-orphans says; empty when there is none
	Instances []Instance // all of the class
	Machines  []Machine  // all of the class's namespace, whatever their class, phase or wishes
	Sightings []Sighting // what the sweep before has handed on
	Settings  Settings
}

// Instance is an instance as its cloud lists it.
type Instance struct {
	ProviderID string
	Machine    string    // tag: name of its machine
	UID        string    // tag: UID of its machine
	Created    time.Time // zero when the cloud does not tell
}

// Machine is a Machine object that exists. Its phase, its deletion and its preservation are no facts: whatever they are, it
// keeps its instance (N20).
type Machine struct {
	Name, UID  string
	ProviderID string // empty until its instance is known
}

// Sighting says since when an instance is known to have no machine.
type Sighting struct {
	ProviderID string
	UID        string // a provider ID that is used again belongs to another instance
	Since      time.Time
}

// Settings are how careful a sweep is. Zero values mean the defaults.
type Settings struct {
	Confirm     time.Duration // least time between the first and the last sighting
	MinAge      time.Duration // least age of an instance, where its cloud tells when it was made
	MaxPerSweep int           // most instances that one sweep deletes; no more than MostPerSweep
}

// Defaults of Settings. Sources: the period of MCM's sweep, MCM's creation timeout, and a fifth of what a set deletes at a time.
const (
	DefaultConfirm     = 15 * time.Minute
	DefaultMinAge      = 20 * time.Minute
	DefaultMaxPerSweep = 10
)

// MostPerSweep is what one sweep deletes at most, whatever anybody asks for: all of them stand in its history.
const MostPerSweep = 25

// The breaker lets a few orphans go at any time, and else a tenth of the class's instances: more are no leak but a sign that
// the machines are not all there.
const (
	breakerFew   = 2
	breakerShare = 10
)

// Decision is what a sweep found, what it deletes, and what the next one has to know.
type Decision struct {
	Instances  int        // of the class
	Machines   int        // of its namespace
	Orphans    int        // instances that no machine claims
	Unknown    int        // instances without the tags of a machine: they are left alone
	Duplicates int        // instances beyond the first of a machine that exists: they are left alone
	Held       string     // why nothing is deleted although something might be; empty: nothing holds
	Collect    []Target   // what to delete, those that were seen first before the others
	Sightings  []Sighting // for the next sweep, the oldest first
	Notes      []string   // which orphans stay for now and why, at most 10 sentences
	Unclear    []string   // what no sweep takes care of, so that a person has to; at most 10 sentences
}

// Target is the machine that once was, and its instances: all that carry its UID, since a provider deletes them together.
type Target struct {
	Machine, UID string
	ProviderIDs  []string
}

func (s Settings) withDefaults() Settings {
	return Settings{
		Confirm:     cmp.Or(max(s.Confirm, 0), DefaultConfirm),
		MinAge:      cmp.Or(max(s.MinAge, 0), DefaultMinAge),
		MaxPerSweep: min(cmp.Or(max(s.MaxPerSweep, 0), DefaultMaxPerSweep), MostPerSweep),
	}
}

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
