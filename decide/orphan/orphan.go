// Package orphan decides which instances of a cloud no Machine claims any more, and which of them may be deleted now.
// In case of doubt it keeps an instance and reports it.
package orphan

import (
	"cmp"
	"time"
)

// Facts are what one sweep over the instances of one class read. The instances must be read before the machines.
// Otherwise the machine of an instance created in between would be missing.
type Facts struct {
	Now       time.Time
	Allowed   string     // value of the class's annotation collect-orphans; empty: none
	Instances []Instance // all instances of the class
	Named     bool       // instances of this cloud never carry a UID: an instance belongs to the machine whose name it has
	Machines  []Machine  // all machines of all namespaces, of any class and in any phase
	Sightings []Sighting // the Sightings that the previous sweep returned
	Settings  Settings
}

// Instance is an instance as its cloud lists it.
type Instance struct {
	ProviderID string
	Machine    string    // tag: name of its machine
	UID        string    // tag: UID of its machine
	Created    time.Time // zero: the cloud does not report it
}

// Machine is an existing Machine object. It keeps its instance in every phase, also while it is being deleted.
type Machine struct {
	Name, UID  string
	Elsewhere  string // its namespace; empty: that of the class
	ProviderID string // empty until its instance is known
}

// String returns what people call the machine.
func (m Machine) String() string {
	if m.Elsewhere == "" {
		return "Machine " + m.Name
	}
	return "Machine " + m.Elsewhere + "/" + m.Name
}

// Sighting records since when an instance is known to have no machine.
type Sighting struct {
	ProviderID string
	UID        string // tells instances apart if a provider ID is used again
	Since      time.Time
}

// Settings are the limits of a sweep. A zero value means the default.
type Settings struct {
	Confirm     time.Duration // shortest time between the first and the last sighting
	MinAge      time.Duration // lowest age of an instance, if its cloud reports when it was created
	MaxPerSweep int           // most instances that one sweep deletes, at most MostPerSweep
}

// MostPerSweep is the most that one sweep deletes, whatever is configured, because its history names them all.
const MostPerSweep = 25

// The breaker opens if there are more orphans than breakerFew and than one in breakerShare of the class's instances:
// then Machine objects are probably missing.
const (
	breakerFew   = 2
	breakerShare = 10
)

// Decision is what a sweep found, what it deletes, and what the next sweep has to know.
type Decision struct {
	Instances  int        // number of instances of the class
	Machines   int        // number of machines of its namespace
	Orphans    int        // number of instances that no machine claims
	Unknown    int        // number of instances without the tags of a machine, which are kept
	Duplicates int        // number of instances beyond the first of an existing machine, which are kept
	Held       string     // why no orphan is deleted; empty: no hold
	Collect    []Target   // what to delete, the earliest seen first
	Sightings  []Sighting // for the next sweep, the oldest first
	Notes      []string   // which orphans are not deleted yet, and why; at most 10 sentences
	Unclear    []string   // what an operator has to resolve; at most 10 sentences
}

// Target names a former machine and all instances with its UID, since a provider deletes them together. Without a UID
// it has one instance, which is deleted by its provider ID.
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
	ProviderID string // empty: the node has none
	Machine    string // name of its machine by its label; empty: none
	Created    time.Time
	NotManaged bool // it has the annotation not-managed-by-mcm
	Guarded    bool // it has our finalizer
}

// NodeOwner is a Machine of any namespace, with all that can tie it to a node.
type NodeOwner struct {
	Name       string
	Node       string // name of its node; empty: not known
	ProviderID string // empty: its instance is not known
}

// MostUnmanaged is the most nodes that one call of Unmanaged returns. Source: the most machines that one decision
// names.
const MostUnmanaged = 50

// Unmanaged returns the names of nodes older than DefaultMinAge that have no machine and are not marked yet, or still
// have our finalizer: at most MostUnmanaged, in the order given. If there is no machine at all it returns none, because
// the machines have yet to be restored.
func Unmanaged(now time.Time, nodes []Node, owners []NodeOwner) []string {
	if len(owners) == 0 {
		return nil
	}
	claimed := map[NodeOwner]bool{} // each entry has one of the three ties
	for _, o := range owners {
		claimed[NodeOwner{Name: o.Name}] = true
		claimed[NodeOwner{Node: o.Node}] = true
		claimed[NodeOwner{ProviderID: o.ProviderID}] = true
	}
	delete(claimed, NodeOwner{}) // an unknown value is no tie
	var names []string
	for _, n := range nodes {
		done := n.NotManaged && !n.Guarded
		young := now.Before(n.Created.Add(DefaultMinAge))
		tied := claimed[NodeOwner{Name: n.Name}] || claimed[NodeOwner{Name: n.Machine}] || claimed[NodeOwner{Node: n.Name}] ||
			claimed[NodeOwner{ProviderID: n.ProviderID}]
		if !done && !young && !tied && len(names) < MostUnmanaged {
			names = append(names, n.Name)
		}
	}
	return names
}
