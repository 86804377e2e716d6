// Package deletion decides which stage the deletion of a machine is in, and what that stage does next or waits for. It
// decides from facts and from the recorded stage alone, never from texts written for people.
package deletion

import (
	"cmp"
	"fmt"
	"slices"

	"millwright/api/vocabulary"
	"millwright/decide/explain"
	"millwright/decide/ownership"
	"millwright/decide/phrase"
)

// Stage is one stage of a deletion. Its name is recorded in status.deletion.stage.
type Stage string

// The stages, in their order. The empty Stage comes before the first: nothing is recorded yet.
const (
	PreDrainHooks     Stage = vocabulary.StagePreDrainHooks
	Drain             Stage = vocabulary.StageDrain
	Detach            Stage = vocabulary.StageDetach
	PreTerminateHooks Stage = vocabulary.StagePreTerminateHooks
	Instance          Stage = vocabulary.StageInstance
	Node              Stage = vocabulary.StageNode
	Release           Stage = vocabulary.StageRelease
)

func stages() []Stage {
	return []Stage{PreDrainHooks, Drain, Detach, PreTerminateHooks, Instance, Node, Release}
}

// Later returns the later of two stages. An unknown stage comes before all others.
func Later(a, b Stage) Stage {
	if slices.Index(stages(), b) > slices.Index(stages(), a) {
		return b
	}
	return a
}

// After returns the stage that follows s. The last stage follows itself.
func After(s Stage) Stage {
	all := stages()
	return all[min(slices.Index(all, s)+1, len(all)-1)]
}

// Facts describe a machine that is being deleted.
type Facts struct {
	Recorded Stage  // status.deletion.stage; empty: none is recorded yet
	Done     Stage  // the last stage that this run completed and the status does not record; empty: none
	NodeName string // empty: the machine never had a node
	Node     bool   // the node exists and is proven to be the machine's
	// Owner says whose the node is that the machine names; zero: there is none.
	Owner ownership.Answer
	// NodeUnknown: the cache has no node, and the API server of the target does not answer.
	NodeUnknown bool
	AsMCM       bool   // as in MCM, the node gets the condition Terminating even if it has no pods
	Skip        string // why the node is not drained; empty: it is
	Force       string // why its pods are killed at once; empty: they are not
	Result      string // how the drain ended; empty: it has not

	Attached          int      // number of volumes attached to the node
	Hold              string   // who holds it, and why: "ann: lunch"; empty: no hold
	Abandon           string   // reason of the operator's abandon-instance; empty: the provider is asked
	SkipDetach        string   // why the deletion does not wait for volumes; empty: it does
	PreDrainHooks     []string // in any order
	PreTerminateHooks []string
}

// Step is what the deletion does next.
type Step struct {
	Stage     Stage
	Record    bool     // the status does not record Stage yet
	Announce  bool     // the node is to get the condition Terminating
	BlockedBy []string // the first things that the stage waits for; nil: it waits for nothing
	Why       string
	Skipped   string // why the node is not drained, if that is decided now; empty: the node is or was drained
	Abandoned string // why the instance is not deleted, if that is decided now; an operator has to delete it
	Empty     bool   // this run found no pod to remove, and the status does not record that yet
	Stays     bool   // an operator asked for abandon-instance: the instance may still run
	Hurry     bool   // an operator asked to proceed: do not wait for a target cluster that does not answer
	Force     bool   `json:",omitzero"` // as Hurry, because of the command force: only in the stages before Instance
	Ask       bool   `json:",omitzero"` // the provider can tell whose the node is
}

// Held reports whether an operator's hold keeps the deletion in its stage.
func (s Step) Held() bool { return slices.Equal(s.BlockedBy, []string{vocabulary.BlockedHold}) }

