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
	// DeploymentRollbackTemplateUnchanged or DeploymentRollbackTemplateNotFound.
	Reason    string
	Automatic bool
	Why       string
}

// requestedRollback returns the rollback for spec.rollbackTo; nil: no rollback was requested.
func (p *planner) requestedRollback() *Rollback {
	if p.facts.RollbackTo == nil {
		return nil
	}
	switch set := p.setOfRevision(*p.facts.RollbackTo); {
	case set == nil:
		why := fmt.Sprintf("there is no set of revision %d to return to", *p.facts.RollbackTo)
		return &Rollback{Revision: *p.facts.RollbackTo, Reason: "DeploymentRollbackRevisionNotFound", Why: why}
	case set.Current, set.IsTwin():
		why := fmt.Sprintf("revision %d has the deployment's present template", set.Revision)
		return &Rollback{Revision: set.Revision, Reason: "DeploymentRollbackTemplateUnchanged", Why: why}
	case set.MissingObject() != "":
		why := fmt.Sprintf("revision %d cannot return: %s does not exist any more", set.Revision, set.MissingObject())
		return &Rollback{Revision: set.Revision, Reason: vocabulary.ReasonDeploymentRollbackTemplateNotFound, Why: why}
	default:
		return set.rollbackToSet("")
	}
}

// rollbackToSet returns the rollback to a set's template. because is the reason of an automatic rollback.
func (set *setPlan) rollbackToSet(because string) *Rollback {
	return &Rollback{
		Set:       new(set.asTarget("its template returns")),
		Revision:  set.Revision,
		Reason:    vocabulary.ReasonDeploymentRollback,
		Automatic: because != "",
		Why:       fmt.Sprintf("return to revision %d, set %s%s", set.Revision, set.Name, because),
	}
}

// setOfRevision returns the set of a revision. For revision 0, it returns the set with the second highest revision.
// Source: MCM. Sets that are being deleted do not count.
func (p *planner) setOfRevision(revision int64) *setPlan {
	sets := slices.Clone(p.sets)
	slices.SortStableFunc(sets, func(x, y *setPlan) int { return cmp.Compare(y.Revision, x.Revision) })
	if revision == 0 && len(sets) > 1 {
		return sets[1]
	}
	return list.FindFirst(sets, func(set *setPlan) bool { return revision != 0 && set.Revision == revision })
}

// automaticRollback returns the rollback of a failed revision if the policy requires one. A template restored by an
// automatic rollback is not rolled back automatically again: two bad revisions would alternate for ever.
func (p *planner) automaticRollback(failed []string) *Rollback {
	if p.facts.StopReason() != "" || p.current.UID == p.facts.RolledBackTo || p.isComplete() {
		return nil
	}
	a, why := p.facts.Automatic, ""
	switch {
	case a.Failed && len(failed) > a.MaxFailed:
		why = fmt.Sprintf("%s of the new template failed, %d allowed", machineCount(len(failed)), a.MaxFailed)
	case a.OnDeadline && p.isLate():
		why = fmt.Sprintf("no progress for %s", phrase.DurationText(p.facts.Deadline.Round(time.Second)))
	}
	// An automatic rollback returns only to another template whose objects exist.
	old := slices.DeleteFunc(
		p.oldSets(),
		func(set *setPlan) bool { return set.Current || set.IsTwin() || set.MissingObject() != "" },
	)
	if why == "" || len(old) == 0 {
		return nil
	}
	last := slices.MaxFunc(old, func(x, y *setPlan) int { return cmp.Compare(x.Revision, y.Revision) })
	return last.rollbackToSet(": " + why)
}

// maxHistoryEntries is how many old revisions a set keeps in its annotation. Source: own choice; MCM's list is
// unbounded, and an object's annotations may have 256 KiB in all.
const maxHistoryEntries = 20

// RevisionChange sets the revision of the current set.
type RevisionChange struct {
	ObjectTarget
	Revision int64
	History  string // the set's last old revisions
}

// highestRevision returns the revision that the current set has or gets: the highest revision of all sets.
func (p *planner) highestRevision() int64 {
	revision := int64(1)
	for _, s := range p.facts.Sets {
		if p.current == nil || s.UID != p.current.UID {
			s.Revision++ // the current set's revision exceeds each other set's revision
		}
		revision = max(revision, s.Revision)
	}
	return revision
}

