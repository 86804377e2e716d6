// Package attention answers whether a machine or class is calm, and if not, what it needs next; of sets and deployments, decide/scale and
// decide/rollout answer that in its words. The bridge asks before it wakes a workflow, and the workflow's decision asks before it rests, so
// that both always agree on what calm means. What others than the object's own workflow can change of its facts stands in a fingerprint of
// the bridge.
package attention

import (
	"cmp"
	"fmt"
)

// Need names the kind of work that an object has pending.
type Need string

// The needs. Nothing means calm.
const (
	Nothing  Need = ""
	Instance Need = "Instance" // a machine has no instance yet, or none that is initialised
	Node     Need = "Node"     // a machine's instance exists, its node has yet to join
	Health   Need = "Health"   // a machine's status no longer says what its node shows
	Recovery Need = "Recovery" // a machine's node is unhealthy: it recovers, or the health timeout ends
	Sync     Need = "Sync"     // a machine's node does not carry what it should
	Preserve Need = "Preserve" // a machine and its node do not say what was decided about its preservation
	Kept     Need = "Kept"     // a machine is preserved until its time is over
	InPlace  Need = "InPlace"  // a machine's node is updated in place, and it is our turn
	Drain    Need = "Drain"    // a machine stays, and its node has to be drained
	Deletion Need = "Deletion" // the object is being deleted
	Scale    Need = "Scale"    // a set or deployment has other members, or another status, than it should have
	Rollout  Need = "Rollout"  // a deployment has machines of other templates, and waits for others to give way
	Replace  Need = "Replace"  // a deployment has machines that wait to be replaced, or that are being replaced
)

// Prompt reports whether what a machine needs is done within a moment, once its workflow looks at the facts that say so.
func (n Need) Prompt() bool { return n == Health || n == Sync || n == Preserve || n == InPlace }

// Decision says what an object needs, in one word and in one sentence.
type Decision struct {
	Need Need
	Why  string
}

// If is what an object needs under a condition; the zero Decision when that does not hold.
func If(holds bool, need Need, format string, values ...any) Decision {
	if !holds {
		return Decision{}
	}
	return Decision{need, fmt.Sprintf(format, values...)}
}

// Calm reports whether the object needs nothing.
func (d Decision) Calm() bool { return d.Need == Nothing }

// Finalizers is the need of a MachineClass: our finalizer is missing on it or on a Secret, or is on one that no class needs.
const Finalizers Need = "Finalizers"

// ClassFacts is what the API server says of a MachineClass and of what lies in its namespace.
type ClassFacts struct {
	Deleting  bool // metadata.deletionTimestamp is set
	Finalizer bool // ours is on
	Machines  int  // that refer to the class, terminating ones included
	Unguarded int  // Secrets that the class needs, without our finalizer
	Unused    int  // Secrets of the namespace with our finalizer that no class needs; what another class left behind shows at the resync
}

// Class decides for a MachineClass. A class that is being deleted waits for its machines: they cannot be deleted without it. Then
// the Secrets are released, then the class itself.
func Class(f ClassFacts) Decision {
	return cmp.Or(
		If(f.Deleting && !f.Finalizer, Nothing, "released: the API server removes it"),
		If(!f.Finalizer, Finalizers, "new: not yet taken care of"),
		If(f.Unguarded > 0, Finalizers, "%d Secrets to guard", f.Unguarded),
		If(f.Deleting && f.Machines == 0, Deletion, "deletion was asked for; no machine refers to it"),
		If(f.Unused > 0, Finalizers, "%d Secrets to release: no class needs them", f.Unused),
		If(f.Deleting, Deletion, "deletion was asked for; %d machines refer to it", f.Machines),
		Decision{Nothing, "its finalizers are in place"},
	)
}
