package rollout_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// advanceTime advances the time. Machines then become available, fail, or disappear.
func (w *rolloutSimulation) advanceTime(d time.Duration) {
	w.now = w.now.Add(d)
	for _, g := range w.sets {
		g.machines = slices.DeleteFunc(
			g.machines,
			func(u *simulatedMachine) bool { return u.Deleting && !w.now.Before(u.deletionEndTime) },
		)
		for _, u := range g.machines {
			if u.Deleting || u.Failed || u.readyTime.IsZero() || w.now.Before(u.readyTime) {
				continue
			}
			u.readyTime = time.Time{}
			switch {
			case u.willFail:
				asFailedMachine(&u.Member)
				w.failureTimes = append(w.failureTimes, w.now)
			case u.Updating:
				u.Updating, u.MCM.Updated, u.hasUpdateBegun = false, !w.isClusterAPI, false
				u.Available, u.Ready, u.Unhealthy = true, true, false
			default:
				u.Available, u.Ready, u.Unhealthy, u.MCM.NodeName = true, true, false, "node-"+u.Name
				u.Joined, u.DenialReason = true, ""
			}
		}
	}
	w.checkMaxMachines("time")
}

// stateLine returns one line with each set's number of machines, size and number of available machines.
func (w *rolloutSimulation) stateLine() string {
	var line string
	for _, g := range w.sets {
		live, out, available := 0, 0, 0
		for _, u := range g.machines {
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

func (w *rolloutSimulation) appendTrace(format string, values ...any) {
	w.turnTexts = append(w.turnTexts, fmt.Sprintf(format, values...))
}

func sortedMachines(units []*simulatedMachine) []*simulatedMachine {
	units = slices.Clone(units)
	slices.SortFunc(units, func(a, b *simulatedMachine) int { return cmp.Compare(a.Name, b.Name) })
	return units
}
