// Package deletion decides the present stage of a machine's deletion, and what that stage does next or waits for.
// Package deletion reads only facts and the recorded stage, never messages written for people.
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

// Stage is one stage of a deletion. status.deletion.stage records the name of the stage.
type Stage string

// The stages of a deletion in their order. The empty Stage comes before PreDrainHooks: no stage is recorded yet.
const (
	PreDrainHooks     Stage = vocabulary.StagePreDrainHooks
	Drain             Stage = vocabulary.StageDrain
	Detach            Stage = vocabulary.StageDetach
	PreTerminateHooks Stage = vocabulary.StagePreTerminateHooks
	Instance          Stage = vocabulary.StageInstance
	Node              Stage = vocabulary.StageNode
	Release           Stage = vocabulary.StageRelease
)

func orderedStages() []Stage {
	return []Stage{PreDrainHooks, Drain, Detach, PreTerminateHooks, Instance, Node, Release}
}

// LaterStage returns the later of two stages. An unknown stage comes before all known stages.
func LaterStage(a, b Stage) Stage {
	if slices.Index(orderedStages(), b) > slices.Index(orderedStages(), a) {
		return b
	}
	return a
}

// NextStage returns the stage that follows s. After(Release) is Release.
func NextStage(s Stage) Stage {
	all := orderedStages()
	return all[min(slices.Index(all, s)+1, len(all)-1)]
}

// Facts holds the facts about a machine that is being deleted.
type Facts struct {
	Recorded Stage  // status.deletion.stage; empty: no stage is recorded yet
	Done     Stage  // last stage that this run completed and the status does not record; empty: none
	NodeName string // name of the machine's node; empty: the machine never had a node, or NodeUnknown
	Node     bool   // the node exists, and belongs to the machine
	// Owner is who owns the node that the machine names; zero: the machine names no node.
	Owner ownership.OwnerAnswer
	// NodeUnknown means that the cache contains no node, and that the target cluster is not connected or its API server
	// does not answer. Only the provider ID identifies an unknown node without a name.
	NodeUnknown bool
	AsMCM       bool   // as in MCM, the node gets the condition Terminating even if no pods run on the node
	Skip        string // why the node is not drained; empty: the node is drained
	Force       string // why the node's pods are killed at once; empty: no force
	Result      string // result of the drain; empty: the drain has not ended

	Attached          int      // number of volumes attached to the node; at least 1 while the number is unknown
	Hold              string   // who holds the deletion, and why: "ann: lunch"; empty: no hold
	Abandon           string   // reason of the operator's abandon-instance; empty: the provider deletes the instance
	SkipDetach        string   // why the deletion does not wait for volumes; empty: the deletion waits
	PreDrainHooks     []string // names of the pre-drain hooks, in any order
	PreTerminateHooks []string
}

// Step is the next step of the deletion.
type Step struct {
	Stage     Stage
	Record    bool     // the status does not record Stage yet
	Announce  bool     // the node needs the condition Terminating
	BlockedBy []string // the first objects or hooks that the stage waits for; nil: the stage does not wait
	Why       string
	// why the node is not drained, set by the step that skips the drain; empty: the node is or was drained
	Skipped   string
	Abandoned string // reason of the request abandon-instance, set by the step that leaves the instance running
	Empty     bool   // this run found no pod to remove, and the status does not record this yet
	Stays     bool   // an operator requested abandon-instance, so that the instance may still run
	Hurry     bool   // an operator allows the deletion to continue even if the target cluster does not answer
	// like Hurry, but requested with the command force; only in the stages before Instance
	Force bool `json:",omitzero"`
	Ask   bool `json:",omitzero"` // the provider can tell who owns the node
}

// IsHeld reports whether an operator's hold keeps the deletion in its stage.
func (s Step) IsHeld() bool { return slices.Equal(s.BlockedBy, []string{vocabulary.BlockedHold}) }