// revisionChangeOfCurrentSet gives the current set the highest revision. The history gets an entry only if the revision
// changes.
func (p *planner) revisionChangeOfCurrentSet() *RevisionChange {
	revision := p.highestRevision()
	if p.current == nil || p.current.Revision == revision {
		return nil
	}
	former := phrase.TextIf(p.current.Revision > 0, "%d", p.current.Revision)
	history := phrase.NonEmptyTexts(append(strings.Split(p.current.History, ","), former)...)
	history = history[max(len(history)-maxHistoryEntries, 0):]
	return &RevisionChange{
		p.current.asTarget(fmt.Sprintf("it is revision %d now", revision)),
		revision,
		strings.Join(history, ","),
	}
}

// setsBeyondHistory returns the old sets without machines beyond the history limit, from the lowest revision to the
// highest.
func (p *planner) setsBeyondHistory() []ObjectTarget {
	if p.facts.HistoryLimit == nil {
		return nil
	}
	old := p.oldSets()
	slices.SortStableFunc(old, func(x, y *setPlan) int { return cmp.Compare(x.Revision, y.Revision) })
	empty := func(set *setPlan) bool {
		return set.size == 0 && set.Replicas == 0 && len(set.Machines) == 0 && set.Counted == 0 && set.ActedOn == 0
	}
	why := fmt.Sprintf("%d old sets are kept", *p.facts.HistoryLimit)
	return targetsOfSets(list.Filter(old[:max(len(old)-max(*p.facts.HistoryLimit, 0), 0)], empty), why)
}

// PausePoint is a rollout step that has its machines but has not ended.
type PausePoint struct {
	Step    int       // index of the step, from 0
	Of      int       // number of steps
	Size    int       // number of new machines
	Approve bool      // a person must approve the end of the step
	Until   time.Time // time at which the step ends by itself; zero: never
}

func (at *PausePoint) waitSentence(now time.Time) string {
	return at.ReachedClause() + " and waits until " +
		cmp.Or(phrase.TextIf(at.Approve, "a person passes it"), phrase.ClockText(at.Until, now))
}

// ReachedClause returns a clause with the step's number and size. The clause does not say how long the step waits.
func (at *PausePoint) ReachedClause() string {
	return fmt.Sprintf("step %d of %d has its %s", at.Step+1, at.Of, machineCount(at.Size))
}

// currentProgress returns the updated record of the revision being rolled out, and its pause point, if any.
// currentProgress sets stepTarget to the number of new machines that the current step requires.
func (p *planner) currentProgress() (Progress, *PausePoint) {
	record := p.facts.Progress
	if p.current == nil {
		return record, nil
	}
	if revision := p.highestRevision(); record.Revision != revision {
		record = Progress{Revision: revision}
	}
	record.Failed = p.addFailedMachines(record.Failed)
	if !p.facts.usesSteps() || !p.hasOldMachines() {
		return record, nil
	}
	for ; record.Step < len(p.facts.Steps); record.Step, record.Reached = record.Step+1, (time.Time{}) {
		step := p.facts.Steps[record.Step]
		if record.Step < p.facts.Approved { // an approved step is skipped even if it lacks machines
			continue
		}
		p.stepTarget = min(step.Size.CountOfTotal(p.facts.Replicas, true), p.facts.Replicas)
		if record.Reached.IsZero() {
			over := sumOverSets(p.sets, sizeOfSet) > p.facts.Replicas && p.facts.Strategy == RollingUpdate
			if over || p.current.availableMachines < p.stepTarget {
				return record, nil
			}
			record.Reached = p.facts.Now.Truncate(time.Second)
		}
		at := &PausePoint{Step: record.Step, Of: len(p.facts.Steps), Size: p.stepTarget, Approve: step.Approve}
		if !step.Approve {
			at.Until = record.Reached.Add(step.Wait)
		}
		if step.Approve || p.facts.Now.Before(at.Until) {
			return record, at
		}
	}
	p.stepTarget = p.facts.Replicas
	return record, nil
}

// hasOldMachines reports whether machines of other templates exist.
func (p *planner) hasOldMachines() bool {
	return sumOverSets(
		p.oldSets(),
		func(set *setPlan) int { return max(set.size, set.activeMachines+set.terminatingMachines) },
	) > 0
}

// addFailedMachines adds new machines that failed to the known names, up to MaxFailed + 1 names in all. If MaxFailed
// does not apply, addFailedMachines adds no name. addFailedMachines keeps the known names.
func (p *planner) addFailedMachines(known []string) []string {
	if !p.facts.Automatic.Failed {
		return known
	}
	known = slices.Clone(known)
	recorded := list.KeySet(known, list.Identity)
	for _, m := range p.current.Machines {
		if m.Failed && !recorded[m.Name] && len(known) <= p.facts.Automatic.MaxFailed {
			known = append(known, m.Name)
		}
	}
	slices.Sort(known)
	return known
}
