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

// turn makes the next step of an in-place update ours.
func (w *world) turn(step inplace.Step, reason string) {
	w.decision.Need = attention.InPlace
	w.decision.InPlace = inplace.Decision{Step: step, Reason: reason, Why: string(step)}
	if step == inplace.Drain {
		w.decision.Need = attention.Drain
	}
}

// updating is a world whose node goes through an in-place update as the workflow asks.
func updating(t *testing.T) *world {
	w := newWorld(t)
	w.decision.Phase, w.decision.NodeName, w.decision.Health = "Running", "m-1", &health.Verdict{}
	any1 := []any{mock.Anything, mock.Anything}
	node := func(what string) func(context.Context, kube.Read) (kube.MinVersions, error) {
		return func(context.Context, kube.Read) (kube.MinVersions, error) {
			defer w.lock()()
			w.note(what)
			return kube.MinVersions{"nodes": "7"}, nil
		}
	}
	w.env.OnActivity("CordonNode", any1...).Return(node("cordon"))
	w.env.OnActivity("UncordonNode", any1...).Return(node("uncordon"))
	w.drain = drain.Result{Outcome: vocabulary.DrainDrained}
	w.env.OnActivity("MarkInPlace", any1...).
		Return(func(_ context.Context, in machine.InPlaceMark) (kube.MinVersions, error) {
			defer w.lock()()
			w.note("mark " + in.Reason)
			switch in.Reason {
			case "DrainSuccessful":
				w.turn(inplace.Update, "")
			case "ReadyForUpdate":
				w.decision.Need = attention.Recovery
				w.decision.Health = &health.Verdict{Why: "waits for the agent", Deadline: w.decidedAt.Add(20 * time.Minute)}
			}
			return kube.MinVersions{"nodes": "8"}, nil
		})
	w.reported = func(in machine.Report) {
		if in.Phase == "InPlaceUpdating" {
			w.decision.Phase = in.Phase
			w.turn(inplace.Ready, "ReadyForUpdate")
		}
	}
	return w
}

func TestNodeIsEmptiedAndItsAgentIsTold(t *testing.T) {
	w := updating(t)
	w.turn(inplace.Drain, "DrainSuccessful")
	w.after(10*time.Minute, w.joined)
	w.run(t)
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
	}, w.log[:10])
	require.Equal(t, "Running", w.last().Phase)
}

// During a drain the health timeout may end, and a deletion may be requested.
func TestMachineWhoseNodeIsNotEmptyIsNotForgotten(t *testing.T) {
	t.Run("its health timeout ends on time", func(t *testing.T) {
		w := updating(t)
		w.occupied = true
		w.turn(inplace.Drain, "DrainSuccessful")
		deadline := w.env.Now().Add(30 * time.Second)
		w.decision.Health = &health.Verdict{Deadline: deadline}
		w.env.RegisterDelayedCallback(w.healthFailed, 29*time.Second)
		w.run(t)
		require.Equal(t, "Failed", w.last().Phase)
		require.Equal(t, deadline.Unix(), w.failedAt.Unix())
	})
	t.Run("it is deleted at once", func(t *testing.T) {
		w := updating(t)
		w.occupied = true
		w.turn(inplace.Drain, "DrainSuccessful")
		w.after(30*time.Second, func() { w.decision.Need, w.occupied = attention.Deletion, false })
		require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	})
}

// If a person cancels the drain in Temporal, the pods stay where they are.
func TestDrainForAnUpdateThatSomebodyCancels(t *testing.T) {
	w := updating(t)
	w.cancelled = true
	w.turn(inplace.Drain, "DrainSuccessful")
	w.after(10*time.Minute, w.joined)
	w.run(t)
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
		w.log[:7],
	)
}

// A mark that was written and that the node does not show is not written repeatedly.
func TestMarkThatDoesNotShowIsNotRepeated(t *testing.T) {
	w := updating(t)
	w.turn(inplace.Condition, "CandidateForUpdate")
	w.after(time.Minute, func() { w.decision.Need = attention.Nothing })
	w.run(t)
	require.LessOrEqual(t, w.count("mark CandidateForUpdate"), 2)
}

// The same holds if nothing was written: a node that cannot be written may need an update, too.
func TestNothingToSayIsNotSaid(t *testing.T) {
	w := updating(t)
	w.decision.Need, w.decision.Otherwise, w.decision.Why = attention.Sync, attention.InPlace, "node lacks label a"
	w.after(time.Minute, func() { w.decision.Need = attention.Nothing })
	w.run(t)
	require.Zero(t, w.count("mark "))
}
