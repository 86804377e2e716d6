package machine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"

	"millwright/activities/kube"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/health"
	"millwright/workflows/drain"
	"millwright/workflows/run"
)

// kept makes the machine one that is preserved until that time, and released then.
func (w *world) kept(until time.Time) {
	w.decision.Need, w.decision.Phase, w.decision.PreserveUntil = attention.Kept, "Running", until
	w.env.OnActivity("PreserveMachine", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in kube.Read) (kube.MinVersions, error) {
			defer w.lock()()
			w.note("preserve")
			if w.bad != nil {
				return nil, w.bad
			}
			if !in.At.Before(until) {
				w.decision.Need, w.decision.PreserveUntil = attention.Nothing, time.Time{}
			} else {
				w.decision.Need = attention.Kept
			}
			return kube.MinVersions{kube.MachinesResource: "9"}, nil
		})
}

func TestPreservationEndsOnTime(t *testing.T) {
	w := newWorld(t)
	until := w.env.Now().Add(96 * time.Hour)
	w.kept(until)
	for at := time.Hour; at < 96*time.Hour; at += 20 * time.Hour {
		w.after(at, func() {}) // nothing shortens it
	}
	w.overAt = until
	w.run(t)
	require.Equal(t, 1, w.count("preserve"))
	require.WithinDuration(t, until, w.env.Now(), time.Minute)
}

func TestMachineThatIsToBePreservedIsPreserved(t *testing.T) {
	w := newWorld(t)
	until := w.env.Now().Add(time.Hour)
	w.kept(until)
	w.decision.Need, w.overAt = attention.Preserve, until
	w.run(t)
	require.Equal(t, []string{"decide", "preserve", "decide"}, w.log[:3])
	require.Equal(t, 2, w.count("preserve"), "at its beginning and at its end")
}

// The end of the preservation is written together with the phase, so that no set deletes the machine before.
func TestMachineThatFailsIsPreservedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.unhealthy(time.Time{})
	w.healthFailed()
	w.decision.PreserveUntil = w.env.Now().Add(time.Hour)
	w.run(t)
	require.Equal(t, "Failed", w.reports[0].Phase)
	require.True(t, w.decision.PreserveUntil.Equal(w.reports[0].PreserveUntil))
}

func TestMachineThatRecoversGivesItsGrantBack(t *testing.T) {
	w := newWorld(t)
	w.env.OnActivity("WithdrawReplacement", mock.Anything, mock.Anything).Return(w.written("withdraw"))
	w.decision.Need, w.decision.Phase, w.decision.Withdraw = attention.Health, "Failed", true
	w.decision.Health = &health.Verdict{
		Change: &health.Change{Phase: "Running", Operation: "HealthCheck", State: "Successful", Message: "well again"},
	}
	w.run(t)
	require.Equal(t, []string{"decide", "withdraw", "report Running", "decide"}, w.log)
}

// A deadline fires although the node cannot be written.
func TestMachineWhoseNodeCannotBeWrittenStillFails(t *testing.T) {
	w := newWorld(t)
	w.decision.Need = attention.Sync
	w.decision.Phase = "Pending"
	w.decision.Otherwise = attention.Node
	w.decision.Why = "node lacks label a"
	deadline := w.decision.CreateBy
	w.run(t)
	require.Equal(t, "Failed", w.last().Phase)
	require.Equal(t, deadline.Unix(), w.failedAt.Unix())
	require.Equal(t, 2, w.count("sync"))
}

func TestNodeOfAPreservedMachineIsEmptied(t *testing.T) {
	for name, outcome := range map[string]string{"to the end": vocabulary.DrainDrained, "by force": vocabulary.DrainForced} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.kept(w.env.Now().Add(time.Hour))
			w.decision.Need = attention.Drain
			w.decision.Phase = "Failed"
			w.decision.NodeName = "m-1"
			w.overAt = w.decision.PreserveUntil
			w.drain = drain.Result{Outcome: outcome}
			w.drained = func() { w.decision.Need = attention.Kept }
			w.run(t)
			require.Equal(t, []string{"decide", "report ", "drain m-1Preservation", "decide", "report "}, w.log[:5])
		})
	}
}

func TestPreservationEndsOnTimeWhileTheNodeIsEmptied(t *testing.T) {
	w := newWorld(t)
	until := w.env.Now().Add(time.Hour)
	w.kept(until)
	w.decision.Need = attention.Drain
	w.decision.Phase = "Failed"
	w.decision.NodeName = "m-1"
	w.overAt = until
	w.occupied = true
	w.run(t)
	require.Equal(t, 1, w.count("preserve"))
	require.WithinDuration(t, until, w.env.Now(), time.Minute)
}

// The words of the API server that refuses a write of the node are in status and event. The write is tried again by
// itself: a webhook or a policy does not report when it would accept it.
func TestARefusedWriteOfTheNodeIsTold(t *testing.T) {
	for name, need := range map[string]attention.Need{"sync": attention.Sync, "preserve": attention.Preserve} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.kept(w.env.Now().Add(time.Hour))
			w.decision.Need, w.decision.NodeName, w.bad = need, "n", kube.Refused("metadata.labels: Invalid value: a b")
			w.env.RegisterDelayedCallback(func() {
				defer w.lock()()
				require.Equal(t, "node n cannot be written: metadata.labels: Invalid value: a b", w.reports[0].Step.Cause)
				require.Equal(t, []string{"NodeRefused"}, w.reports[0].Step.BlockedBy)
				require.Equal(t, "NodeRefused", w.reports[0].Event.Reason)
				require.Greater(t, w.count(name), 1, "without a signal")
				require.Less(t, w.count(name), 8, "ever more rarely")
				w.bad, w.synced, w.decision.Need = nil, kube.MinVersions{kube.NodesResource: "8"}, attention.Nothing
			}, time.Minute)
			require.Equal(t, run.OutcomeCalm, w.run(t).Outcome)
		})
	}
}

// A preservation that is written while a sync of the node is refused does not make the machine forget the refusal.
func TestAPreservationDoesNotForgetARefusedSync(t *testing.T) {
	w := newWorld(t)
	w.decision.Need, w.decision.Otherwise, w.decision.NodeName = attention.Sync, attention.Preserve, "n"
	w.bad = kube.Refused("metadata.labels: Invalid value: a b")
	w.env.OnActivity("PreserveMachine", mock.Anything, mock.Anything).
		Return(func(context.Context, kube.Read) (kube.MinVersions, error) {
			defer w.lock()()
			w.decision.Otherwise = attention.Nothing
			return kube.MinVersions{kube.MachinesResource: "9"}, nil
		})
	w.env.RegisterDelayedCallback(func() {
		defer w.lock()()
		require.NotEmpty(t, w.reports)
		require.Equal(t, "node n cannot be written: metadata.labels: Invalid value: a b", w.reports[0].Step.Cause)
		w.bad, w.synced, w.decision.Need = nil, kube.MinVersions{kube.NodesResource: "8"}, attention.Nothing
	}, time.Minute)
	require.Equal(t, run.OutcomeCalm, w.run(t).Outcome)
}
