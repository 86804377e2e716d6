package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Rollback writes an old set's template into the deployment, and clears spec.rollbackTo.
type Rollback struct {
	Set      *ObjectTarget // nil: no set has the revision, and only spec.rollbackTo is cleared
	Revision int64
	// Reason is the reason of the event: DeploymentRollback, DeploymentRollbackRevisionNotFound,
	// DeploymentRollbackTemplateUnchanged, DeploymentRollbackTemplateNotFound or DeploymentRollbackTemplateOwned.
	Reason string
	Why    string
}

// requestedRollback returns the rollback for spec.rollbackTo; nil: no rollback was requested.
func (p *planner) requestedRollback() *Rollback {
	if p.facts.RollbackTo == nil {
		return nil
	}
	switch set := p.setByRevision(*p.facts.RollbackTo); {
	case set == nil:
		why := fmt.Sprintf("there is no set of revision %d to return to", *p.facts.RollbackTo)
		return &Rollback{Revision: *p.facts.RollbackTo, Reason: "DeploymentRollbackRevisionNotFound", Why: why}
	case set.Current, set.IsTemplateDuplicate():
		why := fmt.Sprintf("revision %d has the deployment's present template", set.Revision)
		return &Rollback{Revision: set.Revision, Reason: "DeploymentRollbackTemplateUnchanged", Why: why}
	case p.foreignTemplateReason() != "":
		return &Rollback{Revision: set.Revision, Reason: "DeploymentRollbackTemplateOwned", Why: p.foreignTemplateReason()}
	case set.MissingObject() != "":
		why := fmt.Sprintf("revision %d cannot return: %s does not exist any more", set.Revision, set.MissingObject())
		return &Rollback{Revision: set.Revision, Reason: vocabulary.ReasonDeploymentRollbackTemplateNotFound, Why: why}
	default:
		return &Rollback{
			Set:      new(set.asTarget("its template returns")),
			Revision: set.Revision,
			Reason:   vocabulary.ReasonDeploymentRollback,
			Why:      fmt.Sprintf("return to revision %d, set %s", set.Revision, set.Name),
		}
	}
}

// setByRevision returns the set of a revision. For revision 0, setByRevision returns the set with the second highest
// revision. Source: MCM. setByRevision ignores sets that are being deleted.
func (p *planner) setByRevision(revision int64) *setPlan {
	sets := slices.Clone(p.sets)
	slices.SortStableFunc(sets, func(x, y *setPlan) int { return cmp.Compare(y.Revision, x.Revision) })
	if revision == 0 && len(sets) > 1 {
		return sets[1]
	}
	return list.FindFirst(sets, func(set *setPlan) bool { return revision != 0 && set.Revision == revision })
}

// maxHistoryEntries is how many old revisions a set keeps in its annotation. Source: own choice; MCM's list is
// unbounded, and an object's annotations may have 256 KiB in all.
const maxHistoryEntries = 20

// RevisionChange sets the revision of the template's set.
type RevisionChange struct {
	ObjectTarget
	Revision int64
	History  string // the latest old revisions of the set
}

// highestRevision returns the highest revision of all sets, which the template's set has or will get.
func (p *planner) highestRevision() int64 {
	revision := int64(1)
	for _, s := range p.facts.Sets {
		if p.templateSet == nil || s.UID != p.templateSet.UID {
			s.Revision++ // the revision of the template's set exceeds the revision of each other set
		}
		revision = max(revision, s.Revision)
	}
	return revision
}

// reviseTemplateSet gives the template's set the highest revision. The history gets an entry only if the revision
// changes.
func (p *planner) reviseTemplateSet() *RevisionChange {
	revision := p.highestRevision()
	if p.templateSet == nil || p.templateSet.Revision == revision {
		return nil
	}
	former := phrase.TextIf(p.templateSet.Revision > 0, "%d", p.templateSet.Revision)
	history := phrase.NonEmptyTexts(append(strings.Split(p.templateSet.History, ","), former)...)
	history = history[max(len(history)-maxHistoryEntries, 0):]
	return &RevisionChange{
		p.templateSet.asTarget(fmt.Sprintf("it is revision %d now", revision)),
		revision,
		strings.Join(history, ","),
	}
}

// setsBeyondHistoryLimit returns the old sets that have no machines and exceed the history limit, from the lowest
// revision to the highest.
func (p *planner) setsBeyondHistoryLimit(record Progress) []ObjectTarget {
	if p.facts.HistoryLimit == nil {
		return nil
	}
	good := p.lastGoodSet() // an automatic rollback needs the set good, and a pin needs the set of the template
	old := list.Filter(p.oldSets(), func(set *setPlan) bool {
		return set != p.templateSet && (set != good || !p.isAutoRollbackActive(record))
	})
	slices.SortStableFunc(old, func(x, y *setPlan) int { return cmp.Compare(x.Revision, y.Revision) })
	empty := func(set *setPlan) bool {
		return set.size == 0 && set.Replicas == 0 && len(set.Machines) == 0 && set.StatusMachineCount == 0 &&
			set.ObservedReplicas == 0
	}
	why := fmt.Sprintf("%d old sets are kept", *p.facts.HistoryLimit)
	return targetsOfSets(list.Filter(old[:max(len(old)-max(*p.facts.HistoryLimit, 0), 0)], empty), why)
}

