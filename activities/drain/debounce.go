package drain

import (
	"slices"
	"time"

	"millwright/decide/drain"
)

// debouncer reports a change of a drain's blockers once the change has been stable for debouncedFor, or after
// debouncedMost at the latest: an eviction is often refused once and accepted next. The zero value has seen nothing.
type debouncer struct {
	changedAt time.Time       // since when the blockers differ from what was reported; zero: they do not
	stableAt  time.Time       // since when the blockers are the same
	last      []drain.Blocker // at the last call
	due       time.Time       // when the change is reported if nothing else happens; zero: never
}

// changed takes the present blockers and returns whether to report them now instead of the reported ones.
func (b *debouncer) changed(blockers, reported []drain.Blocker, now time.Time) bool {
	if sameBlockers(blockers, reported) {
		*b = debouncer{}
		return false
	}
	if b.changedAt.IsZero() {
		b.changedAt = now
	}
	if b.stableAt.IsZero() || !sameBlockers(blockers, b.last) {
		b.stableAt, b.last = now, blockers
	}
	b.due = b.changedAt.Add(debouncedMost)
	if at := b.stableAt.Add(debouncedFor); at.Before(b.due) {
		b.due = at
	}
	return !now.Before(b.due)
}

// sameBlockers compares blockers, but not the pods that they block.
func sameBlockers(a, b []drain.Blocker) bool {
	return slices.EqualFunc(a, b, func(x, y drain.Blocker) bool {
		return x.Kind == y.Kind && x.Name == y.Name && x.Bad == y.Bad && x.Until.Equal(y.Until)
	})
}
