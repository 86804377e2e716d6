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
func randomMember(d *randomSource, name string) scale.Member {
	m := newMember(
		name,
		time.Duration(d.randomIntBelow(72))*time.Hour,
		pickRandomItem(
			d,
			leaveMemberUnchanged,
			leaveMemberUnchanged,
			leaveMemberUnchanged,
			asFreshMachine,
			asPendingMachine,
			asMachineWithFailingCreation,
			asFailedMachine,
			asNeverJoinedMachine,
			asUpdatingMachine,
			withUnhealthyNode,
		),
	)
	for _, c := range []memberChange{asDeletingMachine, asPreservedMachine, asAutoPreservedMachine, withForbiddenPreservation, asMachineToDeleteFirst, asMovedMachine, asMarkedMachine, asMachineToReplaceFirst, asUnmatchedMachine, asUnhealthyMachine, asHealthyMachine, withDrift("labels"), withChoiceTime(epochPlus(-time.Duration(d.randomIntBelow(120)) * time.Minute))} {
		if d.randomBoolOneIn(9) {
			c(&m)
		}
	}
	if d.randomBoolOneIn(4) {
		m.Priority = d.randomIntBelow(5)
	}
	if m.MCM.Failed && d.randomBoolOneIn(3) {
		m.MCM.Replaceable = false
	}
	return m
}

func leaveMemberUnchanged(*scale.Member) {}

// randomSet returns a set in a random state.
func randomSet(d *randomSource, most int) scale.Facts {
	o := newSet(d.randomIntBelow(most))
	for i := range d.randomIntBelow(most) {
		o.Members = append(o.Members, randomMember(d, fmt.Sprintf("m-%03d", i)))
	}
	for i := range d.randomIntBelow(5) {
		m := newOrphan(fmt.Sprintf("o-%d", i))
		m.MatchesSelector, m.MayNotBeAdopted = !d.randomBoolOneIn(3), d.randomBoolOneIn(4)
		o.Orphans = append(o.Orphans, m)
	}
	o.NameSeed, o.MCM.MaxAutoPreserved, o.DeletionOrder = uint64(
		*d,
	), d.randomIntBelow(
		3,
	), pickRandomItem(
		d,
		scale.NewestFirst,
		scale.OldestFirst,
		scale.RandomOrder,
		"",
	)
	o.Deleting, o.MCM.Freeze.HasLabel, o.SelectsAll = d.randomBoolOneIn(10), d.randomBoolOneIn(10), d.randomBoolOneIn(10)
	if d.randomBoolOneIn(15) {
		pauseSet(&o)
	}
	if d.randomBoolOneIn(15) {
		stopScaleUp(&o)
	}
	if d.randomBoolOneIn(10) {
		o.Preflight = upgradingControlPlane()
	}
	if d.randomBoolOneIn(2) {
		o.MCM.AutoscaledAt = epochPlus(-time.Duration(d.randomIntBelow(120)) * time.Minute)
	}
	o.Remediation = scale.RemediationPolicy{
		HasMaxInFlight: d.randomBoolOneIn(2),
		MaxInFlight:    d.randomIntBelow(4),
		RetryPolicy: scale.RetryPolicy{
			Backoff:     time.Duration(d.randomIntBelow(3)) * time.Hour,
			HasMaxRetry: d.randomBoolOneIn(3), MaxRetry: d.randomIntBelow(4),
		},
		SetIsOutdated: d.randomBoolOneIn(8),
	}
	if d.randomBoolOneIn(3) {
		o.Remediation.MaxSurge = d.randomIntBelow(4)
	}
	o.Generations = scale.GenerationRecord{Failed: d.randomIntBelow(4), Last: epochPlus(-time.Hour)}
	o.ReportedStatus.PeakReplicas = d.randomIntBelow(most)
	o.ReleasedMachineCount = d.randomIntBelow(3)
	return o
}

