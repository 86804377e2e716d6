// Package rollout decides the next changes of a deployment, and its status. The changes are the creation of a set, the
// sizes of the sets, changes of nodes, pauses, rollbacks and the completion of a rollout. A decision covers both
// scaling and rollouts. The package does no I/O and imports no API types.
package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"millwright/decide/attention"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// PlanResult is the result of one evaluation of a deployment.
type PlanResult struct {
	Decision           Decision
	Status             Status
	NeedsStatusWrite   bool               // the status differs from Status, or observedGeneration is old, or Thaw is true
	FreezeEnded        bool               // the freeze has ended: the label freeze and the annotation unfreeze must be removed
	PendingWork        attention.Decision // the most urgent pending work
	ReplacementPending bool               // once Status is written, replacements are the most urgent pending work
}

// PlanDeployment plans the next changes of a deployment. A change that must be visible before sizes change gets its own
// decision. All other changes share one decision, because each decision costs one round of activities. The sizes never
// allow more machines than Replicas and surge, unless Replicas became smaller. No decision removes available machines
// below Replicas minus maxUnavailable. The exceptions are Forced resizes, and the strategies Recreate and OnDelete,
// which do not guarantee availability. The order of the facts does not change the plan.
func PlanDeployment(o Facts) PlanResult {
	p := newPlanner(o.SortedCopy())
	plan := PlanResult{Status: p.buildStatus()} // the status must show the sizes from before this decision
	plan.FreezeEnded = o.hasFreezeEnded()
	plan.NeedsStatusWrite = plan.FreezeEnded || o.Generation != o.ObservedGeneration || !o.statusMatches(plan.Status)
	plan.Decision = p.decide()
	left := o.remainingWork(plan.Decision)
	plan.PendingWork, plan.ReplacementPending = o.pendingWork(plan, left), left.Need == attention.NeedReplacement
	return plan
}

// Decide returns the Decision of PlanDeployment.
func Decide(o Facts) Decision { return newPlanner(o.SortedCopy()).decide() }

func (p *planner) decide() Decision {
	d, exclusive := p.exclusiveDecision()
	if !exclusive {
		d = p.decideSizes()
	}
	if p.templateSet != nil && d.Create == nil {
		d.Revision = p.highestRevision()
	}
	d.Pin = p.pin
	return d
}

// statusMatches reports whether the status equals want. Conditions of types that Millwright does not write are not
// compared.
func (o Facts) statusMatches(want Status) bool {
	differs := func(c Condition) bool {
		is := o.reportedCondition(c.Type)
		return is.Status != c.Status || is.Reason != c.Reason || is.Message != c.Message
	}
	over := func(c Condition) bool {
		return slices.Contains(OptionalConditionTypes(), c.Type) &&
			!slices.ContainsFunc(want.Conditions, func(w Condition) bool { return w.Type == c.Type })
	}
	if o.omitsUnavailableCount() {
		want.Counts.Unavailable = o.ReportedStatus.Counts.Unavailable
	}
	return want.Counts == o.ReportedStatus.Counts && slices.Equal(want.FailedNames, o.ReportedStatus.FailedNames) &&
		!slices.ContainsFunc(want.Conditions, differs) && !slices.ContainsFunc(o.ReportedStatus.Conditions, over)
}

// pendingWork returns the deployment's pending work for this plan. left is the work that is still pending after the
// status is written.
func (o Facts) pendingWork(plan PlanResult, left attention.Decision) attention.Decision {
	d, replicas := plan.Decision, plan.Status.Counts.Replicas
	return cmp.Or(
		attention.DecisionIf(o.Deleting && !o.HasFinalizer, attention.NeedNothing, "released: the API server removes it"),
		attention.DecisionIf(o.Orphaning || o.Deleting && o.suspensionReason() != "", attention.NeedDeletion, "%s", d.Why),
		attention.DecisionIf(
			o.Deleting,
			attention.NeedDeletion,
			"deletion was asked for; %s left",
			machineCountText(replicas),
		),
		attention.DecisionIf(
			!o.HasFinalizer && o.suspensionReason() == "",
			attention.NeedScaling,
			"new: our finalizer is missing",
		),
		left.PrecedingDecisionIf(o.Generation != o.ObservedGeneration, attention.NeedScaling,
			"generation %d was not seen yet (last seen: %d)", o.Generation, o.ObservedGeneration),
		left.PrecedingDecisionIf(plan.NeedsStatusWrite && !d.HasActions(), attention.NeedScaling, "status is out of date"),
		left,
	)
}

