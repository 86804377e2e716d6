package drain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Turn is a machine whose node is being drained, or waits to be drained.
type Turn struct {
	UID, Namespace, Name string
	Group                string // deployment, or the set of a machine without one; groups take turns
	Priority             int    // lower goes first
	DeletedAt            time.Time
	Started              time.Time // when its drain began; zero: it has not
	Queued               bool      // its status says that it waits for its turn
}

// DecideTurn reports whether the machine with this UID may be drained now, if at most so many nodes are drained at a
// time; most zero or less: no limit. If not, it says why. A machine that is not among the turns may be drained. Drains
// that have begun keep their places. Then groups take turns: the group with the fewest places comes first, so that one
// machine of another deployment does not wait for a rollout of thousands. Within a group the order is priority, time of
// deletion, name. The rank is no lock: every machine computes the same order by itself, and a machine with slightly old
// facts may begin slightly early.
func DecideTurn(turns []Turn, uid string, most int) (bool, string) {
	if most <= 0 || len(turns) <= most {
		return true, ""
	}
	turns = ranked(turns)
	i := slices.IndexFunc(turns, func(t Turn) bool { return t.UID == uid })
	if i < most {
		return true, ""
	}
	return false, fmt.Sprintf("queued: place %d of %d; %s drained at a time",
		i+1-most, len(turns)-most, phrase.Count(most, "node")+phrase.OneOf(most, " is", " are"))
}

// NextTurns returns the first machines whose status says that they are queued, at most so many.
func NextTurns(turns []Turn, most int) []Turn {
	waiting := slices.DeleteFunc(ranked(turns), func(t Turn) bool { return !t.Queued })
	return waiting[:min(len(waiting), most)]
}

// ranked returns the turns in their order.
func ranked(turns []Turn) []Turn {
	turns = list.Sorted(turns, byTurn)
	round := make(map[string]int, len(turns)) // by UID: number of machines of its group that come before it
	places := map[string]int{}
	for _, t := range turns {
		round[t.UID] = places[t.Group]
		places[t.Group]++
	}
	slices.SortStableFunc(turns, func(a, b Turn) int {
		if a.Started.IsZero() && b.Started.IsZero() {
			return cmp.Compare(round[a.UID], round[b.UID])
		}
		return byStart(a, b)
	})
	return turns
}

// byStart puts drains that have begun first.
func byStart(a, b Turn) int { return list.KnownFirst(a.Started, b.Started) }

func byTurn(a, b Turn) int {
	return cmp.Or(byStart(a, b), cmp.Compare(a.Priority, b.Priority), a.DeletedAt.Compare(b.DeletedAt),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
