// Package attention answers whether an object is calm, and if not, what it needs next. The bridge asks it before it wakes
// a workflow, and the workflow's decision asks it before it rests, so that both always agree on what calm means. It looks
// at facts that stand in a fingerprint of the bridge, and at nothing else.
package attention

import "fmt"

// Need names the kind of work that an object has pending.
type Need string

// The needs. Nothing means calm.
const (
	Nothing  Need = ""
	Instance Need = "Instance" // a machine has no instance yet, or none that is initialised
	Node     Need = "Node"     // a machine's instance exists, its node has yet to join
	Health   Need = "Health"   // a machine's status no longer says what its node shows
	Recovery Need = "Recovery" // a machine's node is unhealthy: it recovers, or patience ends
	Sync     Need = "Sync"     // a machine's node does not carry what it should
	Preserve Need = "Preserve" // a machine and its node do not say what was decided about its preservation
	Kept     Need = "Kept"     // a machine is preserved until its time is over
	InPlace  Need = "InPlace"  // a machine's node is updated in place, and it is our turn
	Emptying Need = "Emptying" // a machine's node has to be empty although the machine is to stay
	Deletion Need = "Deletion" // the object is to go
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

// Calm reports whether the object needs nothing.
func (d Decision) Calm() bool { return d.Need == Nothing }

// MachineFacts is what the API servers say of a Machine and its Node.
type MachineFacts struct {
	Deleting    bool   // metadata.deletionTimestamp is set
	Emptied     bool   // its deletion is past the drain: how the Node is changes nothing any more
	Finalizer   bool   // ours is on
	Phase       string // status.currentStatus.phase
	ProviderID  string // spec.providerID
	NodeName    string // label node
	NoTarget    bool   // there is no cluster that a node could join
	NodeExists  bool   // a Node of that name is there
	NodeHealthy bool   // by decide/health
	NodeWhy     string // why the node is not healthy
	NodeGoing   bool   // the Node is being deleted, and the machine is not
	NodeHeld    bool   // the critical components of the Node are not ready, by its taint
	Uncopied    bool   // the machine's status does not say what the Node's conditions say
	Unsynced    string // what the Node lacks or has too much of, by decide/nodesync; empty when nothing
	Due         bool   // condition ReplacementDue: patience has ended
	Granted     bool   // the replacement was granted
	UpdateStep  string // what is our turn in an in-place update, by decide/inplace; empty when nothing is
	Updated     string // result of the in-place update, as its agent says; empty while it says nothing
	Preserved   bool   // the end of a preservation is on record
	Unpreserved string // what does not say yet what was decided about preservation, by decide/preserve; empty when nothing
	Alone       bool   // no deployment has to grant it
	Undrained   bool   // it has failed and is preserved, and nobody has emptied its node yet
}

// Machine decides for a Machine. A Failed machine is calm: its set replaces it, and it is never taken back (D27), unless it
// is preserved, when no set will touch it.
func Machine(f MachineFacts) Decision {
	switch {
	case f.Deleting && !f.Finalizer:
		return Decision{Nothing, "released: the API server removes it"}
	case f.Deleting:
		if f.NodeName == "" || f.NoTarget || f.Emptied {
			return Decision{Deletion, "deletion was asked for"}
		}
		return Decision{Deletion, "deletion was asked for; " + waitsFor(f)} // a drain depends on how the node is
	case f.Phase == "Failed":
		return failed(f)
	case f.Granted:
		return Decision{Health, "its replacement was granted"}
	case !f.Finalizer:
		return Decision{Instance, "new: not yet taken care of"}
	case f.ProviderID == "", f.Phase == "", f.Phase == "CrashLoopBackOff":
		return Decision{Instance, "has no initialised instance yet"}
	case f.NoTarget:
		return withoutTarget(f)
	}
	return besides(f, withNode(f))
}

// besides adds what there is to do for a machine with an instance, whatever it waits for. What its node shows comes first.
func besides(f MachineFacts, d Decision) Decision {
	switch {
	case d.Need == Health:
		return d
	case f.NodeExists && f.Uncopied:
		return Decision{Health, "conditions of the node to copy; " + d.Why}
	case f.NodeExists && f.Unsynced != "":
		return Decision{Sync, f.Unsynced}
	case f.UpdateStep == "Drain":
		return Decision{Emptying, "in-place update: the node has to be empty; " + d.Why}
	case f.UpdateStep != "":
		return Decision{InPlace, "in-place update: " + f.UpdateStep}
	case f.Unpreserved != "":
		return Decision{Preserve, f.Unpreserved}
	case d.Calm() && f.Preserved:
		return Decision{Kept, "preserved; " + d.Why}
	default:
		return d
	}
}

// failed decides for a machine that has failed.
func failed(f MachineFacts) Decision {
	switch {
	case f.Unpreserved != "":
		return Decision{Preserve, f.Unpreserved}
	case f.Preserved && f.NodeHealthy && !f.NodeGoing:
		return Decision{Health, fmt.Sprintf("node %s is healthy again", f.NodeName)}
	case f.Undrained:
		return Decision{Emptying, "failed, and preserved: its node has to be empty"}
	case f.Preserved:
		return Decision{Kept, "failed, and preserved"}
	default:
		return Decision{Nothing, "failed: to be replaced"}
	}
}

// withoutTarget decides for a machine that never becomes a node: when its instance is there, that is all.
func withoutTarget(f MachineFacts) Decision {
	if f.Phase == "Available" {
		return Decision{Nothing, fmt.Sprintf("instance %s exists; there is no target cluster", f.ProviderID)}
	}
	return Decision{Health, fmt.Sprintf("instance %s exists; there is no target cluster", f.ProviderID)}
}

// withNode decides for a machine whose instance is there.
func withNode(f MachineFacts) Decision {
	switch f.Phase {
	case "Pending", "Available":
		if f.NodeHealthy && !f.NodeHeld && !f.NodeGoing {
			return Decision{Health, fmt.Sprintf("node %s has joined", f.NodeName)}
		}
		return Decision{Node, fmt.Sprintf("instance %s exists; %s", f.ProviderID, waitsFor(f))}
	case "Running":
		if !f.NodeHealthy || f.NodeGoing {
			return Decision{Health, waitsFor(f)}
		}
		return Decision{Nothing, "running"}
	case "Unknown":
		return unknown(f)
	case "InPlaceUpdating", "InPlaceUpdateFailed":
		return updating(f)
	case "InPlaceUpdateSuccessful":
		return Decision{Health, "updated in place; " + waitsFor(f)}
	default:
		return Decision{Nothing, "phase " + f.Phase}
	}
}

// unknown decides for a machine whose node was unhealthy when it was last looked at.
func unknown(f MachineFacts) Decision {
	switch {
	case f.NodeHealthy && !f.NodeGoing:
		return Decision{Health, fmt.Sprintf("node %s is healthy again", f.NodeName)}
	case f.Due && f.Alone:
		return Decision{Health, "to be replaced: " + waitsFor(f)}
	default:
		return Decision{Recovery, waitsFor(f)}
	}
}

// updating decides for a machine whose node is updated in place, or was in vain. A failure may still be mended.
func updating(f MachineFacts) Decision {
	waits := f.Updated == "" || (f.Phase == "InPlaceUpdateFailed" && f.Updated == "failed")
	if !waits || (f.Due && f.Alone) {
		return Decision{Health, "the in-place update has come to its end: " + f.Updated}
	}
	return Decision{Recovery, "in-place update: " + waitsFor(f)}
}

// waitsFor says in which state the node is.
func waitsFor(f MachineFacts) string {
	switch {
	case !f.NodeExists:
		return fmt.Sprintf("node %s is not registered", f.NodeName)
	case f.NodeGoing:
		return fmt.Sprintf("node %s is being deleted", f.NodeName)
	case !f.NodeHealthy:
		return fmt.Sprintf("node %s: %s", f.NodeName, f.NodeWhy)
	case f.NodeHeld:
		return fmt.Sprintf("node %s: its critical components are not ready", f.NodeName)
	default:
		return fmt.Sprintf("node %s is healthy", f.NodeName)
	}
}

// DeploymentFacts is what the API server says of a MachineDeployment and all below it.
type DeploymentFacts struct {
	Deleting           bool
	Finalizer          bool   // ours is on
	Generation         int64  // metadata.generation
	ObservedGeneration int64  // status.observedGeneration
	Machines           int    // of its sets, terminating ones included
	Next               string // what is to be done next, by decide/rollout; empty when nothing is
	Rolling            bool   // machines of other templates are there and are to give way, and nobody cancelled that
	Says               string // how it stands, in a sentence
	Unreported         bool   // the status does not say what is counted and decided
	Recheck            bool   // as time passes, something else will be said or done
	Due                int    // machines that wait until they may be replaced
	Replacing          int    // replacements that were granted and are not complete
}

// SetFacts is what the API server says of a MachineSet and its machines.
type SetFacts struct {
	Deleting           bool
	Finalizer          bool   // ours is on
	Generation         int64  // metadata.generation
	ObservedGeneration int64  // status.observedGeneration
	Wanted             int    // spec.replicas
	Members            int    // machines, terminating ones included
	Next               string // what is to be done next, by decide/scale; empty when nothing is
	Unreported         bool   // the status does not say what is counted and decided
	Recheck            bool   // as time passes, something else will be said or done
}

// MachineSet decides for a MachineSet.
func MachineSet(f SetFacts) Decision {
	switch {
	case f.Deleting && !f.Finalizer:
		return Decision{Nothing, "released: the API server removes it"}
	case f.Deleting:
		return Decision{Deletion, fmt.Sprintf("deletion was asked for; %d machines left", f.Members)}
	case !f.Finalizer:
		return Decision{Scale, "new: not yet taken care of"}
	case f.Generation != f.ObservedGeneration:
		return Decision{Scale, fmt.Sprintf("generation %d was not seen yet (last seen: %d)", f.Generation, f.ObservedGeneration)}
	case f.Next != "":
		return Decision{Scale, f.Next}
	case f.Unreported:
		return Decision{Scale, "status is out of date"}
	case f.Recheck:
		return Decision{Scale, fmt.Sprintf("%d machines wanted, %d there; it waits for the time to pass", f.Wanted, f.Members)}
	default:
		return Decision{Nothing, fmt.Sprintf("%d machines wanted, %d there", f.Wanted, f.Members)}
	}
}

// MachineDeployment decides for a MachineDeployment.
func MachineDeployment(f DeploymentFacts) Decision {
	switch {
	case f.Deleting && !f.Finalizer:
		return Decision{Nothing, "released: the API server removes it"}
	case f.Deleting:
		return Decision{Deletion, fmt.Sprintf("deletion was asked for; %d machines left", f.Machines)}
	case !f.Finalizer:
		return Decision{Scale, "new: not yet taken care of"}
	case f.Generation != f.ObservedGeneration:
		return Decision{Scale, fmt.Sprintf("generation %d was not seen yet (last seen: %d)", f.Generation, f.ObservedGeneration)}
	case f.Next != "":
		return Decision{Scale, f.Next}
	case f.Unreported:
		return Decision{Scale, "status is out of date"}
	case f.Rolling:
		return Decision{Rollout, f.Says}
	case f.Due+f.Replacing > 0:
		return Decision{Replace, fmt.Sprintf("%d machines are being replaced, %d wait for it", f.Replacing, f.Due)}
	case f.Recheck:
		return Decision{Scale, f.Says + "; it waits for the time to pass"}
	default:
		return Decision{Nothing, f.Says}
	}
}
