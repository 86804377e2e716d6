package rollout_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/decidetest"
	"millwright/decide/rollout"
	"millwright/decide/rollout/simulate"
	"millwright/decide/scale"
)

// randomDeployment returns a deployment in a random state. Most random states do not occur in a rollout.
func randomDeployment(d *randomSource, most int) rollout.Facts {
	o := randomSpec(d)
	o.Now, o.Replicas = epoch, d.randomIntBelow(most)
	o.Strategy = pickRandomItem(
		d,
		rollout.RollingUpdate,
		rollout.Recreate,
		rollout.InPlaceAuto,
		rollout.InPlaceManual,
		rollout.OnDelete,
	)
	o.Deleting, o.Paused, o.IgnoresDeletingMachines, o.MCM.Frozen = d.randomBoolOneIn(
		15,
	), d.randomBoolOneIn(
		8,
	), d.randomBoolOneIn(
		6,
	), d.randomBoolOneIn(
		9,
	)
	o.ApprovedStepCount, o.MCM.ProtectsNodesFromAutoscaler = d.randomIntBelow(3), d.randomBoolOneIn(2)
	if d.randomBoolOneIn(8) {
		o.HoldReason = "cancelled"
	}
	if d.randomBoolOneIn(8) {
		o.RollbackTo = new(int64(d.randomIntBelow(5)))
	}
	if d.randomBoolOneIn(4) {
		o.RollbackPolicy = rollout.AutoRollback{RollsBackOnDeadline: true, HasMaxFailed: true, MaxFailed: d.randomIntBelow(4)}
		o.ProgressDeadline = new(time.Minute)
		o.ReportedStatus.Conditions = []rollout.Condition{
			{
				Type:           "Progressing",
				Reason:         pickRandomItem(d, "MachineSetUpdated", "DeploymentPaused", "NewMachineSetAvailable"),
				LastUpdateTime: epochPlus(-time.Hour),
			},
		}
	}
	for n := range d.randomIntBelow(5) {
		live := d.randomIntBelow(most)
		s := oldSet(n+1, d.randomIntBelow(most), live, d.randomIntBelow(live+1))
		s.Current, s.Deleting, s.ScaleUpDisabled, s.Drifted = d.randomBoolOneIn(
			4,
		), d.randomBoolOneIn(
			9,
		), d.randomBoolOneIn(
			4,
		), d.randomBoolOneIn(
			9,
		)
		s.StatusMachineCount, s.DesiredReplicas, s.MaxReplicas = d.randomIntBelow(
			most,
		), d.randomIntBelow(
			most,
		), d.randomIntBelow(
			most,
		)
		if d.randomBoolOneIn(3) {
			s.ObservedReplicas = d.randomIntBelow(most)
		}
		for i := range s.Machines {
			change := pickRandomItem(
				d,
				asUnhealthyMachine,
				asFailedMachine,
				asPreservedMachine,
				asDeletingMachine,
				asUpdatingMachine,
				asUpdateCandidate,
				asUpdatedMachine,
				asHandedOverMachine,
				withTaintedNode,
				withScaleDownDisabledNode,
				withoutNode,
				asChosenMachine,
			)
			if d.randomBoolOneIn(3) {
				s = withChangedMachine(s, i, change)
			}
		}
		o.Sets = append(o.Sets, s)
	}
	return o
}

func TestInvariantsOfRandomDecisions(t *testing.T) {
	d := randomSource(11)
	for i := range decidetest.RandomRunCount(2000) {
		o := randomDeployment(&d, 12)
		got := rollout.Decide(o)
		before := fmt.Sprint(o)
		mixed := o
		mixed.Sets = shuffledItems(&d, o.Sets)
		for i := range mixed.Sets {
			mixed.Sets[i].Machines = shuffledItems(&d, mixed.Sets[i].Machines)
		}
		require.Equal(t, got, rollout.Decide(mixed), "the order of the facts is no fact")
		require.Equal(t, rollout.PlannedStatus(o), rollout.PlannedStatus(mixed))
		plan := rollout.PlanDeployment(mixed)
		require.Equal(t, got, plan.Decision, "to report first changes no decision")
		require.Equal(t, rollout.PlannedStatus(o), plan.Status)
		require.Equal(t, before, fmt.Sprint(o), "facts are not changed")
		for _, r := range got.Resize {
			require.GreaterOrEqual(t, r.To, 0)
			require.NotEmpty(t, r.Version)
		}
		if o.Paused || o.HoldReason != "" {
			require.Empty(t, got.Select)
			require.Nil(t, got.Create)
		}
		require.NotEmpty(t, got.Why)
		if i%10 == 0 {
			require.LessOrEqual(t, len(simulate.PredictSteps(o)), 501)
		}
	}
}

