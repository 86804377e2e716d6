// Package orphan decides which instances of a cloud no Machine claims any more, and which of these instances may be
// deleted now. In case of doubt an instance is kept and reported.
package orphan

import (
	"cmp"
	"time"
)

// Facts holds the facts that a sweep has read about the instances of one class. The instances must be read before the
// machines, because otherwise an instance that is created between the two reads would seem to have no machine.
type Facts struct {
	Now                  time.Time
	AllowedDeletionsText string     // value of the class's annotation collect-orphans; empty: no annotation
	Instances            []Instance // all instances of the class
	// instances of this cloud have no UID tag, so that an instance belongs to the machine of the same name
	IdentifiedByName bool
	Machines         []Machine  // all machines of all namespaces, of every class and in every phase
	Sightings        []Sighting // the Sightings of the previous sweep's Decision
	Settings         Settings
}

// Instance is an instance in the list of its cloud.
type Instance struct {
	ProviderID  string
	MachineName string    // tag: name of the instance's machine
	MachineUID  string    // tag: UID of the instance's machine
	Created     time.Time // creation time of the instance; zero: the cloud does not report it
}

// Machine is an existing Machine object. A machine keeps its instance in every phase, also during the machine's
// deletion.
type Machine struct {
	Name, UID  string
	Elsewhere  string // namespace of the machine; empty: namespace of the class
	ProviderID string // provider ID of the machine's instance; empty: not known yet
}

// String returns the machine's name for messages.
func (m Machine) String() string {
	if m.Elsewhere == "" {
		return "Machine " + m.Name
	}
	return "Machine " + m.Elsewhere + "/" + m.Name
}

// Sighting records since when sweeps have seen an instance without a machine.
type Sighting struct {
	ProviderID string
	UID        string // distinguishes the instance from an earlier instance with the same provider ID
	Since      time.Time
}

// Settings are the limits of a sweep. A zero value means the default.
type Settings struct {
	// an instance is deleted only if its first and its last sighting are at least this far apart
	Confirm time.Duration
	// an instance is deleted only if it is at least this old, if its cloud reports the creation time
	MinAge      time.Duration
	MaxPerSweep int // largest number of instances that one sweep deletes, at most MaxDeletionsPerSweep
}

// MaxDeletionsPerSweep is the largest number of instances that one sweep deletes, whatever the Settings, because the
// history of the sweep names all deleted instances.
const MaxDeletionsPerSweep = 25

// The breaker opens if there are more than breakerToleratedOrphans orphans, and more than 1/breakerInstancesPerOrphan
// of the class's instances are orphans. In this case, Machine objects are probably missing.
const (
	breakerToleratedOrphans   = 2
	breakerInstancesPerOrphan = 10
)

// Decision contains what a sweep found, what the sweep deletes, and the sightings for the next sweep.
type Decision struct {
	Instances  int              // number of instances of the class
	Machines   int              // number of machines of the class's namespace
	Orphans    int              // number of instances that no machine claims
	Unknown    int              // number of instances without the tags of a machine; they are kept
	Duplicates int              // number of additional instances of machines that have more than one instance; they are kept
	Held       string           // why no orphan is deleted; empty: orphans may be deleted
	Collect    []DeletionTarget // what to delete, the earliest sightings first
	Sightings  []Sighting       // sightings for the next sweep, the oldest first
	Notes      []string         // which orphans are not deleted yet, and why; at most 10 sentences
	Unclear    []string         // what an operator has to resolve; at most 10 sentences
}

// DeletionTarget names a machine that no longer exists, and all instances with its UID. A provider deletes these
// instances together. A target without a UID has one instance, which is deleted by its provider ID.
type DeletionTarget struct {
	Machine, UID string
	ProviderIDs  []string
}

func (s Settings) withDefaults() Settings {
	return Settings{
		Confirm:     cmp.Or(max(s.Confirm, 0), DefaultConfirmTime),
		MinAge:      cmp.Or(max(s.MinAge, 0), DefaultMinAge),
		MaxPerSweep: min(cmp.Or(max(s.MaxPerSweep, 0), DefaultMaxPerSweep), MaxDeletionsPerSweep),
	}
}

// Node is a node of the target cluster.
type Node struct {
	Name         string
	ProviderID   string // provider ID of the node; empty: the node has none
	MachineName  string // name of the node's machine from the node's label; empty: no label
	Created      time.Time
	NotManaged   bool // the node has the annotation not-managed-by-mcm
	HasFinalizer bool // the node has Millwright's finalizer
}

// NodeClaimant is a Machine of any namespace, with the fields that can link it to a node.
type NodeClaimant struct {
	Name       string
	NodeName   string // name of the machine's node; empty: not known
	ProviderID string // provider ID of the machine's instance; empty: not known
}

// MaxUnmanagedNodes is the largest number of nodes that one call of UnmanagedNodes returns. Source: the largest number
// of machines that one decision names.
const MaxUnmanagedNodes = 50

// UnmanagedNodes returns the names of nodes older than DefaultMinAge that have no machine, and that lack the annotation
// not-managed-by-mcm or still have Millwright's finalizer. UnmanagedNodes returns at most MaxUnmanagedNodes names, in
// the given order. If there are no machines at all, UnmanagedNodes returns no names, because the machines may have to
// be restored first.
func UnmanagedNodes(now time.Time, nodes []Node, owners []NodeClaimant) []string {
	if len(owners) == 0 {
		return nil
	}
	claimed := map[NodeClaimant]bool{} // each entry has exactly one of the fields Name, Node and ProviderID
	for _, o := range owners {
		claimed[NodeClaimant{Name: o.Name}] = true
		claimed[NodeClaimant{NodeName: o.NodeName}] = true
		claimed[NodeClaimant{ProviderID: o.ProviderID}] = true
	}
	delete(claimed, NodeClaimant{}) // an empty field claims no node
	var names []string
	for _, n := range nodes {
		done := n.NotManaged && !n.HasFinalizer
		young := now.Before(n.Created.Add(DefaultMinAge))
		tied := claimed[NodeClaimant{Name: n.Name}] || claimed[NodeClaimant{Name: n.MachineName}] ||
			claimed[NodeClaimant{NodeName: n.Name}] ||
			claimed[NodeClaimant{ProviderID: n.ProviderID}]
		if !done && !young && !tied && len(names) < MaxUnmanagedNodes {
			names = append(names, n.Name)
		}
	}
	return names
}
