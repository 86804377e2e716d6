package drain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// QueueEntry is a machine whose node is being drained, or waits for its drain.
type QueueEntry struct {
	UID, Namespace, Name string
	Group                string // deployment of the machine, or its set if it has no deployment; groups take turns
	Priority             int    // machines of a lower priority are drained first
	DeletedAt            time.Time
	Started              time.Time // when the drain began; zero: the drain has not begun
	Queued               bool      // the machine's status says that the machine waits for its turn
}

// MayDrainNow reports whether the machine with this UID may be drained now, if at most `most` nodes are drained at a
// time. If not, MayDrainNow returns the reason. A value of most of zero or less means no limit. A machine that turns
// does not contain may be drained. Drains that have begun keep their places. The group with the fewest places comes
// next, so that a small deployment does not wait for a rollout of thousands of machines. The order within a group is
// priority, time of deletion, name. Each machine computes the order of the queue itself and without a lock, so a
// machine with old facts may begin its drain early.
func MayDrainNow(turns []QueueEntry, uid string, most int) (bool, string) {
	if most <= 0 || len(turns) <= most {
		return true, ""
	}
	turns = rankQueueEntries(turns)
	i := slices.IndexFunc(turns, func(t QueueEntry) bool { return t.UID == uid })
	if i < most {
		return true, ""
	}
	return false, fmt.Sprintf("queued: place %d of %d; %s drained at a time",
		i+1-most, len(turns)-most, phrase.CountText(most, "node")+phrase.SingularOrPlural(most, " is", " are"))
}

// NextQueuedMachines returns the first machines of the queue, at most `most`. A machine is in the queue if its status
// says so.
func NextQueuedMachines(turns []QueueEntry, most int) []QueueEntry {
	waiting := slices.DeleteFunc(rankQueueEntries(turns), func(t QueueEntry) bool { return !t.Queued })
	return waiting[:min(len(waiting), most)]
}

// rankQueueEntries returns the turns in the order in which the machines are drained.
func rankQueueEntries(turns []QueueEntry) []QueueEntry {
	turns = list.SortedCopy(turns, compareQueueEntries)
	// number of machines of the same group before a machine, by UID of the machine
	round := make(map[string]int, len(turns))
	places := map[string]int{}
	for _, t := range turns {
		round[t.UID] = places[t.Group]
		places[t.Group]++
	}
	slices.SortStableFunc(turns, func(a, b QueueEntry) int {
		if a.Started.IsZero() && b.Started.IsZero() {
			return cmp.Compare(round[a.UID], round[b.UID])
		}
		return compareByDrainStart(a, b)
	})
	return turns
}

// compareByDrainStart sorts drains that have begun before drains that have not begun.
func compareByDrainStart(a, b QueueEntry) int { return list.CompareTimesZeroLast(a.Started, b.Started) }

func compareQueueEntries(a, b QueueEntry) int {
	return cmp.Or(compareByDrainStart(a, b), cmp.Compare(a.Priority, b.Priority), a.DeletedAt.Compare(b.DeletedAt),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