// mustNotCreateMachines reports whether the set must create no machine now.
func mustNotCreateMachines(o scale.Facts) bool {
	return len(o.PauseSentences)+len(o.StopReasons) > 0 || o.MCM.Freeze.HasLabel || o.Deleting ||
		o.Preflight.ControlPlane != nil
}

// requireDecisionInvariants fails the test if a decision breaks a rule for all decisions.
func requireDecisionInvariants(t *testing.T, o scale.Facts, d scale.Decision) {
	t.Helper()
	lists := [][]scale.MachineTarget{d.Release, d.Adopt, d.Keep, d.Unmark, d.Remediate, d.Delete, d.Sync}
	filled := len(slices.DeleteFunc(slices.Clone(lists), func(l []scale.MachineTarget) bool { return len(l) == 0 }))
	if len(d.Create) > 0 {
		filled++
	}
	require.LessOrEqual(t, filled, 1, "more than one kind of step")
	if len(o.PauseSentences) > 0 {
		require.Zero(t, filled)
	}
	live := map[string]scale.Member{}
	for _, m := range o.Members {
		if !m.Deleting {
			live[m.UID] = m
		}
	}
	for _, l := range lists {
		require.LessOrEqual(t, len(l), scale.MaxBatchSize)
	}
	wanted := o.Replicas + o.Remediation.MaxSurge
	require.LessOrEqual(t, len(d.Create), max(min(scale.MaxCreations, wanted-len(live)), 0), "more than are missing")
	requireSubstitutesFirst(t, o, d, live)
	require.False(t, mustNotCreateMachines(o) && len(d.Create) > 0, "creates although it must not")
	for _, target := range slices.Concat(d.Release, d.Keep, d.Unmark, d.Remediate, d.Delete) {
		require.Contains(t, live, target.UID)
		require.Equal(t, live[target.UID].Version, target.Version)
	}
	for _, target := range d.Release {
		require.False(t, live[target.UID].MatchesSelector)
	}
	for _, target := range d.Adopt {
		i := slices.IndexFunc(o.Orphans, func(m scale.Orphan) bool { return m.UID == target.UID })
		require.True(t, o.Orphans[i].MatchesSelector && !o.Orphans[i].MayNotBeAdopted && !o.SelectsAll)
	}
	requireProtectedMembersDeletedLast(t, o, d, live)
	data, err := json.Marshal(d)
	require.NoError(t, err)
	require.Less(t, len(data), 16<<10)
}

// requireSubstitutesFirst fails the test if a machine that had joined is replaced before as many other machines are
// available as the set wants.
func requireSubstitutesFirst(t *testing.T, o scale.Facts, d scale.Decision, live map[string]scale.Member) {
	t.Helper()
	going := map[string]bool{}
	for _, target := range d.Remediate {
		going[target.UID] = live[target.UID].Joined
	}
	if o.Remediation.MaxSurge == 0 ||
		!slices.ContainsFunc(d.Remediate, func(m scale.MachineTarget) bool { return going[m.UID] }) {
		return
	}
	left := 0
	for uid, m := range live {
		marked := m.Marked && m.Healthy == scale.ConditionFalse && m.Joined
		if !going[uid] && !m.MovedForUpdate && (marked || m.IsAvailable(o.Now, o.MinReadyDuration)) {
			left++
		}
	}
	require.GreaterOrEqual(t, left, o.Replicas, "a machine is deleted before its substitute is available")
}

// requireProtectedMembersDeletedLast fails the test if a protected machine is deleted before an unprotected machine.
func requireProtectedMembersDeletedLast(t *testing.T, o scale.Facts, d scale.Decision, live map[string]scale.Member) {
	t.Helper()
	going := map[string]bool{}
	kept := 0
	for _, target := range slices.Concat(d.Delete, d.Remediate) {
		going[target.UID] = true
		if live[target.UID].MCM.Preserved {
			kept++
		}
		if !o.Deleting {
			require.False(t, live[target.UID].MovedForUpdate, "deletes a machine that was handed over")
		}
	}
	for uid, m := range live {
		if kept > 0 && !going[uid] && !o.Deleting {
			require.True(t, m.MCM.Preserved || m.MovedForUpdate, "deletes a preserved machine while there are others")
		}
	}
}