// PausePoint is a rollout step that has all its machines but has not ended.
type PausePoint struct {
	Step    int       // index of the step, from 0
	Of      int       // number of steps
	Size    int       // number of new machines
	All     int       // number of machines after the rollout
	Rolls   int64     // revision that is being rolled out
	Approve bool      // a person must approve the end of the step
	Until   time.Time // time at which the step ends by itself; zero: never
}

func (at *PausePoint) waitSentence(now time.Time) string {
	return at.ReachedClause() + ", waits " +
		cmp.Or(phrase.TextIf(at.Approve, "for approval"), "until "+phrase.ClockText(at.Until, now))
}

// ReachedClause returns a clause with the revision, and the step's number and size. The clause does not say how long
// the step waits.
func (at *PausePoint) ReachedClause() string {
	return fmt.Sprintf(
		"revision %d: step %d of %d done (%d of %s)", at.Rolls, at.Step+1, at.Of, at.Size, machineCountText(at.All),
	)
}

// currentProgress returns the updated record of the template's revision, and its pause point, if any. currentProgress
// sets stepMachineCount to the number of new machines that the current step requires. While a pin is in force, the
// record does not change, and all steps are skipped.
func (p *planner) currentProgress() (Progress, *PausePoint) {
	record := p.facts.Progress
	record.Turn = p.turn
	if p.currentSet == nil || p.pin != nil || p.turnWait != nil {
		return record, nil
	}
	if p.isNewAttempt() {
		record = p.newAttemptProgress()
	}
	pause := p.advanceStep(&record)
	// A complete rollout without machines proves nothing about the template.
	if record.Completed.IsZero() && p.facts.Replicas > 0 && p.isComplete() {
		if record.Good != p.templateSet.Name {
			record.Good, record.FormerGood = p.templateSet.Name, record.Good
		}
		record.Completed = p.facts.Now.Truncate(time.Second)
	}
	if p.isAutoRollbackActive(record) {
		record.Failed = p.addFailedMachines(record)
	}
	return record, pause
}

// newAttemptProgress returns the record for a new attempt.
func (p *planner) newAttemptProgress() Progress {
	was := p.facts.Progress
	record := Progress{
		Revision: p.highestRevision(),
		Set:      p.templateSet.Name,
		Attempt:  p.retryCount(),
		Good:     was.Good,
		Turn:     p.turn,
	}
	if was.Set == record.Set && was.Revision == record.Revision {
		for _, m := range p.templateSet.Machines {
			record.FormerMachines = phrase.LaterTime(record.FormerMachines, m.CreatedAt)
		}
	}
	return record
}

// retryCount returns the number of retries of the template's revision. A set that gets the revision of a deleted set
// starts with a higher number than the deleted set had.
func (p *planner) retryCount() int {
	switch r := p.facts.Progress; {
	case r.Revision != p.highestRevision():
		return p.facts.RetryCount
	case r.Set != "" && r.Set != p.templateSet.Name:
		return max(p.facts.RetryCount, r.Attempt+1)
	default:
		return max(p.facts.RetryCount, r.Attempt)
	}
}

// advanceStep advances the record to the current rollout step, and returns the step's pause point, if any.
func (p *planner) advanceStep(record *Progress) *PausePoint {
	if !p.facts.usesSteps() || !p.hasOldMachines() {
		return nil
	}
	for ; record.Step < len(p.facts.Steps); record.Step, record.Reached = record.Step+1, (time.Time{}) {
		step := p.facts.Steps[record.Step]
		if record.Step < p.facts.ApprovedStepCount { // an approved step is skipped even if some of its machines do not exist
			continue
		}
		p.stepMachineCount = min(step.Size.ScaledValue(p.facts.Replicas, true), p.facts.Replicas)
		if record.Reached.IsZero() {
			over := sumOverSets(p.sets, sizeOfSet) > p.facts.Replicas && p.facts.Strategy == RollingUpdate
			if over || p.currentSet.availableMachineCount < p.stepMachineCount {
				return nil
			}
			record.Reached = p.facts.Now.Truncate(time.Second)
		}
		at := &PausePoint{
			Step: record.Step, Of: len(p.facts.Steps), Size: p.stepMachineCount, All: p.facts.Replicas, Rolls: record.Revision,
			Approve: step.NeedsApproval,
		}
		if !step.NeedsApproval {
			at.Until = record.Reached.Add(step.Wait)
		}
		if step.NeedsApproval || p.facts.Now.Before(at.Until) {
			return at
		}
	}
	p.stepMachineCount = p.facts.Replicas
	return nil
}

// hasOldMachines reports whether machines of other templates exist.
func (p *planner) hasOldMachines() bool {
	return sumOverSets(
		p.oldSets(),
		func(set *setPlan) int { return max(set.size, set.activeMachineCount+set.terminatingMachineCount) },
	) > 0
}

// addFailedMachines adds the names of failed new machines to the record, up to MaxFailed + 1 names in all. If MaxFailed
// does not apply, addFailedMachines adds no name. Recorded names stay.
func (p *planner) addFailedMachines(record Progress) []string {
	if !p.facts.RollbackPolicy.HasMaxFailed {
		return record.Failed
	}
	names := slices.Clone(record.Failed)
	recorded := list.KeySet(names, list.Identity)
	for _, m := range p.templateSet.Machines {
		counts := m.Failed && p.isTemplateAtFault(m, !record.Completed.IsZero()) &&
			(record.FormerMachines.IsZero() || m.CreatedAt.After(record.FormerMachines))
		if counts && !recorded[m.Name] && len(names) <= p.facts.RollbackPolicy.MaxFailed {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names
}
