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

// setPreserved preserves the machine until the given time, and then ends the preservation.
func (w *machineTestEnv) setPreserved(until time.Time) {
	w.decision.Need, w.decision.Phase, w.decision.PreserveUntil = attention.NeedPreservationEnd, "Running", until
	w.env.OnActivity("PreserveMachine", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in kube.ReadInput) (kube.MinVersions, error) {
			defer w.lock()()
			w.logActivity("preserve")
			if w.nodeWriteError != nil {
				return nil, w.nodeWriteError
			}
			if !in.At.Before(until) {
				w.decision.Need, w.decision.PreserveUntil = attention.NeedNothing, time.Time{}
			} else {
				w.decision.Need = attention.NeedPreservationEnd
			}
			return kube.MinVersions{kube.MachinesResource: "9"}, nil
		})
}

func TestPreservationEndsOnTime(t *testing.T) {
	w := newMachineTestEnv(t)
	until := w.env.Now().Add(96 * time.Hour)
	w.setPreserved(until)
	for at := time.Hour; at < 96*time.Hour; at += 20 * time.Hour {
		w.changeAfterDelay(at, func() {}) // no signal shortens the preservation
	}
	w.preservationEnd = until
	w.runMachine(t)
	require.Equal(t, 1, w.countActivities("preserve"))
	require.WithinDuration(t, until, w.env.Now(), time.Minute)
}

func TestPreservationIsWrittenAtItsStartAndEnd(t *testing.T) {
	w := newMachineTestEnv(t)
	until := w.env.Now().Add(time.Hour)
	w.setPreserved(until)
	w.decision.Need, w.preservationEnd = attention.NeedPreservation, until
	w.runMachine(t)
	require.Equal(t, []string{"decide", "preserve", "decide"}, w.activityLog[:3])
	require.Equal(t, 2, w.countActivities("preserve"), "at its beginning and at its end")
}

// The end of the preservation is written together with the phase Failed, because a set could otherwise delete the
// machine between the two writes.
func TestMachineThatFailsIsPreservedAtOnce(t *testing.T) {
	w := newMachineTestEnv(t)
	w.setUnhealthy(time.Time{})
	w.setHealthFailed()
	w.decision.PreserveUntil = w.env.Now().Add(time.Hour)
	w.runMachine(t)
	require.Equal(t, "Failed", w.reports[0].Phase)
	require.True(t, w.decision.PreserveUntil.Equal(w.reports[0].PreserveUntil))
}

func TestRecoveredMachineWithdrawsItsReplacementGrant(t *testing.T) {
	w := newMachineTestEnv(t)
	w.env.OnActivity("WithdrawReplacement", mock.Anything, mock.Anything).Return(w.mockWrite("withdraw"))
	w.decision.Need, w.decision.Phase, w.decision.Withdraw = attention.NeedStatusUpdate, "Failed", true
	w.decision.Health = &health.Verdict{
		Change: &health.PhaseChange{Phase: "Running", Operation: "HealthCheck", State: "Successful", Message: "well again"},
	}
	w.runMachine(t)
	require.Equal(t, []string{"decide", "withdraw", "report Running", "decide"}, w.activityLog)
}

// The creation timeout fires even if the node cannot be written.
func TestMachineWhoseNodeCannotBeWrittenStillFails(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision.Need = attention.NeedNodeSync
	w.decision.Phase = "Pending"
	w.decision.Otherwise = attention.NeedNodeJoin
	w.decision.Why = "node lacks label a"
	deadline := w.decision.CreateBy
	w.runMachine(t)
	require.Equal(t, "Failed", w.lastReport().Phase)
	require.Equal(t, deadline.Unix(), w.failureTime.Unix())
	require.Equal(t, 2, w.countActivities("sync"))
}

