package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// interest is the order of states in a picture: first what may need somebody, last what only waits for its turn.
func interest(state string) int {
	return slices.Index([]string{Blocked, Terminating, Evicting, Detaching, Attaching, Waiting}, state)
}

// shown is a row with what it is sorted by.
type shown struct {
	Row
	pod Pod
	end time.Time // of a terminating pod's grace period
}

func (p *plan) picture(blockers []Blocker) Picture {
	result := Picture{Counts: Counts{Gone: p.Gone, Skipped: p.skipped}}
	var rows []shown
	for _, v := range p.views {
		result.Counts.add(v.state)
		rows = append(rows, shown{
			Row: Row{
				Pod: v.pod.key(), State: v.state, Since: v.since, Attempts: v.pod.Tries.Attempts,
				BlockedBy: cmp.Or(v.cause.name, v.cause.kind), Next: v.next,
			},
			pod: v.pod, end: v.pod.DeletedAt,
		})
	}
	for _, a := range p.awaited {
		since := a.At
		if a.state == Attaching {
			since = a.Free
		}
		rows = append(rows, shown{
			Row: Row{Pod: a.Pod.key(), State: a.state, Since: since, Attempts: a.Pod.Tries.Attempts, BlockedBy: a.volume, Next: a.until},
			pod: a.Pod,
		})
	}
	slices.SortFunc(rows, func(a, b shown) int {
		return cmp.Or(cmp.Compare(interest(a.State), interest(b.State)), a.end.Compare(b.end), byName(a.pod, b.pod))
	})
	for _, r := range rows[:min(len(rows), MaxRows)] {
		result.Rows = append(result.Rows, r.Row)
	}
	result.Why = p.summary(result.Counts, blockers)
	return result
}

func (c *Counts) add(state string) {
	switch state {
	case Blocked:
		c.Blocked++
	case Waiting:
		c.Waiting++
	default:
		c.Terminating++
	}
}

// summary says in one sentence what the drain waits for.
func (p *plan) summary(c Counts, blockers []Blocker) string {
	var parts []string
	for _, b := range sorted(blockers, byImportance) {
		parts = append(parts, b.Why)
	}
	if len(parts) > maxNames {
		parts = append(parts[:maxNames], fmt.Sprintf("%d more blockers", len(parts)-maxNames))
	}
	if len(p.views) == 0 && len(p.awaited) > 0 { // it blocks no pod, but the drain
		parts = append(parts, p.awaited[0].cause().why)
	}
	if c.Terminating > 0 {
		parts = append(parts, are(c.Terminating)+" terminating")
	}
	if c.Waiting > 0 {
		parts = append(parts, fmt.Sprintf("%d %s for %s turn", c.Waiting, oneOf(c.Waiting, "waits", "wait"), oneOf(c.Waiting, "its", "their")))
	}
	switch {
	case len(parts) == 0:
		return "empty"
	case len(p.views) == 0:
		return "no pods left: " + strings.Join(parts, "; ")
	default:
		return count(len(p.views), "pod") + " left: " + strings.Join(parts, "; ")
	}
}
