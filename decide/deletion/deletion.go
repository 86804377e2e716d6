// Package deletion answers which stage the deletion of a machine is in: what is done next, or what it waits for. The
// machine's decision calls it with what it read. It decides from facts and from the recorded stage alone, never from what
// people read (D14).
package deletion

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"millwright/api/vocabulary"
	"millwright/decide/phrase"
)

// Stage is one stage of a deletion. Their names stand in the machine's status.
type Stage string

// The stages, in their order. The empty stage is the one before the first: nothing is recorded yet.
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

// Facts are what is known of a machine that is being deleted.
type Facts struct {
	Recorded Stage  // of the status; empty before anything is recorded
	Done     Stage  // what this run has done although the status does not say so yet; empty when nothing
	NodeName string // empty when the machine never had a node
	Node     bool   // the node is there, and it is the machine's alone
	Skip     string // why the node is not drained; empty when it is
	Result   string // how the drain ended; empty before

	Attached          int      // volumes that are attached to the node
	Hold              string   // why it stays in the stage in which it is, as a person wants it; empty when nobody does
	Abandon           string   // why the provider is not asked, as a person wants it; empty when it is
	SkipDetach        string   // why nobody waits for volumes; empty when somebody does
	PreDrainHooks     []string // in any order
	PreTerminateHooks []string
}

// Step is what the deletion does next.
type Step struct {
	Stage     Stage
	Record    bool     // the status does not say so yet
	Announce  bool     // the node does not say yet that its machine is being deleted
	BlockedBy []string // what it waits for; nil when it goes on
	Why       string
	Skipped   string // why the node is not drained, when that is settled now; empty when it is drained, or was
	Abandoned string // why the instance is left to people, when that is settled now
	Empty     bool   // the run found nothing on the node that had to leave it, and the status does not say so yet
	Hurry     bool   // a person wants it to go on: a target cluster that does not answer is not waited for
}

// Held reports whether a person keeps the deletion in its stage.
func (s Step) Held() bool { return slices.Equal(s.BlockedBy, []string{vocabulary.BlockedHold}) }

// Next returns the first stage, from the recorded one on, that has anything to do. It never goes back: a stage that is
// over is not entered again, whatever the facts say by then (D15, D42).
func Next(f Facts) Step {
	at := Later(Later(PreDrainHooks, f.Recorded), After(f.Done))
	first := at
	s := Step{Announce: f.Recorded == "" && f.Node, Hurry: f.Skip != "" || f.Abandon != ""}
	for ; ; at = After(at) {
		if what := f.todo(at); what.Why != "" {
			s.Stage, s.Record, s.Why, s.BlockedBy = at, at != f.Recorded, what.Why, what.BlockedBy
			break
		}
	}
	if f.Abandon != "" && Later(first, Instance) == Instance && Later(s.Stage, Instance) != Instance {
		s.Abandoned = f.Abandon
	}
	if f.Hold != "" {
		s.BlockedBy, s.Why = []string{vocabulary.BlockedHold}, "held: "+f.Hold
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
	if s == PreDrainHooks {
		return hooks(f.Node, "pre-drain", f.PreDrainHooks)
	}
	if s == PreTerminateHooks {
		return hooks(true, "pre-terminate", f.PreTerminateHooks)
	}
	undrained := f.Result == "" && f.skip() == ""
	attached := f.Node && f.Attached != 0 && f.Result == vocabulary.DrainDrained && f.SkipDetach == ""
	return Step{Why: map[Stage]string{
		Drain:    phrase.If(undrained, "node %s is to be emptied", f.NodeName),
		Detach:   phrase.If(attached, "the volumes of node %s are to be detached", f.NodeName),
		Instance: phrase.If(f.Abandon == "", "the provider is to delete the instance"),
		Node:     phrase.If(f.NodeName != "", "the instance is gone; node %s is to go", f.NodeName),
		Release:  "instance and node are gone: the object may go",
	}[s]}
}

// skip says why there is no drain.
func (f Facts) skip() string {
	return cmp.Or(
		phrase.If(f.NodeName == "", "the machine never had a node"),
		phrase.If(!f.Node, "there is no node %s", f.NodeName),
		f.Skip,
	)
}

func hooks(apply bool, kind string, names []string) Step {
	if !apply || len(names) == 0 {
		return Step{}
	}
	names = slices.Sorted(slices.Values(names))
	why := fmt.Sprintf("waits until nobody holds it by a %s hook: %s", kind, strings.Join(names, ", "))
	return Step{BlockedBy: names, Why: why}
}
