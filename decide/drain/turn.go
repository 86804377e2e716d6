package drain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/decide/list"
)

// Turn is one machine whose node is being drained or is to be.
type Turn struct {
	UID, Namespace, Name string
	Group                string // those of a group take turns with other groups; such as the deployment
	Priority             int    // lower goes first
	DeletedAt            time.Time
	Started              time.Time // when its drain began; zero: it has not
	Queued               bool      // it was told that it is not its turn
}

// MayDrain says whether it is a machine's turn when so many nodes are drained at a time; zero means all. Drains that began keep
// their places. Then groups take turns: the group with the fewest places comes first, so that a rollout of thousands lets one
// machine of another deployment pass. Within a group it is priority, then the time of deletion, then the name. It is a rank and no
// lock: every machine works out the same order by itself, and one whose facts are a little old may begin a little early.
func MayDrain(turns []Turn, uid string, most int) (bool, string) {
	if most <= 0 || len(turns) <= most {
		return true, ""
	}
	turns = ranked(turns)
	i := slices.IndexFunc(turns, func(t Turn) bool { return t.UID == uid })
	if i < most {
		return true, ""
	}
	return false, fmt.Sprintf("queued: %s of %d; %d nodes are drained at a time", ordinal(i+1-most), len(turns)-most, most)
}

// NextTurns returns the first machines that were told to wait, at most so many.
func NextTurns(turns []Turn, most int) []Turn {
	waiting := slices.DeleteFunc(ranked(turns), func(t Turn) bool { return !t.Queued })
	return waiting[:min(len(waiting), most)]
}

// ranked returns the turns in their order.
func ranked(turns []Turn) []Turn {
	turns = list.Sorted(turns, byTurn)
	round := make(map[string]int, len(turns)) // by UID: how many of its group come before it
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

// byStart puts those that began before those that did not.
func byStart(a, b Turn) int { return list.KnownFirst(a.Started, b.Started) }

func byTurn(a, b Turn) int {
	return cmp.Or(byStart(a, b), cmp.Compare(a.Priority, b.Priority), a.DeletedAt.Compare(b.DeletedAt),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func ordinal(n int) string {
	suffix := "th"
	if last, tens := n%10, n%100/10; tens != 1 && last >= 1 && last <= 3 {
		suffix = []string{"st", "nd", "rd"}[last-1]
	}
	return fmt.Sprint(n, suffix)
}