func TestInvariantsOfRandomDecisions(t *testing.T) {
	for seed := range decidetest.RandomRunCount(3000) {
		throws := randomSource(seed)
		o := randomSet(&throws, pickRandomItem(&throws, 8, 30, 130))
		d, s := scale.Decide(o), scale.PlanSet(o).Status
		before := slices.Clone(o.Members)
		requireDecisionInvariants(t, o, d)
		require.Equal(t, d, scale.Decide(o), "same input, another answer")
		require.Equal(t, before, o.Members, "the input was changed")
		o.Members, o.Orphans = shuffledItems(&throws, o.Members), shuffledItems(&throws, o.Orphans)
		require.Equal(t, d, scale.Decide(o), "the order matters")
		require.Equal(t, s, scale.PlanSet(o).Status, "the order matters")
		require.True(t, d.Recheck.IsZero() || d.Recheck.After(o.Now), "looks again at once")
		for range 2 { // a record that is cleared may be followed by a first generation
			if d.Generations != nil {
				o.Generations = *d.Generations
				d = scale.Decide(o)
			}
		}
		require.Nil(t, d.Generations, "the record changes without end while the deletions conflict")
	}
}

// Repeated decisions lead to the wanted number of machines. No more machines are created than wanted.
func TestRepeatedDecisionsReachTheWantedSize(t *testing.T) {
	for seed := range decidetest.RandomRunCount(600) {
		throws := randomSource(seed)
		w := newSetSimulation(randomSet(&throws, pickRandomItem(&throws, 8, 30, 130)))
		if throws.randomBoolOneIn(3) {
			w.failsToJoin = func(name string) bool { return name[len(name)-1] == 'b' }
		}
		w.SelectsAll = false
		w.ReleasedMachineCount = 0
		for round := 0; ; round++ {
			require.Less(t, round, 2000, "does not end")
			d := scale.Decide(w.Facts)
			requireDecisionInvariants(t, w.Facts, d)
			made, live := w.createdMachineCount, w.liveMachineCount()
			w.carryOutOneDecision(d)
			require.LessOrEqual(
				t,
				live+w.createdMachineCount-made,
				max(w.Replicas+w.Remediation.MaxSurge, live),
				"more than wanted",
			)
			s := scale.PlanSet(w.Facts).Status
			w.ReportedStatus.PeakReplicas, w.ReportedStatus.ObservedReplicas = s.PeakReplicas, s.ObservedReplicas
			if isIdleDecision(d) && !w.hasPendingChanges() && (d.Recheck.IsZero() || d.Recheck.After(w.Now.Add(24*time.Hour))) {
				break
			}
			if isIdleDecision(d) {
				w.Now = w.Now.Add(time.Minute)
				if !d.Recheck.IsZero() && !w.hasPendingChanges() {
					w.Now = d.Recheck
				}
				w.changeMachines()
			}
		}
		require.Equal(t, w.Replicas, w.ReportedStatus.ObservedReplicas, "all is done for a size that was not seen")
		if !mustNotCreateMachines(w.Facts) && w.ReleasedMachineCount < w.Replicas+2 {
			handed := 0
			for _, m := range w.Members {
				if m.MovedForUpdate && !m.Deleting {
					handed++
				}
			}
			require.GreaterOrEqual(t, w.liveMachineCount(), w.Replicas)
			require.LessOrEqual(t, w.liveMachineCount()-handed, w.Replicas+w.Remediation.MaxSurge)
		}
		if w.Deleting && len(w.PauseSentences) == 0 {
			require.Empty(t, w.Members)
			require.True(t, scale.Decide(w.Facts).Done)
		}
	}
}

// hasPendingChanges reports whether a machine will change without another decision.
func (w *setSimulation) hasPendingChanges() bool {
	return slices.ContainsFunc(w.Members, func(m scale.Member) bool {
		return m.Deleting || !m.MCM.Failed && (m.Phase == "" || m.Phase == "Pending")
	})
}
