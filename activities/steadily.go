package activities

import (
	"slices"
	"time"

	"millwright/decide/drain"
)

// For how long a picture must be another one before people are told. An eviction that is refused at one moment and accepted
// at the next is no news, volumes always take a while, and what changes all the time is told now and then. Source: what a
// person notices; what a cloud takes to move a volume that nothing holds.
const (
	steadyPicture  = time.Second
	restlessAtMost = 30 * time.Second
)

// steadily tells when what blocks a drain has been something else than people were told for long enough. Its zero value has
// seen nothing yet.
type steadily struct {
	differs time.Time       // since when it is something else; zero: it is not
	settled time.Time       // since when it is the same other thing, whatever the volumes do
	last    []drain.Blocker // without volumes
	due     time.Time       // when it is long enough, if nothing else happens; zero: never
}

// changed takes in what blocks now, and reports whether people are to be told.
func (s *steadily) changed(blockers, told []drain.Blocker, now time.Time) bool {
	if sameBlockers(blockers, told) {
		*s = steadily{}
		return false
	}
	hard := withoutVolumes(blockers)
	if s.differs.IsZero() {
		s.differs = now
	}
	if s.settled.IsZero() || !sameBlockers(hard, s.last) {
		s.settled, s.last = now, hard
	}
	s.due = s.differs.Add(restlessAtMost)
	if at := s.settled.Add(steadyPicture); at.Before(s.due) && !sameBlockers(hard, withoutVolumes(told)) {
		s.due = at
	}
	return !now.Before(s.due)
}

// sameBlockers compares what blocks, not whom.
func sameBlockers(a, b []drain.Blocker) bool {
	return slices.EqualFunc(a, b, func(x, y drain.Blocker) bool { return x.Kind == y.Kind && x.Name == y.Name && x.Bad == y.Bad })
}

func withoutVolumes(list []drain.Blocker) []drain.Blocker {
	return slices.DeleteFunc(slices.Clone(list), func(b drain.Blocker) bool { return b.Kind == drain.BlockedByVolume })
}
