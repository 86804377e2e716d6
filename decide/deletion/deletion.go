// Package deletion answers which stage the deletion of a machine is in: what is done next, or what it waits for. The
// machine's decision calls it with what it read. It decides from facts and from the recorded stage alone, never from what
// people read (D14).
package deletion

import (
	"fmt"
	"slices"
	"strings"
)

// Stage is one stage of a deletion. Their names stand in the machine's status.
type Stage string

// The stages, in their order. The empty stage is the one before the first: nothing is recorded yet.
const (
	PreDrainHooks     Stage = "PreDrainHooks"
	Drain             Stage = "Drain"
	Detach            Stage = "Detach"
	PreTerminateHooks Stage = "PreTerminateHooks"
	Instance          Stage = "Instance"
	Node              Stage = "Node"
	Release           Stage = "Release"
)

// Held is what a deletion is blocked by that a person holds.
const Held = "Hold"

func stages() []Stage {
	return []Stage{PreDrainHooks, Drain, Detach, PreTerminateHooks, Instance, Node, Release}
}

// Later returns the later of two stages. An unknown one comes before all others.
func Later(a, b Stage) Stage {
	if slices.Index(stages(), b) > slices.Index(stages(), a) {
		return b
	}
	return a
}

// After returns the stage that follows; the last one follows itself.
func After(s Stage) Stage {
	all := stages()
	return all[min(slices.Index(all, s)+1, len(all)-1)]
}

// Facts are what is known of a machine that is to go.
type Facts struct {
	Recorded Stage  // of the status; empty before anything is recorded
	Done     Stage  // what this run has done although the status does not say so yet; empty when nothing
	NodeName string // empty when the machine never had a node
	Node     bool   // the node is there, and it is the machine's alone
	Skip     string // why the node is not drained; empty when it is
	Result   string // how the drain ended; empty before

	Attached          int      // volumes that are attached to the node
	Hold              string   // why it stays in the stage in which it is, as a person wants it; empty when nobody does
	Release           string   // why the provider is not asked, as a person wants it; empty when it is
	SkipDetach        string   // why nobody waits for volumes; empty when somebody does
	PreDrainHooks     []string // in any order
	PreTerminateHooks []string
}

// Step is what the deletion does next.
type Step struct {
	Stage     Stage
	Record    bool   // the status does not say so yet
	Announce  bool   // the node does not say yet that its machine is to go
	BlockedBy string // what it waits for; empty when it goes on
	Why       string
	Skipped   string // why the node is not drained, when that is settled now; empty when it is drained, or was
	Released  string // why the instance is left to people, when that is settled now
	Empty     bool   // the run found nothing on the node that had to leave it, and the status does not say so yet
	Hurry     bool   // a person wants it to go on: a target cluster that does not answer is not waited for
}

// Next returns the first stage, from the recorded one on, that has anything to do. It never goes back: a stage that is
// over is not entered again, whatever the facts say by then (D15, D42).
func Next(f Facts) Step {
	at := PreDrainHooks
	if f.Recorded != "" {
		at = Later(at, f.Recorded)
	}
	if f.Done != "" {
		at = Later(at, After(f.Done))
	}
	first := at
	s := Step{Announce: f.Recorded == "" && f.Node, Hurry: f.Skip != "" || f.Release != ""}
	for ; ; at = After(at) {
		if what := f.todo(at); what.Why != "" {
			s.Stage, s.Record, s.Why, s.BlockedBy = at, at != f.Recorded, what.Why, what.BlockedBy
			break
		}
	}
	if f.Release != "" && Later(first, Instance) == Instance && Later(s.Stage, Instance) != Instance {
		s.Released = f.Release
	}
	if f.Hold != "" {
		s.BlockedBy, s.Why = Held, "held: "+f.Hold
	}
	if f.Result == "" && Later(s.Stage, Drain) != Drain { // it is past the drain, and no drain has told how it ended
		if s.Empty = f.Done != "" && Later(f.Done, Drain) == f.Done; !s.Empty {
			s.Skipped = f.skip()
		}
	}
	return s
}

// todo says what a stage has to do; nothing when it is over before it begins.
func (f Facts) todo(s Stage) Step {
	switch s {
	case PreDrainHooks:
		return hooks(f.Node, "pre-drain", f.PreDrainHooks)
	case Drain:
		if f.Result != "" || f.skip() != "" {
			return Step{}
		}
		return Step{Why: fmt.Sprintf("node %s is to be emptied", f.NodeName)}
	case Detach:
		if !f.Node || f.Attached == 0 || f.Result != "Drained" || f.SkipDetach != "" {
			return Step{}
		}
		return Step{Why: fmt.Sprintf("the volumes of node %s are to be detached", f.NodeName)}
	case PreTerminateHooks:
		return hooks(true, "pre-terminate", f.PreTerminateHooks)
	case Instance:
		if f.Release != "" {
			return Step{}
		}
		return Step{Why: "the provider is to delete the instance"}
	case Node:
		if f.NodeName == "" {
			return Step{}
		}
		return Step{Why: fmt.Sprintf("the instance is gone; node %s is to go", f.NodeName)}
	default:
		return Step{Why: "instance and node are gone: the object may go"}
	}
}

// skip says why there is no drain.
func (f Facts) skip() string {
	switch {
	case f.NodeName == "":
		return "the machine never had a node"
	case !f.Node:
		return fmt.Sprintf("there is no node %s", f.NodeName)
	default:
		return f.Skip
	}
}

func hooks(apply bool, kind string, names []string) Step {
	if !apply || len(names) == 0 {
		return Step{}
	}
	names = slices.Sorted(slices.Values(names))
	return Step{
		BlockedBy: strings.Join(names, ","),
		Why:       fmt.Sprintf("waits until nobody holds it by a %s hook: %s", kind, strings.Join(names, ", ")),
	}
}
