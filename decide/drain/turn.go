package drain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Turn is a machine whose node is being drained, or waits for its drain.
type Turn struct {
	UID, Namespace, Name string
	Group                string // deployment, or the set of a machine without a deployment; groups alternate
	Priority             int    // machines of a lower priority are drained first
	DeletedAt            time.Time
	Started              time.Time // when the drain began; zero: the drain has not begun
	Queued               bool      // the machine's status says that the machine waits for its turn
}

// DecideTurn reports whether the machine with this UID may be drained now if at most `most` nodes are drained at a
// time; if not, DecideTurn returns why. most zero or less means no limit. A machine that is not among the turns may
// be drained. Drains that have begun keep their places. The group with the fewest places comes next: one machine of
// a small deployment does not wait for a rollout of thousands. The order within a group is priority, time of
// deletion, name. The rank is not a lock: every machine computes the same order, and a machine with old facts may
// begin early.
func DecideTurn(turns []Turn, uid string, most int) (bool, string) {
	if most <= 0 || len(turns) <= most {
		return true, ""
	}
	turns = rankTurns(turns)
	i := slices.IndexFunc(turns, func(t Turn) bool { return t.UID == uid })
	if i < most {
		return true, ""
	}
	return false, fmt.Sprintf("queued: place %d of %d; %s drained at a time",
		i+1-most, len(turns)-most, phrase.Count(most, "node")+phrase.OneOf(most, " is", " are"))
}

// NextTurns returns the first machines whose status says that they are queued, at most `most` machines.
func NextTurns(turns []Turn, most int) []Turn {
	waiting := slices.DeleteFunc(rankTurns(turns), func(t Turn) bool { return !t.Queued })
	return waiting[:min(len(waiting), most)]
}

// rankTurns returns the turns in the order in which the machines are drained.
func rankTurns(turns []Turn) []Turn {
	turns = list.Sorted(turns, byTurn)
	round := make(map[string]int, len(turns)) // by UID: number of machines of the same group before this machine
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

// byStart sorts drains that have begun before drains that have not begun.
func byStart(a, b Turn) int { return list.KnownFirst(a.Started, b.Started) }

func byTurn(a, b Turn) int {
	return cmp.Or(byStart(a, b), cmp.Compare(a.Priority, b.Priority), a.DeletedAt.Compare(b.DeletedAt),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
