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
	Set      *Target // nil: no set has the revision, and only spec.rollbackTo is cleared
	Revision int64
	// Reason is the reason of the event: DeploymentRollback, DeploymentRollbackRevisionNotFound,
	// DeploymentRollbackTemplateUnchanged or DeploymentRollbackTemplateNotFound.
	Reason string
	Why    string
}

// requestedRollback returns the rollback for spec.rollbackTo; nil: no rollback was requested.
func (p *planner) requestedRollback() *Rollback {
	if p.o.RollbackTo == nil {
		return nil
	}
	switch set := p.setOfRevision(*p.o.RollbackTo); {
	case set == nil:
		why := fmt.Sprintf("there is no set of revision %d to return to", *p.o.RollbackTo)
		return &Rollback{Revision: *p.o.RollbackTo, Reason: "DeploymentRollbackRevisionNotFound", Why: why}
	case set.Current, set.Twin():
		why := fmt.Sprintf("revision %d has the deployment's present template", set.Revision)
		return &Rollback{Revision: set.Revision, Reason: "DeploymentRollbackTemplateUnchanged", Why: why}
	case set.Lacks() != "":
		why := fmt.Sprintf("revision %d cannot return: %s does not exist any more", set.Revision, set.Lacks())
		return &Rollback{Revision: set.Revision, Reason: vocabulary.ReasonDeploymentRollbackTemplateNotFound, Why: why}
	default:
		return &Rollback{
			Set:      new(set.target("its template returns")),
			Revision: set.Revision,
			Reason:   vocabulary.ReasonDeploymentRollback,
			Why:      fmt.Sprintf("return to revision %d, set %s", set.Revision, set.Name),
		}
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
	return list.Find(sets, func(set *setPlan) bool { return revision != 0 && set.Revision == revision })
}

// maxHistoryEntries is how many old revisions a set keeps in its annotation. Source: ours; MCM's list is unbounded, and
// an object's annotations may have 256 KiB in all.
const maxHistoryEntries = 20

// Revise sets the revision of the template's set.
type Revise struct {
	Target
	Revision int64
	History  string // the set's last old revisions
}

// highestRevision returns the revision that the template's set has or gets: the highest revision of all sets.
func (p *planner) highestRevision() int64 {
	revision := int64(1)
	for _, s := range p.o.Sets {
		if p.template == nil || s.UID != p.template.UID {
			s.Revision++ // the revision of the template's set exceeds the revision of each other set
		}
		revision = max(revision, s.Revision)
	}
	return revision
}

// reviseTemplateSet gives the template's set the highest revision. The history gets an entry only if the revision changes.
func (p *planner) reviseTemplateSet() *Revise {
	revision := p.highestRevision()
	if p.template == nil || p.template.Revision == revision {
		return nil
	}
	former := phrase.If(p.template.Revision > 0, "%d", p.template.Revision)
	history := phrase.Parts(append(strings.Split(p.template.History, ","), former)...)
	history = history[max(len(history)-maxHistoryEntries, 0):]
	return &Revise{p.template.target(fmt.Sprintf("it is revision %d now", revision)), revision, strings.Join(history, ",")}
}

// setsBeyondHistory returns the old sets without machines beyond the history limit, from the lowest revision to the
// highest.
func (p *planner) setsBeyondHistory() []Target {
	if p.o.HistoryLimit == nil {
		return nil
	}
	old := list.Where(p.oldSets(), func(set *setPlan) bool { return set != p.template }) // a pin needs the template's set
	slices.SortStableFunc(old, func(x, y *setPlan) int { return cmp.Compare(x.Revision, y.Revision) })
	empty := func(set *setPlan) bool {
		return set.size == 0 && set.Replicas == 0 && len(set.Machines) == 0 && set.Counted == 0 && set.ActedOn == 0
	}
	why := fmt.Sprintf("%d old sets are kept", *p.o.HistoryLimit)
	return targets(list.Where(old[:max(len(old)-max(*p.o.HistoryLimit, 0), 0)], empty), why)
}

// PausePoint is a rollout step that has its machines but has not ended.
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
	return at.Reached() + ", waits " +
		cmp.Or(phrase.If(at.Approve, "for approval"), "until "+phrase.Clock(at.Until, now))
}

