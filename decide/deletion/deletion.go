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
	StagePreDrainHooks     Stage = vocabulary.StagePreDrainHooks
	StageDrain             Stage = vocabulary.StageDrain
	StageDetachVolumes     Stage = vocabulary.StageDetachVolumes
	StagePreTerminateHooks Stage = vocabulary.StagePreTerminateHooks
	StageDeleteInstance    Stage = vocabulary.StageDeleteInstance
	StageDeleteNode        Stage = vocabulary.StageDeleteNode
	StageRemoveFinalizer   Stage = vocabulary.StageRemoveFinalizer
)

func orderedStages() []Stage {
	return []Stage{
		StagePreDrainHooks,
		StageDrain,
		StageDetachVolumes,
		StagePreTerminateHooks,
		StageDeleteInstance,
		StageDeleteNode,
		StageRemoveFinalizer,
	}
}

// LaterStage returns the later of two stages. An unknown stage comes before all known stages.
func LaterStage(a, b Stage) Stage {
	if slices.Index(orderedStages(), b) > slices.Index(orderedStages(), a) {
		return b
	}
	return a
}

// NextStage returns the stage that follows s. NextStage(StageRemoveFinalizer) is StageRemoveFinalizer.
func NextStage(s Stage) Stage {
	all := orderedStages()
	return all[min(slices.Index(all, s)+1, len(all)-1)]
}

// Facts holds the facts about a machine that is being deleted.
type Facts struct {
	RecordedStage  Stage  // status.deletion.stage; empty: no stage is recorded yet
	CompletedStage Stage  // last stage that this run completed and the status does not record; empty: none
	NodeName       string // name of the machine's node; empty: the machine never had a node, or NodeUnknown
	HasNode        bool   // the node exists, and belongs to the machine
	// Owner is who owns the node that the machine names; zero: the machine names no node.
	Owner ownership.OwnerAnswer
	// NodeUnknown means that the cache contains no node, and that the target cluster is not connected or its API server
	// does not answer. Only the provider ID identifies an unknown node without a name.
	NodeUnknown     bool
	BehavesAsMCM    bool   // as in MCM, the node gets the condition Terminating even if no pods run on the node
	SkipDrainReason string // why the node is not drained; empty: the node is drained
	ForceReason     string // why the node's pods are killed at once; empty: no force
	DrainResult     string // result of the drain; empty: the drain has not ended

	AttachedVolumeCount int      // number of volumes attached to the node; at least 1 while the number is unknown
	HoldReason          string   // who holds the deletion, and why: "ann: lunch"; empty: no hold
	AbandonReason       string   // reason of the operator's abandon-instance; empty: the provider deletes the instance
	SkipDetachReason    string   // why the deletion does not wait for volumes; empty: the deletion waits
	PreDrainHooks       []string // names of the pre-drain hooks, in any order
	PreTerminateHooks   []string
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
	// like Hurry, but requested with the command force; only in the stages before StageDeleteInstance
	Force bool `json:",omitzero"`
	Ask   bool `json:",omitzero"` // the provider can tell who owns the node
}

// IsHeld reports whether an operator's hold keeps the deletion in its stage.
func (s Step) IsHeld() bool { return slices.Equal(s.BlockedBy, []string{vocabulary.BlockedByHold}) }

// Decide returns the first stage with work to do, beginning with the recorded stage. A deletion never returns to an
// earlier stage, even if the facts change.
func Decide(f Facts) Step {
	at := LaterStage(LaterStage(StagePreDrainHooks, f.RecordedStage), NextStage(f.CompletedStage))
	first := at
	s := Step{Stays: f.AbandonReason != "", Hurry: f.SkipDrainReason != "" || f.AbandonReason != ""}
	for ; ; at = NextStage(at) {
		if what := f.stepForStage(at); what.Why != "" {
			s.Stage, s.Record, s.Why, s.BlockedBy, s.Ask = at, at != f.RecordedStage, what.Why, what.BlockedBy, what.Ask
			break
		}
	}
	s.Announce = f.HasNode && f.needsTerminatingCondition(s.Stage)
	s.Force = f.ForceReason != "" && s.Stage != StageDeleteInstance &&
		LaterStage(s.Stage, StageDeleteInstance) == StageDeleteInstance
	if f.AbandonReason != "" && LaterStage(first, StageDeleteInstance) == StageDeleteInstance &&
		LaterStage(s.Stage, StageDeleteInstance) != StageDeleteInstance {
		s.Abandoned = f.AbandonReason
	}
	if f.HoldReason != "" {
		s.BlockedBy, s.Why = []string{vocabulary.BlockedByHold}, "held"+phrase.ActorText(f.HoldReason)
	}
	if f.DrainResult == "" &&
		LaterStage(s.Stage, StageDrain) != StageDrain { // the stage is past the drain, and no drain recorded a result
		if s.Empty = f.CompletedStage != "" && LaterStage(f.CompletedStage, StageDrain) == f.CompletedStage; !s.Empty {
			s.Skipped = f.reasonNotToDrain()
		}
	}
	return s
}

