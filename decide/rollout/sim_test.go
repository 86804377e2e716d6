package rollout_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/decide/rollout"
)

// turn lets everybody act once, in a fixed or a random order; some are late.
func (w *world) turn(random bool) {
	actors := []func(){w.roll}
	for _, g := range w.sets {
		actors = append(actors, func() { w.work(g) })
	}
	actors = append(actors, func() { w.tick(500 * time.Millisecond) })
	if random {
		actors = shuffle(&w.dice, actors)
	}
	for _, act := range actors {
		if !random || !w.dice.oneIn(4) {
			act()
		}
	}
}

// done reports whether all is as wanted, and nobody is about to change that.
func (w *world) done() bool {
	return w.last.Complete && !w.last.Acts() && w.saw == nil && w.settled() && rollout.Decide(w.observe()).Complete
}

// finish runs until all is as wanted.
func (w *world) finish(random bool, turns int) bool {
	for range turns {
		if w.done() {
			return true
		}
		w.turn(random)
	}
	return w.done()
}

// start brings the first template up.
func (w *world) start(t *testing.T) {
	t.Helper()
	require.True(t, w.finish(false, 2000), "the first template does not come up:%s %s", w.state(), w.last.Why)
}

func anyStrategy(d *dice) rollout.Strategy {
	return pick(d, rollout.RollingUpdate, rollout.RollingUpdate, rollout.RollingUpdate, rollout.Recreate, rollout.InPlaceAuto)
}

func anySpec(d *dice) rollout.Observed {
	o := rollout.Observed{Replicas: d.below(13), Strategy: anyStrategy(d), Surge: count(d.below(5)), Unavailable: count(d.below(4)), Guard: d.oneIn(2)}
	if d.oneIn(4) {
		o.Surge, o.Unavailable = percent(d.below(60)), percent(d.below(60))
	}
	if d.oneIn(3) {
		o.Steps = []rollout.Step{{Size: count(1), Wait: time.Duration(d.below(5)) * time.Second}, {Size: percent(50), Wait: time.Second}}
	}
	if d.oneIn(2) {
		o.HistoryLimit = new(d.below(3))
	}
	return o
}

// disturb changes what is wanted.
func (w *world) disturb() {
	w.edited++
	switch w.dice.below(5) {
	case 0:
		w.spec.Replicas = w.dice.below(13)
	case 1:
		w.template = fmt.Sprintf("v%d", w.dice.below(5))
	case 2:
		w.template = "v1"
	case 3:
		w.spec.Paused = !w.spec.Paused
	default:
		w.spec.Surge, w.spec.Unavailable = count(w.dice.below(5)), count(w.dice.below(4))
	}
	w.bound()
}

const seeds = 2000

// Whatever is wanted in the middle, and in whatever order everybody acts: there are never more machines than replicas and
// surge, no step takes available ones below replicas less maxUnavailable, and it ends.
func TestP13_N17_D2_ThePromisesHoldInAnyOrder(t *testing.T) {
	for seed := range uint64(seeds) {
		w := newWorld(seed, anySpec(new(dice(seed*977))))
		w.start(t)
		w.create = func() time.Duration { return time.Duration(w.dice.below(6)) * 700 * time.Millisecond }
		w.remove = func() time.Duration { return time.Duration(w.dice.below(6)) * 600 * time.Millisecond }
		w.stale = seed%2 == 1
		w.template = "v2"
		random := seed%4 != 0
		for range 1 + w.dice.below(4) {
			for range w.dice.below(15) {
				w.turn(random)
			}
			w.disturb()
		}
		w.spec.Paused = false
		require.True(t, w.finish(random, 5000), "seed %d %s: does not end:%s; %s", seed, w.spec.Strategy, w.state(), w.last.Why)
		require.Empty(t, w.broken, "seed %d %s", seed, w.spec.Strategy)
		require.Zero(t, w.forced, "seed %d", seed)
	}
}

// Machines fail as they come, for a while. Replacements of those that failed come on top; everything else holds, and it ends.
func TestPromisesHoldWhereMachinesFail(t *testing.T) {
	for seed := range uint64(seeds / 3) {
		spec := anySpec(new(dice(seed * 31)))
		spec.Strategy = pick(new(dice(seed)), rollout.RollingUpdate, rollout.RollingUpdate, rollout.Recreate)
		w := newWorld(seed, spec)
		w.start(t)
		w.template = "v2"
		w.doom = func() bool { return w.dice.oneIn(4) }
		for i := range 60 {
			w.turn(true)
			if i%20 == 19 {
				w.disturb()
			}
		}
		w.doom = func() bool { return false }
		w.spec.Paused = false
		require.True(t, w.finish(true, 5000), "seed %d: does not end:%s; %s", seed, w.state(), w.last.Why)
		require.Empty(t, w.broken, "seed %d", seed)
	}
}