// Decide returns the first stage with work to do, beginning with the recorded stage. A deletion never returns to an
// earlier stage, even if the facts change.
func Decide(f Facts) Step {
	at := LaterStage(LaterStage(PreDrainHooks, f.Recorded), NextStage(f.Done))
	first := at
	s := Step{Stays: f.Abandon != "", Hurry: f.Skip != "" || f.Abandon != ""}
	for ; ; at = NextStage(at) {
		if what := f.workOfStage(at); what.Why != "" {
			s.Stage, s.Record, s.Why, s.BlockedBy, s.Ask = at, at != f.Recorded, what.Why, what.BlockedBy, what.Ask
			break
		}
	}
	s.Announce = f.Node && f.needsAnnouncement(s.Stage)
	s.Force = f.Force != "" && s.Stage != Instance && LaterStage(s.Stage, Instance) == Instance
	if f.Abandon != "" && LaterStage(first, Instance) == Instance && LaterStage(s.Stage, Instance) != Instance {
		s.Abandoned = f.Abandon
	}
	if f.Hold != "" {
		s.BlockedBy, s.Why = []string{vocabulary.BlockedHold}, "held"+phrase.ActorText(f.Hold)
	}
	if f.Result == "" &&
		LaterStage(s.Stage, Drain) != Drain { // the stage is past the drain, and no drain recorded a result
		if s.Empty = f.Done != "" && LaterStage(f.Done, Drain) == f.Done; !s.Empty {
			s.Skipped = f.skipReason()
		}
	}
	return s
}

// needsAnnouncement reports whether the node gets the condition Terminating in this stage: at the start of the
// deletion, or during a drain that the status records. The status does not record the drain of a node without pods. A
// node without pods gets the condition Terminating only if AsMCM is set.
func (f Facts) needsAnnouncement(stage Stage) bool {
	if stage == Drain {
		return f.Recorded == Drain || f.AsMCM
	}
	return f.Recorded == "" && f.Done == ""
}

// workOfStage returns the work of a stage. An empty Why means that the stage has no work.
func (f Facts) workOfStage(s Stage) Step {
	if s == PreDrainHooks {
		return hookStep(f.Node || f.NodeUnknown || f.Owner.HasOwnerKind(ownership.InDoubt), "pre-drain", f.PreDrainHooks)
	}
	if s == PreTerminateHooks {
		return hookStep(true, "pre-terminate", f.PreTerminateHooks)
	}
	undrained := f.Result == "" && f.skipReason() == ""
	if f.Owner.HasOwnerKind(ownership.InDoubt) && (s == Node || s == Drain && undrained) {
		return f.ownershipStep()
	}
	attached := (f.Node || f.NodeUnknown) && f.Attached != 0 && f.Result == vocabulary.DrainDrained && f.SkipDetach == ""
	return Step{Why: map[Stage]string{
		Drain:    phrase.TextIf(undrained, "%s is to be drained", phrase.NodeText(f.NodeName)),
		Detach:   phrase.TextIf(attached, "waits until the volumes of node %s are detached", f.NodeName),
		Instance: phrase.TextIf(f.Abandon == "", "the instance is to be deleted"),
		Node:     phrase.TextIf(f.NodeName != "", "the instance is gone; node %s is to be deleted", f.NodeName),
		Release:  "instance and node are gone; our finalizer is to be removed",
	}[s]}
}

// ownershipStep stops a stage because the owner of the node is in doubt. If Skip is set, the deletion continues without
// the node.
func (f Facts) ownershipStep() Step {
	if f.Skip != "" {
		return Step{}
	}
	return Step{Why: f.Owner.Why, BlockedBy: []string{vocabulary.BlockedOwnership}, Ask: f.Owner.Ask}
}

// skipReason returns why the node is not drained; empty: the node is drained. While the owner of the node is in doubt,
// only an operator can skip the drain.
func (f Facts) skipReason() string {
	if f.Owner.HasOwnerKind(ownership.InDoubt) {
		return f.Skip
	}
	return cmp.Or(
		phrase.TextIf(f.Owner.HasOwnerKind(ownership.Anothers) || f.Owner.HasOwnerKind(ownership.Nobodys), "%s", f.Owner.Why),
		phrase.TextIf(f.NodeName == "" && !f.NodeUnknown, "the machine never had a node"),
		phrase.TextIf(!f.Node && !f.NodeUnknown, "there is no node %s", f.NodeName),
		f.Skip,
	)
}

// hookStep returns the step that waits until all hooks of one kind are removed. Why names the first hooks and counts
// the others, because a machine can have any number of hooks.
func hookStep(apply bool, kind string, names []string) Step {
	if !apply || len(names) == 0 {
		return Step{}
	}
	names = slices.Sorted(slices.Values(names))
	const most = explain.MaxBlockers
	why := fmt.Sprintf("waits until these %s hooks are removed: %s", kind, phrase.JoinNames(names, most, ", "))
	return Step{BlockedBy: names[:min(len(names), most)], Why: why}
}