// needsTerminatingCondition reports whether the node gets the condition Terminating in this stage: at the start of the
// deletion, or during a drain that the status records. The status does not record the drain of a node without pods. A
// node without pods gets the condition Terminating only if BehavesAsMCM is set.
func (f Facts) needsTerminatingCondition(stage Stage) bool {
	if stage == StageDrain {
		return f.RecordedStage == StageDrain || f.BehavesAsMCM
	}
	return f.RecordedStage == "" && f.CompletedStage == ""
}

// stepForStage returns the work of a stage. An empty Why means that the stage has no work.
func (f Facts) stepForStage(s Stage) Step {
	if s == StagePreDrainHooks {
		return hookStep(
			f.HasNode || f.NodeUnknown || f.Owner.HasOwnerKind(ownership.OwnerInDoubt),
			"pre-drain",
			f.PreDrainHooks,
		)
	}
	if s == StagePreTerminateHooks {
		return hookStep(true, "pre-terminate", f.PreTerminateHooks)
	}
	undrained := f.DrainResult == "" && f.reasonNotToDrain() == ""
	if f.Owner.HasOwnerKind(ownership.OwnerInDoubt) && (s == StageDeleteNode || s == StageDrain && undrained) {
		return f.ownershipDoubtStep()
	}
	attached := (f.HasNode || f.NodeUnknown) && f.AttachedVolumeCount != 0 &&
		f.DrainResult == vocabulary.DrainResultDrained &&
		f.SkipDetachReason == ""
	return Step{Why: map[Stage]string{
		StageDrain:           phrase.TextIf(undrained, "%s is to be drained", phrase.NodeText(f.NodeName)),
		StageDetachVolumes:   phrase.TextIf(attached, "waits until the volumes of node %s are detached", f.NodeName),
		StageDeleteInstance:  phrase.TextIf(f.AbandonReason == "", "the instance is to be deleted"),
		StageDeleteNode:      phrase.TextIf(f.NodeName != "", "the instance is gone; node %s is to be deleted", f.NodeName),
		StageRemoveFinalizer: "instance and node are gone; our finalizer is to be removed",
	}[s]}
}

// ownershipDoubtStep stops a stage because the owner of the node is in doubt. If SkipDrainReason is set, the deletion
// continues without the node.
func (f Facts) ownershipDoubtStep() Step {
	if f.SkipDrainReason != "" {
		return Step{}
	}
	return Step{Why: f.Owner.Why, BlockedBy: []string{vocabulary.BlockedByOwnershipDoubt}, Ask: f.Owner.Ask}
}

// reasonNotToDrain returns why the node is not drained; empty: the node is drained. While the owner of the node is in
// doubt, only an operator can skip the drain.
func (f Facts) reasonNotToDrain() string {
	if f.Owner.HasOwnerKind(ownership.OwnerInDoubt) {
		return f.SkipDrainReason
	}
	return cmp.Or(
		phrase.TextIf(
			f.Owner.HasOwnerKind(ownership.OwnerOther) || f.Owner.HasOwnerKind(ownership.OwnerNone),
			"%s",
			f.Owner.Why,
		),
		phrase.TextIf(f.NodeName == "" && !f.NodeUnknown, "the machine never had a node"),
		phrase.TextIf(!f.HasNode && !f.NodeUnknown, "there is no node %s", f.NodeName),
		f.SkipDrainReason,
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
