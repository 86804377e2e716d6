package scale_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/decide/decidetest"
	"millwright/decide/scale"
)

// anyMember is a machine in any state.
func anyMember(d *dice, name string) scale.Member {
	m := member(
		name,
		time.Duration(d.below(72))*time.Hour,
		pick(d, member0, member0, member0, fresh, pending, crashing, failed, stillborn, updating, nodeUnhealthy),
	)
	for _, c := range []change{deleting, preserved, kept, dismissed, annotated, updated, marked, urgent, stray, unhealthy, checked, drift("labels"), chosen(at(-time.Duration(d.below(120)) * time.Minute))} {
		if d.oneIn(9) {
			c(&m)
		}
	}
	if d.oneIn(4) {
		m.Priority = d.below(5)
	}
	if m.MCM.Failed && d.oneIn(3) {
		m.MCM.Replace = false
	}
	return m
}

func member0(*scale.Member) {}

// anySet is a set in any state.
func anySet(d *dice, most int) scale.Observed {
	o := set(d.below(most))
	for i := range d.below(most) {
		o.Members = append(o.Members, anyMember(d, fmt.Sprintf("m-%03d", i)))
	}
	for i := range d.below(5) {
		m := orphan(fmt.Sprintf("o-%d", i))
		m.Matches, m.Deleting = !d.oneIn(3), d.oneIn(4)
		o.Orphans = append(o.Orphans, m)
	}
	o.Seed, o.MCM.Keep, o.Order = uint64(*d), d.below(3), pick(d, scale.Newest, scale.Oldest, scale.Random, "")
	o.Deleting, o.MCM.Freeze.Label, o.SelectsAll = d.oneIn(10), d.oneIn(10), d.oneIn(10)
	if d.oneIn(15) {
		paused(&o)
	}
	if d.oneIn(15) {
		notToScaleUp(&o)
	}
	if d.oneIn(10) {
		o.Preflight = upgrading()
	}
	if d.oneIn(2) {
		o.MCM.Scaled = at(-time.Duration(d.below(120)) * time.Minute)
	}
	o.Remediation = scale.Remediation{
		Limited:     d.oneIn(2),
		MaxInFlight: d.below(4),
		Backoff:     time.Duration(d.below(3)) * time.Hour,
		Outdated:    d.oneIn(8),
	}
	o.MCM.Generations = scale.Generations{Failed: d.below(4), Last: at(-time.Hour)}
	o.Reported.Peak = d.below(most)
	o.Released = d.below(3)
	return o
}

// stuck reports whether a set makes no machines now.
func stuck(o scale.Observed) bool {
	return len(o.Pauses)+len(o.Stopped) > 0 || o.MCM.Freeze.Label || o.Deleting || o.Preflight.ControlPlane != nil
}

// lawful fails when a decision does what no decision may.
func lawful(t *testing.T, o scale.Observed, d scale.Decision) {
	t.Helper()
	lists := [][]scale.Target{d.Release, d.Adopt, d.Keep, d.Unmark, d.Remediate, d.Delete, d.Sync}
	filled := len(slices.DeleteFunc(slices.Clone(lists), func(l []scale.Target) bool { return len(l) == 0 }))
	if len(d.Create) > 0 {
		filled++
	}
	require.LessOrEqual(t, filled, 1, "more than one kind of step")
	if len(o.Pauses) > 0 {
		require.Zero(t, filled)
	}
	live := map[string]scale.Member{}
	for _, m := range o.Members {
		if !m.Deleting {
			live[m.UID] = m
		}
	}
	for _, l := range lists {
		require.LessOrEqual(t, len(l), scale.MaxBatch)
	}
	require.LessOrEqual(t, len(d.Create), max(min(scale.MaxCreate, o.Replicas-len(live)), 0), "more than are missing")
	require.False(t, stuck(o) && len(d.Create) > 0, "creates although it must not")
	for _, target := range slices.Concat(d.Release, d.Keep, d.Unmark, d.Remediate, d.Delete) {
		require.Contains(t, live, target.UID)
		require.Equal(t, live[target.UID].Version, target.Version)
	}
	for _, target := range d.Release {
		require.False(t, live[target.UID].Matches)
	}
	for _, target := range d.Adopt {
		i := slices.IndexFunc(o.Orphans, func(m scale.Orphan) bool { return m.UID == target.UID })
		require.True(t, o.Orphans[i].Matches && !o.Orphans[i].Deleting && !o.SelectsAll)
	}
	spares(t, o, d, live)
	data, err := json.Marshal(d)
	require.NoError(t, err)
	require.Less(t, len(data), 16<<10)
}

