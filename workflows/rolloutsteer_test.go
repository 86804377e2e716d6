package workflows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/rollout"
	"millwright/decide/steer"
	"millwright/workflows"
)

// wheel is where verbs for a deployment are given in a test.
type wheel struct {
	*counter
	orders []activities.SteerOrder
}

func newWheel(w *deploymentWorld) *wheel {
	s := &wheel{counter: newCounter(w.env, w.lock)}
	w.env.OnActivity("GiveSteer", mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.SteerOrder) (activities.VerbAnswer, error) {
		defer w.lock()()
		if s.fails--; s.fails >= 0 {
			return activities.VerbAnswer{}, errors.New("the API server is away")
		}
		s.orders = append(s.orders, in)
		return s.answer, nil
	}).Maybe()
	return s
}

// steerable are the workflows that take the verbs of a deployment. Each runs until the world says gone.
func steerable() map[string]func(*deploymentWorld) {
	return map[string]func(*deploymentWorld){
		"deployment": func(w *deploymentWorld) {
			w.script = []activities.DeploymentDecision{complete()}
			w.env.ExecuteWorkflow(workflows.MachineDeployment, workflows.Input{Ref: ref})
		},
		"rollout": func(w *deploymentWorld) {
			w.script = []activities.DeploymentDecision{awaiting(rollout.HeldByMachines)}
			w.env.ExecuteWorkflow(workflows.Rollout, workflows.RolloutInput{Input: workflows.Input{Ref: ref}, Revision: 7})
		},
	}
}

// steering runs a test with each of them.
func steering(t *testing.T, test func(t *testing.T, w *deploymentWorld, s *wheel, run func())) {
	for name, run := range steerable() {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentWorld(t)
			w.after(10*time.Minute, gone())
			test(t, w, newWheel(w), func() {
				run(w)
				require.NoError(t, w.env.GetWorkflowError())
			})
		})
	}
}

var (
	pause  = workflows.VerbInput{Verb: "pause", Actor: "ann", Reason: "not now"}
	paused = steer.Order{Verb: steer.Pause, Actor: "ann", Reason: "not now"}
)

func TestSteeringByUpdateIsWrittenAndAnswered(t *testing.T) {
	steering(t, func(t *testing.T, w *deploymentWorld, s *wheel, run func()) {
		back := int64(3)
		s.after(time.Minute, func() { s.ask(pause) })
		s.after(2*time.Minute, func() {
			require.Equal(t, []any{"written"}, s.heard, "it waits for nothing else")
			s.ask(workflows.VerbInput{Verb: "cancel", Reason: " bad\nimage ", Back: true, Revision: &back, UID: ref.UID})
		})
		s.after(3*time.Minute, func() {
			s.ask(workflows.VerbInput{Verb: "approve", Actor: "ann", Stages: 2})
			changed(w.env)
		})
		run()
		require.Len(t, s.orders, 3)
		require.Equal(t, activities.SteerOrder{Deployment: ref, Order: paused, At: s.orders[0].At}, s.orders[0])
		require.WithinDuration(t, w.begun.Add(time.Minute), s.orders[0].At, 0)
		require.Equal(t, steer.Order{
			Verb: steer.Cancel, Actor: "somebody, in Temporal", Reason: "bad image", Revision: &back, Back: true, UID: ref.UID,
		}, s.orders[1].Order)
		require.Equal(t, steer.Order{Verb: steer.Approve, Actor: "ann", Stages: 2}, s.orders[2].Order)
		require.Equal(t, "12", w.reads[len(w.reads)-1].Gate[activities.DeploymentsResource], "the next decision sees what was written")
		require.Empty(t, w.log, "nothing else was written")
	})
}

func TestSteeringThatMakesNoSenseIsRefusedWithoutAnActivity(t *testing.T) {
	for want, in := range map[string]any{
		`there is no verb "force": the verbs are start, pause`:                 force("ann"), // it is for machines
		"cancel needs a reason for those who come after you: reason TEXT":      workflows.VerbInput{Verb: "cancel"},
		"pause passes no stages: stages is for approve":                        workflows.VerbInput{Verb: "pause", Stages: 1},
		"the order cannot be read: json: cannot unmarshal string":              map[string]any{"verb": "undo", "revision": "three"},
		"the order is for a deployment with UID other, and this one has UID u": workflows.VerbInput{Verb: "pause", UID: "other"},
	} {
		steering(t, func(t *testing.T, _ *deploymentWorld, s *wheel, run func()) {
			s.after(time.Minute, func() { s.ask(in) })
			run()
			require.Len(t, s.refused, 1, want)
			require.Contains(t, s.refused[0], "VerbRefused: "+want)
			require.Empty(t, s.heard)
			require.Empty(t, s.orders)
		})
	}
}

func TestSteeringThatTheDeploymentHasNoUseForIsRefused(t *testing.T) {
	steering(t, func(t *testing.T, _ *deploymentWorld, s *wheel, run func()) {
		s.answer = activities.VerbAnswer{Message: "deployment default/m-1 is paused already"}
		s.after(time.Minute, func() { s.ask(pause) })
		run()
		require.Equal(t, []any{"VerbRefused: deployment default/m-1 is paused already"}, s.heard)
		require.False(t, s.orders[0].Unheard, "the answer says it")
	})
}

