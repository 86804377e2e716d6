package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Rollback is an order to put a former set's template into the deployment, and to clear spec.rollbackTo.
type Rollback struct {
	Set       *Target // nil: there is nothing to return to, and only rollbackTo is cleared
	Revision  int64
	Reason    string // of the event: DeploymentRollback, DeploymentRollbackRevisionNotFound or DeploymentRollbackTemplateUnchanged
	Automatic bool
	Why       string
}

// asked answers spec.rollbackTo.
func (p *planner) asked() *Rollback {
	if p.o.RollbackTo == nil {
		return nil
	}
	switch set := p.former(*p.o.RollbackTo); {
	case set == nil:
		why := fmt.Sprintf("there is no set of revision %d to return to", *p.o.RollbackTo)
		return &Rollback{Revision: *p.o.RollbackTo, Reason: "DeploymentRollbackRevisionNotFound", Why: why}
	case set.Current:
		why := fmt.Sprintf("revision %d has the template that the deployment has already", set.Revision)
		return &Rollback{Revision: set.Revision, Reason: "DeploymentRollbackTemplateUnchanged", Why: why}
	default:
		return set.rollback("")
	}
}

// rollback returns to the template of a set; because says why, where nobody asked for it.
func (set *setPlan) rollback(because string) *Rollback {
	return &Rollback{
		Set: new(set.target("its template returns")), Revision: set.Revision, Reason: vocabulary.ReasonDeploymentRollback, Automatic: because != "",
		Why: fmt.Sprintf("return to revision %d, set %s%s", set.Revision, set.Name, because),
	}
}

// former returns the set of a revision; of 0, that of the second highest. Source: MCM. Sets that are being deleted do not
// count.
func (p *planner) former(revision int64) *setPlan {
	sets := slices.Clone(p.sets)
	slices.SortStableFunc(sets, func(x, y *setPlan) int { return cmp.Compare(y.Revision, x.Revision) })
	if revision == 0 && len(sets) > 1 {
		return sets[1]
	}
	return list.Find(sets, func(set *setPlan) bool { return revision != 0 && set.Revision == revision })
}

// automatic gives up a revision that does not come about, where that is wanted. What an automatic rollback brought does not
// roll back by itself again: two bad revisions would follow each other for ever.
func (p *planner) automatic(failed []string) *Rollback {
	if p.o.Stopped() != "" || p.current.UID == p.o.RolledBackTo || p.complete() {
		return nil
	}
	a, why := p.o.Automatic, ""
	switch {
	case a.Failed && len(failed) > a.MaxFailed:
		why = fmt.Sprintf("%s of the new template failed, %d may", machines(len(failed)), a.MaxFailed)
	case a.OnDeadline && p.late():
		why = fmt.Sprintf("no progress for %s", p.o.Deadline.Round(time.Second))
	}
	old := slices.DeleteFunc(p.old(), func(set *setPlan) bool { return set.Current }) // a twin would be no return
	if why == "" || len(old) == 0 {
		return nil
	}
	last := slices.MaxFunc(old, func(x, y *setPlan) int { return cmp.Compare(x.Revision, y.Revision) })
	return last.rollback(": " + why)
}

// longestHistory is how many former revisions a set keeps in its annotation. Source: ours; MCM's list has no end, and an
// annotation may have 256 KiB.
const longestHistory = 20

// Revise gives the current set its revision.
type Revise struct {
	Target
	Revision int64
	History  string // its former revisions, the last ones only; as before where the revision does not change
}

// revision returns what the current set's revision is or shall be: the highest of all.
func (p *planner) revision() int64 {
	highest := int64(0)
	for _, s := range p.o.Sets {
		if p.current == nil || s.UID != p.current.UID {
			highest = max(highest, s.Revision)
		}
	}
	if p.current != nil && p.current.Revision > highest {
		return p.current.Revision
	}
	return highest + 1
}

// revise numbers the current set when it is not the highest. Only a new number makes an entry in the history.
func (p *planner) revise() *Revise {
	revision := p.revision()
	if p.current == nil || p.current.Revision == revision {
		return nil
	}
	history := p.current.History
	if p.current.Revision > 0 {
		list := slices.DeleteFunc(strings.Split(history, ","), func(s string) bool { return s == "" })
		list = append(list, strconv.FormatInt(p.current.Revision, 10))
		history = strings.Join(list[max(len(list)-longestHistory, 0):], ",")
	}
	return &Revise{p.current.target(fmt.Sprintf("it is revision %d now", revision)), revision, history}
}

// cleanup returns old sets that nobody needs any more: without machines, and older than those that are kept for an undo.
// The one with the lowest revision goes first.
func (p *planner) cleanup() []Target {
	if p.o.HistoryLimit == nil {
		return nil
	}
	old := p.old()
	slices.SortStableFunc(old, func(x, y *setPlan) int { return cmp.Compare(x.Revision, y.Revision) })
	var useless []Target
	for _, set := range old[:max(len(old)-max(*p.o.HistoryLimit, 0), 0)] {
		empty := set.size == 0 && set.Replicas == 0 && len(set.Machines) == 0 && set.Counted == 0 && set.Seen == 0
		if empty {
			add(&useless, set.target(fmt.Sprintf("%d old sets are kept", *p.o.HistoryLimit)))
		}
	}
	return useless
}

// PausePoint is a step of a rollout that is reached, and what ends it.
type PausePoint struct {
	Step    int       // from 0
	Of      int       // steps in all
	Size    int       // new machines that it has
	Approve bool      // a person has to pass it
	Until   time.Time // when it ends by itself; zero when it does not
}

func (at *PausePoint) says() string {
	until := cmp.Or(phrase.If(at.Approve, "a person passes it"), at.Until.UTC().Format(time.RFC3339))
	return fmt.Sprintf("step %d of %d has its %s and waits until %s", at.Step+1, at.Of, machines(at.Size), until)
}

// progress returns the record of the revision that is being rolled out, brought up to date, and the pause point it waits at. It sets the
// number of new machines that the step in force wants.
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
		if record.Step < p.o.Approved { // passed by a person, reached or not
			continue
		}
		p.target = min(step.Size.of(p.o.Replicas, true), p.o.Replicas)
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
	return sum(p.old(), func(set *setPlan) int { return max(set.size, set.live+set.terminating) }) > 0
}

// failures adds the new machines that failed to those that are known. More than the policy asks for are not added, nor any where
// there is none; what is on record stays.
func (p *planner) failures(known []string) []string {
	if !p.o.Automatic.Failed {
		return known
	}
	known = slices.Clone(known)
	for _, m := range p.current.Machines {
		if m.Failed && !slices.Contains(known, m.Name) && len(known) <= p.o.Automatic.MaxFailed {
			known = append(known, m.Name)
		}
	}
	slices.Sort(known)
	return known
}
