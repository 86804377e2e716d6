package rollout_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// tick lets time pass: machines come, fail, and go.
func (w *world) tick(d time.Duration) {
	w.now = w.now.Add(d)
	for _, g := range w.sets {
		g.units = slices.DeleteFunc(g.units, func(u *unit) bool { return u.Deleting && !w.now.Before(u.goneAt) })
		for _, u := range g.units {
			if u.Deleting || u.Failed || u.readyAt.IsZero() || w.now.Before(u.readyAt) {
				continue
			}
			u.readyAt = time.Time{}
			switch {
			case u.doomed:
				failed(&u.Member)
				w.failures = append(w.failures, w.now)
			case u.Updating:
				u.Updating, u.MCM.Updated, u.begun = false, !w.asCAPI, false
				u.Available, u.Ready, u.Unhealthy = true, true, false
			default:
				u.Available, u.Ready, u.Unhealthy, u.MCM.Node = true, true, false, "node-"+u.Name
			}
		}
	}
	w.check("time")
}

// state is one line: per set how many machines it has and wants, and how many are available.
func (w *world) state() string {
	var line string
	for _, g := range w.sets {
		live, out, available := 0, 0, 0
		for _, u := range g.units {
			switch {
			case u.Deleting:
				out++
			case u.Available:
				available++
				live++
			default:
				live++
			}
		}
		line += fmt.Sprintf("  %s %d/%d", g.Name, live, g.Replicas)
		if available != live {
			line += fmt.Sprintf(" (%d available)", available)
		}
		if out > 0 {
			line += fmt.Sprintf(" +%d going", out)
		}
	}
	return line
}

func (w *world) tell(format string, values ...any) {
	w.said = append(w.said, fmt.Sprintf(format, values...))
}

func sorted(units []*unit) []*unit {
	units = slices.Clone(units)
	slices.SortFunc(units, func(a, b *unit) int { return cmp.Compare(a.Name, b.Name) })
	return units
}
