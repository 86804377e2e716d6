package rollout_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/decide/decidetest"
	"millwright/decide/rollout"
)

// checkPin reports an error if a decision adds machines to a set that a pin marks as failed.
func (w *rolloutSimulation) checkPin(d rollout.Decision) {
	for _, r := range d.Resize {
		if r.Name == w.spec.Progress.Set && r.To > r.From {
			w.recordBrokenInvariant("set %s has failed, and grows from %d to %d", r.Name, r.From, r.To)
		}
	}
	if d.Pause != nil {
		w.recordBrokenInvariant("the way back waits at a rollout step: %s", d.Why)
	}
}

// rollbackSimulation is a simulation with a policy for automatic rollbacks. Machines of a bad template never become
// ready.
type rollbackSimulation struct {
	*rolloutSimulation
	pinCount             int
	bakeTimePinCount     int             // pins that began in the bake time
	hasOnlyGoodTemplates bool            // no template is bad
	completedSetUIDs     map[string]bool // UIDs of sets whose rollout was complete
}

// newRollbackSimulation returns a simulation in which the rollout of the first template is complete.
func newRollbackSimulation(t *testing.T, seed uint64) *rollbackSimulation {
	t.Helper()
	d := new(randomSource(seed * 1181))
	spec := randomSpec(d)
	spec.Replicas = 1 + d.randomIntBelow(8)
	spec.Strategy = pickRandomItem(d, rollout.RollingUpdate, rollout.RollingUpdate, rollout.Recreate)
	spec.HistoryLimit = nil
	spec.ProgressDeadline = new(time.Minute)
	spec.RollbackPolicy = rollout.AutoRollback{
		RollsBackOnDeadline: d.randomBoolOneIn(2),
		HasMaxFailed:        d.randomBoolOneIn(2),
		MaxFailed:           d.randomIntBelow(3),
		BakeTime:            time.Duration(d.randomIntBelow(3)) * time.Minute,
	}
	w := &rollbackSimulation{
		rolloutSimulation:    newSimulation(seed, spec),
		hasOnlyGoodTemplates: d.randomBoolOneIn(2),
		completedSetUIDs:     map[string]bool{},
	}
	w.isBadTemplate = func(template string) bool { return !w.hasOnlyGoodTemplates && template != "v1" && template != "v4" }
	w.rollOutFirstTemplate(t)
	for _, g := range w.sets {
		w.completedSetUIDs[g.UID] = true
	}
	w.creationDuration = func() time.Duration { return time.Duration(w.random.randomIntBelow(6)) * 700 * time.Millisecond }
	w.deletionDuration = func() time.Duration { return time.Duration(w.random.randomIntBelow(6)) * 600 * time.Millisecond }
	w.writesLate, w.turnsPerUserAction = seed%2 == 1, 5
	return w
}

// runCheckedTurn runs one turn of the simulation, and checks each pin that begins.
func (w *rollbackSimulation) runCheckedTurn() {
	before := w.spec.Progress.Pin
	w.runTurn(true)
	for _, g := range w.sets {
		if w.lastDecision.Complete && w.lastDecision.Pin == nil && g.template == w.template {
			w.completedSetUIDs[g.UID] = true
		}
	}
	pin := w.spec.Progress.Pin
	if pin == nil || before != nil && *pin == *before {
		return
	}
	w.pinCount++
	if !w.spec.Progress.Completed.IsZero() {
		w.bakeTimePinCount++
	}
	failed, set := w.setByName(w.spec.Progress.Set), w.setByName(pin.Set)
	switch {
	case failed == nil || set == nil:
		w.recordBrokenInvariant("a pin names a set that does not exist: %+v", *pin)
	// during the bake time, machines that fail in a power cut count
	case !w.isBadTemplate(failed.template) && w.spec.Progress.Completed.IsZero():
		w.recordBrokenInvariant("the good template %s is rolled back: %s", failed.template, pin.Why)
	case !w.completedSetUIDs[set.UID]:
		w.recordBrokenInvariant("the machines return to %s, which was never complete", set.template)
	}
}

