package scale_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/preflight"
	"millwright/decide/scale"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden traces; read the difference as prose")

// compareWithGoldenTrace compares a world's log with the recorded trace.
func compareWithGoldenTrace(t *testing.T, name string, w *setSimulation) {
	t.Helper()
	path := filepath.Join("testdata", name+".trace")
	if *updateGolden {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(w.log.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), w.log.String())
}

func TestTraceOfTheLifecycleOfASet(t *testing.T) {
	w := newSetSimulation(newSet(2)).logNote("a set of 2").runSteps(3)
	w.logNote("template changed in place: other labels")
	for i := range w.Members {
		w.Members[i].Drift = "labels"
	}
	w.runSteps(1).logNote("one machine is deleted by a person")
	w.Members[0].Deleting, w.Members[0].DeletingSince, w.Members[0].Phase = true, w.Now, "Terminating"
	w.runSteps(4).logNote("scaled to 5")
	w.Replicas = 5
	w.runSteps(4).logNote("scaled to 3")
	w.Replicas = 3
	w.runSteps(4).logNote("the set is deleted")
	w.Deleting = true
	w.runSteps(4)
	compareWithGoldenTrace(t, "life", w)
	assert.Empty(t, w.Members)
	assert.True(t, scale.Decide(w.Facts).Done)
	assert.Equal(t, 6, w.createdMachineCount)
}

func TestTraceOfAClassThatMakesNoUsableMachine(t *testing.T) {
	w := newSetSimulation(newSet(2))
	w.Remediation = scale.RemediationPolicy{
		RetryPolicy: scale.RetryPolicy{Backoff: 4 * time.Minute, MaxBackoff: 8 * time.Minute},
	}
	bad := true
	w.failsToJoin = func(string) bool { return bad }
	w.logNote("every machine fails before it joins").runSteps(40).logNote("the class is mended")
	bad = false
	w.runSteps(12)
	compareWithGoldenTrace(t, "generations", w)
	assert.Equal(t, 2, w.liveMachineCount())
	assert.Equal(t, 0, scale.PlanSet(w.Facts).Status.Overshoot)
}

func TestTraceOfBlockedCreations(t *testing.T) {
	w := newSetSimulation(newSet(2))
	w.Preflight = preflight.Facts{
		ControlPlane: &preflight.ControlPlane{Kind: "ControlPlane", Name: "cp", Replicas: 3, Available: 2},
		Settings:     preflight.Settings{Checks: []string{preflight.CheckAll}, RequireReplicas: true},
	}
	w.logNote("the control plane is not stable").runSteps(2).logNote("it is")
	w.Preflight = preflight.Facts{}
	w.runSteps(3).logNote("frozen, and scaled to 3")
	w.MCM.Freeze.HasLabel, w.Replicas = true, 3
	w.runSteps(2).logNote("frozen, and scaled to 1")
	w.Replicas = 1
	w.runSteps(4).logNote("no longer frozen, but paused, and scaled to 2")
	w.MCM.Freeze.HasLabel, w.Replicas = false, 2
	pauseSet(&w.Facts)
	w.runSteps(2).logNote("the pause ends")
	w.PauseSentences = nil
	w.runSteps(3)
	compareWithGoldenTrace(t, "blocked", w)
	assert.Equal(t, 2, w.liveMachineCount())
}

func TestTraceOfOwnership(t *testing.T) {
	w := newSetSimulation(newSet(3))
	w.Orphans = []scale.Orphan{newOrphan("found-1"), newOrphan("found-2")}
	w.logNote("two machines without an owner match").runSteps(3).logNote("somebody changes the labels of one")
	w.Members[0].MatchesSelector = false
	w.runSteps(4)
	compareWithGoldenTrace(t, "ownership", w)
	assert.Equal(t, 2, w.createdMachineCount)
	assert.Equal(t, 3, w.liveMachineCount())
}

