// Package orphan answers which instances of a cloud no Machine claims any more, and which of them may be deleted now. It takes
// all that could be a mistake for one: what is not certain stays, and is told.
package orphan

import "time"

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
	Name       string
	UID        string
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
	Machine     string
	UID         string
	ProviderIDs []string
}

func (s Settings) withDefaults() Settings {
	if s.Confirm <= 0 {
		s.Confirm = DefaultConfirm
	}
	if s.MinAge <= 0 {
		s.MinAge = DefaultMinAge
	}
	if s.MaxPerSweep <= 0 {
		s.MaxPerSweep = DefaultMaxPerSweep
	}
	s.MaxPerSweep = min(s.MaxPerSweep, MostPerSweep)
	return s
}
