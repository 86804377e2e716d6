package scale_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/scale"
)

// A deployment reads from the status the last size for which the set has started all creations and deletions.
// ObservedReplicas becomes the new size when all creations and deletions for it have been started.
func TestObservedReplicasFollowStartedChanges(t *testing.T) {
	refused := func(deleting bool) func(*scale.Facts) {
		return func(o *scale.Facts) { o.LastWriteFailure = scale.WriteFailure{Deleting: deleting, Message: "quota"} }
	}
	for _, row := range []struct {
		name string
		o    scale.Facts
		seen bool
	}{
		{"all there", newSet(3, runningMembers(3)...), true},
		{"they need not be ready", newSet(3, runningMembers(3, asPendingMachine)...), true},
		{"machines to make", newSet(3, runningMembers(2)...), false},
		{"the last of them goes: another is to be made", newSet(1, runningMembers(1, asDeletingMachine)...), false},
		{"machines to delete", newSet(3, runningMembers(4)...), false},
		{"they go", newSet(3, append(runningMembers(3), newMember("z", day, asDeletingMachine))...), true},
		{"one that failed is to be replaced", newSet(3, append(runningMembers(2), newMember("z", day, asFailedMachine))...), false},
		{"a deployment has not agreed to that yet", newSet(3, append(runningMembers(2), newMember("z", day, asFailedMachine, asUnreplaceableMachine))...), true},
		{"one is to be remediated", newSet(3, append(runningMembers(2), newMember("z", day, asUnhealthyMachine, asMarkedMachine))...), false},
		{"more than wanted were handed over: the size follows", newSet(2, runningMembers(3, asMovedMachine)...), true},
		{"scaled to none, and none is left", newSet(0), true},

		{"frozen, one is missing", withChange(newSet(3, runningMembers(2)...), func(o *scale.Facts) { o.MCM.Freeze.HasLabel = true }), true},
		{"frozen, one is too many", withChange(newSet(3, runningMembers(4)...), func(o *scale.Facts) { o.MCM.Freeze.HasLabel = true }), false},
		{"closed", withChange(newSet(3), stopScaleUp), true},
		{"preflight fails", withChange(newSet(3), func(o *scale.Facts) { o.Preflight = upgradingControlPlane() }), true},
		{"its class is missing", withChange(newSet(3), func(o *scale.Facts) { o.MissingObjectKinds = []string{"MachineClass"} }), true},
		{"paused", withChange(newSet(3, runningMembers(4)...), pauseSet), true},
		{"invalid", withChange(newSet(3, runningMembers(4)...), func(o *scale.Facts) { o.InvalidReason = "the selector is empty" }), true},
		{"the next generation waits", withChange(newSet(1, newMember("z", 0, asNeverJoinedMachine)), func(o *scale.Facts) {
			o.Remediation.Backoff, o.Generations = day, scale.GenerationRecord{Failed: 1, Last: epochPlus(-time.Hour)}
		}), true},

		{"a creation was refused, and is tried again later", withChange(newSet(3), refused(false)), true},
		{"a deletion was refused", withChange(newSet(0, runningMembers(1)...), refused(true)), true},

		{"what is adopted or released may change what follows", withChange(newSet(1, runningMembers(1)...), func(o *scale.Facts) { o.Orphans = []scale.Orphan{newOrphan("o")} }), false},
		{"one is to be released", newSet(1, append(runningMembers(1), newMember("z", day, asUnmatchedMachine))...), false},
		{"one is to be kept", withChange(newSet(1, runningMembers(1, asFailedMachine)...), func(o *scale.Facts) { o.MCM.MaxAutoPreserved = 1 }), false},
		{"a mark is to be taken off", newSet(1, runningMembers(1, asHealthyMachine, asMarkedMachine)...), false},
		{"what is copied in place changes no number", newSet(1, runningMembers(1, withDrift("labels"))...), true},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.o.ReportedStatus.ObservedReplicas = 7
			want := 7
			if row.seen {
				want = row.o.Replicas
			}
			plan := scale.PlanSet(row.o)
			assert.Equal(t, want, plan.Status.ObservedReplicas, plan.Decision.Why)
			assert.Equal(t, scale.Decide(row.o), plan.Decision)
		})
	}
	t.Run("no size is below zero", func(t *testing.T) {
		assert.Zero(t, scale.PlanSet(newSet(-1)).Status.ObservedReplicas)
	})
}

// While machines are created in batches, ObservedReplicas is still the previous size.
func TestObservedReplicasChangeAfterTheLastBatch(t *testing.T) {
	w := newSetSimulation(newSet(2*scale.MaxCreations + 50))
	for _, alive := range []int{scale.MaxCreations, 2 * scale.MaxCreations, 2*scale.MaxCreations + 50} {
		require.Zero(t, w.ReportedStatus.ObservedReplicas)
		w.carryOutOneDecision(scale.Decide(w.Facts))
		w.writeStatus()
		require.Equal(t, alive, w.liveMachineCount())
	}
	assert.Equal(t, 2*scale.MaxCreations+50, w.ReportedStatus.ObservedReplicas)
}
