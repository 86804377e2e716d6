package scale

import (
	"cmp"
	"fmt"
	"slices"
)

// keep has failed members preserved instead of replaced: the oldest first, as many as may be kept.
func keep(o Observed, live []Member) (Decision, bool) {
	left := o.Keep
	var failed []Member
	for _, m := range live {
		switch {
		case m.Kept:
			left--
		case m.Failed && !m.Preserved && !m.Dismissed:
			failed = append(failed, m)
		}
	}
	slices.SortFunc(failed, func(a, b Member) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) })
	var d Decision
	for _, m := range failed[:max(min(left, len(failed), MaxBatch), 0)] {
		d.Keep = append(d.Keep, m.target("failed"))
	}
	d.Why = fmt.Sprintf("keep %s that failed, of at most %d", machines(len(d.Keep)), o.Keep)
	return d, len(d.Keep) > 0
}

// removeFailed deletes failed members, so that others take their place.
func removeFailed(o Observed, live []Member) (Decision, bool) {
	failed := slices.DeleteFunc(slices.Clone(live), func(m Member) bool { return !m.toReplace() || !ripe(o, m) })
	if len(failed) == 0 {
		return Decision{}, false
	}
	slices.SortFunc(failed, ranking(o.Order))
	failed = first(failed)
	d := Decision{
		Generations: record(o, failed),
		Hold:        waits(o, live),
		Why:         fmt.Sprintf("delete %s that failed: %d wanted, %d there", machines(len(failed)), o.Replicas, len(live)),
	}
	for _, m := range failed {
		d.Delete = append(d.Delete, m.target("failed"))
	}
	return d, true
}

// toReplace reports whether a member failed and goes as soon as its time has come.
func (m Member) toReplace() bool { return m.Replace && !m.protected() }

// protected reports whether a member is deleted only when there is no other, or not at all.
func (m Member) protected() bool { return m.Preserved || m.Updated }
