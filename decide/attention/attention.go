// Package attention decides whether a machine or class has pending work, and which. decide/scale and decide/rollout
// answer the same question for sets and deployments with the same type. The bridge asks before it signals a workflow,
// and a workflow asks before its run ends, so both agree on what calm means. A fact that something other than the
// object's own workflow can change must be part of a fingerprint of the bridge.
package attention

import (
	"cmp"
	"fmt"

	"millwright/decide/phrase"
)

// Need names the kind of work that an object has pending.
type Need string

// The needs. Nothing means calm.
const (
	Nothing  Need = ""
	Instance Need = "Instance" // a machine has no instance yet, or none that is initialised
	Name     Need = "Name"     // a machine's node is found, and its name is to be recorded
	Node     Need = "Node"     // a machine's instance exists, and its node has yet to join
	Health   Need = "Health"   // a machine's status does not match the state of its node
	Recovery Need = "Recovery" // a machine's node is unhealthy: wait for its recovery or for the end of the health timeout
	Sync     Need = "Sync"     // a machine's node lacks something of the node template, or has too much
	Preserve Need = "Preserve" // a machine or its node does not show what was decided about its preservation
	Kept     Need = "Kept"     // a machine is preserved until a recorded time
	InPlace  Need = "InPlace"  // a machine's node is updated in place, and the next step is ours
	Drain    Need = "Drain"    // a machine's node has to be drained although the machine stays
	Deletion Need = "Deletion" // the object is being deleted
	Scale    Need = "Scale"    // the machines, sets or status of a set or deployment are not as wanted
	Rollout  Need = "Rollout"  // a deployment replaces machines of other templates, and waits for the sets
	Replace  Need = "Replace"  // a deployment has machines that are due or being replaced
)

// OneStep reports whether the workflow meets this need of a machine with one short step.
func (n Need) OneStep() bool {
	return n == Health || n == Name || n == Sync || n == Preserve || n == InPlace
}

// Decision is the need of an object. Why is one sentence.
type Decision struct {
	Need  Need
	Why   string // for logs and histories
	Waits string // for status and pages: what the object waits for; empty: Why says it
}

// WaitsFor returns what status and pages say that the object waits for.
func (d Decision) WaitsFor() string { return cmp.Or(d.Waits, d.Why) }

// Before returns a need that comes before d, such as a status that must be written. Its WaitsFor is that of d, because the
// written status shows d. It returns the zero Decision if holds is false.
func (d Decision) Before(holds bool, need Need, format string, values ...any) Decision {
	first := If(holds, need, format, values...)
	if holds {
		first.Waits = d.WaitsFor()
	}
	return first
}

// If returns the Decision if holds is true, and the zero Decision otherwise.
func If(holds bool, need Need, format string, values ...any) Decision {
	if !holds {
		return Decision{}
	}
	return Decision{Need: need, Why: fmt.Sprintf(format, values...)}
}

// Calm reports whether the object has no pending work.
func (d Decision) Calm() bool { return d.Need == Nothing }

// Finalizers is the need of a MachineClass: our finalizer is missing on it or on a Secret, or is on a Secret that no
// class needs.
const Finalizers Need = "Finalizers"

// Serve is the need of a MachineClass whose status does not say whether a worker serves its provider.
const Serve Need = "Serve"

// ClassFacts describe a MachineClass and the Secrets of its namespace.
type ClassFacts struct {
	Deleting         bool // metadata.deletionTimestamp is set
	Finalizer        bool // our finalizer is on the class
	Machines         int  // number of machines that refer to the class, terminating ones included
	Unguarded        int  // number of Secrets that the class needs and that lack our finalizer
	Checked          bool // Temporal has said whether a worker serves the provider
	Unserved         bool // no worker does
	Reported         bool // the status says whether a worker does
	ReportedUnserved bool // the status says that no worker does
	// number of Secrets with our finalizer that no class needs; the Secrets of a deleted class are found at the resync
	Unused int
}

// DecideClass returns the need of a MachineClass. A class that is being deleted first waits for its machines, which
// cannot be deleted without it. Then its Secrets are released, then the class.
func DecideClass(f ClassFacts) Decision {
	return cmp.Or(
		If(f.Deleting && !f.Finalizer, Nothing, "released: the API server removes it"),
		If(!f.Finalizer, Finalizers, "new: our finalizer is missing"),
		If(f.Unguarded > 0, Finalizers, "%s to guard", phrase.Count(f.Unguarded, "Secret")),
		If(f.Deleting && f.Machines == 0, Deletion, "deletion was asked for; no machine refers to it"),
		If(
			f.Unused > 0,
			Finalizers,
			"%s to release: no class needs %s",
			phrase.Count(f.Unused, "Secret"),
			phrase.OneOf(f.Unused, "it", "them"),
		),
		If(
			f.Deleting,
			Deletion,
			"deletion was asked for; %s %s to it",
			phrase.Count(f.Machines, "machine"),
			phrase.OneOf(f.Machines, "refers", "refer"),
		),
		If(f.Checked && f.Unserved && !f.ReportedUnserved, Serve, "no worker serves its provider"),
		If(f.Checked && !f.Unserved && f.ReportedUnserved, Serve, "a worker serves its provider again"),
		If(f.Checked && !f.Unserved && !f.Reported, Serve, "a worker serves its provider"),
		Decision{Why: "its finalizers are in place"},
	)
}
