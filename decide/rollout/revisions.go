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

// Rollback puts a former set's template into the deployment, and clears spec.rollbackTo.
type Rollback struct {
	Set      *Target // nil: there is no set to return to, and only spec.rollbackTo is cleared
	Revision int64
	// Reason of the event: DeploymentRollback, DeploymentRollbackRevisionNotFound, DeploymentRollbackTemplateUnchanged or
	// DeploymentRollbackTemplateNotFound.
	Reason    string
	Automatic bool
	Why       string
}

// asked returns the answer to spec.rollbackTo; nil: no rollback was requested.
func (p *planner) asked() *Rollback {
	if p.o.RollbackTo == nil {
		return nil
	}
	switch set := p.former(*p.o.RollbackTo); {
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
		return set.rollback("")
	}
}

// rollback returns to the template of a set; because is the reason of an automatic rollback.
func (set *setPlan) rollback(because string) *Rollback {
	return &Rollback{
		Set:       new(set.target("its template returns")),
		Revision:  set.Revision,
		Reason:    vocabulary.ReasonDeploymentRollback,
		Automatic: because != "",
		Why:       fmt.Sprintf("return to revision %d, set %s%s", set.Revision, set.Name, because),
	}
}

// former returns the set of a revision, or for 0 the set of the second highest revision. Source: MCM. Sets that are
// being deleted do not count.
func (p *planner) former(revision int64) *setPlan {
	sets := slices.Clone(p.sets)
	slices.SortStableFunc(sets, func(x, y *setPlan) int { return cmp.Compare(y.Revision, x.Revision) })
	if revision == 0 && len(sets) > 1 {
		return sets[1]
	}
	return list.Find(sets, func(set *setPlan) bool { return revision != 0 && set.Revision == revision })
}

// automatic rolls back a revision that fails, if the policy says so. A template restored by an automatic rollback is
// not rolled back automatically again: two bad revisions would alternate for ever.
func (p *planner) automatic(failed []string) *Rollback {
	if p.o.Stopped() != "" || p.current.UID == p.o.RolledBackTo || p.complete() {
		return nil
	}
	a, why := p.o.Automatic, ""
	switch {
	case a.Failed && len(failed) > a.MaxFailed:
		why = fmt.Sprintf("%s of the new template failed, %d allowed", machines(len(failed)), a.MaxFailed)
	case a.OnDeadline && p.late():
		why = fmt.Sprintf("no progress for %s", phrase.Length(p.o.Deadline.Round(time.Second)))
	}
	// only sets of another template whose objects exist
	old := slices.DeleteFunc(p.old(), func(set *setPlan) bool { return set.Current || set.Twin() || set.Lacks() != "" })
	if why == "" || len(old) == 0 {
		return nil
	}
	last := slices.MaxFunc(old, func(x, y *setPlan) int { return cmp.Compare(x.Revision, y.Revision) })
	return last.rollback(": " + why)
}

// longestHistory is how many former revisions a set keeps in its annotation. Source: ours; MCM's list is unbounded, and
// annotations may have 256 KiB in all.
const longestHistory = 20

// Revise gives the current set its revision.
type Revise struct {
	Target
	Revision int64
	History  string // its last former revisions
}

// revision returns the revision that the current set has or should have: the highest of all.
func (p *planner) revision() int64 {
	revision := int64(1)
	for _, s := range p.o.Sets {
		if p.current == nil || s.UID != p.current.UID {
			s.Revision++ // higher than that of any other set
		}
		revision = max(revision, s.Revision)
	}
	return revision
}

// revise gives the current set the highest revision. Only a new number adds an entry to the history.
func (p *planner) revise() *Revise {
	revision := p.revision()
	if p.current == nil || p.current.Revision == revision {
		return nil
	}
	former := phrase.If(p.current.Revision > 0, "%d", p.current.Revision)
	history := phrase.Parts(append(strings.Split(p.current.History, ","), former)...)
	history = history[max(len(history)-longestHistory, 0):]
	return &Revise{p.current.target(fmt.Sprintf("it is revision %d now", revision)), revision, strings.Join(history, ",")}
}