// Decide returns the first stage, from the recorded one on, that has work to do. It never goes back: a completed stage
// is not entered again, whatever the facts say by then.
func Decide(f Facts) Step {
	at := Later(Later(PreDrainHooks, f.Recorded), After(f.Done))
	first := at
	s := Step{Stays: f.Abandon != "", Hurry: f.Skip != "" || f.Abandon != ""}
	for ; ; at = After(at) {
		if what := f.todo(at); what.Why != "" {
			s.Stage, s.Record, s.Why, s.BlockedBy, s.Ask = at, at != f.Recorded, what.Why, what.BlockedBy, what.Ask
			break
		}
	}
	s.Announce = f.Node && f.announces(s.Stage)
	s.Force = f.Force != "" && s.Stage != Instance && Later(s.Stage, Instance) == Instance
	if f.Abandon != "" && Later(first, Instance) == Instance && Later(s.Stage, Instance) != Instance {
		s.Abandoned = f.Abandon
	}
	if f.Hold != "" {
		s.BlockedBy, s.Why = []string{vocabulary.BlockedHold}, "held"+phrase.By(f.Hold)
	}
	if f.Result == "" && Later(s.Stage, Drain) != Drain { // past the drain, and no drain recorded its result
		if s.Empty = f.Done != "" && Later(f.Done, Drain) == f.Done; !s.Empty {
			s.Skipped = f.skip()
		}
	}
	return s
}

// announces reports whether the node gets the condition Terminating in this stage: before the wait for hooks, when the
// drain is on record, and when the node is not drained. The drain of a node without pods is never on record, so it
// costs no write of the condition, except as in MCM.
func (f Facts) announces(stage Stage) bool {
	if stage == Drain {
		return f.Recorded == Drain || f.AsMCM
	}
	return f.Recorded == "" && f.Done == ""
}

// todo returns what a stage has to do. An empty Why means that the stage has nothing to do.
func (f Facts) todo(s Stage) Step {
	if s == PreDrainHooks {
		return hooks(f.Node || f.NodeUnknown || f.Owner.Is(ownership.InDoubt), "pre-drain", f.PreDrainHooks)
	}
	if s == PreTerminateHooks {
		return hooks(true, "pre-terminate", f.PreTerminateHooks)
	}
	undrained := f.Result == "" && f.skip() == ""
	if f.Owner.Is(ownership.InDoubt) && (s == Node || s == Drain && undrained) {
		return f.doubt()
	}
	attached := f.Node && f.Attached != 0 && f.Result == vocabulary.DrainDrained && f.SkipDetach == ""
	return Step{Why: map[Stage]string{
		Drain:    phrase.If(undrained, "node %s is to be drained", f.NodeName),
		Detach:   phrase.If(attached, "waits until the volumes of node %s are detached", f.NodeName),
		Instance: phrase.If(f.Abandon == "", "the instance is to be deleted"),
		Node:     phrase.If(f.NodeName != "", "the instance is gone; node %s is to be deleted", f.NodeName),
		Release:  "instance and node are gone; our finalizer is to be removed",
	}[s]}
}

// doubt stops a stage, unless a person wants to go on without the node.
func (f Facts) doubt() Step {
	if f.Skip != "" {
		return Step{}
	}
	return Step{Why: f.Owner.Why, BlockedBy: []string{vocabulary.BlockedOwnership}, Ask: f.Owner.Ask}
}

// skip says why there is no drain; empty: there is one. While it is in doubt whose the node is, only a person can end
// the drain.
func (f Facts) skip() string {
	if f.Owner.Is(ownership.InDoubt) {
		return f.Skip
	}
	return cmp.Or(
		phrase.If(f.Owner.Is(ownership.Anothers) || f.Owner.Is(ownership.Nobodys), "%s", f.Owner.Why),
		phrase.If(f.NodeName == "", "the machine never had a node"),
		phrase.If(!f.Node && !f.NodeUnknown, "there is no node %s", f.NodeName),
		f.Skip,
	)
}

// hooks waits until there are no hooks of the kind. It names the first ones and counts the others: any number of
// annotations can be hooks.
func hooks(apply bool, kind string, names []string) Step {
	if !apply || len(names) == 0 {
		return Step{}
	}
	names = slices.Sorted(slices.Values(names))
	const most = explain.MaxBlockers
	why := fmt.Sprintf("waits until these %s hooks are removed: %s", kind, phrase.List(names, most, ", "))
	return Step{BlockedBy: names[:min(len(names), most)], Why: why}
}