// remainingWork returns the work that is still pending after the status is written.
func (o Facts) remainingWork(d Decision) attention.Decision {
	calm := attention.Decision{Why: d.Why}
	return cmp.Or(
		attention.DecisionIf(d.HasActions(), attention.NeedScaling, "%s", d.Why),
		attention.DecisionIf(
			d.Rolling && d.HoldBy != HeldByCancel || d.HoldBy == HeldByTurn, attention.NeedRollout, "%s", d.Why,
		),
		o.pendingReplacementWork(),
		calm.PrecedingDecisionIf(!d.Recheck.IsZero(), attention.NeedScaling, "%s; it waits for the time to pass", d.Why),
		calm,
	)
}

// Values of Decision.HoldBy.
const (
	HeldByCancel      = "Held" // a person cancelled the rollout
	HeldByPause       = "Paused"
	HeldByStep        = "Step"
	HeldByMachines    = "Machines"
	HeldByTurn        = "Turn"    // other deployments of the policy are rolled out first
	HeldByInvalidSpec = "Invalid" // the deployment is invalid
)

// tearDownSets deletes all sets of a deployment that is being deleted. With --cascade=orphan, tearDownSets waits until
// the garbage collector has removed the sets' owner references.
func (p *planner) tearDownSets() Decision {
	if p.facts.Orphaning {
		return Decision{
			Why: "deleted with --cascade=orphan: waits until the garbage collector has removed the owner reference of " +
				phrase.CountText(len(p.facts.Sets), "set") + " and the finalizer orphan",
		}
	}
	const why = "the deployment is being deleted"
	d := Decision{
		Done:       len(p.facts.Sets) == 0,
		SetChanges: SetChanges{Delete: targetsOfSets(p.sets, why)},
		Why:        fmt.Sprintf("%s, %s left", why, phrase.CountText(len(p.facts.Sets), "set")),
	}
	if d.limitLists(); len(d.Delete) > 0 {
		d.Why = fmt.Sprintf("delete %s: %s", phrase.CountText(len(d.Delete), "set"), why)
	}
	return d
}

// resizeSets sets each set's size according to the strategy.
func (p *planner) resizeSets() {
	p.acknowledgeMoves()
	if p.stopReason() != "" || p.currentSet == nil {
		p.followReplicas()
		return
	}
	for _, set := range p.sets {
		// A set keeps the machines that were moved to it, even if the template or the strategy has changed since.
		set.raiseSize(
			min(set.handedOverMachineCount(), set.activeMachineCount-set.size),
			"machines that were updated in place are in it now",
		)
	}
	if p.facts.Strategy != RollingUpdate {
		p.assignTransfers(nil)
	}
	switch {
	case p.facts.Strategy == Recreate:
		p.resizeForRecreate()
	case p.facts.Strategy == OnDelete:
		p.resizeForOnDelete()
	case p.facts.isInPlace():
		p.resizeForInPlaceUpdate()
	default:
		p.resizeForRollingUpdate()
	}
}

// decideSizes decides the sizes of the sets and the changes that depend on the sizes.
func (p *planner) decideSizes() Decision {
	record, pause := p.currentProgress()
	p.resizeSets()
	stopped := p.stopReason()
	d := Decision{
		Rolling:  p.hasOldMachines() && p.currentSet != nil,
		NoSet:    p.currentSet == nil,
		Complete: p.isComplete(),
		Pause:    pause,
		Late:     p.isLate(),
		Recheck:  p.progressDeadline(),
	}
	d.Record = p.unrecordedProgress(record)
	p.askExtension(&d)
	p.addResizes(&d)
	if stopped == "" {
		p.decideInPlaceChanges(&d)
	}
	p.taintAndProtectNodes(&d, stopped == "")
	if d.Complete || p.facts.Paused {
		d.Delete = p.setsBeyondHistoryLimit(record)
	}
	d.limitLists()
	if pause != nil {
		d.limitRecheckTime(pause.Until)
	}
	d.limitRecheckTime(p.facts.recheckTime())
	if p.turnWait != nil {
		d.limitRecheckTime(p.turnWait.Until)
	}
	p.setHold(&d, stopped)
	d.Why = p.decisionSentence(d)
	return d
}

