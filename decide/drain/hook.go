package drain

import "cmp"

// HookFacts holds the facts about Millwright's pre-drain hook on a Cluster API Machine. With this hook, Millwright
// drains the node before Cluster API deletes the Machine.
type HookFacts struct {
	HasHook         bool // the machine has the hook
	Deleting        bool
	ClusterAPIWaits bool // Cluster API waits until the hook is removed

	PauseReason     string // why Millwright does nothing to the machine now; empty: the machine is not paused
	NodeName        string // name of the machine's node; empty: the machine has no node
	NodeGone        bool   // the node does not exist any more
	DrainResult     string // recorded result of the drain; empty: the drain has not ended
	SkipDrainReason string // why an operator skips the drain; empty: the drain is not skipped
	// NoDrainReason is why Cluster API would not drain the node (see RelatedObjects.NoDrainReason); empty: Cluster API
	// would drain.
	NoDrainReason string
	// UnknownNodeReason is why the node could not be read; empty: the node was read.
	UnknownNodeReason string
}

// HookStep is the next step for the hook of a machine.
type HookStep string

// The next steps for the hook of a machine.
const (
	HookNothing     HookStep = "Nothing" // the machine is not being deleted, or does not have the hook
	HookPaused      HookStep = "Paused"  // the machine is paused
	HookNotReached  HookStep = "Await"   // Cluster API does not wait for the hook yet
	HookNodeUnknown HookStep = "Unknown" // the node could not be read, because its cluster does not answer
	HookDrain       HookStep = "Drain"
	// the drain has ended: Millwright removes the hook, and Cluster API does not drain again
	HookDrainEnded HookStep = "Over"
	// Millwright removes the hook without a drain, and Cluster API continues as if there were no hook
	HookNotNeeded HookStep = "Return"
)

// Decide returns the next step for the hook, and why. If step is HookDrain, why is empty.
func (h HookFacts) Decide() (step HookStep, why string) {
	switch {
	case !h.HasHook:
		return HookNothing, "the machine has no hook of Millwright"
	case !h.Deleting:
		return HookNothing, "the machine is not being deleted"
	case h.PauseReason != "":
		return HookPaused, h.PauseReason
	case h.DrainResult != "":
		return HookDrainEnded, "the drain has already ended"
	case h.SkipDrainReason != "":
		return HookDrainEnded, h.SkipDrainReason
	case h.NoDrainReason != "":
		return HookNotNeeded, h.NoDrainReason
	case h.NodeName == "":
		return HookNotNeeded, "the machine has no node"
	case !h.ClusterAPIWaits:
		return HookNotReached, "Cluster API has not come to the pre-drain hooks of the machine yet"
	case h.UnknownNodeReason != "":
		return HookNodeUnknown, h.UnknownNodeReason
	case h.NodeGone:
		return HookDrainEnded, "there is no node " + h.NodeName
	default:
		return HookDrain, ""
	}
}

// RelatedObjects holds facts about the objects that belong to a machine. Cluster API uses these facts to decide whether
// to drain the node.
type RelatedObjects struct {
	ClusterName          string // name of the machine's Cluster
	ClusterGone          bool   // the Cluster is being deleted, or does not exist
	DeletingControlPlane string // kind and name of the control plane object that is being deleted; empty: none
	// GoneInfrastructure is the kind and name of the infrastructure machine if it is gone or being deleted; empty: it
	// exists, or its state is not known.
	GoneInfrastructure       string
	ReachedPreTerminateHooks bool // the deletion has reached the pre-terminate hooks
}

// NoDrainReason returns why Cluster API would not drain the node; empty: Cluster API would drain.
func (a RelatedObjects) NoDrainReason() string {
	is := func(what, why string) string {
		if what == "" {
			return ""
		}
		return what + why
	}
	switch {
	case a.ClusterGone:
		return "Cluster " + a.ClusterName + " is being deleted, and its nodes are not drained"
	case a.ReachedPreTerminateHooks:
		return "the deletion is past its drain"
	default:
		return cmp.Or(
			is(a.DeletingControlPlane, " is being deleted, and the nodes of its Cluster are not drained"),
			is(a.GoneInfrastructure, " is gone or being deleted, and the node is not drained"),
		)
	}
}