// Reached returns a clause with the revision, and the step's number and size. The clause does not say how long the step
// waits.
func (at *PausePoint) Reached() string {
	return fmt.Sprintf(
		"revision %d: step %d of %d done (%d of %s)", at.Rolls, at.Step+1, at.Of, at.Size, machineCount(at.All),
	)
}

// progress returns the updated record of the template's revision, and its pause point, if any. progress sets stepTarget
// to the number of new machines that the current step requires. While a pin is in force, the record stays, and all steps
// are skipped.
func (p *planner) progress() (Progress, *PausePoint) {
	record := p.o.Progress
	if p.current == nil || p.pin != nil {
		return record, nil
	}
	if p.isNewAttempt() {
		record = Progress{Revision: p.highestRevision(), Attempt: p.attempt(), Good: record.Good}
	}
	pause := p.advanceStep(&record)
	// A complete rollout without machines proves nothing about the template.
	if record.Completed.IsZero() && p.o.Replicas > 0 && p.isComplete() {
		record.Completed, record.Good = p.o.Now.Truncate(time.Second), p.template.UID
	}
	if p.isArmed(record) {
		record.Failed = p.addFailed(record)
	}
	return record, pause
}

// attempt returns the number of retries of the template's revision.
func (p *planner) attempt() int {
	if p.o.Progress.Revision == p.highestRevision() {
		return max(p.o.Retry, p.o.Progress.Attempt)
	}
	return p.o.Retry
}

// advanceStep advances the record to the current rollout step, and returns the step's pause point, if any.
func (p *planner) advanceStep(record *Progress) *PausePoint {
	if !p.o.usesSteps() || !p.hasOldMachines() {
		return nil
	}
	for ; record.Step < len(p.o.Steps); record.Step, record.Reached = record.Step+1, (time.Time{}) {
		step := p.o.Steps[record.Step]
		if record.Step < p.o.Approved { // an approved step is skipped even if it lacks machines
			continue
		}
		p.stepTarget = min(step.Size.Of(p.o.Replicas, true), p.o.Replicas)
		if record.Reached.IsZero() {
			over := sumOver(p.sets, sizeOf) > p.o.Replicas && p.o.Strategy == RollingUpdate
			if over || p.current.availableMachines < p.stepTarget {
				return nil
			}
			record.Reached = p.o.Now.Truncate(time.Second)
		}
		at := &PausePoint{
			Step: record.Step, Of: len(p.o.Steps), Size: p.stepTarget, All: p.o.Replicas, Rolls: record.Revision,
			Approve: step.Approve,
		}
		if !step.Approve {
			at.Until = record.Reached.Add(step.Wait)
		}
		if step.Approve || p.o.Now.Before(at.Until) {
			return at
		}
	}
	p.stepTarget = p.o.Replicas
	return nil
}

// hasOldMachines reports whether machines of other templates exist.
func (p *planner) hasOldMachines() bool {
	return sumOver(
		p.oldSets(),
		func(set *setPlan) int { return max(set.size, set.activeMachines+set.terminatingMachines) },
	) > 0
}

// addFailed adds new machines that failed to the record's names, up to MaxFailed + 1 names in all. If MaxFailed does not
// apply, addFailed adds no name. Recorded names stay.
func (p *planner) addFailed(record Progress) []string {
	if !p.o.Automatic.Failed {
		return record.Failed
	}
	names := slices.Clone(record.Failed)
	recorded := list.Set(names, list.Identity)
	for _, m := range p.template.Machines {
		counts := m.Failed && p.blamesTemplate(m, !record.Completed.IsZero())
		if counts && !recorded[m.Name] && len(names) <= p.o.Automatic.MaxFailed {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names
}