// setHold sets HoldBy and Hold to the reason why the rollout waits.
func (p *planner) setHold(d *Decision, stopped string) {
	switch {
	case p.facts.Paused:
		d.HoldBy, d.Hold = HeldByPause, stopped
	case p.facts.HoldReason == "" && p.turnWait != nil:
		d.HoldBy, d.Hold, d.Turn = HeldByTurn, phrase.TruncateText(stopped, maxReasonBytes), p.turnWait
	case stopped != "":
		d.HoldBy, d.Hold = HeldByCancel, phrase.TruncateText(stopped, maxReasonBytes)
	case d.NoSet:
		d.HoldBy, d.Hold = HeldByMachines, phrase.TruncateText(p.facts.CreationProblem.Message, maxReasonBytes)
	case d.Pause != nil:
		d.HoldBy, d.Hold = HeldByStep, d.Pause.waitSentence(p.facts.Now)
	case p.idleReason != "" && len(d.Select)+len(d.Move)+len(d.Ask) == 0:
		d.HoldBy, d.Hold = HeldByMachines, p.idleReason
	}
}

// decisionSentence returns the Why of a decision.
func (p *planner) decisionSentence(d Decision) string {
	return strings.Join(phrase.NonEmptyTexts(p.actionSentence(d), p.blockedPinSentence()), "; ")
}

// actionSentence returns a sentence with the changes of a decision, or with the reason why the decision changes
// nothing.
func (p *planner) actionSentence(d Decision) string {
	why := append(resizeSentences(d.Resize), phrase.NonEmptyTexts(
		phrase.TextIf(
			len(d.Ask) > 0,
			"ask a runtime extension whether it can update the machines of %s in place",
			phrase.CountText(len(d.Ask), "set"),
		),
		phrase.TextIf(len(d.Move) > 0, "hand over %s", machineCountText(len(d.Move))),
		phrase.TextIf(len(d.Select) > 0, "select %s for the in-place update", machineCountText(len(d.Select))),
	)...)
	if n := len(d.Delete); n > 0 {
		why = append(why, fmt.Sprintf("delete %s: %d are kept", phrase.CountText(n, "old set"), *p.facts.HistoryLimit))
	}
	switch {
	case len(why) > 0:
		return strings.Join(why, "; ")
	case d.Hold != "":
		return d.Hold
	case d.Complete:
		return fmt.Sprintf(
			"%s wanted and there, all of revision %d",
			machineCountText(p.facts.Replicas),
			p.currentSet.Revision,
		) +
			phrase.TextIf(
				p.pin != nil,
				"; %s",
				p.degradedCondition().Message,
			)
	default:
		return fmt.Sprintf("%s wanted, %d available", machineCountText(p.facts.Replicas), p.availableMachineCount())
	}
}

// resizeSentences returns one sentence for each changed size, as many as fit into maxSentenceBytes. The last sentence
// gives the number of omitted sizes.
func resizeSentences(resizes []SetResize) []string {
	var why []string
	room, others := maxSentenceBytes, 0
	for _, r := range resizes {
		if r.From == r.To {
			continue
		}
		text := fmt.Sprintf("resize set %s %d→%d: %s", r.Name, r.From, r.To, r.Why)
		if room -= len(text); room < 0 {
			others++
			continue
		}
		why = append(why, text)
	}
	if others > 0 {
		why = append(why, fmt.Sprintf("resize %d other sets", others))
	}
	return why
}

// exclusiveDecision returns a decision that must precede all others; found is false if there is none.
func (p *planner) exclusiveDecision() (d Decision, found bool) {
	switch r, owned := p.requestedRollback(), p.changeOwnership(); {
	case p.facts.suspensionReason() != "":
		why := phrase.TruncateText(p.facts.suspensionReason(), maxReasonBytes)
		return Decision{
			HoldBy: HeldByPause, Hold: why, Complete: p.isComplete(), Why: why, Record: p.recordOfTurn(),
		}, true
	case p.facts.Deleting:
		return p.tearDownSets(), true
	case p.facts.InvalidReason != "":
		why := phrase.TruncateText(p.facts.InvalidReason, maxReasonBytes)
		return Decision{HoldBy: HeldByInvalidSpec, Hold: why, Why: why, Record: p.recordOfTurn()}, true
	case owned.HasActions():
		return owned, true
	case r != nil && !p.facts.Paused:
		return Decision{Rollback: r, Why: r.Why}, true
	case p.takesTurn:
		return p.takeTurn(), true
	}
	if p.facts.markChosenMachines(&d); d.HasActions() {
		d.limitLists()
		d.Why = fmt.Sprintf("mark %s for the cluster autoscaler, unmark %d", machineCountText(len(d.Mark)), len(d.Unmark))
		return d, true
	}
	if d = p.alignSetsWithDeployment(); d.HasActions() {
		return d, true
	}
	if p.currentSet == nil {
		return p.createTemplateSet()
	}
	return p.beginPin()
}

