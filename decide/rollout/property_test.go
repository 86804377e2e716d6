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

// randomDeployment returns a deployment in a random state. Rollouts cause only few of these states.
func randomDeployment(d *dice, most int) rollout.Observed {
	o := randomSpec(d)
	o.Now, o.Replicas = epoch, d.randomBelow(most)
	o.Strategy = pickRandom(
		d,
		rollout.RollingUpdate,
		rollout.Recreate,
		rollout.InPlaceAuto,
		rollout.InPlaceManual,
		rollout.OnDelete,
	)
	o.Deleting, o.Paused, o.FreeWhenDeleting, o.MCM.Frozen = d.randomOneIn(
		15,
	), d.randomOneIn(
		8,
	), d.randomOneIn(
		6,
	), d.randomOneIn(
		9,
	)
	o.Approved, o.MCM.Guard = d.randomBelow(3), d.randomOneIn(2)
	if d.randomOneIn(8) {
		o.Held = "cancelled"
	}
	if d.randomOneIn(8) {
		o.RollbackTo = new(int64(d.randomBelow(5)))
	}
	if d.randomOneIn(4) {
		o.Automatic = rollout.AutoRollback{OnDeadline: true, Failed: true, MaxFailed: d.randomBelow(4)}
		o.Deadline = new(time.Minute)
		o.Reported.Conditions = []rollout.Condition{
			{
				Type:    "Progressing",
				Reason:  pickRandom(d, "MachineSetUpdated", "DeploymentPaused", "NewMachineSetAvailable"),
				Updated: timeAt(-time.Hour),
			},
		}
	}
	for n := range d.randomBelow(5) {
		live := d.randomBelow(most)
		s := oldSet(n+1, d.randomBelow(most), live, d.randomBelow(live+1))
		s.Current, s.Deleting, s.NoScaleUp, s.Drift = d.randomOneIn(4), d.randomOneIn(9), d.randomOneIn(4), d.randomOneIn(9)
		s.Counted, s.Desired, s.Max = d.randomBelow(most), d.randomBelow(most), d.randomBelow(most)
		if d.randomOneIn(3) {
			s.ActedOn = d.randomBelow(most)
		}
		for i := range s.Machines {
			change := pickRandom(
				d,
				makeUnhealthy,
				makeFailed,
				makePreserved,
				makeDeleting,
				makeUpdating,
				makeCandidate,
				makeUpdated,
				makeHandedOver,
				makeTainted,
				makeGuarded,
				removeNode,
				makeChosen,
			)
			if d.randomOneIn(3) {
				s = withMachine(s, i, change)
			}
		}
		o.Sets = append(o.Sets, s)
	}
	return o
}

func TestDecisionsAreLawful(t *testing.T) {
	d := dice(11)
	for i := range decidetest.Seeds(2000) {
		o := randomDeployment(&d, 12)
		got := rollout.Decide(o)
		before := fmt.Sprint(o)
		mixed := o
		mixed.Sets = shuffled(&d, o.Sets)
		for i := range mixed.Sets {
			mixed.Sets[i].Machines = shuffled(&d, mixed.Sets[i].Machines)
		}
		require.Equal(t, got, rollout.Decide(mixed), "the order of the facts is no fact")
		require.Equal(t, rollout.Report(o), rollout.Report(mixed))
		plan := rollout.Plan(mixed)
		require.Equal(t, got, plan.Decision, "to report first changes no decision")
		require.Equal(t, rollout.Report(o), plan.Status)
		require.Equal(t, before, fmt.Sprint(o), "facts are not changed")
		for _, r := range got.Resize {
			require.GreaterOrEqual(t, r.To, 0)
			require.NotEmpty(t, r.Version)
		}
		if o.Paused || o.Held != "" {
			require.Empty(t, got.Select)
			require.Nil(t, got.Create)
		}
		require.NotEmpty(t, got.Why)
		if i%10 == 0 {
			require.LessOrEqual(t, len(simulate.Plan(o)), 501)
		}
	}
}

func TestADecisionIsBounded(t *testing.T) {
	d := dice(5)
	for range 5 {
		got := rollout.Decide(randomDeployment(&d, 3000))
		data, err := json.Marshal(got)
		require.NoError(t, err)
		require.Less(t, len(data), 16<<10)
		for _, list := range [][]rollout.Target{got.Taint, got.Untaint, got.ProtectFromAutoscaler, got.UnprotectFromAutoscaler, got.FinishUpdate, got.ClearUpdateLabels, got.ClearUpdateResult, got.Select, got.Candidates, got.Unmark} {
			require.LessOrEqual(t, len(list), rollout.MaxBatch)
		}
	}
}

// The sizes of one decision never exceed the allowed number of machines, and remove no available machine that is
// needed.
func TestOneStepOfARollingUpdateKeepsBothBounds(t *testing.T) {
	d := dice(23)
	for range decidetest.Seeds(5000) {
		r, s, u := 1+d.randomBelow(12), d.randomBelow(5), d.randomBelow(5)
		a, b := d.randomBelow(12), d.randomBelow(12)
		o := rollingUpdate(r, s, u, oldSet(1, a, a, d.randomBelow(a+1)), currentSet(2, b, b, d.randomBelow(b+1)))
		surge, unavailable := rollout.Bounds(o)
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
		before := rollout.Report(o).Counts.Available
		// If the current set has too many machines, its size falls to spec.replicas at any cost, as in MCM.
		if len(forcedSets(got)) == 0 && b <= r {
			require.GreaterOrEqual(t, available, min(r-unavailable, before), "%d %d %d, %v", r, s, u, got.Why)
		}
	}
}

func TestARecreateDeploymentHidesNoOvershoot(t *testing.T) {
	w := newWorld(1, rollout.Observed{Settings: rollout.Settings{Replicas: 4, Strategy: rollout.Recreate}})
	w.createFirstTemplate(t)
	w.template = "v2"
	for range 6 {
		w.runTurn(false)
	}
	g := w.sets[0]
	g.Replicas = 2
	for i := range 7 {
		w.addMachine(g, fmt.Sprintf("too-many-%d", i))
	}
	o := g.observe(w)
	o.Reported.Peak = 2
	assert.Positive(t, scale.Plan(o).Status.Overshoot)
	assert.True(t, w.runUntilDone(false, 500), "and the rollout ends all the same")
}

// The simulation runs the benchmark's rollout: 100 machines, 2 s for a creation, 1 s for a deletion.
func TestTheRolloutOfTheBenchmarkIsNearIdeal(t *testing.T) {
	w := newWorld(
		1,
		rollout.Observed{Settings: rollout.Settings{Replicas: 100, Strategy: rollout.RollingUpdate, Surge: countBound(10)}},
	)
	w.createFirstTemplate(t)
	w.template = "v2"
	began := w.now
	ideal, complete := simulate.Ideal(w.observe(), 2*time.Second, time.Second)
	require.True(t, complete)
	assert.Equal(t, 30*time.Second, ideal)
	require.True(t, w.runUntilDone(false, 1000))
	assert.Empty(t, w.brokenPromise)
	assert.Less(t, w.now.Sub(began), 3*ideal, "turns of half a second are the only other cost")
}