// cleanup returns old sets without machines that exceed the history limit, the lowest revision first.
func (p *planner) cleanup() []Target {
	if p.o.HistoryLimit == nil {
		return nil
	}
	old := p.old()
	slices.SortStableFunc(old, func(x, y *setPlan) int { return cmp.Compare(x.Revision, y.Revision) })
	empty := func(set *setPlan) bool {
		return set.size == 0 && set.Replicas == 0 && len(set.Machines) == 0 && set.Counted == 0 && set.ActedOn == 0
	}
	why := fmt.Sprintf("%d old sets are kept", *p.o.HistoryLimit)
	return targets(list.Where(old[:max(len(old)-max(*p.o.HistoryLimit, 0), 0)], empty), why)
}

// PausePoint is a rollout step that has its machines and is not over.
type PausePoint struct {
	Step    int       // from 0
	Of      int       // steps in all
	Size    int       // number of new machines
	Approve bool      // a person has to approve its end
	Until   time.Time // when it ends by itself; zero: never
}

func (at *PausePoint) says(now time.Time) string {
	return at.Reached() + " and waits until " +
		cmp.Or(phrase.If(at.Approve, "a person passes it"), phrase.Clock(at.Until, now))
}

// Reached says which step has its machines, without until when it waits.
func (at *PausePoint) Reached() string {
	return fmt.Sprintf("step %d of %d has its %s", at.Step+1, at.Of, machines(at.Size))
}

// progress returns the updated record of the revision being rolled out, and its pause point, if any. It sets target to
// the number of new machines that the current step wants.
func (p *planner) progress() (Progress, *PausePoint) {
	record := p.o.Progress
	if p.current == nil {
		return record, nil
	}
	if revision := p.revision(); record.Revision != revision {
		record = Progress{Revision: revision}
	}
	record.Failed = p.failures(record.Failed)
	if !p.o.stepped() || !p.underway() {
		return record, nil
	}
	for ; record.Step < len(p.o.Steps); record.Step, record.Reached = record.Step+1, (time.Time{}) {
		step := p.o.Steps[record.Step]
		if record.Step < p.o.Approved { // approved, whether or not it has its machines
			continue
		}
		p.target = min(step.Size.Of(p.o.Replicas, true), p.o.Replicas)
		if record.Reached.IsZero() {
			over := sum(p.sets, size) > p.o.Replicas && p.o.Strategy == RollingUpdate
			if over || p.current.available < p.target {
				return record, nil
			}
			record.Reached = p.o.Now.Truncate(time.Second)
		}
		at := &PausePoint{Step: record.Step, Of: len(p.o.Steps), Size: p.target, Approve: step.Approve}
		if !step.Approve {
			at.Until = record.Reached.Add(step.Wait)
		}
		if step.Approve || p.o.Now.Before(at.Until) {
			return record, at
		}
	}
	p.target = p.o.Replicas
	return record, nil
}

// underway reports whether there are machines of other templates.
func (p *planner) underway() bool {
	return sum(p.old(), func(set *setPlan) int { return max(set.size, set.active+set.terminating) }) > 0
}

// failures adds new machines that failed to the known names, up to MaxFailed + 1 names in all. If MaxFailed does not
// apply, it adds none. Known names stay.
func (p *planner) failures(known []string) []string {
	if !p.o.Automatic.Failed {
		return known
	}
	known = slices.Clone(known)
	recorded := list.Set(known, list.Identity)
	for _, m := range p.current.Machines {
		if m.Failed && !recorded[m.Name] && len(known) <= p.o.Automatic.MaxFailed {
			known = append(known, m.Name)
		}
	}
	slices.Sort(known)
	return known
}