// causeRandomEvent causes a random event: a power cut, a person who replaces a machine, a cloud that creates no
// instance, a slow drain, a larger or smaller deployment, or a retry.
func (w *rollbackSimulation) causeRandomEvent() {
	var machines []*simulatedMachine
	for _, g := range w.sets {
		machines = append(machines, sortedMachines(g.machines)...)
	}
	machines = slices.DeleteFunc(machines, func(u *simulatedMachine) bool { return u.Deleting || u.Failed })
	if len(machines) == 0 {
		return
	}
	u := machines[w.random.randomIntBelow(len(machines))]
	switch w.random.randomIntBelow(7) {
	case 0:
		if u.Joined { // a power cut
			asFailedMachine(&u.Member)
			w.failureTimes = append(w.failureTimes, w.now)
		}
	case 1:
		u.RemovalRequested = true // a person requests the replacement
		asFailedMachine(&u.Member)
		w.failureTimes = append(w.failureTimes, w.now)
	case 2:
		if !u.Joined && !u.willFail { // the cloud denies the instance for longer than the progress deadline
			u.DenialReason, u.readyTime = rollout.DeniedByNetwork, w.now.Add(3*time.Minute)
		}
	case 3:
		w.deleteMachineByHand(w.setOfMachine(u), u)
		u.deletionEndTime = w.now.Add(5 * time.Minute) // a budget blocks the drain
	case 4:
		w.editCount++
		w.spec.Replicas = 1 + w.random.randomIntBelow(8)
		w.updateBounds()
	case 5:
		w.advanceTimeWithoutWorker(time.Hour)
	default:
		w.editCount++
		w.changeTemplate(w.template) // set the same template again
	}
}

// advanceTimeWithoutWorker advances the time while the worker does not run. The times of earlier failures and removals
// also advance, so that they still count as recent.
func (w *rollbackSimulation) advanceTimeWithoutWorker(d time.Duration) {
	w.now = w.now.Add(d)
	w.spec.WorkerDowntime += d
	for _, times := range [][]time.Time{w.failureTimes, w.removalTimes} {
		for i := range times {
			times[i] = times[i].Add(d)
		}
	}
}

func (w *rollbackSimulation) setOfMachine(u *simulatedMachine) *simulatedSet {
	return w.setByUID(w.ownerUID(u.UID), "")
}

// Only a bad template is rolled back automatically. The target is a revision whose rollout was complete, even if two
// bad templates follow each other. The set of a bad template never grows while the pin is in force, and each rollback
// ends.
func TestInvariantsHoldWithAutomaticRollbacks(t *testing.T) {
	pins, bakePins := 0, 0
	for seed := range uint64(decidetest.RandomRunCount(1000)) {
		w := newRollbackSimulation(t, seed)
		for i := range 3 {
			w.editCount++
			w.changeTemplate(fmt.Sprintf("v%d", 2+i))
			for range 40 + w.random.randomIntBelow(200) {
				w.runCheckedTurn()
				if w.random.randomBoolOneIn(20) {
					w.causeRandomEvent()
				}
			}
		}
		mayEnd := !w.isBadTemplate(w.template)
		for turn := 0; turn < 5000 && mayEnd && !w.isRolloutDone(); turn++ {
			w.runCheckedTurn()
			mayEnd = w.lastDecision.Pin == nil
		}
		require.Empty(t, w.brokenInvariant, "seed %d %s %+v", seed, w.spec.Strategy, w.spec.RollbackPolicy)
		require.True(
			t,
			!mayEnd || w.isRolloutDone(),
			"seed %d %s: does not end:%s; %s",
			seed,
			w.spec.Strategy,
			w.stateLine(),
			w.lastDecision.Why,
		)
		pins, bakePins = pins+w.pinCount, bakePins+w.bakeTimePinCount
	}
	require.Greater(t, pins, decidetest.RandomRunCount(1000)/4, "many templates are rolled back")
	require.Positive(t, bakePins, "some of them in the bake time")
}
