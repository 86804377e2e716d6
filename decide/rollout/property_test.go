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

// anyDeployment is a deployment in any state, most of which no rollout gets into.
func anyDeployment(d *dice, most int) rollout.Observed {
	o := anySpec(d)
	o.Now, o.Replicas = epoch, d.below(most)
	o.Strategy = pick(
		d,
		rollout.RollingUpdate,
		rollout.Recreate,
		rollout.InPlaceAuto,
		rollout.InPlaceManual,
		rollout.OnDelete,
	)
	o.Deleting, o.Paused, o.FreeWhenDeleting, o.MCM.Frozen = d.oneIn(15), d.oneIn(8), d.oneIn(6), d.oneIn(9)
	o.Approved, o.MCM.Guard = d.below(3), d.oneIn(2)
	if d.oneIn(8) {
		o.Held = "cancelled"
	}
	if d.oneIn(8) {
		o.RollbackTo = new(int64(d.below(5)))
	}
	if d.oneIn(4) {
		o.Automatic = rollout.AutoRollback{OnDeadline: true, Failed: true, MaxFailed: d.below(4)}
		o.Deadline = new(time.Minute)
		o.Reported.Conditions = []rollout.Condition{
			{
				Type:    "Progressing",
				Reason:  pick(d, "MachineSetUpdated", "DeploymentPaused", "NewMachineSetAvailable"),
				Updated: at(-time.Hour),
			},
		}
	}
	for n := range d.below(5) {
		live := d.below(most)
		s := old(n+1, d.below(most), live, d.below(live+1))
		s.Current, s.Deleting, s.NoScaleUp, s.Drift = d.oneIn(4), d.oneIn(9), d.oneIn(4), d.oneIn(9)
		s.Counted, s.Desired, s.Max = d.below(most), d.below(most), d.below(most)
		if d.oneIn(3) {
			s.ActedOn = d.below(most)
		}
		for i := range s.Machines {
			change := pick(
				d,
				sick,
				failed,
				preserved,
				deleting,
				updating,
				candidate,
				updated,
				handed,
				tainted,
				guarded,
				nodeless,
				chosen,
			)
			if d.oneIn(3) {
				s = with(s, i, change)
			}
		}
		o.Sets = append(o.Sets, s)
	}
	return o
}

func TestDecisionsAreLawful(t *testing.T) {
	d := dice(11)
	for i := range decidetest.Seeds(2000) {
		o := anyDeployment(&d, 12)
		got := rollout.Decide(o)
		before := fmt.Sprint(o)
		mixed := o
		mixed.Sets = shuffle(&d, o.Sets)
		for i := range mixed.Sets {
			mixed.Sets[i].Machines = shuffle(&d, mixed.Sets[i].Machines)
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
		got := rollout.Decide(anyDeployment(&d, 3000))
		data, err := json.Marshal(got)
		require.NoError(t, err)
		require.Less(t, len(data), 16<<10)
		for _, list := range [][]rollout.Target{got.Taint, got.Untaint, got.ProtectFromAutoscaler, got.UnprotectFromAutoscaler, got.FinishUpdate, got.ClearUpdateLabels, got.ClearUpdateResult, got.Select, got.Candidates, got.Unmark} {
			require.LessOrEqual(t, len(list), rollout.MaxBatch)
		}
	}
}

// The sizes of a step leave no more places than allowed, and take no available machine that is needed.
func TestOneStepOfARollingUpdateKeepsBothBounds(t *testing.T) {
	d := dice(23)
	for range decidetest.Seeds(5000) {
		r, s, u := 1+d.below(12), d.below(5), d.below(5)
		a, b := d.below(12), d.below(12)
		o := rolling(r, s, u, old(1, a, a, d.below(a+1)), now(2, b, b, d.below(b+1)))
		surge, unavailable := rollout.Bounds(o)
		got := rollout.Decide(o)
		total, available := 0, 0
		for _, set := range o.Sets {
			size, live := set.Replicas, len(set.Machines)
			if to, changed := sizes(got)[set.Name]; changed {
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
		if len(forced(got)) == 0 && b <= r { // above, the size is followed whatever it costs, as in MCM
			require.GreaterOrEqual(t, available, min(r-unavailable, before), "%d %d %d, %v", r, s, u, got.Why)
		}
	}
}

func TestARecreateDeploymentHidesNoOvershoot(t *testing.T) {
	w := newWorld(1, rollout.Observed{Settings: rollout.Settings{Replicas: 4, Strategy: rollout.Recreate}})
	w.start(t)
	w.template = "v2"
	for range 6 {
		w.turn(false)
	}
	g := w.sets[0]
	g.Replicas = 2
	for i := range 7 {
		w.addUnit(g, fmt.Sprintf("too-many-%d", i))
	}
	o := g.observe(w)
	o.Reported.Peak = 2
	assert.Positive(t, scale.Plan(o).Status.Overshoot)
	assert.True(t, w.finish(false, 500), "and the rollout ends all the same")
}

// The way of the benchmark, in the simulation: 100 machines, creation two seconds, deletion one.
func TestTheWayOfTheBenchmark(t *testing.T) {
	w := newWorld(
		1,
		rollout.Observed{Settings: rollout.Settings{Replicas: 100, Strategy: rollout.RollingUpdate, Surge: count(10)}},
	)
	w.start(t)
	w.template = "v2"
	began := w.now
	ideal, complete := simulate.Ideal(w.observe(), 2*time.Second, time.Second)
	require.True(t, complete)
	assert.Equal(t, 30*time.Second, ideal)
	require.True(t, w.finish(false, 1000))
	assert.Empty(t, w.broken)
	assert.Less(t, w.now.Sub(began), 3*ideal, "turns of half a second are the only other cost")
}
