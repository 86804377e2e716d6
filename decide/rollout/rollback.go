package rollout

import (
	"cmp"
	"slices"
	"time"
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
func (b *book) asked() *Rollback {
	if b.o.RollbackTo == nil {
		return nil
	}
	set := b.former(*b.o.RollbackTo)
	switch {
	case set == nil:
		return &Rollback{
			Revision: *b.o.RollbackTo, Reason: "DeploymentRollbackRevisionNotFound",
			Why: phrase("there is no set of revision %d to return to", *b.o.RollbackTo),
		}
	case set.Current:
		return &Rollback{
			Revision: set.Revision, Reason: "DeploymentRollbackTemplateUnchanged",
			Why: phrase("revision %d has the template that the deployment has already", set.Revision),
		}
	default:
		return &Rollback{
			Set: new(set.target("its template returns")), Revision: set.Revision, Reason: "DeploymentRollback",
			Why: phrase("return to revision %d, set %s", set.Revision, set.Name),
		}
	}
}

// former returns the set of a revision; of 0, that of the second highest. Source: MCM. Sets that are being deleted do not
// count.
func (b *book) former(revision int64) *entry {
	sets := slices.Clone(b.sets)
	slices.SortStableFunc(sets, func(x, y *entry) int { return cmp.Compare(y.Revision, x.Revision) })
	if revision == 0 {
		if len(sets) < 2 {
			return nil
		}
		return sets[1]
	}
	if i := slices.IndexFunc(sets, func(e *entry) bool { return e.Revision == revision }); i >= 0 {
		return sets[i]
	}
	return nil
}

// automatic gives up a revision that does not come about, where that is wanted. What an automatic rollback brought does not
// roll back by itself again: two bad revisions would follow each other for ever. So the set whose template returns is on record
// before that.
func (b *book) automatic() *Rollback {
	p, _ := b.progress()
	if b.o.stopped() != "" || p.Automatic || b.complete() {
		return nil
	}
	why := ""
	switch a := b.o.Automatic; {
	case a.Failed && len(p.Failed) > a.MaxFailed:
		why = phrase("%s of the new template failed, %d may", machines(len(p.Failed)), a.MaxFailed)
	case a.OnDeadline && b.late():
		why = phrase("no progress for %s", b.o.Deadline.Round(time.Second))
	default:
		return nil
	}
	old := slices.DeleteFunc(b.old(), func(e *entry) bool { return e.Current }) // a twin would be no return
	if len(old) == 0 {
		return nil
	}
	last := slices.MaxFunc(old, func(x, y *entry) int { return cmp.Compare(x.Revision, y.Revision) })
	return &Rollback{
		Set: new(last.target("its template returns")), Revision: last.Revision, Reason: "DeploymentRollback", Automatic: true,
		Why: phrase("return to revision %d, set %s: %s", last.Revision, last.Name, why),
	}
}