// spares fails when a protected machine is deleted before one that is not.
func spares(t *testing.T, o scale.Observed, d scale.Decision, live map[string]scale.Member) {
	t.Helper()
	going := map[string]bool{}
	kept := 0
	for _, target := range slices.Concat(d.Delete, d.Remediate) {
		going[target.UID] = true
		if live[target.UID].MCM.Preserved {
			kept++
		}
		if !o.Deleting {
			require.False(t, live[target.UID].Updated, "deletes a machine that was handed over")
		}
	}
	for uid, m := range live {
		if kept > 0 && !going[uid] && !o.Deleting {
			require.True(t, m.MCM.Preserved || m.Updated, "deletes a preserved machine while there are others")
		}
	}
}

func TestAnyDecisionIsLawful(t *testing.T) {
	for seed := range decidetest.Seeds(3000) {
		throws := dice(seed)
		o := anySet(&throws, pick(&throws, 8, 30, 130))
		d, s := scale.Decide(o), scale.Plan(o).Status
		before := slices.Clone(o.Members)
		lawful(t, o, d)
		require.Equal(t, d, scale.Decide(o), "same input, another answer")
		require.Equal(t, before, o.Members, "the input was changed")
		o.Members, o.Orphans = shuffle(&throws, o.Members), shuffle(&throws, o.Orphans)
		require.Equal(t, d, scale.Decide(o), "the order matters")
		require.Equal(t, s, scale.Plan(o).Status, "the order matters")
		require.True(t, d.Recheck.IsZero() || d.Recheck.After(o.Now), "looks again at once")
	}
}

// Decisions are carried out until nothing is left to do: that ends, with as many machines as wanted, and without one
// more than wanted being made on the way.
func TestDecisionsEnd(t *testing.T) {
	for seed := range decidetest.Seeds(600) {
		throws := dice(seed)
		w := newWorld(anySet(&throws, pick(&throws, 8, 30, 130)))
		if throws.oneIn(3) {
			w.doomed = func(name string) bool { return name[len(name)-1] == 'b' }
		}
		w.SelectsAll = false
		w.Released = 0
		for round := 0; ; round++ {
			require.Less(t, round, 2000, "does not end")
			d := scale.Decide(w.Observed)
			lawful(t, w.Observed, d)
			made, live := w.made, w.alive()
			w.carryOut(d)
			require.LessOrEqual(t, live+w.made-made, max(w.Replicas, live), "more than wanted")
			s := scale.Plan(w.Observed).Status
			w.Reported.Peak, w.Reported.ActedOn = s.Peak, s.ActedOn
			if idle(d) && !w.moves() && (d.Recheck.IsZero() || d.Recheck.After(w.Now.Add(24*time.Hour))) {
				break
			}
			if idle(d) {
				w.Now = w.Now.Add(time.Minute)
				if !d.Recheck.IsZero() && !w.moves() {
					w.Now = d.Recheck
				}
				w.live()
			}
		}
		require.Equal(t, w.Replicas, w.Reported.ActedOn, "all is done for a size that was not seen")
		if !stuck(w.Observed) && w.Released < w.Replicas+2 {
			handed := 0
			for _, m := range w.Members {
				if m.Updated && !m.Deleting {
					handed++
				}
			}
			require.GreaterOrEqual(t, w.alive(), w.Replicas)
			require.LessOrEqual(t, w.alive()-handed, w.Replicas)
		}
		if w.Deleting && len(w.Pauses) == 0 {
			require.Empty(t, w.Members)
			require.True(t, scale.Decide(w.Observed).Done)
		}
	}
}

// moves reports whether a machine changes by itself.
func (w *world) moves() bool {
	return slices.ContainsFunc(w.Members, func(m scale.Member) bool {
		return m.Deleting || !m.MCM.Failed && (m.Phase == "" || m.Phase == "Pending")
	})
}
