package rollout_test

import (
	"fmt"
	"slices"
	"time"

	"millwright/decide/rollout"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(after time.Duration) time.Time { return epoch.Add(after) }

func count(n int) rollout.Bound   { return rollout.Bound{Value: n} }
func percent(n int) rollout.Bound { return rollout.Bound{Value: n, Percent: true} }

// machine serves on a node of its own.
func machine(name string, changes ...func(*rollout.Member)) rollout.Member {
	m := rollout.Member{
		Name:      name,
		UID:       "uid-" + name,
		Version:   "7",
		Created:   epoch,
		MCM:       rollout.MCMMember{Node: "node-" + name},
		Ready:     true,
		Available: true,
		Priority:  3,
	}
	for _, c := range changes {
		c(&m)
	}
	return m
}

// unavailable says no more than that: its set may take another one first.
func unavailable(m *rollout.Member) { m.Ready, m.Available = false, false }
func sick(m *rollout.Member)        { unavailable(m); m.Unhealthy = true }
func failed(m *rollout.Member)      { sick(m); m.Failed, m.MCM.Troubled = true, true }
func preserved(m *rollout.Member)   { m.MCM.Preserved = true }
func deleting(m *rollout.Member)    { unavailable(m); m.Deleting = true }
func updating(m *rollout.Member) {
	unavailable(m)
	m.MCM.Candidate, m.Updating, m.MCM.UpdateLabels = true, true, true
}
func candidate(m *rollout.Member) { m.MCM.Candidate, m.MCM.UpdateLabels = true, true }
func updated(m *rollout.Member) {
	m.MCM.Candidate, m.MCM.Updated, m.MCM.UpdateLabels = true, true, true
}
func handed(m *rollout.Member)   { updated(m); m.MCM.HandedOver = true }
func tainted(m *rollout.Member)  { m.MCM.Tainted = true }
func guarded(m *rollout.Member)  { m.MCM.Guard, m.MCM.Guarded = "true", true }
func nodeless(m *rollout.Member) { m.MCM.Node = "" }

func first(m *rollout.Member)  { m.First = true }
func chosen(m *rollout.Member) { m.Priority, m.MCM.MarkedAt = 1, "2026-01-01T00:00:00Z" }

// old is the n-th set of a deployment: it wants replicas, has live machines, and so many of them are available.
func old(n, replicas, live, available int) rollout.Set {
	name := fmt.Sprintf("ms%d", n)
	s := rollout.Set{
		Name:     name,
		UID:      "uid-" + name,
		Version:  "5",
		Created:  at(time.Duration(n) * time.Hour),
		Replicas: replicas,
		ActedOn:  replicas,
		Revision: int64(n),
	}
	for i := range live {
		m := machine(fmt.Sprintf("%s-%02d", name, i), tainted)
		if i >= available {
			unavailable(&m)
		}
		s.Machines = append(s.Machines, m)
	}
	return s
}

// now is the same as the current set.
func now(n, replicas, live, available int) rollout.Set {
	s := old(n, replicas, live, available)
	s.Current = true
	for i := range s.Machines {
		s.Machines[i].MCM.Tainted = false
	}
	return s
}

// with changes one machine of a set.
func with(s rollout.Set, i int, changes ...func(*rollout.Member)) rollout.Set {
	s.Machines = slices.Clone(s.Machines)
	for _, c := range changes {
		c(&s.Machines[i])
	}
	return s
}

// plus adds machines.
func plus(s rollout.Set, list ...rollout.Member) rollout.Set {
	s.Machines = append(slices.Clone(s.Machines), list...)
	return s
}

// closed may make no machines.
func closed(s rollout.Set) rollout.Set {
	s.NoScaleUp = true
	return s
}

// rolling wants so many machines by a rolling update.
func rolling(replicas, surge, unavailable int, sets ...rollout.Set) rollout.Observed {
	o := rollout.Observed{
		Now: epoch,
		Settings: rollout.Settings{
			Replicas:    replicas,
			Strategy:    rollout.RollingUpdate,
			Surge:       count(surge),
			Unavailable: count(unavailable),
		},
		Sets: sets,
	}
	return annotated(o)
}

func by(s rollout.Strategy, o rollout.Observed) rollout.Observed {
	o.Strategy = s
	return annotated(o)
}

// annotated gives all sets the annotations that they should have, and the record its revision.
func annotated(o rollout.Observed) rollout.Observed {
	surge, _ := rollout.Bounds(o)
	if o.Strategy != rollout.RollingUpdate {
		surge = 0
	}
	o.Sets = slices.Clone(o.Sets)
	for i := range o.Sets {
		s := &o.Sets[i]
		s.Desired, s.Max = o.Replicas, o.Replicas+surge
		o.Progress.Revision = max(o.Progress.Revision, s.Revision)
	}
	return o
}

// sizes returns the sizes that a decision changes.
func sizes(d rollout.Decision) map[string]int {
	m := map[string]int{}
	for _, r := range d.Resize {
		if r.From != r.To {
			m[r.Name] = r.To
		}
	}
	return m
}

// forced returns the sets that a deadlock is broken at.
func forced(d rollout.Decision) []string {
	var names []string
	for _, r := range d.Resize {
		if r.Forced {
			names = append(names, r.Name)
		}
	}
	return names
}

func names(list []rollout.Target) []string {
	var result []string
	for _, t := range list {
		result = append(result, t.Name)
	}
	return result
}

// dice is the SplitMix64 generator: the same throws for the same seed, on every version of Go.
type dice uint64

func (d *dice) below(n int) int {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}

func (d *dice) oneIn(n int) bool { return d.below(n) == 0 }

func pick[T any](d *dice, items ...T) T { return items[d.below(len(items))] }

func shuffle[T any](d *dice, items []T) []T {
	items = slices.Clone(items)
	for i := range items {
		j := i + d.below(len(items)-i)
		items[i], items[j] = items[j], items[i]
	}
	return items
}