func TestNodeOfAPreservedMachineIsDrained(t *testing.T) {
	for name, outcome := range map[string]string{"to the end": vocabulary.DrainResultDrained, "by force": vocabulary.DrainResultForced} {
		t.Run(name, func(t *testing.T) {
			w := newMachineTestEnv(t)
			w.setPreserved(w.env.Now().Add(time.Hour))
			w.decision.Need = attention.NeedDrain
			w.decision.Phase = "Failed"
			w.decision.NodeName = "m-1"
			w.preservationEnd = w.decision.PreserveUntil
			w.drainResult = drain.Result{Outcome: outcome}
			w.onDrainEnd = func() { w.decision.Need = attention.NeedPreservationEnd }
			w.runMachine(t)
			require.Equal(t, []string{"decide", "report ", "drain m-1Preservation", "decide", "report "}, w.activityLog[:5])
		})
	}
}

func TestPreservationEndsOnTimeDuringADrain(t *testing.T) {
	w := newMachineTestEnv(t)
	until := w.env.Now().Add(time.Hour)
	w.setPreserved(until)
	w.decision.Need = attention.NeedDrain
	w.decision.Phase = "Failed"
	w.decision.NodeName = "m-1"
	w.preservationEnd = until
	w.hasRemainingPods = true
	w.runMachine(t)
	require.Equal(t, 1, w.countActivities("preserve"))
	require.WithinDuration(t, until, w.env.Now(), time.Minute)
}

// Status and event contain the API server's message if the API server refuses a write of the node. The workflow
// retries the write by itself, because a webhook or a policy does not report when it would accept the write.
func TestARefusedWriteOfTheNodeIsReported(t *testing.T) {
	for name, need := range map[string]attention.Need{"sync": attention.NeedNodeSync, "preserve": attention.NeedPreservation} {
		t.Run(name, func(t *testing.T) {
			w := newMachineTestEnv(t)
			w.setPreserved(w.env.Now().Add(time.Hour))
			w.decision.Need, w.decision.NodeName, w.nodeWriteError = need, "n", kube.RefusedError(
				"metadata.labels: Invalid value: a b",
			)
			w.env.RegisterDelayedCallback(func() {
				defer w.lock()()
				require.Equal(t, "node n cannot be written: metadata.labels: Invalid value: a b", w.reports[0].Step.Cause)
				require.Equal(t, []string{"NodeRefused"}, w.reports[0].Step.BlockedBy)
				require.Equal(t, "NodeRefused", w.reports[0].Event.Reason)
				require.Greater(t, w.countActivities(name), 1, "without a signal")
				require.Less(t, w.countActivities(name), 8, "ever more rarely")
				w.nodeWriteError, w.nodeSyncVersions, w.decision.Need = nil, kube.MinVersions{
					kube.NodesResource: "8",
				}, attention.NeedNothing
			}, time.Minute)
			require.Equal(t, run.OutcomeCalm, w.runMachine(t).Outcome)
		})
	}
}

// If a preservation is written while a node sync is refused, the status still shows the refusal.
func TestPreservationKeepsTheRefusedSyncInTheStatus(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision.Need, w.decision.Otherwise, w.decision.NodeName = attention.NeedNodeSync, attention.NeedPreservation, "n"
	w.nodeWriteError = kube.RefusedError("metadata.labels: Invalid value: a b")
	w.env.OnActivity("PreserveMachine", mock.Anything, mock.Anything).
		Return(func(context.Context, kube.ReadInput) (kube.MinVersions, error) {
			defer w.lock()()
			w.decision.Otherwise = attention.NeedNothing
			return kube.MinVersions{kube.MachinesResource: "9"}, nil
		})
	w.env.RegisterDelayedCallback(func() {
		defer w.lock()()
		require.NotEmpty(t, w.reports)
		require.Equal(t, "node n cannot be written: metadata.labels: Invalid value: a b", w.reports[0].Step.Cause)
		w.nodeWriteError, w.nodeSyncVersions, w.decision.Need = nil, kube.MinVersions{
			kube.NodesResource: "8",
		}, attention.NeedNothing
	}, time.Minute)
	require.Equal(t, run.OutcomeCalm, w.runMachine(t).Outcome)
}