// alignSetsWithDeployment decides which sets may create machines, and copies the deployment's settings to sets that
// differ.
func (p *planner) alignSetsWithDeployment() (d Decision) {
	if p.currentSet != nil {
		if p.decideScaleUp(&d); d.HasActions() {
			d.limitLists()
			d.Why = "allow the current set to create machines, and no old set"
			return d
		}
		d.Revise = p.reviseTemplateSet()
	}
	// The write for Revise also copies the settings.
	drifted := list.Filter(
		p.sets,
		func(set *setPlan) bool { return set.Drifted && (set != p.templateSet || d.Revise == nil) },
	)
	d.Sync = targetsOfSets(drifted, "it differs from the deployment")
	d.limitLists()
	if d.Revise != nil {
		drifted = append(drifted, p.templateSet)
	}
	d.Why = "bring " + phrase.TextIf(len(drifted) != 1, "%s", phrase.CountText(len(drifted), "set"))
	if len(drifted) == 1 {
		d.Why += "set " + drifted[0].Name
	}
	d.Why += " up to date"
	return d
}

// createTemplateSet creates the set of the template, unless the deployment is stopped or must not create sets.
func (p *planner) createTemplateSet() (d Decision, found bool) {
	if p.stopReason() != "" || p.facts.CreationProblem.Reason != "" { // the existing sets follow spec.replicas
		return d, false
	}
	if why := p.facts.creationBlocker(); why != "" {
		return Decision{NoSet: true, HoldBy: HeldByMachines, Hold: why, Why: why}, true
	}
	return p.templateSetCreationDecision(), true
}

// decideScaleUp decides which sets may create machines. The current set may create machines. An old set may create
// machines, unless machines move between sets in place, or people delete old machines (OnDelete).
func (p *planner) decideScaleUp(d *Decision) {
	switch {
	case !p.currentSet.ScaleUpDisabled:
	case p.currentSet.size > p.currentSet.activeMachineCount && sumOverSets(p.sets, p.usedCapacity) > p.facts.Replicas+p.surge:
		// The set transferred machines to another set, and must not create them again.
		p.currentSet.setSize(
			p.currentSet.activeMachineCount,
			fmt.Sprintf("it has %s left", machineCountText(p.currentSet.activeMachineCount)),
		)
		p.addResizes(d)
		return
	default:
		d.AllowScaleUp = append(d.AllowScaleUp, p.currentSet.asTarget("it is the current set"))
	}
	if p.stopReason() != "" || !p.facts.isInPlace() && p.facts.Strategy != OnDelete {
		return
	}
	mayCreate := func(set *setPlan) bool { return !set.ScaleUpDisabled && (set.size > 0 || set.activeMachineCount > 0) }
	d.ForbidScaleUp = targetsOfSets(list.Filter(p.oldSets(), mayCreate), "it is old: its machines are not created again")
}

// templateSetCreationDecision returns the SetCreation of the current template's set, with the size that resizeSets
// gives this set. If a person deleted the set that a pin replaces, templateSetCreationDecision creates it again with
// size 0, because only the set's name shows whether the pin is valid.
func (p *planner) templateSetCreationDecision() Decision {
	current := &setPlan{MachineSet: MachineSet{Name: "the new set", Current: true, Revision: p.highestRevision()}}
	p.templateSet, p.currentSet, p.sets = current, current, append(p.sets, current)
	p.currentProgress()
	p.resizeSets()
	if r := p.facts.Progress; r.Pin != nil && p.setByName(r.Set) == nil {
		current.size = 0
	}
	return Decision{
		SetChanges: SetChanges{
			Create: &SetCreation{
				Replicas: current.size,
				Revision: current.Revision,
				Desired:  p.facts.Replicas,
				Max:      maxReplicas(p.facts),
			},
		},
		Rolling: p.hasOldMachines(),
		Why: fmt.Sprintf(
			"create a set of %s for revision %d: the template has none",
			machineCountText(current.size),
			current.Revision,
		),
	}
}

func machineCountText(n int) string { return phrase.CountText(n, "machine") }