func TestRandomDecisionHasLimitedSize(t *testing.T) {
	d := randomSource(5)
	for range 5 {
		got := rollout.Decide(randomDeployment(&d, 3000))
		data, err := json.Marshal(got)
		require.NoError(t, err)
		require.Less(t, len(data), 16<<10)
		for _, list := range [][]rollout.ObjectTarget{got.Taint, got.Untaint, got.ProtectFromAutoscaler, got.UnprotectFromAutoscaler, got.FinishUpdate, got.ClearUpdateLabels, got.ClearUpdateResult, got.Select, got.Candidates, got.Unmark} {
			require.LessOrEqual(t, len(list), rollout.MaxBatchSize)
		}
	}
}

// The sizes of one decision never exceed the allowed number of machines, and remove no available machine that is
// needed.
func TestOneStepOfARollingUpdateKeepsBothBounds(t *testing.T) {
	d := randomSource(23)
	for range decidetest.RandomRunCount(5000) {
		r, s, u := 1+d.randomIntBelow(12), d.randomIntBelow(5), d.randomIntBelow(5)
		a, b := d.randomIntBelow(12), d.randomIntBelow(12)
		o := rollingUpdateDeployment(
			r,
			s,
			u,
			oldSet(1, a, a, d.randomIntBelow(a+1)),
			currentSet(2, b, b, d.randomIntBelow(b+1)),
		)
		surge, unavailable := rollout.SurgeAndUnavailable(o)
		got := rollout.Decide(o)
		total, available := 0, 0
		for _, set := range o.Sets {
			size, live := set.Replicas, len(set.Machines)
			if to, changed := changedSizes(got)[set.Name]; changed {
				size = to
			}
			total += max(size, live)
			n := 0
			for _, m := range set.Machines {
				if m.Available {
					n++
				}
			}
			available += max(n-max(live-size, 0), 0)
		}
		require.LessOrEqual(t, total, max(r+surge, a+b))
		before := rollout.PlannedStatus(o).Counts.Available
		// If the current set has too many machines, its size becomes spec.replicas even if this removes needed
		// machines, as in MCM.
		if len(forcedResizeSetNames(got)) == 0 && b <= r {
			require.GreaterOrEqual(t, available, min(r-unavailable, before), "%d %d %d, %v", r, s, u, got.Why)
		}
	}
}

func TestARecreateRolloutReportsAnOvershoot(t *testing.T) {
	w := newSimulation(1, rollout.Facts{Settings: rollout.Settings{Replicas: 4, Strategy: rollout.Recreate}})
	w.rollOutFirstTemplate(t)
	w.template = "v2"
	for range 6 {
		w.runTurn(false)
	}
	g := w.sets[0]
	g.Replicas = 2
	for i := range 7 {
		w.addMachine(g, fmt.Sprintf("too-many-%d", i))
	}
	o := g.observeSet(w)
	o.ReportedStatus.PeakReplicas = 2
	assert.Positive(t, scale.PlanSet(o).Status.Overshoot)
	assert.True(t, w.runUntilDone(false, 500), "and the rollout ends all the same")
}

// The simulation runs the benchmark's rollout: 100 machines, 2 s for a creation, 1 s for a deletion.
func TestTheBenchmarkRolloutTakesNearlyIdealTime(t *testing.T) {
	w := newSimulation(
		1,
		rollout.Facts{Settings: rollout.Settings{Replicas: 100, Strategy: rollout.RollingUpdate, MaxSurge: countValue(10)}},
	)
	w.rollOutFirstTemplate(t)
	w.template = "v2"
	began := w.now
	ideal, complete := simulate.IdealDuration(w.observeDeployment(), 2*time.Second, time.Second)
	require.True(t, complete)
	assert.Equal(t, 30*time.Second, ideal)
	require.True(t, w.runUntilDone(false, 1000))
	assert.Empty(t, w.brokenInvariant)
	assert.Less(t, w.now.Sub(began), 3*ideal, "turns of half a second are the only other cost")
}
