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

// randomMember returns a machine in a random state.
func randomMember(d *dice, name string) scale.Member {
	m := newMember(
		name,
		time.Duration(d.randomBelow(72))*time.Hour,
		pickRandom(
			d,
			keepMember,
			keepMember,
			keepMember,
			makeFresh,
			makePending,
			makeCrashing,
			makeFailed,
			makeNeverJoined,
			makeUpdating,
			makeNodeUnhealthy,
		),
	)
	for _, c := range []memberChange{makeDeleting, makePreserved, markKept, makeDismissed, makeDeleteFirst, makeUpdated, makeMarked, makeUrgent, makeUnmatched, makeUnhealthy, makeHealthy, makeDrifted("labels"), makeChosen(timeAt(-time.Duration(d.randomBelow(120)) * time.Minute))} {
		if d.randomOneIn(9) {
			c(&m)
		}
	}
	if d.randomOneIn(4) {
		m.Priority = d.randomBelow(5)
	}
	if m.MCM.Failed && d.randomOneIn(3) {
		m.MCM.Replace = false
	}
	return m
}

func keepMember(*scale.Member) {}

// randomSet returns a set in a random state.
func randomSet(d *dice, most int) scale.Observed {
	o := newSet(d.randomBelow(most))
	for i := range d.randomBelow(most) {
		o.Members = append(o.Members, randomMember(d, fmt.Sprintf("m-%03d", i)))
	}
	for i := range d.randomBelow(5) {
		m := newOrphan(fmt.Sprintf("o-%d", i))
		m.Matches, m.Deleting = !d.randomOneIn(3), d.randomOneIn(4)
		o.Orphans = append(o.Orphans, m)
	}
	o.Seed, o.MCM.Keep, o.Order = uint64(*d), d.randomBelow(3), pickRandom(d, scale.Newest, scale.Oldest, scale.Random, "")
	o.Deleting, o.MCM.Freeze.Label, o.SelectsAll = d.randomOneIn(10), d.randomOneIn(10), d.randomOneIn(10)
	if d.randomOneIn(15) {
		pauseSet(&o)
	}
	if d.randomOneIn(15) {
		stopScaleUp(&o)
	}
	if d.randomOneIn(10) {
		o.Preflight = upgradingControlPlane()
	}
	if d.randomOneIn(2) {
		o.MCM.Scaled = timeAt(-time.Duration(d.randomBelow(120)) * time.Minute)
	}
	o.Remediation = scale.Remediation{
		Limited:     d.randomOneIn(2),
		MaxInFlight: d.randomBelow(4),
		Backoff:     time.Duration(d.randomBelow(3)) * time.Hour,
		Outdated:    d.randomOneIn(8),
	}
	o.MCM.Generations = scale.Generations{Failed: d.randomBelow(4), Last: timeAt(-time.Hour)}
	o.Reported.Peak = d.randomBelow(most)
	o.Released = d.randomBelow(3)
	return o
}

// mayNotCreate reports whether the set must create no machine now.
func mayNotCreate(o scale.Observed) bool {
	return len(o.Pauses)+len(o.Stopped) > 0 || o.MCM.Freeze.Label || o.Deleting || o.Preflight.ControlPlane != nil
}

// requireLawful fails if a decision breaks a rule that holds for all decisions.
func requireLawful(t *testing.T, o scale.Observed, d scale.Decision) {
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
	require.False(t, mayNotCreate(o) && len(d.Create) > 0, "creates although it must not")
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
	requireProtected(t, o, d, live)
	data, err := json.Marshal(d)
	require.NoError(t, err)
	require.Less(t, len(data), 16<<10)
}

// requireProtected fails if a protected machine is deleted before an unprotected machine.
func requireProtected(t *testing.T, o scale.Observed, d scale.Decision, live map[string]scale.Member) {
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
		o := randomSet(&throws, pickRandom(&throws, 8, 30, 130))
		d, s := scale.Decide(o), scale.Plan(o).Status
		before := slices.Clone(o.Members)
		requireLawful(t, o, d)
		require.Equal(t, d, scale.Decide(o), "same input, another answer")
		require.Equal(t, before, o.Members, "the input was changed")
		o.Members, o.Orphans = shuffled(&throws, o.Members), shuffled(&throws, o.Orphans)
		require.Equal(t, d, scale.Decide(o), "the order matters")
		require.Equal(t, s, scale.Plan(o).Status, "the order matters")
		require.True(t, d.Recheck.IsZero() || d.Recheck.After(o.Now), "looks again at once")
	}
}

// Repeated decisions end with the wanted number of machines. At no time are more machines created than wanted.
func TestDecisionsEnd(t *testing.T) {
	for seed := range decidetest.Seeds(600) {
		throws := dice(seed)
		w := newWorld(randomSet(&throws, pickRandom(&throws, 8, 30, 130)))
		if throws.randomOneIn(3) {
			w.failsToJoin = func(name string) bool { return name[len(name)-1] == 'b' }
		}
		w.SelectsAll = false
		w.Released = 0
		for round := 0; ; round++ {
			require.Less(t, round, 2000, "does not end")
			d := scale.Decide(w.Observed)
			requireLawful(t, w.Observed, d)
			made, live := w.createdMachines, w.liveMachines()
			w.carryOut(d)
			require.LessOrEqual(t, live+w.createdMachines-made, max(w.Replicas, live), "more than wanted")
			s := scale.Plan(w.Observed).Status
			w.Reported.Peak, w.Reported.ActedOn = s.Peak, s.ActedOn
			if isIdle(d) && !w.hasPendingChanges() && (d.Recheck.IsZero() || d.Recheck.After(w.Now.Add(24*time.Hour))) {
				break
			}
			if isIdle(d) {
				w.Now = w.Now.Add(time.Minute)
				if !d.Recheck.IsZero() && !w.hasPendingChanges() {
					w.Now = d.Recheck
				}
				w.changeMachines()
			}
		}
		require.Equal(t, w.Replicas, w.Reported.ActedOn, "all is done for a size that was not seen")
		if !mayNotCreate(w.Observed) && w.Released < w.Replicas+2 {
			handed := 0
			for _, m := range w.Members {
				if m.Updated && !m.Deleting {
					handed++
				}
			}
			require.GreaterOrEqual(t, w.liveMachines(), w.Replicas)
			require.LessOrEqual(t, w.liveMachines()-handed, w.Replicas)
		}
		if w.Deleting && len(w.Pauses) == 0 {
			require.Empty(t, w.Members)
			require.True(t, scale.Decide(w.Observed).Done)
		}
	}
}

// hasPendingChanges reports whether a machine changes as time passes.
func (w *world) hasPendingChanges() bool {
	return slices.ContainsFunc(w.Members, func(m scale.Member) bool {
		return m.Deleting || !m.MCM.Failed && (m.Phase == "" || m.Phase == "Pending")
	})
}
