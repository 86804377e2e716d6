package replace

import (
	"fmt"
	"time"

	"millwright/decide/phrase"
)

// facts has what the decision about a replacement depends on, and what the command says.
type facts struct {
	Name          string // namespace/name
	Node          string // empty: the machine has no node
	Instance      string // provider ID; empty: not known
	FollowCommand string // command that shows the deletion

	DeletingSince     time.Time // zero: the machine is not being deleted
	IsPreserved       bool      // a preservation is recorded or requested
	PreservedUntil    time.Time // zero: the end is not recorded
	PreserveCommand   string    // command that ends the preservation
	IsHeld            bool      // an annotation holds the deletion in its first stage
	DrainTimeout      string    // how long pods are evicted; empty: without an end
	IsDrainedByOthers bool      // Cluster API drains the node

	Owner       string // KIND NAME of the controller that is no MachineSet; empty: a MachineSet, or none
	Set         string // name of the controlling MachineSet; empty: no set controls the machine
	SetArgument string // the set as an argument of millwright; empty: millwright explain does not know the set
	SetUnread   string // why the set could not be read; empty: it was read
	SetReplicas int    // desired number of machines
	SetMachines int    // machines of the set that are not being deleted
	SetStopped  string // why the set makes no machines now; empty: it makes them
}

// refusalReason returns why the machine is not replaced; empty if it may be replaced. The argument withoutSet says that
// the machine may be deleted although nothing replaces it.
func (f facts) refusalReason(withoutSet bool, now time.Time) string {
	switch {
	case !f.DeletingSince.IsZero():
		return fmt.Sprintf("machine %s is being deleted already, since %s: `%s`",
			f.Name, phrase.ClockText(f.DeletingSince, now), f.FollowCommand)
	case f.IsPreserved:
		until := ""
		if !f.PreservedUntil.IsZero() {
			until = " until " + phrase.TimeText(f.PreservedUntil, now)
		}
		return fmt.Sprintf("machine %s is preserved%s: somebody wants to look at it. To end that: `%s`",
			f.Name, until, f.PreserveCommand)
	case withoutSet || f.Set != "":
		return ""
	case f.Owner != "":
		return fmt.Sprintf(
			"machine %s belongs to %s, and no MachineSet replaces it: to delete it nevertheless, give --without-set",
			f.Name,
			f.Owner,
		)
	default:
		return fmt.Sprintf(
			"no MachineSet controls machine %s, so nothing replaces it: to delete it nevertheless, give --without-set",
			f.Name,
		)
	}
}

// effects returns what the deletion of the machine brings about, in the order in which it happens.
func (f facts) effects() []string {
	lines := []string{f.drainText() + f.instanceText() + "."}
	if f.IsHeld {
		lines = append(lines, fmt.Sprintf("The deletion is held, and waits: millwright drain resume %s.", f.Name))
	}
	return append(lines, f.successorText())
}

func (f facts) drainText() string {
	switch {
	case f.Node == "":
		return fmt.Sprintf("Machine %s has no node, so nothing is drained", f.Name)
	case f.IsDrainedByOthers:
		return fmt.Sprintf("Cluster API drains node %s of machine %s, within its nodeDrainTimeoutSeconds", f.Node, f.Name)
	case f.DrainTimeout == "":
		return fmt.Sprintf("The pods of node %s of machine %s are evicted, without a deadline", f.Node, f.Name)
	default:
		return fmt.Sprintf(
			"The pods of node %s of machine %s are evicted for at most %s, then deleted",
			f.Node,
			f.Name,
			f.DrainTimeout,
		)
	}
}

func (f facts) instanceText() string {
	if f.Instance == "" {
		return ", and its instance is deleted"
	}
	return ", and its instance " + f.Instance + " is deleted"
}

// successorText says whether the set makes a new machine.
func (f facts) successorText() string {
	switch after := f.SetMachines - 1; {
	case f.Set == "":
		return "Nothing makes a new machine."
	case f.SetUnread != "":
		return fmt.Sprintf(
			"Its set %s makes a new machine if it wants as many as it has now: the set cannot be read (%s).",
			f.Set,
			f.SetUnread,
		)
	case after >= f.SetReplicas:
		return fmt.Sprintf(
			"Its set %s makes no new machine: it wants %d, and has %d without this one.",
			f.Set,
			f.SetReplicas,
			after,
		)
	case f.SetStopped != "":
		return fmt.Sprintf("Its set %s makes no new machine now: %s.", f.Set, f.SetStopped)
	default:
		return fmt.Sprintf(
			"Its set %s, which wants %s, makes a new one from its template.",
			f.Set,
			phrase.CountText(f.SetReplicas, "machine"),
		)
	}
}