func TestSteeringBySignal(t *testing.T) {
	steering(t, func(t *testing.T, w *deploymentWorld, s *wheel, run func()) {
		s.after(time.Minute, func() { s.signal(pause) })
		s.after(2*time.Minute, func() { s.signal(map[string]any{"verb": "approve", "stages": "all"}) })
		s.after(3*time.Minute, func() { s.signal(force("ann")) })
		run()
		require.Len(t, s.orders, 3)
		require.Equal(t, activities.SteerOrder{Deployment: ref, Order: paused, At: s.orders[0].At, Unheard: true}, s.orders[0])
		require.Contains(t, s.orders[1].Order.Unread, "cannot unmarshal string")
		require.Equal(t, steer.Verb("force"), s.orders[2].Order.Verb, "it is refused where people see it")
		require.Equal(t, "12", w.reads[len(w.reads)-1].Gate[activities.DeploymentsResource])
	})
}

// lastTurns are ways in which a verb comes just as a run is about to end.
func lastTurns() map[string]func(*wheel) {
	return map[string]func(*wheel){
		"signal":                    func(s *wheel) { s.unseen(pause) },
		"signal that takes a while": func(s *wheel) { s.fails = 4; s.signal(pause) },
		"update that takes a while": func(s *wheel) { s.fails = 4; s.ask(pause) },
	}
}

func TestSteeringIsNotLostWhenARunEnds(t *testing.T) {
	for name, send := range lastTurns() {
		t.Run(name, func(t *testing.T) {
			steering(t, func(t *testing.T, w *deploymentWorld, s *wheel, run func()) {
				s.after(time.Minute, func() {
					send(s)
					unlock := w.lock()
					w.script = []activities.DeploymentDecision{gone()}
					unlock()
					changed(w.env)
				})
				run()
				require.Len(t, s.orders, 1)
				require.Equal(t, paused, s.orders[0].Order)
			})
		})
	}
}

func TestSteeringIsNotLostWhenARolloutContinuesAsNew(t *testing.T) {
	for name, send := range lastTurns() {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentWorld(t, awaiting(rollout.HeldByMachines))
			s := newWheel(w)
			s.after(time.Minute, func() {
				send(s)
				w.env.SetContinueAsNewSuggested(true)
				changed(w.env)
			})
			s.after(2*time.Minute, func() { changed(w.env) }) // the bridge tells of what was written
			w.env.ExecuteWorkflow(workflows.Rollout, workflows.RolloutInput{Input: workflows.Input{Ref: ref}, Revision: 7})
			var next *workflow.ContinueAsNewError
			require.ErrorAs(t, w.env.GetWorkflowError(), &next)
			var in workflows.RolloutInput
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
			require.Equal(t, "12", in.Gate[activities.DeploymentsResource], "the next run sees what was written")
			require.Len(t, s.orders, 1)
			require.Equal(t, paused, s.orders[0].Order)
		})
	}
}

// To cancel a rollout in Temporal is to give it the verb: the deployment stays where it is, and says who wanted that.
func TestRolloutThatIsCancelledInTemporalHoldsTheDeployment(t *testing.T) {
	for name, row := range map[string]struct {
		decision activities.DeploymentDecision
		log      []string
	}{
		"while it waits":            {awaiting(rollout.HeldByMachines), nil},
		"while it changes the sets": {moving("grow"), []string{"ChangeSets"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeploymentWorld(t, row.decision)
			w.answer(20 * time.Second)
			s := newWheel(w)
			s.answer.Message = "held revision 7"
			s.fails = 3 // the cancelled run does not give up
			w.env.RegisterDelayedCallback(w.env.CancelWorkflow, 10*time.Second)
			result := w.rollOut(t)
			require.Equal(t, workflows.OutcomeCancelled, result.Outcome)
			require.Equal(t, "held revision 7", result.Why)
			require.Equal(t, int64(7), result.Revision)
			require.Equal(t, "12", result.Versions[activities.DeploymentsResource], "the deployment must see the hold")
			require.Len(t, s.orders, 1)
			require.Equal(t, steer.Order{Verb: steer.Cancel, Actor: "somebody, in Temporal", Reason: "its workflow was cancelled", Revision: new(int64(7))}, s.orders[0].Order)
			require.Equal(t, ref, s.orders[0].Deployment)
			require.True(t, s.orders[0].Unheard)
			require.Len(t, w.reads, 1, "it decides nothing more")
			require.Subset(t, row.log, w.log)
		})
	}
}

func TestRolloutThatIsCancelledStopsWhenThereIsNothingToHold(t *testing.T) {
	w := newDeploymentWorld(t, awaiting(rollout.HeldByMachines))
	s := newWheel(w)
	s.answer = activities.VerbAnswer{Message: "deployment default/m-1 is being deleted"}
	w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
	result := w.rollOut(t)
	require.Equal(t, []string{workflows.OutcomeStopped, "deployment default/m-1 is being deleted"}, []string{result.Outcome, result.Why})
}

func TestRolloutThatIsCancelledWhenItsDeploymentIsGone(t *testing.T) {
	w := newDeploymentWorld(t, awaiting(rollout.HeldByMachines))
	w.env.OnActivity("GiveSteer", mock.Anything, mock.Anything).Return(activities.VerbAnswer{}, temporal.NewNonRetryableApplicationError("gone", activities.TypeObjectGone, nil))
	w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
	require.Equal(t, workflows.OutcomeGone, w.rollOut(t).Outcome)
}
