// Package attention decides whether a machine or class has pending work, and which work. decide/scale and
// decide/rollout return the same type for sets and deployments. The bridge calls this package before it signals a
// workflow; a workflow calls this package before its run ends. Because both call the same package, the bridge and the
// workflows agree on which objects have no pending work. A fact that anybody except the object's own workflow can
// change must be part of a fingerprint of the bridge.
package attention

import (
	"cmp"
	"fmt"

	"millwright/decide/phrase"
)

// Need is the kind of pending work that an object has.
type Need string

// The needs of an object. NeedNothing means that the object has no pending work.
const (
	NeedNothing      Need = ""
	NeedInstance     Need = "Instance" // a machine has no instance, or no initialised instance
	NeedNodeName     Need = "Name"     // a machine's node was found, and the node's name is not recorded yet
	NeedNodeJoin     Need = "Node"     // a machine's instance exists, and the machine's node has not joined yet
	NeedStatusUpdate Need = "Health"   // a machine's status does not match the state of the machine's node
	// a machine's node is unhealthy, and the machine waits for the recovery or the health timeout
	NeedRecovery Need = "Recovery"
	NeedNodeSync Need = "Sync" // a node differs from the node template of its machine
	// the decision about the machine's preservation is not written to the machine or its node yet
	NeedPreservation    Need = "Preserve"
	NeedPreservationEnd Need = "Kept"     // a machine is preserved until a recorded time
	NeedInPlaceUpdate   Need = "InPlace"  // a machine's node is being updated in place, and Millwright must do the next step
	NeedDrain           Need = "Drain"    // a machine's node has to be drained although the machine is not being deleted
	NeedDeletion        Need = "Deletion" // the object is being deleted
	NeedScaling         Need = "Scale"    // the machines, the sets or the status of a set or deployment do not match its spec
	NeedRollout         Need = "Rollout"  // a deployment replaces machines of other templates, and waits for its sets
	NeedReplacement     Need = "Replace"  // a deployment has machines that are due for replacement or are being replaced
)

// IsDoneInOneStep reports whether the workflow needs only one short step for this need of a machine.
func (n Need) IsDoneInOneStep() bool {
	return n == NeedStatusUpdate || n == NeedNodeName || n == NeedNodeSync || n == NeedPreservation ||
		n == NeedInPlaceUpdate
}

// Decision is the need of an object. Decision.Why is one sentence about the need.
type Decision struct {
	Need  Need
	Why   string // the reason for the need, for logs and histories
	Waits string // what the object waits for, as status and pages show it; empty: status and pages show Why
}

// WaitText returns what the object waits for, as status and pages show it.
func (d Decision) WaitText() string { return cmp.Or(d.Waits, d.Why) }

// PrecedingDecisionIf returns a Decision with a need that takes precedence over d, such as a status that must be
// written. The WaitText of the result is the WaitText of d, because the written status shows d. If holds is false,
// PrecedingDecisionIf returns the zero Decision.
func (d Decision) PrecedingDecisionIf(holds bool, need Need, format string, values ...any) Decision {
	first := DecisionIf(holds, need, format, values...)
	if holds {
		first.Waits = d.WaitText()
	}
	return first
}

// DecisionIf returns the Decision if holds is true, and the zero Decision otherwise.
func DecisionIf(holds bool, need Need, format string, values ...any) Decision {
	if !holds {
		return Decision{}
	}
	return Decision{Need: need, Why: fmt.Sprintf(format, values...)}
}

// NeedsNothing reports whether the object has no pending work.
func (d Decision) NeedsNothing() bool { return d.Need == NeedNothing }

// NeedFinalizers is the need of a MachineClass if Millwright's finalizer is missing on the class or one of its Secrets,
// or remains on a Secret that no class needs.
const NeedFinalizers Need = "Finalizers"

// NeedServingReport is the need of a MachineClass whose status does not show whether a worker serves the class's
// provider.
const NeedServingReport Need = "Serve"

// ClassFacts holds the facts about a MachineClass and the Secrets of its namespace.
type ClassFacts struct {
	Deleting             bool // metadata.deletionTimestamp is set
	HasFinalizer         bool // Millwright's finalizer is on the class
	MachineCount         int  // number of machines that refer to the class, including machines that are being deleted
	UnguardedSecretCount int  // number of Secrets that the class needs and that lack Millwright's finalizer
	ServingKnown         bool // Temporal has reported whether a worker serves the provider
	Unserved             bool // no worker serves the provider
	ServingReported      bool // the status shows whether a worker serves the provider
	ReportedUnserved     bool // the status shows that no worker serves the provider
	// number of Secrets with Millwright's finalizer that no class needs; the resync finds the Secrets of a deleted
	// class
	UnusedSecretCount int
}

// DecideClass returns the need of a MachineClass. A class that is being deleted first waits for its machines, because a
// machine cannot be deleted without its class. After the last machine is gone, Millwright's finalizer is removed from
// the class's Secrets, then from the class.
func DecideClass(f ClassFacts) Decision {
	return cmp.Or(
		DecisionIf(f.Deleting && !f.HasFinalizer, NeedNothing, "released: the API server removes it"),
		DecisionIf(!f.HasFinalizer, NeedFinalizers, "new: our finalizer is missing"),
		DecisionIf(
			f.UnguardedSecretCount > 0,
			NeedFinalizers,
			"%s to guard",
			phrase.CountText(f.UnguardedSecretCount, "Secret"),
		),
		DecisionIf(f.Deleting && f.MachineCount == 0, NeedDeletion, "deletion was asked for; no machine refers to it"),
		DecisionIf(
			f.UnusedSecretCount > 0,
			NeedFinalizers,
			"%s to release: no class needs %s",
			phrase.CountText(f.UnusedSecretCount, "Secret"),
			phrase.SingularOrPlural(f.UnusedSecretCount, "it", "them"),
		),
		DecisionIf(
			f.Deleting,
			NeedDeletion,
			"deletion was asked for; %s %s to it",
			phrase.CountText(f.MachineCount, "machine"),
			phrase.SingularOrPlural(f.MachineCount, "refers", "refer"),
		),
		DecisionIf(f.ServingKnown && f.Unserved && !f.ReportedUnserved, NeedServingReport, "no worker serves its provider"),
		DecisionIf(
			f.ServingKnown && !f.Unserved && f.ReportedUnserved,
			NeedServingReport,
			"a worker serves its provider again",
		),
		DecisionIf(f.ServingKnown && !f.Unserved && !f.ServingReported, NeedServingReport, "a worker serves its provider"),
		Decision{Why: "its finalizers are in place"},
	)
}
