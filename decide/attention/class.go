package attention

import "fmt"

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

// Class decides for a MachineClass. A class that is to go waits for its machines: they cannot be deleted without it. Then
// the Secrets are released, then the class itself.
func Class(f ClassFacts) Decision {
	switch {
	case f.Deleting && !f.Finalizer:
		return Decision{Nothing, "released: the API server removes it"}
	case !f.Finalizer:
		return Decision{Finalizers, "new: not yet taken care of"}
	case f.Unguarded > 0:
		return Decision{Finalizers, fmt.Sprintf("%d Secrets to guard", f.Unguarded)}
	case f.Deleting && f.Machines == 0:
		return Decision{Deletion, "deletion was asked for; no machine refers to it"}
	case f.Unused > 0:
		return Decision{Finalizers, fmt.Sprintf("%d Secrets to release: no class needs them", f.Unused)}
	case f.Deleting:
		return Decision{Deletion, fmt.Sprintf("deletion was asked for; %d machines refer to it", f.Machines)}
	default:
		return Decision{Nothing, "its finalizers are in place"}
	}
}
