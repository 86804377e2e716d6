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

var update = flag.Bool("update", false, "rewrite the golden traces; read the difference as prose")

// golden compares what a world says with the recorded trace.
func golden(t *testing.T, name string, w *world) {
	t.Helper()
	path := filepath.Join("testdata", name+".trace")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(w.log.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), w.log.String())
}

func TestTheWholeLifeOfASet(t *testing.T) {
	w := newWorld(set(2)).note("a set of 2").run(3)
	w.note("template changed in place: other labels")
	for i := range w.Members {
		w.Members[i].Drift = "labels"
	}
	w.run(1).note("one machine is deleted by a person")
	w.Members[0].Deleting, w.Members[0].DeletingSince, w.Members[0].Phase = true, w.Now, "Terminating"
	w.run(4).note("scaled to 5")
	w.Replicas = 5
	w.run(4).note("scaled to 3")
	w.Replicas = 3
	w.run(4).note("the set is deleted")
	w.Deleting = true
	w.run(4)
	golden(t, "life", w)
	assert.Empty(t, w.Members)
	assert.True(t, scale.Decide(w.Observed).Done)
	assert.Equal(t, 6, w.made)
}

func TestTraceOfAClassThatMakesNoUsableMachine(t *testing.T) {
	w := newWorld(set(2))
	w.Remediation = scale.Remediation{Backoff: 4 * time.Minute, MaxBackoff: 8 * time.Minute}
	bad := true
	w.doomed = func(string) bool { return bad }
	w.note("every machine fails before it joins").run(40).note("the class is mended")
	bad = false
	w.run(12)
	golden(t, "generations", w)
	assert.Equal(t, 2, w.alive())
	assert.Equal(t, 0, scale.Plan(w.Observed).Status.Overshoot)
}

func TestTraceOfWhatBlocks(t *testing.T) {
	w := newWorld(set(2))
	w.Preflight = preflight.Observed{
		ControlPlane: &preflight.ControlPlane{Kind: "ControlPlane", Name: "cp", Replicas: 3, Available: 2},
		Settings:     preflight.Settings{Checks: []string{preflight.All}},
	}
	w.note("the control plane is not stable").run(2).note("it is")
	w.Preflight = preflight.Observed{}
	w.run(3).note("frozen, and scaled to 3")
	w.MCM.Freeze.Label, w.Replicas = true, 3
	w.run(2).note("frozen, and scaled to 1")
	w.Replicas = 1
	w.run(4).note("no longer frozen, but paused, and scaled to 2")
	w.MCM.Freeze.Label, w.Replicas = false, 2
	paused(&w.Observed)
	w.run(2).note("the pause ends")
	w.Pauses = nil
	w.run(3)
	golden(t, "blocked", w)
	assert.Equal(t, 2, w.alive())
}

func TestTraceOfOwnership(t *testing.T) {
	w := newWorld(set(3))
	w.Orphans = []scale.Orphan{orphan("found-1"), orphan("found-2")}
	w.note("two machines without an owner match").run(3).note("somebody changes the labels of one")
	w.Members[0].Matches = false
	w.run(4)
	golden(t, "ownership", w)
	assert.Equal(t, 2, w.made)
	assert.Equal(t, 3, w.alive())
}

func TestTheScalerTakesExactlyWhatItMarked(t *testing.T) {
	w := newWorld(set(5, running(5)...))
	w.note("the autoscaler marks m-2 and m-4, and scales to 3")
	w.Now = w.Now.Add(time.Minute)
	for _, i := range []int{1, 3} {
		w.Members[i].Priority, w.Members[i].MCM.Chosen = 1, w.Now
	}
	w.MCM.Scaled, w.Replicas = w.Now, 3
	w.run(3).note("scaled out to 4 again")
	w.MCM.Scaled, w.Replicas = w.Now, 4
	w.run(3)
	golden(t, "scaler", w)
	assert.ElementsMatch(t, []string{"m-2", "m-4"}, w.deleted)
	assert.Equal(t, 1, w.made)
}

func TestTraceOfRemediation(t *testing.T) {
	w := newWorld(set(5, running(5)...))
	w.Remediation.Limited, w.Remediation.MaxInFlight = true, 2
	w.note("three machines are marked unhealthy, two at a time may go")
	for i := range 3 {
		w.Members[i].Healthy, w.Members[i].Marked = scale.False, true
	}
	w.run(6)
	golden(t, "remediation", w)
	assert.Equal(t, []string{"m-3", "m-2", "m-1"}, w.deleted)
}

// A decision may be carried out twice, or half, before the next look. There are never more machines than wanted.
func TestNeverTooMany(t *testing.T) {
	throws := dice(3)
	w := newWorld(set(1000))
	w.refuse = func(int) bool { return throws.oneIn(40) }
	for w.alive() < 1000 {
		d := scale.Decide(w.Observed)
		failing := w.refuse
		w.carryOut(d)
		if throws.oneIn(2) {
			w.refuse = nil
			w.carryOut(d) // a worker died, and its activity is run once more
			w.refuse = failing
		}
		require.LessOrEqual(t, w.alive(), 1000)
	}
	assert.Equal(t, 1000, w.made)
	assert.Empty(t, scale.Decide(w.Observed).Create)
}

// A creation that fails for every third machine costs few calls, and ends with as many machines as wanted.
func TestCreationStopsAndGoesOn(t *testing.T) {
	w := newWorld(set(30))
	w.refuse = func(nth int) bool { return nth%3 == 0 }
	w.step()
	assert.Equal(t, 3, w.asked, "one, then two of which one failed; no more are asked for")
	assert.Equal(t, 2, w.alive(), "those that were made stay")
	assert.Equal(
		t,
		scale.Condition{
			Type:    "MachinesCreated",
			Status:  scale.False,
			Reason:  "MachineCreationFailed",
			Message: "create machine 3: refused",
		},
		condition(t, w.Observed, "MachinesCreated"),
	)
	for w.alive() < 30 {
		w.step()
	}
	assert.Equal(t, 30, w.made)
	assert.Equal(t, scale.True, condition(t, w.Observed, "MachinesCreated").Status)
}

func TestAScaleDownFreezesNothing(t *testing.T) {
	w := newWorld(set(6, running(6)...)).run(1)
	w.Replicas = 2
	for range 4 {
		w.step()
		require.False(t, has(w.Observed, "Overshoot"))
	}
	w.Replicas = 6
	w.run(3)
	assert.Equal(t, 6, w.alive())
	assert.Equal(t, []string{"m-3", "m-4", "m-5", "m-6"}, slices.Sorted(slices.Values(w.deleted)))
}