func TestOnlyMachinesMarkedByTheAutoscalerAreDeleted(t *testing.T) {
	w := newSetSimulation(newSet(5, runningMembers(5)...))
	w.logNote("the autoscaler marks m-2 and m-4, and scales to 3")
	w.Now = w.Now.Add(time.Minute)
	for _, i := range []int{1, 3} {
		w.Members[i].Priority, w.Members[i].MCM.ChosenAt = 1, w.Now
	}
	w.MCM.AutoscaledAt, w.Replicas = w.Now, 3
	w.runSteps(3).logNote("scaled out to 4 again")
	w.MCM.AutoscaledAt, w.Replicas = w.Now, 4
	w.runSteps(3)
	compareWithGoldenTrace(t, "scaler", w)
	assert.ElementsMatch(t, []string{"m-2", "m-4"}, w.deletedNames)
	assert.Equal(t, 1, w.createdMachineCount)
}

func TestTraceOfRemediation(t *testing.T) {
	w := newSetSimulation(newSet(5, runningMembers(5)...))
	w.Remediation.HasMaxInFlight, w.Remediation.MaxInFlight = true, 2
	w.logNote("three machines are marked unhealthy, two at a time may go")
	for i := range 3 {
		w.Members[i].Healthy, w.Members[i].Marked = scale.ConditionFalse, true
	}
	w.runSteps(6)
	compareWithGoldenTrace(t, "remediation", w)
	assert.Equal(t, []string{"m-3", "m-2", "m-1"}, w.deletedNames)
}

// If a decision is carried out twice or in part, there are never more machines than wanted.
func TestSetNeverHasTooManyMachines(t *testing.T) {
	throws := randomSource(3)
	w := newSetSimulation(newSet(1000))
	w.refusesCreation = func(int) bool { return throws.randomBoolOneIn(40) }
	for w.liveMachineCount() < 1000 {
		d := scale.Decide(w.Facts)
		failing := w.refusesCreation
		w.carryOutOneDecision(d)
		if throws.randomBoolOneIn(2) {
			w.refusesCreation = nil
			w.carryOutOneDecision(d) // a worker died, and its activity runs again
			w.refusesCreation = failing
		}
		require.LessOrEqual(t, w.liveMachineCount(), 1000)
	}
	assert.Equal(t, 1000, w.createdMachineCount)
	assert.Empty(t, scale.Decide(w.Facts).Create)
}

// If every third creation fails, the set sends few requests, and ends with the wanted number of machines.
func TestFailingCreationsAreRetriedInSmallBatches(t *testing.T) {
	w := newSetSimulation(newSet(30))
	w.refusesCreation = func(nth int) bool { return nth%3 == 0 }
	w.runStep()
	assert.Equal(t, 3, w.requestedCreationCount, "one, then two of which one failed; no more are asked for")
	assert.Equal(t, 2, w.liveMachineCount(), "those that were made stay")
	assert.Equal(
		t,
		scale.Condition{
			Type:    "MachinesCreated",
			Status:  scale.ConditionFalse,
			Reason:  "MachineCreationFailed",
			Message: "create machine 3: refused",
		},
		reportedCondition(t, w.Facts, "MachinesCreated"),
	)
	for w.liveMachineCount() < 30 {
		w.runStep()
	}
	assert.Equal(t, 30, w.createdMachineCount)
	assert.Equal(t, scale.ConditionTrue, reportedCondition(t, w.Facts, "MachinesCreated").Status)
}

func TestAScaleDownReportsNoOvershoot(t *testing.T) {
	w := newSetSimulation(newSet(6, runningMembers(6)...)).runSteps(1)
	w.Replicas = 2
	for range 4 {
		w.runStep()
		require.False(t, hasCondition(w.Facts, "Overshoot"))
	}
	w.Replicas = 6
	w.runSteps(3)
	assert.Equal(t, 6, w.liveMachineCount())
	assert.Equal(t, []string{"m-3", "m-4", "m-5", "m-6"}, slices.Sorted(slices.Values(w.deletedNames)))
}
