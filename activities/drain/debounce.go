package drain

import (
	"slices"
	"time"

	"millwright/decide/drain"
)

// debouncer reports changed blockers of a drain after the blockers have been stable for debounceDelay, or after
// maxDebounceDelay at the latest. The API server often refuses an eviction and accepts the next try. The zero debouncer
// has no pending change.
type debouncer struct {
	differsSince   time.Time       // when the blockers began to differ from the reported blockers; zero: no difference
	stableSince    time.Time       // start of the period in which the blockers stayed equal
	lastBlockers   []drain.Blocker // blockers of the previous call of isReportDue
	nextReportTime time.Time       // time of the next report if the blockers stay equal; zero: no report
}

// isReportDue compares the current blockers with the reported blockers. isReportDue returns whether to report the
// current blockers now.
func (b *debouncer) isReportDue(blockers, reported []drain.Blocker, now time.Time) bool {
	if areBlockersEqual(blockers, reported) {
		*b = debouncer{}
		return false
	}
	if b.differsSince.IsZero() {
		b.differsSince = now
	}
	if b.stableSince.IsZero() || !areBlockersEqual(blockers, b.lastBlockers) {
		b.stableSince, b.lastBlockers = now, blockers
	}
	b.nextReportTime = b.differsSince.Add(maxDebounceDelay)
	if at := b.stableSince.Add(debounceDelay); at.Before(b.nextReportTime) {
		b.nextReportTime = at
	}
	return !now.Before(b.nextReportTime)
}

// areBlockersEqual compares the Kind, Name, Bad and Until of blockers.
func areBlockersEqual(a, b []drain.Blocker) bool {
	return slices.EqualFunc(a, b, func(x, y drain.Blocker) bool {
		return x.Kind == y.Kind && x.Name == y.Name && x.Bad == y.Bad && x.Until.Equal(y.Until)
	})
}
