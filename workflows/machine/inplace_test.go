package machine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"

	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/health"
	"millwright/decide/inplace"
	"millwright/workflows/drain"
	"millwright/workflows/run"
)

// setUpdateStep sets the next step of an in-place update that Millwright must carry out.
func (w *machineTestEnv) setUpdateStep(step inplace.Step, reason string) {
	w.decision.Need = attention.NeedInPlaceUpdate
	w.decision.InPlace = inplace.Decision{Step: step, Reason: reason, Why: string(step)}
	if step == inplace.StepDrain {
		w.decision.Need = attention.NeedDrain
	}
}

// newInPlaceUpdateTestEnv returns a world whose node follows the in-place update that the workflow writes.
func newInPlaceUpdateTestEnv(t *testing.T) *machineTestEnv {
	w := newMachineTestEnv(t)
	w.decision.Phase, w.decision.NodeName, w.decision.Health = "Running", "m-1", &health.Verdict{}
	any1 := []any{mock.Anything, mock.Anything}
	node := func(what string) func(context.Context, kube.ReadInput) (kube.MinVersions, error) {
		return func(context.Context, kube.ReadInput) (kube.MinVersions, error) {
			defer w.lock()()
			w.logActivity(what)
			return kube.MinVersions{"nodes": "7"}, nil
		}
	}
	w.env.OnActivity("CordonNode", any1...).Return(node("cordon"))
	w.env.OnActivity("UncordonNode", any1...).Return(node("uncordon"))
	w.drainResult = drain.Result{Outcome: vocabulary.DrainResultDrained}
	w.env.OnActivity("MarkInPlace", any1...).
		Return(func(_ context.Context, in machine.InPlaceCondition) (kube.MinVersions, error) {
			defer w.lock()()
			w.logActivity("mark " + in.Reason)
			switch in.Reason {
			case "DrainSuccessful":
				w.setUpdateStep(inplace.StepSetUpdatingPhase, "")
			case "ReadyForUpdate":
				w.decision.Need = attention.NeedRecovery
				w.decision.Health = &health.Verdict{Why: "waits for the agent", Deadline: w.decisionTime.Add(20 * time.Minute)}
			}
			return kube.MinVersions{"nodes": "8"}, nil
		})
	w.onReport = func(in machine.Report) {
		if in.Phase == "InPlaceUpdating" {
			w.decision.Phase = in.Phase
			w.setUpdateStep(inplace.StepStartAgent, "ReadyForUpdate")
		}
	}
	return w
}

func TestNodeIsDrainedAndMarkedReadyForUpdate(t *testing.T) {
	w := newInPlaceUpdateTestEnv(t)
	w.setUpdateStep(inplace.StepDrain, "DrainSuccessful")
	w.changeAfterDelay(10*time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Equal(t, []string{
		"decide",
		"report ",
		"cordon",
		"drain m-1InPlaceUpdate",
		"mark DrainSuccessful",
		"decide",
		"report InPlaceUpdating",
		"decide",
		"mark ReadyForUpdate",
		"decide",
	}, w.activityLog[:10])
	require.Equal(t, "Running", w.lastReport().Phase)
}

// During a drain for an update, the health timeout may end and a deletion may be requested.
func TestUpdateDrainObeysHealthTimeoutAndDeletion(t *testing.T) {
	t.Run("its health timeout ends on time", func(t *testing.T) {
		w := newInPlaceUpdateTestEnv(t)
		w.hasRemainingPods = true
		w.setUpdateStep(inplace.StepDrain, "DrainSuccessful")
		deadline := w.env.Now().Add(30 * time.Second)
		w.decision.Health = &health.Verdict{Deadline: deadline}
		w.env.RegisterDelayedCallback(w.setHealthFailed, 29*time.Second)
		w.runMachine(t)
		require.Equal(t, "Failed", w.lastReport().Phase)
		require.Equal(t, deadline.Unix(), w.failureTime.Unix())
	})
	t.Run("it is deleted at once", func(t *testing.T) {
		w := newInPlaceUpdateTestEnv(t)
		w.hasRemainingPods = true
		w.setUpdateStep(inplace.StepDrain, "DrainSuccessful")
		w.changeAfterDelay(30*time.Second, func() { w.decision.Need, w.hasRemainingPods = attention.NeedDeletion, false })
		require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	})
}

// If a person cancels the drain in Temporal, the pods are not evicted.
func TestCancelledUpdateDrainEvictsNoPods(t *testing.T) {
	w := newInPlaceUpdateTestEnv(t)
	w.isDrainCancelled = true
	w.setUpdateStep(inplace.StepDrain, "DrainSuccessful")
	w.changeAfterDelay(10*time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Equal(
		t,
		[]string{
			"decide",
			"report ",
			"cordon",
			"drain m-1InPlaceUpdate",
			"hold: the drain was cancelled in Temporal",
			"uncordon",
			"decide",
		},
		w.activityLog[:7],
	)
}

// If a write of the node condition has no visible effect on the node, the workflow does not repeat the write.
func TestUpdateConditionWithoutEffectIsNotRewritten(t *testing.T) {
	w := newInPlaceUpdateTestEnv(t)
	w.setUpdateStep(inplace.StepWriteCondition, "CandidateForUpdate")
	w.changeAfterDelay(time.Minute, func() { w.decision.Need = attention.NeedNothing })
	w.runMachine(t)
	require.LessOrEqual(t, w.countActivities("mark CandidateForUpdate"), 2)
}

// If an attempt to write the condition wrote nothing, the workflow does not repeat the attempt. The update may concern
// a node that cannot be written.
func TestUnchangedUpdateConditionIsNotWritten(t *testing.T) {
	w := newInPlaceUpdateTestEnv(t)
	w.decision.Need, w.decision.Otherwise, w.decision.Why = attention.NeedNodeSync, attention.NeedInPlaceUpdate, "node lacks label a"
	w.changeAfterDelay(time.Minute, func() { w.decision.Need = attention.NeedNothing })
	w.runMachine(t)
	require.Zero(t, w.countActivities("mark "))
}
