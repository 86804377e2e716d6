package drain

import "cmp"

// Hook describes the pre-drain hook with which Millwright drains the node of a machine that another controller deletes.
type Hook struct {
	Hooked   bool // the machine carries the hook
	Deleting bool
	Waiting  bool // the other controller has come to the hook, and waits until it is removed

	Paused   string // why nothing is done to the machine for now; empty: it is not paused
	NodeName string // empty: the machine has no node
	NodeGone bool   // the node does not exist any more
	Result   string // how the drain ended, as recorded; empty: it has not
	Skip     string // why an operator wants no drain; empty: none does
	// Needless is why the other controller does not drain either; empty: it would. See Needless.
	Needless string
	// Unknown is why the node could not be read; empty: it was.
	Unknown string
}

// HookStep is what follows for the hook of a machine.
type HookStep string

// The steps of a hook.
const (
	HookNothing HookStep = "Nothing" // the machine is not being deleted, or does not carry the hook
	HookPaused  HookStep = "Paused"  // nothing is done to the machine for now
	HookAwait   HookStep = "Await"   // the other controller has not come to the hook yet
	HookUnknown HookStep = "Unknown" // the cluster of the node does not answer
	HookDrain   HookStep = "Drain"
	// the drain has ended, and the hook is removed; the other controller does not drain again
	HookOver   HookStep = "Over"
	HookReturn HookStep = "Return" // Millwright does not drain: the other controller does as it would without the hook
)

// Decide returns what follows for the hook, and why. With HookOver, why is empty if the drain itself says it.
func (h Hook) Decide() (step HookStep, why string) {
	switch {
	case !h.Hooked:
		return HookNothing, "the machine has no hook of Millwright"
	case !h.Deleting:
		return HookNothing, "the machine is not being deleted"
	case h.Paused != "":
		return HookPaused, h.Paused
	case h.Result != "":
		return HookOver, "the drain has already ended"
	case h.Skip != "":
		return HookOver, h.Skip
	case h.Needless != "":
		return HookReturn, h.Needless
	case h.NodeName == "":
		return HookReturn, "the machine has no node"
	case !h.Waiting:
		return HookAwait, "Cluster API has not come to the pre-drain hooks of the machine yet"
	case h.Unknown != "":
		return HookUnknown, h.Unknown
	case h.NodeGone:
		return HookOver, "there is no node " + h.NodeName
	default:
		return HookDrain, ""
	}
}

// Related describes the objects around a machine by which the other controller decides whether it drains the node.
type Related struct {
	Cluster      string // name of the Cluster
	ClusterGone  bool   // being deleted, or gone
	ControlPlane string // kind and name of the control plane object that is being deleted; empty: none is
	// Infrastructure is kind and name of the infrastructure machine if it is being deleted or gone; empty: it exists and
	// is not being deleted, or this is not known.
	Infrastructure string
	Passed         bool // the deletion has reached the pre-terminate hooks
}

// Needless returns why the other controller would not drain; empty if it would.
func (a Related) Needless() string {
	is := func(what, why string) string {
		if what == "" {
			return ""
		}
		return what + why
	}
	switch {
	case a.ClusterGone:
		return "Cluster " + a.Cluster + " is being deleted, and its nodes are not drained"
	case a.Passed:
		return "the deletion is past its drain"
	default:
		return cmp.Or(
			is(a.ControlPlane, " is being deleted, and the nodes of its Cluster are not drained"),
			is(a.Infrastructure, " is gone or being deleted, and the node is not drained"),
		)
	}
}
